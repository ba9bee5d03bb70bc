"""The checks of a benchmark: what each check measures, its limits and their sources, and what to do about a fault.

    result = finding("saturation", 0.97, "the best system reaches nDCG@10 .97")
    result.state                                   # "bad": the limit is .95

Each check is an entry in `CHECKS`. A limit without a published source says so; it was chosen from the human-labelled
collections in docs/notes/trust.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airgen.display.study import shown
from airgen.evaluation.verdict import ENOUGH, FEWEST
from airgen.studies.label_sets import ALIKE, UNLIKE

State = Literal["good", "look", "bad", "unknown"]
STATES: Mapping[State, str] = {"bad": "fault", "look": "look at it", "good": "good", "unknown": "not measured"}
ANY_ABOVE_ZERO = 1e-9  # a limit that any value above 0 reaches
_OURS = "set by us, from the human-labelled collections in docs/notes/trust.md"


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A check. `doubtful_from` is the first value that is doubtful, and `fault_from` the first that is a fault.

    If `fault_from` is at least `doubtful_from`, high values are faults; otherwise, low values are. `form` formats the
    value, `meaning` explains the figure, `advice` says what to do about a fault, and `source` says where the limits
    come from.
    """

    title: str
    doubtful_from: float
    fault_from: float
    form: str
    meaning: str
    advice: str
    source: str = _OURS

    def state(self, value: float) -> State:
        """Return the state of a value. NaN is unknown."""
        if math.isnan(value):
            return "unknown"
        sign = 1 if self.fault_from >= self.doubtful_from else -1
        if sign * value >= sign * self.fault_from:
            return "bad"
        return "look" if sign * value >= sign * self.doubtful_from else "good"

    def shown(self, value: float) -> str:
        """Format the value."""
        return shown(value, self.form)

    @property
    def limits(self) -> str:
        """Format the limits."""
        side = "from {} on" if self.fault_from >= self.doubtful_from else "{} or less"
        doubtful = "above 0" if self.doubtful_from == ANY_ABOVE_ZERO else side.format(self.shown(self.doubtful_from))
        return f"look {doubtful}, fault {side.format(self.shown(self.fault_from))}"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: its state, its value (NaN if not measured), a sentence of detail, and ids of examples."""

    name: str
    state: State
    value: float
    detail: str
    examples: tuple[str, ...] = ()

    @property
    def check(self) -> HealthCheck:
        """Return the check."""
        return CHECKS[self.name]


def finding(name: str, value: float, detail: str, examples: Sequence[str] = ()) -> Finding:
    """Return the finding for a value."""
    return Finding(
        name=name, state=CHECKS[name].state(value), value=float(value), detail=detail, examples=tuple(examples[:5])
    )


def share(name: str, hits: Sequence[str], total: int, more: str = "queries") -> Finding:
    """Return the finding for a share of `total`, with the first hits as examples."""
    return finding(name, len(hits) / (total or 1), f"{len(hits):,} of {total:,} {more}", hits)


def not_measured(name: str, why: str) -> Finding:
    """Return the finding for a check that could not be carried out."""
    return Finding(name, "unknown", math.nan, why)


def verdict(findings: Sequence[Finding]) -> str:
    """Summarise the findings in one or two sentences."""
    bad = [finding.check.title.lower() for finding in findings if finding.state == "bad"]
    doubtful = [finding.check.title.lower() for finding in findings if finding.state == "look"]
    doubts = f" Check: {', '.join(doubtful)}." if doubtful else ""
    if bad:
        return f"Do not rank systems with it until these problems are fixed: {', '.join(bad)}.{doubts}"
    if doubtful:
        return f"Use it with care.{doubts}"
    return "No problems were found."


CHECKS: Mapping[str, HealthCheck] = {
    "queries": HealthCheck(
        title="Number of queries",
        doubtful_from=ENOUGH - 1,
        fault_from=FEWEST - 1,
        form=".0f",
        meaning="Queries of the split that have labels.",
        advice="Add queries. With few queries, chance decides which of two systems is better.",
        source="Voorhees and Buckley 2002: usually 50 topics; Buckley and Voorhees 2000: at least 25",
    ),
    "dangling": HealthCheck(
        title="Labels without a text",
        doubtful_from=ANY_ABOVE_ZERO,
        fault_from=0.01,
        form=".1%",
        meaning="Share of labels whose passage is not in the corpus or whose query has no text.",
        advice="The labels belong to another version of the corpus. Use the matching version, or remove these labels.",
    ),
    "no positive": HealthCheck(
        title="Queries without a relevant passage",
        doubtful_from=ANY_ABOVE_ZERO,
        fault_from=0.05,
        form=".1%",
        meaning="Share of labelled queries without any label above 0. Every system scores 0 on them.",
        advice="Remove them, or mark them as unanswerable so that they are evaluated as such.",
    ),
    "random labels": HealthCheck(
        title="Random labels",
        doubtful_from=0.2,
        fault_from=0.05,
        form=".3f",
        meaning="Mean score of the best system, scaled from a random ranking of the corpus (0) to a perfect one (1).",
        advice="No system retrieves the labelled passages, so the labels do not fit the texts. Compare the ids of "
        "queries, passages and labels.",
    ),
    "unsolved": HealthCheck(
        title="Unsolved queries",
        doubtful_from=0.15,
        fault_from=0.4,
        form=".1%",
        meaning="Share of queries for which no system has a relevant passage in its top ten.",
        advice="Read the examples. Either they are hard, or their labels are wrong. `airgen audit sample` lets people "
        "decide.",
    ),
    "saturation": HealthCheck(
        title="Saturation",
        doubtful_from=0.9,
        fault_from=0.95,
        form=".3f",
        meaning="Mean score of the best system. If it is close to 1, better systems cannot score higher.",
        advice="Make the queries harder (more specific needs, fewer words of the passage, more similar passages in the "
        "corpus), or use another benchmark.",
    ),
    "solved by all": HealthCheck(
        title="Queries solved by all",
        doubtful_from=0.5,
        fault_from=0.8,
        form=".1%",
        meaning="Share of queries for which every system has a perfect score. Such queries do not separate systems.",
        advice="Add hard negatives or larger parts of the corpus, or remove such queries.",
    ),
    "reliability": HealthCheck(
        title="Split-half reliability",
        doubtful_from=0.9,
        fault_from=0.7,
        form=".3f",
        meaning="Mean rank correlation (Spearman) of the systems between random halves of the queries, over 200 "
        "splits.",
        advice="The ranking depends on the choice of queries. Add queries, or compare systems that differ more.",
        source="Nunnally 1978, p. 245: at least .7, and .9 for decisions",
    ),
    "label sets": HealthCheck(
        title="Labels against sources alone",
        doubtful_from=ALIKE,
        fault_from=UNLIKE,
        form=".3f",
        meaning="Rank correlation (Spearman) of the systems between all labels and the source documents alone, on the "
        "same queries.",
        advice="One of the two label sets is wrong for many queries. Read some queries with several positives, ask a "
        "person (`airgen audit relevance`, `airgen audit sample`), or export the dataset with the sources alone "
        "(`airgen export --without correction`).",
        source="Nunnally 1978, p. 245, as for reliability",
    ),
    "significant pairs": HealthCheck(
        title="Significantly different pairs",
        doubtful_from=0.4,
        fault_from=0.15,
        form=".1%",
        meaning="Share of pairs of systems whose difference is significant (Fisher's randomisation test, Holm, .05).",
        advice="Add queries. Do not report differences that are not significant.",
    ),
    "top five": HealthCheck(
        title="Stability of the top five",
        doubtful_from=0.8,
        fault_from=0.6,
        form=".1%",
        meaning="How many of the top five systems remain in the top five when the queries are resampled (bootstrap).",
        advice="Report intervals instead of ranks within this group, or add queries.",
    ),
    "judged": HealthCheck(
        title="Labelled hits",
        doubtful_from=0.3,
        fault_from=0.02,
        form=".1%",
        meaning="Share of the systems' top ten hits that have a label. Unlabelled hits count as not relevant.",
        advice="`airgen audit holes` judges the unlabelled hits and reports how much the scores change.",
    ),
    "copies of positives": HealthCheck(
        title="Unlabelled copies of relevant passages",
        doubtful_from=0.01,
        fault_from=0.1,
        form=".1%",
        meaning="Share of queries with an unlabelled passage that has the same words as a relevant one.",
        advice="Remove the copies from the corpus, or give them the same label. Systems that retrieve a copy are "
        "penalised.",
    ),
    "duplicate queries": HealthCheck(
        title="Near-duplicate queries",
        doubtful_from=0.05,
        fault_from=0.2,
        form=".1%",
        meaning="Share of queries whose words have a Jaccard similarity of at least .8 with those of an earlier query.",
        advice="Remove them. They count the same need several times, which makes intervals too narrow.",
    ),
    "leaks": HealthCheck(
        title="Leaks between splits",
        doubtful_from=ANY_ABOVE_ZERO,
        fault_from=0.05,
        form=".1%",
        meaning="Share of this split's queries with a near duplicate in another split.",
        advice="Remove them from the other split, or move both into one. Otherwise, models trained there have seen "
        "the test.",
    ),
    "copied words": HealthCheck(
        title="Copied words",
        doubtful_from=0.1,
        fault_from=0.3,
        form=".1%",
        meaning="Share of queries that are copied: a relevant passage or its title has a run of at least five of the "
        "query's words that makes up 80 % of it, or the title is the query.",
        advice="Rewrite them. String matching solves them, so they do not test semantic search.",
    ),
    "overlap": HealthCheck(
        title="Words shared with the relevant passage",
        doubtful_from=0.75,
        fault_from=0.9,
        form=".1%",
        meaning="Mean share of a query's distinct stems, without stop words, that occur in its best relevant passage.",
        advice="Rewrite the queries in other words, like people who have not seen the passage.",
    ),
    "language": HealthCheck(
        title="Queries in another language",
        doubtful_from=0.02,
        fault_from=0.1,
        form=".1%",
        meaning="Share of queries in a language or script other than the corpus's.",
        advice="Remove them, or declare the benchmark cross-lingual.",
    ),
    "contamination": HealthCheck(
        title="Queries known from elsewhere",
        doubtful_from=0.01,
        fault_from=0.1,
        form=".1%",
        meaning="Share of queries that occur verbatim or almost verbatim in a collection given with --against.",
        advice="Remove them, or do not evaluate systems that were trained on that collection.",
    ),
}
