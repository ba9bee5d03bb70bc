"""Several drafts of one query, of which the one is kept that finds its source best (`generation.candidates`).

All are answers to one prompt, so a prompt cache pays for its document once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from airgen.keys import row_key
from airgen.pipeline.control.votes import DRAFT_DEPTH
from airgen.pipeline.stage import Lineage, Refusal, Tools
from airgen.records import Candidate

Draw = Callable[[int], Awaitable[tuple[Any, int] | Refusal]]


def one_line(value: Any) -> str:
    """The query of an answer, with single spaces."""
    return " ".join(value["query"].split())


async def draw_drafts(lineage: Lineage, tools: Tools, parent: str, draw: Draw) -> list[Candidate]:
    """The rows of all drafts, in their order. `draw(k)` asks for the draft number k, once.

    A draft that repeats an earlier one in small or capital letters has a problem. Without `tools.find`, as where a
    prompt is tried, every score is 0.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_drawn(draw, place)) for place in range(tools.pipeline.generation.candidates)]
    answers = [task.result() for task in tasks]
    texts, problems, seen = list[str](), list[str](), set[str]()
    for answer in answers:
        if isinstance(answer, Refusal):
            texts.append(answer.answer)
            problems.append(answer.reason)
            continue
        texts.append(one_line(answer[0]))
        problems.append("repeats an earlier draft" if texts[-1].casefold() in seen else "")
        seen.add(texts[-1].casefold())
    usable = [text for text, problem in zip(texts, problems, strict=True) if not problem]
    leads = iter(await tools.find(lineage, usable, DRAFT_DEPTH) if tools.find is not None and usable else ())
    rows, fp = [], tools.plan["query"]
    for place, (text, problem) in enumerate(zip(texts, problems, strict=True)):
        found = None if problem else next(leads, None)
        score = found.lead if found else 0.0
        rows.append(Candidate(row_key("candidate", parent, fp, place), parent, fp, place, text, problem, score))
    return rows


async def _drawn(draw: Draw, place: int) -> tuple[Any, int] | Refusal:
    return await draw(place)


def best_of(drafts: list[Candidate]) -> Candidate | None:
    """The usable draft of the greatest score, of equal ones the first; None where none is usable."""
    usable = [one for one in drafts if not one.problem]
    return max(usable, key=lambda one: (one.score, -one.ordinal), default=None)
