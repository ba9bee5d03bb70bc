"""Generate a short reference answer to each accepted query, for evaluating answers as well.

The model first quotes the words in the document that answer the query, then answers, so every answer has a span.
"""

import json
import math
import re
from typing import Any

from airgen.components.keys import rng
from airgen.generation.query_checks import wrong_language
from airgen.llms.base import Request
from airgen.llms.scripted import document
from airgen.safety.escaping import plain_text
from airgen.settings.languages import language_name
from airgen.steps.ask import ask
from airgen.steps.lineage import Lineage
from airgen.steps.step import Cost, Problem, ShownLine, Step, Tools, make_row
from airgen.storage.records import Query, ReferenceAnswer, Rewrite, Row

_MIN_QUOTED_WORDS, _MIN_QUOTED_SHARE = 4, 0.75  # of a quote that must be in the text as one run, if not all is


_MAX_QUOTED_WORDS = 200  # maximum length of a quote; a longer one is the document, not an answer


async def _answer(lineage: Lineage, tools: Tools) -> list[Row] | Problem:
    final, language = lineage.final, tools.pipeline.language
    texts = [plain_text(passage.text) for passage in lineage.sources]  # as they are exported

    def quoted(quote: str) -> str:
        spans = ((text, span_of(quote, text)) for text in texts)
        return next((text[slice(*span)] for text, span in spans if span), "")

    def check(value: Any) -> Problem | None:
        if not quoted(value["quote"]):
            return Problem("its quote is not in the document", feedback="quote the document's own words unchanged")
        return wrong_language(value["answer"], language)

    values = {"language_name": language_name(language), "document": lineage.document, "query": final.text}
    result = await ask(tools, REFERENCE_ANSWER, values, check)
    if isinstance(result, Problem):
        return result
    answer = " ".join(result[0]["answer"].split())
    quote = quoted(result[0]["quote"])
    return [make_row(ReferenceAnswer, REFERENCE_ANSWER.name, final.key, tools, ordinal=1, text=answer, quote=quote)]


def span_of(quote: str, text: str) -> tuple[int, int] | None:
    """Return the position of a quote in a text, (start, end) in characters, or None.

    White space, quotation marks and ellipses around the quote are ignored. A small model often puts a heading before
    the words it copies, so the longest matching run counts if it has at least four words and three quarters of the
    quote.
    """
    words = quote.strip(" \t\r\n\"'\u201c\u201d\u2018\u2019\u00ab\u00bb\u2026").split()
    if not words or len(words) > _MAX_QUOTED_WORDS:
        return None
    least = min(len(words), max(_MIN_QUOTED_WORDS, math.ceil(_MIN_QUOTED_SHARE * len(words))))
    for size in range(len(words), least - 1, -1):
        for start in range(len(words) - size + 1):
            match = re.search(r"\s+".join(map(re.escape, words[start : start + size])), text)
            if match:
                return match.span()
    return None


def _scripted_answer(request: Request) -> str:
    words = document(request).partition("\n\n")[2].split() or document(request).split()  # without the title
    start = rng("reference_answer", request.key).randrange(max(1, len(words) - 6))
    quote = words[start : start + 6]
    return json.dumps({"quote": " ".join(quote), "answer": " ".join(quote[:3])}, ensure_ascii=False)


def _show_answer(lineage: Lineage) -> tuple[dict[str, Any], list[ShownLine]]:
    rows = lineage.every(ReferenceAnswer)
    if not rows:
        return {}, []
    told = [("answer", f"{row.text}  [quotes: {row.quote}]") for row in rows]
    return {"answer": {"text": rows[-1].text, "quote": rows[-1].quote}}, told


REFERENCE_ANSWER = Step(
    "reference_answer",
    (Rewrite, Query),
    ReferenceAnswer,
    version=2,
    work=_answer,
    ends=False,
    prompt=lambda pipeline: "answer",
    cost=Cost(
        default=(70, 1.1),
        small=(60, 1.4),
        pieces=lambda expected: expected.pipeline.target if expected.pipeline.generation.answers else 0,
    ),
    scripted=_scripted_answer,
    show=_show_answer,
    label="queries with a reference answer",
)
