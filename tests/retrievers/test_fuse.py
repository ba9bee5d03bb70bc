"""Fusion, RM3 and LSA on worked examples."""

import numpy as np
import pytest

from airgen.errors import UsageError
from airgen.retrievers.combine import Fused, RerankedRetriever, reciprocal_rank_fusion, weighted_sum
from airgen.retrievers.dense.lsa import LSA
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical.bm25 import BM25, RM3
from airgen.retrievers.passages import Passages

INF = -np.inf


def hits(positions: list[list[int]], scores: list[list[float]]) -> Hits:
    return Hits(np.array(positions, np.int32), np.array(scores, np.float32))


FIRST = hits([[3, 1, 2], [5, -1, -1]], [[9, 5, 1], [2, INF, INF]])
SECOND = hits([[1, 4], [-1, -1]], [[0.5, 0.25], [INF, INF]])


def test_reciprocal_rank_fusion() -> None:
    fused = reciprocal_rank_fusion([FIRST, SECOND], 5)
    assert fused.positions.tolist() == [[1, 3, 4, 2, -1], [5, -1, -1, -1, -1]]
    np.testing.assert_allclose(fused.scores[0, :4], [1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63], rtol=1e-6)
    weighted = reciprocal_rank_fusion([FIRST, SECOND], 1, constant=0, weights=[1, 10])
    assert weighted.scores.tolist() == [[10.5], [1.0]]
    ties = reciprocal_rank_fusion([hits([[9, 2]], [[2, 1]]), hits([[2, 9]], [[2, 1]])], 2)
    assert ties.positions.tolist() == [[2, 9]]  # by position


def test_weighted_sum() -> None:
    fused = weighted_sum([FIRST, SECOND], 4, [1, 2])
    assert fused.positions.tolist() == [[1, 3, 2, 4], [5, -1, -1, -1]]
    np.testing.assert_allclose(fused.scores[0], [0.5 + 2, 1, 0, 0])
    plain = weighted_sum([FIRST, SECOND], 2, normalisation="none")
    assert plain.scores[0].tolist() == [9, 5.5]
    standard = weighted_sum([FIRST, FIRST], 3, normalisation="z-score")
    deviation = np.sqrt(32 / 3)  # scores 9, 5, 1
    np.testing.assert_allclose(standard.scores[0], [16 / deviation, 8 / deviation, 0], rtol=1e-6)
    assert standard.positions[1].tolist() == [5, -1, -1]


def test_wrong_fusions() -> None:
    for wrong in (
        lambda: reciprocal_rank_fusion([], 1),
        lambda: reciprocal_rank_fusion([FIRST, SECOND], 1, weights=[1]),
        lambda: weighted_sum([FIRST, hits([[1]], [[1]])], 1),
        lambda: Fused([BM25()], method="best"),
        lambda: RM3(original_weight=2),
        lambda: RM3(LSA()),
        lambda: RerankedRetriever(BM25(), "bm25", top=0),
    ):
        with pytest.raises(UsageError):
            wrong()


TEXTS = [
    "cats purr and cats sleep",
    "felines purr loudly at night",
    "dogs bark at night",
    "the stock market fell",
    "felines hunt mice",
    *[f"filler number{n} about topic{n}" for n in range(30)],
]
CORPUS = Passages([str(n) for n in range(len(TEXTS))], TEXTS)


def test_fused_retriever_from_settings() -> None:
    fused = Fused([BM25(), {"kind": "bm25", "k1": 1.2}])
    fused.index(CORPUS)
    assert fused.name == "rrf(bm25, bm25)"
    assert fused.search(["cats purr"], 3).positions.tolist() == [[0, 1, -1]]
    assert fused.describe()["systems"][1]["k1"] == 1.2  # type: ignore[index]


def test_rm3_learns_terms_of_the_best_passages() -> None:
    rm3 = RM3(BM25(), feedback_documents=2)
    rm3.index(CORPUS)
    (query,) = rm3.expand(["purr"])
    assert sum(query.values()) == pytest.approx(1)
    assert set(query) == {"purr", "cat", "sleep", "felin", "loudli", "night"}
    # Both best passages score alike on "purr"; only their terms' shares differ: 2 of 4 cats, 1 of 4 the others.
    bm25 = rm3.first.search(["purr"], 2)
    one, two = bm25.scores[0].tolist()
    assert bm25.positions[0].tolist() == [0, 1]
    assert query["cat"] == pytest.approx(0.5 * (one * 2 / 4) / (one + two))
    assert query["purr"] == pytest.approx(0.5 + 0.5 * 0.25)
    assert 4 in rm3.search(["purr"], 5).positions[0].tolist()  # found only by "felines"


def test_rm3_limits() -> None:
    rm3 = RM3(BM25(), feedback_terms=2, original_weight=1.0)
    rm3.index(CORPUS)
    plain = rm3.first.search(["cats purr"], 5)
    assert rm3.search(["cats purr"], 5).positions.tolist() == plain.positions.tolist()
    assert rm3.expand(["", "unknownword"]) == [{}, {"unknownword": 1.0}]


def test_lsa_joins_words_that_share_company() -> None:
    pytest.importorskip("scipy")
    texts = [
        "car engine motor",
        "automobile engine motor",
        "car motor wheel",
        "automobile wheel engine",
        "banana fruit sweet",
        "apple fruit sweet",
        "banana apple juice",
        "",
    ]
    lsa = LSA(dim=2)
    lsa.index(Passages([str(n) for n in range(8)], texts))
    found = lsa.search(["car", "unknownword"], 4)
    assert set(found.positions[0].tolist()) == {0, 1, 2, 3}  # with "automobile", which never occurs with "car"
    assert found.positions[1].tolist() == [-1] * 4


@pytest.mark.parametrize("shape", [(60, 25), (25, 60)])
@pytest.mark.parametrize("rank", [2, 20])
def test_singular_vectors_are_scikit_learns(shape: tuple[int, int], rank: int) -> None:
    from airgen.retrievers.dense._components_compiled import right_singular_vectors

    sparse = pytest.importorskip("scipy.sparse")
    extmath = pytest.importorskip("sklearn.utils.extmath")
    matrix = sparse.random(*shape, density=0.2, format="csr", random_state=3)
    matrix = sparse.diags(0.8 ** np.arange(shape[0])) @ matrix  # both converge, from whatever they start with
    expected = extmath.randomized_svd(matrix, n_components=rank, random_state=42)[2]
    found = right_singular_vectors(matrix, rank, 42)
    signs = np.sign(np.sum(found * expected, axis=1, keepdims=True))
    np.testing.assert_allclose(found * signs, expected, atol=1e-9)
