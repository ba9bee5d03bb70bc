"""The loops of `_postings` for numba. Import this only where numba is installed and the work is worth its loading.

Adding up takes a tenth of a search for the best 1,000; choosing them takes the rest. So a block of scores whose maximum
is too low is skipped as a whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airgen.jit import jit

__all__ = ["count_postings", "search"]

_ROWS = 32  # scores a block: the block's maximum says whether it can hold one of the k best
_BUCKETS = 2048  # of the histogram that bounds the k-th score from below


@jit
def count_postings(
    terms: NDArray[np.int32], lengths: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """`_postings.count_postings` without sorting."""
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


@jit
def _block_tops(scores: NDArray[np.float32], tops: NDArray[np.float32]) -> None:
    """The maximum of each block; block b is every len(tops)-th score from b on, so that whole rows compare at once."""
    bits, best = scores.view(np.int32), tops.view(np.int32)  # scores are not negative: their bits sort as they do
    blocks = len(tops)
    best[:] = bits[:blocks]
    for row in range(1, _ROWS):
        one = bits[row * blocks : (row + 1) * blocks]
        for block in range(blocks):
            best[block] = one[block] if one[block] > best[block] else best[block]


@jit
def _bound(tops: NDArray[np.float32], buckets: NDArray[np.int64], k: int) -> tuple[np.float32, np.float32]:
    """(scale, least): k blocks hold a score with score * scale >= least, so the k-th best score is one."""
    best = np.float32(0)
    for top in tops:
        best = max(best, top)
    scale = np.float32(_BUCKETS) / best if best > 0 else np.float32(0)
    if not np.isfinite(scale):  # the best score is denormal
        return np.float32(0), np.float32(0)
    buckets[:] = 0
    for top in tops:
        buckets[min(_BUCKETS, int(top * scale))] += 1
    least, holding = _BUCKETS, buckets[_BUCKETS]
    while holding < k and least > 0:
        least -= 1
        holding += buckets[least]
    return scale, np.float32(least)


@jit
def _sort(
    found: NDArray[np.int32], keys: NDArray[np.uint32], found_too: NDArray[np.int32], keys_too: NDArray[np.uint32]
) -> NDArray[np.int32]:
    """`found` by ascending `keys`: radix sort, 11 bits a turn. Stable, so equal keys keep their order."""
    digits = np.empty(2048, np.int64)
    for shift in (0, 11, 22):
        digits[:] = 0
        for key in keys:
            digits[(key >> np.uint32(shift)) & np.uint32(2047)] += 1
        before = 0
        for digit in range(2048):
            here = digits[digit]
            digits[digit] = before
            before += here
        for one in range(len(keys)):
            digit = (keys[one] >> np.uint32(shift)) & np.uint32(2047)
            keys_too[digits[digit]] = keys[one]
            found_too[digits[digit]] = found[one]
            digits[digit] += 1
        keys, keys_too = keys_too, keys
        found, found_too = found_too, found
    return found


@jit
def search(
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
    """`_postings.search`: add up, bound the k-th score by the maxima of blocks, sort what can be above it."""
    k = out_positions.shape[1]
    blocks = (size + _ROWS - 1) // _ROWS
    scores = np.empty(blocks * _ROWS, np.float32)
    tops = np.empty(blocks, np.float32)
    buckets = np.empty(_BUCKETS + 1, np.int64)
    able = np.empty(blocks, np.int32)  # blocks that can hold one of the k best
    found, found_too = np.empty(size, np.int32), np.empty(size, np.int32)
    keys, keys_too = np.empty(size, np.uint32), np.empty(size, np.uint32)
    for query in range(len(bounds) - 1):
        scores[:] = 0
        for place in range(bounds[query], bounds[query + 1]):
            weight = weights[place]
            for posting in range(starts[terms[place]], starts[terms[place] + 1]):
                scores[np.uint32(positions[posting])] += weight * impacts[posting]
        _block_tops(scores, tops)
        scale, least = _bound(tops, buckets, k)
        able_count = 0
        for block in range(blocks):
            if tops[block] > 0 and tops[block] * scale >= least:
                able[able_count] = block
                able_count += 1
        count = 0
        for row in range(_ROWS):  # rows outside, so that positions come in ascending order
            for one in range(able_count):
                position = row * blocks + able[one]
                score = scores[position]
                if score > 0 and score * scale >= least:
                    found[count] = position
                    count += 1
        for one in range(count):
            keys[one] = ~scores.view(np.uint32)[found[one]]  # ascending keys: descending scores
        order = _sort(found[:count], keys[:count], found_too[:count], keys_too[:count])
        for one in range(min(k, count)):
            out_positions[query, one] = order[one]
            out_scores[query, one] = scores[order[one]]
