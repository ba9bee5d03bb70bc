"""Read a BEIR directory: `corpus.jsonl[.gz]`, `queries.jsonl[.gz]`, `qrels/{split}.tsv`.

    dataset = BeirDataset.open("scifact")
    for passage in dataset.passages(): ...              # streamed, in file order
    qrels = dataset.qrels("test")                       # {query id: {passage id: label}}

Common variants are accepted: CRLF, a byte order mark, the field names of AIR-Bench, ir_datasets, Pyserini and
PyTerrier, files packed with gzip, bzip2 or zstd, and qrels in the formats of `airgen.tables.pairs`, in `qrels/`
or beside the corpus. A folder of AIR-Bench's own layout (`airgen.dataset.air_bench`) is opened in place. Anything else
(a label that is not a number, a line that is not JSON, a repeated id) raises a DatasetError that names the file and
line. The module needs no work database, so anyone can evaluate a published dataset.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol, cast

from airgen.components.registry import closest
from airgen.dataset.air_bench import AirBenchFiles, air_bench_files, labels_repository
from airgen.dataset.content import FILTER, WORDINGS_FILE
from airgen.errors import DatasetError
from airgen.safety.escaping import one_line
from airgen.storage.compressed_files import opened
from airgen.storage.paths import fetched_collection
from airgen.tables.lines import LinePlace, numbered_lines
from airgen.tables.pairs import label_rows
from airgen.tables.vocabulary import column_named

Labels = dict[str, dict[str, float]]

_LABEL_FORMATS = ("tsv", "jsonl", "csv", "json", "ndjson", "parquet", "trec", "qrels", "qrel", "txt")  # preferred first
_OF_LABELS = rf"(?:-\d+-of-(?P<shards>\d+))?\.(?P<format>{'|'.join(_LABEL_FORMATS)})(?:\.(?:gz|bz2|zst))?"
_ENDING_OF_LABELS = re.compile(rf"{_OF_LABELS}\Z")
_LABELS_BESIDE = re.compile(rf"qrels?(?:[._-](?P<split>[a-z0-9_]+))?{_OF_LABELS}", re.IGNORECASE)
_NO_LABELS = re.compile(r"(?:readme|licen[cs]e|notice|dataset_info|manifest)\b", re.IGNORECASE)
_OTHER_LAYOUTS = {
    "corpus": re.compile(r"(?:corpus|collection|docs|documents|passages)\b", re.IGNORECASE),
    "queries": re.compile(r"(?:queries|topics|query)\b", re.IGNORECASE),
}
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # typeshed does not know it


class IdSet(Protocol):
    """The interface of a set of ids, for readers that record the ids they have seen."""

    def __contains__(self, key: object, /) -> bool: ...

    def __len__(self) -> int: ...

    def add(self, key: str, /) -> object:
        """Add an id."""


@dataclass(frozen=True, slots=True)
class BeirPassage:
    """A line of the corpus. `title` may be empty, and `metadata` is the field of that name."""

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BeirQuery:
    """A line of the queries. `metadata` is the field of that name (type, length, style, ...)."""

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def filter(self) -> dict[str, Any]:
        """Return the metadata values that passages must have, from `filter.version: 2` or an object `filter`."""
        return filter_of(self.metadata, f"query {self.id!r}")


def filter_of(metadata: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the values of `filter.NAME` and of an object `filter` in a query's metadata or in a row of queries.

    Raises DatasetError, naming `where`, if `filter` is not an object.
    """
    nested = metadata.get("filter")
    if nested is None or nested == "" or nested != nested:  # NaN, as data frames write nothing
        nested = {}
    if not isinstance(nested, Mapping):
        raise DatasetError(
            f"{where}: the filter {one_line(repr(nested), 60)} is not an object: write "
            '{"filter": {"NAME": VALUE}} or "filter.NAME": VALUE'
        )
    wanted = dict(nested)
    wanted |= {name.removeprefix(FILTER): value for name, value in metadata.items() if name.startswith(FILTER)}
    return {name: value for name, value in wanted.items() if value is not None and value != ""}


@dataclass(frozen=True, slots=True)
class Qrels:
    """Relevance labels: {query id: {passage id: label}}, in file order."""

    labels: Labels

    @property
    def judged(self) -> int:
        """Return the number of (query, passage) pairs with a label."""
        return sum(map(len, self.labels.values()))


