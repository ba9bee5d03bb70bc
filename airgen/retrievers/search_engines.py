"""Search engines as systems: Qdrant and Chroma for vector search, Meilisearch and Typesense for keyword search.

    - {name: qdrant, kind: qdrant, url: "http://localhost:6333", embedder: bge-small-en-int8}
    - {name: meilisearch, kind: meilisearch, url: "http://localhost:7700", api_key_env: MEILI_KEY}

The name of an index is a hash of its contents: engine, passages, language, embedder and `index_settings`. It is
therefore built once and reused by later runs, an interrupted build is continued, and any change creates a new index.
airgen never deletes an index. Documents are identified by their positions in the corpus, so the index contains no ids
of the dataset.

The vectors are computed by airgen, so a vector engine differs from `kind: dense` with the same embedder only in the
passages that its index misses, whose share is measured (`ann_recall`).
"""

import contextlib
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.components.keys import content_key
from airgen.errors import ModelError, UsageError
from airgen.net.http import HttpFailure, as_json
from airgen.retrievers.dense.ann_index import near_share
from airgen.retrievers.dense.retriever import Dense, EmbedderSettings
from airgen.retrievers.endpoints import Remote
from airgen.retrievers.hits import Hits
from airgen.retrievers.model_facts import ModelFacts
from airgen.retrievers.passages import Passages, non_empty
from airgen.retrievers.protocols import Embedder
from airgen.settings.base import SPEED
from airgen.settings.http import Address

_REQUEST_PASSAGES = 250  # passages sent in one request
_WINDOW_PASSAGES = 1000  # all indexed before the next ones are sent, so an interrupted index ends at a window
_POLL_SECONDS = 0.1  # seconds between two polls of a server that is still working
_PAGE_HITS = 250  # the maximum that Typesense returns per page
_RECALL_DEPTH = 10  # nearest passages per query that `ann_recall` looks for
_GONE = ": if its index was deleted, run again to index the passages"
NO_INDEX = "no_index"
"""The code of a ModelError of a server that no longer has the index."""

ScoredPlaces = list[tuple[int, float]]
"""(position in the corpus, score) of each hit, best first."""


