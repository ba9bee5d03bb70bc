"""Exact and near duplicates in the whole corpus, found while it is streamed, in bounded memory.

A document is dropped if an earlier one that was kept has the same id, the same text, or nearly the same words. The data
about earlier documents is in files of a temporary folder: about 0.6 kB a document.

Each step has two halves: `look` needs one document, and may be done anywhere; `compare` needs what was seen of all
documents in their order. A step without a folder can only look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.corpus.cleaning.cleaner import KEEP, CleanResult, Item
from airgen.corpus.cleaning.disk_hash_table import DiskTable, IdLog
from airgen.corpus.cleaning.minhash import band_keys, shingles, signatures
from airgen.corpus.settings import NearDuplicateSettings

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
