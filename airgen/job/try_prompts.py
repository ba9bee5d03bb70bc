"""Render, send and compare prompts on real documents, outside any job."""

import json
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from airgen.corpus import prepare
from airgen.display.study import Column, Shown, Study, Table, columns
from airgen.errors import UsageError
from airgen.generation.flow import NEEDS
from airgen.generation.query_checks import query_problem
from airgen.generation.query_pattern import form_pattern
from airgen.job.job import Job
from airgen.llms.answers import parse_answer
from airgen.llms.base import Llm, Request
from airgen.llms.prompts import Prompt, PromptSet
from airgen.safety.escaping import md
from airgen.settings.languages import language_name
from airgen.steps.ask import ask_about, echo_of, instructions_of, sampling
from airgen.steps.step import QUERY_PROMPTS, asked_language
from airgen.storage.records import Passage, prompt_text
from airgen.text.near_duplicates import borrowed


def trial_inputs(job: Job, place: int) -> tuple[PromptSet, dict[str, Any], Passage]:
    """Return the prompts, their values, and the passage at `place` in the corpus."""
    passage = next(islice(_passages(job), place, None), None)
    if passage is None:
        raise UsageError(f"--document {place}: the corpus has fewer passages")
    return job.prompts, stand_ins(job, passage), passage


def stand_ins(job: Job, passage: Passage, name: str = "") -> dict[str, Any]:
    """Return inputs for every prompt: the real document, and placeholders from the stages for earlier answers. The
    prompts for queries, selected by `name`, request the language of the queries."""
    document = prompt_text(passage.title, passage.text)
    values: dict[str, Any] = {"language_name": language_name(job.pipeline.language), "document": document}
    if name.rpartition("/")[2] in QUERY_PROMPTS:
        values["language_name"] = asked_language(job.pipeline)
    for stage in (*NEEDS, *job.flow.every):  # a prompt of the other method can be tried, too
        values |= stage.stand_in(job.pipeline, passage)
    return values


@dataclass(frozen=True)
class PromptAnswer:
    """One prompt's answer for one document, what is wrong with it, and the share of a query's stems that its document
    holds (None for other answers)."""

    answer: str
    problem: str
    prompt_tokens: int
    completion_tokens: int
    borrowed: float | None = None


_TOTALS = (
    Column("prompt", itemgetter("prompt")),
    Column("usable", lambda row: f"{row['usable']} of {row['documents']}"),
    Column("tokens in", itemgetter("prompt_tokens"), ",.0f"),
    Column("tokens out", itemgetter("completion_tokens"), ",.0f"),
    Column("borrowed", itemgetter("borrowed"), ".0%", missing=""),
)


@dataclass(frozen=True)
class PromptTrial(Shown):
    """`rows`: {document, title, tried: {prompt: PromptAnswer}} in the corpus's order."""

    rows: list[dict[str, Any]]

    def study(self) -> Study:
        """Return the answers for each document, one prompt below the other, and the totals of each prompt."""
        parts: list[str | Table] = []
        for row in self.rows:
            answers = [
                (name, f"{answer.answer}  ({answer.problem})" if answer.problem else answer.answer)
                for name, answer in row["tried"].items()
            ]
            parts += [f"## {md(row['document'])}  {md(row['title'])}", Table(answers, columns("", "", left=(1,)))]
        totals = [{"prompt": name, **total} for name, total in self.totals().items()]
        return Study("", [*parts, "## In all", Table(totals, _TOTALS)])

    def totals(self) -> dict[str, dict[str, float | None]]:
        """By prompt: documents, usable answers, tokens a document, mean share of borrowed words."""
        totals: dict[str, dict[str, float | None]] = {}
        for name in self.rows[0]["tried"] if self.rows else ():
            every: list[PromptAnswer] = [row["tried"][name] for row in self.rows]
            shares = [answer.borrowed for answer in every if answer.borrowed is not None]
            totals[name] = {
                "documents": len(every),
                "usable": sum(not answer.problem for answer in every),
                "prompt_tokens": sum(answer.prompt_tokens for answer in every) / len(every),
                "completion_tokens": sum(answer.completion_tokens for answer in every) / len(every),
                "borrowed": sum(shares) / len(shares) if shares else None,
            }
        return totals


def try_on_documents(job: Job, names: list[str], count: int) -> PromptTrial:
    """Send each prompt for the first `count` documents; answers are kept in `runs/NAME/trials.duckdb`.

    A name is a prompt's, or the path of a `.j2` file, so that an edited version can be compared with its original.
    Each is asked once, without the second chances of a job. Raises PromptError for a prompt that there is not.
    """
    prompts = {name: _prompt(job, name) for name in names}
    passages = list(islice(_passages(job), count))

    async def try_prompt(engine: Llm, item: tuple[Passage, str]) -> PromptAnswer:
        return await _try(engine, job, prompts[item[1]], item[0])

    items = [(passage, name) for passage in passages for name in names]
    database, rules = job.directory / "trials.duckdb", job.flow.scripted
    answers = iter(ask_about(items, try_prompt, job.pipeline, database, retry_failed=True, rules=rules))
    rows = [
        {"document": passage.id, "title": passage.title, "tried": {name: next(answers) for name in names}}
        for passage in passages
    ]
    return PromptTrial(rows)


def _prompt(job: Job, name: str) -> Prompt:
    if not name.endswith(".j2"):
        return job.prompts.get(name)
    path = Path(name)
    return PromptSet([path.parent, *job.prompts.folders]).get(path.stem)


async def _try(engine: Llm, job: Job, prompt: Prompt, passage: Passage) -> PromptAnswer:
    llm, language = job.pipeline.llm, job.pipeline.query_language
    values = stand_ins(job, passage, prompt.name)
    stage = _stage(job, prompt.name)
    query = stage in ("query", "rewrite")
    pattern = form_pattern(values["length_class"], values["type_class"], language) if query else None
    schema = prompt.constrained(pattern, values.get("count"))
    request = Request(
        model=llm.model,
        messages=prompt.render(**values),
        params=sampling(llm),
        schema=schema,
        sample=0,
        endpoint=llm.endpoint,
        stage=stage,
    )
    answer = await engine.ask(request)
    text, problem, share = answer.text, answer.error, None
    if schema and not problem:
        try:
            value = parse_answer(answer, schema)
            text = json.dumps(value, ensure_ascii=False)
            problem_found = echo_of(instructions_of(prompt, values, language), value, language)
            if query:
                kinds = {"length": values["length_class"], "kind": values["type_class"]}
                problem_found = problem_found or query_problem(
                    value["query"], values["document"], job.pipeline, **kinds
                )
                share, _ = borrowed(value["query"], values["document"], language)
            problem = problem_found.text if problem_found else ""
        except ValueError as error:
            problem = str(error)
    return PromptAnswer(
        answer=text,
        problem=problem,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        borrowed=share,
    )


def _stage(job: Job, name: str) -> str:
    """Return the stage whose prompt this is, for the accounts: `small/query_like` is query's."""
    base = name.rpartition("/")[2]
    known = [stage.name for stage in job.flow.every]
    return next((stage for stage in known if base.startswith(stage)), "judgment" if "judge" in base else "trial")


def _passages(job: Job) -> Any:
    return (row for row in prepare(job.corpus.unlimited, job.pipeline.task) if isinstance(row, Passage))
