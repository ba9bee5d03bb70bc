"""The tables of a report's first page: the funnel, splits, costs by stage, models, and datasets side by side."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from airgen.dataset.content import FunnelStep
from airgen.display.study import Column, Table
from airgen.report.page_table import Link, PageColumn, Picture, page_table, shades
from airgen.report.system_tables import dollars

Row = Mapping[str, Any]


def reasons_text(reasons: Mapping[str, int], between: str = " ") -> str:
    """Format counted reasons, most frequent first: `9 length: too short; 2 other language`."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{count:,}{between}{reason}" for reason, count in ordered)


FUNNEL = (
    Column("Stage", lambda step: step.stage),
    Column("Entered", lambda step: step.entered, ","),
    Column("Left", lambda step: step.left, ","),
    Column("Why the others did not", lambda step: reasons_text(step.reasons) or None, left=True),
)


def funnel_table(steps: Sequence[FunnelStep]) -> dict[str, Any] | None:
    """Return what entered and left each stage, and why, or None if there are no stages."""
    return page_table("From samples to labels", Table(steps, FUNNEL)) if steps else None


def splits_table(splits: Mapping[str, Row], *, made: bool) -> dict[str, Any] | None:
    """Return queries and labels by split. If `made`, models made the dataset, so passages labelled 0 are hard
    negatives."""
    if not splits:
        return None

    def labels(name: str, split: str) -> Any:
        value = splits[split].get(name)
        return "private" if value is None else value

    def per_query(split: str) -> float | None:
        positives, queries = splits[split].get("positives"), splits[split].get("queries")
        return positives / queries if positives is not None and queries else None

    columns = [
        Column("Split", str),
        Column("Queries", partial(labels, "queries"), ","),
        Column("Positives", partial(labels, "positives"), ","),
        Column("Hard negatives" if made else "Labelled not relevant", partial(labels, "negatives"), ","),
        Column("Positives a query", per_query, ".1f"),
    ]
    return page_table("Splits", Table(list(splits), columns))


def costs_table(stages: Sequence[Row]) -> dict[str, Any] | None:
    """Return calls, tokens and US dollars by stage and model, followed by the sum, or None if there are no calls."""
    if not stages:
        return None
    names = ("calls", "failed", "prompt_tokens", "cached_tokens", "completion_tokens", "usd")
    total = {"stage": "all", "model": "", **{name: sum(row[name] for row in stages) for name in names}}
    most = max(1, *(row["prompt_tokens"] + row["completion_tokens"] for row in stages))

    def tokens(row: Row) -> float | None:
        return None if row is total else (row["prompt_tokens"] + row["completion_tokens"]) / most

    columns = [
        Column("Stage", lambda row: row["stage"].replace("_", " ")),
        Column("Model", lambda row: row["model"] or None, left=True),
        Column("Calls", lambda row: row["calls"], ","),
        Column("Failed", lambda row: row["failed"] or None, ","),
        Column("Tokens in", lambda row: row["prompt_tokens"], ","),
        Column("of them cached", lambda row: row["cached_tokens"], ","),
        Column("Tokens out", lambda row: row["completion_tokens"], ","),
        PageColumn("", lambda row: "", wide=True, picture=Picture("bar", tokens)),
        PageColumn("Cost", lambda row: dollars(row["usd"]), role="money", sort=lambda row: row["usd"]),
    ]
    return page_table("Calls, tokens and cost by stage", Table([*stages, total], columns))


def models_table(models: Sequence[Row]) -> dict[str, Any] | None:
    """Return the models with their roles and prompts, or None if there are no models."""
    if not models:
        return None

    def prompt(row: Row) -> str | None:
        return f"{row['prompt']} v{row['version']}" if row["prompt"] else row["version"] or None

    columns = [
        Column("Role", lambda row: row["role"]),
        Column("Model", lambda row: row["model"], left=True),
        Column("Prompt", prompt, left=True),
    ]
    if any(row["did"] for row in models):
        columns.append(Column("What it did", lambda row: row["did"] or None, left=True))
    return page_table("Models and prompts", Table(models, columns))


def datasets_table(datasets: Sequence[tuple[Row, Row]]) -> dict[str, Any]:
    """Return the datasets in a report, each given by its summary and its facts."""

    def labels(name: str, row: tuple[Row, Row]) -> int | None:
        values = [split[name] for split in (row[1].get("splits") or {}).values()]
        return sum(values) if values and None not in values else None

    def passages(row: tuple[Row, Row]) -> int | None:
        known: int | None = row[1].get("passages")
        count: int | None = row[0]["passages"]
        return count if known is None else known

    columns = [
        PageColumn("Dataset", lambda row: row[0]["name"], role="name", link=Link((), lambda row: row[0]["key"])),
        *(
            PageColumn(name.capitalize(), partial(lambda name, row: row[0][name] or None, name), left=True, wide=True)
            for name in ("task", "domain", "language")
        ),
        Column("Passages", passages, ","),
        Column("Queries", partial(labels, "queries"), ","),
        Column("Positives", partial(labels, "positives"), ","),
        Column("Labelled not relevant", partial(labels, "negatives"), ","),
        Column("Systems", lambda row: len({name for every in row[0]["systems"].values() for name in every}), ","),
        Column("State", lambda row: row[0]["state"], left=True),
    ]
    return page_table("Datasets", Table(datasets, columns))


def together_table(columns: Sequence[Row], systems: Sequence[Row]) -> dict[str, Any]:
    """Return each system's score on each dataset, and its mean over the datasets of a measure if it ran on all."""
    shown: list[Column] = [
        PageColumn("System", lambda row: row["name"], role="name"),
        PageColumn("Family", lambda row: row["family"], left=True, wide=True),
    ]
    headlines = [column["headline"] for column in columns]
    means = []
    for headline in dict.fromkeys(headlines):
        if headlines.count(headline) > 1 and any(row["means"][headline] is not None for row in systems):
            means.append("Mean" if len({*headlines}) == 1 else f"Mean {headline}")
            shown.append(Column(means[-1], partial(lambda name, row: row["means"][name], headline), ".4f"))
    titles = [
        column["name"] if column["split"] == "test" else f"{column['name']} ({column['split']})" for column in columns
    ]
    for at, (title, column) in enumerate(zip(titles, columns, strict=True)):
        strength = dict(
            zip((row["name"] for row in systems), shades([row["scores"][at] for row in systems]), strict=True)
        )
        shown.append(
            PageColumn(
                title,
                partial(lambda at, row: row["scores"][at], at),
                ".4f",
                hint=f"{column['headline']}, {column['queries']:,} queries",
                picture=Picture("shade", partial(lambda strength, row: strength[row["name"]], strength)),
            )
        )
    return page_table("Systems on each dataset", Table(systems, shown), sort=f"-{[*means, *titles][0]}")


def slope_table(systems: Sequence[Row], measure: str) -> dict[str, Any]:
    """Return ranks and scores by human labels and by generated labels, as an accessible form of the slope graph."""
    columns = [
        Column("System", lambda row: row["system"]),
        Column("Family", lambda row: row["family"], left=True),
        Column("Rank by people", lambda row: row["human"], "g"),
        Column("Rank, generated", lambda row: row["generated"], "g"),
        Column("Gain", lambda row: row["human"] - row["generated"], "+.1f"),
        Column(f"{measure} by people", lambda row: row["scores"][0], ".4f"),
        Column(f"{measure}, generated", lambda row: row["scores"][1], ".4f"),
    ]
    return page_table("Ranks and scores on both sides", Table(systems, columns), sort="Rank by people")
