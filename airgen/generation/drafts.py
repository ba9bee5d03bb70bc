"""Drafts of one query (`generation.candidates`): several answers to one prompt, and the choice of the best.

The prompt is the same for all, so the prompt cache covers its document. The draft that finds its source best is kept.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from airgen.components.keys import row_key
from airgen.llms.askers import together
from airgen.steps.lineage import Lineage
from airgen.steps.step import Problem, Tools
from airgen.steps.votes import DRAFT_DEPTH
from airgen.storage.records import Candidate
from airgen.text.query_form import answer_line

Draw = Callable[[int], Coroutine[Any, Any, tuple[Any, int] | Problem]]


async def draw_drafts(lineage: Lineage, tools: Tools, parent: str, draw: Draw) -> list[Candidate]:
    """Return the rows of all drafts in order.

    `draw(k)` requests draft number k, once. A draft that repeats an earlier one, ignoring case, has a problem. Without
    `tools.find`, all scores are 0.
    """
    answers = await together(*(draw(place) for place in range(tools.pipeline.generation.candidates)))
    drafts, seen = list[tuple[str, str]](), set[str]()  # text and problem
    for answer in answers:
        if isinstance(answer, Problem):
            drafts.append((answer.answer, answer.reason))
            continue
        text = answer_line(answer[0]["query"])
        drafts.append((text, "repeats an earlier draft" if text.casefold() in seen else ""))
        seen.add(text.casefold())
    usable = [text for text, problem in drafts if not problem]
    leads = await tools.find(lineage, usable, DRAFT_DEPTH) if tools.find is not None and usable else ()
    scores, fp = dict(zip(usable, leads, strict=False)), tools.plan["query"]
    return [
        Candidate(
            key=row_key("candidate", parent, fp, place),
            parent=parent,
            fingerprint=fp,
            ordinal=place,
            text=text,
            problem=problem,
            score=0.0 if problem else scores.get(text, 0.0),
        )
        for place, (text, problem) in enumerate(drafts)
    ]


def best_of(drafts: list[Candidate]) -> Candidate | None:
    """Return the first usable draft with the highest score, or None."""
    usable = [draft for draft in drafts if not draft.problem]
    return max(usable, key=lambda draft: (draft.score, -draft.ordinal), default=None)
