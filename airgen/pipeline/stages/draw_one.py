"""What character and scenario share: the model names several, one is drawn by the parent's key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airgen.keys import rng, row_key
from airgen.pipeline.stage import Lineage, Refusal, Tools, ask, llm_parts, prompt_name, skip
from airgen.prompts import PromptSet
from airgen.records import Character, Row, Scenario
from airgen.settings import Pipeline
from airgen.text.words import LANGUAGES

__all__ = ["option_parts", "options_of"]


def option_parts(name: str, count: int, pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    """What the options of a stage depend on besides its input."""
    return {
        "prompt": prompts.get(prompt_name(pipeline, name)).fingerprint,
        "llm": llm_parts(pipeline.llm),
        "language": pipeline.language,
        "count": count,
        "attempts": pipeline.generation.attempts,
    }


async def options_of(
    lineage: Lineage,
    tools: Tools,
    writes: type[Character] | type[Scenario],
    parent: str,
    count: int,
    given: Mapping[str, str],
) -> list[Row]:
    """Ask the prompt of the stage for `count` texts (a list named after it), and draw one.

    `given` is what the prompt takes besides the document, the language and the count.
    """
    name = writes.__name__.lower()
    fp = tools.fingerprints[name]
    values = {
        "language_name": LANGUAGES[tools.pipeline.language],
        "document": lineage.document,
        "count": count,
        **given,
    }
    found = await ask(tools, name, values, lambda _: None)
    if isinstance(found, Refusal):
        return [skip(name, parent, tools, found.reason, found.detail)]
    options = list(dict.fromkeys(" ".join(text.split()) for text in found[0][f"{name}s"]))
    chosen = rng(parent, name).choice(options)
    return [writes(row_key(name, parent, fp), parent, fp, 0, chosen, options)]
