"""From the documents of a QA corpus to its passages: cleaned, cut into chunks where the settings say so, cleaned again.

    for row in qa_passages(settings, reader.read()): ...        # all in this process

The same in two halves, for many processes. A worker does what needs one document; then one process does, for all
documents in their order, what depends on earlier ones (ids and duplicates):

    seen = Looking(settings).look(rows)                         # on a worker, for each part of the corpus
    for row in settled(wide, seen): ...                         # here, part after part

A QA corpus that is read and cleaned on workers, part by part, with the rows of one process in their order.

    for row in passages_by_workers(settings, reader, reader.read(), current()): ...

A worker reads a part, cleans it, cuts it into chunks, and sends back passages, dropped documents, and what the search
for duplicates sees of each. That search needs all documents in their order: it stays in this process.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from airgen.compute import Compute, Here, Work
from airgen.corpus.cleaning import CorpusWide, Item, Step, steps
from airgen.corpus.fetch import fetched
from airgen.corpus.needs import package_versions
from airgen.corpus.parts import CorpusPart, PartReader, ReaderRecipe, Split, documents_in_parts
from airgen.corpus.readers.files import PathReader
from airgen.corpus.readers.reader import Reader
from airgen.corpus.readers.tabular import SeenColumns
from airgen.corpus.settings import CorpusSettings
from airgen.corpus.storage import StoreFolder
from airgen.errors import CorpusError
from airgen.keys import content_key
from airgen.records import Document, Dropped, Passage
from airgen.sequences import batched

BATCH = 1024  # documents; large enough for the vectorised steps, small enough for progress
BATCH_TEXT = 8 * 1024 * 1024  # characters after which a batch ends earlier
MAX_PASSAGE = 4 * 1024 * 1024  # bytes of title and text of a QA document

Entry = Item | Dropped


def qa_passages(settings: CorpusSettings, rows: Iterable[Document | Dropped]) -> Iterator[Passage | Dropped]:
    """Passages and dropped documents in the order of the source, without numbers. Raises MissingExtra, CorpusError."""
    with _steps(settings) as (whole, line):
        for entries in _batches(rows):
            if settings.chunk is not None:
                entries = list(_chunked(settings, _cleaned(whole, entries)))
            for row in _cleaned(line, entries):
                yield row if isinstance(row, Dropped) else _passage(settings, row)


@dataclass(slots=True)
class Seen:
    """A document or a chunk after a worker's half.

    row: what becomes of it if no corpus-wide step refuses it. seen: what each such step that it has reached sees of
    it, in their order. chunks: where it was cut; `row` then only says where it comes from.
    """

    row: Passage | Dropped
    seen: Sequence[Any] = ()
    chunks: list[Seen] | None = None


class Looking:
    """A worker's half. Raises MissingExtra, CorpusError."""

    def __init__(self, settings: CorpusSettings) -> None:
        self._settings = settings
        with ExitStack() as stack:  # without a folder, there is nothing to close
            self._whole, self._line = steps(settings, None, stack)

    def look(self, rows: Iterable[Document | Dropped]) -> list[Seen]:
        """One for each document, in their order."""
        return [one for entries in _batches(rows) for one in self._documents(entries)]

    def _documents(self, entries: list[Entry]) -> list[Seen]:
        if self._settings.chunk is None:
            return self._passages(entries)
        notes: list[list[Any]] = [[] for _ in entries]
        found: list[Seen] = []
        for entry, note in zip(_cleaned(self._whole, entries, notes), notes, strict=True):
            if isinstance(entry, Dropped):
                found.append(Seen(entry, note))
            else:
                chunks = self._passages(list(_chunked(self._settings, [entry])))
                found.append(Seen(_dropped(entry.document, "", "", ""), note, chunks))
        return found

    def _passages(self, entries: list[Entry]) -> list[Seen]:
        notes: list[list[Any]] = [[] for _ in entries]
        rows = _cleaned(self._line, entries, notes)
        return [
            Seen(row if isinstance(row, Dropped) else _passage(self._settings, row), note)
            for row, note in zip(rows, notes, strict=True)
        ]


@dataclass
class _Wide:
    """The corpus-wide steps for whole documents, and those for passages."""

    whole: list[CorpusWide] = field(default_factory=list)
    line: list[CorpusWide] = field(default_factory=list)


@contextmanager
def corpus_wide(settings: CorpusSettings) -> Iterator[_Wide]:
    """The steps of `settled`, with their files. Raises MissingExtra, CorpusError."""
    with _steps(settings) as (whole, line):
        yield _Wide(*([step for step in part if isinstance(step, CorpusWide)] for part in (whole, line)))


