"""Generate a character who might look for the passage (paper 2.3, step 2). Passages that users do not search for are
skipped without a call."""

from typing import Any

from airgen.generation import one_call
from airgen.generation.character_or_scenario import draw_one_stage
from airgen.settings import Pipeline
from airgen.steps.lineage import Lineage
from airgen.steps.step import Problem, Tools
from airgen.steps.votes import LEAST_APART, round_trip_parts
from airgen.storage.records import Character, Sample
from airgen.text.unsearched_passages import unasked

_ROLES = ("student", "engineer", "teacher", "journalist", "analyst", "hobbyist", "translator", "lawyer")


async def refuse_unasked(lineage: Lineage, tools: Tools) -> Problem | None:
    """Reject a sample if a passage is of a kind that users do not search for.

    If votes are the labels, also reject a passage with a near copy, which votes could not distinguish from it.
    """
    pipeline = tools.pipeline
    if pipeline.generation.unasked == "keep":
        return None
    kinds = [unasked(passage.title, passage.text, pipeline.language) for passage in lineage.sources]
    if kind := next(filter(None, kinds), ""):
        return Problem(f"users do not search for {kind}", cause="settings")
    if tools.apart is not None and (lead := await tools.apart(lineage)) < LEAST_APART:
        return Problem("another passage says nearly the same", f"it is ahead by {lead:.2f}", cause="settings")
    return None


def unasked_parts(pipeline: Pipeline) -> dict[str, Any]:
    """Return what `refuse_unasked` depends on."""
    compares = pipeline.generation.unasked == "skip" and pipeline.votes_accept
    return {"apart": [LEAST_APART, round_trip_parts(pipeline)]} if compares else {}


CHARACTER = draw_one_stage(
    "character",
    Sample,
    Character,
    given=lambda lineage: {},
    refuse=refuse_unasked,
    parts=lambda pipeline: {**one_call.parts(pipeline), **unasked_parts(pipeline)},
    settings=("unasked",),
    tokens=(45, 22),
    stand_in="somebody who works with this every day",
    scripted=lambda topic: [f"a {role} interested in {topic}" for role in _ROLES],
)
