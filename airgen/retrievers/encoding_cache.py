"""The cache of encodings of texts: the latest in memory, and all on disk, where the steps of a run share them.

    store = EncodingStore(root, model.describe(), "tokens", "passage")
    store.find(texts)                   # {text: arrays} of those that are stored
    store.keep({text: (array,), ...})

A folder belongs to one model with its settings, one form and one kind of text. It contains `data.bin` (the arrays of
each encoding) and `keys.bin` (a record per encoding: the text's 128-bit key, where its data begins, its size, the
columns of its arrays, and a CRC-32 of both). Both files only grow, and data is written before its keys. Incomplete data
left by a crash is truncated before the next write. An encoding that does not match its CRC counts as missing. Several
processes can share a folder.

Inside `shared_encodings(folder)`, recall, voters and evaluation share the encodings of passages, for models that encode
each text on its own, so that sharing does not change the encodings. Times measured while encodings are reused are
meaningless; `reused` returns whether there were any.

Batches of texts are encoded, and pairs are scored, on the configured workers (`airgen.compute`):

    for vectors in encoded(embedder.encode, batched(texts, 256), "passage"): ...
    for scores in scored(reranker, batches_of_pairs): ...

A component is sent as its class and settings (`Component.__reduce__`), so its class must declare that nothing else is
needed (`travels`). Any other component runs in this process.
"""

import math
import os
import struct
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import canonical_json, content_key, text_key
from airgen.compute import Work, current
from airgen.errors import ModelError
from airgen.retrievers.component import Component, SettingsWithModel
from airgen.retrievers.dense.onnx_encoder import EmbeddedModel
from airgen.retrievers.model_facts import model_identity
from airgen.retrievers.protocols import IndexProgress, Reranker, TextKind
from airgen.settings.base import FILE, SPEED
from airgen.settings.requirements import located
from airgen.storage.paths import locked
from airgen.storage.sequences import batched

Arrays = tuple[NDArray[Any], ...]


