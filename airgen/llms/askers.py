"""Track which tasks may still ask, so that a backend that collects requests knows when it has them all.

    async with engine:
        await together(*(work(item) for item in items))      # each may ask, and may call `together` itself

A task is busy unless it is waiting for an answer from the engine or has ended. A task that waits for another task's
answer in any other way, for example for a lock that is held during a call, counts as busy and would keep a batch open
forever.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


class Askers:
    """The tasks of one engine. `changed` is called soon after one of them waits or ends."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.busy = 0
        self._changed = changed

    def count(self, more: int) -> None:
        """Count a task that has become busy (1) or is no longer busy (-1)."""
        self.busy += more
        if more < 0 and not self.busy:
            # Soon, because the engine may already be closed if work ended with an error.
            asyncio.get_running_loop().call_soon(self._changed)


class Asker:
    """A task, which is busy at first."""

    def __init__(self, askers: Askers) -> None:
        self._askers = askers
        self._waits = 0  # for answers, or for its own parts
        self._ended = False
        askers.count(1)

    def wait(self) -> None:
        """Record that the task cannot ask before `resume`."""
        self._waits += 1
        if self._waits == 1 and not self._ended:
            self._askers.count(-1)

    def resume(self) -> None:
        """Record that something that the task was waiting for has arrived."""
        self._waits -= 1
        if self._waits == 0 and not self._ended:
            self._askers.count(1)

    def wait_for(self, answer: "asyncio.Future[Any]") -> None:
        """Wait until the answer has arrived. The task counts as busy again before it continues."""
        self.wait()
        answer.add_done_callback(lambda _: self.resume())

    def end(self) -> None:
        """Record that the task will not ask again."""
        if not self._ended:
            self._ended = True
            if not self._waits:
                self._askers.count(-1)


ASKERS: ContextVar[Askers | None] = ContextVar("askers", default=None)
"""The askers of the open engine, if one of its backends collects requests."""

_asker: ContextVar[Asker | None] = ContextVar("asker", default=None)


def current_asker() -> Asker | None:
    """Return the current task."""
    return _asker.get()


async def together(*works: Coroutine[Any, Any, T]) -> list[T]:
    """Run several tasks concurrently, each of which may ask.

    Returns:
        Their results, in order.

    Raises:
        Exception: The first error, which stops the other tasks.
    """
    askers, parent = ASKERS.get(), _asker.get()
    parts = [None if askers is None else Asker(askers) for _ in works]
    left = set(range(len(works)))
    if parent is not None:
        parent.wait()

    def ended(place: int) -> None:
        left.discard(place)
        if not left and parent is not None:
            parent.resume()  # before its last part ends, so that there is always some work
        if (part := parts[place]) is not None:
            part.end()

    async def run_part(place: int) -> T:
        _asker.set(parts[place])
        result = await works[place]
        ended(place)
        return result

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run_part(place)) for place in range(len(works))]
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):  # the others have the same error
            first = first.exceptions[0]
        raise first from None
    finally:
        for place in sorted(left):  # work that failed or was cancelled, perhaps before it began
            works[place].close()
            ended(place)
    return [task.result() for task in tasks]
