"""MinHash signatures of many texts at once, in numpy, without a Python loop over words.

    shingles(["the cat sat on the mat", ...], n=5) -> Shingles(hashes, starts)
    signatures(found, permutations)                -> uint32 (texts, permutations)

The share of equal places in two signatures estimates the Jaccard similarity of their sets of word n-grams
(Broder 1997). A word is a run of letters, digits and marks. In scripts without spaces each character is a word.

Exact and near duplicates in the whole corpus, found while it is streamed, in bounded memory.

A document is dropped if an earlier one that was kept has the same id, the same text, or nearly the same words. The data
about earlier documents is in files of a temporary folder: about 0.6 kB a document.

Each step has two halves: `look` needs one document, and may be done anywhere; `compare` needs what was seen of all
documents in their order. A step without a folder can only look.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from airgen.corpus.cleaning.disk_hash_table import DiskTable, IdLog
from airgen.corpus.cleaning.filters import KEEP, CleanResult, Item
from airgen.corpus.settings import NearDuplicateSettings

_MIX = np.uint64(0x9E3779B97F4A7C15)
_GROUP = 1 << 17  # characters hashed at once


class Shingles(NamedTuple):
    """Hashes of all texts' n-grams, one text after the other; `starts[i]` is the first of text i.

    hashes: uint32 (total,); starts: int64 (texts,). Every text has at least one n-gram, even an empty one.
    """

    hashes: NDArray[np.uint32]
    starts: NDArray[np.int64]


@cache
def _classes() -> NDArray[np.uint8]:
    """For each code point: 0 not in a word, 1 part of a word, 2 a word of its own."""
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


@cache
def _letters() -> NDArray[np.uint64]:
    """A hash for each code point; 0 for those that are not in a word."""
    hashes = np.random.default_rng(6).integers(1, 2**63, 0x110000, np.uint64)
    hashes[_classes() == 0] = 0
    return hashes


@cache
def _powers(size: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """_MIX to the power of 0, 1, 2, ... and the inverses, modulo 2^64."""
    inverse = np.uint64(pow(int(_MIX), -1, 2**64))
    ones = np.ones(size, np.uint64)
    found = []
    for base in (_MIX, inverse):
        row = ones * base
        row[0] = 1
        found.append(np.multiply.accumulate(row))
    return found[0], found[1]


def shingles(texts: Sequence[str], n: int) -> Shingles:
    """The word n-grams of each text; a text with fewer than n words has one n-gram of all its words."""
    groups: list[Shingles] = []
    begin = size = total = 0
    for number, text in enumerate(texts):
        if size and size + len(text) > _GROUP:  # so that the arrays fit into the CPU cache
            groups.append(_group(texts[begin:number], n))
            begin, size = number, 0
        size += len(text) + 1
    groups.append(_group(texts[begin:], n))
    starts = []
    for group in groups:
        starts.append(group.starts + total)
        total += len(group.hashes)
    return Shingles(np.concatenate([group.hashes for group in groups]), np.concatenate(starts))


def _group(texts: Sequence[str], n: int) -> Shingles:
    lowered = [text.lower() for text in texts]
    codes = np.frombuffer("\n".join([*lowered, ""]).encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = np.cumsum([len(text) + 1 for text in lowered])
    kind = _classes()[codes]
    opens = kind == 2
    opens[0] |= kind[0] == 1
    opens[1:] |= (kind[1:] == 1) & (kind[:-1] != 1)
    begins = np.flatnonzero(opens)
    owner = np.searchsorted(ends, begins, side="right")
    # A text without words needs one n-gram as well: its line break counts as a word.
    empty = np.flatnonzero(np.bincount(owner, minlength=len(texts)) == 0)
    if len(empty):
        begins = np.sort(np.concatenate([begins, ends[empty] - 1]))
        owner = np.searchsorted(ends, begins, side="right")
    # The hash of a word is a polynomial of its characters' hashes: the difference of two prefix sums of the group.
    size = 1 << max((len(codes) - 1).bit_length(), 17)
    powers, inverses = _powers(size)
    sums = _letters()[codes]
    sums *= powers[: len(codes)]
    np.cumsum(sums, out=sums)
    last = sums[np.append(begins[1:], len(codes)) - 1]
    before = np.where(begins > 0, sums[begins - 1], np.uint64(0))
    words = (last - before) * inverses[begins]
    words ^= words >> np.uint64(32)
    return _ngrams(words, owner, n)


def _ngrams(words: NDArray[np.uint64], owner: NDArray[np.int64], n: int) -> Shingles:
    """Hashes of all runs of n words within a text; of a shorter text, the hash of all its words."""
    weights = _weights(n, 2)
    padded = np.concatenate([words, np.zeros(n, np.uint64)])
    owners = np.concatenate([owner, np.full(n, -1)])
    total = words * weights[0]
    for step in range(1, n):
        total += padded[step : step + len(words)] * weights[step]
    whole = owners[n - 1 : n - 1 + len(words)] == owner
    first = np.ones(len(words), bool)
    first[1:] = owner[1:] != owner[:-1]
    for at in np.flatnonzero(first & ~whole).tolist():  # short texts, without the words of the next text
        own = int(np.searchsorted(owner, owner[at], side="right")) - at
        total[at] = (words[at : at + own] * weights[:own]).sum(dtype=np.uint64)
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
    """One 64-bit key for each text and band: uint64 (texts, bands). Equal keys mean equal bands."""
    width = rows.shape[1] // bands
    parts = rows[:, : bands * width].reshape(len(rows), bands, width).astype(np.uint64)
    keys = (parts * _weights(width, 4)).sum(axis=2, dtype=np.uint64) + _weights(bands, 5)
    keys ^= keys >> np.uint64(32)
    keys *= _MIX
    keys ^= keys >> np.uint64(29)
    found: NDArray[np.uint64] = keys
    return found


_RELAX = 4  # batches after which mapped pages are released


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


class _Seen:
    """Finds the first document with each 64-bit hash."""

    def __init__(self, folder: Path, name: str) -> None:
        self._table = DiskTable(folder, name)
        self._log = IdLog(folder, name)
        self._batches = 0

    def first(self, hashes: list[bytes], ids: Sequence[str]) -> list[str | None]:
        """For each hash the id of an earlier document that has it, or None."""
        keys = np.frombuffer(b"".join(hashes), np.uint64)
        held = self._table.find(keys)[:, 0]
        self._log.flush()
        new: dict[int, str] = {}
        places: list[int] = []
        fresh: list[int] = []
        found: list[str | None] = []
        for key, place, identity in zip(keys.tolist(), held.tolist(), ids, strict=True):
            if place >= 0:
                found.append(self._log.id(place))
            elif key in new:
                found.append(new[key])
            else:
                new[key] = identity
                fresh.append(key)
                places.append(self._log.append(identity))
                found.append(None)
        self._table.add(np.array(fresh, np.uint64), np.array(places, np.int64))
        self._batches += 1
        if self._batches % _RELAX == 0:
            self._table.relax()
        return found

    def close(self) -> None:
        self._log.close()


class _ByHash:
    """The shared part of `ExactDuplicates` and `DuplicateIds`."""

    files = ""

    def __init__(self, folder: Path | None) -> None:
        self._seen = None if folder is None else _Seen(folder, self.files)

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """One result an item, in order."""
        return self.compare([item.document.id for item in items], self.look(items))

    def look(self, items: Sequence[Item]) -> list[Any]:
        """8 bytes of each item."""
        raise NotImplementedError

    def compare(self, ids: Sequence[str], seen: Sequence[Any]) -> list[CleanResult]:
        """One result for each document, of which `look` saw this."""
        assert self._seen is not None
        return [KEEP if found is None else self.refusal(found) for found in self._seen.first(list(seen), ids)]

    def refusal(self, earlier: str) -> CleanResult:
        """The result for a duplicate of the document `earlier`."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the files."""
        if self._seen is not None:
            self._seen.close()


