"""Label passages by re-rankers' votes, without an LLM judge (`control.judge: {kind: votes}`).

A re-ranker's score has no absolute meaning, so a threshold that suits one collection is wrong for another. But each
query has its own scale: the median score of its recalled passages represents a typical candidate, and its source is
known to be relevant. A passage is relevant if every re-ranker places it at least a certain share of the way from the
typical candidate to the source: half of the way if it must answer the query, less if it must be about the query's
subject. With a single re-ranker, there is no majority, so only the source counts as an answer. The same holds if more
than a few passages qualify: such a query is vague, and the voters cannot tell what it asks for.

The query was generated from the source, whereas another passage only probably answers it: according to human labels,
about half of the positives added by votes are correct. The source therefore counts twice as much as other positives
(`SOURCE_LABEL`), and systems that rank like the voters gain only half as much.

If a re-ranker ranks another passage above the source of a generated query, the query is vague or asks for something
else, and is not accepted (`airgen.generation.round_trip`). This is checked again once all recalled passages have
scores, except for `subject`, where another passage may well be better than the source.

>>> shares([9.0, 1.0, 5.0, 0.0, 1.0], ["s", "a", "b", "c", "d"], ["s"])["b"]
0.5
"""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airgen.settings import Pipeline
from airgen.storage.records import Prelabel

WAY = {"answer": 0.5, "subject": 0.2}
"""Minimum share of the way from the typical candidate to the source for a relevant passage, by `relevance`."""

PEOPLES = 0.5
"""The same for human queries with some known relevant passages, regardless of `relevance`."""

FEW = 2
"""Maximum number of relevant passages besides the sources. If there are more, only the sources count."""

SOURCE_LABEL = 2
"""The label of a source where other passages, with the label 1, answer its query by votes alone. nDCG takes labels as
gains, so that a wrong one of the others costs half (docs/notes/agreement.md)."""

NOT_FIRST = "a re-ranker puts another passage before its document"
NOT_FOUND = {"answer": NOT_FIRST, "subject": "its document was not found by the re-rankers"}
"""The reasons to reject a generated query, and to drop an accepted one after voting on all recalled passages."""

DEPTH, DRAFT_DEPTH = 50, 20
"""Number of candidates for the source of a final query, and of a draft. A CPU reads about 30 per second."""

LEAST_APART = 0.15
"""Minimum `lead` of a passage over all others, as a query for itself, for an LLM to be asked about it."""


def least_share(relevance: str, voters: int) -> float:
    """Return the minimum share of the way from which a passage is relevant to a generated query.

    With one voter, `answer` labels ranked systems with a Spearman correlation of .37 and .44 (xquad-de, piaf-fr), and
    the source alone with .75 and .84 (docs/notes/agreement.md).
    """
    return math.inf if relevance == "answer" and voters < 2 else WAY[relevance]


def relevant(least_shares: Mapping[str, float], sources: Collection[str], relevance: str, voters: int) -> set[str]:
    """Return the passages that are relevant to a generated query according to the votes.

    They include the query's recalled sources.

    Args:
        least_shares: The lowest share that any re-ranker gives each recalled passage, from `voted`.
        voters: Number of re-rankers.
    """
    near = {id_ for id_, share in least_shares.items() if share >= least_share(relevance, voters)}
    own = least_shares.keys() & set(sources)
    vague = relevance == "answer" and len(near - own) > FEW
    return own if vague else near | own


def source_label(pipeline: Pipeline) -> int:
    """Return the label of a generated query's source: `SOURCE_LABEL` if only votes decide what answers it, otherwise 1.

    Users' own queries have known positives but no source, a single voter adds no positives, and for `subject`, a source
    counts no more than other passages.
    """
    by_votes = pipeline.votes_accept and pipeline.relevance == "answer"
    adds = math.isfinite(least_share(pipeline.relevance, len(pipeline.control.rerankers)))
    return SOURCE_LABEL if by_votes and adds else 1


def round_trip_parts(pipeline: Pipeline) -> dict[str, Any]:
    """Return the settings on which `airgen.generation.round_trip` depends besides the texts."""
    recall = pipeline.control.recall
    return {
        "depths": [DEPTH, DRAFT_DEPTH],
        "recall": None if recall.pools_only else recall.model.written,
        "rerankers": [spec.written for spec in pipeline.control.rerankers],
    }


def shares(scores: Sequence[float], ids: Sequence[str], sources: Collection[str]) -> dict[str, float]:
    """Return how far each passage's score is between the median of all scores (0) and the sources' median score (1).

    The result is empty if the sources have no score above the median, because such a re-ranker does not recognise them.
    """
    pairs = list(zip(ids, scores, strict=True))
    own = [score for id_, score in pairs if id_ in sources]
    if not own:
        return {}
    low, high = statistics.median(scores), statistics.median(own)
    if high <= low:
        return {}
    return {id_: (score - low) / (high - low) for id_, score in pairs}


def voted(prelabels: Sequence[Prelabel], sources: Collection[str]) -> Mapping[str, float]:
    """Return the lowest share that any re-ranker gives each recalled passage; empty if a re-ranker does not recognise
    the sources."""
    by_reranker = [shares(row.scores, row.ids, sources) for row in prelabels]
    if not all(by_reranker):
        return {}
    return {id_: min(shares_of[id_] for shares_of in by_reranker) for id_ in by_reranker[0]}


def first(prelabels: Sequence[Prelabel], sources: Collection[str], written: Collection[str] = ()) -> bool:
    """Return whether every re-ranker ranks a source above all other passages except the `written` ones.

    A generated hard negative that is too good is removed from the corpus, so it is no evidence against the query.
    """
    for row in prelabels:
        pairs = list(zip(row.ids, row.scores, strict=True))
        own = [score for id_, score in pairs if id_ in sources]
        rest = [score for id_, score in pairs if id_ not in written]
        if not own or max(own) < max(rest):
            return False
    return True


def lead(scores: Sequence[float], ids: Sequence[str], sources: Collection[str]) -> float:
    """Return the lead of the worst source over the best other passage for one re-ranker.

    It is a share of the range of all scores, from -1 to 1, and at least 0 if the sources are ranked first.
    """
    pairs = list(zip(ids, scores, strict=True))
    own = [score for id_, score in pairs if id_ in sources]
    others = [score for id_, score in pairs if id_ not in sources]
    if not own or not others:
        return 1.0 if own else -1.0
    return (min(own) - max(others)) / ((max(scores) - min(scores)) or 1.0)
