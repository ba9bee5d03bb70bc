"""Labels that exist already: TREC or BEIR qrels, Quepid's CSV, an OpenSearch judgment list.

    for label in read_labels(LabelFile(file="quepid.csv"), Path("quepid.csv"), "en"):
        label.query, label.document, label.level       # ("login fails", "doc-7", 3)

Quepid and OpenSearch name a query by its text, qrels by its id: whoever reads the labels looks for both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.dataset.beir import read_qrels
from airgen.errors import DatasetError
from airgen.pipeline.own.tables import find_column, kind_of, read_text, table_rows
from airgen.settings import LabelFile
from airgen.text.display import one_line

RELEVANT = 3  # the level of a relevant label where the settings map no levels: above any relevant_from
_QUERIES = ("query", "querytext", "querystring", "queryid", "qid")
_DOCUMENTS = ("docid", "documentid", "doc", "document", "corpusid", "id")
_RATINGS = ("rating", "judgment", "judgement", "score", "grade", "relevance", "label")


@dataclass(frozen=True, slots=True)
class Label:
    """One label: `query` is an id or a text, `level` 0 to 3; `where` it stands."""

    query: str
    document: str
    level: int
    where: str


def read_labels(settings: LabelFile, path: Path, language: str) -> Iterator[Label]:
    """The labels of a file, in its order; pairs without a rating are left out.

    Raises DatasetError for a file that cannot be read, a rating that is not a number, and one that `levels` lacks.
    """
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix == ".json":
        rows = _opensearch(path, language)
    elif kind_of(path) == "table" and suffix == ".csv":
        rows = _ratings(path, language)
    else:
        found = read_qrels(path).labels
        rows = ((str(path), query, document, label) for query, of in found.items() for document, label in of.items())
    for where, query, document, label in rows:
        if label is not None:
            yield Label(query, document, _level(settings, label, where), where)


_Row = tuple[str, str, str, float | None]


def _level(settings: LabelFile, label: float, where: str) -> int:
    if not settings.levels:
        return RELEVANT if label >= settings.relevant_from else 0
    if label not in settings.levels:
        known = ", ".join(f"{one:g}" for one in sorted(settings.levels))
        raise DatasetError(f"{where}: the label {label:g} is not in queries.labels.levels (it has {known})")
    return settings.levels[label]


def _ratings(path: Path, language: str) -> Iterator[_Row]:
    """Quepid's CSV: query, docid, rating; a document without a rating was not judged."""
    rows = list(table_rows(path, language))
    columns = [
        find_column(rows, "", usual, str(path), what, needed=True)
        for usual, what in ((_QUERIES, "the query"), (_DOCUMENTS, "the document's id"), (_RATINGS, "the rating"))
    ]
    for number, row in rows:
        query, document, rating = (str(row.get(column) or "").strip() for column in columns)  # type: ignore[arg-type]
        where = f"{path}:{number}"
        yield where, query, document, _number(rating, where) if rating else None


def _opensearch(path: Path, language: str) -> Iterator[_Row]:
    """An OpenSearch judgment list: [{query, ratings: [{docId, rating}]}], or an object with it as judgmentRatings."""
    try:
        value: Any = json.loads(read_text(path, language))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not JSON ({error})") from error
    while isinstance(value, dict):
        value = next((value[key] for key in ("_source", "judgmentRatings", "judgments") if key in value), None)
    if not isinstance(value, list):
        raise DatasetError(f"{path}: no judgment list of OpenSearch: it has no judgmentRatings")
    for place, one in enumerate(value):
        try:
            query = str(one["query"])
            ratings = one["ratings"]
            pairs = ratings.items() if isinstance(ratings, dict) else [(row["docId"], row["rating"]) for row in ratings]
        except (KeyError, TypeError) as error:
            raise DatasetError(f"{path}: judgment {place}: needs query and ratings of docId and rating") from error
        for document, rating in pairs:
            where = f"{path}: judgment {place}"
            yield where, query, str(document), _number(rating, where)


def _number(value: object, where: str) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise DatasetError(f"{where}: the rating {one_line(repr(value), 60)} is not a number")
    return number
