"""How often each of many texts was met, counted on disk.

    seen = KeyCounts()
    seen.add(key)       # 1 the first time, then 2, ...

Mining meets millions of texts and has to know which came before. A set of Python's takes about 100 bytes for each; this
is an open-addressing table of 9 bytes a slot in a temporary file that is mapped into memory, so that the operating
system can take its pages back.
"""

from __future__ import annotations

import mmap
import tempfile

_MASK = (1 << 64) - 1
_MOST = 255


class KeyCounts:
    """Counts of 64-bit keys, up to 255. `slots`: the initial size, a power of two; it doubles when two thirds are full.

    Keys must be spread evenly, as those of hashes are. `len(counts)` is the number of keys.
    """

    def __init__(self, slots: int = 1 << 12) -> None:
        self._used = 0
        self._open(slots)

    def __len__(self) -> int:
        return self._used

    def __contains__(self, key: int) -> bool:
        return self.count(key) > 0

    def count(self, key: int) -> int:
        """How often the key was added."""
        return self._counts[self._slot(key)]

    def add(self, key: int) -> int:
        """Add the key once; returns how often it was added, this time included."""
        slot = self._slot(key)
        count: int = self._counts[slot]
        if not count:
            if 3 * (self._used + 1) > 2 * self._slots:
                self._grow()
                slot = self._slot(key)
            self._keys[slot] = key & _MASK
            self._used += 1
        if count < _MOST:
            self._counts[slot] = count + 1
        return count + 1

    def _slot(self, key: int) -> int:
        """The slot of the key, or the free one where it belongs."""
        key &= _MASK
        last = self._slots - 1
        slot = key & last
        keys, counts = self._keys, self._counts
        while counts[slot] and keys[slot] != key:
            slot = (slot + 1) & last
        return slot

    def _open(self, slots: int) -> None:
        with tempfile.TemporaryFile() as file:
            file.truncate(9 * slots)
            table = memoryview(mmap.mmap(file.fileno(), 9 * slots))
        self._slots = slots
        self._keys, self._counts = table[: 8 * slots].cast("Q"), table[8 * slots :]

    def _grow(self) -> None:
        keys, counts, slots = self._keys, self._counts, self._slots
        self._open(2 * slots)
        for old in range(slots):
            if counts[old]:
                new = self._slot(keys[old])
                self._keys[new], self._counts[new] = keys[old], counts[old]
