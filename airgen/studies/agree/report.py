"""The report of `airgen study agree`: every figure with its interval, and charts (the last is the paper's Figure 3)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import altair as alt

from airgen.display.study import Column, P, Shown, Study, Table, columns, shown, write_lines
from airgen.evaluation import charts
from airgen.safety.escaping import figure, md, p_value
from airgen.storage.json_values import plain, write_json
from airgen.studies.agree.rankings import (
    Circularity,
    Correlation,
    RankAgreement,
    RankGain,
    Resamplings,
    Side,
    family_gains,
)
from airgen.studies.agree.wordings import WordingAgreement


def ranks_chart(
    gains: Sequence[RankGain], *, title: str, palette: Sequence[str] = charts.COLOURS, width: int = 340
) -> Any:
    """Draw a slope graph with human ranks on the left and generated ranks on the right, one colour per family, best on
    top.

    Systems with equal ranks are drawn below each other, so that names do not overlap. `width` is the distance between
    the sides in pixels.
    """
    if not gains:
        return charts.nothing_chart(title)
    shown = dict(zip([gain.system for gain in gains], charts.chart_names([gain.system for gain in gains]), strict=True))
    places = {}
    for side in ("human", "generated"):  # rows from 0, without ties
        order = sorted(gains, key=lambda gain: (getattr(gain, side), gain.system))
        places[side] = {gain.system: place for place, gain in enumerate(order)}
    rows = [
        {
            "system": shown[gain.system],
            "family": charts.label(gain.family) or "other",
            "left": places["human"][gain.system],
            "right": places["generated"][gain.system],
            "human": f"{gain.human:g}",
            "generated": f"{gain.generated:g}",
            "width": 1 + min(abs(gain.gain), 8) / 4,
        }
        for gain in gains
    ]
    scale = alt.Scale(domain=[-1.2, len(gains) - 0.5], reverse=True, nice=False, zero=False)
    base = alt.Chart(alt.InlineData(values=rows))
    left_y, right_y = (alt.Y(f"{side}:Q", scale=scale, axis=None) for side in ("left", "right"))
    families = list(dict.fromkeys(str(row["family"]) for row in rows))
    lines = base.mark_rule().encode(
        x=alt.value(0),
        x2=alt.value(width),
        y=left_y,
        y2="right:Q",
        color=charts.colours("family", families, palette),
        strokeDash=charts.dashes("family", families),
        strokeWidth=alt.StrokeWidth("width:Q", scale=None),
    )
    layers = [lines]
    ends: list[tuple[str, str, alt.Y, Literal["left", "right"], int, int]] = [
        ("human labels", "human", left_y, "right", -6, -34),
        ("generated", "generated", right_y, "left", width + 6, width + 34),
    ]
    for head, side, y, align, rank_at, name_at in ends:
        # The rank and the name are separate texts, because a right-to-left name would move the rank to its other side.
        texts = base.mark_text(align=align, fontSize=11).encode(y=y)
        heading = alt.Chart(alt.InlineData(values=[{"head": head, "place": -1}]))
        layers += [
            texts.encode(x=alt.value(rank_at), text=f"{side}:N"),
            texts.encode(x=alt.value(name_at), text="system:N"),
            heading.mark_text(align=align, fontSize=11, fontWeight="bold").encode(
                x=alt.value(rank_at), y=alt.Y("place:Q", scale=scale, axis=None), text="head:N"
            ),
        ]
    return charts.titled(alt.layer(*layers).properties(width=width, height=18 * (len(gains) + 1)), title)


def resamplings_chart(draws: Resamplings, ceiling: Resamplings, whole: float, *, title: str) -> Any:
    """Draw the paper's Figure 3: a dot for each draw of generated queries, and lines for all generated queries and for
    human queries.
    """
    levels = {"all generated queries": whole, f"{ceiling.queries} human queries": ceiling.mean}
    values = [value for value in (*draws.values, *levels.values()) if not math.isnan(value)]
    if not values:
        return charts.nothing_chart(title)
    y = alt.Y(
        "rho:Q",
        scale=alt.Scale(domain=[min(0.0, *values), 1.0], nice=True),
        axis=alt.Axis(title="Spearman's rho", tickCount=6),
    )
    x = alt.X(
        "draw:Q",
        scale=alt.Scale(domain=[0, len(draws.values) + 1], nice=False),
        axis=alt.Axis(title=f"draws of {draws.queries} generated queries", labels=False, ticks=False, grid=False),
    )
    rows = [{"line": name, "rho": value} for name, value in levels.items() if not math.isnan(value)]
    lines = alt.Chart(alt.InlineData(values=rows)).mark_rule(strokeWidth=2)
    rows = [{"draw": at, "rho": value} for at, value in enumerate(draws.values, 1) if not math.isnan(value)]
    dots = alt.Chart(alt.InlineData(values=rows)).mark_circle(size=56, opacity=1, color="black")
    layers = alt.layer(lines.encode(y=y, color=charts.colours("line", list(levels))), dots.encode(x=x, y=y))
    return charts.titled(layers.properties(width=560, height=240), title)


@dataclass(frozen=True)
class Variant:
    """A variant of the generated side: its agreement, and its mean number of positives (or sum of gains) per query."""

    name: str
    agreement: RankAgreement
    positives: float


@dataclass(frozen=True)
class AgreementReport(Shown):
    """The results of `airgen study agree` on one collection. `variants` begins with the complete dataset.

    `competitors` use the human ranking on another collection in place of the generated one, over common systems.
    `ablated` is {what the generated dataset lacks: {system: score}}.
    """

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
    competitors: Mapping[str, Correlation]
    gains: Sequence[RankGain]
    circularity: Circularity
    ablated: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    wordings: Sequence[WordingAgreement] = ()
    classes: Sequence[WordingAgreement] = ()
    people_overlap: float = math.nan
    estimated_overlap: float = math.nan
    estimated_people_overlap: float = math.nan
    notes: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, with None for NaN."""
        names = (
            "collection",
            "pipeline",
            "sources",
            "measure",
            "weakened",
            "families",
            "variants",
            "competitors",
            "circularity",
            "wordings",
            "classes",
            "people_overlap",
            "estimated_overlap",
            "estimated_people_overlap",
            "notes",
        )
        values = {name: getattr(self, name) for name in names} | {
            "queries": {"human": self.human.queries, "generated": self.generated.queries},
            "scores": {
                "human": self.human.by_name,
                "generated": self.generated.of(self.human.names).by_name,
                **self.ablated,
            },
            "split_half": self.reliability,
            "same_size_human": {"queries": self.ceiling.queries, "mean": self.ceiling.mean},
            "resamplings": {**asdict(self.resamplings), "mean": self.resamplings.mean},
            "rank_gains": [{**asdict(rank_gain), "gain": rank_gain.gain} for rank_gain in self.gains],
            "family_gains": {name: gain for name, (_, gain) in family_gains(self.gains).items()},
        }
        plain_values: dict[str, Any] = plain(values)
        return plain_values

    def write(self, folder: Path) -> None:
        """Write `agreement.json`, `agreement.md` and two charts to a folder."""
        write_json(folder / "agreement.json", self)
        write_lines(folder / "agreement.md", self.markdown())
        name = self.collection
        drawings = {
            "ranks": ranks_chart(self.gains, title=f"{name}: ranks of {len(self.gains)} systems"),
            "resamplings": resamplings_chart(
                self.resamplings,
                self.ceiling,
                self.variants[0].agreement.all.spearman.value,
                title=f"{name}: {len(self.resamplings.values)} draws of generated queries",
            ),
        }
        for stem, chart in drawings.items():
            charts.save_svg(chart, folder / f"{stem}.svg")

    def markdown(self) -> str:
        """Return the report as Markdown."""
        families = [(name, *figures) for name, figures in family_gains(self.gains).items()]
        human, generated = self.human.by_name, self.generated.by_name
        scores = [
            (
                gain.system + " (weakened)" * (gain.system in self.weakened),
                gain,
                human[gain.system],
                generated[gain.system],
            )
            for gain in self.gains
        ]
        ablated = [
            Column(name, lambda row, of=of: of.get(row[1].system), ".4f")  # type: ignore[misc]
            for name, of in self.ablated.items()
        ]
        return Study(
            f"{self.collection}: does {self.pipeline} rank systems like people?",
            [
                f"{len(self.human.names)} systems by {md(self.measure)}; {self.human.queries} human queries, "
                f"{self.generated.queries} generated from {_SOURCES.get(self.sources, md(self.sources))}. "
                "Intervals are 95 % bootstrap intervals over the queries of both sides. Resampling only lowers a rank "
                "correlation, so an interval can lie below its value. "
                f"Weakened on purpose: {', '.join(map(md, self.weakened)) or 'none'}.",
                *(f"> {md(note)}" for note in self.notes),
                "## Agreement",
                Table(self.variants, _VARIANTS),
                f"Separated pairs, of all {self.variants[0].agreement.pairs.pairs}: the difference is significant on "
                "the human side (Fisher's randomisation test, Holm's correction, .05). Contradicted: it is significant "
                "on the generated side in the opposite order.",
                *self._wordings(),
                "## For comparison",
                Table(self._comparisons(), columns("Spearman of", "value", "")),
                "## Scores (the paper's Table 5)",
                Table(scores, [*_SCORES[:4], *ablated, *_SCORES[4:]]),
                "## Over-rated families",
                Table(families, [*columns("family", "systems"), Column("mean rank gain", lambda row: row[2], "+.1f")]),
                "## Circularity",
                *self._circularity(),
                "Charts: [ranks](ranks.svg), [draws of queries](resamplings.svg).",
            ],
        ).markdown()

    def _comparisons(self) -> list[tuple[str, str, str]]:
        draws, known = self.resamplings, [value for value in self.resamplings.values if not math.isnan(value)]
        reach = f"{_figure(min(known, default=math.nan))} to {_figure(max(known, default=math.nan))}"
        drawn = f"{len(draws.values)} draws of {draws.queries} generated queries (Figure 3)"
        return [
            *((f"split halves of the {name} queries", _figure(value), "") for name, value in self.reliability.items()),
            (f"{self.ceiling.queries} human queries against the others", _figure(self.ceiling.mean), ""),
            (drawn, _figure(draws.mean), f"{reach}, mean p {p_value(draws.mean_p)}"),
            *(
                (
                    f"another collection's human ranking: {name} ({correlation.systems} systems)",
                    *shown(correlation.spearman, ".2f").partition(" ")[::2],
                )
                for name, correlation in self.competitors.items()
            ),
        ]

    def _wordings(self) -> list[str | Table]:
        """Return the agreement by wording and by overlap, if the needs have several wordings."""
        if not self.wordings:
            return []
        return [
            "## By wording",
            f"The overlap is the share of a query's content words that its passage has. That of people's queries is "
            f"{_figure(self.people_overlap)}; for some of these, whose overlap is "
            f"{_figure(self.estimated_people_overlap)}, `airgen run --like` would estimate "
            f"{_figure(self.estimated_overlap)} without their labels. Matched: of each need, the wording whose overlap "
            "is nearest to the mean of a few human queries, compared with the others; the median and the middle 95 % "
            "of the draws.",
            Table(self.wordings, (*_WORDINGS[:2], _WORDED, *_WORDINGS[2:])),
            "By overlap, the wordings of all needs together:",
            Table(self.classes, _WORDINGS),
        ]

    def _circularity(self) -> list[str]:
        circularity = self.circularity
        if not circularity.involved:
            return ["No system under test shares a model with quality control."]
        shared = ", ".join(f"{md(name)} ({md(', '.join(own))})" for name, own in sorted(circularity.involved.items()))
        return [
            f"Systems that share a model with recall or votes: {shared}.",
            f"Their mean rank gain is {_figure(circularity.gain, '+.1f')}, that of the others "
            f"{_figure(circularity.others, '+.1f')}; a random group of that size gains as much with "
            f"p = {_figure(circularity.p, '.3f')}.",
        ]


