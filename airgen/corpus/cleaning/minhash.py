"""MinHash signatures of many texts at once, in numpy, without a Python loop over words.

    shingles(["the cat sat on the mat", ...], n=5) -> Shingles(hashes, starts)
    signatures(found, permutations)                -> uint32 (texts, permutations)

The share of equal places in two signatures estimates the Jaccard similarity of their sets of word n-grams
(Broder 1997). A word is a run of letters, digits and marks; of scripts without spaces, each character is one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shingles", "band_keys", "shingles", "signatures"]

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SPAN = 64  # characters of a word after which the position weights repeat


class Shingles(NamedTuple):
    """Hashes of all texts' n-grams, one text after the other; `starts[i]` is the first of text i.

    hashes: uint32 (total,); starts: int64 (texts,). Every text has at least one, also the empty one.
    """

    hashes: NDArray[np.uint32]
    starts: NDArray[np.int64]


@cache
def _classes() -> NDArray[np.uint8]:
    """For each code point: 0 no part of a word, 1 part of a word, 2 a word alone."""
    table = np.zeros(0x110000, np.uint8)
    for low, high in ((0, 0x3000), (0xA000, 0x10000), (0x10000, 0x1F000)):
        table[low:high] = [unicodedata.category(chr(code))[0] in "LMN" for code in range(low, high)]
    table[0x0E00:0x1000] *= 2  # Thai, Lao, Tibetan; then South-East Asia, kana, ideographs
    for low, high in ((0x1000, 0x10A0), (0x1780, 0x1800), (0x3005, 0x3008), (0x3031, 0x3036), (0x3041, 0x3100),
                      (0x3105, 0x3130), (0x31F0, 0x3200), (0x3400, 0xA000), (0xF900, 0xFB00),
                      (0x20000, 0x32000)):  # fmt: skip
        table[low:high] = 2
    return table


@cache
def _weights(size: int, seed: int) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**63, size, np.uint64) << np.uint64(1) | np.uint64(1)


def shingles(texts: Sequence[str], n: int) -> Shingles:
    """The word n-grams of each text; a text of fewer than n words has one, of all its words."""
    lowered = [text.lower() for text in texts]
    codes = np.frombuffer("\n".join([*lowered, ""]).encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = np.cumsum([len(text) + 1 for text in lowered])
    kind = _classes()[codes]
    before = np.concatenate([np.zeros(1, np.uint8), kind[:-1]])
    begins = np.flatnonzero((kind == 2) | ((kind == 1) & (before != 1)))
    # A text without words still needs one shingle: its line break becomes a word.
    owner = np.searchsorted(ends, begins, side="right")
    missing = np.setdiff1d(np.arange(len(texts)), owner, assume_unique=False)
    if len(missing):
        begins = np.sort(np.concatenate([begins, ends[missing] - 1]))
        owner = np.searchsorted(ends, begins, side="right")
    # Word hash: the sum of its characters' hashes, each weighted by its place in the word.
    mixed = codes.astype(np.uint64) * _MIX
    mixed ^= mixed >> np.uint64(29)
    lengths = np.diff(np.append(begins, len(codes)))
    place = np.arange(begins[0], len(codes)) - np.repeat(begins, lengths)
    weighted = mixed[begins[0] :] * _weights(_SPAN, 1)[place % _SPAN] * (kind[begins[0] :] != 0)
    words = np.add.reduceat(weighted, begins - begins[0])
    words ^= words >> np.uint64(32)
    # n-gram hash: the same over words, of those in the same text.
    total = np.zeros(len(words), np.uint64)
    whole = np.ones(len(words), bool)
    for step, weight in enumerate(_weights(n, 2)):
        same = np.zeros(len(words), bool)
        same[: len(words) - step] = owner[step:] == owner[: len(words) - step]
        shifted = np.zeros(len(words), np.uint64)
        shifted[: len(words) - step] = words[step:]
        total += np.where(same, shifted * weight, np.uint64(0))
        whole = same
    first = np.ones(len(words), bool)
    first[1:] = owner[1:] != owner[:-1]
    keep = whole | first
    total ^= total >> np.uint64(31)
    total *= _MIX
    hashes = (total[keep] >> np.uint64(32)).astype(np.uint32)
    return Shingles(hashes, np.flatnonzero(first[keep]).astype(np.int64))


def signatures(found: Shingles, permutations: int, seed: int = 3) -> NDArray[np.uint32]:
    """The smallest hash of each text under each permutation: uint32 (texts, permutations).

    The permutations are x -> (x ^ b) * a modulo 2^32, a odd: exact bijections, fast, and close enough to
    min-wise independence on hashed input (the tests compare with exact Jaccard similarity).
    """
    weights = _weights(2 * permutations, seed)
    multiply, flip = (
        (part >> np.uint64(32)).astype(np.uint32) for part in (weights[:permutations], weights[permutations:])
    )
    out = np.empty((permutations, len(found.starts)), np.uint32)
    buffer = np.empty_like(found.hashes)
    for row, (factor, mask) in enumerate(zip(multiply | np.uint32(1), flip, strict=True)):
        np.bitwise_xor(found.hashes, mask, out=buffer)
        np.multiply(buffer, factor, out=buffer)
        np.minimum.reduceat(buffer, found.starts, out=out[row])
    return np.ascontiguousarray(out.T)


def band_keys(rows: NDArray[np.uint32], bands: int) -> NDArray[np.uint64]:
    """One 64-bit key a text and band: uint64 (texts, bands). Equal keys mean equal rows of that band."""
    width = rows.shape[1] // bands
    parts = rows[:, : bands * width].reshape(len(rows), bands, width).astype(np.uint64)
    keys = (parts * _weights(width, 4)).sum(axis=2, dtype=np.uint64) + _weights(bands, 5)
    keys ^= keys >> np.uint64(32)
    keys *= _MIX
    keys ^= keys >> np.uint64(29)
    found: NDArray[np.uint64] = keys
    return found
