"""Systems from outside: a search service over HTTP, and air-benchmark's Retriever and Reranker classes.

Their answers are untrusted. Ids that the corpus does not hold and repeated hits are left out and counted. An answer
that cannot be understood, a time-out, or a score that is not a number ends in an error that names the query.
"""

from __future__ import annotations

import math
import urllib.parse
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from airgen.errors import DatasetError, UsageError
from airgen.evaluation.result import without_secrets
from airgen.registry import resolve
from airgen.retrievers.base import Corpus
from airgen.retrievers.http_client import HttpFailure, request_json
from airgen.settings import secret
from airgen.settings.base import KEY, SPEED, Settings

__all__ = ["HttpSystem", "checked_results", "find_class", "load_class", "search_http", "search_python"]

Results = dict[str, dict[str, float]]


class HttpSystem(Settings):
    """A search service. Paths are keys joined by dots; `hits_path` leads to the list, the others start at a hit.

    Without `score_path` the order of the hits is taken. `api_key_env` names the environment variable of the key.
    """

    url: str = Field(pattern=r"^https?://")
    query_field: str = "query"
    hits_path: str = "hits"
    id_path: str = "id"
    score_path: str | None = "score"
    size_field: str | None = "k"
    method: Literal["GET", "POST"] = "POST"
    body: dict[str, Any] = Field(default={})
    api_key_env: Annotated[str | None, SPEED, KEY] = None
    timeout_seconds: Annotated[float, SPEED] = Field(default=30.0, gt=0)
    concurrency: Annotated[int, SPEED] = Field(default=4, ge=1, le=256)


def search_http(
    options: HttpSystem, queries: Mapping[str, str], known: set[str], k: int
) -> tuple[Results, Counter[str]]:
    """Send every query to the service. Returns {query id: {passage id: score}} and counted oddities.

    An empty query is not sent and has no hits. Raises DatasetError for an answer that cannot be understood, a
    time-out, or a status other than 2xx.
    """
    odd: Counter[str] = Counter()

    def hits_of(item: tuple[str, str]) -> tuple[str, list[tuple[str, float]]]:
        query_id, text = item
        return query_id, (_ask(options, query_id, text, k) if text.strip() else [])

    with ThreadPoolExecutor(options.concurrency) as pool:
        answers = list(pool.map(hits_of, queries.items()))
    results = {}
    for query_id, hits in answers:
        kept: dict[str, float] = {}
        for passage, score in hits:
            if passage not in known:
                odd["unknown_passages"] += 1
            elif passage in kept:
                odd["repeated_hits"] += 1
            elif len(kept) < k:
                kept[passage] = score
        odd["empty_queries"] += not queries[query_id].strip()
        results[query_id] = kept
    return results, +odd


def _ask(options: HttpSystem, query_id: str, text: str, k: int) -> list[tuple[str, float]]:
    where = f"{without_secrets(options.url)}: query {query_id!r}"
    fields = {**options.body, options.query_field: text}
    if options.size_field:
        fields[options.size_field] = k
    url = options.url
    if options.method == "GET":
        url += ("&" if "?" in url else "?") + urllib.parse.urlencode(fields)
    body = fields if options.method == "POST" else None
    try:
        value = request_json(url, body, api_key=secret(options.api_key_env), timeout=options.timeout_seconds)
    except HttpFailure as failure:
        raise DatasetError(f"{where}: the service {failure}") from None
    hits = _follow(value, options.hits_path, where, "hits_path")
    if not isinstance(hits, list):
        raise DatasetError(f"{where}: hits_path {options.hits_path!r} leads to {type(hits).__name__}, not to a list")
    found = []
    for rank, hit in enumerate(hits):
        passage = hit if isinstance(hit, str | int) else _follow(hit, options.id_path, where, "id_path")
        score: object = -float(rank)
        if options.score_path and not isinstance(hit, str | int):
            score = _follow(hit, options.score_path, where, "score_path")
        found.append((str(passage), _number(score, where)))
    return found


def _follow(value: Any, path: str, where: str, setting: str) -> Any:
    for key in path.split(".") if path else []:
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            has = ", ".join(sorted(map(str, value))[:8]) if isinstance(value, dict) else type(value).__name__
            raise DatasetError(f"{where}: {setting} {path!r}: no {key!r} in the answer (it has: {has})")
    return value


def _number(score: object, where: str) -> float:
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
        sound = {str(key): _number(score, f"{where}: query {query_id!r}") for key, score in hits.items()}
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
