"""Generate a scenario in which the character needs the passage (paper 2.3, step 3)."""

from airgen.generation.character_or_scenario import draw_one_stage
from airgen.records import Character, Scenario

_TASKS = ("preparing a lesson", "writing a report", "fixing a problem", "checking a claim", "planning a project")


SCENARIO = draw_one_stage(
    "scenario",
    Character,
    Scenario,
    given=lambda lineage: {"character": lineage.one(Character).text},
    tokens=(60, 37),
    stand_in="Something does not work as expected, and the reason must be found today.",
    scripted=lambda topic: [f"{task} about {topic}" for task in _TASKS],
)
