"""What the cheap checks saved: the calls that a query would have had, had it not been dropped before them.

The paper generates the hard negatives first and judges afterwards (2.3, 2.4). Here a query that fails its checks is
not rewritten, and one that its own document does not answer, or that repeats another one, gets no negatives. Each
dropped query counts with the mean calls and tokens that such a stage took for this job's other queries, so the
figure is an estimate from what was paid, not a measurement. A query without any usable answer counts nothing: it
could not have gone on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from airgen.pipeline.generate import Accepted
from airgen.store import Store

__all__ = ["Savings", "saved_calls"]

_ANSWERS = """
SELECT stage, count(*), sum(prompt_tokens), sum(completion_tokens), sum(cost_usd) FROM answer
WHERE stage IN ('rewrite', 'judgment', 'hard_negative') GROUP BY stage
"""
# How many queries went through a stage, whatever its settings were then: the answers are counted in the same way.
_WORKED = {
    stage: f"SELECT parent FROM {stage} UNION SELECT parent FROM skip WHERE stage = '{stage}' AND cause <> 'settings'"
    for stage in ("rewrite", "hard_negative")
}
_WORKED["hard_negative"] = _WORKED["hard_negative"].replace(" UNION", " WHERE origin = 'generated' UNION")
_SPARED = {
    "query": ("rewrite", "judgment", "hard_negative"),
    "judgment": ("hard_negative",),
    "duplicate": ("hard_negative",),
}  # the stages that a query which was dropped there was spared


@dataclass(frozen=True)
class Savings:
    """`dropped`: queries by the stage that dropped them. The rest is what they were spared: mean times number."""

    dropped: dict[str, int]
    calls: float
    prompt_tokens: float
    completion_tokens: float
    usd: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, rounded."""
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(self).items()}


def saved_calls(store: Store, accepted: Accepted) -> Savings | None:
    """What this job was spared; None before any query got its negatives, when a mean is not known."""
    dropped = dict.fromkeys(_SPARED, 0)
    for one in accepted.rejected:
        if one.stage in dropped and one.cause not in ("llm", "malformed"):
            dropped[one.stage] += 1
    means: dict[str, list[float]] = {}
    for stage, calls, *totals in store.query(_ANSWERS):
        # Judgments of quality control have the same stage: a query's own takes one call.
        worked = calls if stage == "judgment" else len(store.query(_WORKED[stage]))
        if worked:
            means[stage] = [float(value) / worked for value in (calls, *totals)]
    if "hard_negative" not in means:
        return None
    sums = [0.0, 0.0, 0.0, 0.0]
    for where, count in dropped.items():
        for stage in _SPARED[where]:
            sums = [total + count * mean for total, mean in zip(sums, means.get(stage, [0.0] * 4), strict=True)]
    return Savings(dropped, *sums)
