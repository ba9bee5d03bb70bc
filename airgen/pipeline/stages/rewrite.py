"""Rewriting, several rounds, away from the document's own words (paper 2.3, step 5; styles of appendix A.2.1).

A round that gives nothing usable leaves the query of the round before; a query without any good rewrite stays as
it was, and the skip says why.
"""

from __future__ import annotations

from typing import Any

from airgen.keys import row_key
from airgen.pipeline.stage import Lineage, Refusal, Stage, Tools, ask, llm_parts, prompt_name, skip
from airgen.pipeline.stages import answer_checks as checks
from airgen.pipeline.stages.attributes import LENGTH_TEXT, STYLE_TEXT, draw, form_pattern, run_together
from airgen.prompts import PromptSet
from airgen.records import Rewrite, Row
from airgen.settings import Pipeline
from airgen.text.words import LANGUAGES

__all__ = ["STAGE"]


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    generation = pipeline.generation
    meaning = generation.meaning.model_dump() if generation.meaning else None
    return {
        "prompt": prompts.get(prompt_name(pipeline, "rewrite")).fingerprint if generation.rewrites else None,
        "llm": llm_parts(pipeline.llm),
        "language": pipeline.language,
        "styles": generation.styles,
        "rounds": generation.rewrites,
        "attempts": generation.attempts,
        "max_copied_words": generation.max_copied_words,
        "meaning": meaning,
        **checks.near_parts(generation),
    }


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    assert lineage.query is not None
    original, fp = lineage.query, tools.fingerprints["rewrite"]
    if not tools.pipeline.generation.rewrites:
        return [skip("rewrite", original.key, tools, "no rewriting asked for")]
    rows: list[Row] = []
    text, problem = original.text, Refusal("", "")
    for turn in range(1, tools.pipeline.generation.rewrites + 1):
        style = draw(tools.pipeline.generation.styles, lineage.sample.key, "style", turn)
        found = await _round(lineage, tools, text, style, last=turn == tools.pipeline.generation.rewrites)
        if isinstance(found, Refusal):
            problem = found
            continue
        value, attempts = found
        text = " ".join(value["query"].split())
        rows.append(Rewrite(row_key("rewrite", original.key, fp, turn), original.key, fp, turn, text, style, attempts))
    return rows or [skip("rewrite", original.key, tools, problem.reason, problem.detail)]


async def _round(lineage: Lineage, tools: Tools, text: str, style: str, *, last: bool) -> tuple[Any, int] | Refusal:
    assert lineage.query is not None
    language, generation = tools.pipeline.language, tools.pipeline.generation
    length, document = lineage.query.length, lineage.document
    before = checks.overlap(text, document, language)

    original = lineage.query.text
    constrained = bool(tools.prompts.get(prompt_name(tools.pipeline, "rewrite")).constrain)

    def check(value: Any) -> str | None:
        new = value["query"]
        found = checks.first_problem(
            checks.wrong_language(new, language),
            checks.self_reference(new),
            checks.wrong_length(new, length, language),
            run_together(new, length, language, document, original) if constrained else None,
            checks.copied(new, document, language, generation.max_copied_words),
            checks.too_near(new, lineage.passage.title, document, language, generation) if last else None,
        )
        if found:
            return found
        if new.casefold().strip() == text.casefold().strip():
            return "says the same words again"
        after = checks.overlap(new, document, language)
        if after > before:
            return f"shares more words with the document than before ({after:.0%}, was {before:.0%})"
        return _drifted(tools, original, new)

    values = {
        "language_name": LANGUAGES[language],
        "document": document,
        "query": text,
        "style": STYLE_TEXT[style],
        "style_class": style,
        "length": LENGTH_TEXT[length],
        "length_class": length,
    }
    return await ask(tools, "rewrite", values, check, form_pattern(length, lineage.query.type, language))


def _drifted(tools: Tools, original: str, new: str) -> str | None:
    """Several rounds drift away step by step, so each is compared with the original query, by cosine."""
    meaning = tools.pipeline.generation.meaning
    if tools.meaning is None or meaning is None:
        return None
    vectors = tools.meaning.encode([original, new], "query")
    cosine = float(vectors[0] @ vectors[1])
    if cosine >= meaning.min_cosine:
        return None
    return f"changed its meaning: similarity {cosine:.2f} with the original, at least {meaning.min_cosine} is wanted"


STAGE = Stage("rewrite", Rewrite, 2, _work, _parts, ends=False)