def _figure(value: float, form: str = ".2f") -> str:
    return figure(value, form, "undefined")


_SOURCES = {"positives": "documents with a human positive label", "any": "any documents"}
_VARIANTS = (
    Column("labels", lambda variant: variant.name),
    Column("queries", lambda variant: variant.agreement.queries),
    Column("positives a query", lambda variant: variant.positives, ".2f"),
    Column("Spearman", lambda variant: variant.agreement.all.spearman, ".2f"),
    Column("p", lambda variant: variant.agreement.all.p, P),
    Column("Kendall", lambda variant: variant.agreement.all.kendall, ".2f"),
    Column(
        "Spearman without the weakened",
        lambda variant: variant.agreement.strong and variant.agreement.strong.spearman,
        ".2f",
    ),
    Column(
        "Spearman of the best third", lambda variant: variant.agreement.top and variant.agreement.top.spearman, ".2f"
    ),
    Column(
        "separated pairs in order",
        lambda variant: f"{variant.agreement.pairs.same} of {variant.agreement.pairs.separated}",
    ),
    Column("contradicted", lambda variant: variant.agreement.pairs.contradicted),
)
_WORDINGS = (
    Column("wording or overlap", lambda row: row.choice),
    Column("queries", lambda row: row.queries),
    Column("mean overlap", lambda row: row.overlap, ".2f"),
    Column("Spearman", lambda row: row.spearman, ".2f"),
)
_WORDED = Column("of them in this wording (the others: plain)", lambda row: row.worded)
_SCORES = (
    Column("system", lambda row: row[0]),
    Column("family", lambda row: row[1].family, left=True),
    Column("human", lambda row: row[2], ".4f"),
    Column("generated", lambda row: row[3], ".4f"),
    Column("human rank", lambda row: row[1].human, "g"),
    Column("generated rank", lambda row: row[1].generated, "g"),
    Column("gain", lambda row: row[1].gain, "+g"),
)
