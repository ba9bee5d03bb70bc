"""The report of `airgen agree`: what was compared, every figure with its interval, and what the figures cannot say.

report.as_dict()             # JSON: no NaN, an undefined figure is null
report.markdown()            # for people
report.write(folder)         # agreement.json, agreement.md and three plots
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airgen.evaluation.result import write_json
from airgen.evaluation.tables import safe, to_markdown
from airgen.quality.agreement.bias import Circularity, LexicalOverlap, RankGain, Saturation, family_gains
from airgen.quality.agreement.charts import ranks_plot, resamplings_plot, scores_plot
from airgen.quality.agreement.rankings import Agreement, Correlation, Resamplings, Side
from airgen.quality.judge.agreement_figures import Interval

__all__ = ["AgreementReport", "Competitor", "LeaveOneOut", "Variant"]


@dataclass(frozen=True)
class Variant:
    """One way of making the generated side: its figures, and its positives (or summed gains) a query."""

    name: str
    agreement: Agreement
    positives: float


@dataclass(frozen=True, slots=True)
class Competitor:
    """Another collection's human ranking in the place of the generated one, over the systems that both have."""

    name: str
    correlation: Correlation


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """One system's rank when quality control ran without the models that it shares with it."""

    system: str
    without: tuple[str, ...]
    human: float
    generated: float
    alone: float  # its rank on the labels made without it


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
        scores = {
            side: dict(zip(one.names, one.means.tolist(), strict=True))
            for side, one in (("human", self.human), ("generated", self.generated.of(self.human.names)))
        }
        found = {
            "collection": self.collection,
            "pipeline": self.pipeline,
            "sources": self.sources,
            "measure": self.measure,
            "queries": {"human": self.human.queries, "generated": self.generated.queries},
            "scores": scores,
            "weakened": list(self.weakened),
            "families": dict(self.families),
            "variants": [asdict(one) for one in self.variants],
            "split_half": dict(self.reliability),
            "same_size_human": {"queries": self.ceiling.queries, "mean": self.ceiling.mean},
            "resamplings": {**asdict(self.resamplings), "mean": self.resamplings.mean},
            "competitors": [asdict(one) for one in self.competitors],
            "rank_gains": [{**asdict(one), "gain": one.gain} for one in self.gains],
            "family_gains": {name: gain for name, (_, gain) in family_gains(self.gains).items()},
            "saturation": {name: asdict(one) for name, one in self.saturation.items()},
            "lexical_overlap": {name: asdict(one) for name, one in self.overlap.items()},
            "circularity": asdict(self.circularity),
            "leave_one_out": [asdict(one) for one in self.leave_one_out],
            "notes": list(self.notes),
        }
        plain: dict[str, Any] = _without_nan(found)
        return plain

    def write(self, folder: Path) -> None:
        """Write the report and its plots into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "agreement.json", self.as_dict())
        generated = self.generated.of(self.human.names)
        pictures = {
            "ranks.svg": ranks_plot(self.gains, title=f"{self.collection}: ranks of {len(self.gains)} systems"),
            "scores.svg": scores_plot(
                self.human.names, self.human.means.tolist(), generated.means.tolist(), self.families,
                measure=self.measure, title=f"{self.collection}: scores on both sides",
            ),
            "resamplings.svg": resamplings_plot(
                self.resamplings, self.ceiling, self.variants[0].agreement.all.spearman.value,
                title=f"{self.collection}: {len(self.resamplings.values)} draws of generated queries",
            ),
        }  # fmt: skip
        for name, picture in {**pictures, "agreement.md": self.markdown()}.items():
            (folder / name).write_text(picture, encoding="utf-8", errors="backslashreplace")

    def markdown(self) -> str:
        """The report for people; text from outside is escaped."""
        parts = [
            f"# {safe(self.collection)}: does {safe(self.pipeline)} rank systems as people do?",
            f"{len(self.human.names)} systems by {safe(self.measure)}; {self.human.queries} human queries, "
            f"{self.generated.queries} generated from {_SOURCES.get(self.sources, safe(self.sources))}. "
            "Intervals: 95 %, "
            "queries of both sides resampled; resampling only lowers a rank correlation, so an interval lies low. "
            f"Weakened on purpose: {', '.join(map(safe, self.weakened)) or 'none'}.",
            *(f"> {safe(note)}" for note in self.notes),
            "## Agreement\n\n" + self._variants(),
            "## Beside what\n\n" + self._beside(),
            "## Scores (the paper's Table 5)\n\n" + self._scores(),
            "## Who is over-rated\n\n" + self._families(),
            "## How hard, and how literal\n\n" + self._sides(),
            "## Circularity\n\n" + self._circularity(),
            "Plots: [ranks](ranks.svg), [scores](scores.svg), [draws of queries](resamplings.svg).",
        ]
        return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"

    def _variants(self) -> str:
        header = ["labels", "queries", "positives a query", "Spearman", "p", "Kendall", "Spearman without the weakened"]
        rows = []
        for one in self.variants:
            every, pairs = one.agreement.all, one.agreement.pairs
            strong = one.agreement.strong
            rows.append(
                [
                    safe(one.name), str(one.agreement.queries), _figure(one.positives), _interval(every.spearman),
                    _p(every.p), _interval(every.kendall), _interval(strong.spearman) if strong else "–",
                    f"{pairs.same} of {pairs.separated}", str(pairs.contradicted),
                ]
            )  # fmt: skip
        return to_markdown([*header, "separated pairs in order", "contradicted"], rows) + (
            "\nSeparated: pairs that the human side tells apart (Fisher's randomisation test, Holm, .05), of "
            f"{self.variants[0].agreement.pairs.pairs}; contradicted: told apart the other way round.\n"
        )

    def _beside(self) -> str:
        rows = [[f"split halves of the {name} queries", _figure(value), ""] for name, value in self.reliability.items()]
        rows.append([f"{self.ceiling.queries} human queries against the others", _figure(self.ceiling.mean), ""])
        low, high = _span(self.resamplings.values)
        drawn = f"{len(self.resamplings.values)} draws of {self.resamplings.queries} generated queries (Figure 3)"
        rows.append([drawn, _figure(self.resamplings.mean), f"{low} to {high}"])
        rows += [
            [
                f"another collection's human ranking: {safe(one.name)} ({one.correlation.systems} systems)",
                _figure(one.correlation.spearman.value),
                _bounds(one.correlation.spearman),
            ]
            for one in self.competitors
        ]
        return to_markdown(["Spearman of", "value", ""], rows)

    def _scores(self) -> str:
        generated = dict(zip(self.generated.names, self.generated.means.tolist(), strict=True))
        human = dict(zip(self.human.names, self.human.means.tolist(), strict=True))
        rows = [
            [
                safe(gain.system) + (" (weakened)" if gain.system in self.weakened else ""), safe(gain.family),
                f"{human[gain.system]:.4f}", f"{generated[gain.system]:.4f}", f"{gain.human:g}", f"{gain.generated:g}",
                f"{gain.gain:+g}",
            ]
            for gain in self.gains
        ]  # fmt: skip
        return to_markdown(["system", "family", "human", "generated", "human rank", "generated rank", "gain"], rows)

    def _families(self) -> str:
        rows = [
            [safe(name), str(count), f"{gain:+.1f}"] for name, (count, gain) in family_gains(self.gains).items()
        ]  # fmt: skip
        return to_markdown(["family", "systems", "mean rank gain"], rows)

    def _sides(self) -> str:
        rows = []
        for side, one in self.saturation.items():
            words = self.overlap.get(side)
            rows.append(
                [
                    safe(side), f"{one.median:.3f}", f"{one.solved:.0%}", f"{one.failed:.0%}",
                    _share(words.mean) if words else "–", _share(words.whole) if words else "–",
                ]
            )  # fmt: skip
        header = ["queries", "median system", "solved by most systems", "by none", "stems in the positive"]
        return to_markdown([*header, "all stems there"], rows)

    def _circularity(self) -> str:
        found = self.circularity
        if not found.involved:
            lines = ["No system under test shares a model with quality control."]
        else:
            shared = ", ".join(f"{safe(name)} ({safe(', '.join(of))})" for name, of in sorted(found.involved.items()))
            lines = [
                f"Systems that share a model with recall or votes: {shared}.",
                f"Their mean rank gain: {_figure(found.gain, '+.1f')}; the others': {_figure(found.others, '+.1f')}; "
                f"a random group of that size gains as much with p = {_figure(found.p, '.3f')}.",
            ]
        if self.leave_one_out:
            rows = [
                [
                    safe(one.system),
                    safe(", ".join(one.without)),
                    *(f"{r:g}" for r in (one.human, one.generated, one.alone)),
                ]
                for one in self.leave_one_out
            ]
            table = to_markdown(["system", "control without", "human rank", "generated rank", "left out"], rows)
            lines.append(f"Pools and votes without the system under test:\n\n{table}")
        return "\n\n".join(lines)


_SOURCES = {"positives": "documents with a human positive label", "any": "any documents"}


def _interval(found: Interval) -> str:
    return "undefined" if math.isnan(found.value) else f"{found.value:.2f} {_bounds(found)}".strip()


def _bounds(found: Interval) -> str:
    return "" if math.isnan(found.low) else f"[{found.low:.2f}, {found.high:.2f}]"


def _figure(value: float, form: str = ".2f") -> str:
    return "undefined" if math.isnan(value) else format(value, form)


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.0%}"


def _p(value: float) -> str:
    return "undefined" if math.isnan(value) else "<.0001" if value < 0.0001 else f"{value:.4f}"


def _span(values: Sequence[float]) -> tuple[str, str]:
    known = [value for value in values if not math.isnan(value)]
    return (_figure(min(known)), _figure(max(known))) if known else ("undefined", "undefined")


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {name: _without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return value
