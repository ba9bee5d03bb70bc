"""Generate a scenario in which the character needs the passage (paper 2.3, step 3)."""

from typing import Any

from airgen.generation import one_call
from airgen.generation.attributes import INFORMATION_TEXT, query_attributes
from airgen.generation.character_or_scenario import draw_one_stage
from airgen.settings import Pipeline
from airgen.steps.lineage import Lineage
from airgen.steps.step import Tools
from airgen.storage.records import Character, Scenario

_TASKS = ("preparing a lesson", "writing a report", "fixing a problem", "checking a claim", "planning a project")


def _values(lineage: Lineage, tools: Tools) -> dict[str, str]:
    """Return the kind of information that the query will ask for, which the scenario must fit."""
    _, _, information = query_attributes(tools.pipeline.generation, lineage.sample.key)
    return {"information": INFORMATION_TEXT[information]}


def _parts(pipeline: Pipeline) -> dict[str, Any]:
    return one_call.parts(pipeline) or {"information": pipeline.generation.information}


SCENARIO = draw_one_stage(
    "scenario",
    Character,
    Scenario,
    given=lambda lineage: {"character": lineage.one(Character).text},
    values=_values,
    parts=_parts,
    tokens=(60, 37),
    stand_in="Something does not work as expected, and the reason must be found today.",
    scripted=lambda topic: [f"{task} about {topic}" for task in _TASKS],
)
