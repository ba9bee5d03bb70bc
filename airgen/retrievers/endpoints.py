"""Embedding and re-ranking endpoints: OpenAI's `/v1/embeddings`, and `/v1/rerank` of Jina, Cohere and vLLM.

Every response is checked: the number of items, their ids, the dimension, and that numbers are finite. An invalid
response raises a ModelError.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.errors import ModelError
from airgen.net.http import HttpClient, HttpFailure, JsonClient, Received
from airgen.retrievers.component import Component
from airgen.retrievers.model_facts import ModelFacts, ModelSetup
from airgen.retrievers.model_output import checked_scores, finite, unit_rows
from airgen.retrievers.protocols import TextKind
from airgen.safety.escaping import one_line
from airgen.settings.base import KEY, SERVED, SPEED
from airgen.settings.http import Address, ServerAddress, ServiceAccess, address

_RETRIES = 5  # attempts for a request that failed temporarily: half a minute of pauses


class Remote(Component):
    """A component that uses a remote service."""

    class Settings(Component.Settings, ServiceAccess):
        """Settings for sending requests to a service."""

        timeout: Annotated[float, SPEED] = Field(default=60.0, gt=0)
        concurrency: Annotated[int, SPEED] = Field(default=4, ge=1, le=256)

    settings: Settings

    @cached_property
    def _client(self) -> JsonClient:
        """Create the client at the first request, when the keys must be set."""
        chosen = self.settings
        return JsonClient(chosen.access, timeout=chosen.timeout, retries=_RETRIES, connections=chosen.concurrency)

    @property
    def facts(self) -> ModelFacts:
        """Return no facts, since what runs elsewhere is unknown."""
        return ModelFacts(device=None)


class _Endpoint(Remote):
    class Settings(Remote.Settings):
        """Settings of an endpoint for models.

        Attributes:
            max_chars: Maximum length to which texts are truncated before sending, because many endpoints refuse texts
                longer than the model's limit.
        """

        max_chars: int = Field(default=24_000, ge=1)
        batch_size: Annotated[int, SPEED] = Field(default=64, ge=1)

    settings: Settings


def smaller(failure: HttpFailure) -> str:
    """Return a hint if a server refuses the amount of data sent at once, or the length of a text."""
    words = str(failure)
    if _TOO_LONG.search(words):
        return " (a smaller max_chars sends shorter texts)"
    many = failure.status in (400, 413, 422) and _TOO_MANY.search(words)
    return " (a smaller batch_size sends less at once)" if many or failure.status == 413 else ""


_TOO_MANY = re.compile(
    r"batch|too many|tokens per request|total tokens|max_num_tokens|array.{0,200}(?:long|length)", re.IGNORECASE
)
_TOO_LONG = re.compile(
    r"maximum context length|context (?:size|length)|physical batch size|max_(?:model|seq|input)_len|input length|"
    r"input is too (?:large|long)|(?:text|prompt|sequence|document) (?:is )?too long",
    re.IGNORECASE,
)


def _says(answer: Any) -> str:
    """Return what a response says is wrong, although its status is 200; "" if it says nothing."""
    words = next((answer[name] for name in _ERRORS if answer.get(name)), None) if isinstance(answer, dict) else None
    if isinstance(words, dict):
        words = words.get("message") or words
    return f": {one_line(str(words), 200)}" if words else ""


_ERRORS = ("error", "message", "detail", "error_msg")
_MIN_EQUAL = 8  # texts whose results cannot all be equal by chance


class HttpEmbedder(_Endpoint):
    """An OpenAI-compatible embeddings endpoint (OpenAI, vLLM, Ollama, TEI, llama.cpp), used through the `openai`
    package."""

    class Settings(_Endpoint.Settings):
        """Settings of an endpoint for embeddings.

        Attributes:
            base_url: The URL up to, but without, `/embeddings`, or ${NAME} for an environment variable.
            dimensions: Length of the vectors to request, if they should be shorter.
        """

        model: Annotated[str, SERVED]
        base_url: Annotated[ServerAddress, SPEED, KEY] = "https://api.openai.com/v1"
        query_prefix: str = ""
        passage_prefix: str = ""
        dimensions: int | None = Field(default=None, ge=1)

    settings: Settings

    def set_up(self) -> None:
        self.name = self.settings.model
        self._base = address(self.settings.base_url)
        self._url = self._base.rstrip("/") + "/embeddings"
        self._dim = self.settings.dimensions
        self._api: Any = None  # the package's client, created for the first request

    @property
    def dim(self) -> int:
        """Return the length of a vector, with one request if it is unknown."""
        if self._dim is None:
            self.encode(["a"], "passage")
        assert self._dim is not None
        return self._dim

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Encode texts to unit vectors, float32 (n, dim). Raises ModelError if the dimension changes."""
        size = self.settings.batch_size
        # Endpoints reject an empty text but accept a space.
        prefix = self.settings.query_prefix if kind == "query" else self.settings.passage_prefix
        inputs = [(prefix + text)[: self.settings.max_chars] or " " for text in texts]
        if not inputs:
            return np.zeros((0, self.dim), np.float32)
        batches = self._client.ask_all(
            lambda batch: self._encoded(batch, kind),
            [inputs[first : first + size] for first in range(0, len(inputs), size)],
        )
        vectors = finite(np.concatenate(batches), self.name)
        if len(vectors) > 1 and not vectors.any():
            raise ModelError(
                f"{self._url} returned vectors of zeros for all of {len(vectors):,} texts, which cannot be "
                f"ranked: check that the model is loaded"
            )
        if len(set(inputs)) >= _MIN_EQUAL and (vectors == vectors[0]).all():
            raise ModelError(
                f"{self._url} returned the same vector for all of {len(vectors):,} texts, which cannot be ranked: "
                "check the server with one text at a time (batch_size: 1)"
            )
        return unit_rows(vectors)

    def items(self, answer: Any) -> list[dict[str, Any]]:
        """Return the vectors of a response with their places. Raises LookupError or TypeError for another form."""
        return _in_order(answer["data"])

    def _asked(self, texts: list[str], kind: TextKind) -> Any:
        more = {} if self.settings.dimensions is None else {"dimensions": self.settings.dimensions}

        async def send(client: HttpClient) -> Received:
            from airgen.net import openai_client as package  # importing it takes most of a second

            if self._api is None:
                self._api = package.openai_client(self._base, {}, {}, client)
            create = self._api.embeddings.with_raw_response.create
            try:
                return package.received(await create(model=self.name, input=texts, encoding_format="float", **more))
            except package.Answered as error:
                return error.received

        try:
            return self._client.ask_by(send)
        except HttpFailure as failure:
            raise ModelError(f"{self._url} {failure}{smaller(failure)}", code=failure.code, where=self._url) from None

    def _encoded(self, texts: list[str], kind: TextKind) -> NDArray[np.float32]:
        answer = self._asked(texts, kind)
        try:
            items = self.items(answer)
            places = [item["index"] for item in items]
            vectors = [_vector(item["embedding"]) for item in items]
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            hint = "" if self._base.rstrip("/").endswith("/v1") else " (on most servers, base_url ends in /v1)"
            raise ModelError(
                f"{self._url} did not respond in the format of OpenAI's embeddings API{_says(answer) or hint}"
            ) from error
        if places != list(range(len(texts))):
            raise ModelError(f"{self._url} returned embeddings {places[:5]}... for {len(texts)} texts")
        for text, vector in zip(texts, vectors, strict=True):
            if vector.ndim == 2 and len(vector) > 1:
                raise ModelError(
                    f"{self._url} returned {len(vector)} vectors for the text {one_line(repr(text), 60)}, which is one "
                    "for each token: set the server's pooling"
                )
            if vector.ndim != 1 or not vector.size:
                raise ModelError(f"{self._url} returned no vector for the text {one_line(repr(text), 60)}")
            if self._dim is None:
                self._dim = len(vector)
            if vector.shape != (self._dim,):
                raise ModelError(
                    f"{self._url} returned a vector of dimension {len(vector)} after vectors of dimension {self._dim}: "
                    f"the model behind {self.name} changed"
                )
        return np.stack(vectors)

    def setup(self) -> ModelSetup:
        """Return what is sent. What the server does with it is unknown."""
        chosen = self.settings
        origin = "the settings" if chosen.query_prefix or chosen.passage_prefix else ""
        prefixes = chosen.query_prefix, chosen.passage_prefix
        return ModelSetup(
            self.name, *prefixes, origin, chosen.max_chars, None, "characters", self._dim, similarity="cosine"
        )

    def most_tokens(self, kind: TextKind) -> int | None:
        """Return how many characters are sent."""
        return self.settings.max_chars

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int]:
        """Return the numbers of characters with the prefix."""
        prefix = self.settings.query_prefix if kind == "query" else self.settings.passage_prefix
        return [len(prefix + text) for text in texts]

    def describe(self) -> Mapping[str, object]:
        """Return the model, prefixes, dimensions and maximum length, but not the URL, which does not affect the
        vectors."""
        family = getattr(self, "provider", "http")
        return self.described(family, "model", "query_prefix", "passage_prefix", "dimensions", "max_chars")


