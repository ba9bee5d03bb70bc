"""One way to say what is to be done with many items, wherever it runs.

    work = Work("encode with minilm", here=model.encode, there=partial(make_encoder, "minilm"))
    for key, vectors in compute.map(work, enumerate(shards)):
        ...

A result is a function of its item alone, never of the workers, so it cannot depend on how many there are. Items are
taken when there is room for them, so that few are in memory at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")
Key = TypeVar("Key")


@dataclass(frozen=True)
class Work(Generic[In, Out]):
    """A function of one item.

    `here` does it in this process. `there` has no arguments, can be pickled, and makes the same function in another
    process, where it is kept for all items; None: it cannot be made elsewhere. `name` is for messages.
    """

    name: str
    here: Callable[[In], Out]
    there: Callable[[], Callable[[In], Out]] | None = None


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
        self, work: Work[In, Out], items: Iterable[tuple[Key, In]], *, ordered: bool = True
    ) -> Iterator[tuple[Key, Out]]:
        """(key, result) of each (key, item), in the order of the items, or as they come.

        Raises what the work raises; AirgenError where workers cannot do it.
        """

    def describe(self) -> dict[str, Any]:
        """What it is and what it has done, for the status of a job."""
        return {"kind": "local", "workers": self.workers}


class Here(Compute):
    """This process does everything."""

    def map(
        self, work: Work[In, Out], items: Iterable[tuple[Key, In]], *, ordered: bool = True
    ) -> Iterator[tuple[Key, Out]]:
        """See `Compute.map`."""
        return ((key, work.here(item)) for key, item in items)
