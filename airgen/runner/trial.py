"""Prompts on real documents, outside any job: rendered, sent, and compared."""

from __future__ import annotations

import asyncio
import json
from itertools import islice
from pathlib import Path
from typing import Any

from airgen.corpus import prepare
from airgen.errors import UsageError
from airgen.llms.base import Request
from airgen.llms.structured import parse_answer
from airgen.prompts import PromptSet
from airgen.records import Passage
from airgen.runner.engines import make_engine
from airgen.runner.job import Job
from airgen.stages.attributes import INFORMATION_TEXT, LENGTH_TEXT, STYLE_TEXT, TYPE_TEXT, draw, query_attributes
from airgen.store import Store
from airgen.text import LANGUAGES

__all__ = ["trial_inputs", "trial_values", "try_on_documents"]


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


def try_on_documents(pipeline: Path, names: list[str], count: int) -> list[dict[str, Any]]:
    """Send each prompt for the first `count` documents; answers are kept in `runs/NAME/trials.duckdb`."""
    job = Job(pipeline)
    prompts = [job.prompts.get(name) for name in names]
    passages = list(islice(_passages(job), count))

    async def main() -> list[dict[str, Any]]:
        with Store.open(job.directory / "trials.duckdb") as store:
            async with make_engine(job.pipeline, store, budget_usd=None, retry_failed=True) as engine:
                llm = job.pipeline.llm
                params = {"temperature": llm.temperature, "max_tokens": llm.max_tokens}
                rows = []
                for passage in passages:
                    answers = {}
                    for prompt in prompts:
                        messages = prompt.render(**trial_values(job, passage))
                        request = Request(llm.model, messages, params, prompt.schema, 0, llm.endpoint, "trial")
                        answer = await engine.ask(request)
                        try:
                            value = parse_answer(answer, prompt.schema) if prompt.schema else answer.text
                            answers[prompt.name] = json.dumps(value, ensure_ascii=False)
                        except ValueError as error:
                            answers[prompt.name] = f"({error}) {answer.text}"
                    rows.append({"document": passage.id, "title": passage.title, "answers": answers})
                return rows

    return asyncio.run(main())


def _passages(job: Job) -> Any:
    return (row for row in prepare(job.corpus, job.pipeline.task) if isinstance(row, Passage))
