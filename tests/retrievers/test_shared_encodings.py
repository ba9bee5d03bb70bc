"""Encodings that the steps of one run share: the same figures, and each text is encoded once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from airgen.retrievers import load_reranker, load_retriever
from airgen.retrievers.base import Corpus, watch
from airgen.retrievers.shared_encodings import LIMIT, SharedEncodings, reused, shared_encodings

from .conftest import QUERIES as LABELLED
from .conftest import assert_same

QUERIES = list(LABELLED)


def test_a_retriever_takes_over_what_a_reranker_encoded(splade: str, corpus: Corpus, tmp_path: Path) -> None:
    pairs = [(QUERIES[0], text) for text in corpus.texts[:3]]
    alone = load_retriever("sparse")
    alone.index(corpus)
    scores = load_reranker("splade").score(pairs)
    with shared_encodings(tmp_path):
        reranker, retriever = load_reranker("splade"), load_retriever("sparse")
        np.testing.assert_array_equal(reranker.score(pairs), scores)
        assert reused() == 0
        retriever.index(corpus)
        assert reused() == 3
        load_retriever("sparse").index(corpus)
        assert reused() == 3 + len(corpus)
        assert_same(retriever.search(QUERIES, 5), alone.search(QUERIES, 5))
        load_retriever({"kind": "sparse", "model": {"kind": "splade", "max_length": 8}}).index(corpus)
        assert reused() == 3 + len(corpus)  # another description: nothing is taken over
    retriever.index(corpus)
    assert reused() == 0


def test_dense_vectors_and_token_vectors(minilm: str, corpus: Corpus, tmp_path: Path) -> None:
    alone = load_retriever("dense")
    alone.index(corpus)
    pairs = [(query, text) for query in QUERIES for text in corpus.texts]
    scores = load_reranker("maxsim").score(pairs)
    with shared_encodings(tmp_path / "embeddings"):
        load_retriever("dense").index(corpus)
        again = load_retriever("dense")
        assert reused() == 0
        again.index(corpus)
        assert reused() == len(corpus)
        assert_same(again.search(QUERIES, 5), alone.search(QUERIES, 5))
        for _ in range(2):
            np.testing.assert_array_equal(load_reranker("maxsim").score(pairs), scores)
        assert reused() == 2 * len(corpus) + len(QUERIES)
    with shared_encodings(tmp_path / "embeddings"):  # a later process of the same job
        load_retriever("dense").index(corpus)
        assert reused() == len(corpus)


def test_memory_is_bounded(tmp_path: Path) -> None:
    common = SharedEncodings(tmp_path)
    for place in range(4):
        common.keep(("model", str(place)), place, LIMIT // 3)
    assert [common.find(("model", str(place))) for place in range(4)] == [0, 1, 2, None]


@pytest.mark.parametrize("name", ["maxsim", "splade"])
def test_a_reranker_tells_how_many_passages_it_encoded(minilm: str, splade: str, name: str) -> None:
    told: list[tuple[int, int]] = []
    reranker = load_reranker(name)
    watch(reranker, lambda done, total: told.append((done, total)))
    reranker.score([("bees", f"passage {place}") for place in range(70)])
    assert told == [(64, 70), (70, 70)]
