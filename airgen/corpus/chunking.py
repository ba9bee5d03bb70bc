"""Split documents into chunks for the QA task, and one long document for the Long-Doc task.

    cut("One. Two. Three.", [], ChunkSettings(size=8, overlap=0), load_tokenizer("words"), "en")
    # [Piece(start=0, end=16, path=())]

A chunk is always `text[start:end]`. Chunks are in order, and together contain every visible character.

Long-Doc (paper, appendix A.1: chunk_size 200, chunk_overlap 50): LlamaIndex's node parser (SimpleNodeParser is an alias
of SentenceSplitter) with exact offsets, applied to the text without its table of contents, references and so on.

QA:

- tokens: windows of `size` tokens, each starting with the last `overlap` tokens of the previous window.
- sentences: as many whole sentences as fit; the last ones that fit into `overlap` are repeated in the next chunk.
- headings: a section with its subsections if they fit, otherwise its parts. Sections are joined only if the first has
  fewer than 20 tokens. Sentences are repeated only within a section that is split.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate
from typing import Any

from airgen.components.keys import content_key
from airgen.components.registry import load_extra
from airgen.corpus.book_parts import remove_apparatus
from airgen.corpus.cleaning.filters import normalise, normalise_line
from airgen.corpus.requirements import PURPOSES
from airgen.corpus.settings import ChunkSettings, CorpusSettings
from airgen.errors import CorpusError
from airgen.storage.records import Document, Dropped, Passage
from airgen.text.sentences import sentences
from airgen.text.token_counts import Tokenizer, load_tokenizer


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a text: its character offsets and its length in tokens."""

    start: int
    end: int
    tokens: int


def chunks(
    text: str, *, language: str = "en", size: int = 200, overlap: int = 50, tokenizer: str = "cl100k_base"
) -> list[Chunk]:
    """Split a long text into chunks.

    Args:
        text: The text.
        language: ISO 639 code; determines where sentences end.
        size: Maximum number of tokens per chunk.
        overlap: Number of tokens that a chunk repeats from the previous chunk.
        tokenizer: Tokenizer that counts tokens: `words`, or a tiktoken encoding.

    Raises:
        MissingExtra: llama-index-core is missing.
        CorpusError: The vocabulary cannot be loaded, or one character has more than `size` tokens.
    """
    if not text.strip():
        return []
    counter = load_tokenizer(tokenizer, language)
    splitter = _splitter(language, size, overlap, tokenizer)
    try:
        splits = splitter._split(text, size)
        # LlamaIndex joins strings without offsets, so let it join the numbers of its splits instead.
        joined = splitter._merge([replace(split, text=f"{number} ") for number, split in enumerate(splits)], size)
    except ValueError as error:  # one character has more tokens than chunk_size
        raise CorpusError(
            f"a single character of the text has more than {size} tokens (chunk_size); raise long_doc.chunk_size"
        ) from error
    starts = [0, *accumulate(len(split.text) for split in splits)]
    places = []
    for numbers in map(str.split, joined):
        start, end = starts[int(numbers[0])], starts[int(numbers[-1]) + 1]
        body = text[start:end]
        if body.strip():
            places.append((start + len(body) - len(body.lstrip()), start + len(body.rstrip())))
    sizes = counter.count([text[start:end] for start, end in places])
    return [Chunk(start, end, size) for (start, end), size in zip(places, sizes, strict=True)]


def sentence_pieces(text: str, language: str) -> list[str]:
    """Return the sentences with their trailing spaces; joined, they are the text."""
    starts, at = [], 0
    for sentence in sentences(text, language):
        at = text.index(sentence, at)
        starts.append(at)
        at += len(sentence)
    if not starts:
        return [text]
    starts[0] = 0
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


