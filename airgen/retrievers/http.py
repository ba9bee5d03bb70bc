"""Embedding and re-ranking endpoints over HTTP: OpenAI's `/v1/embeddings`, `/v1/rerank` of Jina, Cohere and vLLM.

Requests are retried where that can help (429, 5xx, a dropped connection, a time-out), and end in a ModelError
where it cannot. Answers are checked: number, ids, dimension, finite numbers. The key is sent and kept nowhere else.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import ModelError
from airgen.retrievers.base import TextKind
from airgen.retrievers.output_checks import checked_scores, finite, unit_rows
from airgen.settings import secret

__all__ = ["HttpEmbedder", "HttpReranker", "post"]

_LONGEST_WAIT = 60.0  # seconds between two tries, whatever the server asks for
_LARGEST_ANSWER = 1 << 28  # bytes


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to an address that the user never named, so it is an error."""

    def redirect_request(self, *_: Any) -> None:
        """Never follow."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def post(
    url: str,
    body: Mapping[str, Any],
    *,
    api_key: str | None,
    timeout: float,
    retries: int,
    sleep: Callable[[float], None] = time.sleep,
) -> Any:
    """The JSON answer to a JSON body. Raises ModelError with the server's words, never with the key."""
    if not url.startswith(("http://", "https://")):
        raise ModelError(f"{url!r} is not an http address")
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = json.dumps(body).encode()
    reason = ""
    for attempt in range(retries + 1):
        request = urllib.request.Request(url, data, headers)
        wait = min(2.0**attempt, _LONGEST_WAIT)
        try:
            with _OPENER.open(request, timeout=timeout) as answer:
                return _parsed(url, answer.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            said = error.read(2000).decode("utf-8", "replace").strip().replace("\n", " ")[:300]
            reason = f"{url} answered {error.code}: {said}"
            if error.code != 429 and error.code < 500:
                raise ModelError(_without(reason, api_key)) from None
            wait = min(max(wait, _seconds(error.headers.get("Retry-After"))), _LONGEST_WAIT)
        except (OSError, HTTPException) as error:
            reason = f"{url} cannot be reached: {getattr(error, 'reason', None) or error or type(error).__name__}"
        if attempt < retries:
            sleep(wait)
    raise ModelError(_without(f"{reason} (tried {retries + 1} times)", api_key))


def _without(text: str, api_key: str | None) -> str:
    return text.replace(api_key, "***") if api_key else text


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header or 0))
    except ValueError:
        return 0.0