class DuplicateIds(_ByHash):
    """Drop documents with the id of an earlier one."""

    name = files = "ids"

    def look(self, items: Sequence[Item]) -> list[Any]:
        """A hash of each id."""
        return [_hash(item.document.id) for item in items]

    def refusal(self, earlier: str) -> CleanResult:
        """See `_ByHash`."""
        return CleanResult(False, "duplicate id", f"{earlier!r} came before")


class ExactDuplicates(_ByHash):
    """Drop documents with exactly the text of an earlier one, after normalisation."""

    name, files = "exact duplicates", "exact"

    def look(self, items: Sequence[Item]) -> list[Any]:
        """A hash of each text."""
        return [_hash(item.document.text) for item in items]

    def refusal(self, earlier: str) -> CleanResult:
        """See `_ByHash`."""
        return CleanResult(False, "exact duplicate", f"of {earlier!r}")


class NearDuplicates:
    """Drop near duplicates: MinHash with banding; candidates are confirmed by signatures of 8 bits a place."""

    name = "near duplicates"

    def __init__(self, settings: NearDuplicateSettings, folder: Path | None) -> None:
        self._settings = settings
        self._permutations = settings.bands * settings.rows
        self._folder = folder
        if folder is not None:
            self._table = DiskTable(folder, "bands")
            self._log = IdLog(folder, "near", self._permutations)
        self._batches = 0

    def close(self) -> None:
        """Close the files."""
        if self._folder is not None:
            self._log.close()

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """One result an item, in order."""
        return self.compare([item.document.id for item in items], self.look(items))

    def look(self, items: Sequence[Item]) -> list[Any]:
        """The key of each band of an item's signature, 8 bytes a key, then the signature, 8 bits a place."""
        if not items:
            return []
        rows = signatures(shingles([item.document.text for item in items], self._settings.ngram), self._permutations)
        keys = band_keys(rows, self._settings.bands)
        packed = np.concatenate([keys.view(np.uint8), rows.astype(np.uint8)], axis=1)
        return [row.tobytes() for row in packed]

    def compare(self, ids: Sequence[str], seen: Sequence[Any]) -> list[CleanResult]:
        """One result for each document, of which `look` saw this."""
        if not ids:
            return []
        packed = np.frombuffer(b"".join(seen), np.uint8).reshape(len(ids), -1)
        wide = 8 * self._settings.bands
        keys = np.ascontiguousarray(packed[:, :wide]).view(np.uint64)
        small = np.ascontiguousarray(packed[:, wide:])
        earlier = self._earlier(keys)
        rivals = self._rivals(keys)
        self._log.flush()
        verdicts: list[CleanResult] = []
        place_of: dict[int, int] = {}  # row of this batch that is kept -> its place
        for number, identity in enumerate(ids):
            verdict = self._judge(
                number, small, earlier[number], [row for row in rivals.get(number, ()) if row in place_of], ids
            )
            verdicts.append(verdict)
            if verdict.keep:
                place_of[number] = self._log.append(identity, small[number].tobytes())
        stay = np.array(list(place_of), np.int64)
        if len(stay):
            places = np.repeat(np.array(list(place_of.values()), np.int64), self._settings.bands)
            self._table.add(keys[stay].ravel(), places)
        self._batches += 1
        if self._batches % _RELAX == 0:
            self._table.relax()
        return verdicts

    def _earlier(self, keys: NDArray[np.uint64]) -> list[NDArray[np.int64]]:
        """For each row, the distinct places of earlier batches with an equal band."""
        found = self._table.find(keys.ravel()).reshape(len(keys), -1)
        empty = np.empty(0, np.int64)
        hits: NDArray[np.bool_] = np.any(found >= 0, axis=1)
        return [np.unique(row[row >= 0]) if hit else empty for row, hit in zip(found, hits.tolist(), strict=True)]

    @staticmethod
    def _rivals(keys: NDArray[np.uint64]) -> dict[int, list[int]]:
        """For each row, the earlier rows of this batch with an equal band."""
        flat = keys.ravel()
        order = np.argsort(flat, kind="stable")
        sorted_keys = flat[order]
        edges = np.flatnonzero(np.append(True, sorted_keys[1:] != sorted_keys[:-1]))
        sizes = np.diff(np.append(edges, len(flat)))
        found: dict[int, set[int]] = {}
        for begin, size in zip(edges[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
            rows = (order[begin : begin + size] // keys.shape[1]).tolist()
            for at in range(1, len(rows)):
                found.setdefault(rows[at], set()).update(rows[:at])
        return {row: sorted(others - {row}) for row, others in found.items()}

    def _judge(
        self,
        number: int,
        small: NDArray[np.uint8],
        earlier: NDArray[np.int64],
        rivals: list[int],
        ids: Sequence[str],
    ) -> CleanResult:
        """Compare with all candidates; the detail names the most similar one, of equals the earliest."""
        best, who = 0.0, ""
        if len(earlier):
            scores = self._similarity(self._log.rows(earlier), small[number])
            at = int(np.argmax(scores))
            best, who = float(scores[at]), f"place {int(earlier[at])}"
            if best >= self._settings.threshold:
                who = self._log.id(int(earlier[at]))
        if rivals:
            scores = self._similarity(small[rivals], small[number])
            at = int(np.argmax(scores))
            if scores[at] > best:
                best, who = float(scores[at]), ids[rivals[at]]
        if best >= self._settings.threshold:
            return CleanResult(False, "near duplicate", f"of {who!r}, similarity {best:.2f}")
        return KEEP

    @staticmethod
    def _similarity(rows: NDArray[np.uint8], row: NDArray[np.uint8]) -> NDArray[np.float64]:
        """The share of equal places, corrected for the 1/256 equal by chance (b-bit MinHash, Li and König 2010)."""
        equal = (rows == row).mean(axis=1)
        found: NDArray[np.float64] = np.clip((equal - 1 / 256) / (1 - 1 / 256), 0, 1)
        return found
