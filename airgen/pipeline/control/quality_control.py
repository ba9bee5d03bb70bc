"""Hard negatives out of the corpus itself: passages high in recall that quality control found not relevant.

They are an alternative or an addition to the generated ones (paper 2.3, step 6), and free: no model is asked. They are
real passages, so nothing is added to the corpus. What quality control knows decides:

- a passage that the LLM judged not relevant may be taken at any rank: these are the surest;
- a passage that was not judged may be taken within a window of ranks, if no re-ranker put it within its threshold. The
  window begins below the first ranks, where relevant passages without a label are likeliest (RocketQA, Qu et al. 2021,
  found 70 % of the unlabelled top passages to be relevant).

Quality control of the accepted candidates, step by step (paper 2.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from airgen.keys import fingerprint, rng, row_key
from airgen.pipeline.control.judgments import DECISIONS, add_judgments
from airgen.pipeline.control.recall import RECALL, prelabel_stages, prelabels_of
from airgen.pipeline.control.set_stage import Control, SetStage, add_rows
from airgen.pipeline.control.table2 import votes
from airgen.pipeline.stage import Plan
from airgen.records import Decision, HardNegative, Prelabel, Recall, Skip
from airgen.settings import Thresholds
from airgen.store import Store

NAME = "mined_negative"


def mined_by_query(store: Store, plan: Plan, queries: Collection[str] | None = None) -> dict[str, list[HardNegative]]:
    """The mined negatives by the key of their query, in their order; of some queries where they are given."""
    found: dict[str, list[HardNegative]] = {}
    for row in store.made(HardNegative, plan[NAME], queries) if NAME in plan else ():
        found.setdefault(row.parent, []).append(row)
    return found


def _fingerprint(control: Control, model: Any) -> str:
    settings, decision = control.tools.pipeline.generation, control.plan["decision"]
    return fingerprint(
        stage=NAME, version=1, decision=decision, range=settings.hard_negatives, ranks=settings.mined_ranks
    )


def _work(control: Control, model: Any, fp: str, queries: Sequence[str]) -> Iterator[list[HardNegative | Skip]]:
    settings = control.tools.pipeline.generation
    recalls, prelabels = control.rows("recall", Recall), prelabels_of(control)
    recalled = {id_ for recall in recalls.values() for id_ in recall.ids} - set(control.pool.negatives)
    titles = control.pool.titles(recalled)
    decisions: dict[str, dict[str, Decision]] = {}
    for decision in control.store.made(Decision, control.plan["decision"], control.queries):
        decisions.setdefault(decision.parent, {})[decision.id] = decision
    for lineage in control.accepted.lineages:
        key = lineage.final.key
        count = rng(lineage.sample.key, "mined negatives").randint(*settings.hard_negatives)
        found: list[HardNegative | Skip] = [*mine(
            recalls[key], prelabels[key], decisions.get(key, {}), titles,
            ranks=settings.mined_ranks, count=count, relevant_from=control.settings.judge.relevant_from,
            thresholds=control.settings.thresholds, fingerprint=fp, never={one.id for one in lineage.sources},
        )]  # fmt: skip
        if len(found) < count:
            key_of_skip = row_key(f"skip/{NAME}", key, fp)
            figures = f"{len(found)} of {count} found"
            found.append(Skip(key_of_skip, key, fp, 0, NAME, "fewer than drawn", figures, "control"))
        yield found


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
    # Both words count: another cut between levels may have made the decision.
    if decision is None or decision.action != "ignore" or decision.level is None:
        return False
    return decision.level < relevant_from


MINED = SetStage(NAME, HardNegative, "mined negatives", _fingerprint, _work, always=True)


async def control_quality(control: Control) -> Plan:
    """Append the rows of recall, pre-labels, judgments, decisions and mined negatives; returns the plan with their
    fingerprints.

    Set-wise work is arithmetic that never waits, so it runs in a thread: Ctrl-C is heard meanwhile.
    """
    for stage in (RECALL, *prelabel_stages(control)):
        control = await asyncio.to_thread(add_rows, stage, control)
    await add_judgments(control)
    pipeline = control.tools.pipeline
    mines = pipeline.queries is None and pipeline.generation.negatives != "generated"
    for stage in (DECISIONS, MINED) if mines else (DECISIONS,):
        control = await asyncio.to_thread(add_rows, stage, control)
    return control.plan
