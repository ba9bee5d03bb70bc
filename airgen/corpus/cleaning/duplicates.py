"""Exact and near duplicates in the whole corpus, found while it is streamed, in bounded memory.

    signature("the cat sat on the mat", n=5, permutations=112)     -> uint32 (permutations,)

A document is dropped if an earlier one that was kept has the same id, the same text, or nearly the same words: the
share of equal places in two MinHash signatures estimates the Jaccard similarity of their sets of word n-grams (Broder
1997). A word is a run of letters, digits and marks. In scripts without spaces each character is a word.

The data about earlier documents is in a temporary file of SQLite: about 0.6 kB a document. DuckDB would join all
documents at once; here the first passages are known before the last document is read. Each step has two halves: `look`
needs one document, and may be done anywhere; `compare` needs what was seen of all documents in their order.
"""

import hashlib
import sqlite3
import struct
import unicodedata
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from airgen.corpus.cleaning.filters import KEEP, CleanResult, Item
from airgen.corpus.settings import NearDuplicateSettings
from airgen.database import on_disk

_MIX = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 1024  # n-grams under all permutations at once


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
def _powers(size: int) -> NDArray[np.uint64]:
    """_MIX to the power of 0, 1, 2, ... modulo 2^64."""
    row = np.full(size, _MIX)
    row[0] = 1
    return np.multiply.accumulate(row)


def grams(text: str, n: int) -> NDArray[np.uint32]:
    """Hashes of the runs of n words; of a text with fewer words, one hash of all of them. Never empty."""
    codes = np.frombuffer(f"{text.lower()}\n".encode("utf-32-le", "surrogatepass"), np.uint32)
    kind = _classes()[codes]
    inside, opens = kind == 1, kind == 2
    opens[0] |= inside[0]
    opens[1:] |= inside[1:] > inside[:-1]
    # Without any word, the line break at the end is one.
    begins = np.flatnonzero(opens) if opens.any() else np.array([len(codes) - 1])
    # The hash of a word is a polynomial of its characters' hashes.
    place = np.arange(len(codes)) - begins[np.cumsum(opens) - 1]
    words = np.add.reduceat(_letters()[codes] * _powers(1 << len(codes).bit_length())[place], begins)
    words ^= words >> np.uint64(32)
    total = np.zeros(max(len(words) - n + 1, 1), np.uint64)
    for step, weight in enumerate(_weights(n, 2)[: len(words)]):
        total += words[step : step + len(total)] * weight
    total ^= total >> np.uint64(31)
    total *= _MIX
    return (total >> np.uint64(32)).astype(np.uint32)


@cache
def _permutations(count: int) -> NDArray[np.uint32]:
    """(2, count, 1): a and b of each permutation."""
    factors, flips = (_weights(2 * count, 3) >> np.uint64(32)).astype(np.uint32).reshape(2, count, 1)
    return np.stack([factors | np.uint32(1), flips])


def signature(text: str, n: int, permutations: int) -> NDArray[np.uint32]:
    """The smallest hash of the text's n-grams under each permutation: uint32 (permutations,).

    The permutations are x -> (x ^ b) * a modulo 2^32, a odd: exact bijections, fast, and close enough to
    min-wise independence on hashed input (the tests compare with exact Jaccard similarity).
    """
    hashes = grams(text, n)
    factors, flips = _permutations(permutations)
    blocks = (hashes[at : at + _BLOCK] for at in range(0, len(hashes), _BLOCK))
    found: NDArray[np.uint32] = np.minimum.reduce([((block ^ flips) * factors).min(axis=1) for block in blocks])
    return found


def band_keys(row: NDArray[np.uint32], bands: int) -> NDArray[np.uint64]:
    """One 64-bit key for each band of a signature: uint64 (bands,). Equal keys mean equal bands."""
    width = len(row) // bands
    parts = row[: bands * width].reshape(bands, width).astype(np.uint64)
    keys = (parts * _weights(width, 4)).sum(axis=1, dtype=np.uint64) + _weights(bands, 5)
    keys ^= keys >> np.uint64(32)
    keys *= _MIX
    keys ^= keys >> np.uint64(29)
    found: NDArray[np.uint64] = keys
    return found


_MOST = 4  # documents that are kept of those with one band: what a template begins alike is not all compared

