from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.retrievers import top_k as topk
from airgen.retrievers.top_k import TopK, pack, top_k, unpack

SCORES = st.lists(st.sampled_from([-2.5, -1.0, -0.0, 0.0, 1e-30, 0.5, 0.5000001, 3.0]), max_size=60)


def oracle(scores: np.ndarray, k: int) -> list[int]:
    return sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:k]


@given(SCORES, st.integers(1, 70))
def test_top_k_is_a_stable_sort(scores: list[float], k: int) -> None:
    array = np.array(scores, np.float32)
    positions, values = top_k(array, k)
    assert positions.tolist() == oracle(array, k)
    assert np.array_equal(values, array[positions])


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1), st.integers(0, 1000))
def test_keys_hold_scores_and_positions(scores: list[float], start: int) -> None:
    array = np.array(scores, np.float32)
    positions, values = unpack(pack(array, start))
    assert positions.tolist() == list(range(start, start + len(array)))
    assert np.array_equal(values, array)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("order", ["random", "ascending", "descending", "equal"])
def test_a_running_top_k_is_that_of_all_at_once(compiled: bool, order: str) -> None:
    if compiled and topk._compiled() is None:
        pytest.skip("numba is not installed")
    rng = np.random.default_rng(5)
    scores = rng.integers(-50, 50, (3, 5000)).astype(np.float32) / 8  # many ties
    if order == "ascending":
        scores.sort(axis=1)
    elif order == "descending":
        scores = -np.sort(-scores, axis=1)
    elif order == "equal":
        scores[:] = 0.25
    best = TopK(3, 7, compiled)
    for start in range(0, 5000, 617):  # capacity is 1,038, so buffers fill and are cleared
        best.feed(np.ascontiguousarray(scores[:, start : start + 617]), start)
    hits = best.hits()
    for row in range(3):
        assert hits.positions[row].tolist() == oracle(scores[row], 7)
        assert np.array_equal(hits.scores[row], scores[row][hits.positions[row]])
