"""Encodings of texts that are kept: in memory, on disk, and shared by the steps of one run.

Encodings of any length on disk, by text and model: token vectors, and sparse rows.

    store = EncodingStore.of(root, model.describe(), "fp16 tokens", "passage")
    found = store.find(texts)                  # {text: arrays} of those that are there
    store.keep({text: (array,), ...})

The dense cache keeps one row of one length for each text; here an encoding is one or more arrays. A folder holds
`meta.json` (the model's description), `data.bin` (the arrays, one encoding after another) and `keys.bin` (a record for
each: the text's 128-bit key, where its data begins, its size, its CRC-32). Both only grow, and data comes before its
keys. What a crash left incomplete is cut off before the next writing. An encoding that does not match its CRC counts as
missing, so that its text is encoded again. Several processes can share a folder; one that meets another at writing does
not wait, and keeps nothing.

Encodings that the steps of one run share: recall, voters and evaluation often have the same model and texts.

    with shared_encodings(folder):      # encodings of passages go to disk, into `folder`
        ...

An encoding is the same with and without it, because only models that encode each text by itself take part. Times that
are measured while encodings are reused say nothing: `reused` tells whether there were such.

Encoded texts, kept in memory between calls, and on disk between processes.

A re-ranker gets the same passages for many queries, and a retriever and a re-ranker of one model get the same passages.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from airgen.errors import ModelError
from airgen.keys import canonical_json, content_key, text_key
from airgen.models.catalogue import locked
from airgen.retrievers.base import IndexProgress, TextKind
from airgen.retrievers.dense.onnx_encoder import EmbeddedModel
from airgen.retrievers.on_workers import encoded
from airgen.sequences import batched

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


LIMIT = 1 << 27  # bytes in memory


@dataclass
class SharedEncodings:
    """What one run has encoded so far. The first encodings are kept, up to LIMIT bytes."""

    folder: Path
    reused: int = 0
    _kept: dict[tuple[str, ...], Any] = field(default_factory=dict)
    _bytes: int = 0

    def find(self, key: tuple[str, ...]) -> Any:
        """The encoding of this key (model, kind of text, text), or None."""
        found = self._kept.get(key)
        self.reused += found is not None
        return found

    def keep(self, key: tuple[str, ...], value: Any, size: int) -> None:
        """Keep an encoding of `size` bytes, where there is room."""
        if key not in self._kept and self._bytes + size <= LIMIT:
            self._kept[key] = value
            self._bytes += size


_CURRENT: ContextVar[SharedEncodings | None] = ContextVar("shared encodings", default=None)


@contextmanager
def shared_encodings(folder: Path) -> Iterator[None]:
    """Share encodings among all that is done inside it, by this thread and by those that get a copy of its context."""
    token = _CURRENT.set(SharedEncodings(folder))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def shared() -> SharedEncodings | None:
    """What is shared here, or None."""
    return _CURRENT.get()


def reused() -> int:
    """How many encodings were not computed because another step had done it."""
    current = _CURRENT.get()
    return current.reused if current else 0


T = TypeVar("T")
Key = tuple[TextKind, str]  # with a hash of the text
_BATCH = 64  # texts encoded between two words about progress


class Memo(Generic[T]):
    """The encodings of the latest texts, up to about `limit` bytes; a dropped text is encoded again.

    `encode` must encode each text by itself, so that an encoding does not depend on the texts beside it. `keep` makes
    of an encoding what is kept. `model` is what encodes: the encodings of an embedded model are shared (see
    `shared_encodings`) under its description and `form`, the name of what is kept, and are made on the workers, where
    there are some. `progress` gives whom to tell about passages.

    `arrays` makes of what is kept the arrays that an `EncodingStore` can hold, and `whole` the reverse. The store of
    passages is below `root`, or without it below the folder of `shared_encodings`.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[str], TextKind], Any],
        size: Callable[[T], int],
        limit: int,
        *,
        model: Any = None,
        form: str = "",
        keep: Callable[[Any], T] = lambda value: value,
        progress: Callable[[], IndexProgress | None] = lambda: None,
        root: Path | None = None,
        arrays: Callable[[T], Sequence[NDArray[Any]]] | None = None,
        whole: Callable[[Any], T] = lambda found: found,
    ) -> None:
        self._encode, self._size, self._limit = encode, size, limit
        # Other models may pad the texts of a batch, and then a vector's last bits depend on its neighbours.
        self._model = model if isinstance(model, EmbeddedModel) or root is not None else None
        self._root, self._arrays, self._whole = root, arrays, whole
        self._stores: dict[Path, EncodingStore] = {}
        self._form, self._keep, self._progress = form, keep, progress
        self._kept: OrderedDict[Key, T] = OrderedDict()
        self._bytes = 0

    def __call__(self, texts: Sequence[str], kind: TextKind) -> list[T]:
        """One encoding for each text; a text that comes twice is encoded once."""
        keys: list[Key] = [(kind, text_key(text)) for text in texts]
        found = {key: self._kept[key] for key in keys if key in self._kept}
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if new:
            for key, value in zip(new, self._encoded(new, kind), strict=True):
                found[key] = value
                self._kept[key] = value
                self._bytes += self._size(value)
        for key in found:
            self._kept.move_to_end(key)
        while self._bytes > self._limit and self._kept:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= self._size(dropped)
        return [found[key] for key in keys]

    def _store(self, kind: TextKind) -> EncodingStore | None:
        """Where encodings are on disk; None for queries, which are few, and where there is no folder."""
        common = shared() if isinstance(self._model, EmbeddedModel) else None
        root = self._root or (common.folder.absolute() if common else None)
        if root is None or self._arrays is None or self._model is None or kind == "query":
            return None
        if root not in self._stores:
            self._stores[root] = EncodingStore.of(root, self._model.describe(), self._form, kind)
        return self._stores[root]

    def _encoded(self, new: dict[Key, str], kind: TextKind) -> Sequence[T]:
        """Encodings of texts by key, in their order."""
        if self._model is None:
            return [self._keep(value) for value in self._encode(list(new.values()), kind)]
        common = shared() if isinstance(self._model, EmbeddedModel) else None
        name, store = content_key([self._model.describe(), self._form]), self._store(kind)
        found: dict[Key, T] = {}
        if common:
            found = {key: value for key in new if (value := common.find((name, *key))) is not None}
        if store is not None:
            stored = store.find(text for key, text in new.items() if key not in found)
            found |= {key: self._whole(stored[text]) for key, text in new.items() if text in stored}
            if common:
                common.reused += len(stored)
        missing = {key: text for key, text in new.items() if key not in found}
        tell = self._progress() if kind == "passage" else None
        done = 0
        batches = list(batched(list(missing.items()), _BATCH))
        made = encoded(self._encode, ([text for _, text in batch] for batch in batches), kind)
        for batch, values in zip(batches, made, strict=True):
            for (key, _), encoding in zip(batch, values, strict=True):
                found[key] = value = self._keep(encoding)
                if common:
                    common.keep((name, *key), value, self._size(value))
            if store is not None and self._arrays is not None:
                store.keep({text: self._arrays(found[key]) for key, text in batch})
            done += len(batch)
            if tell:
                tell(done, len(missing))
        return [found[key] for key in new]
