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
    """The result of a check: its state, value (NaN if not measured), a sentence of detail, and ids of examples."""

    name: str
    state: State
    value: float
    detail: str
    examples: tuple[str, ...] = ()

    @property
    def check(self) -> HealthCheck:
        """The check."""
        return CHECKS[self.name]


def finding(name: str, value: float, detail: str, examples: Sequence[str] = ()) -> Finding:
    """Return the finding for a value."""
    return Finding(name, CHECKS[name].state(value), float(value), detail, tuple(examples[:5]))


def share(name: str, hits: Sequence[str], total: int, more: str = "queries") -> Finding:
    """Return the finding for a share of `total`, with the first hits as examples."""
    return finding(name, len(hits) / (total or 1), f"{len(hits):,} of {total:,} {more}", hits)


def not_measured(name: str, why: str) -> Finding:
    """Return the finding for a check that could not be made."""
    return Finding(name, "unknown", math.nan, why)


def verdict(findings: Sequence[Finding]) -> str:
    """Summarise the findings in one or two sentences."""
    bad = [one.check.title.lower() for one in findings if one.state == "bad"]
    look = [one.check.title.lower() for one in findings if one.state == "look"]
    doubts = f" Check: {', '.join(look)}." if look else ""
    if bad:
        return f"Do not rank systems with it until these problems are fixed: {', '.join(bad)}.{doubts}"
    if look:
        return f"Use it with care.{doubts}"
    return "No problems were found."


CHECKS: Mapping[str, HealthCheck] = {
    "queries": HealthCheck(
        "Number of queries", ENOUGH - 1, FEWEST - 1, ".0f",
        "Queries of the split that have labels.",
        "Add queries. With few queries, chance decides which of two systems is better.",
        "Voorhees and Buckley 2002: usually 50 topics; Buckley and Voorhees 2000: at least 25",
    ),
    "dangling": HealthCheck(
        "Labels without a text", ANY, 0.01, ".1%",
        "Share of labels whose passage is not in the corpus or whose query has no text.",
        "The labels belong to another version of the corpus. Use the matching version, or remove these labels.",
    ),
    "no positive": HealthCheck(
        "Queries without a relevant passage", ANY, 0.05, ".1%",
        "Share of labelled queries without any label above 0. Every system scores 0 on them.",
        "Remove them, or mark them as unanswerable so that they are evaluated as such.",
    ),
    "random labels": HealthCheck(
        "Random labels", 0.2, 0.05, ".3f",
        "Mean score of the best system, scaled from a random ranking of the corpus (0) to a perfect one (1).",
        "No system retrieves the labelled passages, so the labels do not fit the texts. Compare the ids of "
        "queries, passages and labels.",
    ),
    "unsolved": HealthCheck(
        "Unsolved queries", 0.15, 0.4, ".1%",
        "Share of queries for which no system has a relevant passage in its top ten.",
        "Read the examples. Either they are hard, or their labels are wrong. `airgen audit sample` lets people decide.",
    ),
    "saturation": HealthCheck(
        "Saturation", 0.9, 0.95, ".3f",
        "Mean score of the best system. If it is close to 1, better systems cannot score higher.",
        "Make the queries harder (more specific needs, fewer words of the passage, more similar passages in the "
        "corpus), or use another benchmark.",
    ),
    "solved by all": HealthCheck(
        "Queries solved by all", 0.5, 0.8, ".1%",
        "Share of queries for which every system has a perfect score. Such queries do not separate systems.",
        "Add hard negatives or larger parts of the corpus, or remove such queries.",
    ),
    "reliability": HealthCheck(
        "Split-half reliability", 0.9, 0.7, ".3f",
        "Mean rank correlation (Spearman) of the systems between random halves of the queries, over 200 splits.",
        "The ranking depends on the choice of queries. Add queries, or compare systems that differ more.",
        "Nunnally 1978, p. 245: at least .7, and .9 for decisions",
    ),
    "label sets": HealthCheck(
        "Labels against sources alone", ALIKE, UNLIKE, ".3f",
        "Rank correlation (Spearman) of the systems between all labels and the source documents alone, on the same "
        "queries.",
        "One of the two label sets is wrong for many queries. Read some queries with several positives, ask a "
        "person (`airgen audit relevance`, `airgen audit sample`), or export the dataset with the sources alone "
        "(`airgen export --without correction`).",
        "Nunnally 1978, p. 245, as for reliability",
    ),
    "significant pairs": HealthCheck(
        "Significantly different pairs", 0.4, 0.15, ".1%",
        "Share of pairs of systems whose difference is significant (Fisher's randomisation test, Holm, .05).",
        "Add queries. Do not report differences that are not significant.",
    ),
    "top five": HealthCheck(
        "Stability of the top five", 0.8, 0.6, ".1%",
        "How many of the top five systems remain in the top five when the queries are resampled (bootstrap).",
        "Report intervals instead of ranks within this group, or add queries.",
    ),
    "judged": HealthCheck(
        "Labelled hits", 0.3, 0.02, ".1%",
        "Share of the systems' top ten hits that have a label. Unlabelled hits count as not relevant.",
        "`airgen audit holes` judges the unlabelled hits and reports how much the scores change.",
    ),
    "copies of positives": HealthCheck(
        "Unlabelled copies of relevant passages", 0.01, 0.1, ".1%",
        "Share of queries with an unlabelled passage that has the same words as a relevant one.",
        "Remove the copies from the corpus, or give them the same label. Systems that retrieve a copy are penalised.",
    ),
    "duplicate queries": HealthCheck(
        "Near-duplicate queries", 0.05, 0.2, ".1%",
        "Share of queries whose words have a Jaccard similarity of at least .8 with those of an earlier query.",
        "Remove them. They count the same need several times, which makes intervals too narrow.",
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
        "Rewrite them. String matching solves them, so they do not test semantic search.",
    ),
    "overlap": HealthCheck(
        "Words shared with the relevant passage", 0.75, 0.9, ".1%",
        "Mean share of a query's distinct stems, without stop words, that occur in its best relevant passage.",
        "Rewrite the queries in other words, like people who have not seen the passage.",
    ),
    "language": HealthCheck(
        "Queries in another language", 0.02, 0.1, ".1%",
        "Share of queries in a language or script other than the corpus's.",
        "Remove them, or declare the benchmark cross-lingual.",
    ),
    "contamination": HealthCheck(
        "Queries known from elsewhere", 0.01, 0.1, ".1%",
        "Share of queries that occur verbatim or almost verbatim in a collection given with --against.",
        "Remove them, or do not evaluate systems that were trained on that collection.",
    ),
}  # fmt: skip
