"""Encoded texts, kept in memory between calls: a re-ranker gets the same passages for many queries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from airgen.batches import batched
from airgen.keys import content_key, text_key
from airgen.retrievers.base import IndexProgress, TextKind
from airgen.retrievers.dense.onnx_encoder import EmbeddedModel
from airgen.retrievers.on_workers import encoded
from airgen.retrievers.shared_encodings import shared

__all__ = ["Memo"]

T = TypeVar("T")
Key = tuple[TextKind, str]  # with a hash of the text
_BATCH = 64  # texts encoded between two words about progress


class Memo(Generic[T]):
    """The encodings of the latest texts, up to about `limit` bytes; a dropped text is encoded again.

    `encode` must encode each text by itself, so that an encoding does not depend on the texts beside it. `keep` makes
    of an encoding what is kept. `model` is what encodes: the encodings of an embedded model are shared (see
    `shared_encodings`) under its description and `form`, the name of what is kept, and are made on the workers, where
    there are some. `progress` gives whom to tell about passages.
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
    ) -> None:
        self._encode, self._size, self._limit = encode, size, limit
        # Other models may pad the texts of a batch, and then a vector's last bits depend on its neighbours.
        self._model = model if isinstance(model, EmbeddedModel) else None
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

    def _encoded(self, new: dict[Key, str], kind: TextKind) -> Sequence[T]:
        """Encodings of texts by key, in their order."""
        if self._model is None:
            return [self._keep(value) for value in self._encode(list(new.values()), kind)]
        common, name = shared(), content_key([self._model.describe(), self._form])
        found: dict[Key, T] = {}
        if common:
            found = {key: value for key in new if (value := common.find((name, *key))) is not None}
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
            done += len(batch)
            if tell:
                tell(done, len(missing))
        return [found[key] for key in new]
