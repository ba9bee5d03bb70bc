"""What a comparison of systems means for who has to choose one."""

from airgen.evaluation.significance import Comparison, SystemPair

FEWEST, ENOUGH = 25, 50
"""Queries below which systems are not ranked, and below which with care: Buckley and Voorhees (2000, 2002)."""


def verdict_of(found: Comparison, queries: int, more: str, passages: int | None = None) -> str:
    """Are there queries enough to rank these systems, and what to do next.

    Args:
        found: all pairs of systems.
        queries: how many were asked.
        more: how to get more queries, in words.
        passages: of the corpus, which has no more queries than that.
    """
    pairs = len(found.pairs)
    told = pairs - sum(map(len, found.together)) // 2
    if not pairs:
        return "one system is no comparison: name more"
    every = told == pairs
    if queries < FEWEST:
        apart = "every pair is told apart" if every else f"{told} of {pairs} pairs of systems are told apart"
        text = f"{queries:,} queries are too few to rank systems ({FEWEST} at least, better {ENOUGH}: {more}); {apart}"
    elif every:
        return f"{queries:,} queries are enough, if their labels are right: every pair of these systems is told apart"
    else:
        text = f"{told} of {pairs} pairs of systems are told apart by {queries:,} queries"
    if every:
        return text
    best, second = found.names[:2]
    pair = next(one for one in found.pairs if {one.first, one.second} == {best, second})
    if second not in found.together[0]:
        return f"{text}; {best} is the best, if the labels are right"
    if pair.queries_needed is None:
        return f"{text}; {best} and {second} have equal scores"
    return f"{text}; {_needed(pair, queries, passages)} would tell {best} from {second} ({more})"


def _needed(pair: SystemPair, queries: int, passages: int | None) -> str:
    """How many queries would tell two systems apart, with the ends of the interval in words where they say more."""
    needed, high = pair.queries_needed or 0, pair.needed_high
    limit = passages or 1_000_000
    # The estimate is a t-test's; with few queries, a test that assumes no distribution can need more than it says.
    about = "more than this corpus has" if needed > limit else f"about {needed:,}" if needed > queries else "a few more"
    end = "more than this corpus has" if high is None or high > limit else f"{max(high, queries + 1):,}"
    if passages is None and end.startswith("more"):
        end = "any number"
    low = max(pair.needed_low or 2, queries + 1)
    if needed > limit:
        return f"{about if passages else 'more than a million'} (at least {low:,} queries)"
    return f"{about} ({low:,} to {end})"
