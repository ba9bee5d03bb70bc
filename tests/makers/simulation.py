"""Run the engine in simulated time: a clock that jumps to the next timer, an in-memory store and a computed server.

Waiting takes no time, and all figures are exact and repeatable on a busy machine.
"""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, TypeVar

from airgen.errors import AirgenError
from airgen.llms.base import Backend, CallLimits, Message, Reply, Request, Retry
from airgen.llms.call_queue import Connection
from airgen.llms.engine import Engine
from airgen.llms.money import FREE, Budget, Price
from airgen.llms.openai import OpenAIBackend, OpenAISettings
from airgen.storage.records import Answer, Payment, Reservation
from airgen.storage.store import Store

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    """A selector that moves the clock instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "a deadlock: everything waits, and no timer is set"
            # By rounding, a timer can be just short of due: always move a little.
            self.now += max(timeout, 1e-9)
        return ready


class _Inline(Executor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except (AirgenError, KeyError) as error:
            future.set_exception(error)
        return future


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)
        self._default_executor = _Inline()  # type: ignore[assignment]

    def time(self) -> float:
        return self._jump.now

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        return


def simulate(main: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function in simulated time, which starts at 0."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main())  # type: ignore[arg-type]


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a coroutine test in simulated time."""

    @functools.wraps(test)
    def run(*args: Any, **options: Any) -> None:
        simulate(lambda: test(*args, **options))

    return run


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine test in its own loop, in real time."""

    @functools.wraps(test)
    def run(*args: Any, **options: Any) -> None:
        asyncio.run(test(*args, **options))

    return run


def now() -> float:
    return asyncio.get_running_loop().time()


def set_clock(seconds: float) -> None:
    """Set the time at once, regardless of pending timers."""
    asyncio.get_running_loop()._jump.now = seconds  # type: ignore[attr-defined]


def engine_of(
    backend: Backend,
    store: Any,
    *,
    price: Price | None = FREE,
    budget_usd: float | None = None,
    spent_usd: float = 0.0,
    retry_failed: bool = False,
    say: Callable[[str], None] = lambda text: None,
    **limits: Any,
) -> Engine:
    """An engine for the model m; `limits` are those of `airgen.llms.base.CallLimits`."""
    llms = {("default", "m"): Connection(backend, CallLimits(**limits), price)}
    return Engine(store, llms, budget=Budget(budget_usd, spent_usd), retry_failed=retry_failed, say=say)


def openai(url: str | list[str], key: str | None = None, **settings: Any) -> OpenAIBackend:
    """The backend for the model m at an address; `key` is the name of a variable."""
    return OpenAIBackend(OpenAISettings(model="m", base_url=url, api_key_env=key, **settings))


def ask_all(
    backend: Backend | str, path: Path, wanted: Sequence[Request], **options: Any
) -> tuple[list[Answer], Engine]:
    """Ask through an engine with the real store, quickly again after a failure; a backend or a server's address."""

    async def main() -> tuple[list[Answer], Engine]:
        reached = openai(backend) if isinstance(backend, str) else backend
        with Store.open(path) as store:
            async with engine_of(reached, store, **{"backoff": 0.01, **options}) as engine:
                return await asyncio.gather(*(engine.ask(one) for one in wanted)), engine

    return asyncio.run(main())


def send(backend: Backend, request: Request) -> Reply:
    """Make one attempt."""

    async def main() -> Reply:
        try:
            return await backend.send(request)
        finally:
            await backend.close()

    return asyncio.run(main())


class MemoryStore:
    """Answers in a dict; `commits` is how many groups of answers were written. Money is kept as in the real store."""

    def __init__(self) -> None:
        self.rows: dict[str, Answer] = {}
        self.reservations: dict[str, Reservation] = {}
        self.payments: dict[str, Payment] = {}
        self.commits = 0

    def answers(self, keys: Sequence[str]) -> dict[str, Answer]:
        return {key: self.rows[key] for key in keys if key in self.rows}

    def forget(self, answers: Sequence[str]) -> None:
        for key in answers:
            del self.rows[key]

    async def commit(self, rows: Sequence[Any]) -> None:
        await asyncio.sleep(0.01)
        tables: dict[type, dict[str, Any]] = {
            Answer: self.rows, Reservation: self.reservations, Payment: self.payments,
        }  # fmt: skip
        for row in rows:
            assert row.key not in tables[type(row)], "a row was written twice"
            tables[type(row)][row.key] = row
        self.commits += any(isinstance(row, Answer) for row in rows)

    @property
    def spent(self) -> float:
        """Return the amount spent, counted like `airgen.steps.ask.money`."""
        rows = [*self.payments.values(), *(one for key, one in self.reservations.items() if key not in self.payments)]
        return sum(row.usd for row in rows)


class Simulated(Backend):
    """A server: `latency` seconds a call, at most `slots` at once (others queue), `rate` requests a second of a
    bucket that holds `burst`, and `behave(request, attempt)`, which may raise or return a text."""

    def __init__(
        self,
        *,
        latency: float = 0.05,
        slots: int = 1_000_000,
        rate: float = 0.0,
        burst: float = 0.0,
        retry_after: float | None = None,
        behave: Callable[[Request, int], str | None] | None = None,
    ) -> None:
        self.latency, self.rate, self.burst, self.retry_after = latency, rate, burst or rate, retry_after
        self.slots = asyncio.Semaphore(slots)
        self.behave = behave
        self.level, self.filled = self.burst, 0.0
        self.sent: list[Request] = []
        self.attempts: dict[str, int] = {}
        self.refused = self.in_flight = self.most = 0
        self.closed = False

    async def send(self, request: Request) -> Reply:
        self.sent.append(request)
        attempt = self.attempts[request.key] = self.attempts.get(request.key, 0) + 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            if self.rate:
                self.level = min(self.burst, self.level + (now() - self.filled) * self.rate)
                self.filled = now()
                if self.level < 1:
                    self.refused += 1
                    await asyncio.sleep(self.latency / 5)
                    raise Retry("rate_limit", self.retry_after)
                self.level -= 1
            async with self.slots:
                await asyncio.sleep(self.latency)
            text = self.behave(request, attempt) if self.behave else None
            return Reply(text or f"answer to {request.messages[-1].content}", prompt_tokens=100, completion_tokens=10)
        finally:
            self.in_flight -= 1

    async def close(self) -> None:
        self.closed = True


def failing(error: AirgenError, when: Callable[[int, int], bool] = lambda number, attempt: True) -> Any:
    """A behaviour of `Simulated` that fails `when` the number of the request and of the attempt say so."""

    def behave(request: Request, attempt: int) -> None:
        if when(int(request.messages[0].content.split()[1]), attempt):
            raise error

    return behave


async def outcomes_of(
    backend: Backend, wanted: int | Sequence[Request], store: MemoryStore | None = None, **options: Any
) -> tuple[list[Any], Engine]:
    """What came of requests, answers and errors; and the engine, which is closed."""
    async with engine_of(backend, store or MemoryStore(), **options) as engine:
        asked = requests(wanted) if isinstance(wanted, int) else wanted
        return await asyncio.gather(*(engine.ask(one) for one in asked), return_exceptions=True), engine


def requests(n: int, stage: str = "query", **params: Any) -> list[Request]:
    """Make n different requests."""
    return [
        Request("m", (Message("user", f"number {i}"),), {"max_tokens": 100, **params}, stage=stage) for i in range(n)
    ]
