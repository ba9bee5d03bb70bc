"""The original query (paper 2.3, step 4), with length, type and information drawn by key (appendix A.2.1).

With `generation.candidates`, several drafts are answers to the same prompt, so the prompt cache covers its document;
the draft that finds its source best is kept.

With `generation.examples`, queries have the style of real ones (length, form and words), but never their content. The
query imitates the length and form of one example, drawn by the sample's key; three more show how people write. The
lengths and forms of generated queries are therefore distributed like those of the examples. A small model copies what
it is shown (nine of eleven queries of a 1.5B model were its examples), so its prompt shows no example, only the length,
the form and the opening, which consists of the function words at the beginning of the example.
"""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from airgen.control.votes import DEPTH, DRAFT_DEPTH, round_trip_parts
from airgen.generation import one_call
from airgen.generation.attributes import (
    INFORMATION_TEXT,
    LENGTH_TEXT,
    TYPE_TEXT,
    class_of,
    form_pattern,
    names_character,
    off_subject,
    query_attributes,
    query_problem,
    words_pattern,
)
from airgen.keys import rng, row_key
from airgen.languages import SPACELESS
from airgen.llms.askers import together
from airgen.llms.base import Request
from airgen.llms.scripted import asked_length, document, keywords, padded
from airgen.prompts import PromptSet
from airgen.records import Candidate, Character, Passage, Query, Row, Scenario
from airgen.settings import Pipeline
from airgen.steps.ask import ask
from airgen.steps.lineage import Lineage
from airgen.steps.step import Cost, Problem, Step, Told, Tools, asked_language, make_row, skip, stage_prompt
from airgen.text.analysis.languages import STOPWORDS
from airgen.text.near_duplicates import alike, folded_words
from airgen.text.words import count_words, words

MAX_EXAMPLES = 4  # in a prompt, the model first
MAX_OPENING_WORDS = 4
MIN_COMMON_SHARE = 0.05  # of the examples that begin with a word, from which on it belongs to their style
MAX_SHARED_WORDS = 8  # in a row, which no query may share with an example: a few are style ("what is the effect of")
_QUESTION = ("?", "\uff1f", "\u061f")


