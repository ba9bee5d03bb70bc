"""Postings of a corpus whose terms come a part at a time: what is large lies in files without a name.

    builder = PostingsBuilder(count_postings)
    for terms, lengths in encoder.batches(texts):
        builder.add(terms, lengths)
    field = builder.field(len(encoder.vocabulary))

The postings are equal to those of one call of `count_postings` with all terms. A passage of 100 different terms takes
800 bytes: they are in memory up to 64 MB, then in mapped files, whose pages the system writes out when memory is short.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from airgen.retrievers.lexical.mapped_arrays import room
from airgen.retrievers.lexical.weighting import Field

_PART = 8 << 20  # terms counted at once
_MOVED = 1 << 20  # postings moved at once

Counted = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]
Count = Callable[[NDArray[np.int32], NDArray[np.int64], int], Counted]


class PostingsBuilder:
    """Collects terms of one field, counts them by parts, and joins the parts' postings."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._terms: list[NDArray[np.int32]] = []
        self._waiting = 0  # terms that are not counted yet
        self._lengths: list[NDArray[np.int64]] = []
        self._counted = 0  # of the lengths, those whose terms are counted
        self._parts: list[Counted] = []

    def add(self, terms: NDArray[np.int32], lengths: NDArray[np.int64]) -> None:
        """Terms of the next texts one after another, and how many each text has."""
        self._terms.append(terms)
        self._lengths.append(lengths)
        self._waiting += len(terms)
        if self._waiting >= _PART:
            self._finish_part()

    def _finish_part(self) -> None:
        terms, lengths = np.concatenate(self._terms), np.concatenate(self._lengths[self._counted :])
        before = sum(len(part) for part in self._lengths[: self._counted])
        starts, positions, frequencies = self._count(terms, lengths, int(terms.max(initial=-1)) + 1)
        positions += np.int32(before)
        least = 1 if self._parts else None  # together the parts are large, so only the first may stay in memory
        self._parts.append((starts, _kept(positions, least), _kept(frequencies, least)))
        self._terms, self._waiting, self._counted = [], 0, len(self._lengths)

    def field(self, size: int) -> Field:
        """The postings of `size` terms. The builder is empty afterwards."""
        if self._terms or not self._parts:
            self._terms.append(np.empty(0, np.int32))
            self._lengths.append(np.empty(0, np.int64))
            self._finish_part()
        counts = np.zeros(size, np.int64)
        for starts, _, _ in self._parts:
            counts[: len(starts) - 1] += np.diff(starts)
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        lengths = np.concatenate(self._lengths)
        if len(self._parts) == 1:
            _, positions, frequencies = self._parts.pop()
            return Field(starts, positions, frequencies, lengths)
        positions, frequencies = room(int(starts[-1]), np.int32), room(int(starts[-1]), np.int32)
        free = starts[:-1].copy()  # where the next posting of each term goes
        while self._parts:
            of_terms, *part = self._parts.pop(0)
            terms = len(of_terms) - 1
            for first in range(0, len(part[0]), _MOVED):
                last = min(first + _MOVED, len(part[0]))
                edges = np.clip(of_terms, first, last)
                moved = np.arange(first, last) + np.repeat(free[:terms] - of_terms[:-1], np.diff(edges))
                positions[moved], frequencies[moved] = part[0][first:last], part[1][first:last]
            free[:terms] += np.diff(of_terms)
        return Field(starts, positions, frequencies, lengths)


def _kept(values: NDArray[np.int32], least: int | None) -> NDArray[np.int32]:
    found = room(len(values), values.dtype, least=least)
    if isinstance(found, np.memmap):
        found[:] = values
        return found
    return values
