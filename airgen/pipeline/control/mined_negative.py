"""Hard negatives out of the corpus itself: passages high in recall that quality control found not relevant.

An alternative or an addition to the generated ones (paper 2.3, step 6), and free: nobody is asked. They are real
passages, so nothing is added to the corpus. What quality control knows decides:

- a passage that the LLM judged not relevant is one at any rank: the surest there are;
- a passage that nobody judged is one if it stands within a window of ranks and no re-ranker at all put it within its
  threshold. The window begins below the first ranks, where relevant passages that nobody knew of are likeliest
  (RocketQA, Qu et al. 2021, found 70 % of the top passages without a label to be relevant).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from airgen.keys import row_key
from airgen.pipeline.control.table2 import votes
from airgen.records import Decision, HardNegative, Prelabel, Recall
from airgen.settings import Thresholds

__all__ = ["mine"]


def mine(
    recall: Recall,
    prelabels: Sequence[Prelabel],
    decisions: Mapping[str, Decision],
    passages: Mapping[str, str],
    *,
    ranks: tuple[int, int],
    count: int,
    relevant_from: int,
    thresholds: Thresholds,
    fingerprint: str,
    never: Collection[str] = (),
) -> list[HardNegative]:
    """At most `count` negatives of the query `recall.parent`, judged ones first, each kind best recalled first.

    `decisions` are the query's, by document id; `passages` are titles by id of what may be taken, which leaves out
    generated negatives; `ranks` are the first and last rank of the window, from 1, both within; `never` are ids that
    must not be taken. Rows carry no text: it stands in the corpus.
    """
    allowed = [id_ for id_ in recall.ids if id_ in passages and id_ not in never]
    judged = [id_ for id_ in allowed if _not_relevant(decisions.get(id_), relevant_from)]
    voted = votes(prelabels, thresholds, set())
    window = set(recall.ids[ranks[0] - 1 : ranks[1]])
    unjudged = [id_ for id_ in allowed if id_ in window and id_ not in decisions and id_ not in voted]
    return [
        HardNegative(
            row_key("mined_negative", recall.parent, fingerprint, place), recall.parent, fingerprint, place,
            id_, "", passages[id_], "mined",
        )
        for place, id_ in enumerate([*judged, *unjudged][:count], 1)
    ]  # fmt: skip


def _not_relevant(decision: Decision | None, relevant_from: int) -> bool:
    # Both words count: a combined judge may take for relevant what the LLM alone would not, and the other way round.
    if decision is None or decision.action != "ignore" or decision.level is None:
        return False
    return decision.level < relevant_from
