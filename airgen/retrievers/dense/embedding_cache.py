"""Embeddings on disk, by text and model: each is computed once, and new ones are appended as the corpus grows.

A folder holds `meta.json` (the embedder's description), `rows.f16` (one fp16 row for each text, memory-mapped) and
`keys.bin` (one 20-byte record for each row: the text's 128-bit key, then the CRC-32 of the row). Both only grow. The
rows of a batch are written before its keys, so every key has its row. An incomplete end, which a crash left, is found
by length and CRC when the folder is opened, and cut off.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import ModelError
from airgen.keys import canonical_json, content_key
from airgen.models.files import locked
from airgen.retrievers.base import Embedder, TextKind

__all__ = ["EmbeddingCache", "cache_folder"]

_RECORD = np.dtype([("key", "V16"), ("crc", "<u4")])
_TAIL = 4096  # rows whose CRC is checked at opening: more than one batch, so more than a crash can damage
_BATCH = 256  # texts embedded between two writes; a crash loses at most these


def cache_folder(root: Path, embedder: Embedder, kind: TextKind) -> Path:
    """The folder of the embeddings of one kind of text by one embedder with its settings."""
    return root / content_key(dict(embedder.describe()))[:16] / kind


class EmbeddingCache:
    """The embeddings of one embedder and one kind of text in one folder; a context manager with one writer.

    Raises ModelError where the folder belongs to another model, to other settings or to another dimension, is
    damaged in the middle, or is open elsewhere.
    """

    def __init__(self, folder: Path, embedder: Embedder, kind: TextKind) -> None:
        self.folder, self.kind = folder, kind
        self._embedder = embedder
        self._lock = locked(folder / "lock")
        self._lock.__enter__()
        try:
            self._identify()
            self._rows_path, self._keys_path = folder / "rows.f16", folder / "keys.bin"
            self._row_bytes = embedder.dim * 2
            self._places = self._repair()
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
        return len(self._places)

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

    def _repair(self) -> dict[bytes, int]:
        """Cut off what a crash left behind, and read the keys."""
        sizes = [path.stat().st_size if path.exists() else 0 for path in (self._rows_path, self._keys_path)]
        whole = min(sizes[0] // self._row_bytes, sizes[1] // _RECORD.itemsize)
        records = np.fromfile(self._keys_path, _RECORD, whole) if whole else np.zeros(0, _RECORD)
        if whole:
            rows = np.memmap(self._rows_path, np.uint8, "r", shape=(whole, self._row_bytes))
            first = max(0, whole - _TAIL)
            for row in range(first, whole):
                if zlib.crc32(rows[row].tobytes()) != int(records["crc"][row]):
                    whole = row
                    break
            if whole == first > 0:
                raise ModelError(f"{self._rows_path} is damaged: delete {self.folder} to embed again")
            del rows
        for path, size in ((self._rows_path, self._row_bytes), (self._keys_path, _RECORD.itemsize)):
            if path.exists() and path.stat().st_size != whole * size:
                os.truncate(path, whole * size)
        return {key.tobytes(): row for row, key in enumerate(records["key"][:whole])}

    def rows(self, texts: Iterable[str], progress: Callable[[int, int], None] | None = None) -> NDArray[np.int64]:
        """The position of each text's row in `matrix`; texts without a row are embedded and stored.

        `progress` gets (texts done, texts to do). Raises ModelError where the embedder gives NaN, another
        number of vectors or another dimension than before.
        """
        keys: list[bytes] = []
        new: dict[bytes, str] = {}
        for text in texts:
            key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            keys.append(key)
            if key not in self._places:
                new[key] = text
        queue = list(new.items())  # in the order of the corpus, so that a search reads the file from beginning to end
        with self._rows_path.open("ab") as rows_file, self._keys_path.open("ab") as keys_file:
            for first in range(0, len(queue), _BATCH):
                batch = queue[first : first + _BATCH]
                vectors = self._checked(self._embedder.encode([text for _, text in batch], self.kind), len(batch))
                self._append(rows_file, keys_file, [key for key, _ in batch], vectors.astype(np.float16))
                if progress:
                    progress(first + len(batch), len(queue))
        return np.fromiter((self._places[key] for key in keys), np.int64, len(keys))

    def _checked(self, vectors: NDArray[Any], count: int) -> NDArray[Any]:
        if vectors.shape != (count, self._embedder.dim):
            raise ModelError(
                f"{self._embedder.name} gave vectors of shape {vectors.shape} for {count} texts, "
                f"({count}, {self._embedder.dim}) expected: did the model behind it change?"
            )
        if not np.isfinite(vectors).all():
            raise ModelError(f"{self._embedder.name} gave NaN or infinity: this batch was not stored")
        return vectors

    def _append(self, rows_file: IO[bytes], keys_file: IO[bytes], keys: list[bytes], rows: NDArray[np.float16]) -> None:
        records = np.zeros(len(keys), _RECORD)
        for place, (key, row) in enumerate(zip(keys, rows, strict=True)):
            records[place] = (np.void(key), zlib.crc32(row.tobytes()))
        for file, data in ((rows_file, rows.tobytes()), (keys_file, records.tobytes())):
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        for key in keys:
            self._places[key] = len(self._places)

    def matrix(self) -> NDArray[np.float16]:
        """All rows so far, (n, dim), memory-mapped and read-only."""
        if not self._places:
            return np.zeros((0, self._embedder.dim), np.float16)
        return np.memmap(self._rows_path, np.float16, "r", shape=(len(self._places), self._embedder.dim))
