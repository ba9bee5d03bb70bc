"""Encodings that the steps of one run share: the same figures, and each text is encoded once."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from airgen.retrievers import load_reranker, load_retriever
from airgen.retrievers.component import Component, watch
from airgen.retrievers.dense.onnx_encoder import OnnxEncoder
from airgen.retrievers.encoding_cache import EncodingStore, Memo, reused, shared_encodings
from airgen.retrievers.passages import Passages
from airgen.retrievers.sparse import EmbeddedSplade

from .conftest import QUERIES as LABELLED
from .conftest import assert_same

QUERIES = list(LABELLED)


def test_dense_vectors(minilm: str, corpus: Passages, tmp_path: Path) -> None:
    alone = load_retriever("dense")
    alone.index(corpus)
    with shared_encodings(tmp_path / "embeddings"):
        load_retriever("dense").index(corpus)
        again = load_retriever("dense")
        assert reused() == 0
        again.index(corpus)
        assert reused() == len(corpus)
        assert_same(again.search(QUERIES, 5), alone.search(QUERIES, 5))
        dense = load_reranker("dense")
        asked = [(query, corpus.full_text(place)) for query in QUERIES for place in range(len(corpus))]
        hits = again.search(QUERIES, len(corpus))
        np.testing.assert_array_equal(np.sort(dense.score(asked).reshape(len(QUERIES), -1))[:, ::-1], hits.scores)
        assert reused() == 2 * len(corpus)  # what recall encoded
    with shared_encodings(tmp_path / "embeddings"):  # a later process of the same job
        load_retriever("dense").index(corpus)
        assert reused() == len(corpus)


def test_memory_is_bounded() -> None:
    asked: list[str] = []

    def encode(texts: Sequence[str], kind: str) -> list[np.ndarray]:
        asked.extend(texts)
        return [np.zeros(10, np.float16) for _ in texts]

    memo = Memo(Component(), encode, "vectors", lambda row: (row,), limit=60)
    for texts in ("abc", "a", "d", "b", "a"):
        assert len(memo(texts, "passage")) == len(texts)
    assert asked == list("abcdb")  # b was the oldest when d came


@pytest.mark.parametrize(
    ("method", "retriever", "reranker"),
    [("token_vectors", "late", "maxsim"), ("encode", "sparse", "splade")],
)
def test_recall_reranking_and_evaluation_encode_a_passage_once(
    minilm: str, splade: str, corpus: Passages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    method: str, retriever: str, reranker: str,
) -> None:  # fmt: skip
    kind = OnnxEncoder if method == "token_vectors" else EmbeddedSplade
    asked: list[str] = []
    plain = getattr(kind, method)

    def counted(self: object, texts: Sequence[str], kind: str) -> object:
        asked.extend(texts if kind == "passage" else ())
        return plain(self, texts, kind)

    monkeypatch.setattr(kind, method, counted)
    pairs = [(query, text) for query in QUERIES for text in corpus.texts]
    alone = load_retriever(retriever)
    alone.index(corpus)
    wanted, scores = alone.search(QUERIES, 5), load_reranker(reranker).score(pairs)
    asked.clear()
    for _ in range(2):  # the second time simulates a later process: memory is empty, the disk is not
        with shared_encodings(tmp_path / "shared"):
            np.testing.assert_array_equal(load_reranker(reranker).score(pairs), scores)
            again = load_retriever(retriever)
            again.index(corpus)
            assert_same(again.search(QUERIES, 5), wanted)
            assert reused() > 0
    assert sorted(asked) == sorted(corpus.texts)
    with shared_encodings(tmp_path / "shared"):
        load_retriever({"kind": retriever, "max_length": 8}).index(corpus)
        assert reused() == 0  # another description: nothing is taken over
    again.index(corpus)
    assert reused() == 0  # and nothing outside
    asked.clear()
    for _ in range(2):  # the same by a setting
        first = load_retriever({"kind": retriever, "cache": str(tmp_path / "own")})
        first.index(corpus)
        assert_same(first.search(QUERIES, 5), wanted)
        second = load_reranker({"kind": reranker, "cache": str(tmp_path / "own")})
        np.testing.assert_array_equal(second.score(pairs), scores)
    assert sorted(asked) == sorted(corpus.texts)


def test_damage_and_crashes_cost_an_encoding_and_nothing_else(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    made = {name: draw.standard_normal((3 + place, 4)).astype(np.float16) for place, name in enumerate("abcd")}
    store = EncodingStore(tmp_path, {"model": "m"}, "tokens", "passage")
    store.keep({name: (made[name],) for name in "ab"})
    store.keep({"c": (made["c"],)})
    folder = store.folder

    def found() -> list[str]:
        again = EncodingStore(tmp_path, {"model": "m"}, "tokens", "passage").find("abcd")
        for name, (array,) in again.items():
            np.testing.assert_array_equal(array, made[name])
        return sorted(again)

    assert found() == ["a", "b", "c"]
    data, keys = (folder / "data.bin").read_bytes(), (folder / "keys.bin").read_bytes()
    (folder / "data.bin").write_bytes(b"x" + data[1:])  # a damaged disk
    assert found() == ["b", "c"]
    EncodingStore(tmp_path, {"model": "m"}, "tokens", "passage").keep({"a": (made["a"],)})
    assert found() == ["a", "b", "c"]
    # Data without its keys, keys that are cut in the middle, and the end of the data is lost.
    for lost, cut in ((0, 36), (0, 5), (20, 0)):
        (folder / "data.bin").write_bytes(data[: len(data) - lost])
        (folder / "keys.bin").write_bytes(keys[: len(keys) - cut])
        assert found() == ["a", "b"]
        EncodingStore(tmp_path, {"model": "m"}, "tokens", "passage").keep({"d": (made["d"],)})
        assert found() == ["a", "b", "d"]


def test_several_arrays_and_a_limit(tmp_path: Path) -> None:
    row = np.array([2, 5], np.int32), np.array([0.5, 1.5], np.float32)
    store = EncodingStore(tmp_path, {"model": "m"}, "rows", "passage")
    store.keep({"full": row, "empty": (row[0][:0], row[1][:0])}, 20)
    terms, weights = store.find(["full"])["full"]
    assert (terms.tolist(), weights.tolist(), terms.dtype, weights.dtype) == ([2, 5], [0.5, 1.5], np.int32, np.float32)
    assert [array.shape for array in store.find(["empty"])["empty"]] == [(0,), (0,)]
    store.keep({"more": row, "too much": row}, 20)
    assert set(store.find(["full", "empty", "more", "too much"])) == {"full", "empty"}


def test_a_reranker_tells_how_many_passages_it_encoded(splade: str) -> None:
    told: list[tuple[int, int]] = []
    reranker = load_reranker("splade")
    watch(reranker, lambda done, total: told.append((done, total)))
    reranker.score([("bees", f"passage {place}") for place in range(70)])
    assert told == [(64, 70), (70, 70)]
