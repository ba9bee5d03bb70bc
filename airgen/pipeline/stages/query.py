"""The original query (paper 2.3, step 4), with length, type and information drawn by key (appendix A.2.1)."""

from __future__ import annotations

from typing import Any

from airgen.keys import row_key
from airgen.pipeline.stage import Lineage, Refusal, Stage, Tools, ask, llm_parts, prompt_name, skip
from airgen.pipeline.stages import answer_checks as checks
from airgen.pipeline.stages.attributes import (
    INFORMATION_TEXT,
    LENGTH_TEXT,
    TYPE_TEXT,
    form_pattern,
    query_attributes,
    run_together,
    wrong_type,
)
from airgen.prompts import PromptSet
from airgen.records import Query, Row
from airgen.settings import Pipeline
from airgen.text.words import LANGUAGES

__all__ = ["STAGE"]


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    generation = pipeline.generation
    return {
        "prompt": prompts.get(prompt_name(pipeline, "query")).fingerprint,
        "llm": llm_parts(pipeline.llm),
        "language": pipeline.language,
        "lengths": generation.lengths,
        "types": generation.types,
        "information": generation.information,
        "attempts": generation.attempts,
        "max_copied_words": generation.max_copied_words,
        **checks.near_parts(generation),
    }


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    assert lineage.character is not None and lineage.scenario is not None
    parent, fp = lineage.scenario.key, tools.fingerprints["query"]
    language, generation = tools.pipeline.language, tools.pipeline.generation
    # Drawn by the sample, not by the scenario: another character prompt then leaves the mix of attributes as it was.
    length, kind, information = query_attributes(generation, lineage.sample.key)
    constrained = bool(tools.prompts.get(prompt_name(tools.pipeline, "query")).constrain)

    def check(value: Any) -> str | None:
        text = value["query"]
        return checks.first_problem(
            checks.wrong_language(text, language),
            checks.self_reference(text),
            checks.wrong_length(text, length, language),
            wrong_type(text, kind),
            checks.names_character(text, values["character"]),
            checks.off_subject(text, lineage.document, values["scenario"], values["character"], language),
            run_together(text, length, language, lineage.document, values["scenario"]) if constrained else None,
            checks.copied(text, lineage.document, language, generation.max_copied_words),
            # With rewriting, the bounds are for the last rewrite: what comes before is its raw material.
            None if generation.rewrites else near(text),
        )

    def near(text: str) -> str | None:
        return checks.too_near(text, lineage.passage.title, lineage.document, language, generation)

    values = {
        "language_name": LANGUAGES[language],
        "document": lineage.document,
        "character": lineage.character.text,
        "scenario": lineage.scenario.text,
        "length": LENGTH_TEXT[length],
        "length_class": length,
        "type": TYPE_TEXT[kind],
        "type_class": kind,
        "information": INFORMATION_TEXT[information],
        "information_class": information,
    }
    found = await ask(tools, "query", values, check, form_pattern(length, kind, language))
    if isinstance(found, Refusal):
        return [skip("query", parent, tools, found.reason, found.detail)]
    value, attempts = found
    text = " ".join(value["query"].split())
    return [Query(row_key("query", parent, fp), parent, fp, 0, text, length, kind, information, attempts)]


STAGE = Stage("query", Query, 3, _work, _parts)
