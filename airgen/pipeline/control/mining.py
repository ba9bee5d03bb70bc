"""The mined hard negatives of a job, after quality control: for each query, as many as were drawn for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airgen.keys import fingerprint, rng, row_key
from airgen.pipeline.control.mined_negative import mine
from airgen.pipeline.generate import Accepted
from airgen.pipeline.stage import Lineage, Tools
from airgen.records import Decision, HardNegative, Prelabel, Recall, Skip
from airgen.store import Store

__all__ = ["STAGE", "mine_negatives", "mined_by_query"]

STAGE = "mined_negative"
_QUERIES = 500  # whose recall is in memory at a time


def mine_negatives(store: Store, tools: Tools, accepted: Accepted) -> None:
    """Append the rows, or take the stage out of the plan where the pipeline asks for generated negatives only.

    A query with fewer than were drawn for it leaves a skip beside what it has.
    """
    pipeline = tools.pipeline
    settings, control = pipeline.generation, pipeline.control
    plan = dict(store.query("SELECT stage, fingerprint FROM current_plan"))
    before = plan.pop(STAGE, None)
    if settings.negatives == "generated":
        if before is not None:
            store.register(plan)
        return
    fp = fingerprint(
        stage=STAGE, version=1, decision=plan["decision"], range=settings.hard_negatives, ranks=settings.mined_ranks
    )
    store.register({**plan, STAGE: fp})
    titles = dict(store.query("SELECT id, title FROM current_passage"))
    for batch in _batches(accepted.lineages):
        keys = [lineage.final.key for lineage in batch]
        recalls = {row.parent: row for row in store.rows(Recall, "current_recall", _AMONG, [keys])}
        prelabels: dict[str, list[Prelabel]] = {}
        for row in store.rows(Prelabel, "current_prelabel", _AMONG, [keys], "t.ordinal"):
            prelabels.setdefault(row.parent, []).append(row)
        decisions: dict[str, dict[str, Decision]] = {}
        for decision in store.rows(Decision, "current_decision", _AMONG, [keys]):
            decisions.setdefault(decision.parent, {})[decision.id] = decision
        rows: list[HardNegative | Skip] = []
        for lineage in batch:
            key = lineage.final.key
            count = rng(lineage.sample.key, "mined negatives").randint(*settings.hard_negatives)
            found = mine(
                recalls[key], prelabels.get(key, ()), decisions.get(key, {}), titles,
                ranks=settings.mined_ranks, count=count, relevant_from=control.judge.relevant_from,
                thresholds=control.thresholds, fingerprint=fp, never={lineage.passage.id},
            )  # fmt: skip
            rows += found
            if len(found) < count:
                reason = f"{len(found)} of {count} found"
                rows.append(Skip(row_key(f"skip/{STAGE}", key, fp), key, fp, 0, STAGE, reason))
        store.put(rows)


_AMONG = "t.parent IN (SELECT unnest(?))"


def _batches(lineages: Sequence[Lineage]) -> Iterator[Sequence[Lineage]]:
    for start in range(0, len(lineages), _QUERIES):
        yield lineages[start : start + _QUERIES]


def mined_by_query(store: Store, query: str | None = None) -> dict[str, list[HardNegative]]:
    """The current mined negatives by the key of their query, in their order; of one query where it is given."""
    found: dict[str, list[HardNegative]] = {}
    where, parameters = ("t.parent = ?", [query]) if query else ("", [])
    for row in store.rows(HardNegative, "current_mined_negative", where, parameters, "t.parent, t.ordinal"):
        found.setdefault(row.parent, []).append(row)
    return found
