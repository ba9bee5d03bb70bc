"""Dense retrieval by exact search, and the embeddings that are kept on disk.

Embeddings on disk, by text and model: each is computed once, and new ones are appended as the corpus grows.

A folder holds `meta.json` (the embedder's description), `rows.f16` (one fp16 row for each text, memory-mapped) and
`keys.bin` (one 20-byte record for each row: the text's 128-bit key, then the CRC-32 of the row). Both only grow. The
rows of a batch are written before its keys, so every key has its row. An incomplete end, which a crash left, is found
by length and CRC when the folder is opened, and cut off. Every other row that does not match its CRC is left out, so
that its text is embedded again.

Dense retrieval: one vector for each text, exact search by inner product.

Vectors are kept as fp16, in a cache folder or in memory, so that results are equal with and without a cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.errors import ModelError, UsageError
from airgen.keys import canonical_json, content_key
from airgen.models.catalogue import locked
from airgen.retrievers.base import Component, Corpus, Embedder, Hits, TextKind, finite, non_empty
from airgen.retrievers.dense.exact_search import search, search_shards
from airgen.retrievers.dense.onnx_encoder import EmbeddedModel
from airgen.retrievers.encodings import shared
from airgen.retrievers.on_workers import encoded
from airgen.sequences import batched
from airgen.settings.base import FILE, SPEED
from airgen.settings.parts import Part, located

_KEY = np.dtype("S16")  # compared as bytes; all have one length, so numpy's padding by zeros makes no two equal
_RECORD = np.dtype([("key", _KEY), ("crc", "<u4")])
_TAIL = 4096  # rows at the end, more than a crash can damage: a bad one there is cut off with those after it
_BATCH = 256  # texts embedded between two writes; a crash loses at most these


def cache_folder(root: Path, embedder: Embedder, kind: TextKind) -> Path:
    """The folder of the embeddings of one kind of text by one embedder with its settings."""
    return root / content_key(dict(embedder.describe()))[:16] / kind


class EmbeddingCache:
    """The embeddings of one embedder and one kind of text in one folder; a context manager with one writer.

    Opening reads every row. `damaged` is how many do not match their checksum; their texts are embedded again.

    Raises ModelError where the folder belongs to another model, to other settings or to another dimension, or is open
    elsewhere.
    """

    def __init__(self, folder: Path, embedder: Embedder, kind: TextKind) -> None:
        self.folder, self.kind = folder, kind
        self._embedder = embedder
        self.damaged = 0
        self._count = 0  # rows in the file, damaged ones among them
        self._lock = locked(folder / "lock")
        self._lock.__enter__()
        try:
            self._identify()
            self.rows_path, self._keys_path = folder / "rows.f16", folder / "keys.bin"
            self._row_bytes = embedder.dim * 2
            self._known = self._repair()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EmbeddingCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder for another writer."""
        self._lock.__exit__(None, None, None)

    def __len__(self) -> int:
        return len(self._known)

    def _identify(self) -> None:
        meta = {"version": 1, "kind": self.kind, "dim": self._embedder.dim, "embedder": dict(self._embedder.describe())}
        path = self.folder / "meta.json"
        if not path.exists():
            partial = path.with_suffix(".partial")
            partial.write_text(canonical_json(meta), encoding="utf-8")
            partial.replace(path)
            return
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ModelError(f"{path} is not JSON: delete {self.folder} to embed again") from error
        if found != json.loads(canonical_json(meta)):
            theirs = found.get("embedder", {}).get("model") if isinstance(found, dict) else None
            raise ModelError(
                f"{self.folder} holds embeddings of {theirs or 'something else'} with its settings, "
                f"not of {self._embedder.name} with these: choose another folder"
            )

    def _repair(self) -> _Known:
        """Cut off what a crash left behind, and read the keys."""
        sizes = [path.stat().st_size if path.exists() else 0 for path in (self.rows_path, self._keys_path)]
        whole = min(sizes[0] // self._row_bytes, sizes[1] // _RECORD.itemsize)
        records = np.fromfile(self._keys_path, _RECORD, whole) if whole else np.zeros(0, _RECORD)
        bad = self._damaged_rows(records["crc"])
        whole = next((row for row in bad if row >= whole - _TAIL), whole)
        left_out = [row for row in bad if row < whole]
        self.damaged, self._count = len(left_out), whole
        for path, size in ((self.rows_path, self._row_bytes), (self._keys_path, _RECORD.itemsize)):
            if path.exists() and path.stat().st_size != whole * size:
                os.truncate(path, whole * size)
        return _Known(records["key"][:whole], left_out)

    def _damaged_rows(self, checksums: NDArray[np.uint32]) -> list[int]:
        """The places of the rows that do not match their checksums, in order."""
        found: list[int] = []
        if len(checksums):
            with self.rows_path.open("rb") as file:
                for row, crc in enumerate(map(int, checksums)):
                    if zlib.crc32(file.read(self._row_bytes)) != crc:
                        found.append(row)
        return found

    def rows(self, texts: Sequence[str], progress: Callable[[int, int], None] | None = None) -> NDArray[np.int64]:
        """The position of each text's row in `matrix`; texts without a row are embedded and stored.

        `progress` gets (texts done, texts to do). Raises ModelError where the embedder gives NaN, another
        number of vectors or another dimension than before.
        """
        digests = bytearray()
        for text in texts:
            digests += hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        keys = np.frombuffer(digests, _KEY) if digests else np.empty(0, _KEY)
        missing = np.flatnonzero(self._known.find(keys) < 0)
        _, first_of = np.unique(keys[missing], return_index=True)
        queue = missing[np.sort(first_of)]  # in the corpus's order, so that a search reads the file from end to end
        with self.rows_path.open("ab") as rows_file, self._keys_path.open("ab") as keys_file:
            batches = [queue[first : first + _BATCH] for first in range(0, len(queue), _BATCH)]
            wanted = ([texts[place] for place in batch.tolist()] for batch in batches)
            done = 0
            for batch, vectors in zip(batches, encoded(self._embedder.encode, wanted, self.kind), strict=True):
                rows = self._rounded(self._checked(vectors, len(batch)))
                self._append(rows_file, keys_file, keys[batch], rows)
                done += len(batch)
                if progress:
                    progress(done, len(queue))
        return self._known.find(keys)

    def _checked(self, vectors: NDArray[Any], count: int) -> NDArray[Any]:
        if vectors.shape != (count, self._embedder.dim):
            raise ModelError(
                f"{self._embedder.name} gave vectors of shape {vectors.shape} for {count} texts, "
                f"({count}, {self._embedder.dim}) expected: did the model behind it change?"
            )
        if not np.isfinite(vectors).all():
            raise ModelError(f"{self._embedder.name} gave NaN or infinity: this batch was not stored")
        return vectors

    def _rounded(self, vectors: NDArray[Any]) -> NDArray[np.float16]:
        if np.abs(vectors).max(initial=0) > np.finfo(np.float16).max:
            raise ModelError(
                f"{self._embedder.name} gave a number of {np.abs(vectors).max():,.0f}, and rows on disk (fp16) hold "
                "65,504 at most: leave `cache` out, or set `similarity: cosine`"
            )
        return vectors.astype(np.float16)

    def _append(
        self, rows_file: IO[bytes], keys_file: IO[bytes], keys: NDArray[np.bytes_], rows: NDArray[np.float16]
    ) -> None:
        records = np.zeros(len(keys), _RECORD)
        records["key"], records["crc"] = keys, [zlib.crc32(row.tobytes()) for row in rows]
        for file, data in ((rows_file, rows.tobytes()), (keys_file, records.tobytes())):
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._known.add(keys, self._count)
        self._count += len(keys)

    def matrix(self) -> NDArray[np.float16]:
        """All rows so far, (n, dim), memory-mapped and read-only."""
        if not self._count:
            return np.zeros((0, self._embedder.dim), np.float16)
        return np.memmap(self.rows_path, np.float16, "r", shape=(self._count, self._embedder.dim))


class _Known:
    """The row of each key, sorted by key when it is looked up: 24 bytes a key, where a dict takes 150."""

    def __init__(self, keys: NDArray[np.bytes_], left_out: Sequence[int]) -> None:
        rows = np.delete(np.arange(len(keys)), left_out)
        self._parts = [(keys[rows], rows)]

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._parts)

    def add(self, keys: NDArray[np.bytes_], first: int) -> None:
        """Keys of the rows from `first` on."""
        self._parts.append((keys, np.arange(first, first + len(keys))))

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """The row of each key, the last one where it has several; -1 where it has none."""
        known = np.concatenate([part for part, _ in self._parts])
        rows = np.concatenate([part for _, part in self._parts])
        order = np.argsort(known, kind="stable")
        known, rows = known[order], rows[order]
        self._parts = [(known, rows)]
        at = np.searchsorted(known, keys, side="right") - 1
        found = np.full(len(keys), -1, np.int64)
        hit = np.flatnonzero(at >= 0)
        hit = hit[known[at[hit]] == keys[hit]]
        found[hit] = rows[at[hit]]
        return found


