"""Generate one need for each passage, in several wordings (`generation.method: needs`).

How many words a query shares with its passage decides whether lexical or neural systems lead, more than the model, the
labels or the number of queries (docs/05-is-it-trustworthy.md). So each need is worded several times: as most people
would type it (`plain`), in the field's terms (`terms`), in everyday words (`lay`), and by describing things without
their names (`described`). They span low to high overlap, share their labels, and the export chooses among them
(`airgen.generation.wording`).

The rows are those of the paper's steps: the character, the scenario (the occasion), the need, the query (its plain
wording), and the rewrites (the others). With `one_call`, one answer has all of them; otherwise the character, the
scenario, the need with its query, and the rewrites are asked for in turn. All steps that use an answer ask for it again
by the same request, which is paid for once.

The model is also asked whether anybody would search for the passage at all and, at the end, whether each wording asks
for exactly the need, in both directions. A wording that does not is left out.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airgen.components.keys import rng
from airgen.generation.attributes import drawn_truth, length_class, query_attributes
from airgen.generation.character import refuse_unasked, unasked_parts
from airgen.generation.character_or_scenario import draw_one_stage
from airgen.generation.query_checks import first_problem, names_character, query_problem
from airgen.llms.base import Request
from airgen.llms.prompts import PromptSet
from airgen.llms.scripted import document, keywords
from airgen.settings import Pipeline
from airgen.settings.generation import WORDINGS
from airgen.settings.languages import SPACELESS
from airgen.steps.ask import ask_prompt
from airgen.steps.lineage import Lineage
from airgen.steps.step import (
    ATTEMPTS,
    Cost,
    Expected,
    Problem,
    ShownLine,
    Step,
    Tools,
    asked_language,
    make_row,
    skip,
    stage_prompt,
)
from airgen.storage.records import Candidate, Character, Need, Passage, Query, Rewrite, Row, Sample, Scenario
from airgen.text.query_form import answer_line

ONE_CALL, CHARACTER_PROMPT, SCENARIO_PROMPT = "needs/one_call", "needs/character", "needs/scenario"
NEED_PROMPT, WORDINGS_PROMPT, SAME_NEED = "needs/need", "needs/wordings", "needs/same_need"
PLAIN, *OTHERS = WORDINGS
"""The wording of the query, and those of its rewrites."""

INFORMATION = {
    "overall": "the main question that the document answers",
    "partial": "one detail that the document gives, beside its main topic if it has others",
}
UNSUITABLE = {
    "references": "it is a list of references, links or names",
    "fragment": "it is a fragment",
    "announcement": "it announces something, but does not tell it",
    "empty": "it tells nothing that anybody could need",
}
"""Why nobody would search for a passage, by the model's answer."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """A usable answer, with the texts that it has by name: a need, and wordings of it."""

    texts: Mapping[str, str]
    attempts: int


def need_attributes(pipeline: Pipeline, key: str) -> dict[str, str]:
    """Return the values of a prompt that are drawn by the sample's key, before the scenario, which must fit them."""
    _, kind, information = query_attributes(pipeline.generation, key)
    return {
        "type_class": kind,
        "information_class": information,
        "information": INFORMATION[information],
        "truth": drawn_truth(kind, key),
        "relevance": pipeline.relevance,
    }


def _values(lineage: Lineage, tools: Tools) -> dict[str, Any]:
    pipeline = tools.pipeline
    return {
        **need_attributes(pipeline, lineage.sample.key),
        "language_name": asked_language(pipeline),
        "document": lineage.document,
        "most_copied": pipeline.generation.max_copied_words,
        "characters": pipeline.query_language in SPACELESS,
    }


def wording_problem(text: str, lineage: Lineage, pipeline: Pipeline, character: str = "") -> Problem | None:
    """Return the problem of one wording, or None. Only rules that the prompts state are checked."""
    if not text:
        return Problem("is empty", feedback="a wording is empty; write all of them")
    return query_problem(text, lineage.document, pipeline, names_character(text, character) if character else None)