@dataclass(frozen=True)
class BeirDataset:
    """A dataset directory in BEIR's or AIR-Bench's layout, created by `open`. Each file is read on demand.

    `called` overrides its name if several datasets have the same name.
    """

    path: Path
    air_bench: AirBenchFiles | None = None
    called: str = ""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "BeirDataset":
        """Check that the directory holds the files of a dataset, and open it.

        A name that is not a directory refers to a fetched collection (`scifact`). Raises DatasetError if a file is
        missing or truncated.
        """
        path = Path(path)
        if not path.is_dir():
            path = fetched_collection(path) or path
        if not path.is_dir():
            raise DatasetError(
                f"{path}: not a directory; a dataset has corpus.jsonl, queries.jsonl and qrels/ "
                "(public ones: airgen show collections beir, airgen fetch beir --only NAME)"
            )
        if not (path / "qrels").is_dir() and not (path / "manifest.json").exists():
            files = air_bench_files(path)
            if files is not None:
                return cls(path, files)
        dataset = cls(path)
        for name in ("corpus", "queries"):
            dataset.file(name)
        dataset._refuse_half_a_copy()
        if not dataset.splits and not dataset.withheld:
            raise DatasetError(
                f"{path}: contains no qrels/*.tsv (or .jsonl, .csv, .json, .txt, .parquet), so it cannot be evaluated"
            )
        return dataset

    def _refuse_half_a_copy(self) -> None:
        """Raise DatasetError if a file is smaller than the manifest says, since an interrupted copy looks complete."""
        files = self.manifest.get("files")
        for name, about in files.items() if isinstance(files, dict) else ():
            if name == "README.md":
                continue  # a person may have shortened the card
            path, size = self.path / name, about.get("bytes") if isinstance(about, dict) else None
            if isinstance(size, int) and path.is_file() and (present := path.stat().st_size) < size:
                raise DatasetError(
                    f"{path}: has {present:,} of the {size:,} bytes that manifest.json says: copy it again, or delete "
                    "manifest.json if you shortened it",
                    code="incomplete_file",
                    where=path,
                )

    def file(self, name: str) -> Path:
        """Return the path of `name`.jsonl, gzipped or not. Raises DatasetError if there is neither."""
        if self.air_bench is not None and name == "corpus":
            return self.air_bench.corpus
        for suffix in (".jsonl", ".jsonl.gz", ".jsonl.bz2", ".jsonl.zst"):
            if (path := self.path / f"{name}{suffix}").is_file():
                return path
        others = sorted(path for path in self.path.glob("*") if _OTHER_LAYOUTS[name].match(path.name))
        advice = f"; convert {others[0].name} to it: a line for each, with _id and text" if others else ""
        raise DatasetError(f"{self.path}: {name}.jsonl (or {name}.jsonl.gz) is missing{advice}")

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """Return the content of manifest.json (name, task, language, ...), or an empty mapping if there is no such
        file."""
        path = self.path / "manifest.json"
        if not path.is_file():
            return {}
        try:
            value = json.loads(path.read_text("utf-8"))
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{path}: not JSON ({error})") from error
        if not isinstance(value, dict):
            raise DatasetError(f"{path}: contains {type(value).__name__} where an object was expected")
        return value

    @property
    def info(self) -> Mapping[str, Any]:
        """Return the manifest's name, task, language, domain and so on, from `info` or from the top level."""
        if self.air_bench is not None:
            return self.air_bench.info
        inner = self.manifest.get("info")
        return inner if isinstance(inner, dict) else self.manifest

    @property
    def name(self) -> str:
        """Return the name in the manifest, or else the directory's name."""
        return self.called or str(self.info.get("name") or self.path.resolve().name)

    @cached_property
    def splits(self) -> list[str]:
        """Return the names of the qrels files, sorted."""
        if self.air_bench is not None:
            return sorted(self.air_bench.qrels)
        return sorted(self._label_files)

    @cached_property
    def _label_files(self) -> dict[str, Path]:
        """Return the qrels file of each split: those in `qrels/`, or else those beside the corpus, such as
        `qrels.dev.tsv`.

        Of several files of a split, the first of the usual formats counts.
        """
        files: dict[str, tuple[int, Path]] = {}
        folder = self.path / "qrels"
        for path in sorted((folder if folder.is_dir() else self.path).glob("*")):
            if folder.is_dir():
                match = _ENDING_OF_LABELS.search(path.name)
                split = path.name[: match.start()] if match else ""
                named = bool(split) and not split.startswith(".")
            else:
                match = _LABELS_BESIDE.fullmatch(path.name)
                split = (match["split"] if match else None) or "test"
                named = match is not None
            if match is None or not named or not path.is_file() or _NO_LABELS.match(split):
                continue
            if match["shards"] and int(match["shards"]) > 1:
                raise DatasetError(f"{path}: is one of {int(match['shards'])} parts: join them in one file")
            rank = _LABEL_FORMATS.index(match["format"])
            if split not in files or rank < files[split][0]:
                files[split] = rank, path
        return {split: path for split, (_, path) in files.items()}

    @cached_property
    def withheld(self) -> list[str]:
        """Return the splits whose labels are private according to the manifest, which have queries but no qrels."""
        if self.air_bench is not None:
            return sorted(self.air_bench.queries.keys() - self.air_bench.qrels.keys())
        named = self.manifest.get("withheld")
        return sorted({str(split) for split in named} - set(self.splits)) if isinstance(named, list) else []

    def passages(self, seen: IdSet | None = None) -> Iterator[BeirPassage]:
        """Yield the corpus in file order. Raises DatasetError for a repeated id or a missing field.

        `seen` collects the ids; by default, it is an empty set.
        """
        path = self.file("corpus")
        seen = set() if seen is None else seen
        for where, row in objects(path):
            key, text, title = row.get("_id"), row.get("text"), row.get("title", "")
            if not (key and type(key) is type(text) is type(title) is str and key not in seen):
                key = _identifier(row, where, seen)
                text, title = _text(row, "text", where, ("text",)), _text(row, "title", where)
            seen.add(key)
            metadata = row.get("metadata")
            if metadata and not isinstance(metadata, dict):
                raise DatasetError(f"{where}: metadata is {type(metadata).__name__}, but must be an object")
            yield BeirPassage(key, text, title, metadata or {})
        if not seen:
            raise DatasetError(f"{path}: the corpus is empty")

    def queries(self, split: str | None = None) -> dict[str, BeirQuery]:
        """Return {query id: query} for all splits, in file order.

        With `split`, a layout with one file per split returns only the queries of that split.
        """
        return {query.id: query for query in self.each_query(split)}

    def each_query(self, split: str | None = None, seen: IdSet | None = None) -> Iterator[BeirQuery]:
        """Yield the queries. `seen` collects the ids; by default, it is an empty set."""
        seen = set() if seen is None else seen
        for path, known in self._queries_files(split):
            for where, row in objects(path):
                key = _identifier(row, where, seen)
                metadata = row.get("metadata") or {}
                if not isinstance(metadata, dict):
                    raise DatasetError(f"{where}: metadata is {type(metadata).__name__}, but must be an object")
                yield BeirQuery(
                    key, _text(row, "text", where, ("query", "text")), {**metadata, **known} if known else metadata
                )

    def wordings(self) -> list[tuple[str, BeirQuery]]:
        """Return the other wordings of the dataset's queries, each after the id of its query; none if there is no
        `wordings.jsonl`. Raises DatasetError."""
        rows = typed_rows(self.path / WORDINGS_FILE, {"_id": str, "query-id": str, "text": str, "metadata": dict})
        return [(row["query-id"], BeirQuery(row["_id"], row["text"], row["metadata"])) for _, row in rows]

    def _queries_files(self, split: str | None = None) -> list[tuple[Path, dict[str, str]]]:
        """Yield the files of queries, each with the metadata in its name."""
        if self.air_bench is None:
            return [(self.file("queries"), {})]
        files = self.air_bench.queries
        return [(path, {"split": name}) for name, path in files.items() if split not in files or name == split]

    def qrels_file(self, split: str) -> Path:
        """Return the path of a split's qrels. Raises DatasetError for an unknown split."""
        if self.air_bench is not None and split in self.air_bench.qrels:
            return self.air_bench.qrels[split]
        if (advice := self.where_labels_are(split)) is not None:
            raise DatasetError(f"{self.path}: {advice}")
        if split in self._label_files:
            return self._label_files[split]
        if split in self.withheld:
            raise DatasetError(
                f"{self.path}: the labels of {split} are private, so runs cannot be scored on this machine: run "
                f"systems with "
                f"`airgen evaluate {self.path} --split {split}` and submit their runs with `airgen publish submit`"
            )
        words = f"{self.path}: no split {split!r}{closest(split, self.splits)}"
        raise DatasetError(words, code="unknown_name", where=self.path, names=self.splits)

    def where_labels_are(self, split: str) -> str | None:
        """Explain how to get missing AIR-Bench labels; None if they exist or for another layout."""
        if self.air_bench is None or split not in self.withheld:
            return None
        place, group = self.air_bench.labels_folder(split), self.air_bench.group
        others = sorted(path.name for path in place.parent.parent.glob("*") if (path / place.name).is_dir())
        hint = f" (it has labels of {', '.join(others[:5])}, a different version)" if others else ""
        who = "AIR-Bench's repository" if split == "dev" else "AIR-Bench's private repository"
        return f"the labels of {split} are not in {place}: {who} {labels_repository(group, split)} has them{hint}"

    def _qrels_files(self, split: str) -> list[Path]:
        """Return the qrels files of a split. `all` means every split, unless a split has that name."""
        if split == "all" and "all" not in self.splits:
            return [self.qrels_file(name) for name in self.splits]
        return [self.qrels_file(split)]

    def qrels(self, split: str = "test") -> Qrels:
        """Read the labels of one split, or of `all`.

        Raises DatasetError for an unknown split, a bad line, or a file without labels. In a dataset of airgen, a split
        has none if none of its queries has an answer.
        """
        labels: Labels = {}
        for path in self._qrels_files(split):
            for query, passages in read_qrels(path, required=not self.manifest).labels.items():
                labels.setdefault(query, {}).update(passages)
        return Qrels(labels)

    def label_rows(self, split: str = "test") -> Iterator[tuple[str, str, float]]:
        """Yield (query id, passage id, label) of each line, in file order; lines may repeat earlier ones."""
        for path in self._qrels_files(split):
            for _, query, passage, label in label_rows(path):
                yield query, passage, label

    def digest(self, split: str = "test") -> str:
        """Return the SHA-256 of everything on which scores depend: the decompressed corpus, queries and qrels of the
        split.

        For a withheld split, it covers the corpus and queries only.
        """
        total = hashlib.sha256()
        labels = [] if split in self.withheld else self._qrels_files(split)
        for name, path in (
            ("corpus", self.file("corpus")),
            *(("queries", path) for path, _ in self._queries_files(split)),
            *(("qrels", path) for path in labels),
        ):
            try:
                with _open(path) as stream:
                    digest = hashlib.file_digest(cast(io.BufferedReader, stream), "sha256")
                total.update(f"{name} {digest.hexdigest()}\n".encode())
            except OSError as error:
                raise DatasetError(f"{path}: cannot be read ({error})") from error
        return total.hexdigest()


