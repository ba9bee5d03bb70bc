"""Ask models: create a pipeline's engine, ask a prompt until its answer is usable, and ask about many items.

value, attempts = await ask(tools, STAGE, values, check)                 # a step's prompt; or a Problem
await ask_each(items, ask_one, workers)                                  # the one loop over LLM calls
answers = ask_about(items, ask_one, pipeline, Path("answers.duckdb"))    # with its own database and engine
"""

import asyncio
import json
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from airgen.components.keys import content_key
from airgen.display.notebook import current_bar
from airgen.errors import SettingsError, Stopped
from airgen.llms.answers import afresh, corrective, parse_answer
from airgen.llms.askers import together
from airgen.llms.base import Llm, Message, Request, Rule, backend_class
from airgen.llms.batch_file import BatchFile
from airgen.llms.call_queue import Connection
from airgen.llms.engine import Engine
from airgen.llms.health import Health
from airgen.llms.money import Budget, unknown_price
from airgen.llms.probe import read_profiles
from airgen.llms.prompts import Prompt
from airgen.safety.escaping import dollars
from airgen.safety.interruptible import STOPPED, ask_to_stop
from airgen.settings import LlmSettings, Pipeline
from airgen.settings.languages import SPACELESS
from airgen.settings.llm import own_answer_settings
from airgen.steps.step import ATTEMPTS, Problem, Step, Tools, stage_prompt
from airgen.storage.records import Answer, Reservation
from airgen.storage.store import Store
from airgen.text.words import words

T = TypeVar("T")
V = TypeVar("V")


def connect(llm: LlmSettings, folder: Path, rules: Mapping[str, Rule]) -> Connection:
    """Return the connection to an LLM, whose files are in a subfolder of `folder` that depends on its settings.

    Raises SettingsError if its key is missing.

    Args:
        rules: Scripted answers by stage; see `Backend.make`.
    """
    kind = backend_class(llm)
    backend = kind.make(llm, folder=folder / _own_folder(llm), rules=rules)
    return Connection(backend, kind.limits(llm), kind.price(llm), own_answer_settings(llm))


def _own_folder(llm: LlmSettings) -> str:
    return content_key({"endpoint": llm.endpoint, "model": llm.model, **own_answer_settings(llm)})[:16]


def workers_of(*llms: LlmSettings) -> int:
    """Return how many items to work on at a time: enough for the LLM with the most calls in flight."""
    return max((llm.workers for llm in llms), default=1)


def make_engine(
    pipeline: Pipeline,
    store: Store,
    *,
    budget_usd: float | None = None,
    retry_failed: bool = False,
    rules: Mapping[str, Rule] | None = None,
    say: Callable[[str], None] | None = None,
    live: bool = False,
) -> Engine:
    """Return one engine with one budget for the generator and the judges, which knows what was learnt about the models.

    Raises SettingsError if there is a budget but an LLM's price is unknown, and UsageError if the budget is negative.

    Args:
        rules: Answers of the scripted backend by stage.
        say: Prints a line for the user; see `Engine`.
        live: Whether to avoid batches.
    """
    limit = budget_usd if budget_usd is not None else pipeline.llm.budget_usd
    if limit is not None and (problems := unpriced(pipeline)):
        raise SettingsError(problems)
    folder = store.path.parent / "batches"
    settings = dict(pipeline.llms)
    if live:
        one_by_one = {"mode": "live"}
        settings = {
            where: llm.model_copy(update=one_by_one) if "mode" in type(llm).model_fields else llm
            for where, llm in settings.items()
        }
    llms = {where: connect(llm, folder, rules or {}) for where, llm in settings.items()}
    owned = {_own_folder(llm) for llm in settings.values()}
    for stale in sorted(path for path in folder.glob("*") if path.is_dir() and path.name not in owned):
        if say and BatchFile.unfinished(stale):
            say(
                f"{stale}: a batch for an LLM or settings that the pipeline no longer uses; the server may still bill "
                f"it"
            )
    for where, profile in read_profiles(store.path.parent, settings.values()).items():
        llms[where].backend.remember(profile.known)
    spending, still_there = money(store), defaultdict[str, list[Reservation]](list)
    for reservation in spending.open:
        where = (reservation.endpoint, reservation.model)
        if where in llms and llms[where].backend.RECOVERS:
            still_there[reservation.answer].append(reservation)
    options = {} if say is None else {"say": say}
    return Engine(store, llms, budget=Budget(limit, spending.spent, still_there), retry_failed=retry_failed, **options)


