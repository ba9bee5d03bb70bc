"""How near a query may be to its document, and asking from the need alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.keys import content_key
from airgen.llms.base import Request
from airgen.pipeline.stage import Lineage, Tools
from airgen.pipeline.stages import Flow
from airgen.pipeline.stages.attributes import too_near
from airgen.prompts import PromptSet
from airgen.records import Answer, Character, Passage, Sample, Scenario
from airgen.settings import GenerationSettings, Pipeline
from airgen.text.near_duplicates import borrowed

TITLE, TEXT = "Wing flutter", "Thin wings vibrate at high speed, and the flutter can tear them off."
PASSAGE = Passage("p", "d1", 0, TEXT, TITLE)


def test_borrowed_by_hand() -> None:
    # Stems: wing, vibrat, bird; the first two are in the text.
    share, named = borrowed("vibrating wing of a bird", TEXT, "en")
    assert share == pytest.approx(2 / 3)
    assert named == ["vibrating", "wing"]
    assert borrowed("the of and", TEXT, "en") == (0.0, [])


@given(st.text("abcde fghi 12", max_size=60))
def test_a_text_borrows_all_of_itself(text: str) -> None:
    share, named = borrowed(text, text, "en")
    assert share in (0.0, 1.0)  # 0 where it has no word that counts
    assert bool(named) == (share == 1.0)


def test_bounds_say_which_words_to_change() -> None:
    bounds = GenerationSettings(max_overlap=0.5)
    said = too_near("vibrating wing of a bird", TITLE, f"{TITLE}\n\n{TEXT}", "en", bounds)
    assert said is not None
    assert "67%, at most 50%" in said.text
    assert said.text.endswith("vibrating, wing")
    assert too_near("vibrating wing of a bird", TITLE, TEXT, "en", GenerationSettings(max_overlap=0.7)) is None
    assert too_near("wing flutter", TITLE, TEXT, "en", GenerationSettings()) is None


def test_the_title_has_a_bound_of_its_own() -> None:
    bounds = GenerationSettings(max_title_overlap=0.5)
    said = too_near("what is wing flutter", TITLE, TEXT, "en", bounds)
    assert "repeats the document's title (100%" in said.text if said else False
    assert too_near("why do wings shake", TITLE, TEXT, "en", bounds) is None  # one of its two words
    assert too_near("wing flutter", "", TEXT, "en", bounds) is None


def pipeline(**generation: Any) -> Pipeline:
    return Pipeline.model_validate(
        {"name": "t", "task": "qa", "corpus": "c", "target": 1, "llm": {"backend": "scripted"},
         "generation": {"lengths": {"lt10": 1}, "types": {"question": 1}, **generation}}
    )  # fmt: skip


class Says:
    """A model that gives its answers in turn, and remembers what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[Request]()

    async def ask(self, request: Request) -> Answer:
        self.asked.append(request)
        text = self.answers[min(len(self.asked), len(self.answers)) - 1]
        return Answer(content_key(len(self.asked)), request.stage, request.model, "", text)


def work(name: str, lineage: Lineage, model: Says, settings: Pipeline) -> list[Any]:
    prompts = PromptSet()
    stage = next(one for one in Flow().every if one.name == name)
    fingerprints = {one.name: one.fingerprint(settings, prompts) for one in Flow().every}
    tools = Tools(settings, prompts, fingerprints, model)  # type: ignore[arg-type]
    return list(asyncio.run(stage.work(lineage, tools)))


def lineage() -> Lineage:
    scenario = Scenario("n", "c", "f", 0, "Checking why an aeroplane shakes in a dive.")
    return Lineage(PASSAGE, Sample("s", "p", "f", 0), (Character("c", "s", "f", 0, "a pilot"), scenario))


def query(text: str) -> str:
    return json.dumps({"query": text})


def test_without_rewriting_the_bound_is_for_the_query() -> None:
    model = Says(query("why do thin wings vibrate"), query("why does an aircraft shake"))
    (row,) = work("query", lineage(), model, pipeline(rewrites=0, max_overlap=0.5))
    assert (row.text, row.attempts) == ("why does an aircraft shake", 2)
    assert "thin, wings, vibrate" in model.asked[1].messages[-1].content


def test_with_rewriting_it_is_for_the_last_rewrite_and_nothing_is_paid_for_what_stays_too_near() -> None:
    settings = pipeline(rewrites=1, max_overlap=0.5)
    near = "why do thin wings vibrate"
    (row,) = work("query", lineage(), Says(query(near)), settings)
    assert row.text == near
    (skipped,) = work("rewrite", lineage().extended([row]), Says(query("do thin wings vibrate")), settings)
    assert skipped.stage == "rewrite"
    judge = Says("Yes")
    (refused,) = work("judgment", lineage().extended([row]), judge, settings)
    assert refused.stage == "judgment"
    assert refused.reason == "uses too many of the document's words"
    assert judge.asked == []


def test_asked_from_the_need_the_document_is_not_shown() -> None:
    model = Says(query("why does my aircraft shake"))
    work("query", lineage(), model, pipeline(query_from="need"))
    shown = "\n".join(message.content for message in model.asked[0].messages)
    assert "shakes in a dive" in shown
    assert "flutter" not in shown and "Thin" not in shown


def test_bounds_change_the_stage_that_checks_them() -> None:
    prompts = PromptSet()

    def of(settings: Pipeline) -> dict[str, str]:
        return {one.name: one.fingerprint(settings, prompts) for one in Flow().every}

    def changed(one: dict[str, str], other: dict[str, str]) -> set[str]:
        return {name for name in one if one[name] != other[name]}

    plain = of(pipeline())
    assert of(pipeline(max_overlap=None)) == plain
    assert changed(plain, of(pipeline(max_overlap=0.5))) == {"rewrite"}
    assert changed(of(pipeline(rewrites=0)), of(pipeline(rewrites=0, max_overlap=0.5))) >= {"query"}
    assert changed(plain, of(pipeline(query_from="need"))) == {"query"}


def test_whether_the_bounds_are_for_the_query_is_part_of_its_fingerprint() -> None:
    """With rewriting the bounds are checked on the rewrite, otherwise on the query: the key must differ, too."""
    query_stage, prompts = next(stage for stage in Flow().every if stage.name == "query"), PromptSet()

    def of(**generation: Any) -> str:
        return query_stage.fingerprint(pipeline(**generation), prompts)

    assert of(max_overlap=0.5, rewrites=2) == of(max_overlap=0.5, rewrites=1) != of(max_overlap=0.5, rewrites=0)
