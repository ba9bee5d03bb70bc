"""The need behind a query, for the judge: a description and a narrative, as topics of test collections have them.

    need = await need_of(tools, query, Asker("a beekeeper", "Preparing hives for winter."))
    shown = with_need(query, need)           # what stands in the place of the query in any judge's prompt

The prompt shows no document, so the need cannot describe one. It is asked once a query: its answer is on the disk, as
that of every call. A query whose need the model does not give is judged by its text alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airgen.keys import rng
from airgen.languages import language_name
from airgen.llms.answers import corrective, parse_answer
from airgen.llms.base import Request
from airgen.llms.scripted import keywords
from airgen.pipeline.ask import ask_until, parsed
from airgen.pipeline.stage import Lineage, Refusal, Tools, stage_prompt
from airgen.prompts import PromptSet
from airgen.records import Answer, Character, Scenario
from airgen.settings import Pipeline, answer_parts
from airgen.store import Store

NEED = "need"
"""The name of the prompt, and of its calls in the accounts."""
_TOKENS = 250


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and when; empty where nobody knows."""

    character: str = ""
    scenario: str = ""

    @classmethod
    def of(cls, lineage: Lineage) -> Asker:
        """The character and the scenario that a query was generated for."""
        if lineage.own is not None:
            return cls()
        return cls(lineage.one(Character).text, lineage.one(Scenario).text)


def need_parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    """What a need depends on besides the query; empty where judges see the query alone."""
    if not pipeline.control.judge.need:
        return {}
    prompt = stage_prompt(pipeline, prompts, NEED).fingerprint
    return {NEED: {"prompt": prompt, "llm": answer_parts(pipeline.llm), "language": pipeline.language}}


def _request(pipeline: Pipeline, prompts: PromptSet, query: str, asker: Asker) -> Request:
    prompt, llm = stage_prompt(pipeline, prompts, NEED), pipeline.llm
    messages = prompt.render(
        language_name=language_name(pipeline.language), query=query, character=asker.character, scenario=asker.scenario
    )
    params = {"temperature": 0.0, "max_tokens": min(_TOKENS, llm.max_tokens)}
    return Request(llm.model, messages, params, prompt.schema, 0, llm.endpoint, NEED)


async def need_of(tools: Tools, query: str, asker: Asker) -> str:
    """The need as text, or an empty one after two answers that cannot be used."""
    request = _request(tools.pipeline, tools.prompts, query, asker)

    def again(first: Request, answer: Answer, problem: str, attempt: int) -> Request:
        return corrective(first, answer.text, problem)

    found = await ask_until(tools.llm, request, parsed(request.schema or {}), again, attempts=2)
    return "" if isinstance(found, Refusal) else _text(found[0])


def _text(value: Mapping[str, str]) -> str:
    return " ".join(f"{value['description']} {value['narrative']}".split())


def with_need(query: str, need: str) -> str:
    """The query with its need, in the place of the query: so a judge's prompt of your own needs no other input."""
    return f"{query}\n\nWhat is sought: {need}" if need else query


def kept_need(store: Store, pipeline: Pipeline, prompts: PromptSet, query: str, asker: Asker) -> str:
    """The need that the first answer on the disk gave; empty where there is none, or where it was asked again."""
    if not pipeline.control.judge.need:
        return ""
    request = _request(pipeline, prompts, query, asker)
    answer = store.answers([request.key]).get(request.key)
    try:
        value = parse_answer(answer, request.schema or {}) if answer is not None and not answer.error else None
    except ValueError:
        return ""
    return "" if value is None else _text(value)


def scripted_need(request: Request) -> str:
    """The scripted backend's need: some words of the query."""
    text = request.messages[-1].content.partition("<query>")[2].partition("</query>")[0]
    words = " ".join(keywords(text, 4, rng(NEED, request.key)))
    return json.dumps({"description": f"Facts about {words}.", "narrative": f"A relevant text says more on {words}."})
