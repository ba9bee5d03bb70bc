"""What a stage is: data plus one function.

    Stage(name="scenario", writes=Scenario, version=1, work=work, parts=parts)

`work(lineage, tools)` is pure apart from its tools: the same lineage and the same answers of the model give the
same rows. It never imports another stage, the store or the runner. `parts(pipeline, prompts)` names all that the
stage's output depends on besides its input; their hash is the stage's fingerprint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from airgen.keys import fingerprint, row_key
from airgen.llms.answers import afresh, corrective, parse_answer
from airgen.llms.base import Llm, Request
from airgen.prompts import Prompt, PromptSet
from airgen.records import (
    Character,
    HardNegative,
    Judgment,
    Passage,
    Query,
    Rewrite,
    Row,
    Sample,
    Scenario,
    Skip,
)
from airgen.settings import LlmSettings, Pipeline

__all__ = ["Lineage", "Refusal", "Stage", "Tools", "ask", "llm_parts", "prompt_name", "skip"]


ECHO_WORDS = 5  # so many words in a row of the prompt's own are no accident


class Meaning(Protocol):
    """Texts to unit vectors, for the check that a rewrite keeps the meaning."""

    def encode(self, texts: Sequence[str], kind: Any) -> NDArray[np.float32]:
        """Shape (len(texts), dim)."""
        ...


@dataclass(frozen=True)
class Tools:
    """What a stage may use. `llm` generates, `judge` labels (often the same); `meaning` may be absent."""

    pipeline: Pipeline
    prompts: PromptSet
    fingerprints: Mapping[str, str]
    llm: Llm
    judge: Llm
    meaning: Meaning | None = None


@dataclass(frozen=True)
class Lineage:
    """One sample and everything made from it so far; each field is filled by the stage of its name."""

    passage: Passage
    sample: Sample
    character: Character | None = None
    scenario: Scenario | None = None
    query: Query | None = None
    rewrites: tuple[Rewrite, ...] = ()
    judgment: Judgment | None = None
    hard_negatives: tuple[HardNegative, ...] = ()
    skips: Mapping[str, Skip] = field(default_factory=dict)

    @property
    def document(self) -> str:
        """Title and text of the positive, as prompts show it."""
        return f"{self.passage.title}\n\n{self.passage.text}" if self.passage.title else self.passage.text

    def has(self, kind: type[Row]) -> bool:
        """Whether the stage that writes rows of this type has made some."""
        made = (self.character, self.scenario, self.query, *self.rewrites, self.judgment, *self.hard_negatives)
        return any(isinstance(row, kind) for row in made)

    @property
    def final(self) -> Query | Rewrite:
        """The last rewrite, or the original query where no rewrite passed: what the dataset will hold."""
        if self.rewrites:
            return self.rewrites[-1]
        assert self.query is not None
        return self.query

    def extended(self, rows: Sequence[Row]) -> Lineage:
        """This lineage with the rows of one more stage."""
        found = self
        for row in rows:
            match row:
                case Character():
                    found = replace(found, character=row)
                case Scenario():
                    found = replace(found, scenario=row)
                case Query():
                    found = replace(found, query=row)
                case Rewrite():
                    found = replace(found, rewrites=(*found.rewrites, row))
                case Judgment():
                    found = replace(found, judgment=row)
                case HardNegative():
                    found = replace(found, hard_negatives=(*found.hard_negatives, row))
                case Skip():
                    found = replace(found, skips={**found.skips, row.stage: row})
        return found


Work = Callable[[Lineage, Tools], Awaitable[list[Row]]]
Parts = Callable[[Pipeline, PromptSet], dict[str, Any]]


@dataclass(frozen=True)
class Stage:
    """One arrow of the design. `ends` says that a skip here ends the lineage."""

    name: str
    writes: type[Row]
    version: int
    work: Work
    parts: Parts
    ends: bool = True

    def fingerprint(self, pipeline: Pipeline, prompts: PromptSet) -> str:
        """The hash of all that this stage's rows depend on besides their parents."""
        return fingerprint(stage=self.name, version=self.version, **self.parts(pipeline, prompts))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A prompt that got no usable answer: the reason, and what the model last said."""

    reason: str
    detail: str


def llm_parts(llm: LlmSettings) -> dict[str, Any]:
    """What of an LLM's settings can change an answer; never time-outs, concurrency, prices or base URLs."""
    return {
        "backend": llm.backend if llm.backend == "scripted" else "",
        "model": llm.model,
        "endpoint": llm.endpoint,
        "temperature": llm.temperature,
        "top_p": llm.top_p,
        "max_tokens": llm.max_tokens,
        "faults": llm.faults,
    }


