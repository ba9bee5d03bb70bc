"""Fast reading of large files of columns, such as runs and labels, whose lines are all clean.

    found = clean_columns(path, {6: (0, 2, 4)})     # of six columns the first, third and fifth: two keys and a number
    found.first_keys[found.rows[0, 0]], found.second_keys[found.rows[0, 1]], found.values[0]

DuckDB reads them. None means that the caller's own parser has to read the file: a line is unusual or wrong, and that
parser names it. A clean line has its cells between single tabs, or between single spaces. No cell is empty, and no key
begins or ends in a space.
"""

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airgen.database import in_memory, without_globs

_FROM = 1 << 20  # bytes of a file; below, DuckDB takes longer to begin than it saves
_LINE = 1 << 20  # bytes of the longest line
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

    def by_first(self) -> "tuple[CleanColumns, NDArray[np.int64]]":
        """The lines grouped by their first key, otherwise in file order, and where the group of each key starts."""
        first = self.rows[:, 0]
        starts = np.concatenate(([0], np.cumsum(np.bincount(first, minlength=len(self.first_keys)))))
        if np.all(first[1:] >= first[:-1]):
            return self, starts
        order = np.argsort(first, kind="stable")
        return CleanColumns(self.first_keys, self.second_keys, self.rows[order], self.values[order]), starts


def clean_columns(
    path: Path, layouts: Mapping[int, tuple[int, int, int]], header: Callable[[list[str]], bool] = lambda cells: False
) -> CleanColumns | None:
    """The lines of a file, gzipped or not; by number of columns, `layouts` says which are the keys and the number.

    `header` says of the cells of the first line whether it is one, to be passed over. None for a small file, or if a
    line is not clean.
    """
    import duckdb

    try:
        if path.stat().st_size < _FROM:
            return None
        with gzip.GzipFile(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            start = stream.readline(_LINE).decode().rstrip("\n")
            whole = path.suffix != ".gz" or all(iter(lambda: stream.read(_LINE), b""))  # DuckDB takes half a gzip
        gap = "\t" if "\t" in start else " "
        cells = start.split(gap)
        if len(cells) not in layouts or start.encode().startswith(_MARK) or not whole:
            return None
        return _read(path, gap, len(cells), layouts[len(cells)], skip=int(header(cells)))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, duckdb.Error):
        return None


def _read(path: Path, gap: str, count: int, wanted: tuple[int, int, int], skip: int) -> CleanColumns | None:
    columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(count))
    first, second, value = (f"c{place}" for place in wanted)
    rest = " AND ".join(f"c{place} <> ''" for place in range(count))
    with in_memory(files=[path]) as base:
        base.execute(
            f"CREATE TEMP TABLE line AS SELECT {first} AS a, {second} AS b, TRY_CAST({value} AS DOUBLE) AS v, "
            f"{rest} AS whole FROM read_csv(?, auto_detect = false, delim = ?, columns = {{{columns}}}, quote = '', "
            f"escape = '', comment = '', header = false, skip = {skip}, new_line = '\\n', nullstr = '\\0', "
            f"max_line_size = {_LINE})",
            [without_globs(path), gap],
        )
        bad = base.execute("SELECT count(*) FROM line WHERE v IS NULL OR NOT isfinite(v) OR NOT whole").fetchall()
        names = []
        for key in ("a", "b"):
            base.execute(
                f"CREATE TEMP TABLE key_{key} AS SELECT key, row_number() OVER (ORDER BY place) - 1 AS number "
                f"FROM (SELECT {key} AS key, min(rowid) AS place FROM line GROUP BY {key})"
            )
            names.append([row[0] for row in base.execute(f"SELECT key FROM key_{key} ORDER BY number").fetchall()])
        keys = (key for own in names for key in own)
        if bad[0][0] or not names[0] or any([key] != (key.split() if gap == " " else [key.strip()]) for key in keys):
            return None
        found = base.execute(
            "SELECT p.number::INTEGER AS a, q.number::INTEGER AS b, v FROM line JOIN key_a p ON p.key = line.a "
            "JOIN key_b q ON q.key = line.b ORDER BY line.rowid"
        ).fetchnumpy()
    rows = np.stack([np.asarray(found["a"], np.int32), np.asarray(found["b"], np.int32)], axis=1)
    return CleanColumns(names[0], names[1], rows, np.asarray(found["v"], np.float64))