def health_of(pipeline: Pipeline, store: Store) -> Health:
    """Return the health monitor, which stops a job whose stages reject everything, and knows their cost."""

    def cost(stage: str) -> str:
        where, values = ("WHERE stage = ?", [stage]) if stage else ("", [])
        (usd,) = store.query(f"SELECT coalesce(sum(usd), 0) FROM payment {where}", values)[0]
        (calls,) = store.query(f"SELECT count(*) FROM answer {where}", values)[0]
        if stage and not calls:  # another stage's call gives its rows, as where one call writes everything
            return cost("")
        return f"{int(calls)} calls cost {dollars(float(usd))}"

    return Health(pipeline.generation.prompts, cost)


def unpriced(pipeline: Pipeline) -> list[str]:
    """Return a line for each of the job's LLMs that no budget can cover, because its price is unknown or only
    assumed."""
    prices = {llm.model: backend_class(llm).price(llm) for llm in pipeline.llms.values()}
    wrong = [model for model, price in prices.items() if price is None or price.assumed]
    return [f"a budget needs prices: {unknown_price(model)}. Your own server needs no budget" for model in wrong]


@dataclass(frozen=True)
class Overbilled:
    """The calls of a model that its server billed above their maximum cost, in US dollars."""

    model: str
    calls: int
    maximum: float
    billed: float

    def __str__(self) -> str:
        calls = f"{self.calls:,} call{'s' * (self.calls != 1)}"
        return f"{calls} of {self.model} billed {dollars(self.billed)}, but could cost at most {dollars(self.maximum)}"


@dataclass(frozen=True)
class Money:
    """What a job has cost in US dollars: attempts whose cost is known, and reservations left open by a crash, whose
    calls may have been billed. `overbilled` are the calls above their reservation, by model.
    """

    paid: float
    open: list[Reservation]
    overbilled: list[Overbilled] = field(default_factory=list)

    @property
    def lost(self) -> float:
        """Return the maximum that the open reservations can have cost."""
        return math.fsum(reservation.usd for reservation in self.open)

    @property
    def spent(self) -> float:
        """Return what counts against the budget."""
        return self.paid + self.lost


def money(store: Store) -> Money:
    """Return the costs recorded in a work database.

    While a process is using the database, its calls in flight are counted as open calls.
    """
    (paid,) = store.query("SELECT coalesce(sum(usd), 0) FROM payment")[0]
    lost = store.rows(Reservation, "NOT EXISTS (FROM payment p WHERE p.key = t.key)")
    above = store.query(
        "SELECT r.model, count(*), fsum(r.usd ORDER BY r.usd), fsum(p.usd ORDER BY p.usd) FROM reservation r "
        "JOIN payment p USING (key) WHERE p.usd > r.usd * (1 + 1e-9) GROUP BY r.model ORDER BY r.model"
    )
    return Money(float(paid), lost, [Overbilled(*row) for row in above])


ECHO_WORDS = 5  # this many consecutive words of the prompt cannot be an accident
# Inputs that vary between items, which an answer may rightly repeat.
_MATERIAL = (
    "document",
    "character",
    "scenario",
    "need",
    "original",
    "query",
    "wordings",
    "title",
    "examples",
    "opening",
)

Next = Callable[[Request, Answer, str, int], Request]


async def ask_until(
    llm: Llm, request: Request, read: Callable[[Answer], V | Problem], again: Next, attempts: int
) -> tuple[V, int] | Problem:
    """Ask until `read` returns a value, and return it with the number of attempts, or a Problem after the last attempt
    or after a failed call, which the engine has retried. `again(first request, bad answer, problem, attempt)` returns
    the next request.
    """
    sent, problem = request, Problem("not asked", cause="settings")
    answer = None
    for attempt in range(1, attempts + 1):
        answer = await llm.ask(sent)
        if answer.error:
            # The text of a failed call is the server's message.
            reason, _, rest = answer.error.partition(":")
            return Problem(f"llm: {reason}", rest.strip(), "llm", answer=answer.text)
        result = read(answer)
        if not isinstance(result, Problem):
            return result, attempt
        problem = result
        sent = again(request, answer, problem.text, attempt)
    return replace(problem, answer=answer.text if answer else "")


def show_and_correct(request: Request, answer: Answer, problem: str, attempt: int) -> Request:
    """Return the next request, which shows the model its bad answer."""
    return corrective(request, answer.text, problem)


