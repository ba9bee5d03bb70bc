"""Exact and near duplicates in the whole corpus, found while it is streamed, in bounded memory.

A document is dropped if an earlier one that was kept has the same id, the same text, or nearly the same words. The data
about earlier documents is in files of a temporary folder: about 0.6 kB a document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airgen.corpus.cleaning.cleaner import KEEP, CleanResult, Item
from airgen.corpus.cleaning.disk_hash_table import DiskTable, IdLog
from airgen.corpus.cleaning.minhash import band_keys, shingles, signatures
from airgen.corpus.settings import NearDuplicateSettings

__all__ = ["DuplicateIds", "ExactDuplicates", "NearDuplicates"]

_RELAX = 4  # batches after which mapped pages are released


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


class _Seen:
    """The shared part of `ExactDuplicates` and `DuplicateIds`: finds the first document with each 64-bit hash."""

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


class DuplicateIds:
    """Drop documents with the id of an earlier one."""

    name = "ids"

    def __init__(self, folder: Path) -> None:
        self._seen = _Seen(folder, "ids")
        self.close = self._seen.close

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """One result an item, in order."""
        ids = [item.document.id for item in items]
        earlier = self._seen.first([_hash(identity) for identity in ids], ids)
        return [
            KEEP if found is None else CleanResult(False, "duplicate id", f"{found!r} came before") for found in earlier
        ]


class ExactDuplicates:
    """Drop documents with exactly the text of an earlier one, after normalisation."""

    name = "exact duplicates"

    def __init__(self, folder: Path) -> None:
        self._seen = _Seen(folder, "exact")
        self.close = self._seen.close

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """One result an item, in order."""
        hashes = [_hash(item.document.text) for item in items]
        earlier = self._seen.first(hashes, [item.document.id for item in items])
        return [KEEP if found is None else CleanResult(False, "exact duplicate", f"of {found!r}") for found in earlier]


class NearDuplicates:
    """Drop near duplicates: MinHash with banding; candidates are confirmed by signatures of 8 bits a place."""

    name = "near duplicates"

    def __init__(self, settings: NearDuplicateSettings, folder: Path) -> None:
        self._settings = settings
        self._permutations = settings.bands * settings.rows
        self._table = DiskTable(folder, "bands")
        self._log = IdLog(folder, "near", self._permutations)
        self.close = self._log.close
        self._batches = 0

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """One result an item, in order."""
        if not items:
            return []
        rows = signatures(shingles([item.document.text for item in items], self._settings.ngram), self._permutations)
        keys = band_keys(rows, self._settings.bands)
        small = rows.astype(np.uint8)
        earlier = self._earlier(keys)
        rivals = self._rivals(keys)
        self._log.flush()
        verdicts: list[CleanResult] = []
        place_of: dict[int, int] = {}  # row of this batch that is kept -> its place
        for number, item in enumerate(items):
            verdict = self._judge(
                number, small, earlier[number], [row for row in rivals.get(number, ()) if row in place_of], items
            )
            verdicts.append(verdict)
            if verdict.keep:
                place_of[number] = self._log.append(item.document.id, small[number].tobytes())
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
        items: Sequence[Item],
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
                best, who = float(scores[at]), items[rivals[at]].document.id
        if best >= self._settings.threshold:
            return CleanResult(False, "near duplicate", f"of {who!r}, similarity {best:.2f}")
        return KEEP

    @staticmethod
    def _similarity(rows: NDArray[np.uint8], row: NDArray[np.uint8]) -> NDArray[np.float64]:
        """The share of equal places, corrected for the 1/256 equal by chance (b-bit MinHash, Li and König 2010)."""
        equal = (rows == row).mean(axis=1)
        found: NDArray[np.float64] = np.clip((equal - 1 / 256) / (1 - 1 / 256), 0, 1)
        return found
