"""When that character would look for it (paper 2.3, step 3): several are described, one is drawn by key."""

from __future__ import annotations

from airgen.pipeline.stages.draw_one import drawing_stage
from airgen.records import Character, Scenario

__all__ = ["STAGE"]

_TASKS = ("preparing a lesson", "writing a report", "fixing a problem", "checking a claim", "planning a project")

STAGE = drawing_stage(
    "scenario", Character, Scenario,
    count=lambda pipeline: pipeline.generation.scenarios,
    given=lambda lineage: {"character": lineage.one(Character).text},
    tokens=(60, 37),
    stand_in="Something does not work as expected, and the reason must be found today.",
    scripted=lambda topic: [f"{task} about {topic}" for task in _TASKS],
)  # fmt: skip
