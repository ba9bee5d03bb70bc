"""When that character would look for it (paper 2.3, step 3): several are described, one is drawn by key."""

from __future__ import annotations

from typing import Any

from airgen.pipeline.stage import Lineage, Stage, Tools
from airgen.pipeline.stages.draw_one import option_parts, options_of
from airgen.prompts import PromptSet
from airgen.records import Row, Scenario
from airgen.settings import Pipeline

__all__ = ["STAGE"]


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return option_parts("scenario", pipeline.generation.scenarios, pipeline, prompts)


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    assert lineage.character is not None
    given = {"character": lineage.character.text}
    return await options_of(lineage, tools, Scenario, lineage.character.key, tools.pipeline.generation.scenarios, given)


STAGE = Stage("scenario", Scenario, 1, _work, _parts)
