"""Generate hard negatives, which look relevant but are not (paper 2.3, step 6): 3 to 7 per query, none for Long-Doc
(A.2.2)."""

import json
import re
from typing import Any

from airgen.components.keys import rng, text_key
from airgen.generation.query_checks import duplicates, wrong_language
from airgen.llms.base import Request
from airgen.llms.scripted import document, keywords, last_block
from airgen.settings import Pipeline
from airgen.settings.languages import language_name
from airgen.steps.ask import ask
from airgen.steps.lineage import Lineage
from airgen.steps.step import Cost, Expected, Problem, Step, Tools, make_row
from airgen.storage.records import HardNegative, Query, Rewrite, Row


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
        # Ask again if there is one item instead of three, but not if a single item is missing.
        if good >= min(least or 1, count) or good == count:
            return None
        wanted = f"usable documents, but {count} are needed that differ from each other and from the document"
        return Problem("too few usable documents", feedback=f"{good} {wanted}")

    values = {
        "language_name": language_name(language),
        "document": lineage.document,
        "title": lineage.passage.title,
        "query": final.text,
        "count": count,
    }
    result = await ask(tools, HARD_NEGATIVE, values, check)
    if isinstance(result, Problem):
        return result
    return [
        make_row(
            HardNegative,
            HARD_NEGATIVE.name,
            final.key,
            tools,
            ordinal=place,
            id="neg-" + text_key(f"{title}\n{text}")[:16],
            text=text,
            title=title,
        )
        for place, (title, text) in enumerate(usable(result[0]), 1)
    ]


def _most(pipeline: Pipeline) -> float:
    return sum(pipeline.generation.generated_negatives) / 2


def _pieces(expected: Expected) -> float:
    """Return the queries that need negatives: accepted queries, or all judged queries."""
    target = expected.pipeline.target
    return max(expected.queries, target) if expected.pipeline.generation.negatives_of == "all" else target


_COUNT = re.compile(r"\b(one|two|three|four|five|six|seven|\d{1,2})\b[^.\n]{0,40}\bdocuments?\b", re.IGNORECASE)
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}


def _scripted_negatives(request: Request) -> str:
    random = rng("hard_negative", request.key)
    asked = _COUNT.search("\n".join(message.content for message in request.messages))
    count = _NUMBERS.get(asked[1].lower(), 0) or int(asked[1]) if asked else 3
    query, source = keywords(last_block(request), 3, random), keywords(document(request), 40, random)
    documents = []
    for number in range(count):
        own = source[number::count] or [f"case{number}"]
        text = f"Unlike {' '.join(query)}, here {' '.join(own)} is another matter, and number {number} of its kind."
        documents.append({"title": " ".join([*query[:1], *own[:1]]), "text": text})
    return json.dumps({"documents": documents}, ensure_ascii=False)


HARD_NEGATIVE = Step(
    "hard_negative",
    (Rewrite, Query),
    HardNegative,
    version=3,
    work=_negatives,
    parts=lambda pipeline, prompts: {"range": pipeline.generation.generated_negatives},
    ends=False,
    prompt=lambda pipeline: "hard_negative",
    cost=Cost(
        default=(100, 1.0),
        small=(53, 1.5),
        pieces=lambda expected: _pieces(expected) if _most(expected.pipeline) else 0,
        items=lambda pipeline: max(_most(pipeline), 1),
    ),
    stand_in=lambda pipeline, passage: {"title": passage.title},
    scripted=_scripted_negatives,
    label="queries with hard negatives",
)
