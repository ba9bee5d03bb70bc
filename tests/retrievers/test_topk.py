from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from airgen.retrievers.base import pack, top_k, unpack

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