def prompt_name(pipeline: Pipeline, name: str) -> str:
    """The prompt of a stage in the variant that the pipeline chose."""
    if name == "query" and pipeline.generation.query_from == "need":
        name = "query_from_need"
    return f"small/{name}" if pipeline.generation.prompts == "small" else name


def skip(stage: str, parent: str, tools: Tools, reason: str, detail: str = "") -> Skip:
    """The row that says why a piece of work ended without one."""
    fp = tools.fingerprints[stage]
    return Skip(row_key(f"skip/{stage}", parent, fp), parent, fp, 0, stage, reason, detail[:2000])


# What varies from item to item, and may rightly come back in an answer.
_MATERIAL = ("document", "character", "scenario", "query", "title")


def instructions(prompt: Prompt, values: Mapping[str, Any]) -> str:
    """A prompt's own words: rendered without the material."""
    empty = {name: "" if name in _MATERIAL else value for name, value in values.items()}
    return "\n".join(message.content for message in prompt.render(**empty))


def _echo(value: Any, told: str) -> str | None:
    """Whether an answer repeats the prompt (its examples, as small models do), in words for the next attempt."""
    for text in _strings(value):
        words = text.casefold().split()
        for start in range(len(words) - ECHO_WORDS + 1):
            if " ".join(words[start : start + ECHO_WORDS]) in told:
                return f"repeats the instructions: {' '.join(words[start : start + ECHO_WORDS])!r}"
    return None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


async def ask(
    tools: Tools,
    stage: str,
    values: Mapping[str, Any],
    check: Callable[[Any], str | None],
    pattern: str | None = None,
) -> tuple[Any, int] | Refusal:
    """Ask a stage's prompt until the answer fits its schema and passes `check`.

    `check` returns what is wrong, in words that the model is then told, or None. `pattern` bounds the property that
    the prompt names in `constrain`. Returns the value and the number
    of attempts, or a Refusal after the last.
    """
    pipeline = tools.pipeline
    prompt = tools.prompts.get(prompt_name(pipeline, stage))
    llm = pipeline.llm
    params: dict[str, Any] = {"temperature": llm.temperature, "max_tokens": llm.max_tokens}
    if llm.top_p is not None:
        params["top_p"] = llm.top_p
    schema = prompt.constrained(pattern)
    first = Request(llm.model, prompt.render(**values), params, schema, 0, llm.endpoint, stage)
    told = " ".join(instructions(prompt, values).casefold().split())
    request, complaint = first, ""
    problem, said = "", ""
    for attempt in range(1, pipeline.generation.attempts + 1):
        answer = await tools.llm.ask(request)
        if answer.error:
            return Refusal(f"llm: {answer.error.partition(':')[0]}", answer.error)
        try:
            value = parse_answer(answer, schema or {})
            problem = _echo(value, f"{told} {complaint}") or check(value) or ""
        except ValueError as error:
            problem = f"malformed: {error}"
        if not problem:
            return value, attempt
        said = answer.text
        # Only the last bad answer is shown, if any: a chain of all of them grows without telling the model more.
        small = pipeline.generation.prompts == "small"
        request = afresh(first, problem) if small else corrective(first, answer.text, problem)
        request = replace(request, sample=attempt)
        added = request.messages[-1].content.removeprefix(first.messages[-1].content)
        complaint = " ".join(added.casefold().split())
    return Refusal(problem, said)
