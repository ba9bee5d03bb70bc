"""Encodings of any length on disk, by text and model: token vectors, and sparse rows.

    store = EncodingStore.of(root, model.describe(), "fp16 tokens", "passage")
    found = store.find(texts)                  # {text: arrays} of those that are there
    store.keep({text: (array,), ...})

The dense cache keeps one row of one length for each text; here an encoding is one or more arrays. A folder holds
`meta.json` (the model's description), `data.bin` (the arrays, one encoding after another) and `keys.bin` (a record for
each: the text's 128-bit key, where its data begins, its size, its CRC-32). Both only grow, and data comes before its
keys. What a crash left incomplete is cut off before the next writing. An encoding that does not match its CRC counts as
missing, so that its text is encoded again. Several processes can share a folder; one that meets another at writing does
not wait, and keeps nothing.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import ModelError
from airgen.keys import canonical_json, content_key, text_key
from airgen.models.files import locked

Arrays = tuple[NDArray[Any], ...]

_RECORD = struct.Struct("<16sQII")
_LIMIT = 1 << 32  # bytes of data in one folder; what comes later is not kept
_HEAD = struct.Struct("<4sII")  # of each array: its kind, rows, columns (0: it has one dimension)
_KINDS = {np.dtype(np.float16): b"<f2 ", np.dtype(np.float32): b"<f4 ", np.dtype(np.int32): b"<i4 "}


class EncodingStore:
    """The encodings of one kind of text by one model in one folder.

    Raises ModelError where the folder belongs to something else.
    """

    def __init__(self, folder: Path, about: Mapping[str, object], limit: int = _LIMIT) -> None:
        self.folder, self._limit = folder, limit
        self._about = json.loads(canonical_json(dict(about)))
        self._data, self._keys = folder / "data.bin", folder / "keys.bin"
        self._places: dict[bytes, tuple[int, int, int]] = {}
        self._read = 0  # bytes of the keys that are known
        self._end = 0  # of the data that they know
        self._identify()
        self._refresh()

    @classmethod
    def of(cls, root: Path, model: Mapping[str, object], form: str, kind: str) -> EncodingStore:
        """The store below `root` of a model with its settings, a form of encodings, and a kind of text."""
        about = {"version": 1, "model": dict(model), "form": form, "kind": kind}
        return cls(root / content_key([dict(model), form])[:16] / kind, about)

    def __len__(self) -> int:
        return len(self._places)

    def find(self, texts: Iterable[str]) -> dict[str, Arrays]:
        """The encodings of those texts that have a sound one."""
        self._refresh()
        wanted = {text: place for text in texts if (place := self._places.get(_key(text)))}
        found: dict[str, Arrays] = {}
        if wanted:
            with self._data.open("rb") as file:
                for text, (start, size, crc) in sorted(wanted.items(), key=lambda item: item[1]):
                    file.seek(start)
                    data = file.read(size)
                    if len(data) == size and zlib.crc32(data) == crc:
                        found[text] = _unpacked(data)
        return found

    def keep(self, encodings: Mapping[str, Sequence[NDArray[Any]]]) -> None:
        """Add encodings, as far as the limit goes; nothing where another process is writing."""
        try:
            with locked(self.folder / "lock"):
                self._append(encodings)
        except ModelError:  # the lock is held: a cache may lack something
            return

    def _append(self, encodings: Mapping[str, Sequence[NDArray[Any]]]) -> None:
        self._refresh()
        records: list[bytes] = []
        with self._data.open("ab") as data, self._keys.open("ab") as keys:
            for file, size in ((data, self._end), (keys, self._read)):
                if os.fstat(file.fileno()).st_size > size:  # what a crash left incomplete
                    os.truncate(file.fileno(), size)
            end = os.fstat(data.fileno()).st_size  # less than before where data was lost: its CRCs do not match
            for text, arrays in encodings.items():
                packed = _packed(arrays)
                if end + len(packed) > self._limit:
                    break
                data.write(packed)
                records.append(_RECORD.pack(_key(text), end, len(packed), zlib.crc32(packed)))
                end += len(packed)
            for file, content in ((data, b""), (keys, b"".join(records))):
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        self._refresh()

    def _refresh(self) -> None:
        """Read the keys that were added since; the last one of a text counts."""
        size = self._keys.stat().st_size if self._keys.exists() else 0
        if size - self._read < _RECORD.size:
            return
        with self._keys.open("rb") as file:
            file.seek(self._read)
            new = file.read((size - self._read) // _RECORD.size * _RECORD.size)
        for key, start, length, crc in _RECORD.iter_unpack(new):
            self._places[key] = (start, length, crc)
            self._end = start + length
        self._read += len(new)

    def _identify(self) -> None:
        path = self.folder / "meta.json"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                partial = path.with_name(f"meta.{os.getpid()}.partial")
                partial.write_text(canonical_json(self._about), encoding="utf-8")
                partial.replace(path)
            found = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelError(f"{self.folder}: cannot be written: {error.strerror or error}") from error
        except ValueError as error:
            raise ModelError(f"{path} is not JSON: delete {self.folder} to encode again") from error
        if found != self._about:
            raise ModelError(f"{self.folder} holds encodings of another model or form: choose another folder")


def _key(text: str) -> bytes:
    return bytes.fromhex(text_key(text))


def _packed(arrays: Sequence[NDArray[Any]]) -> bytes:
    parts = []
    for array in arrays:
        columns = array.shape[1] if array.ndim == 2 else 0
        parts += [_HEAD.pack(_KINDS[array.dtype], len(array), columns), np.ascontiguousarray(array).tobytes()]
    return b"".join(parts)


def _unpacked(data: bytes) -> Arrays:
    arrays: list[NDArray[Any]] = []
    at = 0
    while at < len(data):
        kind, rows, columns = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        array = np.frombuffer(data, kind.decode().strip(), rows * max(columns, 1), at)
        arrays.append(array.reshape(rows, columns) if columns else array)
        at += array.nbytes
    return tuple(arrays)
