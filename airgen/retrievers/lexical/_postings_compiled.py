"""The loops of `postings` for numba. Import this module only if numba is installed and worth loading.

A query with few postings touches few scores, which are listed while they are added up, so that no others are read. With
many postings, all scores are read, and blocks whose maximum is too low are skipped. The candidates for the k best are
distributed to buckets by score, and each bucket is sorted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airgen.compute.exact_arithmetic import jit

_BLOCK_SCORES = 32  # per block, whose maximum shows whether it can contain one of the k best
_BUCKETS = 2048  # buckets of scores, starting with the best
_OCTAVES = 8  # scores below 1/256 of the best share the last bucket
_INSERTION_SORT_KEYS = 24  # insertion sort is faster up to this many


@jit
def count_postings(
    terms: NDArray[np.int32], lengths: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Implement `postings.count_postings` without sorting."""
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
def _add_listing(
    scores: NDArray[np.float32],
    touched: NDArray[np.uint32],
    positions: NDArray[np.int32],
    impacts: NDArray[np.float32],
    weight: np.float32,
    count: np.uint32,
) -> np.uint32:
    """Add a term's postings, list each position at its first addition, and return the new length of the list."""
    for posting in range(len(positions)):
        part = weight * impacts[posting]
        position = np.uint32(positions[posting])
        before = scores[position]
        touched[count] = position  # without a branch: overwritten if the position is already listed
        count += np.uint32((before == 0) & (part > 0))
        scores[position] = before + part
    return count


@jit
def _move_scores(
    scores: NDArray[np.float32], touched: NDArray[np.uint32], count: np.uint32, taken: NDArray[np.uint32]
) -> None:
    """Move the listed scores to `taken`, as bits, and reset them to zero."""
    bits = scores.view(np.uint32)  # scores are not negative, so their bits have the same order
    for place in range(count):
        taken[place] = bits[touched[place]]
        bits[touched[place]] = 0


@jit
def _block_tops(scores: NDArray[np.float32], tops: NDArray[np.uint32]) -> None:
    """Write the maximum of each block, as bits. Block b is every len(tops)-th score from b, so whole rows can be
    compared."""
    bits = scores.view(np.uint32)
    blocks = len(tops)
    tops[:] = bits[:blocks]
    for row in range(1, _BLOCK_SCORES):
        scores_of_row = bits[row * blocks : (row + 1) * blocks]
        for block in range(blocks):
            tops[block] = scores_of_row[block] if scores_of_row[block] > tops[block] else tops[block]


@jit
def _list_candidates(
    scores: NDArray[np.float32], tops: NDArray[np.uint32], least: np.uint32, touched: NDArray[np.uint32]
) -> np.uint32:
    """List the positions whose scores have at least these bits, and return the length of the list."""
    blocks = len(tops)
    bits = scores.view(np.uint32)
    count = np.uint32(0)
    for block in range(blocks):
        if tops[block] >= least:
            for row in range(_BLOCK_SCORES):
                position = row * blocks + block
                touched[count] = position
                count += np.uint32(bits[position] >= least)
    return count


@jit
def _count_buckets(bits: NDArray[np.uint32], k: int, buckets: NDArray[np.int64]) -> tuple[np.uint32, int, int]:
    """Count scores, given as bits, by bucket; returns (best, shift, last).

    The k best are in the buckets up to `last`; `buckets` then holds the number of scores in better buckets. The bucket
    of a score is (best - bits) >> shift, or the last bucket if that is greater.
    """
    best, worst = np.uint32(0), np.uint32(0xFFFFFFFF)
    for score in bits:
        best, worst = max(best, score), min(worst, score)
    span = min(best - worst, np.uint32(_OCTAVES << 23))
    shift = 0
    while span >> np.uint32(shift) >= _BUCKETS:
        shift += 1
    buckets[:] = 0
    for score in bits:
        buckets[min((best - score) >> np.uint32(shift), np.uint32(_BUCKETS - 1))] += 1
    last = holding = 0
    while True:
        count = buckets[last]
        buckets[last] = holding
        holding += count
        if holding >= k or last == _BUCKETS - 1:
            return best, shift, last
        last += 1


