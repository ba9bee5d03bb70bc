"""An LLM's queries for every passage of a dataset, for document expansion (`kind: expanded`).

Answers are kept in `OUT.answers.duckdb`, as those of a job are: a second run asks nothing, a stopped one goes on.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from airgen.dataset.files import write_text
from airgen.keys import rng
from airgen.languages import language_name
from airgen.llms.base import Llm, Request
from airgen.llms.scripted import document, keywords
from airgen.prompts import PromptSet
from airgen.records import prompt_text
from airgen.settings import load_pipeline
from airgen.steps.ask import ask_about, ask_until, parsed, show_and_correct
from airgen.steps.step import Problem
from airgen.training.mining.expansion import PassageText


def expand_with_llm(
    pipeline: Path,
    passages: Iterable[PassageText],
    language: str | None,
    out: Path,
    *,
    count: int = 10,
    budget_usd: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[int, dict[str, int]]:
    """Write `count` queries for each passage to OUT, by the pipeline's LLM and the prompt `expand`.

    `language` is that of the passages; None: the pipeline's.

    Returns how many passages got queries, and how many got none, by reason. Raises BudgetSpent and Stopped; the same
    call then goes on.
    """
    settings = load_pipeline(pipeline)
    prompt = PromptSet.beside(pipeline.parent).get("expand")
    name_of_language, llm = language_name(language or settings.language), settings.llm
    params: dict[str, Any] = {"temperature": 0.7, "max_tokens": 40 * count + 40}
    schema, passages = prompt.constrained() or {}, list(passages)

    async def expand(engine: Llm, passage: PassageText) -> list[str] | str:
        text = prompt_text(passage.title, passage.text)
        messages = prompt.render(document=text, language_name=name_of_language, count=count)
        request = Request(
            model=llm.model,
            messages=messages,
            params=params,
            schema=schema,
            sample=0,
            endpoint=llm.endpoint,
            stage="expand",
        )
        answer = await ask_until(engine, request, parsed(schema), show_and_correct, attempts=2)
        if isinstance(answer, Problem):
            return answer.reason
        queries = list(dict.fromkeys(" ".join(query.split()) for query in answer[0]["queries"]))[:count]
        return [query for query in queries if query] or "no query in the answer"

    out.parent.mkdir(parents=True, exist_ok=True)
    database, rules = out.with_name(f"{out.name}.answers.duckdb"), {"expand": _scripted}
    answers = ask_about(passages, expand, settings, database, budget_usd=budget_usd, progress=progress, rules=rules)
    queries_of = {passage.id: queries for passage, queries in zip(passages, answers, strict=True)}
    rows = [{"_id": id_, "queries": queries} for id_, queries in queries_of.items() if not isinstance(queries, str)]
    write_text(out, (json.dumps(row) + "\n" for row in rows))
    failed = Counter(reason for reason in answers if isinstance(reason, str))
    return len(rows), dict(sorted(failed.items()))


def _scripted(request: Request) -> str:
    """Return two queries of the document's own words."""
    random = rng("expand", request.key)
    queries = [" ".join(keywords(document(request), 4, random)) for _ in range(2)]
    return json.dumps({"queries": queries}, ensure_ascii=False)