async def _ask(
    lineage: Lineage, tools: Tools, prompt: str, account: str, given: Mapping[str, Any], *, character: str = ""
) -> _Answer | Problem:
    """Ask a prompt for texts. The answer is refused until its query has no problem, or nobody would search for the
    passage."""

    def check(value: Mapping[str, str]) -> Problem | None:
        if value.get("unsuitable"):
            return None
        missing = [name for name in (*_NAMED, PLAIN) if name in value and not answer_line(value[name])]
        who = character or answer_line(value.get("character", ""))
        problem = wording_problem(answer_line(value[PLAIN]), lineage, tools.pipeline, who) if PLAIN in value else None
        return first_problem(
            Problem("malformed", f"{missing[0]}: is empty", "malformed") if missing else None,
            problem and replace(problem, feedback=f"{PLAIN}: {problem.text}"),  # the answer has several wordings
        )

    values = {**_values(lineage, tools), **given}
    first = lineage.sample.ordinal * ATTEMPTS
    answer = await ask_prompt(tools, prompt, account, values, check, first=first)
    if isinstance(answer, Problem):
        return answer
    value, attempts = answer
    if value.get("unsuitable"):
        return unsuitable(value["unsuitable"])
    return _Answer({name: answer_line(text) for name, text in value.items() if isinstance(text, str)}, attempts)


def unsuitable(kind: str) -> Problem:
    """Return the problem of a passage that nobody would search for."""
    return Problem(f"nobody would search for it: {UNSUITABLE[kind]}", cause="settings")


_NAMED = ("character", "scenario", "need")


async def _at_once(lineage: Lineage, tools: Tools) -> _Answer | Problem:
    return await _ask(lineage, tools, ONE_CALL, NEED.name, {})


async def _named(lineage: Lineage, tools: Tools, name: str) -> str | Problem | None:
    """Return the character or scenario of the one answer, or None if it has a prompt of its own."""
    if not tools.pipeline.generation.one_call:
        return None
    answer = await _at_once(lineage, tools)
    return answer if isinstance(answer, Problem) else answer.texts[name]


async def _of_need(lineage: Lineage, tools: Tools) -> _Answer | Problem:
    """Return the answer with the need and its query."""
    if tools.pipeline.generation.one_call:
        return await _at_once(lineage, tools)
    character = lineage.one(Character).text
    given = {"character": character, "scenario": lineage.one(Scenario).text}
    return await _ask(lineage, tools, NEED_PROMPT, NEED.name, given, character=character)


async def _need(lineage: Lineage, tools: Tools) -> list[Row] | Problem:
    answer = await _of_need(lineage, tools)
    if isinstance(answer, Problem):
        return answer
    truth = need_attributes(tools.pipeline, lineage.sample.key)["truth"]
    parent = lineage.one(Scenario).key
    return [make_row(Need, NEED.name, parent, tools, text=answer.texts["need"], truth=truth)]


async def _query(lineage: Lineage, tools: Tools) -> list[Row] | Problem:
    answer = await _of_need(lineage, tools)
    if isinstance(answer, Problem):
        return answer
    text, attributes = answer.texts[PLAIN], need_attributes(tools.pipeline, lineage.sample.key)
    query = make_row(
        Query,
        QUERY.name,
        lineage.one(Need).key,
        tools,
        text=text,
        length=length_class(text, tools.pipeline.query_language),
        type=attributes["type_class"],
        information=attributes["information_class"],
        attempts=answer.attempts,
    )
    return [query]


