"""Quality control: recall, pre-labels, the pairs to judge, and Table 2 (paper 2.4, appendix A.3).

Recall and pre-labels are set-wise: they depend on the whole corpus, so the corpus's digest is in their fingerprint
and a barrier stands before them. The corpus is all passages and all generated negatives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from airgen.errors import ModelError
from airgen.keys import row_key
from airgen.records import Decision, Judgment, Prelabel, Recall
from airgen.retrievers.base import Hits, Reranker
from airgen.settings import Thresholds

__all__ = ["Pair", "decide", "pairs_to_judge", "prelabel_rows", "recall_rows", "text_mark", "votes"]


def recall_rows(hits: Hits, queries: Sequence[str], ids: Sequence[str], model: str, fingerprint: str) -> list[Recall]:
    """One row a query from a search's hits; `queries` are keys, `ids` the corpus's ids in its order."""
    rows = []
    for place, key in enumerate(queries):
        positions = hits.positions[place]
        found = int((positions >= 0).sum())
        rows.append(
            Recall(
                row_key("recall", key, fingerprint), key, fingerprint, 0, model,
                [ids[position] for position in positions[:found]],
                [round(float(score), 6) for score in hits.scores[place][:found]],
            )
        )  # fmt: skip
    return rows


def prelabel_rows(
    reranker: Reranker,
    recalls: Sequence[Recall],
    queries: Mapping[str, str],
    texts: Callable[[str], str],
    ordinal: int,
    fingerprint: str,
    scorer: str = "",
    earlier: Sequence[Prelabel] = (),
) -> list[Prelabel]:
    """One re-ranker's scores of some queries' recalled documents: a row a query.

    Queries come together because many share documents, which some re-rankers then read only once. `queries` are
    texts by key, `texts` gives a document's text. Scores of the same scorer, query and text in `earlier` rows are
    taken over, so that a corpus that grew costs its new documents only. Raises ModelError for too few scores, or one
    that is no number.
    """
    known = {
        (row.parent, mark): score
        for row in earlier
        if row.scorer == scorer
        for mark, score in zip(row.texts, row.scores, strict=True)
    }
    marks = {id_: text_mark(texts(id_)) for recall in recalls for id_ in recall.ids}
    wanted = [
        (recall.parent, id_) for recall in recalls for id_ in recall.ids if (recall.parent, marks[id_]) not in known
    ]
    pairs = [(queries[query], texts(id_)) for query, id_ in wanted]
    scores = reranker.score(pairs) if pairs else np.zeros(0, np.float32)
    if len(scores) != len(pairs):
        raise ModelError(f"re-ranker {reranker.name}: {len(scores)} scores for {len(pairs)} documents")
    if not np.isfinite(scores).all():
        raise ModelError(f"re-ranker {reranker.name}: gave a score that is not a number")
    known |= {(query, marks[id_]): round(float(score), 6) for (query, id_), score in zip(wanted, scores, strict=True)}
    rows = []
    for recall in recalls:
        key, here = row_key("prelabel", recall.parent, fingerprint, ordinal), [marks[id_] for id_ in recall.ids]
        values = [known[recall.parent, mark] for mark in here]
        row = Prelabel(key, recall.parent, fingerprint, ordinal, reranker.name, list(recall.ids), values, scorer, here)
        rows.append(row)
    return rows


def text_mark(text: str) -> int:
    """A signed 64-bit hash of a text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def votes(prelabels: Sequence[Prelabel], thresholds: Thresholds, negatives: set[str]) -> dict[str, int]:
    """How many re-rankers pre-label each recalled document positive: those that rank it within its threshold.

    Ranks are by score, best first; equal scores stand in the order of the recall, so a tie is decided the same way
    for every re-ranker. `negatives`, those generated for this query, have a threshold of their own (A.3).
    """
    counts: dict[str, int] = {}
    for prelabel in prelabels:
        order = np.argsort(-np.asarray(prelabel.scores), kind="stable")
        for rank, place in enumerate(order[: max(thresholds.hard_negative, thresholds.other)], 1):
            id_ = prelabel.ids[place]
            within = thresholds.hard_negative if id_ in negatives else thresholds.other
            if rank <= within:
                counts[id_] = counts.get(id_, 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class Pair:
    """A (query, document) pair that the LLM is to judge. `kind`: negative or other."""

    query: str  # the final query's key
    id: str
    kind: str


def pairs_to_judge(
    query: str,
    positive: str,
    negatives: Sequence[str],
    prelabels: Sequence[Prelabel],
    thresholds: Thresholds,
) -> list[Pair]:
    """Table 2's second column for one query: who is shown to the LLM besides the original positive.

    More than half of the re-rankers must agree, so of two both, of four three. Negatives that were generated for
    other queries are documents of the corpus like any other here.
    """
    own = set(negatives)
    counts = votes(prelabels, thresholds, own)
    chosen = [id_ for id_, count in counts.items() if count * 2 > len(prelabels) and id_ != positive]
    return [Pair(query, id_, "negative" if id_ in own else "other") for id_ in sorted(chosen)]


def decide(
    query: str,
    positive: str,
    negatives: Sequence[str],
    judgments: Mapping[str, Judgment],
    dropped: set[str],
    relevant_from: int,
    fingerprint: str,
) -> list[Decision]:
    """Table 2's actions for one query, as rows with reasons.

    `judgments` are this query's, by document id; `dropped` are generated negatives that any query's judgment
    removed from the corpus. A document that was dropped elsewhere is not added.
    """
    rows: list[Decision] = []

    def add(id_: str, action: str, reason: str) -> None:
        key = row_key("decision", f"{query}/{id_}", fingerprint)
        found = judgments.get(id_)
        level, probability = (found.level, found.probability) if found else (None, None)
        rows.append(Decision(key, query, fingerprint, len(rows), id_, action, reason, level, probability))

    own = judgments.get(positive)
    if own is None or own.level < relevant_from:
        reason = "its document was not judged" if own is None else f"its document was judged {own.level}"
        add(positive, "drop_query", reason)
        return rows
    add(positive, "keep_query", f"its document was judged {own.level}")
    mine = set(negatives)
    for id_ in negatives:
        judged = judgments.get(id_)
        if id_ in dropped:
            why = f"judged {judged.level}" if judged and judged.level >= relevant_from else "dropped for another query"
            add(id_, "drop_negative", why)
        else:
            add(id_, "keep_negative", "not pre-labelled" if judged is None else f"judged {judged.level}")
    for id_, judged in sorted(judgments.items()):
        if id_ == positive or id_ in mine:
            continue
        if judged.level >= relevant_from and id_ not in dropped:
            add(id_, "add_positive", f"judged {judged.level}")
        else:
            add(id_, "ignore", "dropped from the corpus" if id_ in dropped else f"judged {judged.level}")
    return rows
