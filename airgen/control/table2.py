"""The paper's rules for labels: re-rankers' votes, the pairs for the LLM to judge, and Table 2 (2.4, A.3)."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from airgen.components.keys import row_key
from airgen.settings import Thresholds
from airgen.storage.records import Decision, Judgment, Prelabel

BROUGHT = "labels of "
"""Prefix of the name of a judge that is a user's label file."""


def ranked(prelabel: Prelabel) -> list[str]:
    """Return the recalled documents in a re-ranker's order. Ties keep the order of the recall."""
    order = np.argsort(-np.asarray(prelabel.scores), kind="stable")
    return [prelabel.ids[place] for place in order]


def median_ranks(rankings: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the median rank of each document, from 1, in several rankings of the same documents.

    >>> median_ranks([["a", "b", "c"], ["b", "a", "c"], ["b", "c", "a"]])
    {'a': 2, 'b': 1, 'c': 3}
    """
    places: dict[str, list[int]] = {}
    for ranking in rankings:
        for rank, id_ in enumerate(ranking, 1):
            places.setdefault(id_, []).append(rank)
    return {id_: statistics.median(ranks) for id_, ranks in places.items()}


def votes(prelabels: Sequence[Prelabel], thresholds: Thresholds, negatives: set[str]) -> dict[str, int]:
    """Return how many re-rankers vote for each recalled document, that is, rank it within its threshold. The
    `negatives` generated for this query have their own threshold (A.3).
    """
    counts: dict[str, int] = {}
    for prelabel in prelabels:
        for rank, id_ in enumerate(ranked(prelabel)[: max(thresholds.hard_negative, thresholds.other)], 1):
            within = thresholds.hard_negative if id_ in negatives else thresholds.other
            if rank <= within:
                counts[id_] = counts.get(id_, 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class Pair:
    """A (query, document) pair for the LLM to judge. `query` is the final query's key."""

    query: str
    id: str


def pairs_to_judge(
    query: str, positive: str, negatives: Sequence[str], prelabels: Sequence[Prelabel], thresholds: Thresholds
) -> list[Pair]:
    """Return the documents that the LLM judges for one query besides the original positive (second column of Table 2).
    More than half of the re-rankers must agree. Negatives of other queries are treated like any other document.
    """
    counts = votes(prelabels, thresholds, set(negatives))
    chosen = [id_ for id_, count in counts.items() if count * 2 > len(prelabels) and id_ != positive]
    return [Pair(query, id_) for id_ in sorted(chosen)]


def decide(
    query: str,
    positive: str | None,
    negatives: Sequence[str],
    judgments: Mapping[str, Judgment],
    dropped: set[str],
    relevant_from: int,
    fingerprint: str,
    unjudged: str = "its document was not judged",
) -> list[Decision]:
    """Apply Table 2 to one query, and return rows of actions with reasons.

    A user's own query has no original positive: each judged passage is either positive or not. `judgments` are the
    query's judgments by document id. `dropped` are the generated negatives that a judgment for any query removed from
    the corpus; they are not added as positives.
    """
    rows: list[Decision] = []

    def add(id_: str, action: str, reason: str) -> None:
        key = row_key("decision", f"{query}/{id_}", fingerprint)
        judgment = judgments.get(id_)
        level, probability = (judgment.level, judgment.probability) if judgment else (None, None)
        rows.append(
            Decision(
                key=key,
                parent=query,
                fingerprint=fingerprint,
                ordinal=len(rows),
                id=id_,
                action=action,
                reason=reason,
                level=level,
                probability=probability,
            )
        )

    if positive is not None:
        own = judgments.get(positive)
        good, reason = False, unjudged
        if own is not None:
            good, reason = own.level >= relevant_from, f"its document was judged {own.level}"
        add(positive, "keep_query" if good else "drop_query", reason)
        if not good:
            return rows
    mine = set(negatives)
    for id_ in negatives:
        judged = judgments.get(id_)
        if id_ in dropped:
            is_relevant = judged is not None and judged.level >= relevant_from
            cause = f"judged {judged.level}" if judged and is_relevant else "dropped for another query"
            add(id_, "drop_negative", cause)
        else:
            add(id_, "keep_negative", "not pre-labelled" if judged is None else f"judged {judged.level}")
    for id_, judged in sorted(judgments.items()):
        if id_ == positive or id_ in mine:
            continue
        cause = f"{judged.judge}: {judged.level}" if judged.judge.startswith(BROUGHT) else f"judged {judged.level}"
        if id_ in dropped:
            add(id_, "ignore", "dropped from the corpus")
        elif judged.level >= relevant_from:
            add(id_, "add_positive", cause)
        else:
            add(id_, "add_negative" if positive is None else "ignore", cause)
    return rows