class SearchEngine(Remote):
    """Base class of all engines. A subclass defines the requests, which it sends with `_call`."""

    class Settings(Remote.Settings):
        """Settings of a search engine.

        Attributes:
            index_settings: Added to the request that creates the index.
            search_settings: Added to search requests.
        """

        url: Annotated[Address, SPEED]
        index_settings: dict[str, Any] = Field(default={})
        search_settings: dict[str, Any] = Field(default={})

    settings: Settings
    engine: ClassVar[str]
    _dense: Dense | None = None
    _vectors: NDArray[np.float32] | None = None  # vectors of the latest queries
    _index = ""
    _server_version: str | None = None  # the version of the server, once it is known

    def set_up(self) -> None:
        self.name = self.engine
        self._url = self.settings.url.rstrip("/")
        self._size = 0

    def _call(self, method: str, path: str, body: Any = None, *, missing: Any = None) -> Any:
        """Return the server's answer. Raises ModelError.

        Args:
            method: HTTP method.
            path: Path below the server's address.
            body: JSON value, or bytes.
            missing: What to return for status 404, or None if 404 is an error.
        """
        try:
            return self._client.ask(self._url + path, body, method=method)
        except HttpFailure as failure:
            if failure.status == 404 and missing is not None:
                return missing
            gone = failure.status == 404
            code = NO_INDEX if gone else failure.code
            words = f"{self.engine}: {self._url}{path} {failure}{_GONE * gone}"
            raise ModelError(words, code=code, where=self._url) from None

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        """Raise ModelError if a response lacks something or has a value of the wrong type."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            words = f"{type(error).__name__} {str(error)[:100]}"
            raise ModelError(
                f"{self.engine}: {self._url} responded in an unknown format ({words}): check that it is "
                f"{self.engine}, in a version that airgen supports",
                code="unknown_format",
                where=self._url,
            ) from error

    def index(self, corpus: Passages) -> None:
        """Build the server's index, unless it already exists and is complete. Raises ModelError if the server
        refuses."""
        size = self._size = len(non_empty(corpus))
        if self._dense:
            self._dense.progress = self.progress
            self._dense.index(corpus)
        identity = content_key([self.engine, corpus.language, self._model(), self.settings.index_settings])
        digest = hashlib.sha256(identity.encode())
        for place in range(size):
            digest.update(as_json(_fields(corpus, place)))
        self._index = f"airgen-{digest.hexdigest()[:24]}"
        with self._understood():
            self._server_version = self._version()
            indexed = self._prepared(corpus)
            # If the index lost passages, they are in its last window, so that window is sent again.
            first = size if indexed >= size else indexed // _WINDOW_PASSAGES * _WINDOW_PASSAGES
            for start in range(first, size, _WINDOW_PASSAGES):
                end = min(start + _WINDOW_PASSAGES, size)
                parts = [
                    range(place, min(place + _REQUEST_PASSAGES, end)) for place in range(start, end, _REQUEST_PASSAGES)
                ]
                self._client.ask_all(lambda part: self._add(corpus, part), parts)
                self._settle()
                if self.progress:
                    self.progress(end, size)
            if (indexed := self._prepared(corpus)) != size:
                raise ModelError(
                    f"{self.engine}: {self._url} holds {indexed:,} of {size:,} passages in {self._index}: delete this "
                    "index there, and run again"
                )

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the engine's hits.

        Args:
            queries: n queries.
            k: Number of hits per query.

        Returns:
            The hits, with arrays of shape (n, k).

        Raises:
            UsageError: `index` has not been called.
            ModelError: The request failed, or the index no longer exists.
        """
        self.indexed(self._index or None)
        requests: list[Any] = list(queries)
        if self._dense:
            self._vectors = self._dense.embedder.encode(requests, "query")
            requests = self._vectors.tolist()
        hits = Hits.none(len(requests), k)
        with self._understood():
            for row, results in enumerate(self._client.ask_all(lambda query: self._ask(query, k), requests)):
                best = dict(results[:k])
                outside = [place for place in best if not 0 <= place < self._size]
                if len(best) < len(results[:k]) or outside:
                    raise ValueError(f"passage {outside[0]} of {self._size}" if outside else "a passage twice")
                hits.put(row, np.array([*best], np.int32), np.array([*best.values()], np.float32))
        return hits

    def ann_recall(self, queries: Sequence[str], hits: Hits) -> float | None:
        """Return the share of the exact 10 nearest passages that are among the first 10 hits."""
        if self._dense is None or not queries:
            return None
        vectors = self._vectors  # of the search that gave the hits: an embedder of a service is paid once
        if vectors is None or len(vectors) != len(hits.positions):
            raise UsageError("ann_recall needs the hits of the latest search")
        return near_share(self._dense.nearest(vectors, min(_RECALL_DEPTH, self._size)).positions, hits)

    def describe(self) -> Mapping[str, object]:
        """Return the engine, its version, the embedder, and the settings of index and search."""
        versions = {"version": self._server_version, **self._model()}
        return self.described(self.engine, "index_settings", "search_settings") | versions

    def _model(self) -> dict[str, Any]:
        return {"embedder": dict(self._dense.embedder.describe())} if self._dense else {}

    @property
    def facts(self) -> ModelFacts:
        """Return the facts of the embedder, since the engine runs elsewhere."""
        return self._dense.facts if self._dense else super().facts

    # The requests of each engine. They are called inside `_understood`.

    def _version(self) -> str:
        raise NotImplementedError

    def _prepared(self, corpus: Passages) -> int:
        """Create the index unless it exists, and return the number of passages in it once the server has finished."""
        raise NotImplementedError

    def _add(self, corpus: Passages, places: range) -> None:
        raise NotImplementedError

    def _settle(self) -> None:
        """Wait until the server has finished its work."""

    def _ask(self, query: Any, k: int) -> ScoredPlaces:
        """Return the hits for a text or a vector, best first."""
        raise NotImplementedError


