"""Who might look for the passage (paper 2.3, step 2): several are named, one is drawn by the sample's key."""

from __future__ import annotations

from typing import Any

from airgen.keys import rng, row_key
from airgen.prompts import PromptSet
from airgen.records import Character, Row
from airgen.settings import Pipeline
from airgen.stages.base import Lineage, Refusal, Stage, Tools, ask, llm_parts, prompt_name, skip
from airgen.text import LANGUAGES

__all__ = ["STAGE"]


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return {
        "prompt": prompts.get(prompt_name(pipeline, "character")).fingerprint,
        "llm": llm_parts(pipeline.llm),
        "language": pipeline.language,
        "count": pipeline.generation.characters,
        "attempts": pipeline.generation.attempts,
    }


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    sample, fp = lineage.sample, tools.fingerprints["character"]
    values = {
        "language_name": LANGUAGES[tools.pipeline.language],
        "document": lineage.document,
        "count": tools.pipeline.generation.characters,
    }
    found = await ask(tools, "character", values, lambda _: None)
    if isinstance(found, Refusal):
        return [skip("character", sample.key, tools, found.reason, found.detail)]
    options = list(dict.fromkeys(" ".join(text.split()) for text in found[0]["characters"]))
    chosen = rng(sample.key, "character").choice(options)
    return [Character(row_key("character", sample.key, fp), sample.key, fp, 0, chosen, options)]


STAGE = Stage("character", Character, 1, _work, _parts, lambda lineage: lineage.sample.key)