@jit
def _insertion_sort(keys: NDArray[np.uint64]) -> None:
    for place in range(1, len(keys)):
        key = keys[place]
        at = place
        while at > 0 and keys[at - 1] > key:
            keys[at] = keys[at - 1]
            at -= 1
        keys[at] = key


@jit
def _sort_best(
    bits: NDArray[np.uint32],
    touched: NDArray[np.uint32],
    k: int,
    buckets: NDArray[np.int64],
    keys: NDArray[np.uint64],
    spare: NDArray[np.uint64],
) -> int:
    """Sort the k best hits into the first `keys` (inverted score bits, then position), and return their number."""
    best, shift, last = _count_buckets(bits, k, buckets)
    places = spare.view(np.uint32)
    count = np.uint32(0)
    for index in range(len(bits)):
        places[count] = index
        count += np.uint32(min((best - bits[index]) >> np.uint32(shift), np.uint32(_BUCKETS - 1)) <= last)
    for place in places[:count]:
        bucket = min((best - bits[place]) >> np.uint32(shift), np.uint32(_BUCKETS - 1))
        keys[buckets[bucket]] = np.uint64(~bits[place]) << np.uint64(32) | np.uint64(touched[place])
        buckets[bucket] += 1
    first = 0
    for bucket in range(last + 1):
        end = buckets[bucket]
        if end - first > _INSERTION_SORT_KEYS:
            keys[first:end].sort()
        elif end - first > 1:
            _insertion_sort(keys[first:end])
        first = end
    return min(k, first)


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
    """Implement `postings.search_postings`: add up scores, list those that may be among the k best, and sort them."""
    k = out_positions.shape[1]
    blocks = (size + _BLOCK_SCORES - 1) // _BLOCK_SCORES
    scores = np.zeros(blocks * _BLOCK_SCORES, np.float32)
    tops = np.empty(blocks, np.uint32)
    touched, bits = np.empty(len(scores) + 1, np.uint32), np.empty(len(scores), np.uint32)
    keys, spare = np.empty(len(scores), np.uint64), np.empty(len(scores), np.uint64)
    buckets = np.empty(_BUCKETS, np.int64)
    for query in range(len(bounds) - 1):
        postings = 0
        for term in terms[bounds[query] : bounds[query + 1]]:
            postings += starts[term + 1] - starts[term]
        listing = postings < size // 8 + 256 * k  # measured: the other method takes as long
        count = np.uint32(0)
        for place in range(bounds[query], bounds[query + 1]):
            weight, first, end = weights[place], starts[terms[place]], starts[terms[place] + 1]
            if listing:
                count = _add_listing(
                    scores,
                    touched,
                    positions=positions[first:end],
                    impacts=impacts[first:end],
                    weight=weight,
                    count=count,
                )
            else:
                for posting in range(first, end):
                    scores[np.uint32(positions[posting])] += weight * impacts[posting]
        if not listing:
            _block_tops(scores, tops)
            best, shift, last = _count_buckets(tops, k, buckets)
            below = np.int64(best) + 1 - (np.int64(last + 1) << shift)  # the minimum bits of a score in bucket `last`
            count = _list_candidates(scores, tops, np.uint32(max(1, below if last < _BUCKETS - 1 else 1)), touched)
        _move_scores(scores, touched, count, bits)
        if not listing:
            scores[:] = 0
        if count == 0:
            continue
        hit_count = _sort_best(bits[:count], touched, k, buckets=buckets, keys=keys, spare=spare)
        for rank in range(hit_count):
            out_positions[query, rank] = np.int32(keys[rank] & np.uint64(0xFFFFFFFF))
            bits[rank] = ~np.uint32(keys[rank] >> np.uint64(32))
            out_scores[query, rank] = bits.view(np.float32)[rank]
