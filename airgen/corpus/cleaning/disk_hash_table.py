"""A hash table on disk: 64-bit keys to places, in batches, in constant memory.

    table = DiskTable(folder)
    places = table.find(keys)            # int64 (n, WAYS): places stored under each key, -1 after the last
    table.add(keys, places)

It uses open addressing in two flat files, which are mapped into memory; the operating system drops their pages when it
needs memory. An entry takes 24 bytes on disk at the usual load.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

WAYS = 4  # entries kept per key; later ones are ignored
_LOAD = 0.5
_BLOCK = 1 << 17

Keys = NDArray[np.uint64]
Places = NDArray[np.int64]


class DiskTable:
    """A table that doubles its size when needed; `slots` is the initial size, a power of two."""

    def __init__(self, folder: Path, name: str = "table", slots: int = 1 << 16) -> None:
        self._folder, self._name, self._generation = folder, name, 0
        self._used = 0
        self._open(slots)

    def __len__(self) -> int:
        return self._used

    def _open(self, slots: int) -> None:
        self._slots = slots
        self._mask = np.uint64(slots - 1)
        self._files = [self._folder / f"{self._name}.{part}.{self._generation}" for part in ("keys", "places")]
        self._keys = np.memmap(self._files[0], np.uint64, "w+", shape=(slots,))
        self._places = np.memmap(self._files[1], np.uint32, "w+", shape=(slots,))  # place + 1, 0 is free
        self._generation += 1

    def find(self, keys: Keys) -> Places:
        """The places stored under each key, in the order of adding: int64 (n, WAYS), filled up with -1."""
        found = np.full((len(keys), WAYS), -1, np.int64)
        count = np.zeros(len(keys), np.int64)
        active = np.arange(len(keys))
        slot = keys & self._mask
        while len(active):
            held = self._places[slot]
            live = held != 0
            active, slot, held = active[live], slot[live], held[live]
            hit = self._keys[slot] == keys[active]
            rows = active[hit]
            found[rows, count[rows]] = held[hit].astype(np.int64) - 1
            count[rows] += 1
            going = count[active] < WAYS
            active, slot = active[going], (slot[going] + np.uint64(1)) & self._mask
        return found

    def add(self, keys: Keys, places: Places) -> None:
        """Store places under keys, in order; a lookup returns the first WAYS of a key."""
        while self._used + len(keys) > self._slots * _LOAD:
            self._grow()
        self._insert(keys, (places + 1).astype(np.uint32))
        self._used += len(keys)

    def _insert(self, keys: Keys, values: NDArray[np.uint32]) -> None:
        # Entries of one batch that need the same slot are stored in turn, in their order.
        slot = keys & self._mask
        active = np.arange(len(keys))
        while len(active):
            free = self._places[slot[active]] == 0
            rivals = active[free]
            _, first = np.unique(slot[rivals], return_index=True)
            winners = rivals[first]
            self._keys[slot[winners]] = keys[winners]
            self._places[slot[winners]] = values[winners]
            slot[active[~free]] = (slot[active[~free]] + np.uint64(1)) & self._mask
            active = active[~np.isin(active, winners, assume_unique=True)]

    def _grow(self) -> None:
        old_keys, old_places, old_files, slots = self._keys, self._places, self._files, self._slots
        self._open(slots * 2)
        # Entries of one key must keep their order, which is that of the probe path; it wraps around at the end.
        start = int(np.argmin(np.asarray(old_places[:_BLOCK]) != 0))
        for begin in range(0, slots, _BLOCK):
            index = (np.arange(begin, min(begin + _BLOCK, slots)) + start) % slots
            values = old_places[index]
            live = values != 0
            self._insert(old_keys[index][live], values[live])
            self.relax()
            _release(old_keys, old_places)
        del old_keys, old_places
        for path in old_files:
            path.unlink()

    def relax(self) -> None:
        """Return the mapped pages to the operating system, which may keep them in its cache."""
        _release(self._keys, self._places)


def _release(*arrays: NDArray[np.generic]) -> None:
    """Release the pages of mapped arrays; their contents are in the files."""
    for array in arrays:
        mapped = getattr(array, "_mmap", None)
        if isinstance(mapped, mmap.mmap) and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)


def _read_at(file: IO[bytes], size: int, start: int) -> bytes:
    """Bytes of a flushed file, from `start` on; the next write still goes to its end."""
    if hasattr(os, "pread"):
        return os.pread(file.fileno(), size, start)
    file.seek(start)  # Windows
    found = file.read(size)
    file.seek(0, os.SEEK_END)
    return found


class IdLog:
    """Ids in files, by place, each with a row of `width` bytes: written in order, read in any order."""

    def __init__(self, folder: Path, name: str, width: int = 0) -> None:
        self._ids = (folder / f"{name}.ids").open("w+b")
        self._offsets = (folder / f"{name}.offsets").open("w+b")
        self._rows = (folder / f"{name}.rows").open("w+b")
        self._width, self._end, self._count = width, 0, 0

    def __len__(self) -> int:
        return self._count

    def append(self, identity: str, row: bytes = b"") -> int:
        """Store the next id; returns its place."""
        data = identity.encode("utf-8", "surrogatepass")
        self._ids.write(data)
        self._end += len(data)
        self._offsets.write(self._end.to_bytes(8, "little"))
        self._rows.write(row)
        self._count += 1
        return self._count - 1

    def flush(self) -> None:
        """Write buffered data, so that it can be read."""
        for file in (self._ids, self._offsets, self._rows):
            file.flush()

    def id(self, place: int) -> str:
        """The id at a place."""
        ends = _read_at(self._offsets, 16, max(place - 1, 0) * 8)
        start = int.from_bytes(ends[:8], "little") if place else 0
        end = int.from_bytes(ends[8:16] if place else ends[:8], "little")
        return _read_at(self._ids, end - start, start).decode("utf-8", "surrogatepass")

    def rows(self, places: Places) -> NDArray[np.uint8]:
        """The rows at these places: uint8 (n, width)."""
        found = np.empty((len(places), self._width), np.uint8)
        for number, place in enumerate(places.tolist()):
            found[number] = np.frombuffer(_read_at(self._rows, self._width, place * self._width), np.uint8)
        return found

    def close(self) -> None:
        """Close the files."""
        for file in (self._ids, self._offsets, self._rows):
            file.close()