@runtime_checkable
class SeveralOutputs(Protocol):
    """A model that computes encodings in several forms in one pass, of which a component returns one."""

    form: str

    @property
    def beside(self) -> frozenset[str]:
        """Return the other forms that a pass should keep."""

    def outputs(self, texts: Sequence[str], kind: TextKind, beside: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        """Return the encodings of every text in this form and in the forms in `beside`."""

    def kept(self, form: str, value: Any) -> Arrays:
        """Return the arrays of an output to store."""

    def describe(self) -> Mapping[str, object]:
        """Return the same description for the components of all forms."""


_FORMS = {
    "vectors": ("<f4",),
    "tokens": ("<f2",),
    "rows": ("<i4", "<f4"),
    "lengths": ("<i4",),
}  # the contents of each array of an encoding
_HEAD = struct.Struct("<16sQII")
_RECORD = np.dtype([("key", "S16"), ("start", "<u8"), ("size", "<u4"), ("columns", "<u4"), ("crc", "<u4")])
_MEMORY_BYTES = 1 << 29  # bytes of the most recent encodings
_STORE_BYTES = 1 << 32  # maximum bytes in a folder; later encodings are not kept, except vectors of a whole corpus
_BATCH_TEXTS = 64  # texts encoded between two progress messages


class EncodingStore:
    """The encodings of one kind of text by one model in one form. Each takes 36 bytes of memory."""

    def __init__(self, root: Path, model: Mapping[str, object], form: str, kind: str) -> None:
        self.root, self._kinds = root, _FORMS[form]
        self.folder = root / content_key([dict(model), form])[:16] / kind
        self.data, self._keys = self.folder / "data.bin", self.folder / "keys.bin"
        self._records = np.zeros(0, _RECORD)  # by key; those with the same key in the order of the file
        self._read = 0  # bytes of the known keys
        self._end = 0  # bytes of the known data
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            about = canonical_json({"model": dict(model), "form": form, "kind": kind})
            (self.folder / "meta.json").write_text(about, encoding="utf-8")  # for readers
        except OSError as error:
            raise ModelError(f"{self.folder}: cannot be written: {error.strerror or error}") from error

    def find(self, texts: Iterable[str]) -> dict[str, Arrays]:
        """Return the undamaged encodings of these texts."""
        wanted = list(dict.fromkeys(texts))
        rows = self._rows(keys_of(wanted))
        of_row = {row: text for row, text in zip(rows.tolist(), wanted, strict=True) if row >= 0}
        stored = self._read_data(rows[rows >= 0])
        columns = self._records["columns"]
        return {of_row[row]: self._arrays(data, int(columns[row])) for row, data in stored if data is not None}

    def check(self, width: int) -> None:
        """Discard encodings that are damaged or not rows of `width` bytes, so that their texts are encoded again."""
        self._refresh()
        good = (self._records["size"] == width) & (self._records["start"] % width == 0)
        for row, data in self._read_data(np.flatnonzero(good)):
            good[row] = data is not None
        self._records = self._records[good]
        self._end = int((self._records["start"] + self._records["size"]).max(initial=0))

    def _read_data(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, bytes | None]]:
        """Yield the data of some records in file order, or None if record and data do not match."""
        if not len(rows):
            return
        rows = rows[np.argsort(self._records["start"][rows])]
        records, step = self._records[rows], _RECORD.itemsize
        heads, fields = records.tobytes(), (records[name].tolist() for name in ("start", "size", "crc"))
        with self.data.open("rb") as file:
            end = os.fstat(file.fileno()).st_size
            for at, (row, start, size, crc) in enumerate(zip(rows.tolist(), *fields, strict=True)):
                data = b""
                if start + size <= end:
                    file.seek(start)  # usually unchanged, so no system call is needed
                    data = file.read(size)
                sound = zlib.crc32(data, zlib.crc32(heads[at * step : at * step + _HEAD.size])) == crc
                yield row, data if sound else None

    def missing(self, keys: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """Return the positions of text keys (`keys_of`) without an encoding, each key once, in order."""
        absent = np.flatnonzero(self._rows(keys) < 0)
        _, first = np.unique(keys[absent], return_index=True)
        return absent[np.sort(first)]

    def starts(self, keys: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """Return the offset of each key's encoding in the file `data`. All keys must exist."""
        rows = self._rows(keys)
        return np.asarray(self._records["start"][rows], np.int64)

    def keep(self, encodings: Mapping[str, Arrays], limit: float = math.inf) -> None:
        """Add encodings while the data has less than `limit` bytes."""
        with locked(self.folder / "lock", wait=True):
            self._refresh()
            records: list[bytes] = []
            with self.data.open("ab") as data, self._keys.open("ab") as keys:
                for file, size in ((data, self._end), (keys, self._read)):
                    if os.fstat(file.fileno()).st_size > size:  # the incomplete rest of a crash
                        os.truncate(file.fileno(), size)
                end = os.fstat(data.fileno()).st_size  # less than before if data was lost: its CRCs do not match
                for text, arrays in encodings.items():
                    columns = arrays[0].shape[1] if arrays[0].ndim == 2 else 0
                    parts = zip(arrays, self._kinds, strict=True)
                    packed = b"".join(np.ascontiguousarray(array, kind).tobytes() for array, kind in parts)
                    if end + len(packed) > limit:
                        break
                    data.write(packed)
                    head = _HEAD.pack(bytes.fromhex(text_key(text)), end, len(packed), columns)
                    records.append(head + zlib.crc32(packed, zlib.crc32(head)).to_bytes(4, "little"))
                    end += len(packed)
                for file, content in ((data, b""), (keys, b"".join(records))):
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())

    def _rows(self, keys: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """Return the position of the last record of each key, or -1."""
        self._refresh()
        known = self._records["key"]
        at = np.searchsorted(known, keys, side="right") - 1
        return np.where((at >= 0) & (known[at] == keys), at, -1) if len(known) else np.full(len(keys), -1)

    def _refresh(self) -> None:
        """Read the records added since the last call."""
        size = self._keys.stat().st_size if self._keys.exists() else 0
        if size - self._read < _RECORD.itemsize:
            return
        new = np.fromfile(self._keys, _RECORD, (size - self._read) // _RECORD.itemsize, offset=self._read)
        self._read += new.nbytes
        self._end = max(self._end, int((new["start"] + new["size"]).max()))
        records = np.concatenate([self._records, new])
        self._records = records[np.argsort(records["key"], kind="stable")]

    def _arrays(self, data: bytes, columns: int) -> Arrays:
        width, at, arrays = max(columns, 1), 0, []
        rows = len(data) // sum(np.dtype(kind).itemsize * width for kind in self._kinds)
        for kind in self._kinds:
            array = np.frombuffer(data, kind, rows * width, at)
            arrays.append(array.reshape(rows, columns) if columns else array)
            at += array.nbytes
        return tuple(arrays)


def keys_of(texts: Sequence[str]) -> NDArray[np.bytes_]:
    """Return the keys of texts. All have the same length, so numpy's zero padding does not make any two equal."""
    return np.fromiter((bytes.fromhex(text_key(text)) for text in texts), "S16", len(texts))


@dataclass
class _Shared:
    folder: Path
    reused: int = 0


_CURRENT: ContextVar[_Shared | None] = ContextVar("shared encodings", default=None)


@contextmanager
def shared_encodings(folder: Path) -> Iterator[None]:
    """Share encodings between everything inside the block, in this thread and in threads with a copy of its context."""
    token = _CURRENT.set(_Shared(folder.absolute()))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def reused() -> int:
    """Return how many encodings were reused from another step."""
    current = _CURRENT.get()
    return current.reused if current else 0


def count_reused(count: int) -> None:
    """Count encodings that were reused."""
    if current := _CURRENT.get():
        current.reused += count


def root_of(model: Any, root: Path | None) -> Path | None:
    """Return the root folder for encodings of passages: `root`, or else that of `shared_encodings`, or None.

    Models other than embedded ones may pad texts in a batch, so that the last bits of a vector depend on its
    neighbours. Their encodings are kept only below `root`.
    """
    current = _CURRENT.get()
    return current.folder if root is None and current and isinstance(model, EmbeddedModel) else root


class CacheSettings(SettingsWithModel):
    """Settings shared by the retriever and the re-ranker for a kind of model.

    `shared_encodings` can also set the cache's root folder.
    """

    model: Any
    cache: Annotated[Path | None, SPEED, FILE] = None  # root folder for encodings of passages, each made once


def cache_root(component: Component) -> Path | None:
    """Return the folder in a component's `cache` setting, if it has one."""
    cache: Path | None = getattr(component.settings, "cache", None)
    return None if cache is None else located(str(cache), component.folder)


class Memo:
    """The encodings of the latest texts, up to about `limit` bytes. Those of passages are also saved below `root_of`.

    Encodings by an embedded model, and all encodings saved on disk, are computed on the workers if there are any.

    Args:
        owner: The component. Its `progress` is called for passages, and its `cache` setting names a root folder.
        encode: A method of a model.
        form: The form of the encodings.
        keep: Function that returns the arrays of an encoding to save.
        limit: Maximum size in memory, in bytes.
    """

    def __init__(
        self,
        owner: Component,
        encode: Callable[[Sequence[str], TextKind], Any],
        form: str,
        keep: Callable[[Any], Arrays],
        limit: int = _MEMORY_BYTES,
    ) -> None:
        self._owner, self._encode, self._form, self._keep, self._limit = owner, encode, form, keep, limit
        self._model: Any = getattr(encode, "__self__", None)
        self._root = cache_root(owner)
        self._store: EncodingStore | None = None
        self._kept: OrderedDict[tuple[TextKind, str], Arrays] = OrderedDict()
        self._bytes = 0

    def __call__(self, texts: Sequence[str], kind: TextKind) -> list[Arrays]:
        """Return an encoding per text. A text that occurs twice is encoded once."""
        keys = [(kind, text_key(text)) for text in texts]
        encodings = {key: self._kept[key] for key in keys if key in self._kept}
        new = {text: key for key, text in zip(keys, texts, strict=True) if key not in encodings}
        if new:
            tell = self._owner.progress if kind == "passage" else None
            for text, arrays in self._encoded(list(new), kind, tell).items():
                encodings[new[text]] = self._kept[new[text]] = arrays
                self._bytes += _size(arrays)
        for key in encodings:
            self._kept.move_to_end(key)
        while self._bytes > self._limit and self._kept:
            self._bytes -= _size(self._kept.popitem(last=False)[1])
        return [encodings[key] for key in keys]

    def stream(self, texts: Sequence[str]) -> Iterator[Arrays]:
        """Yield the encodings of all passages of a corpus in order, without keeping them in memory."""
        done = 0
        for encodings in self._parts(texts):
            yield from encodings
            done += len(encodings)
            if self._owner.progress:
                self._owner.progress(done, len(texts))

    def _parts(self, texts: Sequence[str]) -> Iterator[list[Arrays]]:
        if self._alone:
            for values in encoded(self._encode, batched(texts, self._size), "passage"):
                yield list(map(self._keep, values))
            return
        for block in batched(texts, self._size * max(1, 4 * (current().workers - 1))):  # so that every worker has work
            encodings = self._encoded(list(dict.fromkeys(block)), "passage")
            yield [encodings[text] for text in block]

    @property
    def _size(self) -> int:
        return at_once(self._model, _BATCH_TEXTS)

    @property
    def _alone(self) -> bool:
        """Return whether no other step can use the same encodings."""
        return self._root is None and not isinstance(self._model, EmbeddedModel)

    def _encoded(self, texts: list[str], kind: TextKind, tell: IndexProgress | None = None) -> dict[str, Arrays]:
        if self._alone:
            return dict(zip(texts, map(self._keep, self._encode(texts, kind)), strict=True))
        store = self._opened() if kind == "passage" else None
        encodings = store.find(texts) if store else {}
        count_reused(len(encodings))
        missing = [text for text in texts if text not in encodings]
        done = 0
        batches = list(batched(missing, self._size))
        computed = encoded(self._encode, batches, kind, store.root if store else None)
        for batch, values in zip(batches, computed, strict=True):
            new = dict(zip(batch, map(self._keep, values), strict=True))
            if store:
                store.keep(new, _STORE_BYTES)
            encodings |= new
            done += len(batch)
            if tell:
                tell(done, len(missing))
        return encodings

    def _opened(self) -> EncodingStore | None:
        """Return the store, which is opened once per folder."""
        root = root_of(self._model, self._root)
        if root is None:
            return None
        if self._store is None or self._store.root != root:
            self._store = EncodingStore(root, model_identity(self._model), self._form, "passage")
        return self._store


def _size(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays)


def travels(component: Any) -> bool:
    """Return whether a worker can build the same component from its class and settings, including their parts."""
    kind = type(component)
    if not isinstance(component, Component) or not kind.travels or "." in kind.__qualname__:
        return False
    held = (getattr(component.settings, name) for name in component.settings.model_fields_set)
    return all(travels(value) for value in held if isinstance(value, Component))


def _needs_this_gpu(component: Any) -> bool:
    """Return whether it runs on a GPU shared by this machine's workers, each of which would load a copy."""
    if not isinstance(component, Component) or current().gives_gpus or current().workers < 2:
        return False
    return component.gpu or any(map(_needs_this_gpu, component.components()))


def at_once(component: Any, usual: int) -> int:
    """Return how many texts or pairs to pass to a component at once: more than `usual` if it prefers that, as on a
    GPU."""
    wanted = getattr(component, "texts_at_once", None)
    return max(usual, wanted if isinstance(wanted, int) else 0)


def _method(component: Any, name: str, arguments: tuple[Any, ...]) -> Callable[[Any], Any]:
    method = getattr(component, name)
    return lambda batch: method(batch, *arguments)


def _each(method: Callable[..., Any], batches: Iterable[Sequence[Any]], *arguments: Any) -> Iterator[Any]:
    """Yield a bound method's result for each batch in order, or None for an empty batch, which is not sent."""
    owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    work: Work[Any, Any] = Work(
        f"{name} of {getattr(owner, 'name', type(owner).__name__)}",
        lambda batch: method(batch, *arguments),
        partial(_method, owner, name, arguments) if travels(owner) and not _needs_this_gpu(owner) else None,
    )
    sent: deque[bool] = deque()

    def full() -> Iterator[tuple[str, Sequence[Any]]]:
        for number, batch in enumerate(batches):
            sent.append(bool(batch))
            if batch:
                yield f"batch {number}", batch

    for _, result in current().map(work, full()):
        while not sent.popleft():
            yield None
        yield result
    yield from (None for _ in sent)


def encoded(
    encode: Callable[..., Any], batches: Iterable[Sequence[str]], kind: TextKind, root: Path | None = None
) -> Iterator[Any]:
    """Yield the output of `encode`, an embedder's method, for each batch of texts in order, or None for an empty batch.

    With `root`, the other outputs of a pass over passages are saved below it (`SeveralOutputs`).
    """
    model: Any = getattr(encode, "__self__", None)
    if root is not None and kind == "passage" and isinstance(model, SeveralOutputs):
        return _kept_beside(model, batches, kind, beside=sorted(model.beside), root=root)
    return _each(encode, batches, kind)


def _kept_beside(
    model: SeveralOutputs, batches: Iterable[Sequence[str]], kind: TextKind, *, beside: Sequence[str], root: Path
) -> Iterator[Any]:
    """Yield the model's own output for each batch, and save the others in their stores."""
    stores = {form: EncodingStore(root, model_identity(model), form, kind) for form in beside}
    sent: deque[Sequence[str]] = deque()

    def noted() -> Iterator[Sequence[str]]:
        for batch in batches:
            sent.append(batch)
            yield batch

    for outputs in _each(model.outputs, noted(), kind, beside):
        texts = sent.popleft()
        if outputs is not None:
            for form, store in stores.items():
                new = store.missing(keys_of(texts)).tolist()
                limit = math.inf if form == "vectors" else _STORE_BYTES
                store.keep({texts[at]: model.kept(form, outputs[form][at]) for at in new}, limit)
        yield None if outputs is None else outputs[model.form]


def scored(reranker: Reranker, batches: Iterable[Sequence[tuple[str, str]]]) -> Iterator[Any]:
    """Yield the scores of each batch of pairs in order, or None for an empty batch."""
    return _each(reranker.score, batches)
