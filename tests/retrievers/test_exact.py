"""Exact search: equal to exact sums, whatever the memory, the kernel and the order; the k best."""

import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.errors import ModelError
from airgen.retrievers.dense import exact_search as exact
from airgen.retrievers.dense.exact_search import search
from airgen.retrievers.top_k import pack, top_k, unpack

from .conftest import assert_same


def vectors(count: int, dim: int = 24, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_corpus_larger_than_memory_is_read_in_several_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, queries = vectors(150_000).astype(np.float16), vectors(40, seed=2)
    rows.tofile(tmp_path / "rows")
    mapped = np.memmap(tmp_path / "rows", np.float16, "r", shape=rows.shape)
    much = search(rows, queries, 10)
    search(mapped[:2000], queries, 10)  # the compiled loop takes memory where it is loaded
    monkeypatch.setattr(exact, "_CANDIDATE_BYTES", 13_000)  # bytes: 22 queries at once
    tracemalloc.start()
    little = search(mapped, queries, 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < rows.nbytes / 4
    assert_same(little, much)


def test_a_query_alone_gets_the_bits_it_gets_among_others() -> None:
    rows, queries = vectors(3000, 384).astype(np.float16), vectors(70, 384, seed=3)
    together = search(rows, queries, 20)
    for query in (0, 33, 69):
        alone = search(rows, queries[query : query + 1], 20)
        assert np.array_equal(alone.positions[0], together.positions[query])
        assert np.array_equal(alone.scores[0], together.scores[query])


@pytest.mark.parametrize("dim", [1, 33, 384])
def test_the_compiled_way_gives_the_same(monkeypatch: pytest.MonkeyPatch, dim: int) -> None:
    pytest.importorskip("numba")
    rows, queries = vectors(6000, dim), vectors(9, dim, seed=4)
    rows[3000:3100] = rows[:100]
    found = []
    for compiled in (False, True):
        monkeypatch.setattr(exact, "worth_compiling", lambda work, compiled=compiled: compiled)
        found.append(search(rows, queries, 100))
    assert_same(*found)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("order", ["random", "ascending", "descending", "equal"])
def test_a_running_selection_is_that_of_all_at_once(
    monkeypatch: pytest.MonkeyPatch, compiled: bool, order: str
) -> None:
    if compiled:
        pytest.importorskip("numba")
    monkeypatch.setattr(exact, "worth_compiling", lambda work: compiled)
    monkeypatch.setattr(exact, "_CHUNK_ROWS", 617)  # 46 are kept, so buffers fill and are cleared
    scores = np.random.default_rng(5).integers(-50, 50, 5000).astype(np.float32) / 8  # many ties
    if order == "ascending":
        scores.sort()
    elif order == "descending":
        scores = -np.sort(-scores)
    elif order == "equal":
        scores[:] = 0.25
    hits = search(scores[:, None], np.array([[1.0], [-2.0], [0.0]], np.float32), 7)
    for row, factor in enumerate((1, -2, 0)):
        assert hits.positions[row].tolist() == np.argsort(-factor * scores, kind="stable")[:7].tolist()
        assert np.array_equal(hits.scores[row], factor * scores[hits.positions[row]])


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1.0, 1e18, 3e38])
def test_scores_are_the_rounded_true_ones(size: float) -> None:
    rows, queries = vectors(800, 96) * np.float32(size), vectors(4, 96, seed=8)
    rows[400:] = rows[:400]
    hits = search(rows, queries, 40)
    for query in range(4):
        true = np.array(
            [math.fsum(a * b for a, b in zip(row, queries[query].tolist(), strict=True)) for row in rows.tolist()]
        )
        rounded = true.astype(np.float32)
        assert hits.positions[query].tolist() == np.argsort(-rounded, kind="stable")[:40].tolist()
        assert np.array_equal(hits.scores[query], rounded[hits.positions[query]])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40), st.integers(0, 5), st.integers(1, 50), st.integers(0, 1000))
def test_any_shape(count: int, queries: int, k: int, seed: int) -> None:
    # Few distinct rows, so that there are ties.
    rng = np.random.default_rng(seed)
    rows = rng.integers(-1, 2, (count, 4)).astype(np.float16)
    asked = rng.integers(-1, 2, (queries, 4)).astype(np.float32)
    hits = search(rows, asked, k)
    assert hits.positions.shape == hits.scores.shape == (queries, k)
    for query in range(queries):
        scores = rows.astype(np.float32) @ asked[query]
        best = sorted(range(count), key=lambda place: (-scores[place], place))[:k]
        assert hits.positions[query].tolist() == best + [-1] * (k - len(best))
        assert hits.scores[query, len(best) :].tolist() == [-np.inf] * (k - len(best))


