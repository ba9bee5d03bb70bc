"""Documents that look relevant and are not (paper 2.3, step 6): 3 to 7 a query, none for Long-Doc (A.2.2)."""

from __future__ import annotations

import json
import re
from typing import Any

from airgen.keys import rng, row_key, text_key
from airgen.languages import language_name
from airgen.llms.base import Request
from airgen.llms.scripted import document, keywords, last_block
from airgen.pipeline.ask import ask
from airgen.pipeline.stage import Cost, Lineage, Problem, Refusal, Stage, Tools, skip, stage_prompt
from airgen.pipeline.stages.attributes import duplicates, wrong_language
from airgen.prompts import PromptSet
from airgen.records import HardNegative, Passage, Query, Rewrite, Row
from airgen.settings import Pipeline, answer_parts


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return {
        "prompt": stage_prompt(pipeline, prompts, "hard_negative").fingerprint,
        "llm": answer_parts(pipeline.llm),
        "language": pipeline.language,
        "range": list(pipeline.generation.generated_negatives),
        "attempts": pipeline.generation.attempts,
    }


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    final, fp = lineage.final, tools.plan["hard_negative"]
    language = tools.pipeline.language
    least, most = tools.pipeline.generation.generated_negatives
    count = rng(lineage.sample.key, "hard negatives").randint(least, most)
    if count == 0:
        return [skip("hard_negative", final.key, tools, Problem("none asked for", cause="settings"))]

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
    found = await ask(tools, STAGE, values, check)
    if isinstance(found, Refusal):
        return [skip("hard_negative", final.key, tools, found.problem, found.answer)]
    return [
        HardNegative(
            row_key("hard_negative", final.key, fp, place), final.key, fp, place,
            "neg-" + text_key(f"{title}\n{text}")[:16], text, title,
        )
        for place, (title, text) in enumerate(usable(found[0]), 1)
    ]  # fmt: skip


def _most(pipeline: Pipeline) -> float:
    return sum(pipeline.generation.generated_negatives) / 2


_COUNT = re.compile(r"\b(one|two|three|four|five|six|seven|\d{1,2})\b[^.\n]{0,40}\bdocuments?\b", re.IGNORECASE)
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}


def _scripted(request: Request) -> str:
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


def _stand_in(pipeline: Pipeline, passage: Passage) -> dict[str, Any]:
    return {"title": passage.title}


STAGE = Stage(
    "hard_negative", (Rewrite, Query), HardNegative, 2, _work, _parts, ends=False,
    prompt=lambda pipeline: "hard_negative",
    cost=Cost(
        (100, 1.0), (53, 1.5),
        lambda expected: expected.pipeline.target if _most(expected.pipeline) else 0,
        items=lambda pipeline: max(_most(pipeline), 1),
    ),
    stand_in=_stand_in, scripted=_scripted, label="queries with hard negatives",
)  # fmt: skip
