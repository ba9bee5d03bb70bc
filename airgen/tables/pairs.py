"""Read pairs of a query and a passage with a number, labels or scores, in the formats of other tools.

    read_pairs(Path("qrels.csv"), LABELS)       # columns of BEIR, ir_datasets or PyTerrier: CSV, TSV, Parquet, JSONL
    read_pairs(Path("run.json"), SCORES)        # {"q1": {"d7": 11.5}}, as BEIR, MTEB, ranx and pytrec_eval write it
    read_pairs(Path("test.tsv"), LABELS)        # None: lines of columns, which the callers read themselves

All are read, compressed or not, without sniffing the names of files.
"""

import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from airgen.errors import DatasetError
from airgen.safety.escaping import one_line
from airgen.storage.compressed_files import PARQUET, binary_format, opened
from airgen.tables.cells import NO_RATINGS, id_text, may_be_rating
from airgen.tables.delimited import DelimitedTable
from airgen.tables.lines import LinePlace, numbered_lines
from airgen.tables.parquet import parquet_rows
from airgen.tables.values import pairs_in
from airgen.tables.vocabulary import column_named, is_named, names

QUERY, PASSAGE = ("query id", "topic", "query"), ("document id", "document")
"""The roles of the columns with the ids of a pair."""
_MAX_BYTES = 1 << 30  # of JSON, which is read as a whole
_SHOWN = 8  # columns in an error


@dataclass(frozen=True)
class PairNumbers:
    """What the number of a pair is: the role of its column, and its name in messages.

    Attributes:
        missing: The number of a pair in a file without such a column; None if the column is required.
        rank: Name of a column whose smallest number is the best, which is used if there is no other.
    """

    roles: tuple[str, ...]
    what: str
    missing: float | None = None
    rank: str = ""


LABELS = PairNumbers(("rating",), "label", missing=1.0)
SCORES = PairNumbers(("score",), "score", rank="rank")


class ScoredPair(NamedTuple):
    """A pair, with the place in the file for messages. `number` is unchecked."""

    where: str
    query: str
    passage: str
    number: Any


def read_pairs(path: Path, numbers: PairNumbers) -> Iterator[ScoredPair] | None:
    """Read the pairs of a file; None if it consists of lines of columns separated by tabs or white space.

    Raises DatasetError for another format, with what to do.
    """
    if not path.is_file():
        return None  # a pipe can be read once only
    with opened(path, DatasetError) as stream:
        head = stream.read(1 << 16)
    if head.startswith(PARQUET):
        rows = ((f"{path}: row {number}", row) for number, row in enumerate(parquet_rows(path, DatasetError), 1))
        return _of_rows(path, rows, numbers)
    if named := binary_format(head):
        raise DatasetError(f"{path}: is {named}: save it as TREC, TSV, JSON, JSON Lines, CSV or Parquet")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DatasetError(f"{path}: is UTF-16: save it in UTF-8")
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    line = next((line for line in text.split("\n") if line.strip()), "")
    if _is_line(line, numbers):
        return _ranking(path) if numbers.rank and len(line.split()) == 3 else None
    if text.lstrip()[:1] in ("{", "["):
        return _json(path, numbers)
    return _table(path, numbers) if _is_table(line, numbers) else None


def label_rows(path: Path) -> Iterator[tuple[LinePlace | str, str, str, float]]:
    """Yield (place, query, passage, label) of each line of a file in a qrels format. Raises DatasetError."""
    if (pairs := read_pairs(path, LABELS)) is not None:
        for pair in pairs:
            yield pair.where, pair.query, pair.passage, _label(pair.number, pair.where)
        return
    order: tuple[int, ...]
    first, order, where = True, _FORMS[3], LinePlace(path)
    for number, line in numbered_lines(path):
        where.number = number
        cells = _cells(line)
        if len(cells) not in (3, 4):
            raise DatasetError(f"{where}: {len(cells)} columns, but query-id, corpus-id and score are needed")
        if first:
            first, named = False, _header(cells)
            if named is not None:
                order = named
                continue
            order = _order(path)
        if len(cells) != len(order):
            raise DatasetError(f"{where}: {len(cells)} columns, but earlier lines have {len(order)}")
        query, passage, label = (cells[place] for place in order[:3])
        yield where, query, passage, _label(label, where)


