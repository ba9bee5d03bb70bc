"""Documents that look relevant and are not (paper 2.3, step 6): 3 to 7 a query, none for Long-Doc (A.2.2)."""

from __future__ import annotations

from typing import Any

from airgen.keys import rng, row_key, text_key
from airgen.pipeline.stage import Lineage, Refusal, Stage, Tools, ask, llm_parts, prompt_name, skip
from airgen.pipeline.stages import answer_checks as checks
from airgen.prompts import PromptSet
from airgen.records import HardNegative, Row
from airgen.settings import Pipeline
from airgen.text.words import LANGUAGES

__all__ = ["STAGE"]


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return {
        "prompt": prompts.get(prompt_name(pipeline, "hard_negative")).fingerprint,
        "llm": llm_parts(pipeline.llm),
        "language": pipeline.language,
        "range": list(pipeline.generation.generated_negatives),
        "attempts": pipeline.generation.attempts,
    }


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    final, fp = lineage.final, tools.fingerprints["hard_negative"]
    language = tools.pipeline.language
    least, most = tools.pipeline.generation.generated_negatives
    count = rng(lineage.sample.key, "hard negatives").randint(least, most)
    if count == 0:
        return [skip("hard_negative", final.key, tools, "none asked for")]

    def usable(value: Any) -> list[tuple[str, str]]:
        kept: list[tuple[str, str]] = []
        for item in value["documents"]:
            title, text = " ".join(item["title"].split()), item["text"].strip()
            others = [lineage.passage.text, *(other for _, other in kept)]
            if not checks.wrong_language(text, language) and not any(
                checks.duplicates(text, other, language) for other in others
            ):
                kept.append((title, text))
        return kept[:count]

    def check(value: Any) -> str | None:
        good = len(usable(value))
        # One item for three is asked again; one item short of the number is not worth another call.
        if good >= min(least or 1, count) or good == count:
            return None
        return f"{good} usable documents, wanted are {count} that differ from each other and from the document"

    values = {
        "language_name": LANGUAGES[language],
        "document": lineage.document,
        "title": lineage.passage.title,
        "query": final.text,
        "count": count,
    }
    found = await ask(tools, "hard_negative", values, check)
    if isinstance(found, Refusal):
        return [skip("hard_negative", final.key, tools, found.reason, found.detail)]
    return [
        HardNegative(
            row_key("hard_negative", final.key, fp, place), final.key, fp, place,
            "neg-" + text_key(f"{title}\n{text}")[:16], text, title,
        )
        for place, (title, text) in enumerate(usable(found[0]), 1)
    ]  # fmt: skip


STAGE = Stage("hard_negative", HardNegative, 2, _work, _parts, ends=False)
