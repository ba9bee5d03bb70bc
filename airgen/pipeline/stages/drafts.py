"""Several drafts of one query, of which the most promising is kept (`generation.candidates`).

All are answers to one prompt, so a prompt cache pays for its document once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from airgen.keys import row_key
from airgen.pipeline.stage import Lineage, Refusal, Tools
from airgen.records import Candidate

__all__ = ["best_of", "draw_drafts", "one_line"]

Draw = Callable[[int], Awaitable[tuple[Any, int] | Refusal]]


def one_line(value: Any) -> str:
    """The query of an answer, with single spaces."""
    return " ".join(value["query"].split())


async def draw_drafts(lineage: Lineage, tools: Tools, parent: str, draw: Draw) -> list[Candidate]:
    """The rows of all drafts, in their order. `draw(k)` asks for the draft number k, once.

    A draft that repeats an earlier one in small or capital letters has a problem. Without `tools.choose`, as where a
    prompt is tried, every score is 0.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_drawn(draw, place)) for place in range(tools.pipeline.generation.candidates)]
    answers = [task.result() for task in tasks]
    texts, problems, seen = list[str](), list[str](), set[str]()
    for found in answers:
        refused = isinstance(found, Refusal)
        texts.append(found.answer if isinstance(found, Refusal) else one_line(found[0]))
        repeated = texts[-1].casefold() in seen
        problems.append(found.reason if isinstance(found, Refusal) else "repeats an earlier draft" if repeated else "")
        if not refused:
            seen.add(texts[-1].casefold())
    usable = [text for text, problem in zip(texts, problems, strict=True) if not problem]
    scores = iter(await tools.choose(lineage, usable) if tools.choose is not None and usable else ())
    rows, fp = [], tools.plan["query"]
    for place, (text, problem) in enumerate(zip(texts, problems, strict=True)):
        scored = None if problem else next(scores, None)
        value, known = (scored.score, list(scored.features)) if scored else (0.0, [])
        rows.append(Candidate(row_key("candidate", parent, fp, place), parent, fp, place, text, problem, value, known))
    return rows


async def _drawn(draw: Draw, place: int) -> tuple[Any, int] | Refusal:
    return await draw(place)


def best_of(drafts: list[Candidate]) -> Candidate | None:
    """The usable draft of the greatest score, of equal ones the first; None where none is usable."""
    usable = [one for one in drafts if not one.problem]
    return max(usable, key=lambda one: (one.score, -one.ordinal), default=None)
