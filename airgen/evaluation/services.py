"""Systems from outside: a search service over HTTP, and air-benchmark's Retriever and Reranker classes.

What they answer is untrusted: ids that the corpus does not hold and repeated hits are left out and counted; a page
of HTML, a time-out, or a score that is no number ends in an error that says which query and what came.
"""

from __future__ import annotations

import http.client
import importlib
import json
import math
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from airgen.errors import DatasetError, UsageError
from airgen.evaluation.result import without_secrets
from airgen.evaluation.systems import HttpSystem
from airgen.retrievers.base import Corpus
from airgen.settings import secret

__all__ = ["load_class", "search_http", "search_python"]

Results = dict[str, dict[str, float]]
_LARGEST = 64 << 20  # bytes of one answer


def search_http(
    options: HttpSystem, queries: Mapping[str, str], known: set[str], k: int
) -> tuple[Results, Counter[str]]:
    """Ask the service every query. Returns {query id: {passage id: score}} and counted oddities.

    An empty query is not sent and has no hits. Raises DatasetError for an answer that cannot be understood, a
    time-out, or a status other than 2xx; UsageError where the key's variable is not set.
    """
    if options.api_key_env and not secret(options.api_key_env):
        raise UsageError(f"{without_secrets(options.url)}: the environment variable {options.api_key_env} is not set")
    odd: Counter[str] = Counter()

    def one(item: tuple[str, str]) -> tuple[str, list[tuple[str, float]]]:
        query_id, text = item
        return query_id, (_ask(options, query_id, text, k) if text.strip() else [])

    with ThreadPoolExecutor(options.concurrency) as pool:
        answers = list(pool.map(one, queries.items()))
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
    url, data = options.url, None
    if options.method == "GET":
        url += ("&" if "?" in url else "?") + urllib.parse.urlencode(fields)
    else:
        data = json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass")
    request = urllib.request.Request(url, data, {"Accept": "application/json", "Content-Type": "application/json"})
    if key := secret(options.api_key_env):
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=options.timeout_seconds) as answer:
            body = answer.read(_LARGEST + 1)
    except urllib.error.HTTPError as error:
        raise DatasetError(f"{where}: HTTP {error.code}: {_beginning(error.read(400))}") from None
    except TimeoutError:
        raise DatasetError(f"{where}: no answer within {options.timeout_seconds:g} s (timeout_seconds)") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise DatasetError(f"{where}: no answer within {options.timeout_seconds:g} s (timeout_seconds)") from None
        said = str(reason).strip() or type(reason).__name__
        raise DatasetError(f"{where}: {said}; is the service running?") from None
    if len(body) > _LARGEST:
        raise DatasetError(f"{where}: an answer of more than {_LARGEST >> 20} MB")
    try:
        value = json.loads(body)
    except ValueError:
        raise DatasetError(f"{where}: the answer is not JSON: {_beginning(body)}") from None
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


def _beginning(body: bytes) -> str:
    text = " ".join(body[:400].decode("utf-8", "replace").split())
    return repr(text[:120]) if text else "(empty)"


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
    """What a foreign class answered, kept where it is sound and counted where it is not."""
    if not isinstance(answer, Mapping):
        raise DatasetError(f"{where}: answered {type(answer).__name__}, wants {{query id: {{passage id: score}}}}")
    odd: Counter[str] = Counter()
    results: Results = {}
    for query_id, hits in answer.items():
        if str(query_id) not in queries:
            odd["unknown_queries"] += 1
            continue
        if not isinstance(hits, Mapping):
            raise DatasetError(
                f"{where}: query {query_id!r}: {type(hits).__name__} where {{passage id: score}} belongs"
            )
        sound = {str(key): _number(score, f"{where}: query {query_id!r}") for key, score in hits.items()}
        odd["unknown_passages"] += sum(key not in documents for key in sound)
        best = sorted((key for key in sound if key in documents), key=lambda key: (-sound[key], key))[:k]
        results[str(query_id)] = {key: sound[key] for key in best}
    return results, +odd


def load_class(target: str, settings: Mapping[str, Any], folder: Path | None = None) -> Any:
    """An object of `module:Class`, looked for in `folder` too. Raises UsageError where it cannot be made."""
    module, _, name = target.replace(":", ".").rpartition(".")
    paths = [str(path) for path in (folder, Path.cwd()) if path is not None and str(path) not in sys.path]
    sys.path[:0] = paths
    try:
        made = getattr(importlib.import_module(module), name)
        return made(**settings)
    except ImportError as error:
        raise UsageError(f"{target}: {error}") from error
    except AttributeError as error:
        raise UsageError(f"{target}: the module {module} has no {name!r}, or it failed: {error}") from error
    except TypeError as error:
        raise UsageError(f"{target}: {error}") from error
    finally:
        for path in paths:
            sys.path.remove(path)
