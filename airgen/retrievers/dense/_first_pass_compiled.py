"""The loops of `exact_search` and `first_pass` for numba.

Import this only where numba is installed and the work is worth its loading.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airgen.jit import jit

__all__ = ["TAME", "kept", "level", "near", "score", "widen"]

TAME = (1e-12, 1e12)  # the largest value of a vector; outside, fp32 bounds would lose their precision
_LOW = 0xFFFFFFFF


@jit
def widen(halves: NDArray[np.uint16], wide: NDArray[np.float32]) -> None:
    """Fill `wide` with the values of fp16 numbers, given by their bits; numpy takes ten times as long.

    The exponent moves to its new place, and a multiplication corrects it, also for numbers below the normal ones.
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


@jit(rewrites={"reassoc", "contract"})
def level(
    vectors: NDArray[np.float32],
    levels: NDArray[np.uint8],
    scales: NDArray[np.float32],
    rests: NDArray[np.float32],
    norms: NDArray[np.float32],
) -> None:
    """Fill the levels of each vector (1 to 255, 128 for zero), their size, and bounds of |rest| and |vector|.

    A vector that is not tame has infinite bounds and no size.
    """
    for row in range(vectors.shape[0]):
        vector = vectors[row]
        top = np.float32(0)
        for place in range(vectors.shape[1]):
            top = max(top, abs(vector[place]))
        tame = top == 0 or (top >= TAME[0] and top <= TAME[1])
        scale = top / np.float32(127) if tame and top > 0 else np.float32(1)
        inverse = np.float32(1) / scale if tame else np.float32(0)
        square = rest = 0.0
        for place in range(vectors.shape[1]):
            whole = np.int32(np.rint(vector[place] * inverse))
            levels[row, place] = np.uint8(whole + 128)
            left = np.float64(vector[place]) - np.float64(scale) * np.float64(whole)
            square += np.float64(vector[place]) * np.float64(vector[place])
            rest += left * left
        scales[row] = scale if tame else np.float32(0)
        rests[row] = np.float32(np.sqrt(rest) * (1 + 1e-6)) if tame else np.float32(np.inf)
        norms[row] = np.float32(np.sqrt(square) * (1 + 1e-6)) if tame else np.float32(np.inf)


@jit(rewrites={"contract"})
def near(
    product: NDArray[np.int32],
    zero: NDArray[np.int32],
    query_scale: NDArray[np.float32],
    reach: NDArray[np.float32],
    slack: NDArray[np.float32],
    floor: NDArray[np.float32],
    row_scale: NDArray[np.float32],
    row_rest: NDArray[np.float32],
    row_norm: NDArray[np.float32],
    pairs: NDArray[np.int64],
) -> int:
    """Fill `pairs` (row << 32 | query) with those whose bound is not below the floor; their number, -1 for too many."""
    count = 0
    room = len(pairs) - 8
    words = -(-product.shape[1] // 8)
    mask = np.zeros(words * 8, np.uint8)
    eight = mask.view(np.uint64)
    for row in range(product.shape[0]):
        line = product[row]
        scale, rest, norm = row_scale[row], row_rest[row], row_norm[row]
        for i in range(product.shape[1]):  # one comparison for each, without a branch: it runs in wide registers
            bound = np.float32(line[i] - zero[i]) * (scale * query_scale[i]) + rest * reach[i] + norm * slack[i]
            mask[i] = bound >= floor[i]
        for word in range(words):
            if eight[word]:
                if count > room:
                    return -1
                for i in range(8 * word, 8 * word + 8):
                    pairs[count] = (row << 32) | i
                    count += mask[i]
    return count


@jit(rewrites={"reassoc", "contract"})
def kept(
    rows: NDArray[np.float32],
    queries: NDArray[np.float32],
    margin: NDArray[np.float32],
    floor: NDArray[np.float32],
    row_norm: NDArray[np.float32],
    pairs: NDArray[np.int64],
) -> int:
    """Move the pairs to the front whose fp32 score, in any order of its sum, is not surely below the floor."""
    count = 0
    for pair in pairs:
        row, query = pair >> 32, pair & _LOW
        x, q = rows[row], queries[query]
        total = np.float32(0)
        for place in range(rows.shape[1]):
            total += x[place] * q[place]
        pairs[count] = pair
        count += not (total + row_norm[row] * margin[query] < floor[query])
    return count


@jit(rewrites={"contract"})
def score(
    rows: NDArray[np.float32],
    queries: NDArray[np.float32],
    pairs: NDArray[np.int64],
    ends: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None:
    """Fill the scores of pairs sorted by row. Each is the sum over stretches that end at `ends`, in order.

    Eight sums at a time hide the time that one addition waits for the last.
    """
    nothing = np.float32(0)
    first = 0
    while first < len(pairs):
        row = pairs[first] >> 32
        last = first
        while last + 1 < len(pairs) and last < first + 7 and pairs[last + 1] >> 32 == row:
            last += 1
        x = rows[row]
        q0, q1 = queries[pairs[first] & _LOW], queries[pairs[min(first + 1, last)] & _LOW]
        q2, q3 = queries[pairs[min(first + 2, last)] & _LOW], queries[pairs[min(first + 3, last)] & _LOW]
        q4, q5 = queries[pairs[min(first + 4, last)] & _LOW], queries[pairs[min(first + 5, last)] & _LOW]
        q6, q7 = queries[pairs[min(first + 6, last)] & _LOW], queries[pairs[min(first + 7, last)] & _LOW]
        t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = nothing
        begin = 0
        for end in ends:
            s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = nothing
            for place in range(begin, end):
                value = x[place]
                s0 += q0[place] * value
                s1 += q1[place] * value
                s2 += q2[place] * value
                s3 += q3[place] * value
                s4 += q4[place] * value
                s5 += q5[place] * value
                s6 += q6[place] * value
                s7 += q7[place] * value
            begin = end
            t0, t1, t2, t3 = t0 + s0, t1 + s1, t2 + s2, t3 + s3
            t4, t5, t6, t7 = t4 + s4, t5 + s5, t6 + s6, t7 + s7
        for place, total in enumerate((t0, t1, t2, t3, t4, t5, t6, t7)):
            if first + place <= last:
                scores[first + place] = total
        first = last + 1
