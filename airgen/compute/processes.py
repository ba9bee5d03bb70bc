"""Workers in other processes: how items are sent, and what happens when a worker is lost.

A worker that dies loses its item, and perhaps the items of others. Each of these is tried once more, on its own, so
that a second loss identifies the item to blame. An error of the work itself is raised unchanged: another try would give
the same.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from abc import abstractmethod
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from airgen.compute import Compute, In, Key, Out, Work, cores, thread_limits, without_main
from airgen.errors import AirgenError
from airgen.settings.compute import ComputeSettings

_ITEMS_PER_WORKER = 2  # items per worker: one is being processed while the next is sent
_ITEMS_AHEAD = 4  # items that a worker may be ahead of the oldest unfinished item, if the order is kept
_CACHED_FUNCTIONS = 4  # functions that a worker keeps, with their models
_made: OrderedDict[bytes, Callable[[Any], Any]] = OrderedDict()


@dataclass(frozen=True)
class Returned:
    """What came of an item: a result, or the error of the work in parts, as not every error can be pickled."""

    result: Any = None
    failure: tuple[type[BaseException], tuple[Any, ...], dict[str, Any], str] | None = None

    def value(self) -> Any:
        """Return the result, or raise the error that the worker raised."""
        if self.failure is None:
            return self.result
        kind, arguments, state, trace = self.failure
        error = kind.__new__(kind)  # not by its constructor, which may take other arguments
        error.args = arguments
        error.__dict__.update(state)
        error.add_note(trace)
        raise error


def answer(make: bytes, item: Any) -> Returned:
    """Do one item. `make` is a pickled function without arguments that gives the function of an item; it is kept."""
    try:
        if make not in _made:
            _made[make] = pickle.loads(make)()
            while len(_made) > _CACHED_FUNCTIONS:
                _made.popitem(last=False)
        _made.move_to_end(make)
        return Returned(_made[make](item))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # it is raised where the work was asked for
        return Returned(failure=_in_parts(error))


def _in_parts(error: BaseException) -> tuple[type[BaseException], tuple[Any, ...], dict[str, Any], str]:
    """Return the class, arguments, attributes and trace of an error, or of a RuntimeError in place of an error that
    cannot be sent or would end the process that asked for the work.
    """
    trace = f"in a worker:\n{traceback.format_exc(limit=-4)}"
    try:
        parts = (type(error), error.args, dict(error.__dict__), trace)
        pickle.loads(pickle.dumps(parts))
        type(error).__new__(type(error))
        if issubclass(type(error), Exception):
            return parts
        words = f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001  # an error may hold anything
        try:
            words = f"{type(error).__name__}: {error}"
        except BaseException:  # noqa: BLE001
            words = type(error).__name__
    return RuntimeError, (words,), {}, trace


class WorkerLost(Exception):
    """A worker has died."""


@dataclass
class _Item:
    place: int
    key: Any
    item: Any
    tries: int = 0


class WorkerPool(Compute):
    """Workers elsewhere. A subclass starts them and sends items; this class deals with lost ones."""

    def __init__(self) -> None:
        self._counts = Counter[str]()

    @abstractmethod
    def start(self) -> None:
        """Start workers, whatever happened to earlier ones. Raises AirgenError if that is impossible."""

    @abstractmethod
    def send(self, make: bytes, item: Any) -> Future[Returned]:
        """Do an item. The future raises WorkerLost, or BrokenProcessPool, where its worker dies."""

    def check_workers(self) -> float | None:
        """Raise AirgenError if no worker can continue; return the seconds until the next check, None: never."""
        return None

    def loss_reason(self, lost: Exception) -> str:
        """Say why a worker was lost."""
        return str(lost)

    @property
    def room(self) -> int:
        """Return how many items may be with the workers at a time."""
        return _ITEMS_PER_WORKER * self.workers

    def describe(self) -> dict[str, Any]:
        """Describe the setting and the work done, for the status of a job."""
        counts = {name: self._counts[name] for name in ("batches", "sent_again", "workers_lost")}
        return {**super().describe(), **counts}

    def map(
        self, work: Work[In, Out], items: Iterable[tuple[Key, In]], *, ordered: bool = True, least: int = 0
    ) -> Iterator[tuple[Key, Out]]:
        """Do the work on workers, as `Compute.map` does. Work that cannot be built elsewhere is done here."""
        remaining = iter(items)
        first = list(islice(remaining, least))
        if work.there is None or len(first) < least:
            yield from super().map(work, chain(first, remaining))
            return
        make, numbered_items = pickle.dumps(work.there), enumerate(chain(first, remaining))
        out: dict[Future[Returned], _Item] = {}
        alone: deque[_Item] = deque()  # to be sent again
        finished: dict[int, tuple[Any, Any]] = {}
        next_place, started = 0, False
        try:
            while True:
                while alone or len(out) < self.room:
                    if out and (alone or any(item.tries for item in out.values())):
                        break  # an item that is sent again runs alone
                    if not alone and ordered and len(finished) >= _ITEMS_AHEAD * self.workers:
                        break
                    if alone:
                        item = alone.popleft()
                    elif (numbered := next(numbered_items, None)) is not None:
                        item = _Item(numbered[0], *numbered[1])
                    else:
                        break
                    if not started:
                        self.start()
                        started = True
                    out[self.send(make, item.item)] = item
                if not out:
                    return
                for future in self._ended(out):
                    item = out.pop(future)
                    try:
                        row = (item.key, future.result().value())
                    except (WorkerLost, BrokenProcessPool) as lost:
                        alone.append(self._retried(work.name, item, self.loss_reason(lost)))
                        started = False
                        continue
                    self._counts["batches"] += 1
                    if not ordered:
                        yield row
                        continue
                    finished[item.place] = row
                    while next_place in finished:
                        yield finished.pop(next_place)
                        next_place += 1
        finally:
            for future in out:
                future.cancel()

    def _ended(self, out: dict[Future[Returned], _Item]) -> list[Future[Returned]]:
        while True:
            timeout = self.check_workers()
            if ended := wait(out, timeout, FIRST_COMPLETED).done:
                return sorted(ended, key=lambda future: out[future].place)

    def _retried(self, name: str, item: _Item, why: str) -> _Item:
        item.tries += 1
        if item.tries > 1:
            raise AirgenError(
                f"{name}: two workers were lost on {str(item.key)[:80]}; the last one: {why}: the machine may be "
                f"out of memory"
            )
        self._counts["sent_again"] += 1
        return item


class Processes(WorkerPool):
    """`workers` processes of this machine, each with its share of the cores."""

    def __init__(self, settings: ComputeSettings) -> None:
        super().__init__()
        self.workers = settings.workers or cores()
        self._threads = settings.cpus_per_worker or max(1, cores() // self.workers)
        self._executor: ProcessPoolExecutor | None = None
        self._children: list[SpawnProcess] = []
        self._broken = False

    def start(self) -> None:
        """Do nothing: processes start with the first items."""
        if self._broken:
            self.close()
        if self._executor is not None:
            return
        context, self._children = SpawnContext(), []
        context.Process = self._process  # type: ignore[misc, assignment]
        self._executor = ProcessPoolExecutor(self.workers, context, _set_up_worker, (thread_limits(self._threads),))

    def _process(self, **options: Any) -> SpawnProcess:
        self._children.append(_Process(**options))
        return self._children[-1]

    def send(self, make: bytes, item: Any) -> Future[Returned]:
        """Submit an item to the executor."""
        assert self._executor is not None
        try:
            return self._executor.submit(answer, make, item)
        except BrokenProcessPool as error:
            failed: Future[Returned] = Future()
            failed.set_exception(error)
            return failed

    def loss_reason(self, lost: Exception) -> str:
        """Say how the processes ended. The executor itself ends the others by SIGTERM."""
        if not self._broken and self._executor is not None:
            self._executor.shutdown(wait=True)
            self._broken = True
            self._counts["workers_lost"] += 1
        codes = [code for process in self._children if (code := process.exitcode) not in (None, 0, -signal.SIGTERM)]
        how = [f"signal {-code}" if code < 0 else f"exit code {code}" for code in codes]
        return f"a process ended with {', '.join(how) or 'no message'}"

    def close(self) -> None:
        """End the processes at once."""
        if self._executor is None:
            return
        for child in self._children:
            child.kill()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor, self._broken = None, False


class _Process(SpawnProcess):
    """A process that does not import the user's own script, and so does not run it a second time."""

    def start(self) -> None:
        with without_main():
            super().start()


def _set_up_worker(environment: dict[str, str]) -> None:
    """Set up a worker, so that it ends with the process that started it, however that ends."""
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    os.dup2(2, 1)  # what libraries print is not a command's output
    sys.stdout = sys.stderr
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_it() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True).start()
