"""What accepted queries get besides: hard negatives, and a short reference answer for those who evaluate answers too.

Hard negatives look relevant and are not (paper 2.3, step 6): 3 to 7 a query, none for Long-Doc (A.2.2). For a reference
answer the model quotes the words of the document that answer the query, and then answers: every answer has a span.
"""

import json
import math
import re
from typing import Any

from airgen.keys import rng, text_key
from airgen.languages import language_name
from airgen.llms.base import Request
from airgen.llms.scripted import document, keywords, last_block
from airgen.pipeline.ask import ask
from airgen.pipeline.stage import Cost, Lineage, Problem, Stage, Tools, made
from airgen.pipeline.stages.attributes import duplicates, wrong_language
from airgen.records import HardNegative, Query, ReferenceAnswer, Rewrite, Row
from airgen.settings import Pipeline
from airgen.text.display import plain_text


async def _negatives(lineage: Lineage, tools: Tools) -> list[Row] | Problem:
    final = lineage.final
    language = tools.pipeline.language
    least, most = tools.pipeline.generation.generated_negatives
    count = rng(lineage.sample.key, "hard negatives").randint(least, most)
    if count == 0:
        return Problem("none asked for", cause="settings")

    def usable(value: Any) -> list[tuple[str, str]]:
        kept: list[tuple[str, str]] = []
        for item in value["documents"]:
            title, text = " ".join(item["title"].split()), item["text"].strip()
            others = [lineage.passage.text, *(other for _, other in kept)]
            if not wrong_language(text, language) and not any(duplicates(text, other, language) for other in others):
                kept.append((title, text))
        return kept[:count]

    def check(value: Any) -> Problem | None:
        good = len(usable(value))
        # One item for three is asked again; one item short of the number is not worth another call.
        if good >= min(least or 1, count) or good == count:
            return None
        wanted = f"usable documents, wanted are {count} that differ from each other and from the document"
        return Problem("too few usable documents", told=f"{good} {wanted}")

    values = {
        "language_name": language_name(language),
        "document": lineage.document,
        "title": lineage.passage.title,
        "query": final.text,
        "count": count,
    }
    found = await ask(tools, HARD_NEGATIVE, values, check)
    if isinstance(found, Problem):
        return found
    return [
        made(
            HardNegative,
            HARD_NEGATIVE.name,
            final.key,
            tools,
            place,
            "neg-" + text_key(f"{title}\n{text}")[:16],
            text,
            title,
        )
        for place, (title, text) in enumerate(usable(found[0]), 1)
    ]


def _most(pipeline: Pipeline) -> float:
    return sum(pipeline.generation.generated_negatives) / 2


_COUNT = re.compile(r"\b(one|two|three|four|five|six|seven|\d{1,2})\b[^.\n]{0,40}\bdocuments?\b", re.IGNORECASE)
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}


def _scripted_negatives(request: Request) -> str:
    random = rng("hard_negative", request.key)
    asked = _COUNT.search("\n".join(message.content for message in request.messages))
    n = _NUMBERS.get(asked[1].lower(), 0) or int(asked[1]) if asked else 3
    query, source = keywords(last_block(request), 3, random), keywords(document(request), 40, random)
    documents = []
    for number in range(n):
        own = source[number::n] or [f"case{number}"]
        text = f"Unlike {' '.join(query)}, here {' '.join(own)} is another matter, and number {number} of its kind."
        documents.append({"title": " ".join([*query[:1], *own[:1]]), "text": text})
    return json.dumps({"documents": documents}, ensure_ascii=False)


HARD_NEGATIVE = Stage(
    "hard_negative", (Rewrite, Query), HardNegative, 3, _negatives,
    parts=lambda pipeline, prompts: {"range": pipeline.generation.generated_negatives}, ends=False,
    prompt=lambda pipeline: "hard_negative",
    cost=Cost(
        (100, 1.0), (53, 1.5),
        lambda expected: expected.pipeline.target if _most(expected.pipeline) else 0,
        items=lambda pipeline: max(_most(pipeline), 1),
    ),
    stand_in=lambda pipeline, passage: {"title": passage.title}, scripted=_scripted_negatives,
    label="queries with hard negatives",
)  # fmt: skip


_FEWEST_WORDS, _LEAST_SHARE = 4, 0.75  # of a quote that must be in the text in one run, where not all of it is
_MOST_WORDS = 200  # of a quote: a longer one is the document, not an answer


async def _answer(lineage: Lineage, tools: Tools) -> list[Row] | Problem:
    final, language = lineage.final, tools.pipeline.language
    texts = [plain_text(passage.text) for passage in lineage.sources]  # as they are exported

    def quoted(quote: str) -> str:
        found = ((text, span_of(quote, text)) for text in texts)
        return next((text[slice(*span)] for text, span in found if span), "")

    def check(value: Any) -> Problem | None:
        if not quoted(value["quote"]):
            return Problem("its quote is not in the document", told="quote the document's own words, without a change")
        return wrong_language(value["answer"], language)

    values = {"language_name": language_name(language), "document": lineage.document, "query": final.text}
    found = await ask(tools, REFERENCE_ANSWER, values, check)
    if isinstance(found, Problem):
        return found
    answer = " ".join(found[0]["answer"].split())
    return [made(ReferenceAnswer, REFERENCE_ANSWER.name, final.key, tools, 1, answer, quoted(found[0]["quote"]))]


def span_of(quote: str, text: str) -> tuple[int, int] | None:
    """Where a quote stands in a text: (start, end) in characters, or None.

    White space and marks of quotation or omission around the quote do not count. A small model often puts a heading
    before the words that it copies: the longest run of them counts, if it has three quarters, and at least four.
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


def _scripted_answer(request: Request) -> str:
    words = document(request).partition("\n\n")[2].split() or document(request).split()  # not those of the title
    start = rng("reference_answer", request.key).randrange(max(1, len(words) - 6))
    quote = words[start : start + 6]
    return json.dumps({"quote": " ".join(quote), "answer": " ".join(quote[:3])}, ensure_ascii=False)


def _show_answer(lineage: Lineage) -> tuple[dict[str, Any], list[str]]:
    rows = lineage.every(ReferenceAnswer)
    if not rows:
        return {}, []
    lines = [f"answer     {row.text}  [quotes: {row.quote}]" for row in rows]
    return {"answer": {"text": rows[-1].text, "quote": rows[-1].quote}}, lines


REFERENCE_ANSWER = Stage(
    "reference_answer", (Rewrite, Query), ReferenceAnswer, 2, _answer, ends=False,
    prompt=lambda pipeline: "answer",
    cost=Cost(
        (70, 1.1), (60, 1.4), lambda expected: expected.pipeline.target if expected.pipeline.generation.answers else 0
    ),
    scripted=_scripted_answer, show=_show_answer, label="queries with a reference answer",
)  # fmt: skip
