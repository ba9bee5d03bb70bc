"""What a comparison of systems means for who has to choose one."""

from airgen.evaluation.significance import Comparison


def verdict_of(found: Comparison, queries: int, more: str) -> str:
    """Are there queries enough to rank these systems, and what to do next. more: how to get more queries, in words."""
    pairs = len(found.pairs)
    told = pairs - sum(map(len, found.together)) // 2
    if not pairs:
        return "one system is no comparison: name more"
    if told == pairs:
        return f"{queries:,} queries are enough: every pair of these systems is told apart"
    text = f"{told} of {pairs} pairs of systems are told apart by {queries:,} queries"
    best, *others = found.names
    unsure = [one for one in found.pairs if {one.first, one.second} == {best, others[0]}]
    pair = unsure[0] if others[0] in found.together[0] else None
    if pair is not None and pair.queries_needed:
        # The estimate is a t-test's; with few queries, a test that assumes no distribution can need more than it says.
        needed = f"about {pair.queries_needed:,}" if pair.queries_needed > queries else "a few more"
        return f"{text}; {needed} would tell {best} from {others[0]} ({more})"
    return (
        f"{text}; {best} is the best for certain"
        if pair is None
        else f"{text}; {best} and {others[0]} have equal scores"
    )