async def _other_wordings(lineage: Lineage, tools: Tools) -> list[Row] | Problem:
    """Return the other wordings that ask for the same need, and the others as drafts with their problems."""
    query, need = lineage.one(Query), lineage.one(Need)
    given = {"need": need.text, "query": query.text}
    if tools.pipeline.generation.one_call:
        answer = await _at_once(lineage, tools)
    else:
        answer = await _ask(lineage, tools, WORDINGS_PROMPT, WORDINGS_STEP.name, given)
    if isinstance(answer, Problem):
        return answer
    # The model may leave out what nobody would say so.
    offered = {name: answer.texts[name] for name in OTHERS if answer.texts[name]}
    character = lineage.one(Character).text
    problems = wording_problems(offered, query, lambda text: wording_problem(text, lineage, tools.pipeline, character))
    usable = [name for name in offered if problems[name] is None]
    if usable:
        names = [PLAIN, *usable]
        texts = {PLAIN: query.text, **answer.texts}
        lines = "\n".join(f"{name}: {texts[name]}" for name in names)
        asked = {"need": need.text, "wordings": lines, "names": names}
        absent = set(OTHERS) - set(usable)
        verdict = await ask_prompt(tools, SAME_NEED, WORDINGS_STEP.name, asked, lambda value: None, left_out=absent)
        if isinstance(verdict, Problem):
            return verdict
        if (meaning := verdict[0][PLAIN]) != "same":
            return Problem(f"its query asks for something {'else' if meaning == 'other' else meaning} than its need")
        for name in usable:
            if (meaning := verdict[0][name]) != "same":
                problems[name] = Problem(
                    f"asks for something {meaning}" if meaning != "other" else "asks for something else"
                )
    return wording_rows(offered, problems, query, tools)


def wording_problems(
    texts: Mapping[str, str], query: Query, problem_of: Callable[[str], Problem | None]
) -> dict[str, Problem | None]:
    """Return the problem of each wording by name, or None: that of `problem_of`, or that it repeats another one."""
    problems, seen = dict[str, Problem | None](), {query.text.casefold()}
    for name, text in texts.items():
        repeated = Problem("repeats another wording") if text.casefold() in seen else None
        problems[name] = first_problem(problem_of(text), repeated)
        seen.add(text.casefold())
    return problems


def wording_rows(
    texts: Mapping[str, str], problems: Mapping[str, Problem | None], query: Query, tools: Tools
) -> list[Row]:
    """Return the usable wordings of a query as rewrites, the others as drafts with their problems, and a skip if no
    wording is usable."""
    rows: list[Row] = []
    for name, text in texts.items():
        place, problem = WORDINGS.index(name), problems[name]
        if problem is None:
            rows.append(make_row(Rewrite, "rewrite", query.key, tools, place, text=text, style=name))
        else:
            rows.append(make_row(Candidate, "rewrite", query.key, tools, place, text, f"{name}: {problem.reason}", 0.0))
    if not any(isinstance(row, Rewrite) for row in rows):
        rows.append(skip("rewrite", query.key, tools, Problem("no other wording of the need is usable")))
    return rows


def _drawn(pipeline: Pipeline) -> dict[str, Any]:
    """Return what the rows depend on besides their prompt: what is drawn, and what is checked."""
    generation = pipeline.generation
    names = ("types", "information", "max_copied_words")
    return {"need": {name: getattr(generation, name) for name in names}, "relevance": pipeline.relevance}


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return _drawn(pipeline)


