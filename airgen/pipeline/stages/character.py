"""Who might look for the passage (paper 2.3, step 2): several are named, one is drawn by the sample's key."""

from __future__ import annotations

from typing import Any

from airgen.pipeline.stage import Lineage, Stage, Tools
from airgen.pipeline.stages.draw_one import option_parts, options_of
from airgen.prompts import PromptSet
from airgen.records import Character, Row
from airgen.settings import Pipeline

__all__ = ["STAGE"]


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return option_parts("character", pipeline.generation.characters, pipeline, prompts)


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    return await options_of(
        lineage, tools, Character, lineage.sample.key, tools.pipeline.generation.characters, given={}
    )


STAGE = Stage("character", Character, 1, _work, _parts)