def settled(wide: _Wide, part: Sequence[Seen]) -> Iterator[Passage | Dropped]:
    """The rows of one part of the corpus, after those of the parts before it."""
    flat = [
        chunk for one in _compared(wide.whole, part) for chunk in ([one] if one.chunks is None else one.chunks)
    ]  # fmt: skip
    yield from (one.row for one in _compared(wide.line, flat))


def _compared(line: Sequence[CorpusWide], part: Sequence[Seen]) -> list[Seen]:
    """The same; what a step refuses becomes Dropped."""
    out = list(part)
    alive = list(enumerate(part))
    for number, step in enumerate(line):
        alive = [(place, one) for place, one in alive if len(one.seen) > number]
        verdicts = step.compare([one.row.id for _, one in alive], [one.seen[number] for _, one in alive])
        kept = []
        for (place, one), verdict in zip(alive, verdicts, strict=True):
            if verdict.keep:
                kept.append((place, one))
                continue
            row = one.row
            out[place] = Seen(
                Dropped("", row.id, step.name, verdict.reason, verdict.detail, row.source, row.position, row.text[:200])
            )
        alive = kept
    return out


@contextmanager
def _steps(settings: CorpusSettings) -> Iterator[tuple[list[Step], list[Step]]]:
    with tempfile.TemporaryDirectory(prefix="airgen-corpus-") as folder, ExitStack() as stack:
        yield steps(settings, Path(folder), stack)


