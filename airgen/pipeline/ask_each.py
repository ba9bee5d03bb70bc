"""One question about each of many things: the one loop over LLM calls.

    await ask_each(items, ask_one, workers)                                  # inside a job
    answers = ask_about(items, ask_one, pipeline, Path("answers.duckdb"))    # with its own database and engine

Generation, judging, calibration, labelling, expansion, holes and trials of prompts go through it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from airgen.llms.base import Llm, Rule
from airgen.pipeline.ask import saw_answer
from airgen.pipeline.engines import health_of, make_engine, workers_of
from airgen.settings import Pipeline
from airgen.store import Store

T = TypeVar("T")
V = TypeVar("V")


async def ask_each(items: Sequence[T], ask_one: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Ask about the items in their order, `workers` at a time; the first error stops the rest and is raised."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await ask_one(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(workers, len(items))):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):  # the others are the same error in other workers
            first = first.exceptions[0]
        raise first from None


def ask_about(
    items: Sequence[T],
    ask_one: Callable[[Llm, T], Awaitable[V]],
    pipeline: Pipeline,
    database: Path | Store,
    *,
    budget_usd: float | None = None,
    retry_failed: bool = False,
    progress: Callable[[int], None] | None = None,
    rules: Mapping[str, Rule] | None = None,
) -> list[V]:
    """One answer for each item, in the items' order, by the pipeline's LLMs. Raises BudgetSpent and Stopped, and
    LlmError where almost every value is a Refusal.

    Answers are kept in `database`, as those of a job are: a second call asks nothing, a stopped one goes on. `rules`
    are the scripted backend's.
    """
    if isinstance(database, Path):
        with Store.open(database) as store:
            return ask_about(
                items, ask_one, pipeline, store,
                budget_usd=budget_usd, retry_failed=retry_failed, progress=progress, rules=rules,
            )  # fmt: skip
    found: dict[int, V] = {}
    health = health_of(pipeline, database)

    async def main() -> None:
        engine = make_engine(pipeline, database, budget_usd=budget_usd, retry_failed=retry_failed, rules=rules)
        async with engine:

            async def one(place: int) -> None:
                found[place] = await ask_one(engine, items[place])
                saw_answer(health, "answers", found[place])
                health.check()
                if progress:
                    progress(len(found))

            await ask_each(range(len(items)), one, workers_of(*pipeline.llms.values()))

    run_to_end(main())
    return [found[place] for place in range(len(items))]


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, also where an event loop runs already, as in a notebook. Raises what it raises.

    Under a running loop it gets a loop and a thread of its own, and this thread waits; Ctrl-C cancels the work.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise
    finally:
        asyncio.run_coroutine_threadsafe(_end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end() -> None:
    """Let the tasks that are left end, as `asyncio.run` does."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
