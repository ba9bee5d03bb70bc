"""Use the user's own search as a system: a function, a llama-index or LangChain retriever, or an existing run.

    {name: site, kind: python, version: ...}         # what `airgen.components.user_functions.named` knows

A function takes (queries, k) and returns a list with the hits of each query. A function whose first parameter is
`query`, `text` or `question`, or that has no other parameter, is called with a single query. A hit is a passage id,
(id, score), or an object with an id; {id: score} holds all hits of a query. FAISS's pair of arrays, (distances,
indices), is understood too. The first hit of a list is the best, and scores may be distances. A parameter `filters`
receives the filter of each query, and `filter` the filter of the single query.

A Retriever for the air-benchmark package is called with ({passage id: {"text": ...}}, {query id: text}), and returns
{query id: {passage id: score}}. It is recognised by its parameter names, `corpus` and `queries`.

Results are untrusted: anything malformed, such as a score that is not a number, raises an error that names the query.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from airgen.components.registry import resolve
from airgen.components.user_functions import foreign, parameters, required, takes
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.returned_hits import Best, Hits, Results, ReturnedHits, hits_of, paired_arrays, shown_query
from airgen.retrievers.passages import Passages
from airgen.settings.user_function import OwnSettings
from airgen.tables.cells import finite_number
from airgen.tables.choose_columns import list_columns
from airgen.tables.objects import rows_of

Filters = Mapping[str, Mapping[str, Any]]

MOST_HITS = "hits_at_most_for_a_query"
"""The note of a search that returns fewer hits than requested."""

FAILED = "queries without hits, because the search failed"
"""How the note of failed queries begins; the first reason follows."""
_MOST_FAILED = 0.2  # share of queries, of which at least one may fail, before the system counts as failed

_ONE = frozenset({"query", "text", "question", "q", "query_text", "query_str"})
_IDS = ("_id", "id", "id_", "doc_id", "docid", "document_id", "passage_id", "node_id", "ref_doc_id", "key")
_PLACES = ("source", "url", "path", "file_path", "file_name")  # in the metadata of a hit
_SCORES = ("score", "_score", "similarity", "relevance_score")


class _Raised(DatasetError):
    """An error of the user's code, rather than of what it returned."""


class OwnSystem(OwnSettings):
    """Settings of a function, retriever or run from Python: `kind: python`.

    Attributes:
        best: Which score is best (`airgen.evaluation.returned_hits.Best`).
    """

    best: Best = "auto"


def finite_score(score: object, where: str) -> float:
    """Convert a score to a number. Raises DatasetError for anything but a finite number."""
    if (number := finite_number(score)) is None:
        raise DatasetError(f"{where}: score {short(score)} is not a finite number")
    return number


def short(value: object) -> str:
    """Return a short `repr` of an external value on one line. Its own `repr` may fail, as for a number of 5,000
    digits."""
    try:
        words = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001
        return f"of type {type(value).__name__}"
    return words if len(words) <= 60 else f"{words[:60]}..."


def is_search(value: Any) -> bool:
    """Return whether an object can search: a function, or a retriever from llama-index, LangChain or another
    library."""
    return any(callable(getattr(value, name, None)) for name in ("retrieve", "invoke", "search")) or callable(value)


def takes_corpus(value: Any) -> bool:
    """Return whether an object is called with the whole corpus and the queries, like an air-benchmark Retriever."""
    return callable(value) and required(value)[:2] == ["corpus", "queries"]