def test_faiss_selects_from_no_row_and_from_one() -> None:
    pytest.importorskip("faiss")  # it selects from now on
    for count in (0, 1):
        hits = search(vectors(count), vectors(2, seed=3), 2)
        assert hits.positions.tolist() == [[*range(count), *[-1] * (2 - count)]] * 2


@pytest.mark.parametrize("kind", ["random", "clustered", "equal", "few good"])
def test_a_guessed_threshold_never_shows(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    rows = vectors(3000)
    if kind == "clustered":
        rows[100:400] = rows[100] + 0.05 * rows[100:400]
    elif kind == "equal":
        rows[:] = rows[0]
    elif kind == "few good":  # only in a stretch that a sample can miss
        rows[:, 0] = -5
        rows[1000:1030, 0] = 5
    queries = vectors(20, seed=7)
    queries[:, 0] = np.abs(queries[:, 0])
    plain = search(rows, queries, 30)
    guesses = []

    def watched(*given: object, **named: object) -> np.ndarray:
        guesses.append(original(*given, **named))  # type: ignore[arg-type]
        return guesses[-1]

    original = exact._guess
    monkeypatch.setattr(exact, "_faiss_if_quicker", lambda products, dim: None)  # faiss needs no guess
    monkeypatch.setattr(exact, "_guess", watched)
    monkeypatch.setattr(exact, "_SAMPLE_ROWS", 200)
    monkeypatch.setattr(exact, "_GUESS_FROM_ROWS", 0)
    monkeypatch.setattr(exact, "_FEW_HITS", 0)
    guessed = search(rows, queries, 30)
    assert (guesses[0] > -np.inf).all()
    assert_same(guessed, plain)


def test_rows_in_another_order() -> None:
    rows, queries = vectors(500), vectors(3, seed=5)
    order = np.random.default_rng(0).permutation(500)[:321]
    chosen, plain = search(rows, queries, 12, rows=order), search(rows[order], queries, 12)
    assert_same(chosen, plain)


def test_bad_input() -> None:
    plain, nan, inf = vectors(10), vectors(10), vectors(10)
    nan[7, 3], inf[7, 3] = np.nan, np.inf
    for rows, queries, k, words in (
        (plain, vectors(1, 23), 3, r"\(1, 23\)"),
        (plain, plain[:1], 0, "k is 0"),
        (plain, nan[7:8], 3, "query"),
        (nan, plain[:1], 3, "position 7"),
        (inf, plain[:1], 3, "position 7"),
    ):
        with pytest.raises(ModelError, match=words):
            search(rows, queries, k)


SCORES = st.lists(st.sampled_from([-2.5, -1.0, -0.0, 0.0, 1e-30, 0.5, 0.5000001, 3.0]), max_size=60)


@given(SCORES, st.integers(1, 70))
def test_top_k_is_a_stable_sort(scores: list[float], k: int) -> None:
    array = np.array(scores, np.float32)
    positions, values = top_k(array, k)
    assert positions.tolist() == sorted(range(len(array)), key=lambda place: (-array[place], place))[:k]
    assert np.array_equal(values, array[positions])


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1), st.integers(0, 1000))
def test_keys_hold_scores_and_positions(scores: list[float], start: int) -> None:
    array = np.array(scores, np.float32)
    positions, values = unpack(pack(array, start))
    assert positions.tolist() == list(range(start, start + len(array)))
    assert np.array_equal(values, array)


@given(
    st.integers(0, 10_000), st.sampled_from([1, 3, 24]), st.integers(1, 40), st.sampled_from(["ties", "near", "apart"])
)
@settings(max_examples=60, deadline=None)
def test_candidates_of_faiss_give_the_same_bits(seed: int, dim: int, k: int, how: str) -> None:
    """Also where so many rows are as good as the k-th best that faiss cannot have selected all of them."""
    faiss = pytest.importorskip("faiss")
    draw = np.random.default_rng(seed)
    rows = draw.standard_normal((700, dim)).astype(np.float32)
    if how == "ties":
        rows = draw.integers(-1, 2, (700, dim)).astype(np.float32)
    if how == "near":
        rows = (rows[:1] * (1 + 1e-7 * draw.integers(0, 3, (700, 1)))).astype(np.float32)
    queries = draw.standard_normal((5, dim)).astype(np.float32)
    some = draw.permutation(700)[:333].astype(np.int64)
    hits = []
    for way in (None, faiss):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exact, "_faiss_if_quicker", lambda *_, way=way: way)
            patch.setattr(exact, "_FAISS_ROWS", 100)
            hits.append((search(rows, queries, k), search(rows, queries, k, rows=some)))
    assert_same(hits[0][0], hits[1][0])
    assert_same(hits[0][1], hits[1][1])


