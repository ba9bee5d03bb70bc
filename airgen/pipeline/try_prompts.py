"""Prompts on real documents, outside any job: rendered, sent, and compared."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from airgen.corpus import prepare
from airgen.errors import UsageError
from airgen.llms.answers import parse_answer
from airgen.llms.base import Llm, Request
from airgen.pipeline.engines import make_engine, workers_of
from airgen.pipeline.generate import drive
from airgen.pipeline.job import Job
from airgen.pipeline.stages import answer_checks as checks
from airgen.pipeline.stages.attributes import (
    INFORMATION_TEXT,
    LENGTH_TEXT,
    STYLE_TEXT,
    TYPE_TEXT,
    draw,
    form_pattern,
    query_attributes,
    wrong_type,
)
from airgen.prompts import Prompt, PromptSet
from airgen.records import Passage
from airgen.store import Store
from airgen.text.overlap import borrowed
from airgen.text.words import LANGUAGES

__all__ = ["Trial", "Tried", "trial_inputs", "trial_values", "try_on_documents"]


def trial_inputs(pipeline: Path, place: int) -> tuple[PromptSet, dict[str, Any], Passage]:
    """The prompts, the values for any of them, and the passage at `place` in the corpus."""
    job = Job(pipeline)
    passage = next(islice(_passages(job), place, None), None)
    if passage is None:
        raise UsageError(f"--document {place}: the corpus has fewer passages")
    return job.prompts, trial_values(job, passage), passage


def trial_values(job: Job, passage: Passage) -> dict[str, Any]:
    """Inputs for every prompt: the real document, attributes drawn by its key, and stand-ins for earlier stages."""
    generation = job.pipeline.generation
    length, kind, information = query_attributes(generation, passage.key)
    style = draw(generation.styles, passage.key, "style", 1)
    return {
        "language_name": LANGUAGES[job.pipeline.language],
        "document": f"{passage.title}\n\n{passage.text}" if passage.title else passage.text,
        "title": passage.title,
        "count": generation.characters,
        "character": "somebody who works with this every day",
        "scenario": "Something does not work as expected, and the reason must be found today.",
        "query": passage.title or " ".join(passage.text.split()[:8]),
        "length": LENGTH_TEXT[length],
        "length_class": length,
        "type": TYPE_TEXT[kind],
        "type_class": kind,
        "information": INFORMATION_TEXT[information],
        "information_class": information,
        "style": STYLE_TEXT[style],
        "style_class": style,
    }


@dataclass(frozen=True)
class Tried:
    """One prompt's answer for one document; `problem` is what is wrong with it, or nothing.

    `borrowed` is the share of a query's stems that its document holds, None for other answers.
    """

    answer: str
    problem: str
    prompt_tokens: int
    completion_tokens: int
    borrowed: float | None = None


@dataclass(frozen=True)
class Trial:
    """`rows`: {document, title, tried: {prompt: Tried}} in the corpus's order."""

    rows: list[dict[str, Any]]

    def totals(self) -> dict[str, dict[str, float | None]]:
        """By prompt: documents, usable answers, tokens a document, mean share of borrowed words."""
        found: dict[str, dict[str, float | None]] = {}
        for name in self.rows[0]["tried"] if self.rows else ():
            every: list[Tried] = [row["tried"][name] for row in self.rows]
            shares = [one.borrowed for one in every if one.borrowed is not None]
            found[name] = {
                "documents": len(every),
                "usable": sum(not one.problem for one in every),
                "prompt_tokens": sum(one.prompt_tokens for one in every) / len(every),
                "completion_tokens": sum(one.completion_tokens for one in every) / len(every),
                "borrowed": sum(shares) / len(shares) if shares else None,
            }
        return found


def try_on_documents(pipeline: Path, names: list[str], count: int, runs: Path = Path("runs")) -> Trial:
    """Send each prompt for the first `count` documents; answers are kept in `runs/NAME/trials.duckdb`.

    A name is a prompt's, or the path of a `.j2` file, so that an edited version stands beside the one it came from.
    Each is asked once, without the second chances of a job. Raises PromptError for a prompt that there is not.
    """
    job = Job(pipeline, runs)
    prompts = {name: _prompt(job, name) for name in names}
    passages = list(islice(_passages(job), count))
    rows: list[dict[str, Any]] = [{"document": one.id, "title": one.title, "tried": {}} for one in passages]

    async def main() -> None:
        with Store.open(job.directory / "trials.duckdb") as store:
            async with make_engine(job.pipeline, store, budget_usd=None, retry_failed=True) as engine:

                async def one(item: tuple[int, str]) -> None:
                    place, name = item
                    rows[place]["tried"][name] = await _try(engine, job, prompts[name], passages[place])

                items = [(place, name) for place in range(len(passages)) for name in names]
                await drive(items, one, workers_of(job.pipeline.llm))

    asyncio.run(main())
    for row in rows:  # answers come in any order
        row["tried"] = {name: row["tried"][name] for name in prompts}
    return Trial(rows)


def _prompt(job: Job, name: str) -> Prompt:
    if not name.endswith(".j2"):
        return job.prompts.get(name)
    path = Path(name)
    return PromptSet([path.parent, *job.prompts.folders]).get(path.stem)


async def _try(engine: Llm, job: Job, prompt: Prompt, passage: Passage) -> Tried:
    llm, language = job.pipeline.llm, job.pipeline.language
    values = trial_values(job, passage)
    stage = _stage(prompt.name)
    query = stage in ("query", "rewrite")
    pattern = form_pattern(values["length_class"], values["type_class"], language) if query else None
    schema = prompt.constrained(pattern)
    params: dict[str, Any] = {"temperature": llm.temperature, "max_tokens": llm.max_tokens}
    if llm.top_p is not None:
        params["top_p"] = llm.top_p
    answer = await engine.ask(Request(llm.model, prompt.render(**values), params, schema, 0, llm.endpoint, stage))
    text, problem, share = answer.text, answer.error, None
    if schema and not problem:
        try:
            value = parse_answer(answer, schema)
            text = json.dumps(value, ensure_ascii=False)
            if query:
                problem = _query_problem(job, value["query"], values) or ""
                share, _ = borrowed(value["query"], values["document"], language)
        except ValueError as error:
            problem = str(error)
    return Tried(text, problem, answer.prompt_tokens, answer.completion_tokens, share)


def _stage(name: str) -> str:
    """The stage whose prompt this is, for the accounts: `small/query_from_need` is query's."""
    base = name.rpartition("/")[2]
    known = ("character", "scenario", "query", "rewrite", "hard_negative")
    return next((stage for stage in known if base.startswith(stage)), "judgment" if "judge" in base else "trial")


def _query_problem(job: Job, text: str, values: dict[str, Any]) -> str | None:
    """What a job's checks would say of a query."""
    language, most = job.pipeline.language, job.pipeline.generation.max_copied_words
    return checks.first_problem(
        checks.wrong_language(text, language),
        checks.self_reference(text),
        checks.wrong_length(text, values["length_class"], language),
        wrong_type(text, values["type_class"]),
        checks.copied(text, values["document"], language, most),
    )


def _passages(job: Job) -> Any:
    return (row for row in prepare(job.corpus, job.pipeline.task) if isinstance(row, Passage))