@dataclass(frozen=True)
class OwnSearch:
    """A user's search over `corpus`. `where` prefixes its errors, and `returned` finds the passages of its hits."""

    own: Any
    returned: ReturnedHits
    where: str
    corpus: Passages

    @cached_property
    def _function(self) -> tuple[Callable[..., Any], bool]:
        """Return the function to call, and whether it takes one query at a time."""
        for name in ("retrieve", "invoke"):
            if callable(method := getattr(self.own, name, None)):
                return method, True
        function = search if callable(search := getattr(self.own, "search", None)) else self.own
        needed = required(function)
        first = needed[0] if needed else "queries"
        alone = (
            first in _ONE or (len(needed) == 1 and not first.endswith("s")) or _hint(function, first) in (str, "str")
        )
        return function, alone

    def search(
        self, queries: Mapping[str, str], k: int, filters: Filters | None = None
    ) -> tuple[Results, Counter[str]]:
        """Search all queries.

        Args:
            queries: Texts by query id.
            k: Maximum number of hits per query.
            filters: Filters by query id.

        Returns:
            {query id: {passage id: score}}, and the counts of hits that were left out.

        Raises:
            DatasetError: A result has an unexpected form, none of the hits is in the dataset, or the search failed for
                more than a fifth of the queries. Fewer failing queries have no hits, and are counted with a reason.
        """
        failures: list[str] = []
        answers = self._answers(queries, k, filters or {}, failures)
        places = [f"{self.where}: {shown_query(key, text)}" for key, text in queries.items()]
        listed = {key: _hits(hits, at) for key, hits, at in zip(queries, answers, places, strict=True)}
        results, counts = self.returned.results(queries, listed, k)
        most = max(map(len, results.values()), default=0)
        if self.returned.unknown and not most:
            raise DatasetError(
                f"{self.where}: none of its {counts['unknown_passages']:,} hits, such as "
                f"{self.returned.unknown[1][:100]!r}, is in the dataset: {self.returned.advice}",
                code="unknown_passages",
                where=self.where,
            )
        if most and most < min(k, len(self.corpus)):
            counts[MOST_HITS] = most
        if failures:
            counts[f"{FAILED} ({failures[0]})"] = len(failures)
        return results, counts

    def _answers(self, queries: Mapping[str, str], k: int, filters: Filters, failures: list[str]) -> Sequence[Any]:
        if takes_corpus(self.own):
            return self._with_corpus(queries)
        function, alone = self._function
        if alone:
            return self._one_by_one(
                queries,
                lambda key, text: self._search_one(function, key, text, k=k, wanted=filters.get(key)),
                failures,
            )
        try:
            return self._search_all(function, queries, k, filters)
        except _Raised:
            if len(queries) < 2:
                raise

        def single(key: str, text: str) -> Any:
            return self._search_all(function, {key: text}, k, filters)[0]

        return self._one_by_one(queries, single, failures)

    def _one_by_one(
        self, queries: Mapping[str, str], search: Callable[[str, str], Any], failures: list[str]
    ) -> list[Any]:
        """Return the hits of each query, none for one that fails. Raises the first error if too many fail."""
        answers: list[Any] = []
        first: _Raised | None = None
        for key, text in queries.items():
            try:
                answers.append(search(key, text))
            except _Raised as error:
                first = first or error
                failures.append(str(error))
                if len(failures) > max(1, int(_MOST_FAILED * len(queries))) or len(failures) == len(queries):
                    raise first from None
                answers.append([])
        return answers

    def _search_all(
        self, function: Callable[..., Any], queries: Mapping[str, str], k: int, filters: Filters
    ) -> Sequence[Any]:
        options: dict[str, Any] = {}
        if takes(function, "filters"):
            options["filters"] = [filters.get(key) for key in queries]
        texts = list(queries.values())
        takes_k = len(required(function)) > 1 or _positional(function) > 1
        call = partial(function, texts, k, **options) if takes_k else partial(function, texts, **options)
        answer = foreign(call, self.where, _Raised)
        answer = answer.tolist() if hasattr(answer, "tolist") else answer
        if (pair := paired_arrays(answer, ndim=2)) is not None and len(pair[0]) == len(queries):
            return [hits_of(scores, ids) for scores, ids in zip(*pair, strict=True)]
        if not isinstance(answer, list | tuple) or len(answer) != len(queries):
            size = f" of {len(answer)}" if isinstance(answer, list | tuple) else ""
            raise DatasetError(
                f"{self.where}: the answer is a {type(answer).__name__}{size}, but a list with the hits of each of the "
                f"{len(queries)} queries is needed (a function of one query names its parameter `query`)"
            )
        return answer

    def _with_corpus(self, queries: Mapping[str, str]) -> Sequence[Any]:
        answer = foreign(partial(self.own, self._texts, dict(queries)), self.where, DatasetError)
        if not isinstance(answer, Mapping) or not all(isinstance(hits, Mapping) for hits in answer.values()):
            raise DatasetError(f"{self.where}: {{query id: {{passage id: score}}}} is needed, not {short(answer)}")
        if other := sorted(map(str, answer.keys() - queries.keys())):
            raise DatasetError(f"{self.where}: it returned hits for an unknown query {other[0][:100]!r}")
        return [answer.get(key, {}) for key in queries]

    @cached_property
    def _texts(self) -> dict[str, dict[str, str]]:
        return {id_: {"text": self.corpus.full_text(place)} for place, id_ in enumerate(self.corpus.ids)}

    def _search_one(
        self, function: Callable[..., Any], key: str, text: str, *, k: int, wanted: Mapping[str, Any] | None
    ) -> Any:
        options: dict[str, Any] = {"filter": wanted} if takes(function, "filter") else {}
        if takes(function, "k"):
            options["k"] = k
        call = partial(function, text, **options)
        if "k" not in options and len(required(function)) > 1:
            call = partial(function, text, k, **options)
        return foreign(call, f"{self.where}: {shown_query(key, text)}", _Raised)


def _positional(function: Callable[..., Any]) -> int:
    """Return the number of positional arguments to pass: two if the second is the number of hits."""
    known = list(parameters(function) or {})
    return 2 if len(known) > 1 and known[1] in ("k", "top_k", "topk", "n", "limit", "size") else 1


def _hint(function: Callable[..., Any], name: str) -> Any:
    return getattr(function, "__annotations__", {}).get(name)


