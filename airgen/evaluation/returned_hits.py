"""What becomes of the hits that a search outside airgen returns: a service, a function, a retriever or a run.

    results, counts = ReturnedHits(ids, best="auto").results(queries, {"q1": [(["p3"], 0.2), (["p1"], 0.5)]}, k=10)

Scores may be distances, of which the smallest is best. Ids may be those of pages, or of passages outside the dataset.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from airgen.evaluation.dataset_split import IdLookup
from airgen.evaluation.document_level import Level, PageLookup, Pages
from airgen.evaluation.run import Run
from airgen.safety.escaping import one_line

Results = dict[str, dict[str, float]]
Best = Literal["auto", "largest", "smallest"]
"""Which score is best: `smallest` for distances. With `auto`, it is the largest, unless scores rise from the first hit
to the last for all queries; it is then the smallest, and a message says so."""
Hits = Sequence[tuple[Sequence[str], float]]
"""The hits of a query as returned, best first: (possible ids, most likely first; score)."""

DISTANCES = "scores_taken_as_distances"
"""The note of a search whose smallest scores were taken as the best, and of how many queries."""

PAGES = "pages_taken_as_sections"
"""The note of a search whose hits are pages of several passages, and of how many hits."""

_RISING_PAIRS = 4  # pairs of neighbours whose scores rise; by chance, this happens with one search in sixteen


class ReturnedHits:
    """Converts returned hits to results with the passages of a dataset.

    Args:
        ids: Lookup of passages.
        pages: Function that returns the lookup of pages, for hits that are pages. Default: hits are passages.
        best: Which score is best.
        level: What hits are.

    Attributes:
        distances: Whether the smallest score is best, as far as known.
        unknown: The query, as `shown_query`, and the id of the first hit that is not in the dataset.
    """

    def __init__(
        self,
        ids: IdLookup,
        pages: Callable[[], PageLookup] | None = None,
        best: Best = "auto",
        level: Level = "auto",
    ) -> None:
        self._ids, self._best = ids, best
        self._level: Level = level if pages else "passage"
        self._find_pages = pages
        self.distances = best == "smallest"
        self.unknown: tuple[str, str] | None = None

    def results(
        self, queries: Mapping[str, str], returned: Mapping[str, Hits], k: int, repeated: str = "repeated_hits"
    ) -> tuple[Results, Counter[str]]:
        """Return {query id: {passage id: score}} for every query, with larger scores for better hits, and the counts
        of irregularities.

        Equal scores keep the order in which they were returned, and the best hit on a passage counts.

        Args:
            queries: Texts by query id.
            returned: Hits by query id. A query that is absent has no hits.
            k: Maximum number of hits per query.
            repeated: The name under which further hits on a passage are counted.
        """
        if self._best == "auto" and not self.distances:
            scores = [score for hits in returned.values() for _, score in hits]
            self.distances = scores_rise(scores, [len(hits) for hits in returned.values()])
        sign = -1.0 if self.distances else 1.0
        pages = self._pages_of([ids for hits in returned.values() for ids, _ in hits])
        counts = Counter({DISTANCES: len(returned) if self.distances and self._best == "auto" else 0})
        results: Results = {key: {} for key in queries}
        for query, hits in returned.items():
            passages = results[query]
            for ids, score in sorted(hits, key=lambda hit: -sign * hit[1]):  # stable
                page = self._page(ids, pages) if pages else None
                passage = (
                    self._first(ids) if pages is None else pages.best(page, query, queries[query]) if page else None
                )
                if passage is None:
                    self.unknown = self.unknown or (shown_query(query, queries[query]), ids[0])
                    counts["unknown_passages"] += 1
                elif passage in passages:
                    counts[repeated if pages is None else "joined_hits"] += 1
                elif len(passages) < k:
                    passages[passage] = sign * score
                counts[PAGES] += pages is not None and page is not None and pages.has_parts(page)
        return results, +counts

    @property
    def advice(self) -> str:
        """Return what ids of the dataset look like."""
        pages = self._find_pages() if self._find_pages and self._level != "passage" else None
        return pages.advice if pages and self._level == "document" else advice_of(self._ids, pages)

    def _pages_of(self, returned: Sequence[Sequence[str]]) -> PageLookup | None:
        """Return the pages if hits are pages."""
        if self._find_pages is None or self._level == "passage":
            return None
        if self._level == "document":
            return self._find_pages()
        if not any(self._first(ids) is None for ids in returned):
            return None
        pages = self._find_pages()
        first = {self._first(ids) or next((id_ for id_ in ids if pages.find(id_)), "") for ids in returned}
        return pages if pages.named(first, self._ids.find) else None

    def _first(self, ids: Sequence[str]) -> str | None:
        return next(filter(None, map(self._ids.find, ids)), None)

    def _page(self, ids: Sequence[str], pages: PageLookup) -> str | None:
        page = next(filter(None, map(pages.find, ids)), None)
        return page or pages.find(self._first(ids) or "")


def shown_query(key: str, text: str) -> str:
    """Return a query for a message: its text, and its id for `airgen show`."""
    return f"query {one_line(repr(text), 80)}" + (f" ({key})" if key != text else "")


def advice_of(ids: IdLookup, pages: Pages | None) -> str:
    """Return what ids of passages look like, and those of pages if there are any."""
    return f"{ids.advice}, and {pages.advice}" if pages is not None and pages.have_parts else ids.advice


def best_first(run: Run, best: Best) -> Run:
    """Return a run with larger scores for better hits, as everything else expects.

    Args:
        run: A run as it was written or passed, with hits in the original order.
        best: Which score is best.
    """
    distances = best == "smallest" or (best == "auto" and scores_rise(run.scores, run.lengths))
    if not distances:
        return run
    notes = {key: count for key, count in run.notes.items() if key != "unsorted_queries"}
    return replace(run, scores=-run.scores, notes={**notes, **({DISTANCES: len(run)} if best == "auto" else {})})


def scores_rise(scores: ArrayLike, lengths: ArrayLike) -> bool:
    """Return whether scores never fall from the first hit of a query to its last, and rise too often for chance.

    Args:
        scores: Scores of all queries, one query after another.
        lengths: Number of hits of each query.
    """
    values: NDArray[np.float64] = np.asarray(scores, np.float64)
    queries = np.repeat(np.arange(np.size(lengths)), np.asarray(lengths, np.int64))
    steps = np.diff(values)[queries[1:] == queries[:-1]]
    return bool(np.all(steps >= 0)) and int(np.sum(steps > 0)) >= _RISING_PAIRS


def paired_arrays(value: object, ndim: int) -> tuple[NDArray[np.float64], NDArray[np.generic]] | None:
    """Return (scores, ids) for the pair that FAISS, hnswlib and scikit-learn return for all hits, or None.

    Args:
        value: (distances, indices), or (indices, distances): floating-point numbers, and integers or texts.
        ndim: 2 for the hits of several queries, (queries, hits), and 1 for those of a single query.
    """
    if not isinstance(value, tuple | list) or len(value) != 2:
        return None
    try:
        first, second = (np.asarray(part) for part in value)
    except (ValueError, TypeError, RuntimeError):  # rows of unequal lengths, tensors on a GPU
        return None
    if ndim == 1 and first.ndim == second.ndim == 2 and len(first) == len(second) == 1:
        first, second = first[0], second[0]
    if first.shape != second.shape or first.ndim != ndim:
        return None
    for scores, ids in ((first, second), (second, first)):
        if scores.dtype.kind == "f" and ids.dtype.kind in "iuU":
            return scores.astype(np.float64), ids
    return None


def hits_of(scores: NDArray[np.float64], ids: NDArray[np.generic]) -> list[tuple[str, float]]:
    """Return the hits of a query in `paired_arrays`, without FAISS's -1 and hnswlib's NaN for fewer hits than asked."""
    pairs = zip(ids.tolist(), scores.tolist(), strict=True)
    return [(str(id_), score) for id_, score in pairs if id_ != -1 and not math.isnan(score)]
