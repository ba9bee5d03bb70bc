"""The loops of `exact_search` for numba. Import this module only if numba is installed and worth loading."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airgen.compute.exact_arithmetic import jit, jit_in_any_order


@jit
def widen(halves: NDArray[np.uint16], wide: NDArray[np.float32]) -> None:
    """Fill `wide` with the values of fp16 numbers given by their bits, ten times as fast as numpy.

    The exponent is moved to its new position and corrected by a multiplication, which also works for subnormal numbers.
    """
    bits = wide.view(np.uint32)
    exponent = np.float32(2.0**112)
    for row in range(halves.shape[0]):
        for place in range(halves.shape[1]):
            size = np.uint32(halves[row, place] & 0x7FFF)
            bits[row, place] = size << np.uint32(13)
            wide[row, place] *= exponent
            endless = np.uint32(0x7F800000) if size >= 0x7C00 else np.uint32(0)  # infinity and NaN
            bits[row, place] |= endless | np.uint32(halves[row, place] & 0x8000) << np.uint32(16)


@jit
def _product(left: NDArray[np.float32], right: NDArray[np.float32], terms: NDArray[np.float64]) -> np.float64:
    """Compute `exact.inner_products` of one pair, with the same additions in the same order.

    `terms` is scratch space of shape (dim,).
    """
    for place in range(len(left)):
        terms[place] = np.float64(left[place]) * np.float64(right[place])
    width = len(left)
    while width > 1:
        half = (width + 1) // 2
        for place in range(width - half):
            terms[place] += terms[half + place]
        width = half
    total: np.float64 = terms[0]
    return total


@jit_in_any_order
def largest_square(rows: NDArray[np.float32]) -> np.float32:
    """Compute the largest squared length of a row in fp32, or NaN or infinity if a sum is."""
    largest = np.float32(0)
    for row in range(rows.shape[0]):
        total = np.float32(0)
        for place in range(rows.shape[1]):
            total += rows[row, place] * rows[row, place]
        if not total <= largest:  # also if it is NaN
            largest = total
            if not total <= np.float32(3.4e38):
                break
    return largest


@jit_in_any_order
def _rough_product(left: NDArray[np.float32], right: NDArray[np.float32]) -> np.float32:
    """Compute an inner product in fp32 in the fastest order, five times as fast as `_product`."""
    total = np.float32(0)
    for place in range(len(left)):
        total += left[place] * right[place]
    return total


@jit
def _add(
    score: np.float32, position: int, keys: NDArray[np.uint64], fill: int, k: int, bits: NDArray[np.uint32]
) -> int:
    """Append the key of one score, keep the k best if the buffer is then full, and return the new fill.

    `bits`, (1,), receives the floor that follows from a clean-up.
    """
    sign = np.uint32(0x80000000)
    low = np.uint64(0xFFFFFFFF)
    floor = bits[0]
    bits.view(np.float32)[0] = score + np.float32(0)  # + 0: -0.0 and 0.0 are the same score
    ordered = ~bits[0] if bits[0] & sign else bits[0] | sign
    keys[fill] = (np.uint64(ordered) << np.uint64(32)) | (low - np.uint64(position))
    bits[0] = floor
    capacity = len(keys)
    if fill + 1 < capacity:
        return fill + 1
    best = np.partition(keys, capacity - k)[capacity - k :]
    keys[:k] = best
    ordered = np.uint32(best.min() >> np.uint64(32))
    bits[0] = ordered & ~sign if ordered & sign else ~ordered
    return k


@jit
def select(
    rough: NDArray[np.float32],
    rows: NDArray[np.float32],
    queries: NDArray[np.float32],
    margin: NDArray[np.float32],
    fine: NDArray[np.float32],
    start: int,
    keys: NDArray[np.uint64],
    fill: NDArray[np.int64],
    floor: NDArray[np.float32],
    k: int,
) -> None:
    """Implement `exact_search._select` with equal results."""
    words = -(-rough.shape[1] // 8)
    mask = np.zeros(words * 8, np.uint8)
    eight = mask.view(np.uint64)
    terms = np.zeros(max(1, rows.shape[1]), np.float64)
    bits = np.empty(1, np.uint32)
    least = bits.view(np.float32)
    for query in range(rough.shape[0]):
        row = rough[query]
        least[0] = floor[query]
        low = least[0] - margin[query]
        coarse = fine[query] < margin[query]  # a product in fp32 is more exact
        n = fill[query]
        for place in range(len(row)):  # without a branch, so it runs in wide registers
            mask[place] = not (row[place] <= low)
        for word in range(words):
            if eight[word]:
                for place in range(8 * word, 8 * word + 8):
                    if mask[place] and not (row[place] <= least[0] - margin[query]):
                        if coarse and _rough_product(rows[place], queries[query]) <= least[0] - fine[query]:
                            continue
                        score = np.float32(_product(rows[place], queries[query], terms))
                        if score > least[0]:
                            n = _add(score, start + place, keys=keys[query], fill=n, k=k, bits=bits)
        fill[query] = n
        floor[query] = least[0]


@jit
def rescore(
    rows: NDArray[np.float32],
    queries: NDArray[np.float32],
    places: NDArray[np.int64],
    rough: NDArray[np.float32],
    low: NDArray[np.float32],
    scores: NDArray[np.float32],
) -> None:
    """Fill `scores` with the exact scores of the rows at `places`, (m, k), whose approximate product is above `low`,
    (m,)."""
    terms = np.zeros(max(1, rows.shape[1]), np.float64)
    for query in range(places.shape[0]):
        for at in range(places.shape[1]):
            if rough[query, at] > low[query]:
                scores[query, at] = np.float32(_product(rows[places[query, at]], queries[query], terms))