@cache
def _splitter(language: str, size: int, overlap: int, tokenizer: str) -> Any:
    from airgen.text.token_counts import encoding, token_ids

    module = load_extra("llama_index.core.node_parser", PURPOSES["llama_index"])
    if tokenizer == "words":
        from airgen.text.words import words

        tokenize: Callable[[str], Sequence[object]] = lambda text: words(text, language)  # noqa: E731
    else:
        tokenize = partial(token_ids, encoding(tokenizer))
    # LlamaIndex's own sentence splitter handles only English and drops the space before the first sentence of a
    # piece. Our sentences partition the text in every language.
    return module.SentenceSplitter(
        chunk_size=size,
        chunk_overlap=overlap,
        tokenizer=tokenize,
        chunking_tokenizer_fn=lambda text: sentence_pieces(text, language),
    )


_MIN_SECTION_TOKENS = 20  # a shorter section does not become a separate passage
_MAX_MISSED_HEADINGS = 100  # the number of changed headings after which the search stops


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk: its character offsets, and the headings above its first character that it does not contain."""

    start: int
    end: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Section:
    start: int
    end: int
    level: int
    path: tuple[str, ...]  # the headings above, without the section's own
    own: str


def cut(
    text: str, outline: Sequence[tuple[int, str]], settings: ChunkSettings, tokenizer: Tokenizer, language: str
) -> list[Piece]:
    """Split a document into chunks, in order.

    Args:
        text: The cleaned text of the document.
        outline: Level and text of each of its headings, in order.
        settings: Size, overlap and where to split.
        tokenizer: Tokenizer that counts tokens.
        language: ISO 639 code; determines where sentences end.
    """
    cutter = _Cutter(text, settings, tokenizer, language)
    candidates = (
        cutter.sections(_sections(text, outline)) if settings.by == "headings" else cutter.pieces(0, len(text), ())
    )
    pieces: list[Piece] = []
    for piece in map(cutter.stripped, candidates):
        # Skip a chunk that adds only white space to what the previous one repeats.
        if piece.start < piece.end and (not pieces or piece.end > pieces[-1].end):
            pieces.append(piece)
    return pieces


class _Cutter:
    def __init__(self, text: str, settings: ChunkSettings, tokenizer: Tokenizer, language: str) -> None:
        self._text, self._settings, self._language = text, settings, language
        self._count, self._starts = tokenizer.count, tokenizer.starts(text)

    def stripped(self, piece: Piece) -> Piece:
        body = self._text[piece.start : piece.end]
        return Piece(piece.start + len(body) - len(body.lstrip()), piece.start + len(body.rstrip()), piece.path)

    def sections(self, sections: Sequence[_Section]) -> Iterator[Piece]:
        at = 0
        while at < len(sections):
            first, last = sections[at], at
            while last + 1 < len(sections) and self._fits(first.start, sections[last + 1].end):
                deeper = sections[last + 1].level > first.level
                if not deeper and self._tokens(first.start, sections[last].end) >= _MIN_SECTION_TOKENS:
                    break
                last += 1
            if self._fits(first.start, sections[last].end):
                yield Piece(first.start, sections[last].end, first.path)
            else:
                for number, piece in enumerate(self.pieces(first.start, first.end, first.path)):
                    path = (*first.path, first.own) if number and first.own else first.path
                    yield Piece(piece.start, piece.end, path)
            at = last + 1

    def pieces(self, start: int, end: int, path: tuple[str, ...]) -> Iterator[Piece]:
        """Yield pieces of at most `size` tokens between two offsets."""
        size, overlap = self._settings.size, self._settings.overlap
        units = list(self._units(start, end))
        sizes = [self._tokens(*unit) for unit in units]
        at = 0
        while at < len(units):
            stop, total = at, 0
            while stop < len(units) and (stop == at or total + sizes[stop] <= size):
                total += sizes[stop]
                stop += 1
            # A chunk that is tokenised alone can have other tokens at its ends than within the document.
            while stop > at + 1 and not self._fits(units[at][0], units[stop - 1][1]):
                stop -= 1
            yield Piece(units[at][0], units[stop - 1][1], path)
            if stop == len(units):
                return
            restart, repeated = stop, 0
            while restart > at + 1 and repeated + sizes[restart - 1] <= overlap:
                restart -= 1
                repeated += sizes[restart]
            while restart < stop and not self._fits(units[restart][0], units[stop][1]):  # the rest must fit too
                restart += 1
            at = restart

    def _units(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the offsets of the units of a chunk: tokens, or sentences of at most `size` tokens."""
        if self._settings.by == "tokens":
            yield from self._windows(start, end, 1)
            return
        at = start
        for sentence in sentence_pieces(self._text[start:end], self._language):
            stop = at + len(sentence)
            if self._fits(at, stop):
                yield at, stop
            else:
                yield from self._windows(at, stop, self._settings.size)
            at = stop

    def _windows(self, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield runs of `size` tokens, or shorter runs if a run has more tokens when it is tokenised alone."""
        at, stop = bisect_left(self._starts, start), bisect_left(self._starts, end)
        begin = start
        while begin < end:
            step = size
            while True:
                close = self._starts[at + step] if at + step < stop else end
                if step == 1 or self._fits(begin, close):
                    break
                step = step * 3 // 4
            at += step
            if close > begin:
                yield begin, close
            begin = close

    def _tokens(self, start: int, end: int) -> int:
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def _fits(self, start: int, end: int) -> bool:
        size = self._settings.size
        if self._tokens(start, end) > size + 8:  # tokenised separately, it has nearly as many
            return False
        return self._count([self._text[start:end].strip()])[0] <= size


def _sections(text: str, outline: Sequence[tuple[int, str]]) -> list[_Section]:
    """Return the parts of a text between its headings, each with its headings."""
    places: list[tuple[int, int, str]] = []
    padded, at, missed = f"\n\n{text}\n\n", 0, 0
    for level, heading in outline:
        words = normalise(heading)
        place = padded.find(f"\n\n{words}\n\n", at) if words else -1
        if place < 0:
            missed += 1
            if missed > _MAX_MISSED_HEADINGS:
                break
            continue
        places.append((place, level, words))
        at = place + len(words) + 2
    sections: list[_Section] = []
    if not places or places[0][0] > 0:
        sections.append(_Section(0, places[0][0] if places else len(text), level=99, path=(), own=""))
    ancestors: list[tuple[int, str]] = []
    ends = [place for place, _, _ in places[1:]] + [len(text)]
    for (place, level, words), end in zip(places, ends, strict=True) if places else ():
        while ancestors and ancestors[-1][0] >= level:
            ancestors.pop()
        path = tuple(heading for _, heading in ancestors)
        sections.append(_Section(place, end, level, path=path, own=words))
        ancestors.append((level, words))
    return sections


MAX_TEXT = 64 * 1024 * 1024  # characters of the document: several hundred novels


def join(documents: Sequence[Document]) -> tuple[str, list[tuple[int, Document]]]:
    """Join all documents into one text, each under its title, and return it with the offset of each document."""
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
    """Join `documents` into one document and yield its chunks in order, after the removed parts, as Dropped.

    The offsets of the passages refer to the cleaned text: joined, normalised and without the removed parts.
    """
    part = settings.long_doc
    name = settings.name if part.merge else documents[0].id
    text, starts = join(documents)
    text, starts, removed = remove_apparatus(text, starts, part.remove, settings.language)
    for kind, removed_text in removed:
        yield Dropped(
            key="",
            id=name,
            cleaner="apparatus",
            reason=kind,
            detail=f"{len(removed_text)} characters",
            source=settings.source,
            text=removed_text[:200],
        )
    spans = chunks(
        text, language=settings.language, size=part.chunk_size, overlap=part.chunk_overlap, tokenizer=settings.tokenizer
    )
    if not spans:
        raise CorpusError(f"corpus {settings.name!r}: the document {name!r} has no text")
    offsets = [start for start, _ in starts]
    width = len(str(len(spans)))
    for number, chunk in enumerate(spans):
        document = starts[max(bisect_right(offsets, chunk.start) - 1, 0)][1]
        body = text[chunk.start : chunk.end]
        identity = f"{name}-{number:0{width}d}"
        yield Passage(
            key=content_key([settings.name, identity, body]),
            id=identity,
            ordinal=number,
            text=body,
            document=name,
            start=chunk.start,
            end=chunk.end,
            tokens=chunk.tokens,
            source=document.source,
            position=(document.title if part.merge else "") or document.position,
            licence=document.licence,
            metadata=document.metadata,
        )