def _vector(value: object) -> NDArray[np.float32]:
    """Parse the vector of an item: a list of numbers, or float32 in base64, which some servers always send."""
    if isinstance(value, str):
        raw = base64.b64decode(value, validate=True)
        vector = np.frombuffer(raw, "<f4").astype(np.float32)
        if _is_plausible(vector) or len(raw) % 8:
            return vector
        double = np.frombuffer(raw, "<f8").astype(np.float32)  # some servers pack Python's numbers
        return double if _is_plausible(double) else vector
    return np.asarray(0.0 if value is None else value, np.float32)


def _is_plausible(vector: NDArray[np.float32]) -> bool:
    """Return whether numbers are those of an embedding: float64 read as float32 has some that are huge or tiny."""
    sizes = np.abs(vector[vector != 0])
    return bool(np.isfinite(vector).all() and (sizes < _MAX_COMPONENT).all() and (sizes > 1 / _MAX_COMPONENT**2).all())


_MAX_COMPONENT = 1e6


def _in_order(items: Any) -> list[dict[str, Any]]:
    """Return the items of a response by their index. Items without any index are in the order of the texts; one item
    without an index is the first, as some servers leave zeros out.
    """
    missing = [item for item in items if item.get("index") is None]
    if len(missing) == len(items):
        return [{**item, "index": place} for place, item in enumerate(items)]
    if len(missing) == 1 and all(item.get("index") != 0 for item in items):
        items = [{**item, "index": item.get("index") or 0} for item in items]
    return sorted(items, key=lambda item: item["index"])


