"""Turn the documents of a QA corpus into passages: clean them, split them into chunks if requested, and clean those.

    for row in qa_passages(settings, open_reader(settings), current()): ...

The corpus is processed in parts of about a megabyte. Steps that need only one document (reading, cleaning, chunking)
run per part, in this process or on a worker. Steps that depend on earlier documents (ids and duplicates) then run in
this process, in document order, so the rows do not depend on where a part was cleaned.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from airgen.components.keys import content_key
from airgen.compute import Compute, Work, cores, open_compute
from airgen.corpus.chunking import cut
from airgen.corpus.cleaning.duplicates import (
    CorpusWide,
    NearDuplicates,
    duplicate_ids,
    earlier_documents,
    exact_duplicates,
)
from airgen.corpus.cleaning.filters import (
    CleaningStep,
    Item,
    has_list,
    judge_language,
    judge_length,
    judge_offensive,
    judge_text,
    normalise_item,
)
from airgen.corpus.cleaning.name_recognisers import has_recogniser
from airgen.corpus.node_parsers import node_parser, parse_nodes
from airgen.corpus.readers.files import PathReader, Raw
from airgen.corpus.readers.json_records import JsonLinesReader
from airgen.corpus.readers.reader import Reader
from airgen.corpus.readers.tabular import SeenColumns
from airgen.corpus.requirements import package_versions, read_documents
from airgen.corpus.settings import CorpusSettings
from airgen.errors import CorpusError
from airgen.settings.compute import ComputeSettings
from airgen.settings.spec import read_spec
from airgen.storage.records import MASKED, Document, Dropped, Passage
from airgen.storage.sequences import batched
from airgen.text.token_counts import load_tokenizer

PART_BYTES, _MAX_PART_DOCUMENTS = 1 << 20, 1024  # size of a part: bytes of files, or characters of documents
MAX_PASSAGE = 4 * 1024 * 1024  # bytes of title and text of a QA document
_MIN_PARALLEL_PARTS = 8  # a smaller corpus is cleaned before workers have started
_RECOGNISED_PART_BYTES = 1 << 13  # size of a part if a model recognises names, which takes a second for ten passages

Part = Sequence[Raw | Document | Dropped]


@dataclass(slots=True)
class CleanedEntry:
    """A document or a chunk after the steps that need no other document.

    Attributes:
        row: The resulting row, unless a corpus-wide step drops it.
        seen: The results of `digests` for each corpus-wide step that it reached, in order.
        chunks: Its chunks, which replace it if it was split.
        masked: Number of replacements of each kind of personal data.
    """

    row: Passage | Dropped
    seen: list[bytes] = field(default_factory=list)
    chunks: list[CleanedEntry] | None = None
    masked: Mapping[str, int] = field(default_factory=dict)


@dataclass
class _CleanedPart:
    """A cleaned part. `read` is the number of rows from its reader, which found these columns in JSON Lines files."""

    rows: list[CleanedEntry]
    read: int
    columns: Mapping[Path, SeenColumns]


@dataclass(frozen=True)
class _Recipe:
    """What a worker needs besides the parts. `reader` reads their raw items."""

    settings: CorpusSettings
    reader: PathReader | None
    versions: Mapping[str, str]

    def make(self) -> Callable[[Part], _CleanedPart]:
        """Return the worker's function.

        Raises MissingExtra or CorpusError, also if the versions of the worker's cleaning packages differ.
        """
        installed = package_versions()
        if others := [name for name in self.versions if self.versions[name] != installed[name]]:
            first = others[0]
            raise CorpusError(
                f"compute: node {socket.gethostname()} has other versions of the cleaning packages ({first} "
                f"{installed[first] or 'is missing'}, but this machine has {self.versions[first]}): install the "
                f"same versions there"
            )
        return _PartCleaner(self.settings, self.reader).clean_part


def qa_passages(
    settings: CorpusSettings,
    reader: Reader,
    documents: Iterable[Document | Dropped] | None,
    compute: Compute,
    progress: Callable[[int], object] = lambda _: None,
) -> Iterator[Passage | Dropped]:
    """Yield passages and dropped documents in the order of the source, without numbers.

    Args:
        settings: The corpus.
        reader: The corpus's reader.
        documents: A sample of the reader's documents, or None for all of them.
        compute: Where parts are cleaned: in this process, in several, or on a cluster.
        progress: Called with the number of documents of each part.

    Raises:
        CorpusError: The corpus cannot be read or cleaned.
        MissingExtra: A cleaning package is missing.
        AirgenError: The workers failed.
    """
    files: PathReader | None = None
    if documents is None and ":" not in settings.reader.kind:  # the user's class may exist only in this process
        files = reader if isinstance(reader, PathReader) else None
    rows = files.raw() if files is not None else read_documents(reader) if documents is None else documents
    recognised = settings.names == "spacy" or (settings.names == "ner" and has_recogniser(settings.language))
    size = _RECOGNISED_PART_BYTES if recognised else PART_BYTES
    rows = _in_pieces(rows, size) if recognised else rows
    weigh = lambda row: max(row.size if isinstance(row, Raw) else len(row.text), PART_BYTES // _MAX_PART_DOCUMENTS)  # noqa: E731
    parts: Iterator[Part] = batched(rows, size, weigh)
    cleaner = _PartCleaner(settings, files)
    versions = {name: version for name, version in package_versions().items() if version}
    work = Work(
        "cleaning",
        cleaner.clean_part,
        _Recipe(settings if files is not None else _without_reader(settings), files, versions).make,
    )
    columns: dict[Path, SeenColumns] = {}
    with earlier_documents() as earlier, _workers(compute) if recognised else nullcontext(compute) as where:

        def resolve(entry: CleanedEntry, steps: Sequence[CorpusWide]) -> Iterator[Passage | Dropped]:
            row = entry.row
            for step, seen in zip(steps, entry.seen, strict=False):
                result = step.compare(row.id, seen, earlier)
                if not result.keep:
                    yield _dropped(row, step.name, result.reason, result.detail)
                    return
            for kind, count in sorted(entry.masked.items()) if isinstance(row, Passage) else ():
                yield replace(_dropped(row, MASKED, kind, f"{count} in this document"), text="")
            if entry.chunks is None:
                yield row
            for chunk in entry.chunks or ():
                yield from resolve(chunk, cleaner.corpus_wide[-1])

        for _, part in where.map(work, ((_name(part), part) for part in parts), least=_MIN_PARALLEL_PARTS):
            for path in columns.keys() - part.columns.keys():
                columns.pop(path).check(path)
            for path, seen in part.columns.items():
                columns.setdefault(path, seen).join(seen)
            progress(part.read)
            for entry in part.rows:
                yield from resolve(entry, cleaner.corpus_wide[0])
        for path, seen in columns.items():
            seen.check(path)


def _in_pieces(rows: Iterable[Raw | Document | Dropped], size: int) -> Iterator[Raw | Document | Dropped]:
    """Divide the lines of files into pieces of about this size."""
    for row in rows:
        if isinstance(row, Raw) and row.lines:
            for lines in batched(row.lines, size, lambda line: len(line[1] or b"") + 1):
                yield replace(row, lines=lines)
        else:
            yield row


@contextmanager
def _workers(compute: Compute) -> Iterator[Compute]:
    """Provide all cores of this machine if no workers are set, since a recogniser of names is slow."""
    if type(compute) is not Compute or cores() == 1:
        yield compute
        return
    with open_compute(ComputeSettings(workers=cores())) as own:
        yield own


def _without_reader(settings: CorpusSettings) -> CorpusSettings:
    """Return the settings for a worker that cleans documents, without the reader, which may exist only in this
    process."""
    return settings.model_copy(update={"reader": read_spec("reader", {"kind": "beir", "path": "."}, settings.base)})


def _name(part: Part) -> str:
    """Return the name of a part for messages."""
    first = part[0]
    return str(first) if isinstance(first, Raw) else f"the part of {first.id or first.source}"


class _PartCleaner:
    """Reads, cleans and splits parts. Raises MissingExtra or CorpusError."""

    def __init__(self, settings: CorpusSettings, reader: PathReader | None) -> None:
        self._settings, self._reader = settings, reader
        self._lines = _steps(settings)  # of whole documents and of chunks; of one where there are no chunks
        self.corpus_wide = [[step for step in line if not isinstance(step, CleaningStep)] for line in self._lines]

    def clean_part(self, part: Part) -> _CleanedPart:
        """Return the rows of a part in order."""
        rows: list[Document | Dropped] = []
        for source in part:
            if isinstance(source, Raw):
                assert self._reader is not None
                rows += self._reader.read_raw(source)
            else:
                rows.append(source)
        columns: dict[Path, SeenColumns] = {}
        if isinstance(self._reader, JsonLinesReader):
            columns, self._reader.seen = self._reader.seen, {}
        entries = [_bounded(row) for row in rows]
        cleaned = self._cleaned(self._lines[0], entries)
        for seen, entry in zip(cleaned, entries, strict=True) if len(self._lines) > 1 else ():
            if isinstance(seen.row, Passage) and isinstance(entry, Item):
                seen.chunks = self._cleaned(self._lines[1], [*self._chunks(entry.document)])
        return _CleanedPart(cleaned, len(rows), columns)

    def _cleaned(
        self, line: Sequence[CleaningStep | CorpusWide], entries: Sequence[Item | Dropped]
    ) -> list[CleanedEntry]:
        """Return the entries after these steps. Corpus-wide steps do not drop anything yet.

        Each step processes all entries before the next one, so that its tables stay in the processor's cache.
        """
        rows: list[Dropped | None] = [entry if isinstance(entry, Dropped) else None for entry in entries]
        notes: list[list[bytes]] = [[] for _ in entries]
        for step in line:
            alive = [(at, item) for at, item in enumerate(entries) if rows[at] is None and isinstance(item, Item)]
            if not isinstance(step, CleaningStep):
                for (at, _), digest in zip(alive, step.digests([item for _, item in alive]), strict=True):
                    notes[at].append(digest)
                continue
            for at, item in alive:
                if not (result := step.judge(item)).keep:
                    rows[at] = _dropped(item.document, step.name, result.reason, result.detail)
        checked: list[CleanedEntry] = []
        for row, entry, note in zip(rows, entries, notes, strict=True):
            if row is not None:
                checked.append(CleanedEntry(row, note))
            elif isinstance(entry, Item):
                checked.append(CleanedEntry(_passage(self._settings, entry), note, masked=entry.masked))
        return checked

    def _chunks(self, document: Document) -> Iterator[Item | Dropped]:
        """Yield the chunks of a document. A chunk's id is the document's id with a number from 1."""
        settings = self._settings
        assert settings.chunk is not None
        tokenizer = load_tokenizer(settings.tokenizer, settings.language)
        pieces: list[tuple[str, int | None, tuple[str, ...]]]
        if settings.chunk.parser is None:
            spans = cut(
                document.text, document.outline, settings.chunk, tokenizer=tokenizer, language=settings.language
            )
            pieces = [(document.text[piece.start : piece.end], piece.start, piece.path) for piece in spans]
        else:
            pieces = parse_nodes(self._parser, settings.chunk.parser, document.text)
        if not pieces:
            yield _dropped(document, "length", "empty", "")
        for number, (text, start, path) in enumerate(pieces, 1):
            names = [document.title, *(name for name in path if name != document.title)]
            title = " > ".join(" ".join(name.split()) for name in names if name)
            chunk = replace(document, id=f"{document.id}#chunk={number}", text=text, title=title, outline=())
            yield Item(chunk, parent=document.id, start=start)

    @cached_property
    def _parser(self) -> Any:
        assert self._settings.chunk is not None
        return node_parser(self._settings.chunk)


def _steps(settings: CorpusSettings) -> list[list[CleaningStep | CorpusWide]]:
    """Return the steps of a QA corpus: rewriting steps, then cheap checks, then corpus-wide steps.

    With `chunk`, the steps for whole documents come before those for chunks. Raises MissingExtra or CorpusError.
    """
    clean, language = settings.clean, settings.language
    whole: list[CleaningStep | CorpusWide] = [CleaningStep("normalise", normalise_item)]
    if clean.personal_data != "off":
        from airgen.corpus.cleaning.mask_personal_data import judge_personal, mask_item

        judge = mask_item if clean.personal_data == "mask" else judge_personal
        whole.append(CleaningStep("personal data", partial(judge, names=settings.names, language=language)))
    line: list[CleaningStep | CorpusWide] = [duplicate_ids()]
    if clean.exact_duplicates == "drop":
        line.append(exact_duplicates(clean.duplicate_fields))
    counter = cache(lambda: load_tokenizer(settings.tokenizer, language))  # its vocabulary is large
    line.append(CleaningStep("length", lambda item: judge_length(item, counter(), clean.min_tokens, clean.max_tokens)))
    if clean.boilerplate == "drop":
        line.append(CleaningStep("boilerplate", lambda item: judge_text(item.document.text)))
    if clean.language == "drop":
        line.append(
            CleaningStep(
                "language", lambda item: judge_language(item.document.text, language, clean.language_confidence)
            )
        )
    if (share := clean.offensive_share) is not None and has_list(language):
        line.append(CleaningStep("offensive", lambda item: judge_offensive(item.document.text, language, share)))
    if clean.near_duplicates is not None:
        line.append(NearDuplicates(clean.near_duplicates, clean.duplicate_fields))
    return [whole + line] if settings.chunk is None else [[*whole, duplicate_ids("documents")], line]


def _bounded(row: Document | Dropped) -> Item | Dropped:
    """Return the document, or Dropped if it is larger than any passage may be, so that no cleaner processes it."""
    if isinstance(row, Dropped):
        return row
    if 4 * (len(row.text) + len(row.title)) > MAX_PASSAGE:
        size = sum(len(part.encode("utf-8", "surrogatepass")) for part in (row.text, row.title))
        if size > MAX_PASSAGE:
            return _dropped(row, "size", "too large", f"{size:,} bytes of text, more than {MAX_PASSAGE:,}")
    return Item(row)


def _passage(settings: CorpusSettings, item: Item) -> Passage:
    document = item.document
    key = content_key([settings.name, document.id, document.text])
    return Passage(
        key=key,
        id=document.id,
        ordinal=0,
        text=document.text,
        title=document.title,
        document=item.parent or document.id,
        start=item.start or 0,
        end=0 if item.start is None else item.start + len(document.text),
        tokens=item.tokens,
        source=document.source,
        position=document.position,
        licence=document.licence,
        metadata=document.metadata,
    )


def _dropped(row: Document | Passage | Dropped, cleaner: str, reason: str, detail: str) -> Dropped:
    return Dropped(
        key="",
        id=row.id,
        cleaner=cleaner,
        reason=reason,
        detail=detail,
        source=row.source,
        position=row.position,
        text=row.text[:200],
    )
