"""Scores of retrieved chunks against spans of characters.

A chunk is relevant to a span if their common characters are at least a share (one half) of the shorter of the two: it
covers half of the span, or half of it lies inside the span. Measures:

spans@10        share of a query's spans to which one of the first ten chunks is relevant
RR@10           1 / rank of the first chunk that is relevant to any span, 0 beyond ten
coverage@1000   share of the characters of a query's spans that the first chunks hold which fit into 1,000 tokens

`spans@10` and `RR@10` give ten chunks to every chunker, so large chunks have an advantage. `coverage@N` gives all
chunkers the same number of tokens: this is what a model is given to read. The last chunk is cut where the tokens end,
and characters that two chunks share are counted once, but cost their tokens twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from airgen.evaluation.chunkers.chunker import DocumentChunk
from airgen.evaluation.chunkers.gold_spans import Span

BUDGETS = (500, 1000, 2000)
MEASURES = ("RR@10", "spans@10", *(f"coverage@{budget}" for budget in BUDGETS))
_DEPTH = 10

Piece = tuple[str, int, int]  # document, start, end
Cut = Callable[[str, int], int]
"""Takes a text and a number of tokens: how many of its characters are in the first so many tokens."""


def is_relevant(chunk: DocumentChunk, span: Span, share: float = 0.5) -> bool:
    """Whether a chunk counts as relevant to a span; see the module."""
    if chunk.document != span.document:
        return False
    common = min(chunk.end, span.end) - max(chunk.start, span.start)
    return common > 0 and common >= share * min(chunk.end - chunk.start, span.end - span.start)


def query_scores(
    hits: Sequence[DocumentChunk], spans: Sequence[Span], tokens: Mapping[str, int], cut: Cut, share: float = 0.5
) -> dict[str, float]:
    """{measure: score} of one query. hits: the chunks, best first. tokens: of each chunk, by its id."""
    first = hits[:_DEPTH]
    rank = next((at for at, one in enumerate(first, 1) if any(is_relevant(one, span, share) for span in spans)), None)
    found = sum(any(is_relevant(one, span, share) for one in first) for span in spans)
    scores = {"RR@10": 1 / rank if rank else 0.0, "spans@10": found / len(spans)}
    for budget in BUDGETS:
        scores[f"coverage@{budget}"] = covered(_within(hits, budget, tokens, cut), spans)
    return scores


def _within(hits: Sequence[DocumentChunk], budget: int, tokens: Mapping[str, int], cut: Cut) -> list[Piece]:
    """What fits into the budget."""
    found = []
    left = budget
    for one in hits:
        if left <= 0:
            break
        whole = tokens[one.id] <= left
        found.append((one.document, one.start, one.end if whole else one.start + cut(one.text, left)))
        left -= tokens[one.id]
    return found


def covered(pieces: Iterable[Piece], spans: Iterable[Span]) -> float:
    """The share of the characters of the spans that some piece (document, start, end) holds; each counts once."""
    gold = _merged((span.document, span.start, span.end) for span in spans)
    held = _merged(pieces)
    total = sum(end - start for rows in gold.values() for start, end in rows)
    common = sum(
        max(0, min(end, last) - max(start, first))
        for document, rows in gold.items()
        for start, end in rows
        for first, last in held.get(document, ())
    )
    return common / total if total else 0.0


def _merged(pieces: Iterable[Piece]) -> dict[str, list[tuple[int, int]]]:
    """The pieces of each document in order, those that touch or overlap as one."""
    found: dict[str, list[tuple[int, int]]] = {}
    for document, start, end in sorted(pieces):
        rows = found.setdefault(document, [])
        if rows and start <= rows[-1][1]:
            rows[-1] = (rows[-1][0], max(end, rows[-1][1]))
        else:
            rows.append((start, end))
    return found
