"""Workers elsewhere, and all that can go wrong with them, for all backends:

- a worker that dies is replaced, and its batches are sent again, alone, `TRIES` times, then in halves;
- a worker that takes too long for a batch is taken for stuck, and replaced, too;
- a batch that is too large for a worker's memory is halved, down to one item;
- an error of the work itself is raised as it is: another try would give the same.

A worker has `_DEPTH` batches at a time and, where the order is kept, is `_WINDOW` batches ahead at most, so the driver
holds no more than these, however large the work is.
"""

from __future__ import annotations

import pickle
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from airgen.compute.base import Compute, Here, Work
from airgen.compute.calls import Returned, Worker, WorkerLost
from airgen.errors import AirgenError
from airgen.sequences import batched

In = TypeVar("In")
Out = TypeVar("Out")
Key = TypeVar("Key")

TRIES = 3  # of a batch whose worker dies or is stuck
_DEPTH = 2  # batches that a worker has at a time: one is done while the next one travels
_WINDOW = 4  # batches a worker may be ahead of the oldest one that is not done, where the order is kept
_NEVER: Future[Any] = Future()  # waited for beside others, so that there is always something to wait for
_BACKOFF = 0.2  # seconds before a batch's second try; doubled with each


@dataclass
class _Batch:
    first: int  # place of its first item among all
    keys: list[Any]
    items: list[Any]
    tries: int = 0
    not_before: float = 0.0

    def __str__(self) -> str:
        first = str(self.keys[0])[:80]
        return first if len(self.keys) == 1 else f"{first} and {len(self.keys) - 1} more"


@dataclass
class _Flight:
    batch: _Batch
    worker: Worker
    sent: float  # the time from which its worker has worked on it


@dataclass
class _Counts:
    batches: int = 0
    again: int = 0
    lost: int = 0
    stuck: int = 0
    halved: int = 0
    seconds: float = field(default_factory=time.monotonic)


class WorkerPool(Compute):
    """Workers elsewhere. A subclass starts them; this class gives them batches and deals with their failures."""

    def __init__(self, batch_seconds: float, start_seconds: float = 300.0) -> None:
        self._batch_seconds, self._start_seconds = batch_seconds, start_seconds
        self._workers: list[Worker] = []
        self._counts = _Counts()

    @abstractmethod
    def start(self) -> list[Worker]:
        """Start all workers at once. Raises AirgenError where none can be."""

    @abstractmethod
    def start_one(self) -> Worker:
        """Start one more in place of one that was lost."""

    def look(self) -> float | None:
        """Raise AirgenError where no worker can go on; seconds after which to look again, None: never."""
        return None

    def close(self) -> None:
        """End the workers."""
        while self._workers:
            self._workers.pop().kill()

    def describe(self) -> dict[str, Any]:
        """What it is and what it has done, for the status of a job."""
        counts = self._counts
        return {
            **super().describe(), "batches": counts.batches, "sent_again": counts.again, "workers_lost": counts.lost,
            "stuck": counts.stuck, "halved": counts.halved,
        }  # fmt: skip

    def map(
        self,
        work: Work[In, Out],
        items: Iterable[tuple[Key, In]],
        *,
        size: int = 1,
        weigh: Callable[[In], int] = lambda item: 1,
        ordered: bool = True,
    ) -> Iterator[tuple[Key, Out]]:
        """See `Compute.map`. Work that cannot be made elsewhere is done here."""
        if work.there is None:
            yield from Here().map(work, items, size=size, weigh=weigh, ordered=ordered)
            return
        batches = batched(items, size, lambda item: weigh(item[1]))
        first = next(batches, None)
        if first is None:
            return
        if not self._workers:
            self._workers = self.start()
        yield from _Map(self, work.name, pickle.dumps(work.there), chain([first], batches), ordered).run()


