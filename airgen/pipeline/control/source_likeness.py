"""Likeness to the source: how similar each recalled document is to the one from which the query was made.

Recall and re-rankers compare a document with the query, as the systems under test do, so their votes favour systems
like themselves. This compares a document with another document, which is known to be relevant. The vectors are those of
the recall, so nothing is encoded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.keys import fingerprint, row_key
from airgen.pipeline.control.set_stage import SetStage, SetWork
from airgen.records import Recall, SourceLikeness
from airgen.retrievers import load_embedder
from airgen.retrievers.dense.embedding_cache import EmbeddingCache, cache_folder

__all__ = ["SOURCE_LIKENESS", "cosines"]

BATCH = 64  # queries whose documents are in memory at once


def cosines(vectors: NDArray[np.floating[Any]], sources: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """The cosine of each vector with the source that is nearest to it, (n,); 0 for a vector of zeros.

    vectors: (n, dim). sources: (m, dim), m at least 1.

    >>> cosines(np.array([[3.0, 4.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])).tolist()
    [0.8, 1.0]
    """
    every, own = (_unit(one.astype(np.float64)) for one in (vectors, sources))
    # Sums of a row are the same however many rows there are; a matrix product's last bits are not.
    nearest: NDArray[np.float64] = np.stack([(every * source).sum(axis=1) for source in own]).max(axis=0)
    return nearest


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return rows / np.where(length > 0, length, 1.0)


def _fingerprint(work: SetWork, model: Any) -> str:
    # A generated query has its source for good; those of a collection's queries are drawn.
    drawn = {"sources": work.sources} if work.scope else {}
    return fingerprint(
        stage="source_likeness", version=1, recall=work.plan["recall"], model=dict(model.describe()), **drawn
    )


def _work(work: SetWork, model: Any, fp: str, pending: Sequence[str]) -> Iterator[list[SourceLikeness]]:
    recalls = work.rows("recall", Recall)
    keys = [key for key in pending if work.sources.get(key)]
    with EmbeddingCache(cache_folder(work.embeddings, model, "passage"), model, "passage") as cache:
        for first in range(0, len(keys), BATCH):
            batch = keys[first : first + BATCH]
            texts = work.full_texts({id_ for key in batch for id_ in (*recalls[key].ids, *work.sources[key])})
            place = dict(zip(texts, cache.rows(list(texts.values()), work.encoding).tolist(), strict=True))
            matrix, rows = cache.matrix(), []
            for key in batch:
                ids, sources = recalls[key].ids, list(work.sources[key])
                vectors, own = (matrix[[place[id_] for id_ in of]] for of in (ids, sources))
                scores = [round(float(score), 6) for score in cosines(vectors, own)]
                rows.append(
                    SourceLikeness(
                        row_key("source_likeness", key, fp), key, fp, 0, model.name, sources, list(ids), scores
                    )
                )
            yield rows


SOURCE_LIKENESS = SetStage(
    "source_likeness", SourceLikeness, "likeness to the source", _fingerprint, _work,
    model=lambda work: load_embedder(work.settings.recall.model, work.folder), note=lambda model: str(model.name),
)  # fmt: skip
"""Only queries with a source get a row: the user's own have none."""
