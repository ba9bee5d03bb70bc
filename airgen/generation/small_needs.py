"""Word the query of a small model in several ways (`generation.method: needs` with `prompts: small`).

A small model cannot follow the prompts of `airgen.generation.needs`, but it imitates worked examples. Its one call
(`one_call`) writes a question and keywords. A second, short prompt, which does not show the document, asks how people
who do not know the special words of the query would ask for the same thing. The wordings have the names of a large
model's:

- `plain`: the query, usually the question,
- `terms`: the keywords of the first call, in the words of the document,
- `lay` and `described`: the answers to the second prompt.

The model cannot say whether a wording asks for exactly the need. Instead, a wording must have the numbers of the query
and, if votes are the labels, retrieve the document, as the query must.
"""

from typing import Any

from airgen.generation import one_call
from airgen.generation.needs import (
    scripted,
    show_need,
    show_wordings,
    wording_problem,
    wording_problems,
    wording_rows,
)
from airgen.generation.rewrite import found_parts, not_found
from airgen.llms.prompts import PromptSet
from airgen.settings import Pipeline
from airgen.steps.ask import ask
from airgen.steps.lineage import Lineage
from airgen.steps.step import ATTEMPTS, Cost, Problem, Step, Tools, make_row
from airgen.storage.records import Candidate, Character, Need, Passage, Query, Rewrite, Row, Scenario
from airgen.text.query_form import answer_line

PROMPT = "wordings"
TERMS, LAY, DESCRIBED = "terms", "lay", "described"


async def _need(lineage: Lineage, tools: Tools) -> list[Row] | Problem:
    answer = await one_call.answer_of(lineage, tools)
    if isinstance(answer, Problem):
        return answer
    return [make_row(Need, NEED.name, lineage.one(Scenario).key, tools, text=answer.fact)]


async def _wordings(lineage: Lineage, tools: Tools) -> list[Row] | Problem:
    query = lineage.one(Query)
    first = await one_call.answer_of(lineage, tools)
    if isinstance(first, Problem):
        return first
    answer = await ask(
        tools, WORDINGS, {"query": query.text}, lambda value: None, draft=lineage.sample.ordinal * ATTEMPTS
    )
    if isinstance(answer, Problem):
        return answer
    texts = {name: answer_line(answer[0][name]) for name in (LAY, DESCRIBED)}
    keywords = [search.text for search in first.searches if search.kind == "keywords" and search.problem is None]
    if keywords and query.type != "keywords":
        texts = {TERMS: keywords[0], **texts}
    problems = wording_problems(texts, query, lambda text: _problem(text, lineage, tools.pipeline))
    for name in (name for name in texts if problems[name] is None):
        problems[name] = await not_found(lineage, tools, texts[name])
    return wording_rows(texts, problems, query, tools)


def _problem(text: str, lineage: Lineage, pipeline: Pipeline) -> Problem | None:
    """Return the problem of one wording, or None."""
    asked, said = (set(one_call.NUMBER.findall(words)) for words in (lineage.one(Query).text, text))
    if asked != said:
        return Problem("does not have the numbers of its query", ", ".join(sorted(asked ^ said)))
    return wording_problem(text, lineage, pipeline, lineage.one(Character).text)


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return one_call.parts(pipeline)


def _also_found(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return {**_parts(pipeline, prompts), **found_parts(pipeline, prompts)}


def _stand_in(pipeline: Pipeline, passage: Passage) -> dict[str, Any]:
    return {"query": passage.title or " ".join(passage.text.split()[:8])}


NEED = Step(
    "need",
    (Scenario,),
    Need,
    version=1,
    work=_need,
    parts=_parts,
    prompt=lambda pipeline: one_call.PROMPT,
    cost=Cost(default=(0, 1.0), small=(0, 1.0), pieces=lambda expected: 0.0),
    show=show_need,
)
WORDINGS = Step(
    "rewrite",
    (Query,),
    Rewrite,
    version=1,
    work=_wordings,
    parts=_also_found,
    prompt=lambda pipeline: PROMPT,
    ends=False,
    cost=Cost(default=(45, 1.0), small=(45, 1.0), pieces=lambda expected: expected.queries),
    beside=(Candidate,),
    stand_in=_stand_in,
    scripted=scripted,
    show=show_wordings,
    label="other wordings (only its query otherwise)",
)