def parsed(schema: Mapping[str, Any]) -> Callable[[Answer], Any]:
    """Return a function that parses answers with a JSON schema."""

    def read(answer: Answer) -> Any:
        try:
            return parse_answer(answer, schema)
        except ValueError as error:
            return Problem("malformed", str(error), "malformed")

    return read


async def ask_once_more(
    llm: Llm, settings: LlmSettings, prompt: Prompt, stage: str, *, params: Mapping[str, Any], values: Mapping[str, Any]
) -> Any | Problem:
    """Return what a model answers to a prompt outside any step, after a second attempt if the first is malformed.

    Args:
        llm: The engine.
        settings: Of the model that is asked.
        prompt: A prompt whose answer fits a JSON schema.
        stage: The account that the calls are charged to.
        params: Temperature and length of the answer.
        values: What the prompt is filled in with.
    """
    schema = prompt.constrained() or {}
    request = Request(
        model=settings.model,
        messages=prompt.render(**values),
        params=dict(params),
        schema=schema,
        sample=0,
        endpoint=settings.endpoint,
        stage=stage,
    )
    answer = await ask_until(llm, request, parsed(schema), show_and_correct, attempts=2)
    return answer if isinstance(answer, Problem) else answer[0]


def sampling(llm: LlmSettings) -> dict[str, Any]:
    """Return the sampling parameters of a generation call."""
    return {"temperature": llm.temperature, "max_tokens": llm.max_tokens}


async def ask(
    tools: Tools,
    stage: Step,
    values: Mapping[str, Any],
    check: Callable[[Any], Problem | None],
    pattern: str | None = None,
    prompt_of: str | None = None,
    draft: int | None = None,
) -> tuple[Any, int] | Problem:
    """Ask a stage's prompt with `ask_prompt` until the answer fits its schema and passes `check`. `prompt_of` may name
    another prompt, and `draft` requests one of several answers to the same prompt, with one attempt.
    """
    name = prompt_of or (stage.prompt and stage.prompt(tools.pipeline))
    assert name is not None
    attempts = ATTEMPTS if draft is None else 1
    return await ask_prompt(
        tools,
        name,
        stage.name,
        values,
        check=check,
        pattern=pattern,
        first=draft or 0,
        attempts=attempts,
    )


async def ask_prompt(
    tools: Tools,
    name: str,
    account: str,
    values: Mapping[str, Any],
    check: Callable[[Any], Problem | None],
    pattern: str | None = None,
    *,
    first: int = 0,
    attempts: int = ATTEMPTS,
    echo: bool = True,
    left_out: Collection[str] = (),
) -> tuple[Any, int] | Problem:
    """Ask a prompt until the answer fits its schema and passes `check`.

    Args:
        account: Stage to which the calls are charged.
        pattern: Pattern for the property that the prompt names in `constrain`.
        first: Number of the first answer among several to the same prompt; further attempts use the next numbers.
        left_out: Properties of the output to omit from this call and its worked examples.
        echo: Whether to refuse an answer that repeats the prompt's own words anywhere.

    Returns:
        The value and the number of attempts, or a Problem after the last attempt.
    """
    pipeline, llm = tools.pipeline, tools.pipeline.llm
    prompt = stage_prompt(pipeline, tools.prompts, name)
    schema = prompt.constrained(pattern, values.get("count"))
    if schema is not None and left_out:
        wanted = {name: form for name, form in schema["properties"].items() if name not in left_out}
        required = [member for member in schema["required"] if member in wanted]
        schema = {**schema, "properties": wanted, "required": required}
    messages = without_properties(prompt.render(**values), left_out)
    request = Request(
        llm.model,
        messages=messages,
        params=sampling(llm),
        schema=schema,
        sample=first,
        endpoint=llm.endpoint,
        stage=account,
    )
    language = pipeline.language
    instructions = instructions_of(prompt, values, language) if echo else ""
    complaint = ""
    small = pipeline.generation.prompts == "small"

    def read(answer: Answer) -> Any:
        try:
            value = parse_answer(answer, schema or {})
        except ValueError as error:
            return Problem("malformed", str(error), "malformed")
        repeated = echo_of(f"{instructions} {complaint}", value, language) if echo else None
        return repeated or check(value) or value

    def again(request: Request, answer: Answer, problem: str, attempt: int) -> Request:
        # Only the last bad answer is shown, if any, because a chain of all answers grows without helping the model.
        nonlocal complaint
        sent = afresh(request, problem) if small else corrective(request, answer.text, problem)
        added = sent.messages[-1].content.removeprefix(request.messages[-1].content)
        complaint = _spaced(added, language)
        return replace(sent, sample=first + attempt)

    return await ask_until(tools.llm, request, read, again, attempts=attempts)


