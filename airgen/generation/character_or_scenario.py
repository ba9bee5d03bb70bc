"""The common part of characters and scenarios (paper 2.3, steps 2 and 3): the model names several, and one is drawn."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from airgen.components.keys import rng
from airgen.generation import one_call
from airgen.llms.base import Request
from airgen.llms.scripted import document, keywords
from airgen.settings import Pipeline
from airgen.settings.languages import language_name
from airgen.steps.ask import ask
from airgen.steps.lineage import Lineage
from airgen.steps.step import Cost, Problem, ShownLine, Step, Tools, make_row
from airgen.storage.records import Character, Passage, Row, Scenario


async def _of_searches(lineage: Lineage, tools: Tools, name: str) -> str | Problem | None:
    """Return the text in a small model's one answer (`airgen.generation.one_call`)."""
    if not tools.pipeline.generation.one_call:
        return None
    answer = await one_call.answer_of(lineage, tools)
    return answer if isinstance(answer, Problem) else str(getattr(answer, name))


def draw_one_stage(
    name: str,
    reads: type[Row],
    writes: type[Character] | type[Scenario],
    *,
    given: Callable[[Lineage], Mapping[str, str]],
    tokens: tuple[int, int],
    stand_in: str,
    settings: tuple[str, ...] = (),
    refuse: Callable[[Lineage, Tools], Awaitable[Problem | None]] | None = None,
    parts: Callable[[Pipeline], dict[str, Any]] = one_call.parts,
    scripted: Callable[[str], Sequence[str]],
    prompt: Callable[[Pipeline], str] | None = None,
    at_once: Callable[[Lineage, Tools, str], Awaitable[str | Problem | None]] = _of_searches,
    values: Callable[[Lineage, Tools], Mapping[str, Any]] = lambda lineage, tools: {},
    unusable: Callable[[Any], Problem | None] = lambda value: None,
) -> Step:
    """Return a stage whose prompt asks for a list of `generation.{name}s` texts, from which one is drawn.

    Args:
        given: Inputs of the prompt besides the document, the language and the count.
        tokens: Expected tokens of an answer, with default and small prompts.
        settings, parts: What its rows also depend on.
        refuse: Function that returns why a lineage is rejected without a call.
        stand_in: A placeholder for the drawn text, for prompts that are tried out on their own.
        scripted: Function that returns texts about a subject.
        prompt: Name of its prompt, by default one of the stage's name.
        at_once: Function that returns the text if one answer has those of all stages, or else None.
        values: Further inputs of the prompt.
        unusable: Function that returns why a valid answer ends the lineage.
    """

    def count(pipeline: Pipeline) -> int:
        return int(getattr(pipeline.generation, f"{name}s"))

    async def work(lineage: Lineage, tools: Tools) -> list[Row] | Problem:
        parent = lineage.one(reads).key
        if refuse is not None and (refused := await refuse(lineage, tools)):
            return refused
        text = await at_once(lineage, tools, name)
        if isinstance(text, Problem):
            return text
        if text is not None:
            return [make_row(writes, name, parent, tools, text=text, options=[text])]
        given_values = {
            **values(lineage, tools),
            "language_name": language_name(tools.pipeline.language),
            "document": lineage.document,
            "count": count(tools.pipeline),
            **given(lineage),
        }

        def check(value: Any) -> Problem | None:
            named = value[f"{name}s"] or unusable(value)
            return None if named else Problem("malformed", f"{name}s: is empty", "malformed")

        result = await ask(tools, stage, given_values, check)
        if isinstance(result, Problem):
            return result
        if (problem := unusable(result[0])) is not None:
            return problem
        options = list(dict.fromkeys(" ".join(text.split()) for text in result[0][f"{name}s"]))
        chosen = rng(parent, name).choice(options)
        return [make_row(writes, name, parent, tools, text=chosen, options=options)]

    def stand_ins(pipeline: Pipeline, passage: Passage) -> dict[str, Any]:
        return {"count": count(pipeline), name: stand_in}

    def answer(request: Request) -> str:
        random = rng(name, request.key)
        topic = " ".join(keywords(document(request), 2, random))
        items = ((request.schema or {}).get("properties") or {}).get(f"{name}s") or {}
        texts = random.sample(known := scripted(topic), min(items.get("minItems", 3), len(known)))
        suits = {"unsuitable": ""} if "unsuitable" in ((request.schema or {}).get("properties") or {}) else {}
        return json.dumps({**suits, f"{name}s": texts}, ensure_ascii=False)

    def show(lineage: Lineage) -> tuple[dict[str, Any], list[ShownLine]]:
        if not lineage.every(writes):
            return {}, []
        row = lineage.one(writes)
        others = [("", f"({text})") for text in row.options if text != row.text]
        return {name: {"chosen": row.text, "options": row.options}}, [(name, row.text), *others]

    # If a single call makes all of them, the query step pays for it.
    cost = Cost(
        default=(tokens[0], 1.0),
        small=(tokens[1], 1.0),
        pieces=lambda expected: 0 if expected.pipeline.generation.one_call else expected.samples,
    )
    stage = Step(
        name,
        (reads,),
        writes,
        version=1,
        work=work,
        parts=lambda pipeline, prompts: parts(pipeline),
        settings=(f"{name}s", *settings),
        prompt=prompt or (lambda pipeline: one_call.PROMPT if pipeline.generation.one_call else name),
        cost=cost,
        stand_in=stand_ins,
        scripted=answer,
        show=show,
    )
    return stage
