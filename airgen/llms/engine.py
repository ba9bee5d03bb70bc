"""The engine looks up answers on disk, asks the LLM within the budget and limits, and saves each new answer.

    async with Engine(store, {("default", "m"): Connection(backend)}, budget=Budget(5.0)) as llm:
        answers = await asyncio.gather(*(llm.ask(request) for request in requests))

Calls start in the order in which they were requested, so calls that share a document stay together, and prefix caches
can serve them. Identical requests are sent only once. An answer is on disk before its caller receives it. A spent
budget, a server that is down, and an endpoint that refuses permanently each stop new calls at once; calls in flight are
finished and saved.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any

from airgen.errors import AirgenError, BudgetSpent, SettingsError, Stopped
from airgen.llms.askers import ASKERS, Askers, current_asker
from airgen.llms.base import Backend, Request
from airgen.llms.call_queue import COMMIT_GROUP, Call, CallQueue, Connection, Shared
from airgen.llms.money import Budget, StageUsage, unknown_price
from airgen.llms.spans import Spans
from airgen.safety.escaping import dollars
from airgen.storage.records import Answer
from airgen.storage.store import Store

_LOG = logging.getLogger(__name__)

LOOKUP_SECONDS = 0.002  # requests asked within this time are looked up on the disk together
LOOKUP_CALLS = 256  # maximum per query: with many thousands, the first are sent while the others are looked up


class Engine:
    """Asks LLMs within a budget and limits, and saves every answer. All methods belong to one event loop.

    Args:
        llms: Connections by (endpoint, model), each with its own queue.
        budget: The limit on the cost of all calls, including what earlier processes spent.
        retry_failed: Whether to repeat calls whose saved result is a failure.
        say: Prints a line for the user, such as why no call is sent for a while.
    """

    def __init__(
        self,
        store: Store,
        llms: Mapping[tuple[str, str], Connection],
        *,
        budget: Budget | None = None,
        retry_failed: bool = False,
        say: Callable[[str], None] = _LOG.warning,
    ) -> None:
        self._store, self._llms, self._retry_failed = store, llms, retry_failed
        self._collecting = [connection.backend for connection in llms.values() if connection.backend.COLLECTS]
        self._askers = Askers(self._send_collected) if self._collecting else None
        for connection in llms.values():
            connection.backend.say = say
            connection.backend.collected = self._send_collected
        self._usage: defaultdict[str, StageUsage] = defaultdict(StageUsage)
        self._shared = Shared(
            budget or Budget(),
            start=lambda queue, call: self._spawn(self._run(queue, call)),
            drop=lambda call: self._calls.pop(call.key, None),
            stop=self._halt,
            save=store.commit,
            say=say,
            waited=self._send_collected,
        )
        self._spans = Spans()
        self._calls: dict[str, Call] = {}
        self._queues: dict[tuple[str, str], CallQueue] = {}
        self._new: list[Call] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking_up = False
        self._order = 0
        self._stopped: AirgenError | None = None

    # -- what the user of the engine sees ----------------------------------------------------------------------

    async def ask(self, request: Request) -> Answer:
        """Return the answer, saved or new; see `airgen.llms.base.Llm`."""
        key = self._connection(request).key(request)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = Call(request, key, self._order, self._usage[request.stage])
            self._order += 1
            self._new.append(call)
            if not self._looking_up:
                self._looking_up = True
                self._spawn(self._look_up())
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        call.waiters.append(waiter)
        if (asker := current_asker()) is not None:
            asker.wait_for(waiter)
        return await waiter

    def usage(self) -> dict[str, StageUsage]:
        """Return the current counters by stage. A stage appears with its first call."""
        return self._usage

    def backend(self, where: tuple[str, str]) -> Backend:
        """Return the backend of an endpoint and model."""
        return self._llms[where].backend

    @property
    def spent_usd(self) -> float:
        """Return what the job has cost, including earlier processes."""
        return self._shared.budget.spent

    @property
    def budget_usd(self) -> float | None:
        """Return what the job may cost, including earlier processes, or None if there is no limit."""
        return self._shared.budget.limit

    def limits(self) -> dict[str, dict[str, float | None]]:
        """Return, for each `endpoint model`, the maximum number of calls in flight and the learnt rate in requests per
        second."""
        return {
            " ".join(where): {"concurrency": queue.concurrency.limit, "rate": queue.rate.rate}
            for where, queue in self._queues.items()
        }

    @property
    def busy(self) -> bool:
        """Return whether calls are in flight."""
        return bool(self._tasks)

    def stop(self, reason: str = "stopped by the user: run the same command again to continue") -> None:
        """Stop sending calls. Calls in flight are finished and saved, and batches stay with their server. From now on,
        asking raises Stopped."""
        self._halt(Stopped(reason))
        self._leave()

    def _leave(self) -> None:
        """Leave batches, which can take up to a day, to the next process."""
        for connection in self._llms.values():
            for line in connection.backend.leave():
                self._shared.say(line)

    async def close(self) -> None:
        """Finish and commit the calls in flight, leave batches with their server, and release the backends."""
        self._halt(Stopped("the engine is closed"))
        self._leave()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._llms.values():
            await connection.backend.close()

    async def __aenter__(self) -> "Engine":
        ASKERS.set(self._askers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ASKERS.set(None)
        await self.close()

    # -- the disk ----------------------------------------------------------------------------------------------

    async def _look_up(self) -> None:
        """Look up new requests on disk, many in one query, and queue those that have no answer."""
        loop = asyncio.get_running_loop()
        try:
            while self._new:
                if len(self._new) < LOOKUP_CALLS:
                    await asyncio.sleep(LOOKUP_SECONDS)
                calls, self._new = self._new[:LOOKUP_CALLS], self._new[LOOKUP_CALLS:]
                try:
                    answers = await loop.run_in_executor(None, self._read, [call.key for call in calls])
                except AirgenError as error:
                    self._halt(error)
                    answers = {}
                for call in calls:
                    if answer := answers.get(call.key):
                        call.stage.from_disk += 1
                        self._resolve(call, answer)
                        continue
                    queue = self._queue(call.request)
                    if self._stopped is not None:
                        self._resolve(call, self._stopped)
                    else:
                        queue.add(call)
                self._start_calls()
        finally:
            self._looking_up = False

    def _read(self, keys: list[str]) -> dict[str, Answer]:
        answers = self._store.answers(keys)
        if self._retry_failed and (failed := [key for key, answer in answers.items() if answer.error]):
            self._store.forget(failed)
            for key in failed:
                del answers[key]
        return answers

    # -- the queues --------------------------------------------------------------------------------------------

    def _connection(self, request: Request) -> Connection:
        try:
            return self._llms[request.endpoint, request.model]
        except KeyError:
            known = ", ".join(f"{model!r} at {endpoint!r}" for endpoint, model in self._llms)
            raise SettingsError(
                [f"no LLM of this job is {request.model!r} at endpoint {request.endpoint!r} (known: {known})"]
            ) from None

    def _queue(self, request: Request) -> CallQueue:
        where = (request.endpoint, request.model)
        if where not in self._queues:
            connection = self._connection(request)
            if self._shared.budget.limit is not None and (connection.price is None or connection.price.assumed):
                unpriced = f"a budget needs prices: {unknown_price(request.model)}. Your own server needs no budget"
                self._halt(SettingsError([unpriced]))
            self._queues[where] = CallQueue(connection, self._shared)
        return self._queues[where]

    async def _run(self, queue: CallQueue, call: Call) -> None:
        """Make one attempt, save the answers that it finishes, and pass them to their callers."""
        try:
            with self._spans.attempt(call.request, call.attempts + 1) as span:
                finished = await queue.attempt(call)
                span.ended(next((answer for each, answer in finished if each is call), None))
        except asyncio.CancelledError:  # its backend has left it with the server
            self._resolve(call, self._stopped or Stopped("the call was left with the server"))
            raise
        payments, self._shared.payments = self._shared.payments, []
        self._shared.unsaved += len(finished)
        self._start_calls()
        if not finished and not payments:
            return
        outcome: AirgenError | None = None
        try:
            await self._store.commit([*(answer for _, answer in finished), *payments])
        except AirgenError as error:
            outcome = error
            self._halt(error)
        full = self._shared.unsaved > COMMIT_GROUP
        self._shared.unsaved -= len(finished)
        for each, answer in finished:
            self._resolve(each, outcome or answer)
        if full:  # the queues may have waited for this commit
            self._start_calls()

    def _start_calls(self) -> None:
        """Start calls in every queue, since the budget is shared and a finished call can make room in another queue."""
        if self._stopped is not None:
            self._halt(self._stopped)
            return
        for queue in self._queues.values():
            queue.start_calls()

    def _halt(self, error: AirgenError) -> None:
        """Stop sending calls, and raise the first error for every call that is not in flight."""
        self._stopped = self._stopped or error
        for queue in self._queues.values():
            for call in queue.empty():
                self._resolve(call, self._stopped)

    def _send_collected(self) -> None:
        """Close the batches if no more requests can come, that is, if all tasks are waiting and all calls wait for a
        batch."""
        if self._askers is None or self._askers.busy or self._new or self._stopped is not None:
            return
        waiting = sum(backend.waiting for backend in self._collecting)
        if len(self._tasks) == waiting and all(queue.rests for queue in self._queues.values()):
            held = sum(queue.held for queue in self._queues.values())
            if waiting == 1 and held:
                self._halt(
                    BudgetSpent(
                        f"budget: {dollars(self.spent_usd)} of {dollars(self.budget_usd or 0.0)} is spent, and the "
                        f"rest allows a batch of 1 of {1 + held:,} requests, which can take a day: raise "
                        "the budget and run the same command again to continue"
                    )
                )
                self._leave()
                return
            for backend in self._collecting:
                backend.send_collected()

    # -- tasks -------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Pass an unexpected error of a backend or the store on to every caller, so that none of them waits forever."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            self._send_collected()
            return
        self._halt(Stopped("an internal error stopped the engine"))
        for call in list(self._calls.values()):
            self._resolve(call, error)

    def _resolve(self, call: Call, outcome: Answer | BaseException) -> None:
        """Pass the outcome of a call to all callers that are still waiting for it."""
        self._calls.pop(call.key, None)
        for waiter in call.waiters:
            if waiter.done():
                continue
            if isinstance(outcome, Answer):
                waiter.set_result(outcome)
            else:
                waiter.set_exception(outcome)
