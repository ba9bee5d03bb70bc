"""Who might look for the passage (paper 2.3, step 2): several are named, one is drawn by the sample's key."""

from __future__ import annotations

from airgen.pipeline.stages.draw_one import drawing_stage
from airgen.records import Character, Sample

__all__ = ["STAGE"]

_ROLES = ("student", "engineer", "teacher", "journalist", "analyst", "hobbyist", "translator", "lawyer")

STAGE = drawing_stage(
    "character", Sample, Character,
    count=lambda pipeline: pipeline.generation.characters,
    given=lambda lineage: {},
    tokens=(45, 22),
    stand_in="somebody who works with this every day",
    scripted=lambda topic: [f"a {role} interested in {topic}" for role in _ROLES],
)  # fmt: skip
