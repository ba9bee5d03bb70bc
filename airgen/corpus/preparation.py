"""From a corpus's settings to its passages: documents are read and cleaned, or (Long-Doc) cut into chunks.

    for row in prepare(load_corpus_settings("python-reference"), "qa"):
        ...  # a Passage, or a Dropped with its cleaner and reason, in the order of the source

Everything is streamed: memory holds one batch; the duplicate search keeps its data on disk.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from airgen.batches import batched
from airgen.corpus.cleaning import steps
from airgen.corpus.cleaning.cleaner import Item, Step
from airgen.corpus.limit import limited
from airgen.corpus.long_doc import MAX_TEXT, chunk_document
from airgen.corpus.open_reader import open_reader
from airgen.corpus.settings import CorpusSettings, Task
from airgen.errors import CorpusError
from airgen.keys import content_key, text_key
from airgen.records import Document, Dropped, Passage

__all__ = ["prepare"]

BATCH = 1024  # documents; large enough for the vectorised steps, small enough for progress
BATCH_TEXT = 8 * 1024 * 1024  # characters after which a batch ends earlier
MAX_PASSAGE = 4 * 1024 * 1024  # bytes of title and text of a QA document
_REPORT = 100


def prepare(
    settings: CorpusSettings,
    task: Task,
    *,
    seed: int | None = None,
    progress: Callable[[int], object] | None = None,
    limit: int | None = None,
) -> Iterator[Passage | Dropped]:
    """Passages and dropped documents, in the order of the source; equal inputs give equal rows.

    With `settings.limit` the documents come in the order of `limited`.

    limit: the largest number of passages. Without `seed`, the first ones are taken. With `seed`, a uniform sample is
    taken, and a larger limit adds to it; the whole corpus is read, and `Dropped` rows come first.
    progress: is called with the number of documents that were read since the last call.

    Raises CorpusError if the corpus cannot be read, is empty after cleaning, or (Long-Doc) has several documents and
    none is chosen.
    """
    reader = open_reader(settings)
    documents = _counted(reader.read(), progress)
    if settings.limit is not None and not (task == "long-doc" and settings.long_doc.document):
        documents = limited(documents, settings.limit, settings.limit_seed)
    rows = _qa(settings, documents) if task == "qa" else _long_doc(settings, documents)
    if limit is not None:
        rows = _first(rows, limit) if seed is None else _sample(rows, limit, seed)
    return _numbered(settings, rows)


def _counted(
    rows: Iterable[Document | Dropped], progress: Callable[[int], object] | None
) -> Iterator[Document | Dropped]:
    """Report progress for every hundred documents: a call for each would cost more than some cleaners."""
    count = 0
    for row in rows:
        count += 1
        if progress is not None and count % _REPORT == 0:
            progress(_REPORT)
        yield row
    if progress is not None and count % _REPORT:
        progress(count % _REPORT)


def _qa(settings: CorpusSettings, rows: Iterator[Document | Dropped]) -> Iterator[Passage | Dropped]:
    with tempfile.TemporaryDirectory(prefix="airgen-corpus-") as folder, ExitStack() as stack:
        whole, line = steps(settings, Path(folder), stack)
        for batch in batched(map(_bounded, rows), BATCH_TEXT, lambda row: max(len(row.text), BATCH_TEXT // BATCH)):
            entries: list[Item | Dropped] = [row if isinstance(row, Dropped) else Item(row) for row in batch]
            if settings.chunk is not None:
                entries = list(_chunked(settings, _cleaned(whole, entries)))
            for row in _cleaned(line, entries):
                yield row if isinstance(row, Dropped) else _passage(settings, row)


def _bounded(row: Document | Dropped) -> Document | Dropped:
    """The document, or Dropped where it is larger than any passage: no cleaner sees it."""
    if isinstance(row, Dropped) or 4 * (len(row.text) + len(row.title)) <= MAX_PASSAGE:
        return row
    size = sum(len(part.encode("utf-8", "surrogatepass")) for part in (row.text, row.title))
    if size <= MAX_PASSAGE:
        return row
    return _dropped(row, "size", "too large", f"{size:,} bytes of text > {MAX_PASSAGE:,}")


def _cleaned(line: Sequence[Step], entries: list[Item | Dropped]) -> list[Item | Dropped]:
    """The entries after these steps, in order: a document that a step refuses becomes Dropped."""
    out = list(entries)
    alive = [(place, item) for place, item in enumerate(entries) if isinstance(item, Item)]
    for step in line:
        items = [item for _, item in alive]
        if hasattr(step, "change"):
            step.change(items)
            continue
        kept = []
        for (place, item), verdict in zip(alive, step.judge(items), strict=True):
            if verdict.keep:
                kept.append((place, item))
            else:
                out[place] = _dropped(item.document, step.name, verdict.reason, verdict.detail)
        alive = kept
    return out


def _chunked(settings: CorpusSettings, entries: Iterable[Item | Dropped]) -> Iterator[Item | Dropped]:
    """Each document as its chunks. The id of a chunk is that of its document with a number from 1."""
    from airgen.corpus.qa_chunks import cut
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


def _long_doc(settings: CorpusSettings, rows: Iterator[Document | Dropped]) -> Iterator[Passage | Dropped]:
    part = settings.long_doc
    found: list[Document] = []
    others = length = 0
    for row in rows:
        if isinstance(row, Dropped):
            yield row
        elif part.merge or row.id == part.document or (not part.document and not found):
            found.append(row)
            length += len(row.text)
            if length > MAX_TEXT:
                raise CorpusError(
                    f"corpus {settings.name!r}: the document {settings.name if part.merge else row.id!r} has more than "
                    f"{MAX_TEXT:,} characters, too many for the Long-Doc task: choose a smaller one, or use the QA "
                    "task with `chunk`"
                )
        elif not part.document:
            names = f"{found[0].id!r}, {row.id!r}"
            raise CorpusError(
                f"corpus {settings.name!r} holds several documents ({names}, ...), but the Long-Doc task needs one: "
                f"choose it with {settings.name}#ID or with long_doc.document, or set long_doc.merge"
            )
        else:
            others += 1
    if not found:
        what = f"none of its {others} documents has the id {part.document!r}" if others else "it is empty"
        raise CorpusError(f"corpus {settings.name!r}: {what}")
    yield from chunk_document(settings, found)


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


def _first(rows: Iterable[Passage | Dropped], limit: int) -> Iterator[Passage | Dropped]:
    count = 0
    for row in rows:
        if isinstance(row, Passage):
            if count == limit:
                return
            count += 1
        yield row


def _sample(rows: Iterable[Passage | Dropped], limit: int, seed: int) -> Iterator[Passage | Dropped]:
    """The passages with the smallest seeded hashes: a sample for a larger limit contains that for a smaller one."""
    heap: list[tuple[int, int, Passage]] = []
    for place, row in enumerate(rows):
        if isinstance(row, Dropped):
            yield row
            continue
        rank = -int(text_key(f"{seed}\x1f{row.key}"), 16)
        if len(heap) < limit:
            heapq.heappush(heap, (rank, -place, row))
        elif limit:
            heapq.heappushpop(heap, (rank, -place, row))
    yield from (row for _, place, row in sorted(heap, key=lambda entry: -entry[1]))


def _numbered(settings: CorpusSettings, rows: Iterable[Passage | Dropped]) -> Iterator[Passage | Dropped]:
    """Number the passages and give dropped rows their keys."""
    passages = dropped = 0
    for row in rows:
        if isinstance(row, Passage):
            yield replace(row, ordinal=passages)
            passages += 1
        else:
            # The number distinguishes equal documents that were all dropped.
            yield replace(row, key=content_key([settings.name, dropped, row.cleaner, row.id, row.source, row.position]))
            dropped += 1
    if not passages:
        words = (
            f": all {dropped} documents were dropped, see `airgen corpus dropped` with the corpus YAML"
            if dropped
            else ""
        )
        raise CorpusError(f"corpus {settings.name!r} has no passages{words}")