def _also_asked(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return {**_parts(pipeline, prompts), "same need": stage_prompt(pipeline, prompts, SAME_NEED).fingerprint}


def _prompt(own: str) -> Callable[[Pipeline], str]:
    return lambda pipeline: ONE_CALL if pipeline.generation.one_call else own


def _asked_once(expected: Expected) -> float:
    """Return the number of calls of a step whose answer another step has already paid for."""
    return 0.0


def _unsuitable(value: Any) -> Problem | None:
    return unsuitable(value["unsuitable"]) if value.get("unsuitable") else None


def _stand_in(pipeline: Pipeline, passage: Passage) -> dict[str, Any]:
    query = passage.title or " ".join(passage.text.split()[:8])
    return {
        **need_attributes(pipeline, passage.key),
        "query": query,
        "need": f"what is known of {query}",
        "most_copied": pipeline.generation.max_copied_words,
        "characters": pipeline.query_language in SPACELESS,
        "wordings": f"{PLAIN}: {query}",
        "names": [PLAIN],
    }


def is_of_needs(request: Request) -> bool:
    """Return whether a request asks for a need, for wordings, or whether wordings are the same need."""
    return bool({NEED.name, *OTHERS} & set((request.schema or {}).get("properties") or {}))


def scripted(request: Request) -> str:
    """_Answer with words of the document, fewer in each further wording; every wording asks for the same need."""
    properties = (request.schema or {}).get("properties") or {}
    if "unsuitable" not in properties and NEED.name not in properties and "enum" in next(iter(properties.values()), {}):
        return json.dumps(dict.fromkeys(properties, "same"))
    random = rng("needs", request.key)
    subject = keywords(document(request), 4, random)
    said = {
        "unsuitable": "",
        "character": "a regular reader",
        "scenario": "Work stands still, and help is needed today.",
        "need": f"How {subject[0]} works with {' '.join(subject[1:])}",
        "plain": f"how does {' '.join(subject)} work",
        "terms": f"{' '.join(subject)} principle",
        "lay": f"how does one use {' '.join(subject[:2])} at home",
        "described": f"what people do when {subject[0]} is not around",
    }
    return json.dumps({name: said[name] for name in properties}, ensure_ascii=False)


def show_need(lineage: Lineage) -> tuple[dict[str, Any], list[ShownLine]]:
    return ({}, []) if lineage.need is None else ({"need": lineage.need.text}, [("need", lineage.need.text)])


def _show_query(lineage: Lineage) -> tuple[dict[str, Any], list[ShownLine]]:
    row = lineage.query
    if row is None:
        return {}, []
    value = {"original": row.text, "type": row.type, "information": row.information, "attempts": row.attempts}
    return {"query": value}, [("asked for", f"{row.type}, {row.information}"), ("query", f"{row.text}  [{PLAIN}]")]


def show_wordings(lineage: Lineage) -> tuple[dict[str, Any], list[ShownLine]]:
    rows = [(row.text, row.style, "") for row in lineage.every(Rewrite)]
    rows += [(row.text, "", row.problem) for row in lineage.every(Candidate)]
    value = [{"text": text, "style": style, "problem": problem} for text, style, problem in rows]
    return {"rewrites": value}, [
        ("wording", f"{text}  [{style}]" if style else f"({text})  {problem}") for text, style, problem in rows
    ]


CHARACTER = draw_one_stage(
    "character",
    Sample,
    Character,
    given=lambda lineage: {},
    refuse=refuse_unasked,
    parts=lambda pipeline: {**unasked_parts(pipeline), **(_drawn(pipeline) if pipeline.generation.one_call else {})},
    settings=("unasked",),
    tokens=(45, 22),
    stand_in="somebody who works with this every day",
    scripted=lambda topic: [f"a person interested in {topic}"],
    prompt=_prompt(CHARACTER_PROMPT),
    at_once=_named,
    unusable=_unsuitable,
)
SCENARIO = draw_one_stage(
    "scenario",
    Character,
    Scenario,
    given=lambda lineage: {"character": lineage.one(Character).text},
    tokens=(60, 37),
    stand_in="Something does not work as expected, and the reason must be found today.",
    scripted=lambda topic: [f"A report about {topic} is due"],
    parts=_drawn,
    prompt=_prompt(SCENARIO_PROMPT),
    at_once=_named,
    values=_values,
)
NEED = Step(
    "need",
    (Scenario,),
    Need,
    version=1,
    work=_need,
    parts=_parts,
    prompt=_prompt(NEED_PROMPT),
    cost=Cost(default=(190, 1.1), small=(190, 1.1), pieces=lambda expected: expected.samples),
    stand_in=_stand_in,
    scripted=scripted,
    show=show_need,
)
QUERY = Step(
    "query",
    (Need,),
    Query,
    version=1,
    work=_query,
    parts=_parts,
    prompt=_prompt(NEED_PROMPT),
    cost=Cost(default=(0, 1.0), small=(0, 1.0), pieces=_asked_once),
    stand_in=_stand_in,
    scripted=scripted,
    show=_show_query,
)
WORDINGS_STEP = Step(
    "rewrite",
    (Query,),
    Rewrite,
    version=1,
    work=_other_wordings,
    parts=_also_asked,
    prompt=_prompt(WORDINGS_PROMPT),
    ends=False,
    cost=Cost(
        default=(40, 1.0),
        small=(40, 1.0),
        pieces=lambda expected: expected.queries * (1 if expected.pipeline.generation.one_call else 2),
    ),
    beside=(Candidate,),
    stand_in=_stand_in,
    scripted=scripted,
    show=show_wordings,
    label="other wordings (only its query otherwise)",
)
