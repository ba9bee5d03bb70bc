"""Details of a result: scores by kind of query, worst queries, negatives above the positive, and a system's biases.

Query attributes come from the `metadata` of the queries (type, length, style, language, ...). The length in words is
always known. Biases follow section 6 and appendix H of BEIR: the length of the passages that a system ranks first, and
the share of the query's words that they contain, compared with those of the relevant passages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirQuery
from airgen.evaluation.measures import Judged, Scores
from airgen.evaluation.run import Run
from airgen.retrievers.base import Corpus
from airgen.text.words import count_words, words

_MOST_VALUES = 24  # an attribute with more values does not group queries
_SHOWN = 400  # characters of a passage in a report


@dataclass(frozen=True, slots=True)
class Group:
    """The mean of a measure over the queries whose `attribute` has this value."""

    attribute: str
    value: str
    queries: int
    mean: float


def attributes(queries: Mapping[str, BeirQuery], language: str) -> dict[str, dict[str, str]]:
    """{attribute: {query id: value}}: the metadata, and `words`, the query's length class."""
    found: dict[str, dict[str, str]] = {"words": {}}
    for key, query in queries.items():
        found["words"][key] = length_class(count_words(query.text, language))
        for name, value in query.metadata.items():
            if isinstance(value, str | int | bool) and name not in ("split", "words"):
                found.setdefault(name, {})[key] = str(value)
    return {name: values for name, values in found.items() if 1 < len(set(values.values())) <= _MOST_VALUES}


def by_attribute(scores: Scores, measure: str, found: Mapping[str, Mapping[str, str]]) -> list[Group]:
    """The measure's mean for each value of each attribute; attributes and values are sorted."""
    values = scores.of(measure)
    groups = []
    for name in sorted(found):
        members: dict[str, list[float]] = defaultdict(list)
        for key, value in zip(scores.query_ids, values.tolist(), strict=True):
            if key in found[name]:
                members[found[name][key]].append(value)
        groups += [Group(name, value, len(each), float(np.mean(each))) for value, each in sorted(members.items())]
    return groups


def negatives_above(hits: Judged) -> dict[str, float]:
    """How often a passage judged not relevant is ranked above the best relevant one.

    queries: how many have both kinds of label. share: the share of them with such a negative. mean: how many such
    negatives a query has on average. A relevant passage that was not found counts as ranked last.
    """
    total = len(hits.query_ids)
    best = np.full(total, np.iinfo(np.int64).max)
    relevant = hits.label > 0
    np.minimum.at(best, hits.row[relevant], hits.rank[relevant])
    above = np.bincount(hits.row[~relevant & (hits.rank < best[hits.row])], minlength=total)
    positive = np.bincount(hits.pair_row[hits.pair_label > 0], minlength=total) > 0
    both = positive & (np.bincount(hits.pair_row[hits.pair_label <= 0], minlength=total) > 0)
    count = int(both.sum())
    if not count:
        return {"queries": 0, "share": 0.0, "mean": 0.0}
    return {"queries": count, "share": float((above[both] > 0).mean()), "mean": float(above[both].mean())}


def worst_queries(
    scores: Scores,
    measure: str,
    run: Run,
    qrels: Mapping[str, Mapping[str, float]],
    queries: Mapping[str, BeirQuery],
    corpus: Corpus,
    *,
    most: int = 10,
) -> list[dict[str, Any]]:
    """The queries with the lowest score: the first passage, the best relevant passage, and its rank."""
    values = scores.of(measure)
    order = np.argsort(values, kind="stable")[:most]
    places = {key: place for place, key in enumerate(corpus.ids)}
    wanted = {scores.query_ids[row] for row in order}
    ranked = {key: [passage for passage, _ in hits] for key, hits in _only(run.ranked(), wanted)}

    def shown(passage: str | None) -> dict[str, Any] | None:
        if passage is None:
            return None
        text = corpus.full_text(places[passage])[:_SHOWN] if passage in places else ""
        return {"id": passage, "text": text}

    worst = []
    for row in order.tolist():
        key = scores.query_ids[row]
        hits = ranked.get(key, [])
        rank = {passage: at for at, passage in enumerate(hits, 1)}
        relevant = sorted((p for p, label in qrels[key].items() if label > 0), key=lambda p: (-qrels[key][p], p))
        best = min(relevant, key=lambda p: rank.get(p, len(hits) + 1), default=None)
        worst.append(
            {
                "query": key,
                "text": queries[key].text if key in queries else "",
                "score": float(values[row]),
                "first": shown(hits[0] if hits else None),
                "relevant": shown(best),
                "relevant_rank": rank.get(best) if best is not None else None,
            }
        )
    return worst


def biases(
    run: Run,
    qrels: Mapping[str, Mapping[str, float]],
    queries: Mapping[str, BeirQuery],
    corpus: Corpus,
    *,
    depth: int = 10,
    split: dict[int, frozenset[str]] | None = None,
) -> dict[str, float]:
    """Length and word overlap of the top `depth` passages, of the relevant passages, and of the corpus.

    Lengths are medians in characters. Overlap is the mean share of a query's distinct words that a passage contains.
    `split` caches the words of passages from one system to the next.
    """
    places = {key: place for place, key in enumerate(corpus.ids)}
    split = {} if split is None else split

    def overlap(query: frozenset[str], passages: Sequence[int]) -> list[float]:
        for place in passages:
            if place not in split:
                split[place] = frozenset(word.lower() for word in words(corpus.full_text(place), corpus.language))
        return [len(query & split[place]) / len(query) for place in passages] if query else []

    top_length: list[int] = []
    top_overlap: list[float] = []
    relevant_length: list[int] = []
    relevant_overlap: list[float] = []
    for key, hits in run.ranked().items():
        if key not in qrels or key not in queries:
            continue
        terms = frozenset(word.lower() for word in words(queries[key].text, corpus.language))
        top = [places[passage] for passage, _ in hits[:depth] if passage in places]
        relevant = [places[passage] for passage, label in qrels[key].items() if label > 0 and passage in places]
        top_length += [len(corpus.full_text(place)) for place in top]
        relevant_length += [len(corpus.full_text(place)) for place in relevant]
        top_overlap += overlap(terms, top)
        relevant_overlap += overlap(terms, relevant)
    lengths = [len(corpus.full_text(place)) for place in range(len(corpus))]
    return {
        "top_characters": _median(top_length),
        "relevant_characters": _median(relevant_length),
        "corpus_characters": _median(lengths),
        "top_overlap": float(np.mean(top_overlap)) if top_overlap else 0.0,
        "relevant_overlap": float(np.mean(relevant_overlap)) if relevant_overlap else 0.0,
    }


def _only(run: Run, wanted: set[str]) -> list[tuple[str, list[tuple[str, float]]]]:
    """The hits of the wanted queries only; converting the hits of all queries would be slow."""
    found = []
    for place, key in enumerate(run.query_ids):
        if key in wanted:
            span = slice(run.offsets[place], run.offsets[place + 1])
            passages: NDArray[np.int32] = run.passages[span]
            ids = [run.passage_ids[passage] for passage in passages]
            found.append((key, list(zip(ids, run.scores[span].tolist(), strict=True))))
    return found


def _median(values: Sequence[int]) -> float:
    return float(np.median(values)) if values else 0.0


def length_class(count: int) -> str:
    """The class of a query length in words: the paper's classes (appendix A.2.1), made disjoint."""
    if count < 5:
        return "00-04"
    if count < 10:
        return "05-09"
    return "10-19" if count < 20 else "20+"
