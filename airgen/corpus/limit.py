"""`limit:` of a corpus: a seeded sample of its documents, taken while they stream by.

    for row in limited(reader.read(), limit=1_000_000, seed=0):
        ...     # first what the reader dropped, then the 1,000,000 documents with the smallest hashes of their ids

Nobody has to know the number of documents before. The documents come in the order of their hashes, so those of a
smaller limit are the first ones of a larger limit, and cleaning, which keeps the first of several duplicates, decides
the same for them: a larger limit only adds. The order of the source changes nothing.

Memory holds 24 bytes for each document of the sample and for as many candidates. Their texts lie in a temporary file,
which is at most three times as large as the sample.
"""

from __future__ import annotations

import hashlib
import pickle
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from typing import IO

from airgen.records import Document, Dropped

_SPARE = 1024  # candidates beyond the limit that are kept at least before the file is written again


def limited(rows: Iterable[Document | Dropped], limit: int, seed: int = 0) -> Iterator[Document | Dropped]:
    """What the reader dropped, as it comes; then the `limit` documents with the smallest hashes, the smallest first.

    All rows are read. Documents of one id are ordered by a hash of their texts.
    """
    with _Sample(limit, seed) as sample:
        for row in rows:
            if isinstance(row, Dropped):
                yield row
            else:
                sample.offer(row)
        yield from sample.documents()


class _Sample:
    """The documents with the smallest hashes so far, and candidates that came since they were counted last."""

    def __init__(self, limit: int, seed: int) -> None:
        self._limit, self._seed = limit, f"{seed}\x1f".encode()
        self._most = limit + max(limit, _SPARE)
        self._bound: tuple[int, int] | None = None  # the largest hash of a full sample
        self._ids, self._texts, self._places = array("Q"), array("Q"), array("Q")
        self._file = self._new_file()

    @staticmethod
    def _new_file() -> IO[bytes]:
        return tempfile.TemporaryFile(prefix="airgen-limit-")

    def __enter__(self) -> _Sample:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def offer(self, document: Document) -> None:
        """Take the document, unless the sample is full of smaller hashes."""
        first = _hash(self._seed + document.id.encode("utf-8", "surrogatepass"))
        if self._bound is not None and first > self._bound[0]:
            return
        second = _hash(f"{document.title}\x1f{document.text}".encode("utf-8", "surrogatepass"))
        if self._bound is not None and (first, second) >= self._bound:
            return
        self._ids.append(first)
        self._texts.append(second)
        self._places.append(self._file.tell())
        pickle.dump(document, self._file, pickle.HIGHEST_PROTOCOL)
        if len(self._ids) >= self._most:
            self._shrink()

    def documents(self) -> Iterator[Document]:
        """The sample, in the order of the hashes."""
        for number in self._smallest():
            yield self._read(self._places[number])

    def _smallest(self) -> list[int]:
        """The numbers of the sample's documents, in the order of their hashes."""
        import numpy as np

        order = np.lexsort((np.array(self._texts), np.array(self._ids)))[: self._limit]
        return [int(number) for number in order]

    def _read(self, place: int) -> Document:
        self._file.seek(place)
        document: Document = pickle.load(self._file)
        return document

    def _shrink(self) -> None:
        """Forget all but the sample: a new file holds its documents."""
        kept, old = sorted(self._smallest()), self._file
        found = [(self._ids[number], self._texts[number]) for number in kept]
        self._bound = max(found)
        places, self._file = [self._places[number] for number in kept], self._new_file()
        self._ids, self._texts = array("Q", [one for one, _ in found]), array("Q", [two for _, two in found])
        self._places = array("Q")
        with old:
            for place in places:
                old.seek(place)
                self._places.append(self._file.tell())
                pickle.dump(pickle.load(old), self._file, pickle.HIGHEST_PROTOCOL)


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
