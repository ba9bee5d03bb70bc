"""Charts of a diversity report: shares of queries by attribute, and the growth of the vocabulary.

The diversity report of one or more datasets: `diversity.md`, `.json`, `.csv` and charts.

    write_diversity(Path("diversity"), [profile_dataset(BeirDataset.open(path)) for path in paths])

Shares of query types and styles are listed by dataset and split, as in AIR-Bench's Tables 3 and 10. The similarity of
corpora is shown as in BEIR's Figure 2 and AIR-Bench's Figure 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from airgen.evaluation.charts import AnyChart, chart_names, colours, dashes, label, nothing_chart, titled
from airgen.evaluation.result import without_nan, write_json
from airgen.quality.diversity.measure import Profile
from airgen.quality.diversity.vocabulary import Growth, jaccard_matrix
from airgen.settings import LENGTHS
from airgen.text.display import csv_text, distinct_names, figure, markdown_table, md


def shares_chart(columns: Mapping[str, Mapping[str, int]], values: Sequence[str], *, title: str) -> AnyChart:
    """A panel for each column of the report, {value: queries}, with a bar for each value in the order given."""
    shown = dict(zip(values, chart_names(values), strict=True))
    axis = alt.Axis(title=None, format="~%", tickCount=4)
    panels = []
    for place, (name, counts) in enumerate(columns.items()):
        shares = {value: counts.get(value, 0) / sum(counts.values()) for value in values}
        rows = [{"value": shown[value], "share": share, "text": f"{share:.1%}"} for value, share in shares.items()]
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            y=alt.Y("value:N", sort=None, axis=alt.Axis(title=None, ticks=False, domain=False, labels=place % 4 == 0))
        )
        x = alt.X("share:Q", scale=alt.Scale(domainMin=0, nice=True), axis=axis)
        bars = base.mark_bar(height=11, color="#4477aa").encode(x=x)
        texts = base.mark_text(align="left", dx=4, fontSize=10, aria=False).encode(x=x, text="text:N")
        heading = alt.TitleParams(label(name), fontSize=12, anchor="start", frame="group", offset=6)
        panels.append(alt.layer(bars, texts).properties(width=200, height=18 * len(values), title=heading))
    return titled(alt.concat(*panels, columns=4, spacing=36).resolve_scale(x="shared"), title)


def growth_chart(names: Sequence[str], growths: Sequence[Growth], *, title: str) -> AnyChart:
    """The number of different words after so many words, a line for each dataset, on logarithmic axes."""
    shown = chart_names(names)
    rows = [
        {"dataset": name, "tokens": tokens, "types": types}
        for name, growth in zip(shown, growths, strict=True)
        for tokens, types in zip(growth.tokens, growth.types, strict=True)
    ]
    if not rows:
        return nothing_chart(title)
    scale = alt.Scale(type="log", nice=True)
    chart = alt.Chart(alt.InlineData(values=rows)).mark_line(strokeWidth=2)
    chart = chart.encode(
        x=alt.X("tokens:Q", scale=scale, axis=alt.Axis(title="words (tokens)", format="~s", tickCount=6)),
        y=alt.Y("types:Q", scale=scale, axis=alt.Axis(title="different words (types)", format="~s", tickCount=6)),
        color=colours("dataset", shown), strokeDash=dashes("dataset", shown),
    )  # fmt: skip
    return titled(chart.properties(width=520, height=340), title)


_SUMMARY: dict[str, Callable[[Profile], str]] = {
    "queries": lambda profile: f"{profile.queries:,}",
    "words": lambda profile: f"{profile.query_words.mean:.1f}",
    "overlap": lambda profile: f"{profile.overlap.positives:.3f}",
    "by chance": lambda profile: f"{profile.overlap.others:.3f}",
    "original": lambda profile: figure(profile.overlap.original),
    "rewritten": lambda profile: figure(profile.overlap.rewritten),
    "near duplicates": lambda profile: f"{profile.duplicates.near:.1%}",
    "Heaps b": lambda profile: figure(profile.query_growth.exponent),
}


def write_diversity(out: Path, profiles: Sequence[Profile]) -> dict[str, Any]:
    """Write the report into `out`; returns the content of `diversity.json`. Equal datasets give equal bytes."""
    from airgen.evaluation.charts import heat_map, save_svg

    out.mkdir(parents=True, exist_ok=True)
    similarity = jaccard_matrix([profile.vocabulary for profile in profiles]) if len(profiles) > 1 else None
    value = as_dict(profiles, similarity)
    write_json(out / "diversity.json", value)
    _write(out / "diversity.csv", csv_text(["dataset", "split", "measure", "name", "value"], _long(profiles)))
    names = _names(profiles)
    drawings = {}
    for attribute in _attributes(profiles):
        columns = dict(_columns(profiles, attribute))
        values = sorted({value for counts in columns.values() for value in counts}, key=_size)
        title = f"share of queries by {attribute}"
        drawings[f"{attribute.replace(' ', '-')}.svg"] = shares_chart(columns, values, title=title)
    for part in ("query", "corpus"):
        title = f"vocabulary growth, {'queries' if part == 'query' else 'corpus'}"
        drawings[f"growth-{part}.svg"] = growth_chart(names, _growths(profiles, part), title=title)
    if similarity is not None:
        drawings["jaccard.svg"] = heat_map(names, similarity, title="weighted Jaccard similarity of the corpora")
        rows = [
            [name, *(f"{value:.6f}" for value in row)] for name, row in zip(names, similarity.tolist(), strict=True)
        ]
        _write(out / "jaccard.csv", csv_text(["dataset", *names], rows))
    for name, chart in drawings.items():
        save_svg(chart, out / name)
    _write(out / "diversity.md", _markdown(profiles, similarity, list(drawings)))
    return value


def as_dict(profiles: Sequence[Profile], similarity: NDArray[np.float64] | None = None) -> dict[str, Any]:
    """Plain values of everything."""
    shown = [field.name for field in fields(Profile) if field.name != "vocabulary"]
    found = [{name: without_nan(getattr(profile, name)) for name in shown} for profile in profiles]
    value: dict[str, Any] = {"datasets": found}
    if similarity is not None:
        value["weighted_jaccard"] = {"datasets": _names(profiles), "matrix": np.round(similarity, 6).tolist()}
    return value


def summary_rows(profiles: Sequence[Profile]) -> list[list[str]]:
    """A header, and a row for each dataset: the figures that fit a terminal."""
    named = zip(_names(profiles), profiles, strict=True)
    rows = [[name, *(cell(profile) for cell in _SUMMARY.values())] for name, profile in named]
    return [["dataset", *_SUMMARY], *rows]


def _attributes(profiles: Sequence[Profile]) -> list[str]:
    return sorted({name for profile in profiles for name in profile.shares})


def _names(profiles: Sequence[Profile]) -> list[str]:
    return distinct_names(profile.name for profile in profiles)


def _growths(profiles: Sequence[Profile], part: str) -> list[Growth]:
    return [profile.query_growth if part == "query" else profile.corpus_growth for profile in profiles]


def _columns(profiles: Sequence[Profile], attribute: str) -> list[tuple[str, dict[str, int]]]:
    """(title, {value: queries}) of each dataset and split, then of each task and split with several datasets."""
    found, tasks = [], dict[str, list[dict[str, int]]]()
    for name, profile in zip(_names(profiles), profiles, strict=True):
        for split, counts in profile.shares.get(attribute, {}).items():
            found.append((f"{name} {split}", counts))
            if profile.task:
                tasks.setdefault(f"all {profile.task} {split}", []).append(counts)
    for title, several in sorted(tasks.items()):
        if len(several) > 1:
            values = sorted({value for counts in several for value in counts})
            found.append((title, {value: sum(counts.get(value, 0) for counts in several) for value in values}))
    return found


def _shares_table(profiles: Sequence[Profile], attribute: str) -> str:
    columns = _columns(profiles, attribute)
    every = {value for _, counts in columns for value in counts}
    total = {value: sum(counts.get(value, 0) for _, counts in columns) for value in every}
    rows = []
    for value in sorted(total, key=lambda value: (-total[value], value)):
        cells = [
            f"{counts.get(value, 0):,} ({counts.get(value, 0) / sum(counts.values()):.1%})" for _, counts in columns
        ]
        rows.append([md(value), *cells])
    return markdown_table([attribute, *(md(title) for title, _ in columns)], rows)


def _size(value: str) -> tuple[int, str]:
    """Orders length classes by size, and all other values by name."""
    return (LENGTHS.index(value) if value in LENGTHS else len(LENGTHS), value)


def _long(profiles: Sequence[Profile]) -> list[list[object]]:
    """One row a figure: dataset, split (empty: all), measure, name, value."""
    rows: list[list[object]] = []
    for name, profile in zip(_names(profiles), profiles, strict=True):
        for attribute, splits in profile.shares.items():
            for split, counts in splits.items():
                rows += [[name, split, attribute, value, count] for value, count in counts.items()]
        rows += [[name, "", "length class", value, count] for value, count in profile.length_classes.items()]
        for measure in ("query_words", "passage_words", "overlap", "duplicates"):
            for part, value in asdict(getattr(profile, measure)).items():
                rows.append([name, "", measure.replace("_", " "), part, _plain(value)])
        for part in ("query", "corpus"):
            growth = _growths([profile], part)[0]
            rows += [[name, "", f"types of the {part} text after tokens", at, types]
                     for at, types in zip(growth.tokens, growth.types, strict=True)]  # fmt: skip
    return rows


def _markdown(profiles: Sequence[Profile], similarity: NDArray[np.float64] | None, drawings: Sequence[str]) -> str:
    names = [md(name) for name in _names(profiles)]
    summary = summary_rows(profiles)
    parts = [
        "# Diversity",
        markdown_table(summary[0], [[name, *row[1:]] for name, row in zip(names, summary[1:], strict=True)]),
        "Overlap: mean share of a query's stemmed words, without stop words, that its relevant passage contains. By "
        "chance: the share that another query's relevant passage contains. Original and rewritten: the overlap of "
        "rewritten queries with the passage that they were written from, before and after rewriting. Near duplicates: "
        "queries whose words have a Jaccard similarity of 0.8 or more with those of an earlier query. Heaps b: the "
        "exponent of the growth of the queries' vocabulary.",
    ]
    for attribute in _attributes(profiles):
        parts += [f"## {attribute.capitalize()}", _shares_table(profiles, attribute)]
    parts += ["## Lengths in words", _lengths_table(names, profiles), "## Vocabulary", _growth_table(names, profiles)]
    if similarity is not None:
        rows = [[name, *(f"{v:.3f}" for v in row)] for name, row in zip(names, similarity.tolist(), strict=True)]
        parts += [
            "## Weighted Jaccard similarity of the corpora",
            markdown_table(["", *names], rows),
            "The words are not stemmed and stop words are kept (BEIR, appendix F). The similarity of corpora in "
            "different languages says little.",
        ]
    parts += ["\n".join(f"![{name.removesuffix('.svg')}]({name})" for name in drawings)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _lengths_table(names: Sequence[str], profiles: Sequence[Profile]) -> str:
    classes = sorted({one for profile in profiles for one in profile.length_classes})
    rows = []
    for name, profile in zip(names, profiles, strict=True):
        asked, read = profile.query_words, profile.passage_words
        shares = [f"{profile.length_classes.get(one, 0) / profile.queries:.1%}" for one in classes]
        cells = [f"{asked.mean:.1f}", f"{asked.median:g}", f"{asked.low:.0f}–{asked.high:.0f}", *shares]
        rows.append([name, *cells, f"{read.mean:.1f}", f"{read.median:g}"])
    header = ["dataset", "mean", "median", "5–95 %", *classes, "passages: mean", "median"]
    return markdown_table(header, rows)


def _growth_table(names: Sequence[str], profiles: Sequence[Profile]) -> str:
    rows = []
    for name, profile in zip(names, profiles, strict=True):
        cells = []
        for growth in (profile.query_growth, profile.corpus_growth):
            cells += [f"{(0, *counts)[-1]:,}" for counts in (growth.tokens, growth.types)]
            cells += [figure(growth.factor, ".1f"), figure(growth.exponent)]
        rows.append([name, *cells])
    header = ["dataset", "query tokens", "types", "K", "b", "corpus tokens", "types", "K", "b"]
    return (
        markdown_table(header, rows)
        + "\ntypes = K tokens^b (Heaps' law), fitted from 100 tokens on, with the texts in file order."
    )


def _plain(value: object) -> object:
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else value


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
