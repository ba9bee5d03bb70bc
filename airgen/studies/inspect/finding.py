"""What is measured of a benchmark, from which value on it is a fault, where that limit comes from, and what to do.

    found = finding("saturation", 0.97, "the best system reaches nDCG@10 .97")
    found.state                                    # "bad": the limit is .95

Each check is one entry of `CHECKS`. A limit without a published source says so: it was set by looking at the
human-labelled collections of docs/notes/trust.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airgen.evaluation.verdict import ENOUGH, FEWEST
from airgen.studies.label_sets import ALIKE, UNLIKE
from airgen.study import shown

State = Literal["good", "look", "bad", "unknown"]
STATES: Mapping[State, str] = {"bad": "fault", "look": "look at it", "good": "good", "unknown": "not measured"}
ANY = 1e-9  # a limit that any value above 0 reaches
_OURS = "set by us, from the human-labelled collections in docs/notes/trust.md"


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One thing to look at. `look` and `bad`: the first value that is doubtful, and the first that is a fault.

    The fault lies upwards where `bad` is above `look`, else downwards. `form` formats the value. `meaning`: what the
    figure is. `advice`: what to do about a fault. `source`: where the limits come from.
    """

    title: str
    look: float
    bad: float
    form: str
    meaning: str
    advice: str
    source: str = _OURS

    def state(self, value: float) -> State:
        """What a value says; NaN says nothing."""
        if math.isnan(value):
            return "unknown"
        sign = 1 if self.bad >= self.look else -1
        if sign * value >= sign * self.bad:
            return "bad"
        return "look" if sign * value >= sign * self.look else "good"

    def shown(self, value: float) -> str:
        """The value for people."""
        return shown(value, self.form)

    @property
    def limits(self) -> str:
        """The limits for people."""
        side = "from {} on" if self.bad >= self.look else "{} or less"
        look = "above 0" if self.look == ANY else side.format(self.shown(self.look))
        return f"look {look}, fault {side.format(self.shown(self.bad))}"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. value: NaN if nothing could be measured. detail: one sentence. examples: ids."""

    name: str
    state: State
    value: float
    detail: str
    examples: tuple[str, ...] = ()

    @property
    def check(self) -> HealthCheck:
        """What was checked."""
        return CHECKS[self.name]


def finding(name: str, value: float, detail: str, examples: Sequence[str] = ()) -> Finding:
    """The finding of a value."""
    return Finding(name, CHECKS[name].state(value), float(value), detail, tuple(examples[:5]))


def share(name: str, hits: Sequence[str], total: int, more: str = "queries") -> Finding:
    """The finding of a share of `total`, with the first hits as examples."""
    return finding(name, len(hits) / (total or 1), f"{len(hits):,} of {total:,} {more}", hits)


def not_measured(name: str, why: str) -> Finding:
    """The finding of a check that could not be made."""
    return Finding(name, "unknown", math.nan, why)


def verdict(findings: Sequence[Finding]) -> str:
    """The whole in one or two sentences."""
    bad = [one.check.title.lower() for one in findings if one.state == "bad"]
    look = [one.check.title.lower() for one in findings if one.state == "look"]
    doubts = f" Look at: {', '.join(look)}." if look else ""
    if bad:
        return f"Do not rank systems with it before these are mended: {', '.join(bad)}.{doubts}"
    if look:
        return f"It can be used, with care.{doubts}"
    return "No fault was found."


CHECKS: Mapping[str, HealthCheck] = {
    "queries": HealthCheck(
        "Number of queries", ENOUGH - 1, FEWEST - 1, ".0f",
        "Queries of the split that have labels.",
        "Add queries: with few of them, chance decides which of two systems is better.",
        "Voorhees and Buckley 2002: 50 topics as a rule; Buckley and Voorhees 2000: 25 as the least",
    ),
    "dangling": HealthCheck(
        "Labels without a text", ANY, 0.01, ".1%",
        "Share of labels whose passage is not in the corpus or whose query has no text.",
        "The labels are of another version of the corpus: take the matching version, or remove these labels.",
    ),
    "no positive": HealthCheck(
        "Queries without a relevant passage", ANY, 0.05, ".1%",
        "Share of labelled queries without any label above 0. Every system scores 0 on them.",
        "Remove them, or mark them as unanswerable, so that they are measured as such.",
    ),
    "random labels": HealthCheck(
        "Labels at random", 0.2, 0.05, ".3f",
        "Mean score of the best system between that of a random order of the corpus (0) and a perfect one (1).",
        "No system finds what the labels name, so the labels have nothing to do with the texts: compare the ids of "
        "queries, passages and labels.",
    ),
    "unsolved": HealthCheck(
        "Unsolved queries", 0.15, 0.4, ".1%",
        "Share of queries for which no system has a relevant passage among its first ten.",
        "Read the examples: either they are hard, or their label is wrong. `airgen audit sample` asks a person.",
    ),
    "saturation": HealthCheck(
        "Saturation", 0.9, 0.95, ".3f",
        "Mean score of the best system. Where it is near 1, better systems cannot score better.",
        "Make the queries harder (longer needs, less wording of the passage, more similar passages in the corpus), or "
        "use another benchmark.",
    ),
    "solved by all": HealthCheck(
        "Queries solved by all", 0.5, 0.8, ".1%",
        "Share of queries for which every system has a perfect score. They say nothing about any difference.",
        "Add hard negatives or larger parts of the corpus, or remove such queries.",
    ),
    "reliability": HealthCheck(
        "Split-half reliability", 0.9, 0.7, ".3f",
        "Mean rank correlation (Spearman) of the systems between two random halves of the queries, 200 times.",
        "The ranking depends on which queries were drawn: add queries, or compare systems that differ more.",
        "Nunnally 1978, p. 245: .7 as the least, .9 for decisions",
    ),
    "label sets": HealthCheck(
        "Labels against sources alone", ALIKE, UNLIKE, ".3f",
        "Rank correlation (Spearman) of the systems by the labels with that by the document alone that each query was "
        "generated from, on the same queries.",
        "One of the two label sets is wrong for most queries: read some queries that have several positives, ask a "
        "person (`airgen audit relevance`, `airgen audit sample`), or write the dataset with the sources alone "
        "(`airgen export --without correction`).",
        "Nunnally 1978, p. 245, as for the reliability",
    ),
    "significant pairs": HealthCheck(
        "Significantly different pairs", 0.4, 0.15, ".1%",
        "Share of pairs of systems whose difference is significant (Fisher's randomisation test, Holm, .05).",
        "Add queries. A difference that is not significant here must not be reported as one.",
    ),
    "top five": HealthCheck(
        "Stability of the top five", 0.8, 0.6, ".1%",
        "How many of the top five systems remain in the top five when the queries are resampled (bootstrap).",
        "Report intervals instead of ranks within this group, or add queries.",
    ),
    "judged": HealthCheck(
        "Labelled hits", 0.3, 0.02, ".1%",
        "Share of the systems' first ten hits that have a label. Hits without one count as not relevant.",
        "`airgen audit holes` judges the hits without a label and says how much the scores change.",
    ),
    "copies of positives": HealthCheck(
        "Unlabelled copies of relevant passages", 0.01, 0.1, ".1%",
        "Share of queries with a passage in the corpus that has the same words as a relevant one, and no label.",
        "Remove the copies from the corpus, or give them the same label: a system that finds one is punished.",
    ),
    "duplicate queries": HealthCheck(
        "Near-duplicate queries", 0.05, 0.2, ".1%",
        "Share of queries whose words have a Jaccard similarity of .8 or more with those of an earlier one.",
        "Remove them: they count one need several times, and make intervals too narrow.",
    ),
    "leaks": HealthCheck(
        "Leaks between splits", ANY, 0.05, ".1%",
        "Share of this split's queries with a near duplicate in another split.",
        "Remove them from the other split, or move both into one. Otherwise, models trained there have seen the test.",
    ),
    "copied words": HealthCheck(
        "Copied words", 0.1, 0.3, ".1%",
        "Share of queries that are copied: a relevant passage or its title has a run of at least five of the query's "
        "words that makes up 80 % of it, or the title is the query.",
        "Rewrite them: string matching solves them, so they say nothing about search by meaning.",
    ),
    "overlap": HealthCheck(
        "Words shared with the relevant passage", 0.75, 0.9, ".1%",
        "Mean share of a query's different stems, without stop words, that its best relevant passage has.",
        "Rewrite the queries with other words, as people do who have not seen the passage.",
    ),
    "language": HealthCheck(
        "Queries in another language", 0.02, 0.1, ".1%",
        "Share of queries in another language or script than the corpus's.",
        "Remove them, or say that the benchmark is cross-lingual.",
    ),
    "contamination": HealthCheck(
        "Queries known from elsewhere", 0.01, 0.1, ".1%",
        "Share of queries that stand in a collection of --against, word for word or nearly.",
        "Remove them, or do not evaluate systems that were trained on that collection.",
    ),
}  # fmt: skip
