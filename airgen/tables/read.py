"""Read a user's table of queries, labels or scores from anything: a file, rows, a data frame, or objects.

    table = read(Path("log.csv"), known={"query", "count"})     # or read(frame, name="queries")
    table.rows      # [(2, {"query": "login fails", "count": "7"}), ...]: nested fields have dotted names
    table.columns() # what each column is called, and what it holds

The format of a file is detected from the content: a JSON value, JSON Lines, TREC topics, delimited text, or text with
one value per line. Files from Excel may have semicolons, a line `sep=;`, UTF-16 or a legacy code page. They are read as
a whole, so their size is limited.
"""

import html
import io
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from airgen.errors import DatasetError, UsageError
from airgen.storage.compressed_files import PARQUET, binary_format, opened
from airgen.tables.chats import conversation
from airgen.tables.choose_columns import TableColumn, columns_of
from airgen.tables.delimited import DelimitedTable
from airgen.tables.objects import rows_of
from airgen.tables.parquet import parquet_rows
from airgen.tables.values import VALUE, flat, json_rows
from airgen.tables.vocabulary import folded, is_named
from airgen.text.character_encodings import decoded

MAX_BYTES = 256 << 20  # of a file, after inflation
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SAMPLE_ROWS = 1000  # rows that are looked at
_TOPICS_FILE = re.compile(r"\A\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)?<(top|topics|topic)\b", re.IGNORECASE | re.DOTALL)
_TOPICS_BEGIN = 5000  # characters in which the first topic begins
_TOPIC = re.compile(r"<top(?:ic)?\b([^<>]*)>(.*?)(?=</top(?:ic)?>|<top(?:ic)?\b|\Z)", re.DOTALL | re.IGNORECASE)
_FIELD = re.compile(r"<(num|title|query|question|raw_utterance)\b[^>]*>([^<]*)", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_LABEL = re.compile(r"\A\s*(number|topic|query)\s*:", re.IGNORECASE)
_RATED = re.compile(r"\A(\d+(?:\.\d+)?)\s+qid:(\S+)\s+(?:\d+:\S+\s+)*#\s*(\S+)(?:\s+(.*))?")
_TOPIC_LINE = re.compile(r"(\d{1,6}):(?!//)(.*\S.*)")
_NUMBER_OF = re.compile(r"""\b(?:number|id|qid)\s*=\s*["']([^"']+)""")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class UserTable:
    """The rows of a table, each with its number, from 1: that of its line in a file of lines.

    Attributes:
        name: The file, or what the table is called in messages.
        form: `json`, `jsonl`, `topics`, `table` or `lines`.
        invented: Whether the column names are invented, because there is no header.
        notes: Descriptions of irregularities.
        names: The header, or names by position.
    """

    name: str
    form: str
    rows: Sequence[tuple[int, Row]]
    invented: bool = False
    notes: Sequence[str] = ()
    names: Sequence[str] = ()

    def columns(self) -> list[TableColumn]:
        """Return the columns, based on the first rows."""
        return columns_of([row for _, row in self.rows[:_SAMPLE_ROWS]], self.names, invented=self.invented)

    def where(self, number: int) -> str:
        """Return the location of a row for messages."""
        return f"{self.name}: row {number}" if self.form == "json" else f"{self.name}:{number}"


def read_text(path: Path, language: str) -> str:
    """Read a text file, gzipped or not, in UTF-8 or the encoding detected from its bytes. Raises DatasetError."""
    with opened(path, DatasetError) as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise DatasetError(f"{path}: larger than {MAX_BYTES >> 20} MB: use only a part of it")
    if raw[:2] not in _BYTE_ORDER_MARKS and b"\x00" in raw[:4096]:
        named = binary_format(raw[:16])
        raise DatasetError(f"{path}: is {named or 'not text (an .xlsx file?)'}: save it as CSV")
    try:
        return decoded(raw, "", language).text.removeprefix("\ufeff")
    except UnicodeError as error:
        raise DatasetError(f"{path}: its encoding is not known: save it in UTF-8") from error


def read(
    source: Any,
    *,
    name: str = "table",
    language: str = "en",
    known: Collection[str] = (),
    members: Sequence[str] = (),
    header: bool | None = None,
    absorbing: Sequence[str] = (),
    chats: bool = False,
    pairs: bool = False,
) -> UserTable:
    """Read a table.

    Args:
        source: A file, or what `airgen.tables.objects.rows_of` takes. A file with no extension or `.txt` has one value
            per line, unless it is a table or JSON.
        name: Name in messages of a table that is no file.
        language: Language of the texts, which helps to recognise a legacy encoding.
        known: Usual column names, folded. A first row that contains one of them is a header.
        members: Names of the members of a JSON object that may contain the rows.
        header: Whether there is a header. None detects it.
        absorbing: Usual names of the column to which surplus cells are added. Default: the last column.
        chats: Whether the rows of conversations are the messages that people wrote in them.
        pairs: Whether {name: {inner name: number}} and {name: [inner names]} are pairs.

    Raises:
        DatasetError: The file cannot be read; the message names the line.
        UsageError: The source holds no rows.
    """
    if not isinstance(source, str | Path):
        try:
            given = list(enumerate(rows_of(source, known=known, members=members, pairs=pairs), 1))
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from error
        of_people = _of_chats(name, "json", given) if chats else None
        return of_people or UserTable(name, "json", [(number, flat(row)) for number, row in given])
    path = Path(source)
    if _is_parquet(path):
        cells = list(enumerate(parquet_rows(path, DatasetError), 1))
        of_chats = _of_chats(str(path), "json", cells) if chats else None
        return of_chats or UserTable(str(path), "json", [(number, flat(row)) for number, row in cells])
    text = read_text(path, language)
    suffix = Path(re.sub(r"\.(?:gz|bz2|zst)\Z", "", path.name)).suffix.lower()
    start = text.lstrip()[:1]
    if suffix in (".yaml", ".yml"):
        return _yaml(path, text, members, known)
    if suffix in (".json", ".jsonl", ".ndjson") or start in ("[", "{"):
        table = _json(
            path, text, members, known, sure=suffix in (".json", ".jsonl", ".ndjson"), chats=chats, pairs=pairs
        )
        if table is not None:
            return table
    if _TOPICS_FILE.match(text[:_TOPICS_BEGIN]):
        return _topics(path, text)
    if rated := _rated_lines(text):
        return UserTable(str(path), "table", rated)
    if suffix not in (".csv", ".tsv", ".tab") and (numbered := _numbered(text)):
        return UserTable(str(path), "topics", numbered)
    if suffix not in (".csv", ".tsv", ".tab") and not _has_tabs(text) and not _has_header(text, known):
        lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
        if suffix in _DOCUMENTS:
            raise DatasetError(f"{path}: is a document: write one value per line in a .txt file, or a table")
        lines, note = _without_marks(lines)
        numbered_lines = [(number, {VALUE: line}) for number, line in enumerate(lines, 1)]
        return UserTable(str(path), "lines", numbered_lines, notes=[note] if note else [])
    tabs = suffix in (".tsv", ".tab") or "\t" in text.split("\n", 1)[0]
    table_text = DelimitedTable(io.StringIO(text, newline=None), known=known, header=header, tabs=tabs)
    names = {folded(name): name for name in table_text.names}
    table_text.absorbing = next((names[name] for name in absorbing if name in names), table_text.absorbing)
    rows = [(row.line, row.cells) for row in table_text]
    if chats and (table := _of_chats(str(path), "table", rows)) is not None:
        return table
    rows, all_names = _with_members(rows, table_text.names)
    notes = []
    if table_text.dialect.skipped:
        notes.append(f"{table_text.dialect.skipped} lines before the header were left out")
    if not table_text.dialect.header and len(table_text.names) > 1:
        notes.append("no header")
    if table_text.ragged:
        notes.append(f"{table_text.ragged:,} rows have fewer or more cells than the others")
    invented = not table_text.dialect.header
    return UserTable(str(path), "table", rows, invented=invented, notes=notes, names=all_names)


def _is_parquet(path: Path) -> bool:
    with opened(path, DatasetError) as file:
        return file.read(4) == PARQUET


def _with_members(rows: list[tuple[int, Row]], names: Sequence[str]) -> tuple[list[tuple[int, Row]], Sequence[str]]:
    """Return rows and columns with the members of JSON objects in cells as columns: `input.question` of the cell
    `{"question": ".."}` in `input`, as tools that trace LLMs export it.
    """
    packed = [name for name in names if _are_objects([row.get(name) for _, row in rows[:_SAMPLE_ROWS]])]
    if not packed:
        return rows, names
    unpacked: list[tuple[int, Row]] = []
    for number, row in rows:
        cells: dict[str, Any] = {}
        for name, cell in row.items():
            inner = _object(cell) if name in packed else None
            cells |= {name: cell} if inner is None else flat({name: inner})
        unpacked.append((number, cells))
    return unpacked, list(dict.fromkeys(name for _, row in unpacked for name in row))


def _are_objects(cells: Sequence[Any]) -> bool:
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(_object(cell) is not None for cell in filled)


def _object(cell: Any) -> dict[str, Any] | None:
    """Return the JSON object in a cell; None for another cell."""
    if not isinstance(cell, str) or cell[:1] != "{" or cell[-1:] != "}":
        return None
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value else None


_DOCUMENTS = (".md", ".html", ".htm", ".rst", ".pdf", ".docx", ".xml")
_BULLET = re.compile(r"\A[ \t]*[-*•][ \t]+(\S.*)")
_NUMBERED = re.compile(r"\A[ \t]*(\d{1,6})[.)][ \t]+(\S.*)")
_QUOTED = re.compile(r"\A[ \t]*(?:\"((?:[^\"]|\"\")+)\"|“([^”]+)”|«([^»]+)»)[,;]?[ \t]*")


def _without_marks(lines: list[str]) -> tuple[list[str], str]:
    """Remove list markers from lines: bullets, numbers or surrounding quotes, if every line has them."""
    said = [line for line in lines if line.strip()]
    if len(said) < 2:
        return lines, ""
    numbers = [match and int(match[1]) for match in map(_NUMBERED.fullmatch, said)]
    if numbers == list(range(1, len(said) + 1)):
        return [match[2] if (match := _NUMBERED.fullmatch(line)) else line for line in lines], "numbers were left out"
    if all(map(_BULLET.fullmatch, said)):
        return [match[1] if (match := _BULLET.fullmatch(line)) else line for line in lines], "bullets were left out"
    if all(map(_QUOTED.fullmatch, said)):
        plain = [
            next(filter(None, match.groups())).replace('""', '"').strip()
            if (match := _QUOTED.fullmatch(line))
            else line
            for line in lines
        ]
        return plain, "quotation marks were left out"
    return lines, ""


class _PlainYaml(yaml.SafeLoader):
    """A YAML loader that keeps values as written and refuses aliases, which can expand without limit."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("it has aliases (*name), which are not supported")
        return super().compose_node(parent, index)


_PlainYaml.yaml_implicit_resolvers = {}


def _yaml(path: Path, text: str, members: Sequence[str], known: Collection[str]) -> UserTable:
    """Return the rows in a YAML value, as for JSON."""
    try:
        value = yaml.load(text, Loader=_PlainYaml)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not YAML ({' '.join(str(error).split())[:200]})") from error
    if not isinstance(value, list | dict):
        raise DatasetError(f"{path}: contains neither a list nor a mapping")
    try:
        rows = json_rows(value, members, known)
    except ValueError as error:
        raise DatasetError(f"{path}: {error}") from error
    return UserTable(str(path), "json", list(enumerate(rows, 1)))


def _rated_lines(text: str) -> list[tuple[int, Row]]:
    """Parse labels in learning-to-rank format, `2 qid:7 1:0.5 # d1 the query`; returns nothing if a line has another
    form.
    """
    rows: list[tuple[int, Row]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _RATED.fullmatch(line.strip())
        if match is None:
            return []
        rows.append(
            (number, {"rating": match[1], "qid": match[2], "docid": match[3], "query": (match[4] or "").strip()})
        )
    named = all(row["query"] for _, row in rows)
    return [(number, {key: row[key] for key in row if key != ("qid" if named else "query")}) for number, row in rows]


def _numbered(text: str) -> list[tuple[int, Row]]:
    """Parse TREC Web Track topics, `51:horse hooves` on each line; returns nothing if a line has another form."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    matches = [(number, _TOPIC_LINE.fullmatch(line.strip())) for number, line in lines]
    rows = [(number, {"num": match[1], "query": match[2].strip()}) for number, match in matches if match is not None]
    different = len({row["num"] for _, row in rows}) == len(rows) == len(lines)
    return list(rows) if len(rows) > 1 and different else []


def _has_tabs(text: str) -> bool:
    """Return whether all lines have the same number of tabs, and at least one."""
    counts = {line.count("\t") for line in text.split("\n") if line.strip()}
    return len(counts) == 1 and counts != {0}


def _has_header(text: str, known: Collection[str]) -> bool:
    """Return whether the first line consists of usual names of columns, as in a CSV file without its extension."""
    first = text.lstrip().split("\n", 1)[0]
    return any(
        len(cells) > 1 and all(folded(cell) in known for cell in cells)
        for cells in (first.split(mark) for mark in ",;|")
    )


def _json(
    path: Path, text: str, members: Sequence[str], known: Collection[str], *, sure: bool, chats: bool, pairs: bool
) -> UserTable | None:
    """Parse a JSON value or JSON Lines. Returns None for anything else, unless the file name promises JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _json_lines(path, text, error, sure=sure, chats=chats)
    if chats and isinstance(value, list | dict):
        inner = [member for member in value.values() if isinstance(member, list)] if isinstance(value, dict) else []
        for rows in (value if isinstance(value, list) else [value], *inner):
            if (table := _of_chats(str(path), "json", list(enumerate(rows, 1)))) is not None:
                return table
    if isinstance(value, dict) and "\n" not in text.strip() and path.name.removesuffix(".gz").endswith("l"):
        return UserTable(str(path), "jsonl", [(1, flat(value))])  # JSON Lines of one line
    if not isinstance(value, list | dict):
        if not sure:
            return None
        return _json_lines(path, text, ValueError("no list"), sure=True, chats=chats)
    try:
        rows = json_rows(value, members, known, pairs=pairs)
    except ValueError as error:
        raise DatasetError(f"{path}: {error}") from error
    return UserTable(str(path), "json", list(enumerate(rows, 1)))


def _json_lines(path: Path, text: str, whole: Exception, *, sure: bool, chats: bool) -> UserTable | None:
    rows: list[tuple[int, Row]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not sure:
                return None
            if not rows and (several := _concatenated(text)):
                return UserTable(str(path), "jsonl", several)
            if rows or path.name.removesuffix(".gz").endswith("l"):
                raise DatasetError(f"{path}:{number}: not JSON ({error})") from error
            raise DatasetError(f"{path}: not JSON ({whole})") from whole
        if isinstance(row, list | bool | None):
            kind = type(row).__name__
            if not sure:
                return None
            raise DatasetError(f"{path}:{number}: contains {kind} where an object was expected")
        rows.append((number, row if isinstance(row, dict) else {VALUE: row}))
    if chats and (table := _of_chats(str(path), "jsonl", rows)) is not None:
        return table
    return UserTable(str(path), "jsonl", [(number, flat(row)) for number, row in rows])


def _of_chats(name: str, form: str, rows: Sequence[tuple[int, Any]]) -> UserTable | None:
    """Return the messages that people wrote in conversations, each a row; None if rows hold no conversations, or have
    a query beside them."""
    if not rows or not all(isinstance(row, Mapping) for _, row in rows):
        return None
    if any(is_named(name, "asked") and isinstance(value, str) for _, row in rows for name, value in row.items()):
        return None
    held = [(number, inner) for number, row in rows if (inner := conversation(row)) is not None]
    conversations = [pair for pair in held if any(message.is_by_person for message in pair[1][1])]
    if 2 * len(conversations) < len(rows):
        return None
    asked = [
        (number, {"query": message.text}, place)
        for number, (_, messages) in conversations
        for place, message in enumerate([message for message in messages if message.is_by_person and message.text])
    ]
    later = sum(place > 0 for *_, place in asked)
    notes = [
        f"the messages of people in {len(conversations):,} conversations, at {conversations[0][1][0]}",
        *([f"{later:,} of {len(asked):,} follow an earlier message and may not be clear without it"] if later else []),
        *([f"{missing:,} rows hold no messages"] if (missing := len(rows) - len(conversations)) else []),
    ]
    return UserTable(name, form, [(number, row) for number, row, _ in asked], notes=notes)


def _concatenated(text: str) -> list[tuple[int, Row]]:
    """Parse concatenated multi-line objects, as printed by jq; returns nothing for anything else."""
    decoder, place, rows = json.JSONDecoder(), 0, list[tuple[int, Row]]()
    line, counted = 1, 0
    while True:
        while place < len(text) and text[place].isspace():
            place += 1
        if place == len(text):
            return rows
        line, counted = line + text.count("\n", counted, place), place
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return []
        if not isinstance(value, dict):
            return []
        rows.append((line, flat(value)))


def _topics(path: Path, text: str) -> UserTable:
    """Parse TREC topics: `<top> <num> Number: 301 <title> ... </top>` or `<topic number="1"><query>...`."""
    rows: list[tuple[int, Row]] = []
    for match in _TOPIC.finditer(text):
        row: dict[str, Any] = {}
        if number := _NUMBER_OF.search(match[1]):
            row["num"] = number[1]
        for name, value in _FIELD.findall(match[2]):
            plain = " ".join(_LABEL.sub("", html.unescape(value)).split())
            if plain:
                row.setdefault(name.lower(), plain)
        if len(row) < 2 and (own := " ".join(html.unescape(_TAG.sub(" ", match[2])).split())):
            row["text"] = own  # a topic whose text is in no field
        if row:
            rows.append((text.count("\n", 0, match.start()) + 1, row))
    return UserTable(str(path), "topics", rows)
