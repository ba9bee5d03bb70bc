"""One way to say what is to be done on many items, wherever it runs.

    work = Work("encode with minilm", here=model.encode_many, there=partial(make_encoder, "minilm"))
    for key, vectors in compute.map(work, ((number, texts) for number, texts in enumerate(shards))):
        ...

A batch is a function of the items alone, never of the workers, so a result cannot depend on how many there are. Batches
are made when there is room for them, so that few are in memory at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from airgen.compute.calls import out_of_memory
from airgen.sequences import batched

In = TypeVar("In")
Out = TypeVar("Out")
Key = TypeVar("Key")


@dataclass(frozen=True)
class Work(Generic[In, Out]):
    """A function of a list of items, with one result an item in their order.

    `here` does it in this process. `there` has no arguments, can be pickled, and makes the same function in another
    process, where it is kept for all batches; None: it cannot be made elsewhere. `name` is for messages.
    """

    name: str
    here: Callable[[list[In]], Sequence[Out]]
    there: Callable[[], Callable[[list[In]], Sequence[Out]]] | None = None


class Compute(ABC):
    """Where work runs; a context manager that ends its workers. One thread uses it at a time."""

    workers: int = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027  # one that has no workers has nothing to end
        """End the workers."""

    @abstractmethod
    def map(
        self,
        work: Work[In, Out],
        items: Iterable[tuple[Key, In]],
        *,
        size: int = 1,
        weigh: Callable[[In], int] = lambda item: 1,
        ordered: bool = True,
    ) -> Iterator[tuple[Key, Out]]:
        """(key, result) of each (key, item), in the order of the items, or as they come.

        A batch ends with the item at which the sum of the items' weights reaches `size`: a budget of tokens, for
        example. Raises what the work raises; AirgenError where workers cannot do it.
        """

    def describe(self) -> dict[str, Any]:
        """What it is and what it has done, for the status of a job."""
        return {"kind": "local", "workers": self.workers}


class Here(Compute):
    """This process does everything."""

    def map(
        self,
        work: Work[In, Out],
        items: Iterable[tuple[Key, In]],
        *,
        size: int = 1,
        weigh: Callable[[In], int] = lambda item: 1,
        ordered: bool = True,
    ) -> Iterator[tuple[Key, Out]]:
        """See `Compute.map`."""
        for batch in batched(items, size, lambda item: weigh(item[1])):
            yield from zip((key for key, _ in batch), self._done(work, [item for _, item in batch]), strict=True)

    def _done(self, work: Work[In, Out], items: list[In]) -> Sequence[Out]:
        try:
            return work.here(items)
        except Exception as error:
            if not out_of_memory(error) or len(items) < 2:
                raise
        half = len(items) // 2
        return [*self._done(work, items[:half]), *self._done(work, items[half:])]
