"""Embedding models of OpenAI, Cohere, Voyage, Jina and Gemini, by name.

    {kind: dense, embedder: text-embedding-3-small}          a model that this module knows
    {kind: dense, embedder: {openai: text-embedding-3-small, budget_usd: 1.00}}
    {kind: dense, embedder: {voyage: voyage-4-large}}        any model of a provider

The key comes from the provider's usual variable. Queries and passages are sent with their input types. The tokens that
the provider counts give the price of 1,000 queries and what has been spent of the budget. Prices and limits are those
that the providers published by November 2026; `usd_per_million` sets another price.
"""

import threading
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from airgen.errors import BudgetSpent, ModelError
from airgen.net.http import HttpFailure
from airgen.retrievers.endpoints import HttpEmbedder, smaller
from airgen.retrievers.model_facts import ModelSetup
from airgen.retrievers.protocols import TextKind
from airgen.settings.base import KEY, SERVED, SPEED
from airgen.settings.hosted import HOSTED
from airgen.settings.http import Address, Headers, Variable
from airgen.text.token_counts import count_tokens


class _Use(NamedTuple):
    texts: int = 0
    tokens: int = 0


class HostedEmbedder(HttpEmbedder):
    """Base class of the providers, which differ in their requests and responses."""

    class Settings(HttpEmbedder.Settings):
        """Settings of a provider's model.

        Attributes:
            usd_per_million: Price of a million tokens in US dollars. Default: the published price.
            budget_usd: Amount in US dollars that this component may spend before it stops. Default: no limit.
        """

        usd_per_million: Annotated[float | None, SPEED] = Field(default=None, ge=0, allow_inf_nan=False)
        budget_usd: Annotated[float | None, SPEED] = Field(default=None, ge=0, allow_inf_nan=False)

    settings: Settings
    provider: ClassVar[str]
    types: ClassVar[dict[TextKind, str]] = {}

    def set_up(self) -> None:
        super().set_up()
        known = HOSTED.get(self.name)
        self._price = (
            self.settings.usd_per_million
            if self.settings.usd_per_million is not None
            else (known.usd_per_million if known else None)
        )
        self._limit = known.tokens if known else None
        if self.settings.budget_usd is not None and self._price is None:
            raise ModelError(f"{self.name}: its price is unknown, so no budget can be kept: set usd_per_million")
        self._used: dict[TextKind, _Use] = {"query": _Use(), "passage": _Use()}
        self._reserved = 0.0
        self._lock = threading.Lock()

    def _asked(self, texts: list[str], kind: TextKind) -> Any:
        at_most = sum(map(count_tokens, texts)) * 1.2 * (self._price or 0) / 1e6  # counts of other tokenizers differ
        with self._lock:
            budget = self.settings.budget_usd
            if budget is not None and self.spent + self._reserved + at_most > budget:
                raise BudgetSpent(
                    f"{self.name}: the budget of ${budget:,.2f} is spent (${self.spent:,.4f}): raise budget_usd; "
                    "vectors in a `cache` are not paid again"
                )
            self._reserved += at_most
        try:
            answer = self.sent(texts, kind)
        finally:
            with self._lock:
                self._reserved -= at_most
        tokens = self.tokens(answer) if isinstance(answer, dict) else None
        with self._lock:
            use = self._used[kind]
            counted = sum(map(count_tokens, texts)) if tokens is None else tokens
            self._used[kind] = _Use(use.texts + len(texts), use.tokens + counted)
        return answer

    def sent(self, texts: list[str], kind: TextKind) -> Any:
        """Return the response to a request for the vectors of texts. Raises ModelError."""
        try:
            return self._client.ask(self._url, self.request(texts, kind))
        except HttpFailure as failure:
            raise ModelError(f"{self._url} {failure}{smaller(failure)}", code=failure.code, where=self._url) from None

    def request(self, texts: list[str], kind: TextKind) -> dict[str, Any]:
        """Return the body of a request."""
        raise NotImplementedError

    def tokens(self, answer: dict[str, Any]) -> int | None:
        """Return the number of tokens that the provider counted, or None if it does not say."""
        usage = answer.get("usage")
        count = (usage.get("total_tokens") or usage.get("prompt_tokens")) if isinstance(usage, dict) else None
        return count if isinstance(count, int) else None

    @property
    def spent(self) -> float:
        """Return what the requests so far cost in US dollars, or 0 if the price is unknown."""
        return sum(use.tokens for use in self._used.values()) * (self._price or 0) / 1e6

    @property
    def usd_per_query(self) -> float | None:
        """Return the mean price of a query so far, or None if the price is unknown or no query was sent."""
        use = self._used["query"]
        return None if self._price is None or not use.texts else use.tokens / use.texts * self._price / 1e6

    def setup(self) -> ModelSetup:
        """Return what is sent with the texts, and the provider's limit."""
        chosen = self.settings
        typed = [f"input type {self.types[kind]}" if kind in self.types else "" for kind in ("query", "passage")]
        query, passage = (
            " ".join(filter(None, [text, prefix]))
            for text, prefix in zip(typed, (chosen.query_prefix, chosen.passage_prefix), strict=True)
        )
        origin = self.provider if self.types else "the settings" if query or passage else ""
        if self._limit is None:
            return ModelSetup(
                self.name, query, passage, origin, chosen.max_chars, None, "characters", self._dim, "", "cosine"
            )
        return ModelSetup(self.name, query, passage, origin, self._limit, dim=self._dim, similarity="cosine")

    def most_tokens(self, kind: TextKind) -> int:
        """Return the provider's limit of tokens or, if it is unknown, `max_chars`."""
        return self.settings.max_chars if self._limit is None else self._limit

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int]:
        """Return the numbers of tokens, counted with OpenAI's tokenizer; characters, if the limit is unknown."""
        return [len(text) if self._limit is None else count_tokens(text) for text in texts]


