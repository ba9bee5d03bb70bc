"""A short reference answer to each accepted query, for those who evaluate generated answers too.

The model quotes the words of the document that answer the query, and then answers. The quote must stand in the
document's text, so every answer has a span there. A query without a usable answer stays, and the skip says why.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from airgen.keys import rng, row_key
from airgen.languages import language_name
from airgen.llms.base import Request
from airgen.llms.scripted import document
from airgen.pipeline.ask import ask
from airgen.pipeline.stage import Cost, Lineage, Problem, Refusal, Stage, Tools, skip, stage_prompt
from airgen.pipeline.stages.attributes import wrong_language
from airgen.prompts import PromptSet
from airgen.records import Query, ReferenceAnswer, Rewrite, Row
from airgen.settings import Pipeline, answer_parts
from airgen.text.display import plain_text

_FEWEST_WORDS, _LEAST_SHARE = 4, 0.75  # of a quote that must be in the text in one run, where not all of it is
_MOST_WORDS = 200  # of a quote: a longer one is the document, not an answer


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return {
        "prompt": stage_prompt(pipeline, prompts, "answer").fingerprint,
        "llm": answer_parts(pipeline.llm),
        "language": pipeline.language,
        "attempts": pipeline.generation.attempts,
    }


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    final, fp, language = lineage.final, tools.plan["reference_answer"], tools.pipeline.language
    texts = [plain_text(passage.text) for passage in lineage.sources]  # as they are exported

    def quoted(quote: str) -> str:
        found = ((text, span_of(quote, text)) for text in texts)
        return next((text[slice(*span)] for text, span in found if span), "")

    def check(value: Any) -> Problem | None:
        if not quoted(value["quote"]):
            return Problem("its quote is not in the document", told="quote the document's own words, without a change")
        return wrong_language(value["answer"], language)

    values = {"language_name": language_name(language), "document": lineage.document, "query": final.text}
    found = await ask(tools, STAGE, values, check)
    if isinstance(found, Refusal):
        return [skip("reference_answer", final.key, tools, found.problem, found.answer)]
    answer = " ".join(found[0]["answer"].split())
    key = row_key("reference_answer", final.key, fp, 1)
    return [ReferenceAnswer(key, final.key, fp, 1, answer, quoted(found[0]["quote"]))]


def span_of(quote: str, text: str) -> tuple[int, int] | None:
    """Where a quote stands in a text: (start, end) in characters, or None.

    White space may differ, and marks of quotation or omission around the quote do not count. A small model often puts a
    heading before the words that it copies, or ends them in its own way: the longest run of the quote's words counts
    that is in the text, if it has three quarters of them, and at least four.
    """
    words = quote.strip(" \t\r\n\"'\u201c\u201d\u2018\u2019\u00ab\u00bb\u2026").split()
    if not words or len(words) > _MOST_WORDS:
        return None
    least = min(len(words), max(_FEWEST_WORDS, math.ceil(_LEAST_SHARE * len(words))))
    for size in range(len(words), least - 1, -1):
        for start in range(len(words) - size + 1):
            found = re.search(r"\s+".join(map(re.escape, words[start : start + size])), text)
            if found:
                return found.span()
    return None


def _scripted(request: Request) -> str:
    words = document(request).partition("\n\n")[2].split() or document(request).split()  # not those of the title
    start = rng("reference_answer", request.key).randrange(max(1, len(words) - 6))
    quote = words[start : start + 6]
    return json.dumps({"quote": " ".join(quote), "answer": " ".join(quote[:3])}, ensure_ascii=False)


def _show(lineage: Lineage) -> tuple[dict[str, Any], list[str]]:
    rows = lineage.every(ReferenceAnswer)
    if not rows:
        return {}, []
    lines = [f"answer     {row.text}  [quotes: {row.quote}]" for row in rows]
    return {"answer": {"text": rows[-1].text, "quote": rows[-1].quote}}, lines


STAGE = Stage(
    "reference_answer", (Rewrite, Query), ReferenceAnswer, 1, _work, _parts, ends=False,
    prompt=lambda pipeline: "answer",
    cost=Cost(
        (70, 1.1), (60, 1.4), lambda expected: expected.pipeline.target if expected.pipeline.generation.answers else 0
    ),
    scripted=_scripted, show=_show, label="queries with a reference answer",
)  # fmt: skip