_FORMS: dict[str, Callable[[str, list[str], dict[str, str]], dict[str, Any]]] = {
    "documents": lambda query, documents, model: {
        "query": query, "documents": documents, "top_n": len(documents), **model,
    },
    "texts": lambda query, documents, model: {"query": query, "texts": documents, "truncate": True},
    "text_1": lambda query, documents, model: {"text_1": query, "text_2": documents, **model},
    "passages": lambda query, documents, model: {
        "query": {"text": query}, "passages": [{"text": text} for text in documents], "truncate": "END", **model,
    },
    "input": lambda query, documents, model: {"query": query, "input": documents, "top_k": len(documents), **model},
}  # fmt: skip
"""The requests by the name of a field that no other has: Jina's and Cohere's, TEI's, that of vLLM's `/score`, NVIDIA's
and Mixedbread's."""
_MISSING = re.compile(r"missing|required|must (?:be|have|contain)|expected", re.IGNORECASE)


def _missing_field(words: str) -> str:
    """Return the form of a request whose field a server misses, or ""."""
    named = [name for name in _FORMS if name != "documents" and re.search(rf"\b{name}\b", words)]
    return named[0] if named and _MISSING.search(words) else ""


def _scored(answer: Any) -> list[dict[str, Any]]:
    """Return the items (index, score) of a response. A plain list of numbers is in the order of the documents."""
    items = answer
    for name in ("output", "results", "data", "rankings", "scores"):
        if isinstance(items, dict) and items.get(name) is not None:
            items = items[name]
    if not isinstance(items, list):
        raise TypeError("no list")
    numbers = all(isinstance(item, int | float) and not isinstance(item, bool) for item in items)
    return [{"index": place, "score": item} for place, item in enumerate(items)] if numbers else items


