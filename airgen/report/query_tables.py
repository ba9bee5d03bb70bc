"""The tables of queries in a report: all of them with their filters, and the systems on each."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from airgen.display.study import Column, Table, shown
from airgen.report.page_table import Filter, Link, PageColumn, Picture, page_table

Row = Mapping[str, Any]

_OUTCOMES = {"kept": ("kept", "good"), "dropped": ("dropped", "bad"), "pending": ("not yet controlled", "")}
_LENGTHS = {"lt5": "under 5", "lt10": "under 10", "10to20": "10 to 20", "ge20": "20 or more"}
_ATTRIBUTES = {"type": "Type", "length": "Words", "information": "Information", "style": "Style"}
_DIFFICULTIES = ("hard", "medium", "easy")  # each covers a third of the possible scores
_MOST_POSITIVES = 5  # more values are merged into one choice
RELEVANT, NOT_RELEVANT, UNLABELLED = "●×·"
"""The label of a passage among the top hits of a system."""


def called(attribute: str, value: Any) -> str:
    """Return how the value of a query's attribute is called on the pages."""
    if attribute == "answered":
        return "without an answer" if value == "no" else "answered"
    return _LENGTHS.get(value, str(value)) if attribute == "length" else str(value)


def _outcome(value: str) -> tuple[str, str]:
    """Return how an outcome is called, and its colour."""
    return _OUTCOMES.get(value, (value, ""))


def tags_of(life: Row) -> list[tuple[str, str, str]]:
    """Return what stands below a query on its page: text, colour and explanation of each tag."""
    tags = [(*_outcome(life["outcome"]), "Outcome")]
    if life["split"]:
        tags.append((life["split"], "", "Split"))
    for name, value in life["attributes"].items():
        if isinstance(value, str) and value:
            words = called(name, value) + (" words" if name == "length" else "")
            tags.append((words, "", _ATTRIBUTES.get(name, name.replace("_", " "))))
    return tags


def asked_of(attributes: Row) -> str:
    """Return what a query was asked to be: `question, under 10 words`."""
    asked = [name for name in ("type", "length", "information") if attributes.get(name)]
    return ", ".join(called(name, attributes[name]) + (" words" if name == "length" else "") for name in asked)


def is_positive(label: Row) -> bool:
    """Return whether a label makes its passage relevant; before there is a label, whether the decision does."""
    if label["label"] is None:
        return label.get("decision") in ("keep_query", "add_positive")
    return bool(label["label"] > 0)