def _cells(line: str) -> list[str]:
    """Split a line into cells. Between tabs, ids may contain spaces; in TREC qrels, any white space separates cells."""
    cells = [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
    return cells if len(cells) in (3, 4) else line.split()


_FORMS: dict[int, tuple[int, ...]] = {
    3: (0, 1, 2),
    4: (0, 2, 3, 1),
}  # query, passage, label, iteration: BEIR's and TREC's order
_SAMPLED_LINES = 1000  # lines


def _header(cells: Sequence[str]) -> tuple[int, ...] | None:
    """Return the positions of the query, passage, label and iteration columns if the line is a header, in any order."""
    columns = [column_named(tuple(cells), *roles) for roles in (QUERY, PASSAGE, LABELS.roles)]
    places = [cells.index(name) if name else -1 for name in columns]
    if places[0] < 0 or places[2] < 0:
        return None
    unnamed = [place for place in range(len(cells)) if place not in places]
    if places[1] < 0:
        places[1] = unnamed.pop()  # a header whose name for the passage is not usual
    return (*places, *unnamed)


def _order(path: Path) -> tuple[int, ...]:
    """Return the positions of the query, passage, label and iteration columns in a four-column file without a header.

    This is TREC's order, unless the label column is constant and the iteration column is not. In that case, the label
    is the only other column with few distinct numbers. Raises DatasetError if the order cannot be determined.
    """
    rows: list[list[str]] = []
    for _, line in numbered_lines(path):
        rows.append(_cells(line))
        if len(rows) == _SAMPLED_LINES:
            break
    width = len(rows[0])
    columns = [{row[place] for row in rows if len(row) == width} for place in range(width)]
    if width == 3 or len(columns[1]) == 1 or len(columns[3]) > 1:
        return _FORMS[width]
    if all(map(_is_small, columns[2])):  # query, passage, label, iteration: as data frames are written
        return (0, 1, 2, 3)
    if len(rows) > 1 and len(columns[1]) < len(rows) and all(map(_is_small, columns[1])):
        return _FORMS[width]  # iterations that count
    raise DatasetError(
        f"{path}: four columns in an unknown order (TREC's is query, iteration, passage, label): give them a header: "
        "query-id, corpus-id, score"
    )


def _is_small(text: str) -> bool:
    return len(text) <= 4 and text.lstrip("-").replace(".", "", 1).isdigit() and -10 <= float(text) <= 10


def _label(value: object, where: LinePlace | str) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        label = float(value)
    except (ValueError, OverflowError):  # an integer can be too large for a float
        raise DatasetError(
            f"{where}: label {value!r} is not a number (map words to numbers; 0 means not relevant)"
        ) from None
    if not math.isfinite(label):
        raise DatasetError(f"{where}: label {value!r} is not a finite number")
    return label


def _is_line(line: str, numbers: PairNumbers) -> bool:
    """Return whether a line consists of ids and a number in TREC's or BEIR's order, without commas between them."""
    places = {6: (4,), 3: (2,)} if numbers.rank else {4: (2, 3), 3: (2,)}
    for cells in ([cell.strip() for cell in line.split("\t")], line.split()):
        if len(cells) in places and not all(cell.endswith((",", ";", ":")) for cell in cells[:2]):
            return any(_is_number(cells[place]) for place in places[len(cells)])
    return False


def _is_table(line: str, numbers: PairNumbers) -> bool:
    """Return whether a first line needs a parser of tables: a header of many columns or in quotes, or commas."""
    if "\t" in line:
        cells = tuple(line.split("\t"))
        special = len(set(cells)) > 4 or '"' in line or numbers.rank != ""
        return special and all(column_named(cells, *roles) for roles in (QUERY, PASSAGE))
    if len(line.split()) in (3, 4, 6) and not all(word.endswith((",", ";")) for word in line.split()[:2]):
        return False
    return max(map(line.count, ",;|")) >= 1


def _table(path: Path, numbers: PairNumbers) -> Iterator[ScoredPair]:
    with opened(path, DatasetError) as raw:
        lines = io.TextIOWrapper(raw, "utf-8-sig", newline="")
        try:
            known = {*names(*QUERY, *PASSAGE, *numbers.roles)}
            table = DelimitedTable(iter(lines), known=known, tabs=".tsv" in path.suffixes)
            rows = _regular(path, table)
            if table.dialect.header:
                yield from _of_rows(path, rows, numbers)
                return
            places = {3: (0, 1, 2), 4: (0, 2, 3), 6: (0, 2, 4)}.get(len(table.names))
            if places is None:
                count = len(table.names)
                raise DatasetError(
                    f"{path}: {count} columns without a header: write query-id, corpus-id and score above them"
                )
            for where, cells in rows:
                values = list(cells.values())
                yield ScoredPair(where, *(values[place].strip() for place in places))
        except UnicodeDecodeError as error:
            raise DatasetError(f"{path}: not UTF-8 ({error.reason}): save it in UTF-8") from error
        finally:
            lines.detach()


def _regular(path: Path, table: DelimitedTable) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows. Raises DatasetError for one that has more or fewer cells than the others."""
    for row in table:
        if row.ragged:
            raise DatasetError(f"{path}:{row.line}: does not have the {len(table.names)} columns of the other lines")
        yield f"{path}:{row.line}", row.cells


def _ranking(path: Path) -> Iterator[ScoredPair]:
    """Yield the pairs of lines `query passage rank`, as for MS MARCO, or `query passage score`.

    The numbers are ranks if they count the passages of each query from 1.
    """
    with opened(path, DatasetError) as stream:
        try:
            lines = [line.decode("utf-8-sig").split() for line in stream if line.strip()]
        except UnicodeDecodeError as error:
            raise DatasetError(f"{path}: not UTF-8 ({error.reason}): save it in UTF-8") from error
    counts = Counter[str]()
    ranked = True
    for number, cells in enumerate(lines, 1):
        if len(cells) != 3:
            raise DatasetError(f"{path}:{number}: {len(cells)} columns, but earlier lines have 3")
        counts[cells[0]] += 1
        ranked = ranked and cells[2] == str(counts[cells[0]])
    ranked = ranked and max(counts.values()) > 1
    for number, (query, passage, value) in enumerate(lines, 1):
        yield ScoredPair(f"{path}:{number}", query, passage, -float(value) if ranked else value)


def _of_rows(path: Path, rows: Iterator[tuple[str, Mapping[str, Any]]], numbers: PairNumbers) -> Iterator[ScoredPair]:
    """Yield the pairs of rows with named columns."""
    for where, row in rows:
        for part in parts_of(row):
            columns = tuple(part)
            query, number = column_named(columns, *QUERY), column_named(columns, *numbers.roles)
            passage = column_named(columns, *PASSAGE) or (column_named(columns, "id") if part is not row else "")
            rank = column_named(columns, numbers.rank) if numbers.rank and not number else ""
            if not query or not passage or not (number or rank or numbers.missing is not None):
                shown = ", ".join(one_line(str(name), 40) for name in islice(part, _SHOWN)) or "nothing"
                raise DatasetError(f"{where}: needs query-id, corpus-id and score, but has {shown}")
            if not number and not rank:
                _refuse_unread(part, (query, passage), where)
            value = _of_rank(part[rank], where) if rank else part[number] if number else numbers.missing
            yield ScoredPair(where, _plain_id(part[query], where), _plain_id(part[passage], where), value)


def parts_of(row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the row itself, or a row for each object of a list with ids of documents, as beside a query."""
    if column_named(tuple(name.rpartition(".")[2] for name in row), *PASSAGE):
        return [row]
    for name, value in row.items():
        objects = isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value)
        if objects and column_named(tuple(map(str, value[0])), *PASSAGE, "id"):
            others = {key: cell for key, cell in row.items() if key != name}
            return [{**others, **item} for item in value]
    return [row]


