"""The loops of `top_k` for numba. Import this only where numba is installed and the work is worth its loading."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airgen.jit import jit

__all__ = ["collect", "offer"]


@jit
def _add(
    score: np.float32, position: int, keys: NDArray[np.uint64], fill: int, k: int, bits: NDArray[np.uint32]
) -> int:
    """Append one score's key, and keep the k best where the buffer is then full; the new fill.

    `bits`, (1,), holds the floor that follows from a clean-up.
    """
    sign = np.uint32(0x80000000)
    low = np.uint64(0xFFFFFFFF)
    floor = bits[0]
    bits.view(np.float32)[0] = score + np.float32(0)  # + 0: -0.0 and 0.0 are one score
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
def collect(
    scores: NDArray[np.float32],
    start: int,
    keys: NDArray[np.uint64],
    fill: NDArray[np.int64],
    floor: NDArray[np.float32],
    k: int,
) -> None:
    """`top_k._collect`; equal results."""
    words = -(-scores.shape[1] // 8)
    mask = np.zeros(words * 8, np.uint8)
    eight = mask.view(np.uint64)
    bits = np.empty(1, np.uint32)
    least = bits.view(np.float32)
    for query in range(scores.shape[0]):
        row = scores[query]
        least[0] = first = floor[query]
        n = fill[query]
        for place in range(len(row)):  # without a branch: it runs in wide registers
            mask[place] = row[place] > first
        for word in range(words):
            if eight[word]:
                for place in range(8 * word, 8 * word + 8):
                    if mask[place] and row[place] > least[0]:
                        n = _add(row[place], start + place, keys[query], n, k, bits)
        fill[query] = n
        floor[query] = least[0]


@jit
def offer(
    pairs: NDArray[np.int64],
    scores: NDArray[np.float32],
    start: int,
    keys: NDArray[np.uint64],
    fill: NDArray[np.int64],
    floor: NDArray[np.float32],
    k: int,
) -> None:
    """`TopK.offer`."""
    bits = np.empty(1, np.uint32)
    least = bits.view(np.float32)
    for place in range(len(pairs)):
        query = pairs[place] & 0xFFFFFFFF
        if scores[place] > floor[query]:
            least[0] = floor[query]
            fill[query] = _add(scores[place], start + (pairs[place] >> 32), keys[query], fill[query], k, bits)
            floor[query] = least[0]
