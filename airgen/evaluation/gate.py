"""Is a run worse than a baseline? For continuous integration: the answer goes by an interval, not by a mean.

found = against_baseline("new", new, old, measure="nDCG@10")
found.verdict                                  # worse, better, "not worse" or unsure
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.evaluation.significance import bootstrap_interval


@dataclass(frozen=True, slots=True)
class AgainstBaseline:
    """A run's mean less the baseline's, with its bootstrap interval over queries.

    verdict: `worse`, if the whole interval is below -margin; `better`, if it is above 0; `not worse`, if it is above
    -margin; else `unsure`: these queries cannot tell.
    """

    run: str
    measure: str
    difference: float
    low: float
    high: float
    margin: float
    verdict: Literal["worse", "better", "not worse", "unsure"]


def against_baseline(
    run: str,
    scores: NDArray[np.float64],
    baseline: NDArray[np.float64],
    *,
    measure: str,
    margin: float = 0.0,
    level: float = 0.95,
) -> AgainstBaseline:
    """Compare scores by query, float64 (queries,), of the same queries in the same order.

    Raises UsageError for two sets of queries or a negative margin.
    """
    if scores.shape != baseline.shape:
        raise UsageError(f"{run}: {scores.size} queries, but {baseline.size} of the baseline")
    if not margin >= 0:
        raise UsageError(f"a margin of {margin} is not possible: it is how much worse a run may be, 0 or more")
    difference = scores - baseline
    ((low, high),) = bootstrap_interval(difference[None], level=level, samples=10_000).tolist()
    verdict: Literal["worse", "better", "not worse", "unsure"] = "unsure"
    if low == high == 0:  # the same scores for every query
        verdict = "not worse"
    elif high < -margin:
        verdict = "worse"
    elif low > 0:
        verdict = "better"
    elif low >= -margin and margin:
        verdict = "not worse"
    return AgainstBaseline(run, measure, float(difference.mean()), low, high, margin, verdict)