class _Map:
    """One call of `WorkerPool.map`."""

    def __init__(self, pool: WorkerPool, name: str, make: bytes, batches: Iterator[Any], ordered: bool) -> None:
        self.pool, self.name, self.make, self.batches, self.ordered = pool, name, make, batches, ordered
        self.waiting: deque[_Batch] = deque()  # to be sent again, or halves
        self.flights: dict[Future[Returned], _Flight] = {}
        self.done: dict[int, list[tuple[Any, Any]]] = {}
        self.place = 0  # of the next item to be sent
        self.given = 0  # items whose results were yielded, where the order is kept
        self.over = False
        self.failed_starts = 0
        self.began = time.monotonic()

    def run(self) -> Iterator[tuple[Any, Any]]:
        while True:
            self._fill()
            if self.over and not (self.flights or self.waiting):
                return
            for future in self._next():
                if (flight := self.flights.pop(future, None)) is None:
                    continue  # it was stuck or lost, and was sent again
                found = self._result(future, flight)
                self._tell_next(flight.worker)
                if found is None:
                    continue
                if len(found) != len(flight.batch.items):
                    raise AirgenError(f"{self.name}: {len(found)} results for {len(flight.batch.items)} items")
                self.pool._counts.batches += 1
                rows = list(zip(flight.batch.keys, found, strict=True))
                if not self.ordered:
                    yield from rows
                    continue
                self.done[flight.batch.first] = rows
                while self.given in self.done:
                    rows = self.done.pop(self.given)
                    self.given += len(rows)
                    yield from rows

    def _fill(self) -> None:
        """Give batches to workers that have room. One that is sent again is alone with its worker."""
        now = time.monotonic()
        load: dict[Worker, int] = dict.fromkeys(self.pool._workers, 0)
        for flight in self.flights.values():
            load[flight.worker] = load.get(flight.worker, 0) + (_DEPTH if flight.batch.tries else 1)
        for level in range(_DEPTH):
            for worker in self.pool._workers:
                if not worker.ready.done() or load[worker] > level:
                    continue
                batch = self._take(now, alone=level == 0)
                if batch is None:
                    continue
                self.flights[worker.send(self.make, batch.items)] = _Flight(batch, worker, now)
                load[worker] += _DEPTH if batch.tries else 1

    def _take(self, now: float, alone: bool) -> _Batch | None:
        for batch in self.waiting:
            if batch.not_before <= now and (alone or not batch.tries):
                self.waiting.remove(batch)
                return batch
        oldest = min((flight.batch.first for flight in self.flights.values()), default=self.place)
        oldest = min([oldest, *(batch.first for batch in self.waiting)])
        ahead = sum(first > oldest for first in self.done)
        if self.over or (self.ordered and ahead >= _WINDOW * len(self.pool._workers)):
            return None
        rows = next(self.batches, None)
        if rows is None:
            self.over = True
            return None
        batch = _Batch(self.place, [key for key, _ in rows], [item for _, item in rows])
        self.place += len(rows)
        return batch

    def _next(self) -> Sequence[Future[Returned]]:
        """Futures that are done; none where only time has passed. Stuck and broken workers are replaced."""
        now = time.monotonic()
        starting = [worker for worker in self.pool._workers if not worker.ready.done()]
        due = [flight.sent + self.pool._batch_seconds for flight in self._heads()]
        due += [batch.not_before for batch in self.waiting if batch.not_before > now]
        if len(starting) == len(self.pool._workers):
            due.append(self.began + self.pool._start_seconds)
        due += [now + again] if (again := self.pool.look()) is not None else []
        timeout = max(0.0, min(due) - now) if due else None
        futures: list[Future[Any]] = [_NEVER, *self.flights, *(worker.ready for worker in starting)]
        wait(futures, timeout, FIRST_COMPLETED)
        for worker in list(self.pool._workers):
            if worker.ready.done() and (error := worker.ready.exception()) is not None:
                self._failed_to_start(worker, error)
        now = time.monotonic()
        if len(starting) == len(self.pool._workers) and not any(worker.ready.done() for worker in starting):
            if now - self.began >= self.pool._start_seconds:
                raise AirgenError(
                    f"compute: none of {len(starting)} workers was ready after {self.pool._start_seconds:.0f} s: "
                    "is the cluster full? Lower compute.workers, or give it more nodes"
                )
        else:
            self.began = now
        done = [future for future in self.flights if future.done()]
        for flight in self._heads():
            if not done and now - flight.sent >= self.pool._batch_seconds:
                self.pool._counts.stuck += 1
                self._lose(flight.worker, f"stuck for {self.pool._batch_seconds:g} s")
        return done

    def _failed_to_start(self, worker: Worker, error: BaseException) -> None:
        self.failed_starts += 1
        if not isinstance(error, WorkerLost):
            raise error
        if self.failed_starts >= TRIES * max(1, len(self.pool._workers)):
            raise AirgenError(f"compute: workers end before they are ready; the last one: {error}")
        self._lose(worker, str(error))

    def _heads(self) -> list[_Flight]:
        """The batch that each worker works on: of those that it has, the one that was sent first."""
        heads: dict[Worker, _Flight] = {}
        for flight in self.flights.values():
            heads.setdefault(flight.worker, flight)
        return list(heads.values())

    def _tell_next(self, worker: Worker) -> None:
        """The clock of a worker's next batch begins when the one before is done."""
        for flight in self.flights.values():
            if flight.worker is worker:
                flight.sent = time.monotonic()
                return

    def _result(self, future: Future[Returned], flight: _Flight) -> Sequence[Any] | None:
        """The results; None where the batch is sent again."""
        try:
            answer = future.result()
        except WorkerLost as lost:
            self.pool._counts.lost += 1
            self._lose(flight.worker, str(lost))
            if lost.memory:
                self._halve(flight.batch, str(lost))
            else:
                self._again(flight.batch, str(lost))
            return None
        if answer.memory:
            self._halve(flight.batch, answer.memory)
            return None
        return answer.value()

    def _lose(self, worker: Worker, why: str) -> None:
        """Replace a worker; the batches that it had are sent again."""
        if worker in self.pool._workers:
            self.pool._workers.remove(worker)
            worker.kill()
            self.pool._workers.append(self.pool.start_one())
        for future, flight in list(self.flights.items()):
            if flight.worker is worker:
                del self.flights[future]
                self._again(flight.batch, why)

    def _again(self, batch: _Batch, why: str) -> None:
        self.pool._counts.again += 1
        batch.tries += 1
        if batch.tries >= TRIES:
            if len(batch.items) < 2:
                raise AirgenError(f"{self.name}: {TRIES} workers were lost on {batch}; the last one: {why}")
            self._halve(batch, why, tries=TRIES - 1)  # one item is to blame, or all of them together are too large
            return
        batch.not_before = time.monotonic() + _BACKOFF * 2 ** (batch.tries - 1)
        self.waiting.append(batch)

    def _halve(self, batch: _Batch, why: str, tries: int = 0) -> None:
        if len(batch.items) < 2:
            raise AirgenError(
                f"{self.name}: {batch} alone needs more memory than a worker has ({why}): give workers more "
                "memory, or shorten what the model reads (max_length)"
            )
        self.pool._counts.halved += 1
        half = len(batch.items) // 2
        self.waiting.append(_Batch(batch.first, batch.keys[:half], batch.items[:half], tries))
        self.waiting.append(_Batch(batch.first + half, batch.keys[half:], batch.items[half:], tries))
