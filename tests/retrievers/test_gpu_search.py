"""Search where torch selects, on its CPU device: the same bits as without it, whatever the rows look like."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from packages import package

torch = package("torch")
stand_in_gpu = package("stand_in_gpu")


from airgen.compute.exact_arithmetic import inner_products
from airgen.errors import ModelError
from airgen.retrievers import Hits, Passages
from airgen.retrievers.dense import gpu_search, retriever
from airgen.retrievers.dense.exact_search import search
from airgen.retrievers.dense.gpu_search import GpuRows, GpuTokens, folded, gpu_for
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.late import compressed_index, maxsim
from airgen.retrievers.late.compressed_index import token_rows
from airgen.retrievers.late.maxsim import LateInteraction, MaxSim, maxsims
from airgen.retrievers.top_k import top_k


def rows_of(kind: str, count: int, dim: int, draw: np.random.Generator) -> NDArray[Any]:
    rows = draw.standard_normal((count, dim)).astype(np.float32)
    if kind == "equal":  # many ties, which are in the order of position
        rows = rows[draw.integers(0, 5, count)]
    if kind == "near":  # they differ by less than a product in fp32 is off
        rows = np.ones((count, dim), np.float32) + draw.standard_normal((count, dim)).astype(np.float32) * 1e-4
    if kind == "zeros":
        rows[::2] = 0
    if kind == "long":
        return rows * np.float32(3e4) / np.float32(np.abs(rows).max())
    if kind == "huge":  # products overflow fp32
        return rows * np.float32(1e25)
    if kind == "tiny":
        return rows * np.float32(1e-30)
    return rows if kind == "fp32" else rows.astype(np.float16)


def both(matrix: NDArray[Any], queries: NDArray[np.float32], k: int, **more: Any) -> tuple[Hits, Hits, int]:
    """The hits with torch and without it, and how many queries were left to the CPU."""
    expected = search(matrix, queries, k, **more)
    hits, doubtful = GpuRows(matrix, "cpu", **more).search(queries, k)
    if len(doubtful):
        again = search(matrix, queries[doubtful], k, **more)
        hits.positions[doubtful], hits.scores[doubtful] = again.positions, again.scores
    return hits, expected, len(doubtful)


@pytest.mark.parametrize("kind", ["usual", "fp32", "equal", "near", "zeros", "long", "huge", "tiny"])
@pytest.mark.parametrize(("count", "dim", "k"), [(3000, 48, 20), (700, 7, 700), (40, 33, 100), (5000, 1, 3)])
def test_the_hits_have_the_bits_of_the_cpu(kind: str, count: int, dim: int, k: int) -> None:
    draw = np.random.default_rng(count + dim)
    matrix = rows_of(kind, count, dim, draw)
    queries = draw.standard_normal((9, dim)).astype(np.float32)
    queries[4] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        hits, expected, left = both(matrix, queries, k)
    np.testing.assert_array_equal(hits.positions, expected.positions)
    assert hits.scores.tobytes() == expected.scores.tobytes()
    if kind == "usual" and count == 3000:
        assert left <= 1  # the query of zeros, whose scores are all equal


def test_blocks_and_a_choice_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    matrix = draw.standard_normal((2000, 24)).astype(np.float16)
    queries = draw.standard_normal((30, 24)).astype(np.float32)
    some = np.sort(draw.choice(2000, 1500, replace=False))
    whole, expected, _ = both(matrix, queries, 50, rows=some)
    monkeypatch.setattr(gpu_search, "_PRODUCTS", 4000)
    monkeypatch.setattr(gpu_search, "_TERMS", 3000)
    parts, _, _ = both(matrix, queries, 50, rows=some)
    for hits in (whole, parts):
        np.testing.assert_array_equal(hits.positions, expected.positions)
        assert hits.scores.tobytes() == expected.scores.tobytes()


def test_a_row_that_is_no_number_is_named() -> None:
    matrix = np.zeros((50, 4), np.float16)
    matrix[37, 2] = np.nan
    with pytest.raises(ModelError, match="the embedding at position 37 contains NaN or infinity"):
        GpuRows(matrix, "cpu")


@pytest.mark.parametrize("width", [0, 1, 2, 3, 7, 64, 383, 384])
def test_sums_are_folded_as_on_the_cpu(width: int) -> None:
    draw = np.random.default_rng(width)
    left, right = draw.standard_normal((2, 20, width))
    found = folded(torch.from_numpy(left * right)).numpy()
    assert found.tobytes() == inner_products(left, right).tobytes()


class _Embedder:
    name, dim = "drawn", 16

    def encode(self, texts: Any, kind: str) -> NDArray[np.float32]:
        draw = np.random.default_rng([len(text) for text in texts])
        vectors = draw.standard_normal((len(texts), self.dim)).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def token_vectors(self, texts: Any, kind: str) -> list[NDArray[np.float32]]:
        draw = np.random.default_rng([len(text) for text in texts])
        found = [draw.standard_normal((1 + len(text) % 9, self.dim)).astype(np.float32) for text in texts]
        return [array / np.linalg.norm(array, axis=1, keepdims=True) for array in found]

    def describe(self) -> dict[str, object]:
        return {"drawn": 16}


TEXTS = [f"text {'x' * (number % 50)} {number}" for number in range(400)]
CORPUS = Passages([str(number) for number in range(400)], TEXTS)


def test_dense_search_uses_a_gpu_that_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    system = Dense(_Embedder())
    system.index(CORPUS)
    expected = system.search(TEXTS[:7], 30)
    assert system._there is None
    monkeypatch.setattr(retriever, "gpu_for", lambda numbers, item: "cpu" if (numbers, item) == (6400, 4) else None)
    hits = system.search(TEXTS[:7], 30)
    assert system._there is not None and len(system._there) == 400
    np.testing.assert_array_equal(hits.positions, expected.positions)
    assert hits.scores.tobytes() == expected.scores.tobytes()
    system.release()
    assert system._there is None
    with pytest.raises(ModelError, match="k is 0"):
        system.search(TEXTS[:1], 0)


def test_maxsim_has_the_bits_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    system = LateInteraction(_Embedder())
    system.index(CORPUS)
    expected = system.search(TEXTS[:7], 30)
    monkeypatch.setattr(maxsim, "gpu_for", lambda numbers, item: "cpu")
    for terms in (1 << 26, 100):
        monkeypatch.setattr(gpu_search, "_TERMS", terms)
        hits = system.search(TEXTS[:7], 30)
        np.testing.assert_array_equal(hits.positions, expected.positions)
        assert hits.scores.tobytes() == expected.scores.tobytes()
    assert system._there is not None
    system.release()
    assert system._there is None
    vectors = [token_rows(one) for one in _Embedder().token_vectors(TEXTS, "passage")]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in vectors])])
    alone = GpuTokens(np.concatenate(vectors), starts, "cpu").scores(vectors[3])
    assert alone.tobytes() == maxsims([vectors[3]], np.concatenate(vectors), starts[:-1])[0].tobytes()


def test_the_re_ranker_has_the_bits_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(TEXTS[place % 3], text) for place, text in enumerate(TEXTS[:60])]
    expected = MaxSim(_Embedder()).score(pairs)
    asked: list[int] = []
    monkeypatch.setattr(maxsim, "gpu_for", lambda numbers, item: asked.append(numbers) or "cpu")
    for terms in (1 << 26, 100):
        monkeypatch.setattr(gpu_search, "_TERMS", terms)
        assert MaxSim(_Embedder()).score(pairs).tobytes() == expected.tobytes()
    assert asked[0] == sum(one.size for one in _Embedder().token_vectors([text for _, text in pairs], "passage"))
    with stand_in_gpu.stand_in_gpus(allocation=10) as gpus:  # passages that do not fit are scored by the CPU
        monkeypatch.setattr(maxsim, "gpu_for", lambda numbers, item: "cuda:0")
        assert MaxSim(_Embedder()).score(pairs).tobytes() == expected.tobytes() and gpus.refused


def test_a_compressed_index_selects_the_same_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where scores are equal: of passages without a probed cell all are."""
    system = LateInteraction(_Embedder(), index="compressed", cache=None)
    system.index(CORPUS)
    index = system._compressed
    assert index is not None
    monkeypatch.setattr(LateInteraction, "candidates", 40)
    for probes in (1, 3, 1 << 20):
        monkeypatch.setattr(LateInteraction, "probes", probes)
        monkeypatch.setattr(compressed_index, "gpu_for", lambda numbers, item: None)
        system.release()
        expected = system.search(TEXTS[:7], 30)
        assert system._lists is None
        monkeypatch.setattr(compressed_index, "gpu_for", lambda numbers, item: "cpu")
        for terms in (1 << 26, 500):
            monkeypatch.setattr(gpu_search, "_TERMS", terms)
            hits = system.search(TEXTS[:7], 30)
            np.testing.assert_array_equal(hits.positions, expected.positions)
            assert hits.scores.tobytes() == expected.scores.tobytes()
    centroids = index.codec.centroids.astype(np.float64)
    for text in TEXTS[:20]:
        query = token_rows(_Embedder().token_vectors([text], "query")[0]).astype(np.float64)
        cells = (centroids @ query.T).astype(np.float32)
        for most in (1, 39, 399):
            wanted = np.sort(top_k(index._approximate_scores(cells, 2), most)[0])
            np.testing.assert_array_equal(system._lists.best(cells, 2, most), wanted)
    system.release()
    assert system._lists is None


def test_when_the_gpu_searches() -> None:
    assert gpu_for(1 << 30, 2) is None or torch.cuda.is_available()
    with stand_in_gpu.stand_in_gpus(memory=8 << 30):
        assert gpu_for(1 << 24, 2) == "cuda:0"
        assert gpu_for(1000, 2) is None  # it is sooner done than sent
        assert gpu_for(1 << 31, 2) is None  # it would take more than its share


def test_rows_that_do_not_fit_are_searched_by_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    system = Dense(_Embedder())
    system.index(CORPUS)
    expected = system.search(TEXTS[:7], 30)
    monkeypatch.setattr(retriever, "gpu_for", lambda numbers, item: "cuda:0")
    with stand_in_gpu.stand_in_gpus(allocation=1000) as gpus:
        hits = system.search(TEXTS[:7], 30)
        assert gpus.refused and gpus.emptied and system._there is None
    np.testing.assert_array_equal(hits.positions, expected.positions)