class Dense(Component):
    """An embedder and exact search over a corpus (paper 2.4, step 1)."""

    class Settings(Component.Settings):
        """`cache`: the root folder for embeddings, or None to keep them in memory, or where `shared_encodings` says.

        `memory_bytes` bounds the search.
        """

        embedder: Annotated[Any, Part("embedder")] = "all-minilm-l6-v2-int8"
        cache: Annotated[Path | None, SPEED, FILE] = None
        memory_bytes: Annotated[int, SPEED] = Field(default=1 << 30, ge=1)

    settings: Settings
    embedder: Embedder

    def set_up(self) -> None:
        self.name = f"dense {self.embedder.name}"
        self._matrix: NDArray[np.float16] | None = None
        self._rows: NDArray[np.int64] | None = None
        self._file: tuple[Path, int] | None = None  # of the matrix, and the place of its first row there

    @property
    def index_bytes(self) -> int | None:
        return None if self._matrix is None else self._matrix.nbytes + (0 if self._rows is None else self._rows.nbytes)

    def index(self, corpus: Corpus) -> None:
        """Embed the passages that are not in the cache yet. Raises CorpusError for an empty corpus."""
        non_empty(corpus)
        root, common = self.settings.cache, shared()
        if root is None and common and isinstance(self.embedder, EmbeddedModel):
            root = common.folder.absolute()
        if root is None:
            self._matrix, self._rows, self._file = self._embed(corpus), None, None
            return
        folder = cache_folder(located(str(root), self.folder), self.embedder, "passage")
        with EmbeddingCache(folder, self.embedder, "passage") as cache:
            before = len(cache)
            rows = cache.rows(corpus.full_texts, self.progress)
            if common:
                common.reused += len(corpus) - (len(cache) - before)
            matrix, path = cache.matrix(), cache.rows_path
        first = int(rows[0])
        if np.array_equal(rows, np.arange(first, first + len(rows))):
            self._matrix, self._rows, self._file = matrix[first : first + len(rows)], None, (path, first)
        else:
            self._matrix, self._rows, self._file = matrix, rows, (path, 0)

    def _embed(self, corpus: Corpus) -> NDArray[np.float16]:
        matrix = np.zeros((len(corpus), self.embedder.dim), np.float16)
        done = 0
        for vectors in encoded(self.embedder.encode, batched(corpus.full_texts, _BATCH), "passage"):
            count = min(_BATCH, len(corpus) - done)
            matrix[done : done + count] = self._checked(vectors, count)
            done += count
            if self.progress:
                self.progress(done, len(corpus))
        return matrix

    def _checked(self, vectors: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        if vectors.shape != (count, self.embedder.dim):
            raise ModelError(
                f"{self.embedder.name} gave vectors of shape {vectors.shape} for {count} texts, "
                f"({count}, {self.embedder.dim}) expected: did the model behind it change?"
            )
        return finite(vectors, self.embedder.name)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k passages with the greatest inner product, exactly. Raises UsageError before `index`."""
        if self._matrix is None:
            raise UsageError("Dense.search before Dense.index: the corpus comes first")
        vectors = np.zeros((0, self.embedder.dim), np.float32)
        if queries:
            vectors = self._checked(self.embedder.encode(list(queries), "query"), len(queries))
        options: dict[str, Any] = {"rows": self._rows, "memory_bytes": self.settings.memory_bytes}
        if self._file is None:
            return search(self._matrix, vectors, k, **options)
        path, first = self._file
        return search_shards(path, self._matrix, vectors, k, first=first, **options)

    def describe(self) -> Mapping[str, object]:
        """The embedder's settings, and how its vectors are kept and searched."""
        return {
            "family": "dense",
            "embedder": dict(self.embedder.describe()),
            "rows": "fp16",
            "search": "exact",
        }
