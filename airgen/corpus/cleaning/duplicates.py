"""Find exact and near duplicates in the whole corpus while streaming it, in bounded memory.

    hashes = grams(["the cat sat on the mat", ...], n=5)    # uint32 hashes of each text, many texts at once in numpy
    signatures(hashes, permutations=112)                    # uint32 (texts, permutations)

A document is dropped if an earlier document that was kept has the same id, the same text, or nearly the same words: the
share of equal values in two MinHash signatures estimates the Jaccard similarity of their sets of word n-grams (Broder
1997). A word is a run of letters, digits and marks. In scripts without spaces, each character is a word.

Data about earlier documents is stored in a temporary SQLite file, about 0.6 kB per document. DuckDB would join all
documents at once, whereas this way the first passages are available before the last document is read. Each step has two
halves: `digests` needs no other document and can run anywhere; `compare` needs the digests of all documents, in order.
"""

import hashlib
import sqlite3
import struct
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import text_key
from airgen.corpus.cleaning.filters import KEEP, CleanResult, Item
from airgen.corpus.settings import NearDuplicateSettings
from airgen.storage.sequences import batched
from airgen.storage.sql_connections import on_disk

_MIX = np.uint64(0x9E3779B97F4A7C15)
_BLOCK_CHARACTERS = 1 << 17  # characters hashed at once


_SPACELESS_RANGES = (
    *((0x1000, 0x10A0), (0x1780, 0x1800), (0x3005, 0x3008), (0x3031, 0x3036), (0x3041, 0x3100)),
    *((0x3105, 0x3130), (0x31F0, 0x3200), (0x3400, 0xA000), (0xF900, 0xFB00), (0x20000, 0x32000)),
)  # code points of scripts in which every character counts as a word


@cache
def _classes() -> NDArray[np.uint8]:
    """Classify each code point: 0 not in a word, 1 part of a word, 2 a word of its own."""
    table = np.zeros(0x110000, np.uint8)
    for low, high in ((0, 0x3000), (0xA000, 0x10000), (0x10000, 0x1F000)):
        table[low:high] = [unicodedata.category(chr(code))[0] in "LMN" for code in range(low, high)]
    table[0x0E00:0x1000] *= 2  # Thai, Lao, Tibetan; then South-East Asia, kana, ideographs
    for low, high in _SPACELESS_RANGES:
        table[low:high] = 2
    return table


@cache
def _weights(size: int, seed: int) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**63, size, np.uint64) << np.uint64(1) | np.uint64(1)


@cache
def _letters() -> NDArray[np.uint64]:
    """Return a hash for each code point; 0 for those that are not in a word."""
    hashes = np.random.default_rng(6).integers(1, 2**63, 0x110000, np.uint64)
    hashes[_classes() == 0] = 0
    return hashes


@cache
def _powers(size: int) -> NDArray[np.uint64]:
    """Return the powers 0, 1, 2, ... of _MIX modulo 2^64."""
    row = np.full(size, _MIX)
    row[0] = 1
    return np.multiply.accumulate(row)


def grams(texts: Sequence[str], n: int) -> list[NDArray[np.uint32]]:
    """Return hashes of each text's word n-grams, or one hash of all words if the text has fewer than n words."""
    blocks = batched(
        texts, _BLOCK_CHARACTERS, lambda text: len(text) + 1
    )  # chunks whose arrays fit into the processor's cache
    return [hashes for block in blocks for hashes in _block(block, n)]


