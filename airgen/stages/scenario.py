"""When that character would look for it (paper 2.3, step 3): several are described, one is drawn by key."""

from __future__ import annotations

from typing import Any

from airgen.keys import rng, row_key
from airgen.prompts import PromptSet
from airgen.records import Row, Scenario
from airgen.settings import Pipeline
from airgen.stages.base import Lineage, Refusal, Stage, Tools, ask, llm_parts, prompt_name, skip
from airgen.text import LANGUAGES

__all__ = ["STAGE"]


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return {
        "prompt": prompts.get(prompt_name(pipeline, "scenario")).fingerprint,
        "llm": llm_parts(pipeline.llm),
        "language": pipeline.language,
        "count": pipeline.generation.scenarios,
        "attempts": pipeline.generation.attempts,
    }


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    assert lineage.character is not None
    parent, fp = lineage.character.key, tools.fingerprints["scenario"]
    values = {
        "language_name": LANGUAGES[tools.pipeline.language],
        "document": lineage.document,
        "character": lineage.character.text,
        "count": tools.pipeline.generation.scenarios,
    }
    found = await ask(tools, "scenario", values, lambda _: None)
    if isinstance(found, Refusal):
        return [skip("scenario", parent, tools, found.reason, found.detail)]
    options = list(dict.fromkeys(" ".join(text.split()) for text in found[0]["scenarios"]))
    chosen = rng(parent, "scenario").choice(options)
    return [Scenario(row_key("scenario", parent, fp), parent, fp, 0, chosen, options)]


def _parent(lineage: Lineage) -> str:
    return lineage.character.key if lineage.character else ""


STAGE = Stage("scenario", Scenario, 1, _work, _parts, _parent)