def without_properties(messages: Sequence[Message], left_out: Collection[str]) -> tuple[Message, ...]:
    """Remove the properties `left_out` from the worked examples in the messages.

    The grammar ends an answer before them. If the examples continued there, the model would tend to keep writing: all
    24 last questions of a 1.5B model ran on until they were cut off.
    """

    def shortened(message: Message) -> Message:
        if message.role != "assistant" or not left_out:
            return message
        try:
            shown = json.loads(message.content)
        except ValueError:  # an example in the user's prompt
            return message
        if not isinstance(shown, dict):
            return message
        remaining = {name: text for name, text in shown.items() if name not in left_out}
        return replace(message, content=json.dumps(remaining, ensure_ascii=False))

    return tuple(shortened(message) for message in messages)


def saw_answer(health: Health, name: str, value: object) -> None:
    """Count a value, or a Problem in its place. `name` begins with the stage."""
    if isinstance(value, Problem):
        cause = value.cause if value.cause in ("llm", "malformed") else "check"
        health.record(name, value.reason, f"{value.detail} {value.answer}", cause)
    else:
        health.record(name)


def instructions_of(prompt: Prompt, values: Mapping[str, Any], language: str) -> str:
    """Return a prompt's own words, that is, the prompt rendered without its inputs, for `echo_of`."""
    empty = {name: "" if name in _MATERIAL else value for name, value in values.items()}
    return _spaced("\n".join(message.content for message in prompt.render(**empty)), language)


def echo_of(instructions: str, value: Any, language: str) -> Problem | None:
    """Return a problem if an answer repeats the prompt's own words, as small models repeat its examples."""
    for text in _strings(value):
        tokens = _spaced(text, language).split()
        for start in range(len(tokens) - ECHO_WORDS + 1):
            run = " ".join(tokens[start : start + ECHO_WORDS])
            if run in instructions:
                return Problem("repeats the instructions", repr(run))
    return None


def _spaced(text: str, language: str) -> str:
    """Return the text in lower case with single spaces between words, even in languages without spaces."""
    folded = text.casefold()
    return " ".join(words(folded, language) if language in SPACELESS else folded.split())


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


async def ask_each(items: Sequence[T], ask_one: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Ask about the items in order, `workers` at a time. The first error stops the rest and is raised."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await ask_one(item)

    await together(*(worker() for _ in range(min(workers, len(items)))))


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
    """Return an answer for each item, in order, from the pipeline's LLMs. Raises BudgetSpent or Stopped, and LlmError
    if almost every value is a Problem.

    Answers are saved in `database`, like those of a job: a second call asks nothing, and a stopped call can be
    continued. `rules` are the scripted backend's rules.
    """
    answers: dict[int, V] = {}

    async def main(store: Store) -> None:
        health = health_of(pipeline, store)
        async with make_engine(
            pipeline, store, budget_usd=budget_usd, retry_failed=retry_failed, rules=rules
        ) as engine:

            async def ask_place(place: int) -> None:
                answers[place] = await ask_one(engine, items[place])
                saw_answer(health, "answers", answers[place])
                health.check()
                if progress:
                    progress(len(answers))

            await ask_each(range(len(items)), ask_place, workers_of(*pipeline.llms.values()))

    with Store.open(database) if isinstance(database, Path) else nullcontext(database) as store:
        run_to_end(main(store))
    return [answers[place] for place in range(len(items))]


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, and return the result.

    If an event loop is already running, as in a notebook, `work` runs in its own loop and thread while this thread
    waits. On Ctrl-C, or a notebook's stop button, calls in flight are finished, and Stopped is raised.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        started.append((asyncio.get_running_loop(), task))
        return await work

    ask_to_stop(False)
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(asyncio.run, main())
        try:
            return future.result()
        except KeyboardInterrupt:
            ask_to_stop()  # models on this machine, which the cancellation below does not reach
            if (bar := current_bar()) is not None:
                bar.stopping()
            for loop, task in started:
                loop.call_soon_threadsafe(task.cancel)
            raise Stopped(STOPPED) from None
