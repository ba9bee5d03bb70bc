"""What the cheap checks saved: the calls that a query would have had, had it not been dropped before them.

The paper generates the hard negatives first and judges afterwards (2.3, 2.4). Here a query that fails its checks is
not rewritten, and one that its own document does not answer, or that repeats another one, gets no negatives. Each
dropped query counts with the mean calls and tokens that such a stage took for this job's other queries, so the
figure is an estimate from what was paid, not a measurement. A query that could not have gone on (no usable answer at
all) counts nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from airgen.pipeline.generate import Accepted
from airgen.store import Store

__all__ = ["Savings", "savings"]

_ANSWERS = """
SELECT stage, count(*), sum(prompt_tokens), sum(completion_tokens), sum(cost_usd) FROM answer
WHERE stage IN ('rewrite', 'judgment', 'hard_negative') GROUP BY stage
"""
# How many queries went through a stage, whatever it was configured to be at the time: so were the answers.
_WORKED = {
    "rewrite": "SELECT parent FROM rewrite UNION SELECT parent FROM skip WHERE stage = 'rewrite' "
    "AND reason <> 'no rewriting asked for'",
    "hard_negative": "SELECT parent FROM hard_negative WHERE origin = 'generated' "
    "UNION SELECT parent FROM skip WHERE stage = 'hard_negative' AND reason <> 'none asked for'",
}
_AFTER = {
    "query": ("rewrite", "judgment", "hard_negative"),
    "judgment": ("hard_negative",),
    "duplicate": ("hard_negative",),
}  # what a query that fell there was spared


@dataclass(frozen=True)
class Savings:
    """`dropped`: queries by where they fell; the rest is what they were spared: means times their number."""

    dropped: dict[str, int]
    calls: float
    prompt_tokens: float
    completion_tokens: float
    usd: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, rounded."""
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(self).items()}


def savings(store: Store, accepted: Accepted) -> Savings | None:
    """What this job was spared; None before any query got its negatives, when a mean is not known."""
    dropped = dict.fromkeys(_AFTER, 0)
    for _, reason in accepted.rejected:
        where = "duplicate" if reason.startswith("duplicate") else reason.partition(":")[0]
        why = reason.partition(": ")[2]
        if where in dropped and not why.startswith(("llm:", "malformed")):
            dropped[where] += 1
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
        for stage in _AFTER[where]:
            sums = [total + count * mean for total, mean in zip(sums, means.get(stage, [0.0] * 4), strict=True)]
    return Savings(dropped, *sums)
