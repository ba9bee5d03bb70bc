"""Select the top k by keys that combine a score and its position in one uint64.

Keys sort by descending score, then ascending position.

>>> keys = pack(np.array([0.5, -1.0, 0.5], np.float32), 0)
>>> unpack(np.sort(keys)[::-1])[0].tolist()
[0, 2, 1]
"""

import numpy as np
from numpy.typing import NDArray

_SIGN = np.uint32(0x80000000)

_LOW = np.uint64(0xFFFFFFFF)


def pack(scores: NDArray[np.float32], positions: NDArray[np.int64] | int) -> NDArray[np.uint64]:
    """Return the keys of finite scores, given their positions or the position of the first of consecutive scores."""
    bits = (scores + np.float32(0)).view(np.uint32)  # + 0: -0.0 equals 0.0
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN).astype(np.uint64)
    places = positions + np.arange(len(scores)) if isinstance(positions, int) else positions
    return (ordered << np.uint64(32)) | (_LOW - places.astype(np.uint64))


def unpack(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the positions and scores of keys, with the shape of the keys."""
    ordered = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(ordered & _SIGN, ordered & ~_SIGN, ~ordered).astype(np.uint32)
    return (_LOW - (keys & _LOW)).astype(np.int32), bits.view(np.float32)


def top_k(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the positions and scores of the k best of a row of finite scores, or of all if there are fewer."""
    keys = pack(scores, 0)
    if len(keys) > k > 0:
        keys = np.partition(keys, len(keys) - k)[len(keys) - k :]
    return unpack(np.sort(keys)[::-1][:k])