def read_qrels(path: str | Path, *, required: bool = True) -> Qrels:
    """Read the labels of a TSV (with or without header) or TREC file (four columns), or of another tool's file.

    `airgen.tables.pairs` reads CSV, JSON, JSON Lines and Parquet.

    Raises DatasetError for a label that is not a number, a pair with two labels, or, unless not `required`, a file
    without labels.
    """
    path = Path(path)
    labels: Labels = {}
    for where, query, passage, label in label_rows(path):
        of_query = labels.setdefault(query, {})
        if of_query.setdefault(passage, label) != label:
            raise DatasetError(
                f"{where}: query {query!r} and passage {passage!r} have two labels, {of_query[passage]:g} and {label:g}"
            )
    if required and not labels:
        raise DatasetError(f"{path}: no labels")
    return Qrels(labels)


def _identifier(row: Mapping[str, Any], where: LinePlace, seen: IdSet) -> str:
    value = row["_id"] if "_id" in row else row.get(column_named(tuple(row), "id", "document id", "query id"))
    if value is None or value == "" or isinstance(value, dict | list | bool):
        raise DatasetError(f"{where}: no _id")
    key = str(value)
    if key in seen:
        raise DatasetError(f"{where}: _id {key!r} appears twice")
    seen.add(key)
    return key


