"""A search service over HTTP as a system.

Responses are untrusted: anything malformed, such as a score that is not a number, raises an error that names the query.
"""

import difflib
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import regex
from pydantic import Field, field_validator, model_validator

from airgen.errors import AirgenError, DatasetError
from airgen.evaluation.dataset_split import IdLookup
from airgen.evaluation.document_level import Level, PageLookup
from airgen.evaluation.result import without_secrets
from airgen.evaluation.returned_hits import Best, Hits, Results, ReturnedHits, shown_query
from airgen.evaluation.user_search import MOST_HITS, finite_score
from airgen.net.http import HttpFailure, JsonClient
from airgen.retrievers.protocols import Embedder
from airgen.settings.base import KEY, SPEED
from airgen.settings.http import Address, Headers, ServiceAccess
from airgen.settings.spec import Part, build

_LONGEST_ID = 4096  # characters
_CHECK_HITS, _CHECK_SECONDS = 10, 10.0  # of the query that a check sends
_REFUSED = frozenset({400, 413, 416, 422})  # statuses of services that are asked for too many hits
_USUAL_LIMITS = (100, 10)  # of hits; fewer than the last one say nothing
_PAGES = ("{offset}", "{page}")
_PLACEHOLDERS = ("{query}", "{k}", "{vector}", "{filter}", *_PAGES)


