"""The first pass in integers: whatever the vectors are, the result has the bits of the plain way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.errors import AirgenError, ModelError
from airgen.jit import numba_is_installed
from airgen.retrievers.base import Hits
from airgen.retrievers.dense import exact_search as exact
from airgen.retrievers.dense import first_pass
from airgen.retrievers.dense.first_pass import FirstPass
from airgen.retrievers.top_k import TopK

from .conftest import assert_same

pytestmark = pytest.mark.skipif(not numba_is_installed(), reason="numba is not installed")
KINDS = ["random", "same", "near", "zero", "one value", "few levels", "huge", "endless", "small", "denormal"]


def ready(queries: np.ndarray, block: int = 1024) -> FirstPass:
    found = FirstPass.ready(queries, block)
    if found is None:
        pytest.skip("this machine has no exact product of integers, or a BLAS of another order")
    return found


def a_vector(kind: str, base: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    dim = len(base)
    match kind:
        case "same":
            return base
        case "near":  # its neighbour in one value
            found = base.copy()
            place = draw.integers(dim)
            found[place] = np.nextafter(found[place], np.float32(draw.choice([-9, 9])))
            return found
        case "zero":
            return np.zeros(dim, np.float32)
        case "one value":  # all other levels round to zero
            return np.where(np.arange(dim) == draw.integers(dim), 1, 1e-3 * base).astype(np.float32)
        case "few levels":
            return draw.integers(-1, 2, dim).astype(np.float32)
    size = {"random": 1, "huge": 1e10, "endless": 3e37, "small": 1e-10, "denormal": 1e-41}[kind]
    return (draw.standard_normal(dim) * size).astype(np.float32)


def streamed(rows: np.ndarray, queries: np.ndarray, k: int, first: FirstPass | None, floor: np.ndarray | None) -> Hits:
    best = TopK(len(queries), k, True, floor)
    with np.errstate(all="ignore"):
        exact._stream(best, rows, queries, None, len(rows), 128, True, first)
    return best.hits()


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([1, 5, 24, 64, 130, 384, 700]),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=200),
    st.lists(st.sampled_from([kind for kind in KINDS if kind not in ("endless", "denormal")]), min_size=1, max_size=20),
    st.integers(1, 30),
    st.sampled_from([None, 0.0, 0.5]),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_the_same_bits_as_the_plain_way(
    dim: int, kinds: list[str], asked: list[str], k: int, floor: float | None, halves: bool, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    base = draw.standard_normal(dim).astype(np.float32)
    rows = np.stack([a_vector(kind, base, draw) for kind in kinds])
    if halves:
        rows = np.clip(rows, -60_000, 60_000).astype(np.float16)
    queries = np.stack([a_vector(kind, base, draw) for kind in asked])
    floors = None if floor is None else np.full(len(queries), floor, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_pass, "_CROWDED", 1)  # no block goes the plain way
        patch.setattr(exact, "_BLOCK", 16)
        assert_same(streamed(rows, queries, k, ready(queries, 16), floors), streamed(rows, queries, k, None, floors))


def vectors(count: int, dim: int, seed: int) -> np.ndarray:
    found = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found


@pytest.mark.parametrize("dim", [384, 768])
def test_a_search_scores_few_pairs_and_finds_the_same(monkeypatch: pytest.MonkeyPatch, dim: int) -> None:
    rows, queries = vectors(40_000, dim, 0).astype(np.float16), vectors(100, dim, 1)
    ready(queries)
    order = np.random.default_rng(2).permutation(40_000)
    plain = exact.search(rows, queries, 200, rows=order)
    offered = []

    def offer(self: TopK, pairs: np.ndarray, *given: object) -> None:
        offered.append(len(pairs))
        original(self, pairs, *given)  # type: ignore[arg-type]

    original = TopK.offer
    monkeypatch.setattr(TopK, "offer", offer)
    monkeypatch.setattr(exact, "_COMPILE_FROM", 0)
    monkeypatch.setattr(exact, "_FIRST_PASS_FROM", 0)
    assert_same(exact.search(rows, queries, 200, rows=order), plain)
    assert 100 * 200 <= sum(offered) < 40_000 * 100 * 0.02  # exact scores


def test_where_all_rows_are_near_the_plain_way_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.repeat(vectors(2, 24, 0), 20_000, axis=0)
    queries = vectors(70, 24, 1)
    first = ready(queries)
    plain = streamed(rows, queries, 10, None, None)
    assert_same(streamed(rows, queries, 10, first, None), plain)
    assert not first.pays
    assert first._blocks < 20  # of 313


def test_vectors_out_of_range_and_broken_products_have_no_first_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = vectors(3, 24, 0)
    ready(queries)
    for size in (1e-20, 1e20):
        queries[1] = size
        assert FirstPass.ready(queries, 16) is None
    queries[1] = 0
    assert FirstPass.ready(queries, 16) is not None

    def saturating(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:  # as AVX2 does it
        pairs = rows[:, :, None].astype(np.int32) * columns
        return np.asarray(np.clip(pairs[:, ::2] + pairs[:, 1::2], -32768, 32767).sum(axis=1))

    monkeypatch.setattr(first_pass, "_product", saturating)
    first_pass._product_is_exact.cache_clear()
    assert FirstPass.ready(queries, 16) is None
    first_pass._product_is_exact.cache_clear()


def test_a_runtime_that_cannot_be_loaded_is_no_first_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    ready(vectors(3, 24, 0))

    def broken(*given: str) -> None:
        raise AirgenError("onnxruntime is installed but cannot be imported")

    monkeypatch.setattr(first_pass, "load_extra", broken)
    first_pass._session.cache_clear()
    first_pass._product_is_exact.cache_clear()
    assert FirstPass.ready(vectors(3, 24, 0), 16) is None
    first_pass._product_is_exact.cache_clear()


def test_an_order_of_sums_that_is_not_found_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ready(vectors(1, 40, 0))
    first_pass._order.cache_clear()
    monkeypatch.setattr(first_pass, "_stretches", lambda dim, longest, unit: np.array([7, dim]))
    assert first_pass._order(40) is None
    first_pass._order.cache_clear()


def test_a_row_with_nan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = vectors(3, 24, 0)
    for bad in (np.nan, np.inf):
        rows = vectors(200, 24, 1).astype(np.float16)
        rows[150, 3] = bad
        with pytest.raises(ModelError, match="position 150"):
            streamed(rows, queries, 5, ready(queries), None)


def test_finite_rows_whose_sum_overflows_are_searched() -> None:
    rows = np.full((2, 8), 3e37, np.float32)
    rows[1, 0] = -3e37
    assert exact.search(rows, np.full((1, 8), 1e-37, np.float32), 2).positions.tolist() == [[0, 1]]


def test_halves_are_widened_as_numpy_does_it() -> None:
    from airgen.retrievers.dense._first_pass_compiled import widen

    halves = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 64)
    wide = np.empty(halves.shape, np.float32)
    widen(halves, wide)
    wanted = halves.view(np.float16).astype(np.float32)
    number = ~np.isnan(wanted)
    assert np.array_equal(wide.view(np.uint32)[number], wanted.view(np.uint32)[number])
    assert np.isnan(wide[~number]).all()