def _parsed(url: str, raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError as error:
        start = raw[:80].decode("utf-8", "replace").strip().replace("\n", " ")
        raise ModelError(f"{url} answered with something that is not JSON: {start!r}") from error


class HttpEmbedder:
    """An OpenAI-compatible embeddings endpoint (OpenAI, vLLM, Ollama, TEI, llama.cpp).

    `base_url` is the part before `/embeddings`. `api_key_env` names the environment variable that holds the key.
    `dimensions` asks for shorter vectors where the endpoint can. `max_chars` cuts texts before they are sent,
    because many endpoints refuse what is longer than the model.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key_env: str | None = None,
        query_prefix: str = "",
        passage_prefix: str = "",
        dimensions: int | None = None,
        max_chars: int = 24_000,
        batch_size: int = 64,
        timeout: float = 60.0,
        retries: int = 5,
    ) -> None:
        self.name = model
        self._url = base_url.rstrip("/") + "/embeddings"
        self._key_env = api_key_env
        self._prefix = {"query": query_prefix, "passage": passage_prefix}
        self._dimensions, self._max_chars, self._batch = dimensions, max_chars, batch_size
        self._timeout, self._retries = timeout, retries
        self._dim = dimensions

    @property
    def dim(self) -> int:
        """Length of a vector; the endpoint is asked once where it is not known."""
        if self._dim is None:
            self.encode(["a"], "query")
        assert self._dim is not None
        return self._dim

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Unit vectors, (n, dim). Raises ModelError where the dimension is not that of the vectors before."""
        # Endpoints refuse an empty text; a space is the nearest that they take.
        whole = [(self._prefix[kind] + text)[: self._max_chars] or " " for text in texts]
        parts = [self._some(whole[first : first + self._batch]) for first in range(0, len(whole), self._batch)]
        if not parts:
            return np.zeros((0, self.dim), np.float32)
        return unit_rows(finite(np.concatenate(parts), self.name))

    def _some(self, texts: list[str]) -> NDArray[np.float32]:
        body: dict[str, Any] = {"model": self.name, "input": texts, "encoding_format": "float"}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        answer = post(self._url, body, api_key=secret(self._key_env), timeout=self._timeout, retries=self._retries)
        try:
            items = sorted(answer["data"], key=lambda item: item["index"])
            places = [item["index"] for item in items]
            vectors = [np.asarray(item["embedding"], np.float32) for item in items]
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{self._url} did not answer in the form of OpenAI's embeddings") from error
        if places != list(range(len(texts))):
            raise ModelError(f"{self._url} gave embeddings {places[:5]}... for {len(texts)} texts")
        for vector in vectors:
            if self._dim is None:
                self._dim = len(vector)
            if vector.shape != (self._dim,):
                raise ModelError(
                    f"{self._url} gave a vector of dimension {len(vector)} after vectors of dimension {self._dim}: "
                    f"the model behind {self.name} changed"
                )
        return np.stack(vectors)

    def describe(self) -> Mapping[str, object]:
        """Model, prefixes, dimensions, cut; not the address, which does not change the vectors."""
        return {
            "family": "http",
            "model": self.name,
            "query_prefix": self._prefix["query"],
            "passage_prefix": self._prefix["passage"],
            "dimensions": self._dimensions,
            "max_chars": self._max_chars,
        }


class HttpReranker:
    """A re-ranking endpoint: `url` is its whole address, e.g. `http://localhost:8000/v1/rerank`.

    Jina, Cohere and vLLM share the form: query and documents in, `results` of (index, relevance_score) out; TEI's
    bare list of (index, score) is read as well. One request a query and `batch_size` documents.
    """

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        api_key_env: str | None = None,
        max_chars: int = 24_000,
        batch_size: int = 64,
        timeout: float = 60.0,
        retries: int = 5,
    ) -> None:
        self.name = model or url
        self._url, self._model, self._key_env = url, model, api_key_env
        self._max_chars, self._batch = max_chars, batch_size
        self._timeout, self._retries = timeout, retries

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """One score a pair, shape (n,). Raises ModelError for too few scores, wrong ids, NaN."""
        by_query: dict[str, list[int]] = {}
        for place, (query, _) in enumerate(pairs):
            by_query.setdefault(query, []).append(place)
        scores = np.full(len(pairs), np.nan, np.float32)
        for query, places in by_query.items():
            for first in range(0, len(places), self._batch):
                some = places[first : first + self._batch]
                scores[some] = self._ask(query, [pairs[place][1] for place in some])
        return checked_scores(scores, len(pairs), self.name)

    def _ask(self, query: str, passages: list[str]) -> NDArray[np.float32]:
        documents = [passage[: self._max_chars] or " " for passage in passages]
        body: dict[str, Any] = {"query": query, "documents": documents, "top_n": len(documents)}
        if self._model:
            body["model"] = self._model
        answer = post(self._url, body, api_key=secret(self._key_env), timeout=self._timeout, retries=self._retries)
        items: Any = answer.get("results", answer.get("data")) if isinstance(answer, dict) else answer
        try:
            found = {int(item["index"]): float(item.get("relevance_score", item.get("score"))) for item in items}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"{self._url} did not answer in the form of a re-ranker") from error
        if len(found) != len(items) or not set(found) <= set(range(len(passages))):
            raise ModelError(f"{self._url} gave scores for documents that were not sent, or two for one")
        if len(found) != len(passages):
            raise ModelError(f"{self._url} gave {len(found)} scores for {len(passages)} documents")
        return checked_scores([found[place] for place in range(len(passages))], len(passages), self.name)

    def describe(self) -> Mapping[str, object]:
        """Model and cut; not the address, which does not change the scores."""
        return {"family": "http", "model": self.name, "max_chars": self._max_chars}
