"""An LLM's queries for every passage of a dataset, for document expansion (`kind: expanded`).

Answers are kept in `OUT.answers.duckdb`, as those of a job are: a second run asks nothing, a stopped one goes on.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airgen.dataset.beir import BeirDataset, BeirPassage
from airgen.llms.answers import corrective, parse_answer
from airgen.llms.base import Llm, Request
from airgen.pipeline.engines import make_engine, workers_of
from airgen.pipeline.generate import drive
from airgen.prompts import Prompt, PromptSet
from airgen.settings import LlmSettings, load_pipeline
from airgen.store import Store
from airgen.text.words import language_name

__all__ = ["expand_with_llm"]


def expand_with_llm(
    pipeline: Path,
    dataset: BeirDataset,
    out: Path,
    *,
    count: int = 10,
    budget_usd: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[int, dict[str, int]]:
    """Write `count` queries for each passage to OUT, by the pipeline's LLM and the prompt `expand`.

    Returns how many passages got queries, and how many got none by reason. Raises BudgetSpent and Stopped, after which
    the same call goes on.
    """
    settings = load_pipeline(pipeline)
    beside = pipeline.parent / "prompts"
    prompt = PromptSet([beside] if beside.is_dir() else []).get("expand")
    language = language_name(str(dataset.info.get("language") or settings.language))
    passages = list(dataset.passages())
    found: dict[str, list[str]] = {}
    failed: Counter[str] = Counter()

    async def main(store: Store) -> None:
        async with make_engine(settings, store, budget_usd=budget_usd, retry_failed=False) as engine:

            async def one(passage: BeirPassage) -> None:
                queries = await _queries(engine, settings.llm, prompt, passage, language, count)
                if isinstance(queries, str):
                    failed[queries] += 1
                else:
                    found[passage.id] = queries
                if progress:
                    progress(len(found) + failed.total())

            await drive(passages, one, workers_of(settings.llm))

    out.parent.mkdir(parents=True, exist_ok=True)
    with Store.open(out.with_name(f"{out.name}.answers.duckdb")) as store:
        asyncio.run(main(store))
    rows = [{"_id": one.id, "queries": found[one.id]} for one in passages if one.id in found]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return len(found), dict(sorted(failed.items()))


async def _queries(
    engine: Llm, llm: LlmSettings, prompt: Prompt, passage: BeirPassage, language: str, count: int
) -> list[str] | str:
    """The queries of one passage, each once, or why there are none."""
    schema = prompt.schema or {}
    text = f"{passage.title}\n\n{passage.text}" if passage.title else passage.text
    messages = prompt.render(document=text, language_name=language, count=count)
    params: dict[str, Any] = {"temperature": 0.7, "max_tokens": 40 * count + 40}
    request = Request(llm.model, messages, params, schema, 0, llm.endpoint, "expand")
    for _ in range(2):
        answer = await engine.ask(request)
        if answer.error:
            return f"llm: {answer.error.partition(':')[0]}"
        try:
            asked = parse_answer(answer, schema)["queries"]
        except ValueError as error:
            request = corrective(request, answer.text, str(error))
            continue
        queries = list(dict.fromkeys(" ".join(query.split()) for query in asked))[:count]
        return [query for query in queries if query] or "no query in the answer"
    return "malformed answer"
