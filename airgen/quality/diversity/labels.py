"""An LLM as labeler of query types and styles (AIR-Bench 3.2 and B.3.1), over any dataset's queries.

Answers are kept in `OUT/answers.duckdb`, as those of a job are: a second run asks nothing, a stopped one goes on.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airgen.keys import text_key
from airgen.llms.base import Llm, Request
from airgen.llms.scripted import last_block
from airgen.pipeline.ask import ask_until, parsed, show_and_correct
from airgen.pipeline.ask_each import ask_about
from airgen.pipeline.stage import Refusal
from airgen.prompts import PromptSet
from airgen.settings import load_pipeline

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
    and how many queries got no usable answer, by reason. Raises BudgetSpent and Stopped; the same call then goes on.
    """
    settings = load_pipeline(pipeline)
    prompt, llm = PromptSet.beside(pipeline.parent).get("label_query"), settings.llm
    schema = prompt.schema or {}
    params: dict[str, Any] = {"temperature": 0.0, "max_tokens": 64}
    chosen = [(number, key) for number, queries in enumerate(datasets) for key in _some(queries, most)]

    async def one(engine: Llm, item: tuple[int, str]) -> dict[str, str] | str:
        messages = prompt.render(query=datasets[item[0]][item[1]])
        request = Request(llm.model, messages, params, schema, 0, llm.endpoint, "label")
        found = await ask_until(engine, request, parsed(schema), show_and_correct, attempts=2)
        return found.reason if isinstance(found, Refusal) else dict(found[0])

    rules = {"label": _scripted}
    answers = ask_about(chosen, one, settings, out / "answers.duckdb", budget_usd=budget_usd, rules=rules)
    found: list[Labels] = [{} for _ in datasets]
    for (number, key), answer in zip(chosen, answers, strict=True):
        if not isinstance(answer, str):
            found[number][key] = answer
    return found, dict(sorted(Counter(answer for answer in answers if isinstance(answer, str)).items()))


def _some(queries: Mapping[str, str], most: int | None) -> list[str]:
    if most is None or most >= len(queries):
        return list(queries)
    kept = set(heapq.nsmallest(most, queries, key=lambda key: (text_key(key), key)))
    return [key for key in queries if key in kept]


def _scripted(request: Request) -> str:
    """Type and style of a query by its first word and its length."""
    words = last_block(request).casefold().split()
    asked = next((name for name in ("what", "how", "why", "who", "when", "where", "which") if name in words), "")
    style = "concise" if len(words) < 5 else "complicated" if len(words) >= 20 else "informal"
    return json.dumps({"type": asked or ("claim" if len(words) >= 10 else "others"), "style": style})
