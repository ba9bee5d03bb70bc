"""Scores candidates by a logistic regression over `FEATURES`, which was fitted on candidates that people read.

The searches run over the corpus as it is when the query is chosen. The choice is kept as the query's row, as the second
passage of a multi-hop query is, so a corpus that grows later changes no query that is there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.pipeline.choice.query_features import DEPTH, Found, features
from airgen.pipeline.choice.weights import score
from airgen.pipeline.control.pool import Pool
from airgen.pipeline.generate import Accepted
from airgen.pipeline.progress import Display
from airgen.pipeline.stage import Lineage, Plan, Scored
from airgen.retrievers import load_embedder
from airgen.retrievers.base import Corpus, Hits, Retriever, watch
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.lexical.bm25 import BM25
from airgen.settings import Pipeline
from airgen.store import Store

__all__ = ["Chooser"]


@dataclass(frozen=True)
class _Index:
    """The searches over one corpus, and the place of each passage in it, by id."""

    corpus: Corpus
    lexical: BM25
    dense: Retriever | None
    order: NDArray[np.int64]
    hashes: NDArray[np.uint64]

    def place(self, id_: str) -> int | None:
        """Where a passage stands in the corpus; None if it is not there."""
        wanted = _hash(id_)
        at = int(np.searchsorted(self.hashes, wanted))
        while at < len(self.hashes) and self.hashes[at] == wanted:
            if self.corpus.ids[int(self.order[at])] == id_:
                return int(self.order[at])
            at += 1
        return None

    def frequencies(self, text: str) -> list[int]:
        """In how many passages each distinct stem of a text stands."""
        return [self.lexical.document_frequency(term) for term in dict.fromkeys(self.lexical.analyser(text))]


def _hash(id_: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=8).digest()))


@dataclass
class Chooser:
    """See the package. Searches one sample's candidates at a time."""

    store: Store
    pipeline: Pipeline
    plan: Plan
    folder: Path | None
    embeddings: Path
    display: Display

    def __post_init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    def prepare(self) -> None:
        """Index the corpus, which the first choice would do otherwise."""
        _ = self._index

    async def __call__(self, lineage: Lineage, texts: Sequence[str]) -> list[Scored]:
        """The score and the features of each text. Raises what the embedding model raises."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._scored, lineage, texts)

    def _scored(self, lineage: Lineage, texts: Sequence[str]) -> list[Scored]:
        index, language = self._index, self.pipeline.query_language
        sources = [place for one in lineage.sources if (place := index.place(one.id)) is not None]
        depth = min(DEPTH, len(index.corpus))
        lexical = index.lexical.search(texts, depth)
        dense = None if index.dense is None else index.dense.search(texts, depth)
        source = ("\n".join(filter(None, (one.title for one in lineage.sources))), "\n".join(
            one.text for one in lineage.sources
        ))  # fmt: skip
        found = []
        for at, text in enumerate(texts):
            others = [other for place, other in enumerate(texts) if place != at]
            values = features(
                text, source, others, language, _found(lexical, at, sources),
                None if dense is None else _found(dense, at, sources), index.frequencies, len(index.corpus),
            )  # fmt: skip
            found.append(Scored(score(values), values))
        return found

    @cached_property
    def _index(self) -> _Index:
        recall = self.pipeline.control.recall
        corpus = Pool.of(self.store, self.plan, Accepted([], [], 0, False)).corpus(self.pipeline.language)
        with self.display.stage("index for the choice", len(corpus)) as bar:
            lexical = BM25()
            lexical.index(corpus)
            dense: Any = None
            if not recall.pools_only:
                dense = Dense(load_embedder(recall.model, self.folder), cache=self.embeddings)
                watch(dense, lambda done, total: bar.advance(done - bar.done))
                dense.index(corpus)
            bar.advance(len(corpus) - bar.done)
        hashes = np.fromiter((_hash(id_) for id_ in corpus.ids), np.uint64, len(corpus))
        order = np.argsort(hashes, kind="stable")
        return _Index(corpus, lexical, dense, order, hashes[order])


def _found(hits: Hits, at: int, sources: Sequence[int]) -> Found:
    return Found.of(hits.positions[at].tolist(), hits.scores[at].astype(float).tolist(), sources)
