"""Cut a stream into lists: `list(batched("abcde", 2))` is `[["a", "b"], ["c", "d"], ["e"]]`.

Sequences that are no lists: a class gives the length and the item at a place; slices and errors are here.

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

    With `weigh`, a list ends with the row at which the sum of its rows' weights reaches `size`.
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
    """Items by place; a slice is a list. Raises IndexError beyond the ends."""

    @abstractmethod
    def _item(self, place: int) -> T:
        """Return the item at a place from 0 to the length."""

    def __getitem__(self, place: Any) -> Any:
        size = len(self)
        if isinstance(place, slice):
            return [self._item(at) for at in range(*place.indices(size))]
        if not -size <= place < size:
            raise IndexError(place)
        return self._item(place % size)
