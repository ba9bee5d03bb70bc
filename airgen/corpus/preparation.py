"""From a corpus's settings to its passages: documents are read and cleaned, or (Long-Doc) cut into chunks.

    for row in prepare(load_corpus_settings("python-reference"), "qa"):
        ...  # a Passage, or a Dropped with its cleaner and reason, in the order of the source

Everything is streamed: memory holds one batch; the duplicate search keeps its data on disk. QA documents are read and
cleaned where `airgen.compute` says; Long-Doc, which is about one document, stays in this process.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from airgen.compute import Here, current
from airgen.corpus.limit import limited
from airgen.corpus.long_doc import MAX_TEXT, chunk_document
from airgen.corpus.open_reader import open_reader
from airgen.corpus.settings import CorpusSettings, Task
from airgen.errors import CorpusError
from airgen.keys import content_key, text_key
from airgen.records import Document, Dropped, Passage

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
    if task == "long-doc":
        rows = _long_doc(settings, documents)
    elif isinstance(compute := current(), Here):
        from airgen.corpus.qa_passages import qa_passages

        rows = qa_passages(settings, documents)
    else:
        from airgen.corpus.clean_on_workers import passages_by_workers

        rows = passages_by_workers(settings, reader, documents, compute, progress)
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
