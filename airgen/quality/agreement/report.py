"""The report of `airgen agree`: what was compared, every figure with its interval, and what the figures cannot say.

report.as_dict()             # JSON: no NaN, an undefined figure is null
report.markdown()            # for people
report.write(folder)         # agreement.json, agreement.md and three charts
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airgen.evaluation.result import without_nan, write_json
from airgen.quality.agreement.bias import Circularity, LexicalOverlap, RankGain, Saturation, family_gains
from airgen.quality.agreement.rankings import Correlation, RankAgreement, Resamplings, Side
from airgen.quality.judge.agreement_figures import Interval
from airgen.text.display import figure, markdown_table, md, p_value


@dataclass(frozen=True)
class Variant:
    """One way of making the generated side: its agreement, and its mean positives (or sum of gains) a query."""

    name: str
    agreement: RankAgreement
    positives: float


@dataclass(frozen=True, slots=True)
class Competitor:
    """The human ranking by another collection instead of the generated one, over the systems that both have."""

    name: str
    correlation: Correlation


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """One system's ranks by people, by the generated labels, and (`alone`) by labels made without the shared models."""

    system: str
    without: tuple[str, ...]
    human: float
    generated: float
    alone: float


@dataclass(frozen=True)
class AgreementReport:
    """Everything that `airgen agree` found on one collection. `variants` begins with the complete dataset."""

    collection: str
    pipeline: str
    sources: str
    measure: str
    human: Side
    generated: Side
    weakened: Sequence[str]
    families: Mapping[str, str]
    variants: Sequence[Variant]
    reliability: Mapping[str, float]
    ceiling: Resamplings
    resamplings: Resamplings
    competitors: Sequence[Competitor]
    gains: Sequence[RankGain]
    saturation: Mapping[str, Saturation]
    overlap: Mapping[str, LexicalOverlap]
    circularity: Circularity
    leave_one_out: Sequence[LeaveOneOut] = ()
    notes: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values; NaN is None."""
        found = {
            "collection": self.collection,
            "pipeline": self.pipeline,
            "sources": self.sources,
            "measure": self.measure,
            "queries": {"human": self.human.queries, "generated": self.generated.queries},
            "scores": {
                "human": self.human.by_name,
                "generated": self.generated.of(self.human.names).by_name,
            },
            "weakened": self.weakened,
            "families": self.families,
            "variants": self.variants,
            "split_half": self.reliability,
            "same_size_human": {"queries": self.ceiling.queries, "mean": self.ceiling.mean},
            "resamplings": {
                **asdict(self.resamplings),
                "mean": self.resamplings.mean,
                "mean_p": self.resamplings.mean_p,
            },
            "competitors": self.competitors,
            "rank_gains": [{**asdict(one), "gain": one.gain} for one in self.gains],
            "family_gains": {name: gain for name, (_, gain) in family_gains(self.gains).items()},
            "saturation": self.saturation,
            "lexical_overlap": self.overlap,
            "circularity": self.circularity,
            "leave_one_out": self.leave_one_out,
            "notes": self.notes,
        }
        plain: dict[str, Any] = without_nan(found)
        return plain

    def write(self, folder: Path) -> None:
        """Write `agreement.json`, `agreement.md` and three charts into a folder."""
        from airgen.evaluation.charts import save_svg
        from airgen.quality.agreement import charts

        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "agreement.json", self.as_dict())
        (folder / "agreement.md").write_text(self.markdown(), encoding="utf-8", errors="backslashreplace")
        generated, name = self.generated.of(self.human.names), self.collection
        drawings = {
            "ranks": charts.ranks_chart(self.gains, title=f"{name}: ranks of {len(self.gains)} systems"),
            "scores": charts.scores_chart(
                self.human, generated, self.families, measure=self.measure,
                title=f"{name}: scores on both sides, with 95 % intervals over queries",
            ),
            "resamplings": charts.resamplings_chart(
                self.resamplings, self.ceiling, self.variants[0].agreement.all.spearman.value,
                title=f"{name}: {len(self.resamplings.values)} draws of generated queries",
            ),
        }  # fmt: skip
        for stem, chart in drawings.items():
            save_svg(chart, folder / f"{stem}.svg")

    def markdown(self) -> str:
        """The report for people; text from outside is escaped."""
        parts = [
            f"# {md(self.collection)}: does {md(self.pipeline)} rank systems as people do?",
            f"{len(self.human.names)} systems by {md(self.measure)}; {self.human.queries} human queries, "
            f"{self.generated.queries} generated from {_SOURCES.get(self.sources, md(self.sources))}. "
            "Intervals are 95 % bootstrap intervals over the queries of both sides. Resampling only lowers a rank "
            "correlation, so an interval can lie below its value. "
            f"Weakened on purpose: {', '.join(map(md, self.weakened)) or 'none'}.",
            *(f"> {md(note)}" for note in self.notes),
            "## Agreement\n\n" + self._variants(),
            "## For comparison\n\n" + self._comparisons(),
            "## Scores (the paper's Table 5)\n\n" + self._scores(),
            "## Over-rated families\n\n" + self._families(),
            "## Difficulty and copied words\n\n" + self._sides(),
            "## Circularity\n\n" + self._circularity(),
            "Charts: [ranks](ranks.svg), [scores](scores.svg), [draws of queries](resamplings.svg).",
        ]
        return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"

    def _variants(self) -> str:
        header = ["labels", "queries", "positives a query", "Spearman", "p", "Kendall", "Spearman without the weakened"]
        header.append("Spearman of the best third")
        rows = []
        for one in self.variants:
            every, pairs = one.agreement.all, one.agreement.pairs
            strong, top = one.agreement.strong, one.agreement.top
            rows.append(
                [
                    md(one.name), str(one.agreement.queries), _figure(one.positives), _interval(every.spearman),
                    p_value(every.p), _interval(every.kendall), _interval(strong.spearman) if strong else "–",
                    _interval(top.spearman) if top else "–",
                    f"{pairs.same} of {pairs.separated}", str(pairs.contradicted),
                ]
            )  # fmt: skip
        return markdown_table([*header, "separated pairs in order", "contradicted"], rows) + (
            f"\nSeparated pairs, of all {self.variants[0].agreement.pairs.pairs}: the difference is significant on the "
            "human side (Fisher's randomisation test, Holm's correction, .05). Contradicted: it is significant on the "
            "generated side in the opposite order.\n"
        )

    def _comparisons(self) -> str:
        rows = [[f"split halves of the {name} queries", _figure(value), ""] for name, value in self.reliability.items()]
        rows.append([f"{self.ceiling.queries} human queries against the others", _figure(self.ceiling.mean), ""])
        low, high = _span(self.resamplings.values)
        drawn = f"{len(self.resamplings.values)} draws of {self.resamplings.queries} generated queries (Figure 3)"
        mean_p = p_value(self.resamplings.mean_p)
        rows.append([drawn, _figure(self.resamplings.mean), f"{low} to {high}, mean p {mean_p}"])
        rows += [
            [
                f"another collection's human ranking: {md(one.name)} ({one.correlation.systems} systems)",
                _figure(one.correlation.spearman.value),
                _bounds(one.correlation.spearman),
            ]
            for one in self.competitors
        ]
        return markdown_table(["Spearman of", "value", ""], rows)

    def _scores(self) -> str:
        human, generated = self.human.by_name, self.generated.by_name
        rows = [
            [
                md(gain.system) + (" (weakened)" if gain.system in self.weakened else ""), md(gain.family),
                f"{human[gain.system]:.4f}", f"{generated[gain.system]:.4f}", f"{gain.human:g}", f"{gain.generated:g}",
                f"{gain.gain:+g}",
            ]
            for gain in self.gains
        ]  # fmt: skip
        return markdown_table(["system", "family", "human", "generated", "human rank", "generated rank", "gain"], rows)

    def _families(self) -> str:
        rows = [
            [md(name), str(count), f"{gain:+.1f}"] for name, (count, gain) in family_gains(self.gains).items()
        ]  # fmt: skip
        return markdown_table(["family", "systems", "mean rank gain"], rows)

    def _sides(self) -> str:
        rows = []
        for side, one in self.saturation.items():
            words = self.overlap.get(side)
            rows.append(
                [
                    md(side), f"{one.median:.3f}", f"{one.solved:.0%}", f"{one.failed:.0%}",
                    figure(words.mean, ".0%") if words else "–", figure(words.whole, ".0%") if words else "–",
                ]
            )  # fmt: skip
        header = ["queries", "median system", "solved by most systems", "solved by none", "stems in the positive"]
        return markdown_table([*header, "all stems in the positive"], rows)

    def _circularity(self) -> str:
        found = self.circularity
        if not found.involved:
            lines = ["No system under test shares a model with quality control."]
        else:
            shared = ", ".join(f"{md(name)} ({md(', '.join(own))})" for name, own in sorted(found.involved.items()))
            lines = [
                f"Systems that share a model with recall or votes: {shared}.",
                f"Their mean rank gain is {_figure(found.gain, '+.1f')}, that of the others "
                f"{_figure(found.others, '+.1f')}; a random group of that size gains as much with "
                f"p = {_figure(found.p, '.3f')}.",
            ]
        if self.leave_one_out:
            rows = [
                [md(one.system), md(", ".join(one.without)), f"{one.human:g}", f"{one.generated:g}", f"{one.alone:g}"]
                for one in self.leave_one_out
            ]
            table = markdown_table(["system", "control without", "human rank", "generated rank", "left out"], rows)
            lines.append(f"Ranks by labels that were made without the models of the system:\n\n{table}")
        return "\n\n".join(lines)


_SOURCES = {"positives": "documents with a human positive label", "any": "any documents"}


def _interval(found: Interval) -> str:
    return "undefined" if math.isnan(found.value) else f"{found.value:.2f} {_bounds(found)}".strip()


def _bounds(found: Interval) -> str:
    return "" if math.isnan(found.low) else f"[{found.low:.2f}, {found.high:.2f}]"


def _figure(value: float, form: str = ".2f") -> str:
    return figure(value, form, "undefined")


def _span(values: Sequence[float]) -> tuple[str, str]:
    known = [value for value in values if not math.isnan(value)]
    return (_figure(min(known)), _figure(max(known))) if known else ("undefined", "undefined")
