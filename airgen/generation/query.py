"""Generate the original query (paper 2.3, step 4), with length, type and information drawn by key (appendix A.2.1).

`drafts` writes several and keeps the best; `query_examples` gives it the style of real ones; `query_checks` refuses it.
"""

import json
import re
from dataclasses import asdict
from typing import Any

from airgen.components.keys import rng, row_key
from airgen.generation import one_call
from airgen.generation.attributes import INFORMATION_TEXT, TYPE_TEXT, drawn_truth, length_text, query_attributes
from airgen.generation.drafts import best_of, draw_drafts
from airgen.generation.query_checks import names_character, off_subject, query_problem
from airgen.generation.query_examples import Model, draw_examples, repeats_example, unlike_model
from airgen.generation.query_pattern import form_pattern, words_pattern
from airgen.llms.base import Request
from airgen.llms.prompts import PromptSet
from airgen.llms.scripted import asked_length, document, keywords, padded
from airgen.settings import Pipeline
from airgen.steps.ask import ask
from airgen.steps.lineage import Lineage
from airgen.steps.step import Cost, Problem, ShownLine, Step, Tools, asked_language, make_row, skip, stage_prompt
from airgen.steps.votes import DEPTH, DRAFT_DEPTH, round_trip_parts
from airgen.storage.records import Candidate, Character, Passage, Query, Row, Scenario
from airgen.text.query_form import answer_line

TWO_PASSAGES = "query_two_passages"


def _prompt(pipeline: Pipeline) -> str:
    if pipeline.generation.one_call:
        return one_call.PROMPT
    return "query_like" if pipeline.generation.examples else "query"


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    generation = pipeline.generation
    if generation.one_call:
        # If votes are the labels, another search may be chosen.
        votes = None if pipeline.control.judge.members else round_trip_parts(pipeline)
        return {**one_call.parts(pipeline), "candidates": votes}
    return {
        "multi_hop": stage_prompt(pipeline, prompts, TWO_PASSAGES).fingerprint if generation.multi_hop else None,
        "examples": generation.example_texts,
        "candidates": [generation.candidates, round_trip_parts(pipeline) if generation.candidates > 1 else None],
        # Without rewriting, the limits apply to the original query; with rewriting, to the last rewrite.
        "bounds": None if generation.rewrites else [generation.max_overlap, generation.max_title_overlap],
    }


def _attributes(pipeline: Pipeline, key: str) -> dict[str, str]:
    length, kind, information = query_attributes(pipeline.generation, key)
    return {
        "length": length_text(length, pipeline.query_language),
        "length_class": length,
        "type": TYPE_TEXT[kind],
        "type_class": kind,
        "truth": drawn_truth(kind, key),
        "information": INFORMATION_TEXT[information],
        "information_class": information,
    }


# A substitute for real queries if a prompt is tried and the pipeline has none.
_STAND_INS = ("how long does a passport take", "train to the airport at night", "Can I return an opened box?")


def _like_values(model: Model) -> dict[str, Any]:
    return {
        "examples": "\n".join(model.shown),
        "least": model.least,
        "most": model.most,
        "form": model.form,
        "opening": model.opening,
    }