class _VectorEngine(SearchEngine):
    class Settings(SearchEngine.Settings, EmbedderSettings):
        """Settings of a vector engine.

        Attributes:
            embedder: The model that computes the vectors.
            cache: Folder in which to cache them.
        """

    settings: Settings
    embedder: Embedder

    def set_up(self) -> None:
        super().set_up()
        self.name = f"{self.engine} {self.embedder.name}"
        self._dense = Dense(embedder=self.embedder, cache=self.settings.cache, folder=self.folder)

    def _rows(self, places: range) -> list[list[float]]:
        assert self._dense is not None
        rows: list[list[float]] = self._dense.rows(places).tolist()
        return rows


class Qdrant(_VectorEngine):
    """A collection in Qdrant (1.10 or newer), which by default searches exactly below 10 MB of vectors.

    index_settings: {optimizers_config: {indexing_threshold: 100}} makes it build its graph; search_settings: {params:
    {hnsw_ef: 256}}.
    """

    engine = "qdrant"

    def _version(self) -> str:
        return str(self._call("GET", "/")["version"])

    def _prepared(self, corpus: Passages) -> int:
        path = f"/collections/{self._index}"
        if not self._call("GET", path, missing={}):
            vectors = {"size": self.embedder.dim, "distance": "Dot"}
            self._call("PUT", path, {"vectors": vectors, **self.settings.index_settings})
        self._settle()
        return int(self._call("POST", f"{path}/points/count", {"exact": True})["result"]["count"])

    def _add(self, corpus: Passages, places: range) -> None:
        points = [{"id": place, "vector": row} for place, row in zip(places, self._rows(places), strict=True)]
        self._call("PUT", f"/collections/{self._index}/points?wait=true", {"points": points})

    def _settle(self) -> None:
        # The status is yellow while the server builds its graph.
        while self._call("GET", f"/collections/{self._index}")["result"]["status"] == "yellow":
            time.sleep(_POLL_SECONDS)

    def _ask(self, query: Any, k: int) -> ScoredPlaces:
        body = {"query": query, "limit": k, **self.settings.search_settings}
        answer = self._call("POST", f"/collections/{self._index}/points/query", body)
        return [(int(point["id"]), float(point["score"])) for point in answer["result"]["points"]]


class Chroma(_VectorEngine):
    """A collection in Chroma (1.0 or newer). Example: index_settings: {hnsw: {ef_search: 200}}."""

    class Settings(_VectorEngine.Settings):
        """Settings of Chroma.

        Attributes:
            tenant: The tenant in which the collection is created.
            database: The database in which the collection is created.
        """

        tenant: Annotated[str, SPEED] = Field(default="default_tenant", pattern=r"^[\w-]+$")
        database: Annotated[str, SPEED] = Field(default="default_database", pattern=r"^[\w-]+$")

    settings: Settings

    engine = "chroma"
    _path = ""  # the path of the collection

    def _version(self) -> str:
        return str(self._call("GET", "/api/v2/version"))

    def _prepared(self, corpus: Passages) -> int:
        configuration = dict(self.settings.index_settings)
        hnsw = {"space": "ip", **configuration.pop("hnsw", {})}
        body = {"name": self._index, "get_or_create": True, "configuration": {"hnsw": hnsw, **configuration}}
        base = f"/api/v2/tenants/{self.settings.tenant}/databases/{self.settings.database}/collections"
        self._path = f"{base}/{self._call('POST', base, body)['id']}"
        return int(self._call("GET", f"{self._path}/count"))

    def _add(self, corpus: Passages, places: range) -> None:
        body = {"ids": [str(place) for place in places], "embeddings": self._rows(places)}
        self._call("POST", f"{self._path}/upsert", body)

    def _ask(self, query: Any, k: int) -> ScoredPlaces:
        body = {"query_embeddings": [query], "n_results": k, "include": ["distances"], **self.settings.search_settings}
        answer = self._call("POST", f"{self._path}/query", body)
        return [(int(id_), -float(far)) for id_, far in zip(answer["ids"][0], answer["distances"][0], strict=True)]


