"""The original query (paper 2.3, step 4), with length, type and information drawn by key (appendix A.2.1)."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable
from dataclasses import asdict
from typing import Any

from airgen.keys import rng, row_key
from airgen.llms.base import Request
from airgen.llms.scripted import asked_length, document, keywords, padded
from airgen.pipeline.ask import ask
from airgen.pipeline.control.votes import round_trip_parts
from airgen.pipeline.stage import Cost, Lineage, Problem, Refusal, Stage, Tools, asked_language, skip, stage_prompt
from airgen.pipeline.stages import answer_checks as checks
from airgen.pipeline.stages.attributes import (
    INFORMATION_TEXT,
    LENGTH_TEXT,
    TYPE_TEXT,
    form_pattern,
    query_attributes,
    run_together,
    words_pattern,
    wrong_type,
)
from airgen.pipeline.stages.by_example import Model, draw_examples, repeats_example, unlike_model
from airgen.pipeline.stages.drafts import best_of, draw_drafts, one_line
from airgen.prompts import PromptSet
from airgen.records import Candidate, Character, Passage, Query, Row, Scenario
from airgen.settings import Pipeline, answer_parts

TWO_PASSAGES = "query_two_passages"


def _prompt(pipeline: Pipeline) -> str:
    if pipeline.generation.examples:
        return "query_like"
    return "query_from_need" if pipeline.generation.query_from == "need" else "query"


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    generation = pipeline.generation
    return {
        "prompt": stage_prompt(pipeline, prompts, _prompt(pipeline)).fingerprint,
        "llm": answer_parts(pipeline.llm),
        "language": pipeline.query_language,
        "document_language": pipeline.language,
        "lengths": generation.lengths,
        "types": generation.types,
        "information": generation.information,
        "attempts": generation.attempts,
        "max_copied_words": generation.max_copied_words,
        "multi_hop": stage_prompt(pipeline, prompts, TWO_PASSAGES).fingerprint if generation.multi_hop else None,
        "examples": generation.example_texts,
        "candidates": [generation.candidates, round_trip_parts(pipeline) if generation.candidates > 1 else None],
        # Without rewriting the bounds apply to the original query; with it they apply to the last rewrite.
        "bounds": None if generation.rewrites else [generation.max_overlap, generation.max_title_overlap],
    }


def _attributes(pipeline: Pipeline, key: str) -> dict[str, str]:
    length, kind, information = query_attributes(pipeline.generation, key)
    return {
        "length": LENGTH_TEXT[length],
        "length_class": length,
        "type": TYPE_TEXT[kind],
        "type_class": kind,
        "information": INFORMATION_TEXT[information],
        "information_class": information,
    }


# What stands for real queries where a prompt is tried and the pipeline has none.
_STAND_INS = ("how long does a passport take", "train to the airport at night", "Can I return an opened box?")


def _like(pipeline: Pipeline, key: str) -> Model:
    return draw_examples(pipeline.generation.example_texts, key, pipeline.query_language)


def _like_values(model: Model) -> dict[str, Any]:
    return {
        "examples": "\n".join(model.shown), "least": model.least, "most": model.most, "form": model.form,
        "opening": model.opening,
    }  # fmt: skip


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    scenario, character = lineage.one(Scenario), lineage.one(Character).text
    parent, fp = scenario.key, tools.plan["query"]
    pipeline, language, generation = tools.pipeline, tools.pipeline.query_language, tools.pipeline.generation
    cross = pipeline.cross_lingual  # then the words of the query and of the document cannot be compared
    # The sample draws them, not the scenario: another character prompt then leaves the mix of attributes as it was.
    attributes = _attributes(pipeline, lineage.sample.key)
    length, kind = attributes["length_class"], attributes["type_class"]
    name = _prompt(pipeline) if lineage.partner is None else TWO_PASSAGES
    model = _like(pipeline, lineage.sample.key) if generation.examples else None
    constrained = bool(stage_prompt(pipeline, tools.prompts, name).constrain)

    def check(value: Any) -> Problem | None:
        text, source = value["query"], lineage.document
        return checks.first_problem(
            checks.wrong_language(text, language, "" if cross else source),
            checks.untranslated(text, language, pipeline.language),
            checks.self_reference(text),
            *(
                [unlike_model(text, model, language), repeats_example(text, generation.example_texts, language)]
                if model
                else [checks.wrong_length(text, length, language), wrong_type(text, kind)]
            ),
            checks.names_character(text, character),
            None if cross else checks.off_subject(text, source, scenario.text, character, language),
            run_together(text, length, language, source, scenario.text) if constrained and not model else None,
            checks.repeats_itself(text, language),
            checks.copied(text, source, language, generation.max_copied_words),
            None
            if cross or generation.rewrites
            else checks.too_near(text, lineage.passage.title, source, language, generation),
        )

    values = {
        "language_name": asked_language(pipeline),
        "document": lineage.document,
        "character": character,
        "scenario": scenario.text,
        **(_like_values(model) if model else attributes),
    }
    pattern = form_pattern(length, kind, language)
    if model:
        begin = f"{model.opening} " if model.opening else ""
        pattern = words_pattern(model.least, model.most, model.form == "question", language, begin)

    def draw(draft: int | None) -> Awaitable[tuple[Any, int] | Refusal]:
        return ask(tools, STAGE, values, check, pattern, name, draft)

    rows = await draw_drafts(lineage, tools, parent, draw) if generation.candidates > 1 else []
    if (best := best_of(rows)) is not None:
        text, attempts = best.text, 1
    else:
        found = await draw(None)
        if isinstance(found, Refusal):
            return [*rows, skip("query", parent, tools, found.problem, found.answer)]
        text, attempts = one_line(found[0]), found[1]
    drawn = (length, kind, attributes["information_class"])
    if model:
        drawn = (model.length, model.form, "")
    return [*rows, Query(row_key("query", parent, fp), parent, fp, 0, text, *drawn, attempts)]


def _stand_in(pipeline: Pipeline, passage: Passage) -> dict[str, Any]:
    query = passage.title or " ".join(passage.text.split()[:8])
    real = pipeline.generation.example_texts if pipeline.generation.examples else _STAND_INS
    like = _like_values(draw_examples(real, passage.key, pipeline.query_language))
    return {"query": query, **_attributes(pipeline, passage.key), **like}


_LIKE = re.compile(r"(?:Form:|\nWrite) ((?:a|one) question)?[^0-9]{0,90}([0-9]{1,4}) to ([0-9]{1,4}) words")


def _scripted(request: Request) -> str:
    text = request.messages[-1].content if len(request.messages) < 4 else request.messages[-3].content
    like = _LIKE.search(text)  # the prompt with real queries
    count = (int(like[2]) + int(like[3])) // 2 if like else asked_length(request)
    words = keywords(document(request), min(6, count), rng("query", request.key))
    mark = "?" if like and like[1] else ""
    return json.dumps({"query": padded(words, count) + mark}, ensure_ascii=False)


def _show(lineage: Lineage) -> tuple[dict[str, Any], list[str]]:
    row = lineage.query
    if row is None:
        return {}, []
    value = {
        "original": row.text, "length": row.length, "type": row.type, "information": row.information,
        "attempts": row.attempts,
    }  # fmt: skip
    tries = f"  (attempt {row.attempts})" if row.attempts > 1 else ""
    drafts = [asdict(one) for one in lineage.every(Candidate)]
    others = [
        f"           ({one.text})  {one.problem or f'finds its source: {one.score:+.2f}'}"
        for one in lineage.every(Candidate)
        if one.text != row.text
    ]
    lines = [f"asked for  {row.type}, {row.length}, {row.information}", f"query      {row.text}{tries}", *others]
    if drafts:
        value["drafts"] = [{name: one[name] for name in ("text", "problem", "score")} for one in drafts]
    return {"query": value}, lines


def _drawn(pipeline: Pipeline) -> int:
    return pipeline.generation.candidates


STAGE = Stage(
    "query", (Scenario,), Query, 3, _work, _parts,
    prompt=_prompt, cost=Cost((25, 1.2), (24, 1.7), lambda expected: expected.samples * _drawn(expected.pipeline)),
    beside=(Candidate,),
    stand_in=_stand_in, scripted=_scripted, show=_show,
)  # fmt: skip
