"""Cut a stream into lists: `list(batched("abcde", 2))` is `[["a", "b"], ["c", "d"], ["e"]]`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def batched(rows: Iterable[T], size: int, weigh: Callable[[T], int] = lambda _: 1) -> Iterator[list[T]]:
    """Lists of `size` rows in order, the last one perhaps shorter.

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
