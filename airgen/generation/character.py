"""Who might look for the passage (paper 2.3, step 2); for a passage that nobody looks for, nothing is asked."""

from airgen.generation.draw_one import draw_one_stage
from airgen.records import Character, Sample
from airgen.settings import Pipeline
from airgen.steps.lineage import Lineage
from airgen.steps.stage import Problem
from airgen.text.prose import unasked

_ROLES = ("student", "engineer", "teacher", "journalist", "analyst", "hobbyist", "translator", "lawyer")


def _nobody(lineage: Lineage, pipeline: Pipeline) -> Problem | None:
    """Whether the passage, or both of a multi-hop query, is of a kind that nobody looks for."""
    if pipeline.generation.unasked == "keep":
        return None
    kinds = [unasked(passage.title, passage.text, pipeline.language) for passage in lineage.sources]
    kind = next(filter(None, kinds), "")
    return Problem(f"nobody looks for {kind}", cause="settings") if kind else None


CHARACTER = draw_one_stage(
    "character", Sample, Character,
    given=lambda lineage: {},
    refuse=_nobody,
    settings=("unasked",),
    tokens=(45, 22),
    stand_in="somebody who works with this every day",
    scripted=lambda topic: [f"a {role} interested in {topic}" for role in _ROLES],
)  # fmt: skip