class HttpSystem(ServiceAccess):
    """Settings of a search service.

    Attributes:
        body: The JSON request with placeholders, or the parameters for GET. `{filter}` is the query's filter, an
            object. With `{offset}` (the number of hits so far) or `{page}` (from 1), further pages are requested until
            there are enough hits. If neither body nor url contains `{query}` or `{vector}`, `query_field` and
            `size_field` are added.
        hits_path: Dotted path to the list of hits. A hit may be just an id.
        id_path, score_path: Dotted paths within a hit. Without `score_path`, hits are ranked by their order.
        best: Which score is best (`airgen.evaluation.returned_hits.Best`).
        oversample: Factor by which to request more hits.
        id_pattern: Regular expression whose first group is the passage's id in the service's id ("^(.+)#" for a service
            that stores chunks). The best hit of a passage counts.
        unknown_ids: How to treat hits that are not in the dataset. `skip` leaves them out and counts them, and raises
            an error only if no hit at all is in the dataset. `error` raises an error at the first one.
    """

    url: Address
    method: Literal["GET", "POST"] = "POST"
    body: dict[str, Any] = Field(default={})
    query_field: str = "query"
    size_field: str | None = "k"
    hits_path: str = "hits"
    id_path: str = "id"
    score_path: str | None = "score"
    best: Best = "auto"
    id_pattern: str | None = None
    unknown_ids: Literal["error", "skip"] = "skip"
    oversample: int = Field(default=1, ge=1, le=1000)
    embedder: Annotated[Any, Part("embedder")] | None = None
    headers: Annotated[Headers, KEY] = Field(default={})  # a header can choose what is searched
    timeout_seconds: Annotated[float, SPEED] = Field(default=30.0, gt=0)
    retries: Annotated[int, SPEED] = Field(default=3, ge=0, le=100)
    concurrency: Annotated[int, SPEED] = Field(default=4, ge=1, le=256)

    @field_validator("id_pattern")
    @classmethod
    def _one_group(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                groups = regex.compile(pattern).groups
            except regex.error as error:
                raise ValueError(f"is not a regular expression: {error}") from error
            if groups < 1:
                raise ValueError('has no group: put the passage\'s id in parentheses, for example "^(.+)#[0-9]+$"')
        return pattern

    @model_validator(mode="after")
    def _one_way_to_ask(self) -> Self:
        for name in _placeholders([self.url, self.body]):
            near = difflib.get_close_matches(name, _PLACEHOLDERS, 1, 0.7)
            if near and name not in _PLACEHOLDERS:
                raise ValueError(f"body or url has the unknown placeholder {name} (did you mean {near[0]}?)")
        used = {name for name in _PLACEHOLDERS if _holds([self.url, self.body], name)}
        fields = self.model_fields_set & {"query_field", "size_field"}
        if self.is_template and fields:
            raise ValueError(f"body is a template, so {' and '.join(sorted(fields))} would not be used: remove it")
        if used and not used & {"{query}", "{vector}", "{filter}"}:
            raise ValueError(f"body or url has {min(used)}, but neither {{query}} nor {{vector}}: add one of them")
        if ("{vector}" in used) != (self.embedder is not None):
            raise ValueError("{vector} in body and `embedder` belong together: the embedder makes the query's vector")
        return self

    @property
    def is_template(self) -> bool:
        """Return whether body or url contains a placeholder for the query."""
        return _holds([self.url, self.body], "{query}") or _holds([self.url, self.body], "{vector}")

    @property
    def has_pages(self) -> bool:
        """Return whether body or url says how to ask for further pages of hits."""
        return any(_holds([self.url, self.body], name) for name in _PAGES)


class SearchService:
    """A client for a search service. `ids` (or `pages` for hits that are pages) maps the ids of hits, which are what
    `level` says."""

    def __init__(
        self,
        options: HttpSystem,
        ids: IdLookup,
        pages: Callable[[], PageLookup] | None = None,
        level: Level = "auto",
    ) -> None:
        self._options, self._returned = options, ReturnedHits(ids, pages, options.best, level)
        self._repeated = "joined_hits" if options.id_pattern else "repeated_hits"
        self._most: int | None = None  # hits that the service allows at once, after it has refused more
        self._last: int | None = None  # hits after which the service refused a further page
        self._embedder: Embedder | None = build("embedder", options.embedder) if options.embedder else None

    @cached_property
    def _client(self) -> JsonClient:
        chosen = self._options
        return JsonClient(
            chosen.access, timeout=chosen.timeout_seconds, retries=chosen.retries, connections=chosen.concurrency
        )

    def search(
        self, queries: Mapping[str, str], k: int, filters: Mapping[str, Mapping[str, Any]] | None = None
    ) -> tuple[Results, Counter[str]]:
        """Send every query, and return {query id: {passage id: score}} and the counts of irregularities.

        An empty query is not sent and has no hits. Raises DatasetError for an invalid response, an unknown passage, a
        timeout, or a status other than 2xx after all retries.
        """
        sent = [(key, text) for key, text in queries.items() if text.strip()]
        answers = self._client.ask_all(lambda item: self._hits(*item, k, (filters or {}).get(item[0])), sent)
        without = [answer for answer in answers if isinstance(answer, _NoHits)]
        if without and len(without) == len(answers):
            raise without[0]
        counts = Counter(answers_without_hits=len(without), empty_queries=len(queries) - len(sent))
        returned = {key: hits for (key, _), hits in zip(sent, answers, strict=True) if not isinstance(hits, _NoHits)}
        results, irregular = self._returned.results(queries, returned, k, self._repeated)
        most = self._last if self._options.has_pages else self._most
        if most is not None and most < k * self._options.oversample:
            counts[MOST_HITS] = most
        if self.unknown and self._options.unknown_ids == "error":
            raise DatasetError(f"{self.unknown}: {self.advice}", code="unknown_passages")
        return results, +(counts + irregular)

    @property
    def advice(self) -> str:
        """Return what ids of the dataset look like."""
        return self._returned.advice

    @property
    def unknown(self) -> str:
        """Return a description of the first hit that is not in the dataset, or "" if there is none."""
        if self._returned.unknown is None:
            return ""
        query, id_ = self._returned.unknown
        return (
            f"{self._where(query)}: the service answered with the id {id_[:100]!r}, which is not in the dataset "
            "(never in its corpus, or dropped by its cleaning; set id_pattern if its ids hold more than the passage's "
            "id)"
        )

    def _where(self, query: str) -> str:
        return f"{without_secrets(self._options.url)}: {query}"

    def _hits(self, query_id: str, text: str, k: int, wanted: Mapping[str, Any] | None) -> "Hits | _NoHits":
        options, where = self._options, self._where(shown_query(query_id, text))
        try:
            items = self._items(self._allowed_answer(text, k * options.oversample, wanted), where)
            if options.has_pages:
                items = self._further_pages(items, text, k * options.oversample, wanted, where)
        except HttpFailure as failure:
            raise DatasetError(f"{where}: the service {failure}", code=failure.code, where=where) from None
        except _NoHits as missing:
            return missing
        hits = []
        for rank, hit in enumerate(items):
            bare = isinstance(hit, str | int)
            id_ = str(hit if bare else _follow(hit, options.id_path, where, "id_path"))
            score: object = -float(rank)
            if options.score_path and not bare:
                score = _follow(hit, options.score_path, where, "score_path")
            hits.append(([self._matched(id_, where)], finite_score(score, where)))
        return hits

    def _items(self, value: Any, where: str) -> list[Any]:
        items = _follow(value, self._options.hits_path, where, "hits_path")
        if not isinstance(items, list):
            raise DatasetError(
                f"{where}: hits_path {self._options.hits_path!r} leads to {type(items).__name__}, not to a list"
            )
        return items

    def _further_pages(
        self, items: list[Any], text: str, k: int, wanted: Mapping[str, Any] | None, where: str
    ) -> list[Any]:
        """Return k hits, or as many as there are: a page without new hits or a refusal is the end."""
        seen, page = set(map(repr, items)), 1
        while items and len(items) < k:
            page += 1
            try:
                answer = self._answer(text, min(k, self._most or k), wanted, offset=len(items), page=page)
                new = [hit for hit in self._items(answer, where) if repr(hit) not in seen]
            except _NoHits:
                break
            except HttpFailure as failure:
                if failure.status not in _REFUSED:
                    raise
                self._last = min(len(items), self._last or len(items))
                break
            if not new:
                break
            seen.update(map(repr, new))
            items = [*items, *new]
        return items[:k]

    def _allowed_answer(self, text: str, k: int, wanted: Mapping[str, Any] | None) -> Any:
        """Return the answer with k hits, or with as many as the service allows, which its refusal may say.

        Raises HttpFailure with the first refusal if fewer hits are refused as well.
        """
        first: HttpFailure | None = None
        asked = min(k, self._most or k)
        while True:
            try:
                answer = self._answer(text, asked, wanted)
            except HttpFailure as failure:
                first = first or failure
                fewer = _fewer(failure, asked) if self._asks_for_k else None
                if fewer is None:
                    raise first from None
                asked = fewer
            else:
                if first is not None:
                    self._most = min(asked, self._most or asked)
                return answer

    @property
    def _asks_for_k(self) -> bool:
        options = self._options
        return _holds([options.url, options.body], "{k}") if options.is_template else options.size_field is not None

    def _answer(self, text: str, k: int, wanted: Mapping[str, Any] | None, *, offset: int = 0, page: int = 1) -> Any:
        options = self._options
        vector = self._embedder.encode([text], "query")[0].tolist() if self._embedder else []
        values = {"{query}": text, "{k}": k, "{vector}": vector, "{filter}": dict(wanted or {})}
        values |= {"{offset}": offset, "{page}": page}
        fields = _filled(options.body, values)
        if not options.is_template:
            fields[options.query_field] = text
            if options.size_field:
                fields[options.size_field] = k
        url = options.url
        for name, value in values.items():
            url = url.replace(name, urllib.parse.quote(str(value), safe=""))
        if options.method == "GET":
            return self._client.ask(url, parameters=fields or None)
        return self._client.ask(url, fields)

    def _matched(self, id_: str, where: str) -> str:
        """Return the passage's id within a service's id."""
        if len(id_) > _LONGEST_ID:
            raise DatasetError(f"{where}: the service returned an id of {len(id_)} characters")
        pattern = self._options.id_pattern
        if pattern is None:
            return id_
        try:
            match = regex.search(pattern, id_, timeout=1.0)
        except TimeoutError:
            raise DatasetError(f"{where}: id_pattern takes more than a second for the id {id_[:100]!r}") from None
        if not match or match[1] is None:
            raise DatasetError(f"{where}: id_pattern {pattern!r} does not match the id {id_[:100]!r}")
        return str(match[1])


def problem_of(options: HttpSystem, query: str) -> str:
    """Send a service one query, and return what is wrong with it or its settings, or ""."""
    quick = {"retries": 0, "timeout_seconds": min(options.timeout_seconds, _CHECK_SECONDS)}
    service = SearchService(options.model_copy(update=quick), IdLookup([]))
    try:
        service._hits(query, query, _CHECK_HITS, None)
    except AirgenError as error:
        return str(error)
    return ""


class _NoHits(DatasetError):
    """A response in which `hits_path` does not exist, as from Vespa if there are no hits."""


def _placeholders(value: Any) -> Iterator[str]:
    """Yield whatever looks like a placeholder."""
    if isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _placeholders(part)
    elif isinstance(value, str):
        yield from regex.findall(r"\{[A-Za-z_]{1,20}\}", value)


def _fewer(failure: HttpFailure, asked: int) -> int | None:
    """Return a smaller number of hits to ask for after a refusal: the largest that it names, or a usual limit."""
    if failure.status not in _REFUSED:
        return None
    named = map(int, regex.findall(r"(?<![\d.])\d{1,6}(?![\d.])", str(failure).partition(":")[2]))
    return max((limit for limit in (*named, *_USUAL_LIMITS) if _USUAL_LIMITS[-1] <= limit < asked), default=None)


def _holds(value: Any, placeholder: str) -> bool:
    if isinstance(value, Mapping):
        return any(_holds(part, placeholder) for part in value.values())
    if isinstance(value, list):
        return any(_holds(part, placeholder) for part in value)
    return isinstance(value, str) and placeholder in value


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """Fill in the template's placeholders. Texts become JSON values, so they cannot change its structure."""
    if isinstance(value, Mapping):
        return {name: _filled(part, values) for name, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, values) for part in value]
    if not isinstance(value, str):
        return value
    if value in values:
        return values[value]
    pattern = "|".join(map(regex.escape, values))
    return regex.sub(pattern, lambda match: str(values[match[0]]), value)


def _follow(value: Any, path: str, where: str, setting: str) -> Any:
    error: Callable[[str], DatasetError] = _NoHits if setting == "hits_path" else DatasetError
    for key in path.split(".") if path else []:
        if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            known = ", ".join(sorted(map(str, value))[:8]) if isinstance(value, dict) else type(value).__name__
            raise error(f"{where}: {setting} {path!r}: no {key!r} in the answer (it has: {known[:200]})")
    return value
