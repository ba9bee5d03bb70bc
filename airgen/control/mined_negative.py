"""Mine negatives at no cost: highly ranked passages that quality control found not relevant, as an alternative or
addition to generated hard negatives (paper 2.3, step 6).

- A passage that the LLM or votes judged not relevant can be used at any rank. These are the most reliable negatives, so
  they come first, ordered by their ranks. With votes, at least one re-ranker must find that the passage is not even
  about the query's subject; a passage in between is not a negative.
- An unjudged passage can be used within a window of ranks, if no re-ranker ranks it within its threshold. The window
  begins below the first ranks, where unlabelled relevant passages are most likely (RocketQA, Qu et al. 2021, found that
  70% of the unlabelled top passages were relevant).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from airgen.components.keys import rng, row_key
from airgen.control.prelabel import prelabels_of
from airgen.control.query_set import Control
from airgen.control.table2 import median_ranks, ranked, votes
from airgen.settings import Thresholds
from airgen.settings.generation import MINED_RANKS
from airgen.steps.lineage import Lineage
from airgen.steps.step import Plan, RowBatch, WholeStep, all_parents
from airgen.storage.records import Decision, HardNegative, Prelabel, Recall, Skip
from airgen.storage.sequences import batched
from airgen.storage.store import Store

QUERIES = 500  # queries whose negatives are written at once

MINED_NAME = "mined_negative"


def mined_by_query(store: Store, plan: Plan, queries: Collection[str] | None = None) -> dict[str, list[HardNegative]]:
    """Return the mined negatives in order, by query key, optionally for some queries only."""
    negatives: dict[str, list[HardNegative]] = {}
    for row in store.rows_of(HardNegative, plan[MINED_NAME], queries) if MINED_NAME in plan else ():
        negatives.setdefault(row.parent, []).append(row)
    return negatives


def _parts(control: Control, model: Any) -> dict[str, Any]:
    settings, decision = control.tools.pipeline.generation, control.plan["decision"]
    return {"decision": decision, "range": settings.hard_negatives, "ranks": MINED_RANKS}


def _work(control: Control, model: Any) -> Iterator[RowBatch]:
    fp = control.fingerprint
    settings = control.tools.pipeline.generation
    recalls, prelabels = control.rows("recall", Recall), prelabels_of(control)
    recalled = {id_ for recall in recalls.values() for id_ in recall.ids} - set(control.pool.negatives)
    titles = control.store.passages_named(control.plan["corpus"], recalled, "t.title")
    decisions: dict[str, dict[str, Decision]] = {}
    for decision in control.store.rows_of(Decision, control.plan["decision"], control.queries):
        decisions.setdefault(decision.parent, {})[decision.id] = decision

    def of(lineage: Lineage) -> list[HardNegative | Skip]:
        key = lineage.final.key
        count = rng(lineage.sample.key, "mined negatives").randint(*settings.hard_negatives)
        mined = mine(
            recalls[key],
            prelabels[key],
            decisions.get(key, {}),
            titles,
            ranks=MINED_RANKS,
            count=count,
            relevant_from=control.settings.judge.relevant_from,
            thresholds=control.settings.thresholds,
            fingerprint=fp,
            never={passage.id for passage in lineage.sources},
        )
        rows: list[HardNegative | Skip] = [*mined]
        if len(rows) < count:
            rows.append(
                Skip(
                    key=row_key(f"skip/{MINED_NAME}", key, fp),
                    parent=key,
                    fingerprint=fp,
                    ordinal=0,
                    stage=MINED_NAME,
                    reason="fewer than drawn",
                    detail=f"{len(rows)} of {count} found",
                    cause="control",
                )
            )
        return rows

    for batch in batched(control.accepted.lineages, QUERIES):
        yield RowBatch([row for lineage in batch for row in of(lineage)])


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
    """Return at most `count` negatives of the query `recall.parent`. Judged passages come first, by the median of their
    ranks in the recall and the re-rankers, so that most systems rank them high. The others follow, best recalled first.

    Args:
        decisions: The query's decisions by document id.
        passages: Titles of the eligible passages by id.
        ranks: First and last rank of the window, from 1.
        never: Ids to exclude. Rows have no text, because it is in the corpus.
    """
    allowed = [id_ for id_ in recall.ids if id_ in passages and id_ not in never]
    # Both words count, the action and the level, because another cutoff may have made the decision.
    ignored = {row.id: row.level for row in decisions.values() if row.action == "ignore" and row.level is not None}
    near = median_ranks([recall.ids, *map(ranked, prelabels)])
    judged = sorted(
        (id_ for id_ in allowed if ignored.get(id_, relevant_from) < relevant_from), key=lambda id_: near[id_]
    )
    voted = votes(prelabels, thresholds, set())
    window = set(recall.ids[ranks[0] - 1 : ranks[1]])
    unjudged = [id_ for id_ in allowed if id_ in window and id_ not in decisions and id_ not in voted]
    return [
        HardNegative(
            key=row_key("mined_negative", recall.parent, fingerprint, place),
            parent=recall.parent,
            fingerprint=fingerprint,
            ordinal=place,
            id=id_,
            text="",
            title=passages[id_],
            origin="mined",
        )
        for place, id_ in enumerate([*judged, *unjudged][:count], 1)
    ]


MINED = WholeStep(
    MINED_NAME, (Decision,), HardNegative, 2, label="mined negatives", work=_work, parts=_parts, pending=all_parents
)
