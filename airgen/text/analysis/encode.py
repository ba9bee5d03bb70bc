"""From texts to term ids: the vocabulary of a corpus is built while it is read.

    encoder = Encoder(analyser("en"))
    terms, lengths = encoder.encode(["The cats sat", "a cat"])     # [0, 1, 0], [2, 1]
    encoder.vocabulary                                             # {"cat": 0, "sat": 1}

Each distinct token is analysed once, not each occurrence. With numba (extra `fast`) a compiled scan finds the tokens,
without it a regular expression. Both number the terms in the order of their first appearance, so the indexes are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from airgen.batches import batched
from airgen.jit import numba_is_installed
from airgen.text.analysis.analyser import Analyser
from airgen.text.analysis.boundaries import classes

if TYPE_CHECKING:
    from airgen.text.analysis._scan import State


_BATCH = 1 << 21  # characters: 8 MB of code points
_COMPILE_FROM = 2_000_000  # characters; below, loading numba takes longer than it saves
_DROPPED = -1


class Encoder:
    """Numbers terms in the order of their first appearance.

    `compiled=None` uses numba if it is installed and the first texts are so long that loading it saves time.
    """

    def __init__(self, analyser: Analyser, compiled: bool | None = None) -> None:
        self.analyser = analyser
        self.vocabulary: dict[str, int] = {}
        self.compiled = compiled
        self._ids = np.empty(0, np.int32)  # token id of the scan -> term id
        self._known: dict[str, int] = {}  # token -> term id, without the scan
        self._state: State | None = None  # of the scan
        self._read = 0  # how much of the scan's arena has term ids

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Term ids of all texts one after another, int32; and the number of terms of each text, int64 (n,)."""
        parts, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        for terms, counts in self.batches(texts):
            parts.append(terms)
            lengths.append(counts)
        return np.concatenate(parts), np.concatenate(lengths)

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """The same for some texts at a time, which need not all be in memory."""
        if self.compiled is not False:  # decided once, since the two ways have different token ids
            enough = self.compiled or any(total >= _COMPILE_FROM for total in accumulate(map(len, texts)))
            self.compiled = enough and self.analyser.scannable and numba_is_installed()
        for batch in batched(map(self.analyser.prepare, texts), _BATCH, len):
            yield self._scan(batch) if self.compiled else self._match(batch)

    def _scan(self, batch: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        from airgen.text.analysis import _scan

        joined = "".join(batch)
        text = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        bounds = np.zeros(len(batch) + 1, np.int64)
        np.cumsum([len(one) for one in batch], out=bounds[1:])
        table = classes(128 if joined.isascii() else 0x110000, self.analyser.bigrams)
        tokens, counts, state = _scan.intern(text, bounds, table, self._state or _scan.new_state())
        self._state = state
        self._name(state)
        terms = self._ids[tokens]
        kept = terms != _DROPPED
        if not kept.all():
            texts = np.repeat(np.arange(len(batch)), counts)
            counts = np.bincount(texts[kept], minlength=len(batch))
            terms = terms[kept]
        return terms, counts.astype(np.int64)

    def _name(self, state: State) -> None:
        """Run the analyser's chain on the tokens that the scan has met for the first time."""
        _, arena, used, count = state
        fresh = np.empty(count - len(self._ids), np.int32)
        records = arena[self._read : used].tobytes()
        place = 0
        for number in range(len(fresh)):
            size = int.from_bytes(records[place + 4 : place + 8], "little")
            place += 16 + 4 * size  # id, length and hash stand before the letters
            fresh[number] = self._term(records[place - 4 * size : place].decode("utf-32-le", "surrogatepass"))
        self._read = used
        self._ids = np.concatenate((self._ids, fresh))

    def _match(self, batch: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        known = self._known
        found: list[int] = []
        counts = np.empty(len(batch), np.int64)
        for number, text in enumerate(batch):
            before = len(found)
            tokens = self.analyser.split(text)
            for token in tokens:
                term = known.get(token)
                if term is None:
                    term = known[token] = self._term(token)
                if term != _DROPPED:
                    found.append(term)
            counts[number] = len(found) - before
        return np.array(found, np.int32), counts

    def _term(self, token: str) -> int:
        term = self.analyser.term(token)
        return _DROPPED if term is None else self.vocabulary.setdefault(term, len(self.vocabulary))
