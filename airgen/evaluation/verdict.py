"""What may be said about systems, based on their scores: the sentence, the system to use, and what stands against it.

advise(results, more="raise `target`").sentence      # names the systems, the difference and its interval
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airgen.dataset.human_labels import CONFIRMED
from airgen.evaluation.result import Result, as_matrix
from airgen.evaluation.returned_hits import PAGES
from airgen.evaluation.significance import Comparison, SystemPair, compare

FEWEST, ENOUGH = 25, 50
"""Minimum numbers of queries to rank systems at all, and safely: Buckley and Voorhees (2000, 2002)."""


MOST_UNJUDGED = 0.5
"""The share of unjudged hits in the top ten above which scores say little: each of them counts as wrong."""


@dataclass(frozen=True)
class Advice:
    """What a page may say about the systems of one split.

    Attributes:
        sentence: The verdict, without a full stop. It can be acted on alone.
        use: The system that may be used, or "".
        why: Why it may be used.
        open: The best two systems, if it is unclear which is better.
        unjudged: The systems of which most hits are unjudged.
        pair: The best two systems that can be chosen, seen from the better one; None without two.
        decided: Whether the first of them is better than all others.
        alone: Whether they are the only two.
    """

    sentence: str
    use: str = ""
    why: str = ""
    open: SystemPair | None = None
    unjudged: tuple[str, ...] = ()
    pair: SystemPair | None = None
    decided: bool = False
    alone: bool = False

    @property
    def p(self) -> float:
        """Return the p-value of the pair, corrected for other pairs if there are any."""
        return math.nan if self.pair is None else self.pair.fisher if self.alone else self.pair.fisher_holm


def advise(results: Sequence[Result], *, more: str, passages: int | None = None) -> Advice:
    """Say which system is better, among those that can be chosen by these scores.

    A system that helped to make the labels cannot be chosen by them. Systems whose hits are pages are compared only
    with each other. Two systems are a pair that was asked for, so its comparison is not corrected for any other.

    Args:
        results: Results on the same split.
        more: Text that says how to get more queries.
        passages: Number of passages in the corpus, which limits the number of queries.

    Raises:
        DatasetError: The scores by query cannot be read, or are for different queries.
    """
    if len(results) < 2:
        return Advice("at least two systems are needed for a comparison")
    by_pages: dict[bool, list[Result]] = {}
    for result in results:
        if not result.made_labels:
            by_pages.setdefault(bool(result.notes.get(PAGES)), []).append(result)
    marked = [result.name for result in results if result.made_labels]
    first = max(results, key=lambda result: result.score)
    if first.made_labels:
        doubt = f"{first.name} ranks first, but helped to make the labels (†): do not choose it by this score"
    else:
        doubt = f"{_listed(marked)} helped to make the labels (†): do not choose by such a score" if marked else ""
    groups = sorted(by_pages.values(), key=lambda group: (-len(group), group[0].name))
    chosen = groups[0] if groups else []
    if len(groups) > 1:
        pages, sections = _listed([each.name for each in by_pages[True]]), [each.name for each in by_pages[False]]
        apart = f"hits of {pages} are pages: do not compare with {_listed(sections)}, unless with `level: document`"
        doubt = "; ".join(filter(None, [apart, doubt]))
    if len(chosen) < 2:
        only = f"{chosen[0].name} is the only one of {len(results)} systems" if chosen else "there is no system"
        alone = f"{only} that can be chosen by these {results[0].queries:,} queries, so nothing is compared"
        return Advice("; ".join(filter(None, [alone, doubt])))
    headline, queries = chosen[0].headline, chosen[0].queries
    comparison = compare([result.name for result in chosen], as_matrix(chosen, headline)[1])
    best, second = comparison.names[:2]
    pair = comparison.pair(best, second).seen_from(best)
    if len(chosen) == 2:
        sentence = pair_sentence(pair, headline, queries, more, passages)
        if queries < FEWEST:
            sentence = (
                f"{queries:,} queries are too few to rank systems (at least {FEWEST}, better {ENOUGH}): {sentence}"
            )
    else:
        sentence = verdict_of(comparison, queries, more, passages)
        if not comparison.together[0]:
            sentence += f"; {best} is the best ({_figures(pair, headline)} against {second})"
    unjudged = tuple(each.name for each in chosen if 1 - each.means.get("Judged@10", 1.0) > MOST_UNJUDGED)
    if unjudged:
        shares = [1 - each.means["Judged@10"] for each in chosen if each.name in unjudged]
        holes = f"at least {min(shares):.0%} of the top ten hits of {_listed(unjudged)} are unjudged and count as wrong"
        doubt = "; ".join(filter(None, [f"{holes}, so judge them first", doubt]))
    use = best if not comparison.together[0] and queries >= ENOUGH and not unjudged else ""
    return Advice(
        "; ".join(filter(None, [sentence, doubt])),
        use=use,
        why=f"{_figures(pair, headline)} against {second}, on {queries:,} queries" if use else "",
        open=pair if comparison.together[0] else None,
        unjudged=unjudged,
        pair=pair,
        decided=not comparison.together[0] and queries >= FEWEST,
        alone=len(chosen) == 2,
    )


def pair_sentence(pair: SystemPair, measure: str, queries: int, more: str, passages: int | None = None) -> str:
    """Say which of two systems that are compared alone is better, by how much, and how sure that is."""
    figures = _figures(pair, measure)
    if pair.alone != "cannot tell":
        better = pair if pair.alone == "better" else pair.seen_from(pair.second)
        return f"{better.first} is better than {better.second} on {queries:,} queries: {_figures(better, measure)}"
    text = f"cannot tell whether {pair.first} or {pair.second} is better on {queries:,} queries: {figures}"
    if pair.queries_needed is None:
        return f"{pair.first} and {pair.second} have equal scores"
    needed = _needed(pair, queries, passages, " queries")
    return f"{text}; {needed} would separate {pair.first} from {pair.second} ({more})"


def _figures(pair: SystemPair, measure: str) -> str:
    return f"{measure} {pair.difference:+.4f} (95 %: {pair.low:+.4f} to {pair.high:+.4f}, p {pair.fisher:.4f})"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


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


def whole_verdict(
    systems: str, audit: Mapping[str, Any] | None, unchecked: str = "", earlier: Mapping[str, Any] | None = None
) -> str:
    """Join the verdicts on systems and labels on one line, bad labels first.

    `unchecked` is the text if no person has checked any label. `earlier` are the figures of the last audit if the
    labels have changed since: a bad result stands until people have checked the new labels.
    """
    labels, bad = labels_of(audit)
    if audit is None and (was := labels_of(earlier))[1]:
        labels, bad = f"before the labels last changed, {was[0]}", True
    if bad:
        again = unchecked if audit is None else ""
        return f"do not rely on these scores yet: {labels}. With the current labels: {systems}{again}"
    return f"{systems}. {labels[0].upper()}{labels[1:]}" if labels else f"{systems}{unchecked}"


def _needed(pair: SystemPair, queries: int, passages: int | None, noun: str = "") -> str:
    """Describe how many queries are needed to distinguish two systems, with an interval; `noun` follows the number."""
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
    return f"{about} ({low:,} to {end}){noun}"
