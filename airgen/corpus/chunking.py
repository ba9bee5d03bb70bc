"""LlamaIndex's node parser (SimpleNodeParser is an alias of SentenceSplitter) with exact offsets.

    chunks("One. Two. ...", language="en", size=200, overlap=50)   ->  [Chunk(0, 812, 198), Chunk(640, ...), ...]

A chunk is always `text[start:end]`. Chunks are in order, overlap by whole sentences of at most `overlap` tokens, and
together hold every visible character. Paper, appendix A.1: chunk_size 200, chunk_overlap 50.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from airgen.corpus.needs import PURPOSES
from airgen.errors import CorpusError
from airgen.registry import load_extra
from airgen.text.tokens import load_tokenizer
from airgen.text.words import sentences

STEPS = 100  # places tried for a piece, on average over the pieces and 10,000 more; prose takes 2


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a text: its character offsets and its length in tokens."""

    start: int
    end: int
    tokens: int


def chunks(
    text: str, *, language: str = "en", size: int = 200, overlap: int = 50, tokenizer: str = "cl100k_base"
) -> list[Chunk]:
    """The chunks of `text`. Raises MissingExtra without llama-index-core, CorpusError without the vocabulary."""
    if not text.strip():
        return []
    counter = load_tokenizer(tokenizer, language)
    splitter = _splitter(language, size, overlap, tokenizer)
    try:
        found = splitter(text)
    except ValueError as error:  # one character has more tokens than chunk_size
        raise CorpusError(
            f"one character of the text has more than chunk_size = {size} tokens; raise long_doc.chunk_size"
        ) from error
    places = align(text, found, lambda shared: counter.count([shared.strip()])[0] <= overlap)
    return [Chunk(start, end, size) for (start, end), size in zip(places, counter.count(found), strict=True)]


def sentence_pieces(text: str, language: str) -> list[str]:
    """The sentences, each with the space after it: joined, they are the text."""
    found = sentences(text, language)
    starts, at = [], 0
    for sentence in found:
        at = text.index(sentence, at)
        starts.append(at)
        at += len(sentence)
    if not starts:
        return [text]
    starts[0] = 0
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def align(text: str, pieces: Sequence[str], overlaps: Callable[[str], bool] = lambda _: True) -> list[tuple[int, int]]:
    """Offsets of pieces that cover the text in order, each starting no later than the previous one ends.

    A piece can occur at several places. The first place is chosen at which its overlap with the previous piece is
    allowed, and after which the other pieces can be placed without leaving out a visible character. Raises CorpusError
    if there is no such choice, because the splitter then changed the text; and if the text repeats itself so much that
    the search takes more than STEPS places for each piece.
    """
    # A depth-first search: `options[i]` are the untried places of piece i, the best last. It seldom has to go back.
    places: list[tuple[int, int]] = []
    options = [_places(text, pieces[0], 0, _skip(text, 0), 0, overlaps)] if pieces else []
    dead: set[tuple[int, int]] = set()
    left = STEPS * (len(pieces) + 10_000) - sum(map(len, options))
    while options:
        if left < 0:
            raise CorpusError(
                "the text repeats itself so much that its chunks cannot be found in it: clean it, or raise "
                "long_doc.chunk_size"
            )
        index = len(places)
        if not options[-1]:
            options.pop()
            if places:
                dead.add((index - 1, places.pop()[0]))
            continue
        start = options[-1].pop()
        if (index, start) in dead:
            continue
        end = start + len(pieces[index])
        places.append((start, end))
        if len(places) < len(pieces):
            options.append(_places(text, pieces[index + 1], start + 1, _skip(text, end), end, overlaps))
            left -= len(options[-1]) + 1
        elif _skip(text, end) == len(text):
            return places
        else:
            dead.add((index, places.pop()[0]))
    if not pieces:
        return []
    raise CorpusError("the node parser changed the text: its chunks cannot be found in it")


def _places(text: str, piece: str, least: int, most: int, end: int, overlaps: Callable[[str], bool]) -> list[int]:
    """The places of `piece` that start in [least, most]; the last one has the widest allowed overlap with `end`."""
    found, at = [], text.find(piece, least, most + len(piece))
    while at != -1 and at <= most:
        found.append(at)
        at = text.find(piece, at + 1, most + len(piece))
    if len(found) < 2:
        return found
    # A later start has a shorter overlap, so bisection finds the first allowed one.
    first = bisect_left(found, True, key=lambda at: at >= end or overlaps(text[at:end]))
    return found[:first] + found[first:][::-1]


def _skip(text: str, at: int) -> int:
    """The first visible character from `at` on, or the end."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at


@cache
def _splitter(language: str, size: int, overlap: int, tokenizer: str) -> Callable[[str], list[str]]:
    from airgen.text.tokens import encoding, token_ids

    module = load_extra("llama_index.core.node_parser", PURPOSES["llama_index"])
    if tokenizer == "words":
        from airgen.text.words import words

        tokenize: Callable[[str], Sequence[object]] = lambda text: words(text, language)  # noqa: E731
    else:
        tokenize = partial(token_ids, encoding(tokenizer))
    # LlamaIndex's sentence splitter knows English only and drops the space before the first sentence of a piece. Our
    # sentences are a partition of the text in every language.
    parser = module.SentenceSplitter(
        chunk_size=size,
        chunk_overlap=overlap,
        tokenizer=tokenize,
        chunking_tokenizer_fn=lambda text: sentence_pieces(text, language),
    )
    split: Callable[[str], list[str]] = parser.split_text
    return split