@given(
    seed=st.integers(0, 10_000),
    dim=st.sampled_from([1, 3, 24, 100]),
    k=st.integers(1, 60),
    how=st.sampled_from(["ties", "near", "apart", "tiny", "huge"]),
)
@settings(max_examples=60, deadline=None)
def test_products_in_bf16_give_the_same_bits(seed: int, dim: int, k: int, how: str) -> None:
    """Also where rows differ by less than bf16 can tell, and where numbers are lost in it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("numba")
    draw = np.random.default_rng(seed)
    rows = draw.standard_normal((700, dim)).astype(np.float32)
    if how == "ties":
        rows = draw.integers(-1, 2, (700, dim)).astype(np.float32)
    elif how == "near":
        rows = (rows[:1] * (1 + 1e-4 * draw.integers(0, 40, (700, dim)))).astype(np.float32)
    elif how in ("tiny", "huge"):
        rows *= np.float32(1e-38 if how == "tiny" else 1e36)
    queries = draw.standard_normal((5, dim)).astype(np.float32)
    some = draw.permutation(700)[:333].astype(np.int64)
    hits = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_faiss_if_quicker", lambda *_: None)
        patch.setattr(exact, "_CHUNK_ROWS", 100)
        patch.setattr(exact, "_SAMPLE_ROWS", 100)
        for way in (None, torch):
            if way is not None:  # and guess a threshold
                patch.setattr(exact, "_GUESS_FROM_ROWS", 0)
                patch.setattr(exact, "_FEW_HITS", 0)
            for compiled in (True, False):
                patch.setattr(exact, "_torch_if_quicker", lambda *_, way=way: way)
                patch.setattr(exact, "worth_compiling", lambda *_, compiled=compiled: compiled)
                hits.append((search(rows, queries, k), search(rows, queries, k, rows=some)))
    for all_rows, some_rows in hits[1:]:
        assert_same(hits[0][0], all_rows)
        assert_same(hits[0][1], some_rows)


def test_bf16_selects_where_the_processor_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("numba")
    rows, queries = vectors(5000, 64).astype(np.float16), vectors(64, 64, seed=2)
    monkeypatch.setattr(exact, "_TORCH_LEAST", (0, 64, 64))
    monkeypatch.setattr(exact, "worth_compiling", lambda *_: True)
    products, hits = [], []
    usual = torch.mm
    monkeypatch.setattr(torch, "mm", lambda *given, **more: products.append(given[0].dtype) or usual(*given, **more))
    for has_it in (False, True):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has_it=has_it: {"avx512_bf16": has_it})
        hits.append(search(rows, queries, 50))
        assert set(products) == ({torch.bfloat16} if has_it else set())
    assert_same(*hits)
    products.clear()
    search(rows, queries[:63], 50)  # too few queries
    assert products == []
    rows[1234, 3] = np.nan
    with pytest.raises(ModelError, match="the embedding at position 1234 contains NaN"):
        search(rows, queries, 50)


def test_faiss_is_measured_against_the_search_that_would_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial is small, but the search it is for is not: it is compiled, which loads numba if need be."""
    pytest.importorskip("faiss")
    asked: list[int] = []
    monkeypatch.setattr(exact, "worth_compiling", lambda work: asked.append(work) or False)
    monkeypatch.setattr(exact, "_TRIAL", (4, 16_384))
    exact._faiss_is_quicker.cache_clear()
    exact._faiss_is_quicker(8)
    exact._faiss_is_quicker.cache_clear()
    assert asked[0] >= exact.LARGE


def test_faiss_selects_few_hits_and_is_left_out_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    faiss = pytest.importorskip("faiss")
    asked: list[int] = []
    usual = faiss.knn
    monkeypatch.setattr(faiss, "knn", lambda *given, **more: asked.append(given[2]) or usual(*given, **more))
    rows, queries = vectors(3000).astype(np.float16), vectors(7, seed=2)
    search(rows, queries, 10)
    assert asked == [26]
    search(rows, queries, 100)
    assert asked == [26]
    rows[1234, 3] = np.nan
    with pytest.raises(ModelError, match="the embedding at position 1234 contains NaN"):
        search(rows, queries, 10)


def test_numbers_whose_squares_overflow_are_searched_all_the_same() -> None:
    pytest.importorskip("faiss")
    rows = vectors(500) * np.float32(1e25)
    found = search(rows, vectors(3, seed=1), 5)
    assert (found.positions >= 0).all() and np.isfinite(found.scores).all()