class OpenAIEmbedder(HostedEmbedder):
    """A model of OpenAI, which is asked through its own package."""

    class Settings(HostedEmbedder.Settings):
        """Settings of a model of OpenAI."""

        model: Annotated[str, SERVED] = "text-embedding-3-small"
        api_key_env: Annotated[Variable | None, SPEED, KEY] = "OPENAI_API_KEY"

    provider = "openai"

    def sent(self, texts: list[str], kind: TextKind) -> Any:
        """Return the response to a request for the vectors of texts. Raises ModelError."""
        return HttpEmbedder._asked(self, texts, kind)


class VoyageEmbedder(HostedEmbedder):
    """A model of Voyage."""

    class Settings(HostedEmbedder.Settings):
        """Settings of a model of Voyage."""

        model: Annotated[str, SERVED] = "voyage-3.5"
        base_url: Annotated[Address, SPEED] = "https://api.voyageai.com/v1"
        api_key_env: Annotated[Variable | None, SPEED, KEY] = "VOYAGE_API_KEY"

    provider = "voyage"
    types: ClassVar[dict[TextKind, str]] = {"query": "query", "passage": "document"}

    def request(self, texts: list[str], kind: TextKind) -> dict[str, Any]:
        """Return a request of `/embeddings`."""
        more = {} if self.settings.dimensions is None else {"output_dimension": self.settings.dimensions}
        return {"model": self.name, "input": texts, "input_type": self.types[kind], **more}


class JinaEmbedder(HostedEmbedder):
    """A model of Jina."""

    class Settings(HostedEmbedder.Settings):
        """Settings of a model of Jina."""

        model: Annotated[str, SERVED] = "jina-embeddings-v3"
        base_url: Annotated[Address, SPEED] = "https://api.jina.ai/v1"
        api_key_env: Annotated[Variable | None, SPEED, KEY] = "JINA_API_KEY"

    provider = "jina"
    types: ClassVar[dict[TextKind, str]] = {"query": "retrieval.query", "passage": "retrieval.passage"}

    def request(self, texts: list[str], kind: TextKind) -> dict[str, Any]:
        """Return a request of `/embeddings`. Longer texts are cut by the server."""
        more = {} if self.settings.dimensions is None else {"dimensions": self.settings.dimensions}
        return {"model": self.name, "input": texts, "task": self.types[kind], "truncate": True, **more}


class CohereEmbedder(HostedEmbedder):
    """A model of Cohere."""

    class Settings(HostedEmbedder.Settings):
        """Settings of a model of Cohere."""

        model: Annotated[str, SERVED] = "embed-v4.0"
        base_url: Annotated[Address, SPEED] = "https://api.cohere.com/v2"
        api_key_env: Annotated[Variable | None, SPEED, KEY] = "COHERE_API_KEY"
        batch_size: Annotated[int, SPEED] = Field(default=64, ge=1, le=96)

    provider = "cohere"
    types: ClassVar[dict[TextKind, str]] = {"query": "search_query", "passage": "search_document"}

    def set_up(self) -> None:
        super().set_up()
        self._url = self.settings.base_url.rstrip("/") + "/embed"

    def request(self, texts: list[str], kind: TextKind) -> dict[str, Any]:
        """Return a request of `/v2/embed`. Longer texts are cut by the server."""
        more = {} if self.settings.dimensions is None else {"output_dimension": self.settings.dimensions}
        form = {"input_type": self.types[kind], "embedding_types": ["float"], "truncate": "END"}
        return {"model": self.name, "texts": texts, **form, **more}

    def items(self, answer: Any) -> list[dict[str, Any]]:
        """Return the vectors by their places."""
        return [{"index": place, "embedding": row} for place, row in enumerate(answer["embeddings"]["float"])]

    def tokens(self, answer: dict[str, Any]) -> int | None:
        """Return the billed tokens."""
        units = (answer.get("meta") or {}).get("billed_units") or {}
        count = units.get("input_tokens")
        return int(count) if isinstance(count, int | float) else None


class GeminiEmbedder(HostedEmbedder):
    """A model of Gemini."""

    class Settings(HostedEmbedder.Settings):
        """Settings of a model of Gemini. The key is sent in the header that Google names."""

        model: Annotated[str, SERVED] = "gemini-embedding-001"
        base_url: Annotated[Address, SPEED] = "https://generativelanguage.googleapis.com/v1beta"
        headers: Annotated[Headers, SPEED, KEY] = Field(default={"x-goog-api-key": "${GEMINI_API_KEY}"})
        batch_size: Annotated[int, SPEED] = Field(default=64, ge=1, le=100)

    provider = "gemini"
    types: ClassVar[dict[TextKind, str]] = {"query": "RETRIEVAL_QUERY", "passage": "RETRIEVAL_DOCUMENT"}

    def set_up(self) -> None:
        super().set_up()
        self._url = f"{self.settings.base_url.rstrip('/')}/models/{self.name}:batchEmbedContents"

    def request(self, texts: list[str], kind: TextKind) -> dict[str, Any]:
        """Return a request of `batchEmbedContents`. Longer texts are cut by the server."""
        more = {} if self.settings.dimensions is None else {"outputDimensionality": self.settings.dimensions}
        about = {"model": f"models/{self.name}", "taskType": self.types[kind], **more}
        return {"requests": [{**about, "content": {"parts": [{"text": text}]}} for text in texts]}

    def items(self, answer: Any) -> list[dict[str, Any]]:
        """Return the vectors by their places."""
        rows = [np.asarray(item["values"], np.float32) for item in answer["embeddings"]]
        return [{"index": place, "embedding": row} for place, row in enumerate(rows)]