_SCHEMA = """
    CREATE TABLE first (of TEXT, hash BLOB, id TEXT, PRIMARY KEY (of, hash)) WITHOUT ROWID;
    CREATE TABLE near (place INTEGER PRIMARY KEY, id TEXT, signature BLOB);
    CREATE TABLE band (key INTEGER, place INTEGER, PRIMARY KEY (key, place)) WITHOUT ROWID;
"""


def earlier_documents() -> AbstractContextManager[sqlite3.Connection]:
    """What is known of the documents before, at first of none. Raises CorpusError, as for a full disk."""
    return on_disk(_SCHEMA, "the search for duplicates")


class Repeats(NamedTuple):
    """Drops a document where an earlier one has the same text, id, or what else `of` gives; `table` tells two apart."""

    name: str
    of: Callable[[Item], str]
    reason: str
    detail: str
    table: str

    def look(self, item: Item) -> bytes:
        """What it has to know of an item: a hash."""
        return hashlib.blake2b(self.of(item).encode("utf-8", "surrogatepass"), digest_size=8).digest()

    def compare(self, identity: str, seen: bytes, earlier: sqlite3.Connection) -> CleanResult:
        """The result for a document, of which `look` saw this, after those before it in the corpus."""
        values = (self.table, seen, repr(identity))
        if earlier.execute("INSERT OR IGNORE INTO first VALUES (?, ?, ?)", values).rowcount:
            return KEEP
        ((first,),) = earlier.execute("SELECT id FROM first WHERE of = ? AND hash = ?", values[:2])
        return CleanResult(False, self.reason, self.detail.format(first))


def duplicate_ids(table: str = "ids") -> Repeats:
    """Drops documents with the id of an earlier one."""
    return Repeats("ids", lambda item: item.document.id, "duplicate id", "{} came before", table)


EXACT = Repeats("exact duplicates", lambda item: item.document.text, "exact duplicate", "of {}", "texts")


class NearDuplicates:
    """Drops near duplicates: MinHash with banding; candidates are confirmed by signatures of 8 bits a place."""

    name = "near duplicates"

    def __init__(self, settings: NearDuplicateSettings) -> None:
        self._settings = settings
        marks = ", ".join("?" * settings.bands)
        self._find = f"SELECT key, place FROM band WHERE key IN ({marks})"

    def look(self, item: Item) -> bytes:
        """The key of each band of an item's signature, 8 bytes a key, then the signature, 8 bits a place."""
        row = signature(item.document.text, self._settings.ngram, self._settings.bands * self._settings.rows)
        return band_keys(row, self._settings.bands).tobytes() + row.astype(np.uint8).tobytes()

    def compare(self, identity: str, seen: bytes, earlier: sqlite3.Connection) -> CleanResult:
        """See `Repeats`. The detail names the most similar earlier document that was kept, of equals the first."""
        *keys, signature = struct.unpack(f"={self._settings.bands}q{len(seen) - 8 * self._settings.bands}s", seen)
        held = earlier.execute(self._find, keys).fetchall()
        if held:
            places = ", ".join({str(place) for _, place in held})
            rivals = earlier.execute(
                f"SELECT id, signature FROM near WHERE place IN ({places}) ORDER BY place"
            ).fetchall()
            rows = np.frombuffer(b"".join(one for _, one in rivals), np.uint8).reshape(len(rivals), -1)
            equal = (rows == np.frombuffer(signature, np.uint8)).mean(axis=1)
            best = int(np.argmax(equal))
            # Of different places, 1 in 256 is equal by chance (b-bit MinHash, Li and König 2010).
            similarity = (equal[best] - 1 / 256) / (1 - 1 / 256)
            if similarity >= self._settings.threshold:
                return CleanResult(False, "near duplicate", f"of {rivals[best][0]}, similarity {similarity:.2f}")
        times = Counter(key for key, _ in held)
        place = earlier.execute("INSERT INTO near VALUES (NULL, ?, ?)", (repr(identity), signature)).lastrowid
        new = [(key, place) for key in keys if times[key] < _MOST]
        earlier.executemany("INSERT OR IGNORE INTO band VALUES (?, ?)", new)
        return KEEP


CorpusWide = Repeats | NearDuplicates
"""A cleaner whose result depends on earlier documents, too."""