def _batches(rows: Iterable[Document | Dropped]) -> Iterator[list[Entry]]:
    for batch in batched(map(_bounded, rows), BATCH_TEXT, lambda row: max(len(row.text), BATCH_TEXT // BATCH)):
        yield [row if isinstance(row, Dropped) else Item(row) for row in batch]


def _bounded(row: Document | Dropped) -> Document | Dropped:
    """The document, or Dropped where it is larger than any passage: no cleaner sees it."""
    if isinstance(row, Dropped) or 4 * (len(row.text) + len(row.title)) <= MAX_PASSAGE:
        return row
    size = sum(len(part.encode("utf-8", "surrogatepass")) for part in (row.text, row.title))
    if size <= MAX_PASSAGE:
        return row
    return _dropped(row, "size", "too large", f"{size:,} bytes of text > {MAX_PASSAGE:,}")


def _cleaned(line: Sequence[Step], entries: list[Entry], notes: Sequence[list[Any]] | None = None) -> list[Entry]:
    """The entries after these steps, in order: a document that a step refuses becomes Dropped.

    With `notes`, one list for each entry, corpus-wide steps refuse nothing: what they see of an entry is added to its
    list.
    """
    out = list(entries)
    alive = [(place, item) for place, item in enumerate(entries) if isinstance(item, Item)]
    for step in line:
        items = [item for _, item in alive]
        if hasattr(step, "change"):
            step.change(items)
            continue
        if notes is not None and isinstance(step, CorpusWide):
            for (place, _), seen in zip(alive, step.look(items), strict=True):
                notes[place].append(seen)
            continue
        kept = []
        for (place, item), verdict in zip(alive, step.judge(items), strict=True):
            if verdict.keep:
                kept.append((place, item))
            else:
                out[place] = _dropped(item.document, step.name, verdict.reason, verdict.detail)
        alive = kept
    return out


def _chunked(settings: CorpusSettings, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Each document as its chunks. The id of a chunk is that of its document with a number from 1."""
    from airgen.corpus.chunking import cut
    from airgen.text.tokens import load_tokenizer

    part = settings.chunk
    if part is None:
        raise ValueError("a corpus without `chunk` has no chunks")
    tokenizer = load_tokenizer(settings.tokenizer, settings.language)
    for entry in entries:
        if isinstance(entry, Dropped):
            yield entry
            continue
        document = entry.document
        pieces = cut(document.text, document.outline, part, tokenizer, settings.language)
        if not pieces:
            yield _dropped(document, "length", "empty", "")
        for number, piece in enumerate(pieces, 1):
            names = [document.title, *(name for name in piece.path if name != document.title)]
            title = " > ".join(" ".join(name.split()) for name in names if name)
            text = document.text[piece.start : piece.end]
            chunk = replace(document, id=f"{document.id}#chunk={number}", text=text, title=title, outline=())
            yield Item(chunk, parent=document.id, start=piece.start)


def _passage(settings: CorpusSettings, item: Item) -> Passage:
    document = item.document
    key = content_key([settings.name, document.id, document.text])
    return Passage(
        key, document.id, 0, document.text, document.title, item.parent or document.id, item.start,
        item.start + len(document.text), item.tokens,
        document.source, document.position, document.licence,
    )  # fmt: skip


def _dropped(document: Document, cleaner: str, reason: str, detail: str) -> Dropped:
    return Dropped("", document.id, cleaner, reason, detail, document.source, document.position, document.text[:200])


_FEW = 8  # parts: a corpus with fewer is cleaned sooner than workers start


@dataclass
class _Cleaned:
    """A part after a worker's half; `read` rows came from its reader."""

    rows: list[Seen]
    read: int
    columns: SeenColumns | None
    error: str


@dataclass(frozen=True)
class _Recipe:
    """What a worker needs besides parts."""

    settings: CorpusSettings
    reader: ReaderRecipe | None
    versions: Mapping[str, str]

    def make(self) -> Callable[[CorpusPart], _Cleaned | None]:
        """The function of a worker. Raises MissingExtra, CorpusError; also where its packages clean in another way."""
        here = package_versions()
        if others := [name for name in self.versions if self.versions[name] != here[name]]:
            first = others[0]
            raise CorpusError(
                f"compute: the node {socket.gethostname()} cleans a corpus with other packages ({first} "
                f"{here[first] or 'is missing'}, and here it is {self.versions[first]}): install the same there"
            )
        return _Cleaning(self).clean


class _Cleaning:
    """Reads and cleans parts, wherever it is."""

    def __init__(self, recipe: _Recipe) -> None:
        self._reader, self._looking = PartReader(recipe.reader), Looking(recipe.settings)

    def clean(self, part: CorpusPart, *, own: bool = False) -> _Cleaned | None:
        """A part; None where its files are not here. `own`: see `PartReader.read`."""
        read = self._reader.read(part, own=own)
        if read is None:
            return None
        return _Cleaned(self._looking.look(read.rows), len(read.rows), read.columns, read.error)


def passages_by_workers(
    settings: CorpusSettings,
    reader: Reader,
    documents: Iterable[Document | Dropped],
    compute: Compute,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Passage | Dropped]:
    """The rows of `qa_passages` on `documents`, which are those of the reader, or a sample of them.

    Where the reader's files can be read one by one, `documents` stays unread, and `progress` is called with the number
    of documents of each part. Raises CorpusError, MissingExtra, and AirgenError where workers cannot do it.
    """
    split, recipe_of_reader = _by_file(settings, reader)
    parts: Iterable[CorpusPart] = documents_in_parts(documents) if split is None else split
    recipe = _Recipe(
        settings, recipe_of_reader, {name: version for name, version in package_versions().items() if version}
    )
    here = cache(lambda: _Cleaning(recipe))  # where a worker does not see a file, or nothing is worth a worker
    work: Work[CorpusPart, _Cleaned | None] = Work("cleaning", lambda part: here().clean(part, own=True), recipe.make)
    columns: SeenColumns | None = None
    coming = iter(parts)
    first = list(islice(coming, _FEW))
    if len(first) < _FEW:
        compute = Here()
    with corpus_wide(settings) as wide:
        for part, found in compute.map(work, ((part, part) for part in chain(first, coming))):
            if found is None:
                if split is not None:
                    split.near = False
                found = here().clean(part, own=True)
                assert found is not None
            if progress is not None and split is not None:
                progress(found.read)
            yield from settled(wide, found.rows)
            if found.error:
                raise CorpusError(found.error)
            if found.columns is not None:
                if columns is None:
                    columns = found.columns
                else:
                    columns.join(found.columns)
                if part.last:
                    columns.check(part.path)
                    columns = None


def _by_file(settings: CorpusSettings, reader: Reader) -> tuple[Split | None, ReaderRecipe | None]:
    """The corpus in parts that workers read, and how they do it."""
    by_file: Callable[[], PathReader] | None = getattr(reader, "by_file", None)
    own = ":" in str(settings.reader.get("kind"))  # a class that perhaps is only here
    if by_file is None or own or settings.limit is not None:
        return None, None
    files = by_file()
    store = None
    if settings.fetch is not None and settings.fetch.kind == "storage":
        store = StoreFolder(settings.fetch.url, fetched(settings).resolve())
    place = replace(files.place, root=files.place.root.absolute())
    return Split(files), ReaderRecipe(type(files), files.settings, place, store)