def _text(row: Mapping[str, Any], name: str, where: LinePlace, roles: tuple[str, ...] = ()) -> str:
    """Return a text, which other tools call by a usual name of these roles; without roles, it may be missing."""
    value = row.get(name)
    if value is None:
        filled = tuple(key for key, other in row.items() if other is not None)
        value = row.get(column_named(filled, *roles)) if roles else ""
    if value is None:
        raise DatasetError(f"{where}: no {name}")
    if not isinstance(value, str):
        raise DatasetError(f"{where}: {name} is {type(value).__name__} where text was expected")
    return value


def objects(path: Path) -> Iterator[tuple[LinePlace, dict[str, Any]]]:
    """Yield (FILE:LINE, object) for each line of a JSON Lines file. Raises DatasetError with file and line."""
    where = LinePlace(path)
    for number, line in numbered_lines(path):
        where.number = number
        try:
            row, end = _scan(line, 0)  # as json.loads does, which first looks for white space and a byte order mark
        except (ValueError, RecursionError, StopIteration):
            end = -1
        if end != len(line):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DatasetError(f"{where}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise DatasetError(f"{where}: contains {type(row).__name__} where an object was expected")
        yield where, row


def typed_rows(path: Path, fields: Mapping[str, type]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (FILE:LINE, object) for each line of a JSON Lines file, checking the types of fields; nothing if there is
    no file.

    Raises DatasetError with file and line.
    """
    for where, row in objects(path) if path.is_file() else ():
        if any(type(row.get(name)) is not kind for name, kind in fields.items()):
            *others, last = [f"`{name}`{' (a number)' if kind is int else ''}" for name, kind in fields.items()]
            wanted = f"{', '.join(others)} and {last}" if others else last
            raise DatasetError(f"{where}: a line needs the text fields {wanted}")
        yield str(where), row


def _open(path: Path) -> AbstractContextManager[IO[bytes]]:
    return opened(path, DatasetError) if path.is_file() else path.open("rb")
