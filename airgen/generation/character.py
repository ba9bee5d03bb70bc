"""Who might look for the passage (paper 2.3, step 2)."""

from airgen.generation.draw_one import draw_one_stage
from airgen.records import Character, Sample

_ROLES = ("student", "engineer", "teacher", "journalist", "analyst", "hobbyist", "translator", "lawyer")


CHARACTER = draw_one_stage(
    "character", Sample, Character,
    given=lambda lineage: {},
    tokens=(45, 22),
    stand_in="somebody who works with this every day",
    scripted=lambda topic: [f"a {role} interested in {topic}" for role in _ROLES],
)  # fmt: skip
