"""The hot loops of the inverted index, compiled with numba or done by numpy, with equal results to the bit.

Both add a query's postings term by term in float32, in the query's order, without fused operations; both order
hits by score, then by position. So a result does not depend on whether numba is installed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airgen.retrievers._jit import jit

__all__ = ["count_postings", "count_postings_numpy", "search_compiled", "search_numpy"]

_BLOCK = 32  # scores a block: its maximum says whether the block can hold one of the k best
_BUCKETS = 2048  # of the histogram that bounds the k-th score from below


@jit
def count_postings(
    terms: NDArray[np.int32], lengths: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Postings from the term ids of texts one after another; `size` is how many terms there are.

    Returns starts int64 (size + 1,), positions int32 and frequencies int32: term t stands in the texts
    `positions[starts[t]:starts[t + 1]]`, in ascending order.
    """
    starts = np.zeros(size + 1, np.int64)
    last = np.full(size, -1, np.int32)
    place = 0
    for text in range(len(lengths)):
        for _ in range(lengths[text]):
            term = terms[place]
            place += 1
            if last[term] != text:
                last[term] = text
                starts[term + 1] += 1
    for term in range(size):
        starts[term + 1] += starts[term]
    positions = np.empty(starts[size], np.int32)
    frequencies = np.empty(starts[size], np.int32)
    ends = starts[:size].copy()
    last[:] = -1
    place = 0
    for text in range(len(lengths)):
        for _ in range(lengths[text]):
            term = terms[place]
            place += 1
            if last[term] == text:
                frequencies[ends[term] - 1] += 1
            else:
                last[term] = text
                positions[ends[term]] = text
                frequencies[ends[term]] = 1
                ends[term] += 1
    return starts, positions, frequencies


def count_postings_numpy(
    terms: NDArray[np.int32], lengths: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """`count_postings` by sorting."""
    texts = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    width = max(1, len(lengths))
    keys, counts = np.unique(terms.astype(np.int64) * width + texts, return_counts=True)
    starts = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keys // width, minlength=size), out=starts[1:])
    return starts, (keys % width).astype(np.int32), counts.astype(np.int32)


@jit
def search_compiled(
    starts: NDArray[np.int64],
    positions: NDArray[np.int32],
    impacts: NDArray[np.float32],
    size: int,
    bounds: NDArray[np.int64],
    terms: NDArray[np.int64],
    weights: NDArray[np.float32],
    out_positions: NDArray[np.int32],
    out_scores: NDArray[np.float32],
) -> None:
    """Search queries `terms[bounds[i]:bounds[i + 1]]` with their weights; fills the two (n, k) outputs."""
    k = out_positions.shape[1]
    blocks = (size + _BLOCK - 1) // _BLOCK
    scores = np.zeros(blocks * _BLOCK, np.float32)
    tops = np.zeros(blocks, np.float32)
    buckets = np.zeros(_BUCKETS + 1, np.int64)
    found = np.empty(size, np.int32)
    keys = np.empty(size, np.uint32)
    found_too = np.empty(size, np.int32)
    keys_too = np.empty(size, np.uint32)
    digits = np.zeros(2048, np.int64)
    for query in range(len(bounds) - 1):
        scores[:] = 0
        for place in range(bounds[query], bounds[query + 1]):
            term, weight = terms[place], weights[place]
            for posting in range(starts[term], starts[term + 1]):
                scores[positions[posting]] += weight * impacts[posting]
        # A lower bound of the k-th score: at least k blocks hold a score in a bucket from `least` on.
        bits = scores.view(np.int32)  # scores are not negative, so their bits sort as they do
        top_bits = tops.view(np.int32)
        best = np.int32(0)
        for block in range(blocks):
            top = np.int32(0)
            for one in range(block * _BLOCK, block * _BLOCK + _BLOCK):
                top = max(top, bits[one])
            top_bits[block] = top
            best = max(best, top)
        count = 0
        if best > 0:
            top_score = np.float32(0)
            for block in range(blocks):
                top_score = max(top_score, tops[block])
            scale = np.float32(_BUCKETS) / top_score
            buckets[:] = 0
            if not np.isfinite(scale):
                scale = np.float32(0)
            for block in range(blocks):
                buckets[min(_BUCKETS, int(tops[block] * scale))] += 1
            least, holding = _BUCKETS, buckets[_BUCKETS]
            while holding < k and least > 0:
                least -= 1
                holding += buckets[least]
            bound = np.float32(least)
            for block in range(blocks):
                if top_bits[block] > 0 and tops[block] * scale >= bound:
                    for one in range(block * _BLOCK, min(size, block * _BLOCK + _BLOCK)):
                        if bits[one] > 0 and scores[one] * scale >= bound:
                            found[count] = one
                            keys[count] = ~np.uint32(bits[one])  # ascending keys: descending scores
                            count += 1
        # Radix sort, three digits of 11 bits. It is stable, so equal scores stay in the order of position.
        for shift in (0, 11, 22):
            digits[:] = 0
            for one in range(count):
                digits[(keys[one] >> np.uint32(shift)) & np.uint32(2047)] += 1
            before = 0
            for digit in range(2048):
                here = digits[digit]
                digits[digit] = before
                before += here
            for one in range(count):
                digit = (keys[one] >> np.uint32(shift)) & np.uint32(2047)
                keys_too[digits[digit]] = keys[one]
                found_too[digits[digit]] = found[one]
                digits[digit] += 1
            keys, keys_too = keys_too, keys
            found, found_too = found_too, found
        for one in range(min(k, count)):
            out_positions[query, one] = found[one]
            out_scores[query, one] = scores[found[one]]


def search_numpy(
    starts: NDArray[np.int64],
    positions: NDArray[np.int32],
    impacts: NDArray[np.float32],
    size: int,
    bounds: NDArray[np.int64],
    terms: NDArray[np.int64],
    weights: NDArray[np.float32],
    out_positions: NDArray[np.int32],
    out_scores: NDArray[np.float32],
) -> None:
    """`search_compiled` without numba."""
    k = out_positions.shape[1]
    for query in range(len(bounds) - 1):
        scores = np.zeros(size, np.float32)
        for place in range(bounds[query], bounds[query + 1]):
            part = slice(starts[terms[place]], starts[terms[place] + 1])
            scores[positions[part]] += weights[place] * impacts[part]  # a text is once in a term's postings
        found = np.flatnonzero(scores > 0)
        if len(found) > k:
            found = found[scores[found] >= np.partition(scores[found], -k)[-k]]
        found = found[np.argsort(-scores[found], kind="stable")][:k]
        out_positions[query, : len(found)] = found
        out_scores[query, : len(found)] = scores[found]