def _hits(hits: Any, place: str) -> Hits:
    """Return the hits of a query. Raises DatasetError for anything else."""
    wanted = "a list of passage ids, of (passage id, score), or {passage id: score}"
    if (pair := paired_arrays(hits, ndim=1)) is not None:
        hits = hits_of(*pair)
    hits = _of_table(_of_answer(hits))
    if isinstance(hits, str | bytes) or not isinstance(hits, Iterable):
        raise DatasetError(f"{place}: {wanted} is needed, not {short(hits)}")
    listed = []
    for rank, hit in enumerate(hits.items() if isinstance(hits, Mapping) else hits):
        score: object = None
        if isinstance(hit, list | tuple):
            if len(hit) != 2:
                raise DatasetError(f"{place}: {wanted} is needed, not {short(hits)}")
            hit, score = hit
        candidates = _candidates(hit)
        if not candidates:
            embeds = isinstance(hit, float) or hasattr(hit, "dtype")
            hint = "; a number is no id (for an embedding function, pass airgen.Dense(function))" if embeds else ""
            hint = f"; call the id `id` (there are: {list_columns(list(map(str, hit)))})" if _is_row(hit) else hint
            raise DatasetError(f"{place}: {wanted} is needed, not {short(hits)}{hint}")
        if score is None:
            score = next((value for name in _SCORES if (value := _part(hit, name)) is not None), None)
        listed.append((candidates, -float(rank) if score is None else finite_score(score, place)))
    return listed


def _of_answer(hits: Any) -> Any:
    """Return the hits in an engine's whole answer: the list under `hits` of Elasticsearch, Meilisearch and others, or
    Chroma's lists of ids and distances."""
    if not isinstance(hits, Mapping):
        return hits
    inner = hits.get("hits")
    inner = inner.get("hits") if isinstance(inner, Mapping) else inner
    if isinstance(inner, list):
        return inner
    ids, distances = hits.get("ids"), hits.get("distances")
    if not isinstance(ids, list):
        return hits
    if len(ids) == 1 and isinstance(ids[0], list):  # of a single query
        ids, distances = ids[0], distances[0] if distances else None
    return list(zip(ids, distances, strict=True)) if distances else ids


def _is_row(hit: Any) -> bool:
    return isinstance(hit, Mapping) and bool(hit) and not isinstance(next(iter(hit.values())), Mapping)


def _of_table(hits: Any) -> Any:
    """Return the rows of a data frame, or the pairs of a series: {id: score}, if it has scores, or else the ids."""
    package, kind = type(hits).__module__.partition(".")[0], type(hits).__name__
    if kind == "DataFrame" and package in ("pandas", "polars"):
        return list(rows_of(hits))
    if package == "pandas" and kind == "Series":
        return dict(zip(hits.index.tolist(), hits.tolist(), strict=True)) if hits.dtype.kind == "f" else hits.tolist()
    return hits.to_list() if package == "polars" and kind == "Series" else hits


def _candidates(hit: Any) -> list[str]:
    """Return possible passage ids in a hit, most likely first."""
    if isinstance(hit, str | int) and not isinstance(hit, bool):
        return [str(hit)]
    if hasattr(hit, "dtype") and hasattr(hit, "item"):  # a number of numpy or torch
        return _candidates(hit.item()) if getattr(hit, "ndim", 0) == 0 else []
    inner = _part(hit, "node") or hit
    metadata = _part(inner, "metadata") or {}
    values = [_part(inner, name) for name in _IDS]
    values += [metadata.get(name) for name in (*_IDS, *_PLACES)] if isinstance(metadata, Mapping) else []
    return list(
        dict.fromkeys(str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool))
    )


def _part(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    return None if isinstance(value, str | int | float) else getattr(value, name, None)


def check_search(search: Any, name: str) -> None:
    """Raise UsageError if an object cannot be used for searching."""
    if inspect.isclass(search):
        raise UsageError(f"{name}: {search.__name__} is a class: pass an object of it, {search.__name__}(...)")
    if callable(getattr(search, "as_retriever", None)) and not callable(getattr(search, "retrieve", None)):
        raise UsageError(f"{name} is a {type(search).__name__}: pass its retriever, .as_retriever(...)")
    if not is_search(search):
        raise UsageError(
            f"{name}: a {type(search).__name__} is not a system: give the name of a system, a mapping with its `kind`, "
            "a run {query id: {passage id: score}}, a function of (queries, k), an embedder with encode(texts), a "
            "retriever"
        )


def is_retriever_class(value: Any) -> bool:
    """Return whether a value is a class like air-benchmark's Retriever, whose objects are called with corpus and
    queries."""
    return inspect.isclass(value) and required(value.__call__)[1:3] == ["corpus", "queries"]


def load_function(target: str, settings: Mapping[str, Any], folder: Path | None = None) -> Callable[..., object]:
    """Load the function at `module:search` with its settings, or an instance of the Retriever class at `module:Class`.

    Raises UsageError if it cannot be called with the settings.
    """
    value = resolve("retriever", target, folder)
    if is_retriever_class(value):
        retriever: Callable[..., object] = foreign(partial(value, **settings), f"retriever {target}", UsageError)
        return retriever
    try:
        inspect.signature(value).bind(["a query"], 10, **settings)
    except TypeError as error:
        raise UsageError(f"{target}: {error}: it must take (queries, k)") from error
    return partial(value, **settings)
