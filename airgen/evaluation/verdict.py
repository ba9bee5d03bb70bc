"""Advice on choosing a system, based on a comparison."""

import re
from collections.abc import Mapping
from typing import Any

from airgen.dataset.human_labels import CONFIRMED
from airgen.evaluation.significance import Comparison, SystemPair

FEWEST, ENOUGH = 25, 50
"""Minimum numbers of queries to rank systems at all, and safely: Buckley and Voorhees (2000, 2002)."""


def verdict_of(comparison: Comparison, queries: int, more: str, passages: int | None = None) -> str:
    """Describe whether there are enough queries to rank the systems, and what to do next.

    Args:
        comparison: The comparison of all pairs of systems.
        queries: Number of queries.
        more: Text that says how to get more queries.
        passages: Number of passages in the corpus, which limits the number of queries.

    Returns:
        A sentence without a full stop.
    """
    pairs = len(comparison.pairs)
    different = pairs - sum(map(len, comparison.together)) // 2
    if not pairs:
        return "at least two systems are needed for a comparison"
    all_differ = different == pairs
    if queries < FEWEST:
        apart = (
            "all pairs differ significantly"
            if all_differ
            else f"{different} of {pairs} pairs of systems differ significantly"
        )
        text = f"{queries:,} queries are too few to rank systems (at least {FEWEST}, better {ENOUGH}: {more}); {apart}"
    elif all_differ:
        return f"{queries:,} queries are enough, if their labels are right: all pairs of systems differ significantly"
    else:
        text = f"{different} of {pairs} pairs of systems differ significantly on {queries:,} queries"
    if all_differ:
        return text
    best, second = comparison.names[:2]
    pair = next(pair for pair in comparison.pairs if {pair.first, pair.second} == {best, second})
    if second not in comparison.together[0]:
        return f"{text}; {best} is the best, if the labels are right"
    if pair.queries_needed is None:
        return f"{text}; {best} and {second} have equal scores"
    return f"{text}; {_needed(pair, queries, passages)} would separate {best} from {second} ({more})"


GOOD, DOUBTFUL = 0.8, 0.9
"""Labels are good if the lower bound of the share of correct ones is at least the first value, and bad if the upper
bound is below the second: then at least every tenth label is wrong. Set by us.
"""


def labels_of(audit: Mapping[str, Any] | None) -> tuple[str, bool]:
    """Describe what people found about the labels, and whether to correct them before trusting the scores.

    `audit` has the figures of an audit, as in a manifest. Returns "" without an audit.
    """
    match = re.match(
        r"[\d.]{1,9} \(([\d.]{1,9})–([\d.]{1,9})\), (\d{1,9}) of (\d{1,9})$", str((audit or {}).get(CONFIRMED, ""))
    )
    if match is None:
        return "", False
    low, high, agreed, count = float(match[1]), float(match[2]), int(match[3]), int(match[4])
    text = f"people confirm {agreed} of {count} labels, so {low:.0%} to {high:.0%} of all are right"
    if high < DOUBTFUL:
        return f"{text}: correct the labels before trusting the scores", True
    return (text if low >= GOOD else f"{text}: have more labels checked for a narrower interval"), False


def whole_verdict(systems: str, audit: Mapping[str, Any] | None, unchecked: str = "") -> str:
    """Join the verdicts on systems and labels on one line, bad labels first.

    `unchecked` is the text if no person has checked any label.
    """
    labels, bad = labels_of(audit)
    if bad:
        return f"do not rely on these scores yet: {labels}. With the current labels: {systems}"
    return f"{systems}. {labels[0].upper()}{labels[1:]}" if labels else f"{systems}{unchecked}"


def _needed(pair: SystemPair, queries: int, passages: int | None) -> str:
    """Describe how many queries are needed to distinguish two systems, with an interval."""
    needed, high = pair.queries_needed or 0, pair.needed_high
    limit = passages or 1_000_000
    # The estimate is from a t-test. With few queries, a distribution-free test can need more queries than this.
    about = f"about {needed:,}" if needed > queries else "a few more"
    end = "more than this corpus has" if high is None or high > limit else f"{max(high, queries + 1):,}"
    if passages is None and end.startswith("more"):
        end = "any number"
    low = max(pair.needed_low or 2, queries + 1)
    if needed > limit:
        return f"more queries than {'this corpus has' if passages else 'a million'} (at least {low:,})"
    return f"{about} ({low:,} to {end})"