def _refuse_unread(row: Mapping[str, Any], used: Sequence[str], where: str) -> None:
    """Raise DatasetError if a row without a label has a value that may be one."""
    for name, value in row.items():
        if name not in used and not is_named(name, *NO_RATINGS) and may_be_rating([value]):
            raise DatasetError(
                f"{where}: the column {one_line(name, 60)!r} may hold labels: call it score, or remove it; without "
                "labels, every row would count as relevant",
                code="unread_ratings",
                where=where,
                names=[name],
            )


def _plain_id(value: Any, where: str) -> str:
    if (
        isinstance(value, bool | list | dict)
        or not (text := id_text(value))
        or (isinstance(value, float) and "." in text)
    ):
        raise DatasetError(f"{where}: {one_line(repr(value), 60)} is no id")
    return text


def _of_rank(rank: Any, where: str) -> float:
    try:
        return -float(rank)
    except (TypeError, ValueError):
        raise DatasetError(f"{where}: the rank {one_line(repr(rank), 60)} is not a number") from None


def _json(path: Path, numbers: PairNumbers) -> Iterator[ScoredPair]:
    """Yield the pairs of a JSON value, or of JSON Lines. Raises DatasetError."""
    with opened(path, DatasetError) as stream:
        yield from _json_lines(path, stream, numbers) if _has_objects(path) else _json_value(path, stream, numbers)


