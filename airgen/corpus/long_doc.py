"""The Long-Doc task: one document becomes chunks, without its contents, references and the like (appendix A.1)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from airgen.corpus.book_parts import remove_apparatus
from airgen.corpus.chunking import chunks
from airgen.corpus.cleaning.normalise import normalise, normalise_line
from airgen.corpus.settings import CorpusSettings
from airgen.errors import CorpusError
from airgen.keys import content_key
from airgen.records import Document, Dropped, Passage

MAX_TEXT = 64 * 1024 * 1024  # characters of the one document: some hundred novels


def join(documents: Sequence[Document]) -> tuple[str, list[tuple[int, Document]]]:
    """All documents as one text, each under its title, and the offset at which each begins."""
    pieces: list[str] = []
    starts: list[tuple[int, Document]] = []
    length = 0
    for document in documents:
        title, body = normalise_line(document.title), normalise(document.text)
        text = f"{title}\n{body}" if title and len(documents) > 1 else body
        if not text:
            continue
        if pieces:
            length += 2
        starts.append((length, document))
        pieces.append(text)
        length += len(text)
    return "\n\n".join(pieces), starts


def chunk_document(settings: CorpusSettings, documents: Sequence[Document]) -> Iterator[Passage | Dropped]:
    """The chunks of the one document that `documents` make, in order; the removed parts come first, as Dropped.

    The offsets of the passages refer to the cleaned text: joined, normalised and without the removed parts.
    """
    part = settings.long_doc
    name = settings.name if part.merge else documents[0].id
    text, starts = join(documents)
    text, starts, removed = remove_apparatus(text, starts, part.remove, settings.language)
    for kind, cut in removed:
        yield Dropped("", name, "apparatus", kind, f"{len(cut)} characters", settings.source, "", cut[:200])
    found = chunks(
        text, language=settings.language, size=part.chunk_size, overlap=part.chunk_overlap, tokenizer=settings.tokenizer
    )
    if not found:
        raise CorpusError(f"corpus {settings.name!r}: the document {name!r} has no text")
    offsets = [start for start, _ in starts]
    width = len(str(len(found)))
    for number, chunk in enumerate(found):
        here = starts[max(bisect_right(offsets, chunk.start) - 1, 0)][1]
        body = text[chunk.start : chunk.end]
        identity = f"{name}-{number:0{width}d}"
        yield Passage(
            content_key([settings.name, identity, body]), identity, number, body, "", name, chunk.start, chunk.end,
            chunk.tokens, here.source, here.position if not part.merge else here.title or here.position, here.licence,
        )  # fmt: skip