class Meilisearch(SearchEngine):
    """An index in Meilisearch (1.3 or newer), which reads only the first ten words of a query.

    index_settings: {rankingRules: [...]}; search_settings: {matchingStrategy: frequency}. By default it requires all
    words, and drops the last words of a query while it finds too few hits.
    """

    engine = "meilisearch"

    def _version(self) -> str:
        return str(self._call("GET", "/version")["pkgVersion"])

    def _prepared(self, corpus: Passages) -> int:
        path = f"/indexes/{self._index}"
        if not self._call("GET", path, missing={}):
            self._call("POST", "/indexes", {"uid": self._index, "primaryKey": "id"})
        # The run may have been interrupted between these two requests.
        if not self._call("GET", f"{path}/stats", missing={}).get("numberOfDocuments"):
            defaults = {"searchableAttributes": ["title", "text"], "pagination": {"maxTotalHits": 100_000}}
            self._call("PATCH", f"{path}/settings", defaults | self.settings.index_settings)
        self._settle()
        return int(self._call("GET", f"{path}/stats")["numberOfDocuments"])

    def _add(self, corpus: Passages, places: range) -> None:
        rows = [{"id": place, **_fields(corpus, place)} for place in places]
        self._call("POST", f"/indexes/{self._index}/documents", rows)

    def _settle(self) -> None:
        # An index runs its tasks in order, so checking the last one is enough.
        while tasks := self._call("GET", f"/tasks?indexUids={self._index}&limit=1")["results"]:
            last = tasks[0]
            if last["status"] in ("failed", "canceled"):
                reason = (last["error"] or {}).get("message", last["status"])
                raise ModelError(f"{self.engine}: {self._url}: the index {self._index}: {reason}")
            if last["status"] == "succeeded":
                return
            time.sleep(_POLL_SECONDS)

    def _ask(self, query: Any, k: int) -> ScoredPlaces:
        body = {"q": query, "limit": k, "attributesToRetrieve": ["id"], "showRankingScore": True}
        answer = self._call("POST", f"/indexes/{self._index}/search", body | self.settings.search_settings)
        return [(int(hit["id"]), float(hit["_rankingScore"])) for hit in answer["hits"]]


class Typesense(SearchEngine):
    """A collection in Typesense (0.24 or newer). Its key is a header: {X-TYPESENSE-API-KEY: "${NAME}"}.

    search_settings: {drop_tokens_threshold: 100, query_by_weights: "2,1"}. Its scores are large integers, so the ranks
    of the hits are used as scores.
    """

    engine = "typesense"

    def _version(self) -> str:
        return str(self._call("GET", "/debug")["version"])

    def _prepared(self, corpus: Passages) -> int:
        path = f"/collections/{self._index}"
        collection = self._call("GET", path, missing={})
        if not collection:
            locale = {} if corpus.language == "en" else {"locale": corpus.language}
            fields = [{"name": name, "type": "string", **locale} for name in ("title", "text")]
            collection = self._call(
                "POST", "/collections", {"name": self._index, "fields": fields, **self.settings.index_settings}
            )
        return int(collection["num_documents"])

    def _add(self, corpus: Passages, places: range) -> None:
        lines = b"".join(as_json({"id": str(place), **_fields(corpus, place)}) + b"\n" for place in places)
        for answer in self._call("POST", f"/collections/{self._index}/documents/import?action=upsert", lines):
            if not answer["success"]:
                raise ModelError(f"{self.engine}: {self._url}: the index {self._index}: {str(answer['error'])[:300]}")

    def _ask(self, query: Any, k: int) -> ScoredPlaces:
        shared = {
            "collection": self._index,
            "q": query,
            "query_by": "title,text",
            "include_fields": "id",
            "prefix": False,
        }
        size = min(k, _PAGE_HITS)
        pages = [
            {**shared, "per_page": size, "page": page, **self.settings.search_settings}
            for page in range(1, -(-k // size) + 1)
        ]
        results: ScoredPlaces = []
        for page in self._call("POST", "/multi_search", {"searches": pages})["results"]:
            if "error" in page:
                gone = page.get("code") == 404
                words = f"{self.engine}: {self._url}: {self._index}: {str(page['error'])[:300]}{_GONE * gone}"
                raise ModelError(words, code=NO_INDEX if gone else "search", where=self._url)
            results += [(int(hit["document"]["id"]), -float(len(results) + at)) for at, hit in enumerate(page["hits"])]
        return results


def _fields(corpus: Passages, place: int) -> dict[str, str]:
    return {"title": corpus.titles[place] if corpus.titles else "", "text": corpus.texts[place]}