def _block(texts: Sequence[str], n: int) -> list[NDArray[np.uint32]]:
    lines = [f"{text.lower()}\n" for text in texts]
    codes = np.frombuffer("".join(lines).encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = np.cumsum([len(line) for line in lines])
    kind = _classes()[codes]
    inside, opens = kind == 1, kind == 2
    opens[0] |= inside[0]
    opens[1:] |= inside[1:] > inside[:-1]
    # In a text without words, the line break at its end counts as a word.
    opens[ends[np.diff(np.cumsum(opens)[ends - 1], prepend=0) == 0] - 1] = True
    order = np.cumsum(opens)
    last = order[ends - 1]  # for each text, where its words end
    first = np.append(0, last[:-1])
    begins = np.flatnonzero(opens)
    # The hash of a word is a polynomial of its characters' hashes.
    place = np.arange(len(codes)) - begins[order - 1]
    words = np.add.reduceat(_letters()[codes] * _powers(1 << len(codes).bit_length())[place], begins)
    words ^= words >> np.uint64(32)
    weights, padded = _weights(n, 2), np.concatenate([words, np.zeros(n, np.uint64)])
    total = words * weights[0]
    for step in range(1, n):
        total += padded[step : step + len(words)] * weights[step]
    keep = np.arange(len(words)) + n <= np.repeat(last, last - first)
    for begin, end in zip(first[last - first < n].tolist(), last[last - first < n].tolist(), strict=True):
        total[begin] = (words[begin:end] * weights[: end - begin]).sum()
        keep[begin] = True
    total ^= total >> np.uint64(31)
    total *= _MIX
    hashes = (total[keep] >> np.uint64(32)).astype(np.uint32)
    return np.split(hashes, np.cumsum(np.maximum(last - first - n + 1, 1))[:-1])


def signatures(text_hashes: Sequence[NDArray[np.uint32]], permutations: int) -> NDArray[np.uint32]:
    """Return the smallest hash of each text's n-grams under each permutation: uint32 (texts, permutations).

    The permutations are x -> (x ^ b) * a modulo 2^32, a odd: exact bijections, fast, and close enough to
    min-wise independence on hashed input (the tests compare with exact Jaccard similarity).
    """
    factors, flips = (_weights(2 * permutations, 3) >> np.uint64(32)).astype(np.uint32).reshape(2, permutations)
    hashes, starts = np.concatenate(text_hashes), np.cumsum([0, *map(len, text_hashes[:-1])])
    out, buffer = np.empty((permutations, len(text_hashes)), np.uint32), np.empty_like(hashes)
    for row, (factor, flip) in enumerate(zip(factors | np.uint32(1), flips, strict=True)):
        np.bitwise_xor(hashes, flip, out=buffer)
        np.multiply(buffer, factor, out=buffer)
        np.minimum.reduceat(buffer, starts, out=out[row])
    return np.ascontiguousarray(out.T)


def band_keys(rows: NDArray[np.uint32], bands: int) -> NDArray[np.uint64]:
    """Return one 64-bit key for each band of a signature: uint64 (texts, bands). Equal keys mean equal bands."""
    width = rows.shape[1] // bands
    parts = rows[:, : bands * width].reshape(len(rows), bands, width).astype(np.uint64)
    keys: NDArray[np.uint64] = (parts * _weights(width, 4)).sum(axis=2, dtype=np.uint64) + _weights(bands, 5)
    keys ^= keys >> np.uint64(32)
    keys *= _MIX
    keys ^= keys >> np.uint64(29)
    return keys


# Documents kept per band: texts from the same template share their beginning, so not all need to be compared.
_MAX_DOCUMENTS_PER_BAND = 4

_SCHEMA = """
    CREATE TABLE first (of TEXT, hash BLOB, id TEXT, PRIMARY KEY (of, hash)) WITHOUT ROWID;
    CREATE TABLE near (place INTEGER PRIMARY KEY, id TEXT, signature BLOB);
    CREATE TABLE band (key INTEGER, place INTEGER, PRIMARY KEY (key, place)) WITHOUT ROWID;
"""


def earlier_documents() -> AbstractContextManager[sqlite3.Connection]:
    """Open an empty store for data about earlier documents. Raises CorpusError, for example if the disk is full."""
    return on_disk(_SCHEMA, "the search for duplicates")


class Repeats(NamedTuple):
    """Drops a document if `of` gives the same value for an earlier one.

    `detail` is a format string for the earlier document's id. `table` separates the values of several such steps.
    """

    name: str
    of: Callable[[Item], str]
    reason: str
    detail: str
    table: str

    def digests(self, items: Sequence[Item]) -> list[bytes]:
        """Return a hash of each item's value."""
        texts = (self.of(item).encode("utf-8", "surrogatepass") for item in items)
        return [hashlib.blake2b(text, digest_size=8).digest() for text in texts]

    def compare(self, identity: str, seen: bytes, earlier: sqlite3.Connection) -> CleanResult:
        """Decide on a document from the result of `digests`, after all earlier documents."""
        values = (self.table, seen, repr(identity))
        if earlier.execute("INSERT OR IGNORE INTO first VALUES (?, ?, ?)", values).rowcount:
            return KEEP
        ((first,),) = earlier.execute("SELECT id FROM first WHERE of = ? AND hash = ?", values[:2])
        return CleanResult(False, self.reason, self.detail.format(first))


def duplicate_ids(table: str = "ids") -> Repeats:
    """Return a step that drops documents with the same id as an earlier one."""
    return Repeats(
        "ids",
        of=lambda item: item.document.id,
        reason="duplicate id",
        detail="{} came before",
        table=table,
    )


def exact_duplicates(fields: Sequence[str]) -> Repeats:
    """Return a step that drops documents whose `fields` (of `title` and `text`) equal those of an earlier one."""
    return Repeats(
        "exact duplicates",
        of=lambda item: _compared(item, fields),
        reason="exact duplicate",
        detail="of {}",
        table="texts",
    )


def _compared(item: Item, fields: Sequence[str]) -> str:
    return "\x1f".join(getattr(item.document, name) for name in fields)


class NearDuplicates:
    """Drops near duplicates: MinHash with banding. Candidates are confirmed by signatures with 8 bits per value."""

    name = "near duplicates"

    def __init__(self, settings: NearDuplicateSettings, fields: Sequence[str] = ("text",)) -> None:
        self._settings, self._fields = settings, fields
        marks = ", ".join("?" * settings.bands)
        self._find = f"SELECT key, place FROM band WHERE key IN ({marks})"

    def digests(self, items: Sequence[Item]) -> list[bytes]:
        """Return each item's band keys (8 bytes per key), followed by its signature (8 bits per value)."""
        if not items:
            return []
        hashes = grams([item.document.text for item in items], self._settings.ngram)
        rows = signatures(hashes, self._settings.bands * self._settings.rows)
        keys = band_keys(rows, self._settings.bands)
        if "title" in self._fields:  # texts with different titles are never compared
            keys ^= np.array([int(text_key(item.document.title.casefold()), 16) % 2**64 for item in items], np.uint64)[
                :, None
            ]
        return [row.tobytes() for row in np.concatenate([keys.view(np.uint8), rows.astype(np.uint8)], axis=1)]

    def compare(self, identity: str, seen: bytes, earlier: sqlite3.Connection) -> CleanResult:
        """Decide on a document, like `Repeats.compare`. The detail names the most similar earlier document."""
        *keys, signature = struct.unpack(f"={self._settings.bands}q{len(seen) - 8 * self._settings.bands}s", seen)
        matches = earlier.execute(self._find, keys).fetchall()
        if matches:
            places = ", ".join({str(place) for _, place in matches})
            rivals = earlier.execute(
                f"SELECT id, signature FROM near WHERE place IN ({places}) ORDER BY place"
            ).fetchall()
            rows = np.frombuffer(b"".join(other for _, other in rivals), np.uint8).reshape(len(rivals), -1)
            equal = (rows == np.frombuffer(signature, np.uint8)).mean(axis=1)
            best = int(np.argmax(equal))
            # Of different positions, 1 in 256 is equal by chance (b-bit MinHash, Li and König 2010).
            similarity = (equal[best] - 1 / 256) / (1 - 1 / 256)
            if similarity >= self._settings.threshold:
                return CleanResult(False, "near duplicate", f"of {rivals[best][0]}, similarity {similarity:.2f}")
        times = Counter(key for key, _ in matches)
        place = earlier.execute("INSERT INTO near VALUES (NULL, ?, ?)", (repr(identity), signature)).lastrowid
        new = [(key, place) for key in keys if times[key] < _MAX_DOCUMENTS_PER_BAND]
        earlier.executemany("INSERT OR IGNORE INTO band VALUES (?, ?)", new)
        return KEEP


CorpusWide = Repeats | NearDuplicates
"""A cleaner whose result also depends on earlier documents."""
