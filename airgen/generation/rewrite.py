"""Rewrite queries in several rounds, away from the document's own words (paper 2.3, step 5; styles in appendix A.2.1).
If a round yields no usable query, the previous round's query is kept.
"""

import json
from dataclasses import replace
from typing import Any

from airgen.components.keys import rng
from airgen.compute.exact_arithmetic import inner_products
from airgen.generation.attributes import STYLE_TEXT, draw, length_text
from airgen.generation.query_checks import nearer, query_problem
from airgen.generation.query_pattern import form_pattern
from airgen.llms.base import Request
from airgen.llms.prompts import PromptSet
from airgen.llms.scripted import asked_length, last_block, padded
from airgen.retrievers.model_output import unit_rows
from airgen.settings import Pipeline
from airgen.steps.ask import ask
from airgen.steps.lineage import Lineage
from airgen.steps.step import Cost, Problem, ShownLine, Step, Tools, asked_language, make_row, stage_prompt
from airgen.steps.votes import DEPTH, NOT_FIRST, round_trip_parts
from airgen.storage.records import Passage, Query, Rewrite, Row
from airgen.text.query_form import answer_line


def found_parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    """Return what `not_found` depends on."""
    return {"votes": None if pipeline.control.judge.members else round_trip_parts(pipeline)}


async def _work(lineage: Lineage, tools: Tools) -> list[Row] | Problem:
    original = lineage.one(Query)
    rounds = tools.pipeline.generation.rewrites
    if not rounds:
        return Problem("no rewrite requested", cause="settings")
    rows: list[Row] = []
    text, refusal = original.text, Problem("")
    left = dict(tools.pipeline.generation.styles)
    for turn in range(1, rounds + 1):
        style = draw(left, lineage.sample.key, "style", turn)
        if sum(map(bool, left.values())) > 1:  # another round in the same style would only swap synonyms
            del left[style]
        result = await _round(lineage, tools, text, style, last=turn == rounds)
        if isinstance(result, Problem):
            refusal = result
            continue
        value, attempts = result
        text = answer_line(value["query"])
        rows.append(
            make_row(
                Rewrite,
                STAGE.name,
                original.key,
                tools,
                ordinal=turn,
                text=text,
                style=style,
                attempts=attempts,
            )
        )
    if rows and (lost := await not_found(lineage, tools, text)):
        return replace(lost, answer=text)
    return rows or refusal


async def not_found(lineage: Lineage, tools: Tools, text: str) -> Problem | None:
    """Reject a rewrite that does not retrieve its document if votes are the labels; the original query may retrieve
    it."""
    if tools.pipeline.control.judge.members or tools.find is None:
        return None
    (lead,) = await tools.find(lineage, [text], DEPTH)
    return None if lead >= 0 else Problem(NOT_FIRST, cause="control")


async def _round(lineage: Lineage, tools: Tools, text: str, style: str, *, last: bool) -> tuple[Any, int] | Problem:
    """Return one rewrite of `text`."""
    pipeline, language, generation = tools.pipeline, tools.pipeline.query_language, tools.pipeline.generation
    original, document = lineage.one(Query), lineage.document
    length = "" if generation.free_rewrites else original.length
    constrained = bool(stage_prompt(tools.pipeline, tools.prompts, "rewrite").constrain)

    def check(value: Any) -> Problem | None:
        new = value["query"]
        known = (document, original.text) if constrained else ()
        title = lineage.passage.title if last else None
        kind = original.type if generation.free_rewrites else ""  # the small prompt shows questions as keywords
        if problem := query_problem(new, document, pipeline, length=length, kind=kind, known=known, title=title):
            return problem
        if new.casefold().strip() == text.casefold().strip():
            return Problem("says the same words again")
        if not pipeline.cross_lingual and (problem := nearer(new, text, document, language)):
            return problem  # words of two languages cannot be compared
        return _drifted(tools, original.text, new)

    values = {
        "language_name": asked_language(pipeline),
        "document": document,
        "original": original.text,
        "query": text,
        "style": STYLE_TEXT[style],
        "style_class": style,
        "type_class": original.type,
        "length": length_text(length, language) if length else "",
        "length_class": length or "free",
    }
    pattern = form_pattern(length, original.type, language) if length else None
    return await ask(tools, STAGE, values, check, pattern=pattern)


def _drifted(tools: Tools, original: str, new: str) -> Problem | None:
    """Return a problem if a rewrite's cosine similarity to the original query is too low, since meaning drifts over
    several rounds."""
    meaning = tools.pipeline.generation.meaning
    if tools.meaning is None or meaning is None:
        return None
    vectors = unit_rows(tools.meaning.encode([original, new], "query"))
    cosine = float(inner_products(vectors[:1], vectors[1])[0])
    if cosine >= meaning.min_cosine:
        return None
    figures = f"similarity {cosine:.2f} with the original, at least {meaning.min_cosine} is wanted"
    return Problem("changed its meaning", figures)


def _stand_in(pipeline: Pipeline, passage: Passage) -> dict[str, Any]:
    style = draw(pipeline.generation.styles, passage.key, "style", 1)
    return {"original": passage.title, "style": STYLE_TEXT[style], "style_class": style}


def _scripted(request: Request) -> str:
    words = last_block(request).split()
    kept = words[: max(2, len(words) - 2)]
    rng("rewrite", request.key).shuffle(kept)
    return json.dumps({"query": padded(kept, asked_length(request))}, ensure_ascii=False)


def _show(lineage: Lineage) -> tuple[dict[str, Any], list[ShownLine]]:
    if lineage.query is None:
        return {}, []
    rows = [{"text": row.text, "style": row.style, "attempts": row.attempts} for row in lineage.rewrites]
    tries = [f"  (attempt {row.attempts})" if row.attempts > 1 else "" for row in lineage.rewrites]
    shown = zip(lineage.rewrites, tries, strict=True)
    return {"rewrites": rows}, [("rewrite", f"{row.text}  [{row.style}]{tried}") for row, tried in shown]


STAGE = Step(
    "rewrite",
    (Query,),
    Rewrite,
    version=5,
    work=_work,
    parts=found_parts,
    ends=False,
    settings=("styles", "rewrites", "max_copied_words", "meaning", "prompts", "max_overlap", "max_title_overlap"),
    prompt=lambda pipeline: "rewrite",
    cost=Cost(
        default=(25, 1.6),
        small=(18, 2.0),
        pieces=lambda expected: expected.queries * expected.pipeline.generation.rewrites,
    ),
    stand_in=_stand_in,
    scripted=_scripted,
    show=_show,
    label="rewrite (kept original otherwise)",
)
