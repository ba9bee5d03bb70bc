"""The k best of many scores, ties by position, without sorting scores that cannot be among them.

A score and its position are packed into one uint64 whose order is (score descending, position ascending), so that
selecting and sorting need one comparison and equal inputs give equal results:

>>> keys = pack(np.array([0.5, -1.0, 0.5], np.float32), 0)
>>> unpack(np.sort(keys)[::-1])[0].tolist()
[0, 2, 1]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SIGN = np.uint32(0x80000000)
_LOW = np.uint64(0xFFFFFFFF)


def pack(scores: NDArray[np.float32], positions: NDArray[np.int64] | int) -> NDArray[np.uint64]:
    """Keys of finite scores; `positions` are their positions, or that of the first of consecutive scores."""
    bits = (scores + np.float32(0)).view(np.uint32)  # + 0: -0.0 and 0.0 are one score
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN).astype(np.uint64)
    places = positions + np.arange(len(scores)) if isinstance(positions, int) else positions
    return (ordered << np.uint64(32)) | (_LOW - places.astype(np.uint64))


def unpack(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Positions and scores of keys, shape kept."""
    ordered = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(ordered & _SIGN, ordered & ~_SIGN, ~ordered).astype(np.uint32)
    return (_LOW - (keys & _LOW)).astype(np.int32), bits.view(np.float32)


def top_k(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Positions and scores of the k best of one row of finite scores; fewer where the row is shorter."""
    keys = pack(scores, 0)
    if len(keys) > k > 0:
        keys = np.partition(keys, len(keys) - k)[len(keys) - k :]
    return unpack(np.sort(keys)[::-1][:k])