def _has_objects(path: Path) -> bool:
    """Return whether the first line of a file is a whole object with more lines after it, or with a query."""
    with opened(path, DatasetError) as stream:
        first = stream.readline(_MAX_BYTES).removeprefix(b"\xef\xbb\xbf")
        more = bool(stream.read(4096).strip())
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and (more or bool(column_named(tuple(value), *QUERY)))


def _json_lines(path: Path, stream: IO[bytes], numbers: PairNumbers) -> Iterator[ScoredPair]:
    def rows() -> Iterator[tuple[str, Mapping[str, Any]]]:
        for number, line in enumerate(stream, 1):
            if line.strip():
                where = f"{path}:{number}"
                row = _loaded(line, where)
                if not isinstance(row, dict):
                    raise DatasetError(f"{where}: contains {type(row).__name__} where an object was expected")
                yield where, row

    yield from _of_rows(path, rows(), numbers)


def _json_value(path: Path, stream: IO[bytes], numbers: PairNumbers) -> Iterator[ScoredPair]:
    raw = stream.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise DatasetError(f"{path}: more than {_MAX_BYTES >> 30} GB of JSON: save it as JSON Lines or TREC")
    value = _loaded(raw, str(path))
    if isinstance(value, list):
        if not all(isinstance(row, dict) for row in value) or not value:
            raise DatasetError(f"{path}: a list of objects with query-id, corpus-id and score is needed")
        yield from _of_rows(path, ((f"{path}: row {number}", row) for number, row in enumerate(value, 1)), numbers)
        return
    for query, row in _one_table(path, value, numbers).items():
        where = f"{path}: query {one_line(repr(query), 60)}"
        if isinstance(row, Mapping):
            yield from (ScoredPair(where, query, passage, number) for passage, number in row.items())
        else:
            yield from (ScoredPair(where, query, _plain_id(passage, where), numbers.missing) for passage in row)


def _one_table(path: Path, value: Mapping[str, Any], numbers: PairNumbers) -> Mapping[str, Any]:
    """Return the object {query: {passage: number}} in a value, such as MTEB's {subset: {split: ..}}.

    Raises DatasetError if there is none, or more than one.
    """
    tables = pairs_in(value, lists=numbers.missing is not None, words=False)
    if len(tables) == 1:
        return next(iter(tables.values()))
    if tables:
        listed = ", ".join(list(tables)[:_SHOWN])
        raise DatasetError(f"{path}: has {len(tables)} tables ({listed}): save each in a file of its own")
    raise DatasetError(
        f"{path}: contains neither {{query: {{passage: {numbers.what}}}}} nor a list of objects with query-id, "
        "corpus-id and score"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _loaded(raw: bytes, where: str) -> Any:
    """Parse JSON. Raises DatasetError, also for an object that has the same name twice, of which one would be lost."""
    try:
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=lambda pairs: _object(pairs, where))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: not JSON ({error})") from error


def _object(pairs: Sequence[tuple[str, Any]], where: str) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise DatasetError(f"{where}: {one_line(repr(twice), 60)} appears twice in an object")
    return members
