"""Split a stream into lists: `list(batched("abcde", 2))` is `[["a", "b"], ["c", "d"], ["e"]]`.

Define sequences that are not lists: a subclass provides the length and the items, this module slices and errors.

class Squares(Indexed[int]):
    def __len__(self) -> int:
        return 4

    def _item(self, place: int) -> int:
        return place * place

Squares()[-1], Squares()[1:3]       # 9, [1, 4]
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def batched(rows: Iterable[T], size: int, weigh: Callable[[T], int] = lambda _: 1) -> Iterator[list[T]]:
    """Yield lists of `size` rows in order; the last one may be shorter.

    With `weigh`, a list ends with the row at which the sum of the weights reaches `size`.
    """
    batch: list[T] = []
    weight = 0
    for row in rows:
        batch.append(row)
        weight += weigh(row)
        if weight >= size:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


class Indexed(Sequence[T]):
    """A sequence of items by position. A slice is a list. Raises IndexError if a position is out of range."""

    @abstractmethod
    def _item(self, place: int) -> T:
        """Return the item at a position, which is at least 0 and less than the length."""

    def __getitem__(self, place: Any) -> Any:
        size = len(self)
        if isinstance(place, slice):
            return [self._item(at) for at in range(*place.indices(size))]
        if not -size <= place < size:
            raise IndexError(place)
        return self._item(place % size)
