"""A call as it travels to a worker, and what comes back: results, a lack of memory, or the error of the work itself.

`Worker` is what carries calls.
"""

from __future__ import annotations

import pickle
import traceback
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

_KEPT = 4  # functions that a worker keeps, with the models in them
_made: OrderedDict[bytes, Callable[[list[Any]], Sequence[Any]]] = OrderedDict()


@dataclass(frozen=True)
class Returned:
    """`results` of a batch; or `memory`, what a worker said when it had too little; or `failure`, an error in parts."""

    results: Sequence[Any] | None = None
    memory: str = ""
    failure: tuple[type[BaseException], tuple[Any, ...], dict[str, Any], str] | None = None

    def value(self) -> Sequence[Any]:
        """The results. Raises the error of the work as the worker raised it."""
        if self.failure is not None:
            kind, arguments, state, trace = self.failure
            error = kind.__new__(kind)  # not by its constructor, whose arguments may be others
            error.args = arguments
            error.__dict__.update(state)
            error.add_note(trace)
            raise error
        assert self.results is not None
        return self.results


def answer(make: bytes, batch: list[Any]) -> Returned:
    """Do one batch. `make` is a pickled function without arguments that gives the function of a batch; it is kept."""
    try:
        if make not in _made:
            _made[make] = pickle.loads(make)()
            while len(_made) > _KEPT:
                _made.popitem(last=False)
        _made.move_to_end(make)
        return Returned(_made[make](batch))
    except Exception as error:  # noqa: BLE001  # it is raised where the work was asked for
        if out_of_memory(error):
            _made.clear()
            return Returned(memory=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        failure = (type(error), error.args, dict(error.__dict__), f"in a worker:\n{traceback.format_exc(limit=-4)}")
        try:
            pickle.loads(pickle.dumps(failure))
        except Exception:  # noqa: BLE001  # an error may hold anything
            failure = (RuntimeError, (f"{type(error).__name__}: {error}",), {}, failure[3])
        return Returned(failure=failure)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is too small: Python's, numpy's, torch's on a GPU."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, MemoryError) or "OutOfMemoryError" in names or "out of memory" in str(error)[:2000].lower()


class WorkerLost(Exception):
    """A worker has died; `memory` where it is known that it needed too much."""

    def __init__(self, why: str, *, memory: bool = False) -> None:
        super().__init__(why)
        self.memory = memory


class Worker(ABC):
    """One worker of a pool. `ready` is done when it can take calls; its error says why it never can.

    WorkerLost means that another one may be able to.
    """

    ready: Future[None]

    @abstractmethod
    def send(self, make: bytes, batch: list[Any]) -> Future[Returned]:
        """Do a batch after those that it has. The future raises WorkerLost where the worker dies."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once; its futures raise WorkerLost."""
