"""Check whether a generated query retrieves its source.

This is checked for the drafts of a query and, if votes are the labels, for every final query before it is accepted.

find = RoundTrip(store, pipeline, plan, embeddings, display)
leads = await find(lineage, ["what bends a wing", "wing load"], 20)      # one lead per query

The recall's embedding model retrieves candidates for the query, and every re-ranker must rank the source above them,
because another passage would fit a vague query better. If votes are the labels, the result is yes or no. Most drafts
are rejected by an embedding model, whose vectors already exist, so it comes first, and a cross-encoder reads only the
remaining drafts. The result does not depend on `relevance`, so labels for the other value need no new calls. It is
saved in the query's rows, so a corpus that grows later does not change existing queries.

If a passage has a near copy, hardly any query distinguishes the two. Therefore, before an LLM is asked, the passage
itself is used as the query (`apart`). Of 93 passages in four collections, 12 had a lead below `LEAST_APART`; 9 of these
12 failed with every query, but only 7 of the other 81.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from airgen.retrievers import load_embedder, load_reranker
from airgen.retrievers.component import watch
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.passages import Passages
from airgen.retrievers.protocols import Retriever, show_corpus
from airgen.retrievers.rerank import DenseReranker
from airgen.safety.interruptible import stop_if_asked
from airgen.settings import Pipeline
from airgen.steps.accepted import Accepted
from airgen.steps.kept_scores import KeptScores
from airgen.steps.lineage import Lineage
from airgen.steps.progress import Display
from airgen.steps.step import Plan
from airgen.steps.text_pool import Pool
from airgen.steps.votes import DEPTH, lead
from airgen.storage.records import flat_text
from airgen.storage.sequences import batched
from airgen.storage.store import Store

PAIRS_AT_ONCE = 8
"""Number of pairs that a re-ranker reads before it is known whether another passage is ahead of the source."""


@dataclass
class RoundTrip:
    """Measures how far each query's source is ahead of other passages, one sample at a time."""

    store: Store
    pipeline: Pipeline
    plan: Plan
    embeddings: Path
    display: Display
    scores: KeptScores = field(default_factory=KeptScores)

    def __post_init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._known: dict[tuple[str, str, int], float] = {}  # a rewrite is tested again as the final query

    def prepare(self) -> None:
        """Index the corpus now rather than at the first query."""
        _ = self._search, self._voters

    async def apart(self, lineage: Lineage) -> float:
        """Return the lead of the sample's passage over all others with its own text as the query, by the embedders.

        It is 1 if there is no embedder or if the sample has several passages. Raises the models' errors.
        """
        if len(lineage.sources) > 1:
            return 1.0
        async with self._one_at_a_time:
            texts = [flat_text(passage.title, passage.text) for passage in lineage.sources]
            (least,) = await asyncio.to_thread(self._leads, lineage, texts, DEPTH, vectors_only=True)
            return least

    async def __call__(self, lineage: Lineage, texts: Sequence[str], depth: int) -> list[float]:
        """Return how far the source is ahead of `depth` candidates for each text. Raises the models' errors."""
        async with self._one_at_a_time:
            keys = {text: (lineage.sample.key, text, depth) for text in texts}
            if new := [text for text, key in keys.items() if key not in self._known]:
                leads = await asyncio.to_thread(self._leads, lineage, new, depth)
                self._known |= {keys[text]: value for text, value in zip(new, leads, strict=True)}
            return [self._known[keys[text]] for text in texts]

    def _leads(self, lineage: Lineage, texts: Sequence[str], depth: int, *, vectors_only: bool = False) -> list[float]:
        corpus, search = self._search
        depth = min(depth, self.pipeline.control.recall.top_k, len(corpus))
        hits = search.search(texts, depth)
        own, leads = {passage.id: flat_text(passage.title, passage.text) for passage in lineage.sources}, []
        for text, positions in zip(texts, hits.positions, strict=True):
            near = [int(place) for place in positions if place >= 0 and corpus.ids[place] not in own]
            passages = corpus.full_texts_at(near)
            pairs = [(text, passage) for passage in (*own.values(), *map(passages.__getitem__, near))]
            ids = [*own, *(corpus.ids[place] for place in near)]
            least = 1.0
            for place, voter in self._voters:
                if vectors_only and not isinstance(voter, DenseReranker):
                    break  # vector re-rankers come first
                scores = self._read(place, voter, pairs, own=len(own))
                least = min(least, lead(scores, ids[: len(scores)], own))
                if least < 0 and self._votes:
                    break
            leads.append(least)
        return leads

    def _read(self, place: int, voter: Any, pairs: Sequence[tuple[str, str]], *, own: int) -> list[float]:
        """Return a voter's scores of the pairs, of which the first `own` are the sources.

        If only retrieving the source counts, a voter that reads pair by pair stops soon after another passage is ahead
        of the source. The nearest passages come first, so this usually takes a few pairs.
        """
        by_pair = getattr(voter, "alone", False) and not isinstance(voter, DenseReranker)
        at_once = PAIRS_AT_ONCE if self._votes and by_pair else len(pairs)
        scores: list[float] = []
        for some in batched(pairs, at_once):
            given = voter.score(some)
            self.scores.keep(place, voter, some, given)
            scores += np.asarray(given, np.float64).round(6).tolist()
            if max(scores[own:], default=-math.inf) > min(scores[:own]):
                break
        return scores

    @property
    def _votes(self) -> bool:
        """Return whether only retrieving the source counts, rather than its lead."""
        return not self.pipeline.control.judge.members

    @cached_property
    def _search(self) -> tuple[Passages, Retriever]:
        recall = self.pipeline.control.recall
        corpus = Pool.of(self.store, self.plan, Accepted([], [], 0, False)).corpus(self.pipeline.language)
        with self.display.stage("index for the round trip", len(corpus)) as bar:
            search: Any = BM25()
            if not recall.pools_only:
                search = Dense(load_embedder(recall.model), cache=self.embeddings)

                def tell(done: int, total: int) -> None:
                    stop_if_asked()
                    bar.advance(done - bar.done)

                watch(search, tell)
            search.index(corpus)
            bar.advance(len(corpus) - bar.done)
        return corpus, search

    @cached_property
    def _voters(self) -> list[tuple[int, Any]]:
        """Each re-ranker with its place in the pipeline, those of vectors first."""
        rerankers = [load_reranker(spec) for spec in self.pipeline.control.rerankers]
        for reranker in rerankers:
            show_corpus(reranker, self._search[0])
        return sorted(enumerate(rerankers), key=lambda voter: not isinstance(voter[1], DenseReranker))
