"""Sequences that are no lists: a class gives the length and the item at a place; slices and errors are here.

class Squares(Indexed[int]):
    def __len__(self) -> int:
        return 4

    def _item(self, place: int) -> int:
        return place * place

Squares()[-1], Squares()[1:3]       # 9, [1, 4]
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Indexed(Sequence[T]):
    """Items by place; a slice is a list. Raises IndexError beyond the ends."""

    @abstractmethod
    def _item(self, place: int) -> T:
        """The item at a place from 0 to the length."""

    def __getitem__(self, place: Any) -> Any:
        size = len(self)
        if isinstance(place, slice):
            return [self._item(at) for at in range(*place.indices(size))]
        if not -size <= place < size:
            raise IndexError(place)
        return self._item(place % size)
