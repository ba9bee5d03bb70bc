"""What need not be in memory: texts and the keys that were met in temporary files, places of keys as numbers.

    texts = StoredTexts(["a", "b"])         # 8 bytes of memory each
    texts[1]                                # read from the file
    Joined([texts, texts])                  # four texts
    KeyCounts().add("a")                    # 1 the first time, then 2, ...

A training on millions of pairs so holds some 60 bytes for each pair, whatever the length of its texts. (Columns of
`datasets` were tried: reading one text takes 286 microseconds instead of 3.)
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from airgen.errors import disk_error
from airgen.keys import text_key
from airgen.sequences import Indexed

T = TypeVar("T")
_BUFFER = 1 << 20
_MOST = 255


def key_of(text: str) -> int:
    """A hash of 63 bits. Two of a billion texts share one with a probability of 5 %."""
    return int(text_key(text)[:16], 16) >> 1


class StoredTexts(Indexed[str]):
    """Texts in a temporary file (in TMPDIR). Raises AirgenError if the disk refuses."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        with tempfile.TemporaryFile() as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._ends, self._held = array("q", [0]), bytearray()
        for text in texts:
            self.append(text)

    def append(self, text: str) -> None:
        """Add a text at the end."""
        data = text.encode("utf-8", "surrogatepass")
        self._held += data
        self._ends.append(self._ends[-1] + len(data))
        if len(self._held) > _BUFFER:
            self._write()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def _item(self, place: int) -> str:
        self._write()
        start, end = self._ends[place], self._ends[place + 1]
        if hasattr(os, "pread"):
            data = os.pread(self._file, end - start, start)
        else:  # Windows
            os.lseek(self._file, start, os.SEEK_SET)
            data = os.read(self._file, end - start)
        return data.decode("utf-8", "surrogatepass")

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets a list: the file is this one's."""
        return list, (list(self),)

    def _write(self) -> None:
        if not self._held:
            return
        try:
            os.lseek(self._file, 0, os.SEEK_END)
            while self._held:
                del self._held[: os.write(self._file, self._held)]
        except OSError as error:
            raise disk_error(error) from error


class KeyPlaces:
    """Where each of many keys stands: 12 bytes for each instead of the 100 of a dict."""

    def __init__(self, keys: Sequence[int] | array[int]) -> None:
        every = np.asarray(keys, np.int64)
        self._order = np.argsort(every, kind="stable").astype(np.int32)
        self._sorted = every[self._order]

    def find(self, keys: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The first place of each key, or -1: int64 (n,)."""
        wanted = np.asarray(keys, np.int64)
        if not len(self._sorted):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        return np.where(self._sorted[at] == wanted, self._order[at], -1).astype(np.int64)


class Joined(Indexed[T]):
    """Several sequences one after another; `change(number of the sequence, item)` is what an item becomes."""

    def __init__(self, parts: Sequence[Sequence[T]], change: Callable[[int, T], T] = lambda _, item: item) -> None:
        self._parts, self._change = parts, change
        self._starts = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self._starts[-1]

    def _item(self, place: int) -> T:
        part = int(np.searchsorted(self._starts, place, "right")) - 1
        return self._change(part, self._parts[part][place - self._starts[part]])

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets a list."""
        return list, (list(self),)


class KeyCounts:
    """How often each of many texts was met, up to 255 times: a set of Python's takes about 100 bytes for each.

    An open-addressing table of 9 bytes a slot in a temporary file that is mapped into memory, so that the operating
    system can take its pages back. A key is a text, or the hash of one, whose bits must be spread evenly. `len(counts)`
    is the number of keys. `slots`: the initial size, a power of two; it doubles when two thirds are full.
    """

    def __init__(self, slots: int = 1 << 12) -> None:
        self._used = 0
        self._open(slots)

    def __len__(self) -> int:
        return self._used

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int | str) and self.count(key) > 0

    def count(self, key: int | str) -> int:
        """How often the key was added."""
        return self._counts[self._slot(key)]

    def add(self, key: int | str) -> int:
        """Add the key once; returns how often it was added, this time included."""
        key = key_of(key) if isinstance(key, str) else key
        slot = self._slot(key)
        count: int = self._counts[slot]
        if not count:
            if 3 * (self._used + 1) > 2 * self._slots:
                self._grow()
                slot = self._slot(key)
            self._keys[slot] = key
            self._used += 1
        if count < _MOST:
            self._counts[slot] = count + 1
        return count + 1

    def _slot(self, key: int | str) -> int:
        """The slot of the key, or the free one where it belongs."""
        key = key_of(key) if isinstance(key, str) else key
        keys, counts, last = self._keys, self._counts, self._slots - 1
        slot = key & last
        while counts[slot] and keys[slot] != key:
            slot = (slot + 1) & last
        return slot

    def _open(self, slots: int) -> None:
        with tempfile.TemporaryFile() as file:
            file.truncate(9 * slots)
            table = memoryview(mmap.mmap(file.fileno(), 9 * slots))
        self._slots = slots
        self._keys, self._counts = table[: 8 * slots].cast("Q"), table[8 * slots :]

    def _grow(self) -> None:
        keys, counts, slots = self._keys, self._counts, self._slots
        self._open(2 * slots)
        for old in range(slots):
            if counts[old]:
                new = self._slot(keys[old])
                self._keys[new], self._counts[new] = keys[old], counts[old]
