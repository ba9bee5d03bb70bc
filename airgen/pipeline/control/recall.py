"""Recall: the embedding model's top k for every query, with those of other retrievers (paper 2.4, step 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airgen.keys import fingerprint, row_key
from airgen.pipeline.control.pool_systems import search_systems, systems_identity
from airgen.pipeline.control.set_stage import SetStage, SetWork
from airgen.records import Recall
from airgen.retrievers import load_embedder, load_retriever
from airgen.retrievers.base import Hits, Retriever, watch
from airgen.retrievers.combine.fuse import reciprocal_rank_fusion
from airgen.retrievers.dense.retriever import Dense


def recall_rows(hits: Hits, queries: Sequence[str], ids: Sequence[str], model: str, fingerprint: str) -> list[Recall]:
    """One row a query from a search's hits; `queries` are keys, `ids` the corpus's ids in its order."""
    rows = []
    for place, key in enumerate(queries):
        positions = hits.positions[place]
        found = int((positions >= 0).sum())
        rows.append(
            Recall(
                row_key("recall", key, fingerprint), key, fingerprint, 0, model,
                [ids[position] for position in positions[:found]],
                [round(float(score), 6) for score in hits.scores[place][:found]],
            )
        )  # fmt: skip
    return rows


def _model(work: SetWork) -> Any:
    settings = work.settings.recall
    return None if settings.pools_only else load_embedder(settings.model, work.folder)


def _fingerprint(work: SetWork, model: Any) -> str:
    systems = work.settings.systems
    return fingerprint(
        stage="recall", version=1, corpus=work.digest, model=dict(model.describe()) if model else {},
        top_k=work.settings.recall.top_k, pools=work.settings.pools,
        systems=None if systems is None else systems_identity(systems, work.folder),
    )  # fmt: skip


def _work(work: SetWork, model: Any, fp: str, pending: Sequence[str]) -> Iterator[list[Recall]]:
    systems: list[tuple[str, Retriever]] = []
    if model is not None:
        systems.append((model.name, Dense(model, cache=work.embeddings)))
    systems += [(one.name, one) for one in (load_retriever(spec, work.folder) for spec in work.settings.pools)]
    depth = min(work.settings.recall.top_k, len(work.corpus.ids))
    found: list[Hits] = []
    for _, system in systems:
        watch(system, work.encoding)
        system.index(work.corpus)
        found.append(system.search([work.queries[key] for key in pending], depth))
    names = [name for name, _ in systems]
    if work.settings.systems is not None:
        texts = {work.names.get(key, key): work.queries[key] for key in pending}
        own = search_systems(work.settings.systems, work.folder, work.corpus, texts, work.name, depth)
        names += [name for name, _ in own]
        found += [hits for _, hits in own]
    fused = len(found) > 1 or work.settings.pools
    hits = reciprocal_rank_fusion(found, depth * len(found)) if fused else found[0]
    yield recall_rows(hits, pending, work.corpus.ids, " + ".join(names), fp)


RECALL = SetStage("recall", Recall, "recall", _fingerprint, _work, _model)