_SCORES = ("relevance_score", "score", "logit")


class HttpReranker(_Endpoint):
    """A re-ranking endpoint, with one request per query and `batch_size` documents.

    Jina, Cohere and vLLM share a format: query and documents in, `results` of (index, relevance_score) out. A server
    that requires another one (TEI, vLLM's `/score`, NVIDIA, Mixedbread) names a missing field in its error, and is
    asked again in its own form.
    """

    class Settings(_Endpoint.Settings):
        """Settings of an endpoint for re-ranking.

        Attributes:
            url: The complete URL, such as `http://localhost:8000/v1/rerank`.
        """

        url: Annotated[Address, SPEED]
        model: Annotated[str, SERVED] = ""

    settings: Settings
    positional = ("url", "model")

    def set_up(self) -> None:
        self.name = self.settings.model or self.settings.url
        self._form = "documents"

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return one score per pair, shape (n,). Raises ModelError for too few scores, wrong ids and NaN."""
        by_query: dict[str, list[int]] = {}
        for place, (query, _) in enumerate(pairs):
            by_query.setdefault(query, []).append(place)
        scores = np.full(len(pairs), np.nan, np.float32)
        size = self.settings.batch_size
        parts = [
            (query, places[first : first + size])
            for query, places in by_query.items()
            for first in range(0, len(places), size)
        ]
        answers = self._client.ask_all(lambda part: self._ask(part[0], [pairs[place][1] for place in part[1]]), parts)
        for (_, places), scores_of_part in zip(parts, answers, strict=True):
            scores[places] = scores_of_part
        if len(by_query) > 2 and len(set(pairs)) >= 2 * _MIN_EQUAL and (scores == scores[0]).all():
            raise ModelError(
                f"{self.settings.url} returned the score {scores[0]:g} for all of {len(pairs):,} pairs, which cannot "
                "be ranked: check that the model is a re-ranker"
            )
        return checked_scores(scores, len(pairs), self.name)

    def _ask(self, query: str, passages: list[str]) -> list[float]:
        documents = [passage[: self.settings.max_chars] or " " for passage in passages]
        url = self.settings.url
        answer = self._answer(query, documents)
        try:
            items = _scored(answer)
            scores = {
                int(item["index"]): float(next(item[name] for name in _SCORES if item.get(name) is not None))
                for item in items
            }
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, StopIteration) as error:
            raise ModelError(f"{url} did not respond in the format of a re-ranking API{_says(answer)}") from error
        if len(scores) != len(items) or not set(scores) <= set(range(len(passages))):
            raise ModelError(f"{url} returned scores for documents that were not sent, or two scores for one document")
        if len(scores) != len(passages):
            few = f" (if it returns only its best, set batch_size to {len(scores)})" if scores else ""
            raise ModelError(f"{url} returned {len(scores)} scores for {len(passages)} documents{few}")
        return [scores[place] for place in range(len(passages))]

    def _answer(self, query: str, documents: list[str]) -> Any:
        url, model = self.settings.url, {"model": self.settings.model} if self.settings.model else {}
        while True:
            form = self._form
            try:
                return self._client.ask(url, _FORMS[form](query, documents, model))
            except HttpFailure as failure:
                other = _missing_field(str(failure)) if failure.status in (400, 422) and form == "documents" else ""
                if not other:
                    raise ModelError(f"{url} {failure}{smaller(failure)}", code=failure.code, where=url) from None
                self._form = other

    def describe(self) -> Mapping[str, object]:
        """Return the model and maximum length, but not the URL, which does not affect the scores."""
        return {"family": "http", "model": self.name, "max_chars": self.settings.max_chars}
