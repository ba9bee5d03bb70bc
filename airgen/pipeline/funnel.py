"""The funnel: how many of each thing entered and left each stage, and why (paper, sections 2.3 and 2.4)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from airgen.dataset.content import FunnelStep
from airgen.pipeline.generate import Accepted
from airgen.pipeline.stage import Lineage
from airgen.pipeline.stages import CANDIDATES
from airgen.records import Decision
from airgen.store import Store

__all__ = ["funnel"]

# Figures differ from case to case and would make every reason a reason of its own.
_FIGURES = re.compile(r"[-+]?\d[\d.,]*%?")


def funnel(store: Store, accepted: Accepted, decisions: Iterable[Decision]) -> list[FunnelStep]:
    """The steps in order. Samples beyond the last accepted query (surplus of a parallel run) are not counted."""
    steps = [_corpus(store)]
    left: list[Lineage] = [*accepted.lineages, *(lineage for lineage, _ in accepted.rejected)]
    for stage in CANDIDATES:
        stopped = [lineage for lineage in left if stage.ends and stage.name in lineage.skips]
        reasons = Counter(_short(lineage.skips[stage.name].reason) for lineage in stopped)
        entered = len(left)
        left = [lineage for lineage in left if not (stage.ends and stage.name in lineage.skips)]
        name = "judgment of the own document" if stage.name == "judgment" else stage.name
        if stage.name == "rewrite":
            kept = [lineage for lineage in left if lineage.rewrites]
            reasons = Counter(_short(one.skips["rewrite"].reason) for one in left if "rewrite" in one.skips)
            steps.append(FunnelStep("rewrite (kept original otherwise)", entered, len(kept), _sorted(reasons)))
            continue
        if stage.name == "judgment":
            judged = {lineage.sample.key for lineage in left}
            reasons.update(_short(reason) for one, reason in accepted.rejected if one.sample.key in judged)
            left = accepted.lineages
        steps.append(FunnelStep(name, entered, len(left), _sorted(reasons)))
    return [*steps, *_control(accepted, list(decisions)), *_mined(store, accepted)]


def _corpus(store: Store) -> FunnelStep:
    (passages,) = store.query("SELECT count(*) FROM current_passage")[0]
    reasons = dict(
        store.query("SELECT cleaner || ': ' || reason, count(*) FROM current_dropped GROUP BY 1 ORDER BY 2 DESC, 1")
    )
    return FunnelStep("corpus", passages + sum(reasons.values()), passages, reasons)


def _control(accepted: Accepted, decisions: list[Decision]) -> list[FunnelStep]:
    actions = Counter(row.action for row in decisions)
    negatives = sum(len(lineage.hard_negatives) for lineage in accepted.lineages)
    queries = len(accepted.lineages)
    kept, dropped = actions["keep_negative"], actions["drop_negative"]
    without = Counter(
        _short(one.skips["hard_negative"].reason) for one in accepted.lineages if "hard_negative" in one.skips
    )
    fallen = {"their document was judged not relevant": actions["drop_query"]} if actions["drop_query"] else {}
    return [
        FunnelStep("queries with hard negatives", queries, queries - sum(without.values()), _sorted(without)),
        FunnelStep("hard negatives", negatives, kept, {"judged relevant": dropped} if dropped else {}),
        FunnelStep("queries", queries, actions["keep_query"], fallen),
        FunnelStep("positives", queries, actions["keep_query"] + actions["add_positive"], {}),
    ]


def _mined(store: Store, accepted: Accepted) -> list[FunnelStep]:
    """Queries that have as many mined negatives as were drawn for them, where the pipeline asks for such."""
    if not store.query("SELECT 1 FROM current_plan WHERE stage = 'mined_negative'"):
        return []
    keys = {lineage.final.key for lineage in accepted.lineages}
    found = store.query("SELECT parent, reason FROM current_skip WHERE stage = 'mined_negative'")
    fewer = Counter(_short(reason) for parent, reason in found if parent in keys)
    return [FunnelStep("queries with all mined negatives", len(keys), len(keys) - sum(fewer.values()), _sorted(fewer))]


def _short(reason: str) -> str:
    return _FIGURES.sub("#", reason)[:80]


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
