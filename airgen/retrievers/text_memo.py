"""Encoded texts, kept in memory between calls, and on disk between processes.

A re-ranker gets the same passages for many queries, and a retriever and a re-ranker of one model get the same passages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from airgen.batches import batched
from airgen.keys import content_key, text_key
from airgen.retrievers.base import IndexProgress, TextKind
from airgen.retrievers.dense.onnx_encoder import EmbeddedModel
from airgen.retrievers.encoding_store import EncodingStore
from airgen.retrievers.on_workers import encoded
from airgen.retrievers.shared_encodings import shared

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
