"""Fast reading of large files of columns, such as runs and labels, whose lines are all clean.

    found = clean_columns(path, {6: (0, 2, 4)})     # of six columns the first, third and fifth: two keys and a number
    found.first_keys[found.rows[0, 0]], found.second_keys[found.rows[0, 1]], found.values[0]

None means that the caller's own parser has to read the file: a line is unusual or wrong, and that parser names it. A
clean line has its cells between single tabs, or between single spaces. No cell is empty, no key begins or ends in a
space, and only keys have letters beyond ASCII.
"""

from __future__ import annotations

import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from airgen.jit import numba_is_installed

if TYPE_CHECKING:
    from airgen.dataset._clean_columns_compiled import Keys

__all__ = ["CleanColumns", "clean_columns"]

_FROM = 1 << 20  # bytes of a file; below, loading numba takes longer than it saves
_BLOCK = 1 << 22  # bytes read at once
Number = TypeVar("Number", np.uint8, np.uint64, np.int64)
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class CleanColumns:
    """Two keys and a number for each line, in file order.

    rows: int32 (lines, 2), places in `first_keys` and `second_keys`, which are in the order of their first appearance.
    values: float64 (lines,), finite.
    """

    first_keys: list[str]
    second_keys: list[str]
    rows: NDArray[np.int32]
    values: NDArray[np.float64]

    def by_first(self) -> tuple[CleanColumns, NDArray[np.int64]]:
        """The lines grouped by their first key, otherwise in file order, and where the group of each key starts."""
        first = self.rows[:, 0]
        starts = np.concatenate(([0], np.cumsum(np.bincount(first, minlength=len(self.first_keys)))))
        if np.all(first[1:] >= first[:-1]):
            return self, starts
        order = np.argsort(first, kind="stable")
        return CleanColumns(self.first_keys, self.second_keys, self.rows[order], self.values[order]), starts


class _Keys:
    """Keys by number: a hash table with room for what one more block can bring."""

    def __init__(self) -> None:
        self._table = np.zeros(0, np.uint64)
        self._hashes = np.zeros(0, np.uint64)
        self._ends = np.zeros(1, np.int64)
        self._letters = np.zeros(0, np.uint8)
        self._count = np.zeros(1, np.int64)

    def parts(self, lines: int, size: int) -> Keys:
        """What the compiled loop needs, with room for so many more keys and letters."""
        from airgen.dataset._clean_columns_compiled import rehash

        count = int(self._count[0])
        self._hashes = _with_room(self._hashes, count + lines)
        self._ends = _with_room(self._ends, count + lines + 1)
        self._letters = _with_room(self._letters, int(self._ends[count]) + size + 8 * lines)
        if 2 * (count + lines) > len(self._table):
            self._table = np.zeros(1 << (2 * (count + lines)).bit_length(), np.uint64)
            rehash(self._table, self._hashes, self._ends, count)
        return self._table, self._hashes, self._ends, self._letters, self._count

    def names(self) -> list[str]:
        """The keys. Raises UnicodeDecodeError."""
        ends = self._ends[: int(self._count[0]) + 1].tolist()
        letters = self._letters[: ends[-1]].tobytes()
        return [letters[start + 8 : end].decode() for start, end in pairwise(ends)]


def _with_room(array: NDArray[Number], size: int) -> NDArray[Number]:
    """The array, or a copy at the start of a larger one."""
    if size <= len(array):
        return array
    larger = np.zeros(2 * size, array.dtype)
    larger[: len(array)] = array
    return larger


def clean_columns(
    path: Path, layouts: Mapping[int, tuple[int, int, int]], header: Callable[[list[str]], bool] = lambda cells: False
) -> CleanColumns | None:
    """The lines of a file, gzipped or not; by number of columns, `layouts` says which are the keys and the number.

    `header` says of the cells of the first line whether it is one, to be passed over. None for a small file, without
    numba, or if a line is not clean.
    """
    try:
        if not numba_is_installed() or path.stat().st_size < _FROM:
            return None
        with gzip.GzipFile(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            return _read(stream, layouts, header)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return None


def _read(
    stream: io.BufferedIOBase, layouts: Mapping[int, tuple[int, int, int]], header: Callable[[list[str]], bool]
) -> CleanColumns | None:
    from airgen.dataset._clean_columns_compiled import parse

    first, second = _Keys(), _Keys()
    rows: list[NDArray[np.int32]] = []
    values: list[NDArray[np.float64]] = []
    gap = b""
    for block in _blocks(stream):
        if not gap:
            start = block.split(b"\n", 1)[0]
            gap = b"\t" if b"\t" in start else b" "
            cells = start.decode().split(gap.decode())
            if len(cells) not in layouts:
                return None
            if header(cells):
                block = block[len(start) + 1 :]
        data = np.frombuffer(block, np.uint8)
        lines = block.count(b"\n") + 1
        row, value, hard = np.empty((lines, 2), np.int32), np.empty(lines), np.empty((lines, 3), np.int64)
        keys = first.parts(lines, len(data)), second.parts(lines, len(data))
        found, hards = parse(data, gap[0], len(cells), *layouts[len(cells)], *keys, row, value, hard)
        if found < 0:
            return None
        for line, begin, end in hard[:hards].tolist():
            try:
                value[line] = float(block[begin:end])
            except ValueError:
                return None
            if not math.isfinite(value[line]):
                return None
        rows.append(row[:found].copy())
        values.append(value[:found].copy())
    names = first.names(), second.names()
    by_space = gap == b" "
    if not all([key] == key.split() if by_space else key == key.strip() for keys in names for key in keys):
        return None  # white space beyond ASCII
    return CleanColumns(*names, np.concatenate(rows), np.concatenate(values)) if any(map(len, rows)) else None


def _blocks(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Whole lines, without a byte order mark. It ends early where a line is longer than a block: it is not clean."""
    rest = b""
    start = True
    while block := stream.read(_BLOCK):
        block = rest + (block.removeprefix(_MARK) if start else block)
        start = False
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        if len(rest) > _BLOCK:
            raise OSError("a line is longer than a block")
        if end:
            yield block[:end]
    if rest:
        yield rest
