"""The funnel: how many of each thing entered and left each stage, and why (paper, sections 2.3 and 2.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from airgen.dataset.content import FunnelStep
from airgen.pipeline.generate import Accepted
from airgen.pipeline.stage import Lineage, Plan, Stage
from airgen.pipeline.stages import Flow
from airgen.records import Decision, HardNegative, Skip
from airgen.store import Store

__all__ = ["funnel"]


def funnel(store: Store, flow: Flow, plan: Plan, accepted: Accepted, decisions: Iterable[Decision]) -> list[FunnelStep]:
    """The steps in order. Samples beyond the last accepted query (surplus of a parallel run) are not counted."""
    steps = [_corpus(store, plan)]
    left: list[Lineage] = [*accepted.lineages, *(one.lineage for one in accepted.rejected)]
    for stage in flow.candidates:
        entered, ended = len(left), [lineage for lineage in left if stage.stopped(lineage)]
        left = [lineage for lineage in left if not stage.stopped(lineage)]
        if stage.ends:
            reasons, kept = _reasons(stage, ended), len(left)
        else:
            reasons, kept = _reasons(stage, left), sum(bool(one.every(stage.writes)) for one in left)
        if stage is flow.candidates[-1]:
            judged = {lineage.sample.key for lineage in left}
            others = [one for one in accepted.rejected if one.lineage.sample.key in judged]
            reasons.update(one.words for one in others)
            left = accepted.lineages
            kept = len(left)
        steps.append(FunnelStep(stage.label or stage.name, entered, kept, _sorted(reasons)))
    for stage in flow.accepted:
        without = _reasons(stage, accepted.lineages)
        queries = len(accepted.lineages)
        steps.append(FunnelStep(stage.label or stage.name, queries, queries - sum(without.values()), _sorted(without)))
    return [*steps, *_control(accepted, list(decisions)), *_mined(store, plan, accepted)]


def _corpus(store: Store, plan: Plan) -> FunnelStep:
    sql = "SELECT count(*) FROM membership m JOIN passage t ON t.key = m.key WHERE m.fingerprint = ?"
    ((passages,),) = store.query(sql, [plan["corpus"]])
    reasons = {f"{cleaner}: {reason}": count for (cleaner, reason), count in store.drops(plan["corpus"]).items()}
    return FunnelStep("corpus", passages + sum(reasons.values()), passages, _sorted(reasons))


def _reasons(stage: Stage, lineages: Sequence[Lineage]) -> Counter[str]:
    return Counter(one.skips[stage.name].reason for one in lineages if stage.name in one.skips)


def _control(accepted: Accepted, decisions: list[Decision]) -> list[FunnelStep]:
    actions = Counter(row.action for row in decisions)
    negatives = sum(len(lineage.every(HardNegative)) for lineage in accepted.lineages)
    queries = len(accepted.lineages)
    kept, dropped = actions["keep_negative"], actions["drop_negative"]
    fallen = {"their document was judged not relevant": actions["drop_query"]} if actions["drop_query"] else {}
    return [
        FunnelStep("hard negatives", negatives, kept, {"judged relevant": dropped} if dropped else {}),
        FunnelStep("queries", queries, actions["keep_query"], fallen),
        FunnelStep("positives", queries, actions["keep_query"] + actions["add_positive"], {}),
    ]


def _mined(store: Store, plan: Plan, accepted: Accepted) -> list[FunnelStep]:
    """Queries that have as many mined negatives as were drawn for them, where the pipeline asks for such."""
    if "mined_negative" not in plan:
        return []
    queries = accepted.keys
    skips = store.made(Skip, plan["mined_negative"], queries)
    reasons = Counter(row.reason for row in skips)
    return [FunnelStep("queries with all mined negatives", len(queries), len(queries) - len(skips), _sorted(reasons))]


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
