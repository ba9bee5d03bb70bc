"""An LLM as labeler of query types and styles (AIR-Bench 3.2 and B.3.1), over any dataset's queries.

Answers are kept in `OUT/answers.duckdb`, as those of a job are: a second run asks nothing, a stopped one goes on.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airgen.keys import text_key
from airgen.llms.answers import corrective, parse_answer
from airgen.llms.base import Llm, Request
from airgen.pipeline.engines import make_engine, workers_of
from airgen.pipeline.generate import drive
from airgen.prompts import Prompt, PromptSet
from airgen.settings import LlmSettings, load_pipeline
from airgen.store import Store

__all__ = ["label_queries"]

Labels = dict[str, dict[str, str]]


def label_queries(
    pipeline: Path,
    out: Path,
    datasets: Sequence[Mapping[str, str]],
    *,
    most: int | None = None,
    budget_usd: float | None = None,
) -> tuple[list[Labels], dict[str, int]]:
    """Label the queries {id: text} of each dataset with the pipeline's LLM and the prompt `label_query`.

    `most` takes so many queries of a dataset, by the hash of their ids. Returns {id: {type, style}} for each dataset,
    and how many queries got no usable answer by reason. Raises BudgetSpent and Stopped, after which the same call
    goes on.
    """
    settings = load_pipeline(pipeline)
    beside = pipeline.parent / "prompts"
    prompt = PromptSet([beside] if beside.is_dir() else []).get("label_query")
    chosen = [(number, key) for number, queries in enumerate(datasets) for key in _some(queries, most)]
    found: list[Labels] = [{} for _ in datasets]
    failed: Counter[str] = Counter()

    async def main(store: Store) -> None:
        async with make_engine(settings, store, budget_usd=budget_usd, retry_failed=False) as engine:

            async def one(item: tuple[int, str]) -> None:
                number, key = item
                value = await _label(engine, settings.llm, prompt, datasets[number][key])
                if isinstance(value, str):
                    failed[value] += 1
                else:
                    found[number][key] = value

            await drive(chosen, one, workers_of(settings.llm))

    with Store.open(out / "answers.duckdb") as store:
        asyncio.run(main(store))
    ordered = [{key: of[key] for key in queries if key in of} for queries, of in zip(datasets, found, strict=True)]
    return ordered, dict(sorted(failed.items()))


def _some(queries: Mapping[str, str], most: int | None) -> list[str]:
    if most is None or most >= len(queries):
        return list(queries)
    kept = set(heapq.nsmallest(most, queries, key=lambda key: (text_key(key), key)))
    return [key for key in queries if key in kept]


async def _label(engine: Llm, llm: LlmSettings, prompt: Prompt, query: str) -> dict[str, str] | str:
    """The labels of one query, or why there are none."""
    schema = prompt.schema or {}
    params: dict[str, Any] = {"temperature": 0.0, "max_tokens": 64}
    request = Request(llm.model, prompt.render(query=query), params, schema, 0, llm.endpoint, "label")
    reason = ""
    for _ in range(2):
        answer = await engine.ask(request)
        if answer.error:
            return f"llm: {answer.error.partition(':')[0]}"
        try:
            return dict(parse_answer(answer, schema))
        except ValueError as error:
            reason = str(error)
        request = corrective(request, answer.text, reason)
    return "malformed answer"