@dataclass(frozen=True, slots=True)
class Model:
    """The example whose length and form a query gets, and those that the prompt shows. Bounds are in words.

    Attributes:
        opening: The words that the example begins with and that say nothing of its subject ("what are the"), or "".
    """

    text: str
    shown: tuple[str, ...]
    least: int
    most: int
    form: str
    opening: str

    @property
    def length(self) -> str:
        """Return the paper's class of its length."""
        return class_of((self.least + self.most) // 2)


def form_of(text: str, language: str) -> str:
    """Return `question` (by its ending), `keywords` (no function word), or else `sentence`."""
    if text.rstrip(" \"'”’»").endswith(_QUESTION):
        return "question"
    known = STOPWORDS.get(language)
    if known and not any(word.casefold() in known for word in words(text, language)):
        return "keywords"
    return "sentence"


def draw_examples(examples: Sequence[str], key: str, language: str) -> Model:
    """Return the examples for one query, decided by `key` alone."""
    shown = rng(key, "examples").sample(list(examples), min(MAX_EXAMPLES, len(examples)))
    count = max(1, count_words(shown[0], language))
    least, most = max(1, math.floor(count * 0.6)), math.ceil(count * 1.5) + 1
    form = form_of(shown[0], language)
    opening = "" if form == "keywords" else _opening(shown[0], tuple(examples), language)
    return Model(shown[0], tuple(shown), least, most, form=form, opening=opening)


def _opening(text: str, examples: tuple[str, ...], language: str) -> str:
    """Return the first words of an example, each a function word or a word that other examples begin with, too."""
    if language in SPACELESS:
        return ""
    style = _first_words(examples) | STOPWORDS.get(language, frozenset())
    tokens = text.split()
    begins = itertools.takewhile(lambda word: word.isalpha() and word.casefold() in style, tokens[:MAX_OPENING_WORDS])
    return " ".join(list(begins)[: len(tokens) - 1])


@lru_cache(maxsize=4)
def _first_words(examples: tuple[str, ...]) -> frozenset[str]:
    counts = Counter(first[0].casefold() for text in examples if (first := text.split(maxsplit=1)))
    return frozenset(word for word, count in counts.items() if count >= max(2, MIN_COMMON_SHARE * len(examples)))


def unlike_model(text: str, model: Model | None, language: str) -> Problem | None:
    """Return a problem if a query is much shorter or longer than its model, or only it has a question mark."""
    if model is None:
        return None
    count = count_words(text, language)
    if not model.least <= count <= model.most:
        return Problem("wrong length", f"it has {count} words, wanted are {model.least} to {model.most}")
    asks = form_of(text, language) == "question"
    if asks != (model.form == "question"):
        return Problem("wrong form", "end it with a question mark" if not asks else "write it without a question mark")
    return None


def repeats_example(text: str, examples: tuple[str, ...], language: str) -> Problem | None:
    """Return whether a query is a near duplicate of any example, or holds `RUN` words of one in a row: real queries
    must not leak into a benchmark.
    """
    tokens = folded_words(text, language)
    shares_run = any(run in _runs(examples, language) for run in _windows(tokens))
    if shares_run or any(alike(frozenset(tokens), example) for example in _word_sets(examples, language)):
        return Problem("repeats an example", told="it repeats one of the examples; write about the document alone")
    return None


@lru_cache(maxsize=4)
def _word_sets(examples: tuple[str, ...], language: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(folded_words(text, language)) for text in examples)


def _windows(tokens: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(tokens[start : start + MAX_SHARED_WORDS]) for start in range(len(tokens) - MAX_SHARED_WORDS + 1))


@lru_cache(maxsize=4)
def _runs(examples: tuple[str, ...], language: str) -> frozenset[tuple[str, ...]]:
    return frozenset(run for text in examples for run in _windows(folded_words(text, language)))


Draw = Callable[[int], Coroutine[Any, Any, tuple[Any, int] | Problem]]


def one_line(value: Any) -> str:
    """Return the query of an answer, with single spaces."""
    return " ".join(value["query"].split())


async def draw_drafts(lineage: Lineage, tools: Tools, parent: str, draw: Draw) -> list[Candidate]:
    """Return the rows of all drafts, in their order.

    `draw(k)` asks for the draft number k, once. One that repeats an earlier one in any letters has a problem. Without
    `tools.find`, every score is 0.
    """
    answers = await together(*(draw(place) for place in range(tools.pipeline.generation.candidates)))
    drafts, seen = list[tuple[str, str]](), set[str]()  # text and problem
    for answer in answers:
        if isinstance(answer, Problem):
            drafts.append((answer.answer, answer.reason))
            continue
        text = one_line(answer[0])
        drafts.append((text, "repeats an earlier draft" if text.casefold() in seen else ""))
        seen.add(text.casefold())
    usable = [text for text, problem in drafts if not problem]
    leads = await tools.find(lineage, usable, DRAFT_DEPTH) if tools.find is not None and usable else ()
    scores, fp = dict(zip(usable, leads, strict=False)), tools.plan["query"]
    return [
        Candidate(
            key=row_key("candidate", parent, fp, place),
            parent=parent,
            fingerprint=fp,
            ordinal=place,
            text=text,
            problem=problem,
            score=0.0 if problem else scores.get(text, 0.0),
        )
        for place, (text, problem) in enumerate(drafts)
    ]


def best_of(drafts: list[Candidate]) -> Candidate | None:
    """Return the usable draft of the greatest score, of equal ones the first; None if none is usable."""
    usable = [draft for draft in drafts if not draft.problem]
    return max(usable, key=lambda draft: (draft.score, -draft.ordinal), default=None)


TWO_PASSAGES = "query_two_passages"


def _prompt(pipeline: Pipeline) -> str:
    if pipeline.generation.one_call:
        return one_call.PROMPT
    return "query_like" if pipeline.generation.examples else "query"


def _parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    generation = pipeline.generation
    if generation.one_call:
        # Whether votes are the labels decides which search is taken.
        votes = None if pipeline.control.judge.members else round_trip_parts(pipeline)
        return {**one_call.parts(pipeline), "candidates": votes}
    return {
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


def _like_values(model: Model) -> dict[str, Any]:
    return {
        "examples": "\n".join(model.shown),
        "least": model.least,
        "most": model.most,
        "form": model.form,
        "opening": model.opening,
    }


async def _from_one_call(lineage: Lineage, tools: Tools) -> list[Row]:
    """Return the first search that has no problem and finds its source, where that is asked; all of them are drafts."""
    parent, fp, language = lineage.one(Scenario).key, tools.plan["query"], tools.pipeline.query_language
    # Where votes are the labels, the query will be told apart from as many: each draft is asked about once.
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
    # The sample draws them, not the scenario: another character prompt then leaves the mix of attributes as it was.
    attributes = _attributes(pipeline, lineage.sample.key)
    length, kind = attributes["length_class"], attributes["type_class"]
    name = _prompt(pipeline) if lineage.partner is None else TWO_PASSAGES
    model = draw_examples(generation.example_texts, lineage.sample.key, language) if generation.examples else None
    constrained = bool(stage_prompt(pipeline, tools.prompts, name).constrain)

    def check(value: Any) -> Problem | None:
        text, source = value["query"], lineage.document
        own = [unlike_model(text, model, language), repeats_example(text, generation.example_texts, language)]
        cross = pipeline.cross_lingual  # then the words of the query and of the document cannot be compared
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
        text, attempts = one_line(result[0]), result[1]
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


def _show(lineage: Lineage) -> tuple[dict[str, Any], list[Told]]:
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
