"""Embedding and re-ranking endpoints: OpenAI's `/v1/embeddings`, and `/v1/rerank` of Jina, Cohere and vLLM.

Every response is checked: the number of items, their ids, the dimension, and that numbers are finite. An invalid
response raises a ModelError.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.errors import ModelError
from airgen.http import HttpClient, HttpFailure, JsonClient, Received
from airgen.retrievers.component import Component
from airgen.retrievers.model_facts import ModelFacts
from airgen.retrievers.model_output import checked_scores, finite, unit_rows
from airgen.retrievers.protocols import TextKind
from airgen.settings.base import SERVED, SPEED
from airgen.settings.http import Address, ServiceAccess
from airgen.text.escaping import one_line

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

    def _post(self, url: str, body: Mapping[str, Any]) -> Any:
        try:
            return self._client.ask(url, body)
        except HttpFailure as failure:
            raise ModelError(f"{url} {failure}{_smaller(failure)}") from None


def _smaller(failure: HttpFailure) -> str:
    """Return a hint if a server refuses the amount of data sent at once."""
    many = failure.status in (400, 413, 422) and re.search(
        r"batch|too many|tokens per request|total tokens|max_num_tokens|array.*(?:long|length)",
        str(failure),
        re.IGNORECASE,
    )
    return " (a smaller batch_size sends less at once)" if many or failure.status == 413 else ""


class HttpEmbedder(_Endpoint):
    """An OpenAI-compatible embeddings endpoint (OpenAI, vLLM, Ollama, TEI, llama.cpp), used through the `openai`
    package."""

    class Settings(_Endpoint.Settings):
        """Settings of an endpoint for embeddings.

        Attributes:
            base_url: The URL up to, but without, `/embeddings`.
            dimensions: Length of the vectors to request, if they should be shorter.
        """

        model: Annotated[str, SERVED]
        base_url: Annotated[Address, SPEED] = "https://api.openai.com/v1"
        query_prefix: str = ""
        passage_prefix: str = ""
        dimensions: int | None = Field(default=None, ge=1)

    settings: Settings

    def set_up(self) -> None:
        self.name = self.settings.model
        self._url = self.settings.base_url.rstrip("/") + "/embeddings"
        self._dim = self.settings.dimensions
        self._api: Any = None  # the package's client, created for the first request

    @property
    def dim(self) -> int:
        """Return the length of a vector, with one request if it is unknown."""
        if self._dim is None:
            self.encode(["a"], "query")
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
            self._encoded, [inputs[first : first + size] for first in range(0, len(inputs), size)]
        )
        vectors = finite(np.concatenate(batches), self.name)
        if len(vectors) > 1 and not vectors.any():
            raise ModelError(
                f"{self._url} returned vectors of zeros for all of {len(vectors):,} texts, which cannot be "
                f"ranked: check that the model is loaded"
            )
        return unit_rows(vectors)

    def _encoded(self, texts: list[str]) -> NDArray[np.float32]:
        more = {} if self.settings.dimensions is None else {"dimensions": self.settings.dimensions}

        async def send(client: HttpClient) -> Received:
            from airgen import openai_client as package  # importing it takes most of a second

            if self._api is None:
                self._api = package.openai_client(self.settings.base_url, {}, {}, client)
            create = self._api.embeddings.with_raw_response.create
            try:
                return package.received(await create(model=self.name, input=texts, encoding_format="float", **more))
            except package.Answered as error:
                return error.received

        try:
            answer = self._client.ask_by(send)
        except HttpFailure as failure:
            raise ModelError(f"{self._url} {failure}{_smaller(failure)}") from None
        try:
            items = sorted(answer["data"], key=lambda item: item["index"])
            places = [item["index"] for item in items]
            vectors = [_vector(item["embedding"]) for item in items]
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"{self._url} did not respond in the format of OpenAI's embeddings API") from error
        if places != list(range(len(texts))):
            raise ModelError(f"{self._url} returned embeddings {places[:5]}... for {len(texts)} texts")
        for text, vector in zip(texts, vectors, strict=True):
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

    def describe(self) -> Mapping[str, object]:
        """Return the model, prefixes, dimensions and maximum length, but not the URL, which does not affect the
        vectors."""
        return self.described("http", "model", "query_prefix", "passage_prefix", "dimensions", "max_chars")


def _vector(value: object) -> NDArray[np.float32]:
    """Parse the vector of an item: a list of numbers, or float32 in base64, which some servers always send."""
    if isinstance(value, str):
        return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
    return np.asarray(0.0 if value is None else value, np.float32)


class HttpReranker(_Endpoint):
    """A re-ranking endpoint, with one request per query and `batch_size` documents.

    Jina, Cohere and vLLM share a format: query and documents in, `results` of (index, relevance_score) out. TEI
    requires `texts` instead of documents, says so in its error, and returns a plain list of (index, score).
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
        self._texts = False  # the server is TEI

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
        return checked_scores(scores, len(pairs), self.name)

    def _ask(self, query: str, passages: list[str]) -> list[float]:
        documents = [passage[: self.settings.max_chars] or " " for passage in passages]
        url = self.settings.url
        answer = self._answer(query, documents)
        items: Any = answer.get("results", answer.get("data")) if isinstance(answer, dict) else answer
        try:
            scores = {int(item["index"]): float(item.get("relevance_score", item.get("score"))) for item in items}
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ModelError(f"{url} did not respond in the format of a re-ranking API") from error
        if len(scores) != len(items) or not set(scores) <= set(range(len(passages))):
            raise ModelError(f"{url} returned scores for documents that were not sent, or two scores for one document")
        if len(scores) != len(passages):
            raise ModelError(f"{url} returned {len(scores)} scores for {len(passages)} documents")
        return [scores[place] for place in range(len(passages))]

    def _answer(self, query: str, documents: list[str]) -> Any:
        url, model = self.settings.url, {"model": self.settings.model} if self.settings.model else {}
        if not self._texts:
            try:
                return self._client.ask(url, {"query": query, "documents": documents, "top_n": len(documents), **model})
            except HttpFailure as failure:
                if failure.status not in (400, 422) or "texts" not in str(failure):
                    raise ModelError(f"{url} {failure}{_smaller(failure)}") from None
                self._texts = True
        return self._post(url, {"query": query, "texts": documents, "truncate": True})

    def describe(self) -> Mapping[str, object]:
        """Return the model and maximum length, but not the URL, which does not affect the scores."""
        return {"family": "http", "model": self.name, "max_chars": self.settings.max_chars}
