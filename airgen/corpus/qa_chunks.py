"""Chunks of documents for the QA task: `chunk: {size: 200, overlap: 50, by: headings}`.

    cut("One. Two. Three.", [], ChunkSettings(size=8, overlap=0), load_tokenizer("words"), "en")
    # [Piece(start=0, end=16, path=())]

A chunk is always `text[start:end]`, has at most `size` tokens, and together the chunks hold every visible character.

tokens: windows of `size` tokens, each of which begins with the last `overlap` tokens of the one before.
sentences: as many whole sentences as fit; as many whole ones as fit into `overlap` are repeated.
headings: a section with its subsections where they fit, else its parts. Text of two sections is joined only where the
first one has fewer than 20 tokens. Sentences are repeated only inside a section that is cut.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airgen.corpus.chunking import sentence_pieces
from airgen.corpus.cleaning.normalise import normalise
from airgen.corpus.settings import ChunkSettings
from airgen.text.tokens import Tokenizer

_TINY = 20  # tokens: a section with fewer is no passage of its own
_MISSED = 100  # headings that were changed by cleaning, after which no more are searched


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk: character offsets, and the headings above its first character that are not in it."""

    start: int
    end: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Section:
    start: int
    end: int
    level: int
    path: tuple[str, ...]  # the headings above, without its own
    own: str


def cut(
    text: str, outline: Sequence[tuple[int, str]], settings: ChunkSettings, tokenizer: Tokenizer, language: str
) -> list[Piece]:
    """The chunks of a document, in order. `outline`: level and text of each of its headings, in order."""
    cutter = _Cutter(text, settings, tokenizer, language)
    found = cutter.sections(_sections(text, outline)) if settings.by == "headings" else cutter.pieces(0, len(text), ())
    kept: list[Piece] = []
    for piece in map(cutter.stripped, found):
        # A chunk that adds only white space to what the chunk before it repeats is none.
        if piece.start < piece.end and (not kept or piece.end > kept[-1].end):
            kept.append(piece)
    return kept


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
                if not deeper and self._tokens(first.start, sections[last].end) >= _TINY:
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
        """Pieces of at most `size` tokens between two offsets."""
        size, overlap = self._settings.size, self._settings.overlap
        units = list(self._units(start, end))
        sizes = [self._tokens(*unit) for unit in units]
        at = 0
        while at < len(units):
            stop, total = at, 0
            while stop < len(units) and (stop == at or total + sizes[stop] <= size):
                total += sizes[stop]
                stop += 1
            # A chunk alone can have other tokens at its ends than in the document.
            while stop > at + 1 and not self._fits(units[at][0], units[stop - 1][1]):
                stop -= 1
            yield Piece(units[at][0], units[stop - 1][1], path)
            if stop == len(units):
                return
            again, repeated = stop, 0
            while again > at + 1 and repeated + sizes[again - 1] <= overlap:
                again -= 1
                repeated += sizes[again]
            while again < stop and not self._fits(units[again][0], units[stop][1]):  # what follows must fit, too
                again += 1
            at = again

    def _units(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """What a chunk is made of: tokens, or sentences of at most `size` tokens."""
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
        """Runs of `size` tokens, of fewer where they have more alone."""
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
        if self._tokens(start, end) > size + 8:  # alone it has nearly as many
            return False
        return self._count([self._text[start:end].strip()])[0] <= size


def _sections(text: str, outline: Sequence[tuple[int, str]]) -> list[_Section]:
    """The parts of a text between its headings, each with the headings above it."""
    places: list[tuple[int, int, str]] = []
    padded, at, missed = f"\n\n{text}\n\n", 0, 0
    for level, heading in outline:
        words = normalise(heading)
        place = padded.find(f"\n\n{words}\n\n", at) if words else -1
        if place < 0:
            missed += 1
            if missed > _MISSED:
                break
            continue
        places.append((place, level, words))
        at = place + len(words) + 2
    found = [] if places and places[0][0] == 0 else [_Section(0, places[0][0] if places else len(text), 99, (), "")]
    open_: list[tuple[int, str]] = []
    ends = [place for place, _, _ in places[1:]] + [len(text)]
    for (place, level, words), end in zip(places, ends, strict=True) if places else ():
        while open_ and open_[-1][0] >= level:
            open_.pop()
        found.append(_Section(place, end, level, tuple(words for _, words in open_), words))
        open_.append((level, words))
    return found
