"""Ask a prompt until its answer can be used.

value, attempts = await ask(tools, STAGE, values, check)          # or a Refusal
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from airgen.languages import SPACELESS
from airgen.llms.answers import afresh, corrective, parse_answer
from airgen.llms.base import Llm, Request
from airgen.llms.health import Health
from airgen.pipeline.stage import Problem, Refusal, Stage, Tools, stage_prompt
from airgen.prompts import Prompt
from airgen.records import Answer
from airgen.settings import LlmSettings
from airgen.text.words import words

V = TypeVar("V")

ECHO_WORDS = 5  # so many words of the prompt in a row cannot be an accident
# Inputs that vary from item to item: an answer may rightly repeat them.
_MATERIAL = ("document", "character", "scenario", "query", "title", "examples", "opening")

Next = Callable[[Request, Answer, str, int], Request]


async def ask_until(
    llm: Llm, request: Request, read: Callable[[Answer], V | Problem], again: Next, attempts: int
) -> tuple[V, int] | Refusal:
    """Ask until `read` gives a value; returns it with the number of attempts, or a Refusal after the last.

    `again(first request, bad answer, what was wrong, attempt)` is the next request. A failed call is not repeated
    here: the engine has done that.
    """
    sent, found = request, Problem("not asked", cause="settings")
    answer = None
    for attempt in range(1, attempts + 1):
        answer = await llm.ask(sent)
        if answer.error:
            # The text of a failed call is what the server said.
            reason, _, rest = answer.error.partition(":")
            return Refusal(Problem(f"llm: {reason}", rest.strip(), "llm"), answer.text)
        result = read(answer)
        if not isinstance(result, Problem):
            return result, attempt
        found = result
        sent = again(request, answer, found.text, attempt)
    return Refusal(found, answer.text if answer else "")


def show_and_correct(request: Request, answer: Answer, problem: str, attempt: int) -> Request:
    """The next request shows the model its bad answer."""
    return corrective(request, answer.text, problem)


def parsed(schema: Mapping[str, Any]) -> Callable[[Answer], Any]:
    """A reader of answers that must fit a JSON schema."""

    def read(answer: Answer) -> Any:
        try:
            return parse_answer(answer, schema)
        except ValueError as error:
            return Problem("malformed", str(error), "malformed")

    return read


def sampling(llm: LlmSettings) -> dict[str, Any]:
    """The parameters of a generating call."""
    return {"temperature": llm.temperature, "max_tokens": llm.max_tokens}


async def ask(
    tools: Tools,
    stage: Stage,
    values: Mapping[str, Any],
    check: Callable[[Any], Problem | None],
    pattern: str | None = None,
    prompt_of: str | None = None,
    draft: int | None = None,
) -> tuple[Any, int] | Refusal:
    """Ask a stage's prompt until the answer fits its schema and passes `check`.

    `pattern` bounds the property that the prompt names in `constrain`. `prompt_of` names another prompt. `draft` asks
    for one of several answers to the same prompt, with one attempt. Returns the value and the number of attempts, or a
    Refusal after the last.
    """
    pipeline, llm = tools.pipeline, tools.pipeline.llm
    name = prompt_of or (stage.prompt and stage.prompt(pipeline))
    assert name is not None
    prompt = stage_prompt(pipeline, tools.prompts, name)
    schema = prompt.constrained(pattern, values.get("count"))
    first = Request(llm.model, prompt.render(**values), sampling(llm), schema, draft or 0, llm.endpoint, stage.name)
    language = pipeline.language
    instructions = _spaced(_instructions(prompt, values), language)
    complaint = ""
    small = pipeline.generation.prompts == "small"

    def read(answer: Answer) -> Any:
        try:
            value = parse_answer(answer, schema or {})
        except ValueError as error:
            return Problem("malformed", str(error), "malformed")
        return _echo(value, f"{instructions} {complaint}", language) or check(value) or value

    def again(request: Request, answer: Answer, problem: str, attempt: int) -> Request:
        # Only the last bad answer is shown, if any: a chain of all of them grows without telling the model more.
        nonlocal complaint
        sent = afresh(request, problem) if small else corrective(request, answer.text, problem)
        added = sent.messages[-1].content.removeprefix(request.messages[-1].content)
        complaint = _spaced(added, language)
        return replace(sent, sample=attempt)

    return await ask_until(tools.llm, first, read, again, pipeline.generation.attempts if draft is None else 1)


def saw_answer(health: Health, name: str, found: object) -> None:
    """Count a value, or the Refusal that stands for one. `name` begins with the stage."""
    if isinstance(found, Refusal):
        problem = found.problem
        cause = problem.cause if problem.cause in ("llm", "malformed") else "check"
        health.saw(name, problem.reason, f"{problem.detail} {found.answer}", cause)
    else:
        health.saw(name)


def echo_of(prompt: Prompt, values: Mapping[str, Any], value: Any, language: str) -> Problem | None:
    """Whether an answer to a prompt repeats the prompt's own words."""
    return _echo(value, _spaced(_instructions(prompt, values), language), language)


def _instructions(prompt: Prompt, values: Mapping[str, Any]) -> str:
    """A prompt's own words: rendered without the material."""
    empty = {name: "" if name in _MATERIAL else value for name, value in values.items()}
    return "\n".join(message.content for message in prompt.render(**empty))


def _spaced(text: str, language: str) -> str:
    """The text in small letters with one space between words, in languages that are written without spaces, too."""
    folded = text.casefold()
    return " ".join(words(folded, language) if language in SPACELESS else folded.split())


def _echo(value: Any, instructions: str, language: str) -> Problem | None:
    """Whether an answer repeats the prompt, as small models repeat its examples."""
    for text in _strings(value):
        said = _spaced(text, language).split()
        for start in range(len(said) - ECHO_WORDS + 1):
            run = " ".join(said[start : start + ECHO_WORDS])
            if run in instructions:
                return Problem("repeats the instructions", repr(run))
    return None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