async def _from_one_call(lineage: Lineage, tools: Tools) -> list[Row]:
    """Return the first search that has no problem and, if required, retrieves its source. All searches are saved as
    drafts."""
    parent, fp, language = lineage.one(Scenario).key, tools.plan["query"], tools.pipeline.query_language
    # If votes are the labels, the query must stand out from this many passages; each draft is tested once.
    depth = DRAFT_DEPTH if tools.pipeline.control.judge.members else DEPTH
    answer = await one_call.answer_of(lineage, tools)
    if isinstance(answer, Problem):
        return [skip("query", parent, tools, answer)]
    drafts, best = list[Candidate](), None
    for place, search in enumerate(answer.searches):
        reason, score = search.problem.reason if search.problem else "", 0.0
        if not reason and tools.find is not None and (best is None or best.score < 0):
            (score,) = await tools.find(lineage, [search.text], depth)
        draft = Candidate(
            key=row_key("candidate", parent, fp, place),
            parent=parent,
            fingerprint=fp,
            ordinal=place,
            text=search.text,
            problem=reason,
            score=score,
        )
        drafts.append(draft)
        if not reason and (best is None or best.score < min(score, 0.0)):
            best = draft
    assert best is not None  # an answer without a usable search is a Problem
    chosen = answer.searches[best.ordinal]
    _, _, information = query_attributes(tools.pipeline.generation, lineage.sample.key)
    row = make_row(
        Query,
        STAGE.name,
        parent,
        tools,
        text=chosen.text,
        length=chosen.length(language),
        type=chosen.kind,
        information=information,
        attempts=answer.attempts,
    )
    return [*drafts, row]


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    if tools.pipeline.generation.one_call:
        return await _from_one_call(lineage, tools)
    scenario, character = lineage.one(Scenario), lineage.one(Character).text
    parent = scenario.key
    pipeline, language, generation = tools.pipeline, tools.pipeline.query_language, tools.pipeline.generation
    # The sample draws them, not the scenario, so that another character prompt does not change the mix of attributes.
    attributes = _attributes(pipeline, lineage.sample.key)
    length, kind = attributes["length_class"], attributes["type_class"]
    name = _prompt(pipeline) if lineage.partner is None else TWO_PASSAGES
    model = draw_examples(generation.example_texts, lineage.sample.key, language) if generation.examples else None
    constrained = bool(stage_prompt(pipeline, tools.prompts, name).constrain)

    def check(value: Any) -> Problem | None:
        text, source = value["query"], lineage.document
        own = [unlike_model(text, model, language), repeats_example(text, generation.example_texts, language)]
        cross = pipeline.cross_lingual  # then words of the query and the document cannot be compared
        subject = None if cross else off_subject(text, source, scenario.text, character, language=language)
        own += [names_character(text, character), subject]
        return query_problem(
            text,
            source,
            pipeline,
            *own,
            length="" if model else length,
            kind="" if model else kind,
            known=(source, scenario.text) if constrained else (),
            title=None if generation.rewrites else lineage.passage.title,
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
        pattern = words_pattern(model.least, model.most, model.form == "question", language, begin=begin)

    async def draw(draft: int | None) -> tuple[Any, int] | Problem:
        return await ask(tools, STAGE, values, check, pattern=pattern, prompt_of=name, draft=draft)

    rows = await draw_drafts(lineage, tools, parent, draw) if generation.candidates > 1 else []
    if (best := best_of(rows)) is not None:
        text, attempts = best.text, 1
    else:
        result = await draw(None)
        if isinstance(result, Problem):
            return [*rows, skip("query", parent, tools, result)]
        text, attempts = answer_line(result[0]["query"]), result[1]
    information = attributes["information_class"]
    if model:
        length, kind, information = model.length, model.form, ""
    query = make_row(
        Query,
        STAGE.name,
        parent,
        tools,
        text=text,
        length=length,
        type=kind,
        information=information,
        attempts=attempts,
    )
    return [*rows, query]


def _stand_in(pipeline: Pipeline, passage: Passage) -> dict[str, Any]:
    query = passage.title or " ".join(passage.text.split()[:8])
    real = pipeline.generation.example_texts if pipeline.generation.examples else _STAND_INS
    like = _like_values(draw_examples(real, passage.key, pipeline.query_language))
    return {"query": query, **_attributes(pipeline, passage.key), **like}


_LIKE = re.compile(r"(?:Form:|\nWrite) ((?:a|one) question)?[^0-9]{0,90}([0-9]{1,4}) to ([0-9]{1,4}) words")


def _scripted(request: Request) -> str:
    if (searches := one_call.scripted(request)) is not None:
        return searches
    text = request.messages[-1].content if len(request.messages) < 4 else request.messages[-3].content
    like = _LIKE.search(text)  # the prompt with real queries
    count = (int(like[2]) + int(like[3])) // 2 if like else asked_length(request)
    words = keywords(document(request), min(6, count), rng("query", request.key))
    mark = "?" if like and like[1] else ""
    return json.dumps({"query": padded(words, count) + mark}, ensure_ascii=False)


def _show(lineage: Lineage) -> tuple[dict[str, Any], list[ShownLine]]:
    row = lineage.query
    if row is None:
        return {}, []
    value = {
        "original": row.text,
        "length": row.length,
        "type": row.type,
        "information": row.information,
        "attempts": row.attempts,
    }
    tries = f"  (attempt {row.attempts})" if row.attempts > 1 else ""
    drafts = [asdict(draft) for draft in lineage.every(Candidate)]
    others = [
        ("", f"({draft.text})  {draft.problem or f'finds its source: {draft.score:+.2f}'}")
        for draft in lineage.every(Candidate)
        if draft.text != row.text
    ]
    told = [("asked for", f"{row.type}, {row.length}, {row.information}"), ("query", f"{row.text}{tries}"), *others]
    if drafts:
        value["drafts"] = [{name: draft[name] for name in ("text", "problem", "score")} for draft in drafts]
    return {"query": value}, told


def _drawn(pipeline: Pipeline) -> int:
    return 1 if pipeline.generation.one_call else pipeline.generation.candidates


STAGE = Step(
    "query",
    (Scenario,),
    Query,
    version=6,
    work=_work,
    parts=_parts,
    settings=("lengths", "types", "information", "max_copied_words"),
    prompt=_prompt,
    cost=Cost(
        default=(25, 1.2),
        small=(24, 1.7),
        pieces=lambda expected: expected.samples * _drawn(expected.pipeline),
        items=lambda pipeline: 5 if pipeline.generation.one_call else 1,
    ),
    beside=(Candidate,),
    stand_in=_stand_in,
    scripted=_scripted,
    show=_show,
)
