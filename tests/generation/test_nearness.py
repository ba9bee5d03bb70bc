"""Queries near to their documents."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from stage_world import World

from airgen.generation.flow import CANDIDATES
from airgen.generation.query_checks import too_near
from airgen.llms.base import Request
from airgen.llms.prompts import PromptSet
from airgen.steps.lineage import Lineage
from airgen.storage.records import Query, Skip
from airgen.text.near_duplicates import borrowed

_, _, QUERY, REWRITE, ACCEPT = CANDIDATES
TITLE, TEXT = "Wing flutter", "Thin wings vibrate at high speed, and the flutter can tear them off."


def test_borrowed_by_hand() -> None:
    # Stems: wing, vibrat, bird; the first two are in the text.
    share, named = borrowed("vibrating wing of a bird", TEXT, "en")
    assert share == pytest.approx(2 / 3)
    assert named == ["vibrating", "wing"]
    assert borrowed("the of and", TEXT, "en") == (0.0, [])


def test_bounds_say_which_words_to_change(world: World) -> None:
    def said(query: str, title: str = TITLE, **bounds: float) -> str:
        found = too_near(query, title, f"{title}\n\n{TEXT}", world.pipeline(**bounds))
        return found.text if found else ""

    near = said("vibrating wing of a bird", max_overlap=0.5)
    assert "67%, at most 50%" in near and near.endswith("vibrating, wing")
    assert said("vibrating wing of a bird", max_overlap=0.7) == said("wing flutter") == ""
    # The title has its own limit.
    assert "repeats the document's title (100% of" in said("what is wing flutter", max_title_overlap=0.5)
    assert said("why do wings shake", max_title_overlap=0.5) == ""  # one of its two words
    assert said("wing flutter", "", max_title_overlap=0.5) == ""
    # Words of two languages are not compared.
    assert said("vibrating wing of a bird", max_overlap=0.5, query_language="de") == ""


def lineage(world: World) -> Lineage:
    return world.lineage("", TEXT, title=TITLE)


def in_turn(*texts: str) -> Callable[[Request], str]:
    """A model that gives these queries, the last one for ever."""
    left = list(texts)
    return lambda _: json.dumps({"query": left.pop(0) if len(left) > 1 else left[0]})


def test_without_rewriting_the_bound_is_for_the_query(world: World) -> None:
    world.answers(query=in_turn("why do thin wings vibrate", "why do things shake in winter"))
    (row,) = world.run(QUERY, lineage(world), world.pipeline(rewrites=0, max_overlap=0.5))
    assert isinstance(row, Query) and (row.text, row.attempts) == ("why do things shake in winter", 2)
    assert "thin, wings, vibrate" in world.llm.requests[1].messages[-1].content


def test_with_rewriting_it_is_for_the_last_rewrite_and_nothing_is_paid_for_what_stays_too_near(world: World) -> None:
    settings, near = world.pipeline(rewrites=1, max_overlap=0.5), "why do thin wings vibrate"
    world.answers(query=in_turn(near), rewrite=in_turn("do thin wings vibrate"), judgment=lambda _: "Yes")
    (row,) = world.run(QUERY, lineage(world), settings)
    assert isinstance(row, Query) and row.text == near
    (skipped,) = world.run(REWRITE, lineage(world).extended([row]), settings)
    assert isinstance(skipped, Skip) and skipped.stage == "rewrite"
    (refused,) = world.run(ACCEPT, lineage(world).extended([row]), settings)
    assert isinstance(refused, Skip) and refused.stage == "judgment"
    assert refused.reason == "uses too many of the document's words"
    assert not [request for request in world.llm.requests if request.stage == "judgment"]


def test_without_rewriting_the_bounds_are_part_of_the_query(world: World) -> None:
    def of(**generation: Any) -> str:
        return QUERY.fingerprint(world.pipeline(**generation), PromptSet())

    assert of(rewrites=0) != of(rewrites=0, max_overlap=0.5) != of(rewrites=1) == of(rewrites=2, max_overlap=0.5)
