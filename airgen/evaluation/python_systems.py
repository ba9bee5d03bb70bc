"""air-benchmark's Retriever and Reranker classes as systems.

Their answers are untrusted. Ids that the corpus does not hold are left out and counted. An answer that cannot be
understood, or a score that is not a number, ends in an error that names the query.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airgen.errors import DatasetError, UsageError
from airgen.registry import resolve
from airgen.retrievers.base import Corpus

Results = dict[str, dict[str, float]]


def finite_score(score: object, where: str) -> float:
    """The score as a number. Raises DatasetError for what is not a finite number."""
    if isinstance(score, bool) or not hasattr(score, "__float__") or not math.isfinite(float(score)):
        raise DatasetError(f"{where}: score {score!r} is not a finite number")
    return float(score)


def search_python(
    retriever: Any, queries: Mapping[str, str], corpus: Corpus, k: int, where: str
) -> tuple[Results, Counter[str]]:
    """Call an air-benchmark Retriever: `retriever(corpus={id: {"text"}}, queries={id: text})`.

    Title and text are joined, as AIR-Bench's corpora have no titles. Raises DatasetError where the answer is not
    {query id: {passage id: score}}.
    """
    documents = {key: {"text": corpus.full_text(place)} for place, key in enumerate(corpus.ids)}
    answer = retriever(corpus=documents, queries=dict(queries))
    return checked_results(answer, queries, documents, k, where)


def checked_results(
    answer: object, queries: Mapping[str, str], documents: Mapping[str, object], k: int, where: str
) -> tuple[Results, Counter[str]]:
    """The usable part of a foreign class's answer, and a count of what is left out."""
    if not isinstance(answer, Mapping):
        kind = type(answer).__name__
        raise DatasetError(f"{where}: the answer is a {kind}, but {{query id: {{passage id: score}}}} is needed")
    odd: Counter[str] = Counter()
    results: Results = {}
    for query_id, hits in answer.items():
        if str(query_id) not in queries:
            odd["unknown_queries"] += 1
            continue
        if not isinstance(hits, Mapping):
            kind = type(hits).__name__
            raise DatasetError(f"{where}: query {query_id!r}: {{passage id: score}} is needed, not a {kind}")
        sound = {str(key): finite_score(score, f"{where}: query {query_id!r}") for key, score in hits.items()}
        odd["unknown_passages"] += sum(key not in documents for key in sound)
        best = sorted((key for key in sound if key in documents), key=lambda key: (-sound[key], key))[:k]
        results[str(query_id)] = {key: sound[key] for key in best}
    return results, +odd


def find_class(target: str, folder: Path | None = None) -> Any:
    """The class at `module:Class` or `module.Class`. Raises UsageError where it cannot be imported."""
    return resolve("retriever", ":".join(target.replace(":", ".").rsplit(".", 1)), folder)


def load_class(target: str, settings: Mapping[str, Any], folder: Path | None = None) -> Any:
    """An object of `module:Class`, made with these settings. Raises UsageError where it cannot be made."""
    try:
        return find_class(target, folder)(**settings)
    except TypeError as error:
        raise UsageError(f"{target}: {error}") from error