def queries_table(key: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return all queries, with what they can be chosen by.

    Args:
        key: The dataset's, of which the addresses of its pages are made.
        rows: Each query with id, text, outcome and why, and with what is known of split, labels, score and attributes.

    Returns:
        The table of a page. A column in which every cell would be empty is left out.
    """

    def attribute(name: str, row: Row) -> Any:
        return row["attributes"].get(name)

    def words(name: str, row: Row) -> str | None:
        return called(name, value) if (value := attribute(name, row)) not in (None, "") else None

    def wide(title: str, value: Callable[[Row], Any], width: int, form: str = "", hint: str = "") -> PageColumn:
        return PageColumn(title, value, form, left=not form, width=width, wide=True, hint=hint)

    optional = [
        wide("Type", partial(words, "type"), 104),
        wide("Words", partial(words, "length"), 112),
        wide("Style", partial(words, "style"), 120),
        wide("Split", lambda row: row["split"] or None, 64),
        wide("Pos.", lambda row: row["positives"], 64, ",", "Documents that are relevant"),
        wide("Neg.", lambda row: row["negatives"], 64, ",", "Documents that are labelled not relevant"),
        wide("Searches", lambda row: row.get("count"), 88, ",", "How often people searched for it"),
        wide("Score", lambda row: row["score"], 80, ".3f", "Mean score of the systems (low: difficult)"),
    ]
    known_columns = [column for column in optional if any(column.value(row) is not None for row in rows)]
    figures = [column for column in known_columns if column.title in ("Score", "Searches")]

    def below(row: Row) -> str:
        return " · ".join(
            f"{column.title.lower()} {shown(column.value(row), column.form, column.missing)}" for column in figures
        )

    columns: list[Column] = [
        PageColumn(
            "Query",
            lambda row: row["text"] or f"no query: {row['id']}",
            left=True,
            role="main",
            link=Link((key, "query"), lambda row: row["id"]),
            below=below if figures else None,
        ),
        *known_columns,
    ]
    if any(row["outcome"] != "kept" for row in rows):
        columns.append(
            PageColumn(
                "Outcome",
                _outcome_text,
                left=True,
                role="outcome",
                width=184,
                sort=lambda row: f"{row['outcome']} {row['why']}",
                picture=Picture("tag", _outcome_tag),
                remark=lambda row: row["why"] if row["outcome"] != "kept" else "",
            )
        )
    known = [name for name in _ATTRIBUTES if any(name in row["attributes"] for row in rows)]
    known += sorted({name for row in rows for name in row["attributes"]} - set(known))
    filters = [
        Filter("outcome", "Outcome", lambda row: row["outcome"], lambda value: _outcome(value)[0], tuple(_OUTCOMES)),
        Filter("why", "Why", lambda row: row["why"], fewest=1),
        *(
            Filter(
                name,
                _ATTRIBUTES.get(name, name.replace("_", " ").capitalize()),
                partial(_chosen, attribute, name),
                partial(called, name),
                tuple(_LENGTHS) if name == "length" else (),
            )
            for name in known
        ),
        Filter("split", "Split", lambda row: row["split"]),
        Filter("difficulty", "Difficulty", _difficulty, order=_DIFFICULTIES),
        Filter("positives", "Positives", _positives),
    ]
    return page_table("Queries", Table(rows, columns), opens=True, filters=filters)


def _chosen(attribute: Callable[[str, Row], Any], name: str, row: Row) -> str | None:
    return None if (value := attribute(name, row)) is None else str(value)


def _reason(row: Row) -> str:
    """Return why a query is not kept, without the part of the pipeline that said so."""
    _, colon, rest = row["why"].partition(": ")
    return str(rest if colon else row["why"])


def _outcome_text(row: Row) -> str:
    words, _ = _outcome(row["outcome"])
    return words if row["outcome"] == "kept" or not row["why"] else f"{words}: {_reason(row)}"


def _outcome_tag(row: Row) -> list[str] | None:
    """Return the tag of an outcome; None for a query that is kept: most are, and only the others stand out."""
    return None if row["outcome"] == "kept" else [*_outcome(row["outcome"]), _reason(row)]


def _difficulty(row: Row) -> str | None:
    if row["score"] is None:
        return None
    return _DIFFICULTIES[min(len(_DIFFICULTIES) - 1, int(row["score"] * len(_DIFFICULTIES)))]


def _positives(row: Row) -> str | None:
    if row["positives"] is None:
        return None
    return f"{_MOST_POSITIVES + 1} or more" if row["positives"] > _MOST_POSITIVES else str(row["positives"])


def systems_on_query(ranked: Sequence[Row], labels: Sequence[Row], headline: str) -> dict[str, Any] | None:
    """Return what each system found for a query; None without systems.

    Args:
        ranked: The systems, best first: name, score, `top` (ids of the first hits), `ranks` of labelled passages.
        labels: The labels of the query.
        headline: Name of the score.

    Returns:
        The table of a page, whose rows are the systems in this order. The page explains each square of the strips with
        the title of its passage, which would otherwise be written once for each system.
    """
    if not ranked:
        return None
    signs = {
        row["id"]: RELEVANT if is_positive(row) else NOT_RELEVANT if row["label"] == 0 else UNLABELLED for row in labels
    }
    relevant = [id_ for id_, sign in signs.items() if sign == RELEVANT]

    def first(row: Row) -> int | None:
        return min((row["ranks"][id_] for id_ in relevant if id_ in row["ranks"]), default=None)

    def strip(row: Row) -> str:
        return "".join(signs.get(id_, UNLABELLED) for id_ in row["top"])

    columns = [
        PageColumn("System", lambda row: row["name"], role="name"),
        Column(headline, lambda row: row["score"] and round(row["score"], 4), ".3f"),
        PageColumn(f"First {RELEVANT}", first, ",", hint="Rank of the first relevant document"),
        PageColumn("First ten", strip, left=True, picture=Picture("strip", lambda row: None)),
    ]
    return page_table("Systems on this query", Table(ranked, columns), stack="always")
