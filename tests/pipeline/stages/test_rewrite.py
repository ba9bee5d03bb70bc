"""Rewrites: free in length, as the paper's are; bound to a length where the settings say so."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from stage_world import World

from airgen.errors import SettingsError
from airgen.pipeline.stages import rewrite
from airgen.prompts import PromptSet
from airgen.records import Query, Rewrite, Skip
from airgen.settings import Pipeline
from airgen.settings.base import validate

SHORT = "how do bees make honey"
LONG = (
    "In what manner do these insects, having gathered the sweet liquid of blossoms, turn it by degrees into a food "
    "that lasts through all of the cold months without ever going bad?"
)


def made(world: World, **generation: object) -> list[Rewrite | Skip]:
    found = world.answers(rewrite={"query": LONG}).run(rewrite.STAGE, pipeline=world.pipeline(**generation))
    return [row for row in found if isinstance(row, Rewrite | Skip)]


def test_a_rewrite_may_be_longer_than_its_original(world: World) -> None:
    (row,) = made(world)
    assert isinstance(row, Rewrite) and row.text == LONG and row.attempts == 1
    assert "Length" not in world.llm.requests[0].messages[-1].content


def test_rewrites_can_be_bound_to_the_length_of_their_original(world: World) -> None:
    (row,) = made(world, rewrite_length="keep")
    assert isinstance(row, Skip) and row.reason == "wrong length"
    assert "- Length: " in world.llm.requests[0].messages[-1].content
    (row,) = made(world, prompts="small")  # the embedded model's family keeps what it had: a form of known length
    assert isinstance(row, Skip) and row.cause == "malformed"


def test_the_setting_is_part_of_the_work_only_where_it_is_written(world: World) -> None:
    def fingerprint(**generation: object) -> str:
        return rewrite.STAGE.fingerprint(world.pipeline(**generation), PromptSet())

    assert len({fingerprint(), fingerprint(rewrite_length="free"), fingerprint(rewrite_length="keep")}) == 3
    assert fingerprint(rewrite_length="auto") == fingerprint()
    values = {"name": "p", "task": "qa", "corpus": "c", "target": 1, "llm": {"backend": "scripted"}}
    wrong = {**values, "generation": {"prompts": "small", "rewrite_length": "free"}}
    with pytest.raises(SettingsError, match="rewrite_length: free needs prompts: default"):
        validate(wrong, Pipeline, "p.yaml")


@pytest.mark.parametrize("language", ["ar", "bn", "de", "es", "fa", "fr", "hi", "id", "ja", "ko", "ru", "zh"])
def test_the_translated_prompts_name_no_length_either(language: str) -> None:
    prompt = PromptSet().get(f"{language}/rewrite")
    values = {"language_name": "x", "document": "d", "query": "q", "style_class": "formal"}

    def lines(length: str) -> list[str]:
        return prompt.render(**values, length_class=length)[-1].content.splitlines()

    free, bound = lines("free"), lines("lt5")
    assert len(bound) == len(free) + 1 and [line for line in bound if line in free] == free


def examples(shared: Path) -> list[tuple[str, str, str]]:
    """(document, original query, rewritten query) of the paper's Tables 12 to 14."""
    (paper,) = (shared / "seeds").glob("003_*.txt")
    text = paper.read_text(encoding="utf-8")
    pattern = r"Original Positive:\n“(.*?)”\n.*?Original Query: (.*?)\nRewritten Query: (.*?)\n"
    found = re.findall(pattern, text, re.DOTALL)
    assert len(found) == 3
    return [(document.replace("\\n", "\n"), one, other) for document, one, other in found]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_papers_published_rewrites_pass_all_checks(number: int, shared: Path, world: World) -> None:
    """With the paper's defaults: two rounds, of which the last one is the published query."""
    document, original, published = examples(shared)[number]
    length = "lt10" if len(original.split()) < 10 else "10to20"
    lineage = world.lineage(document=document)
    passage = dataclasses.replace(lineage.passage, title="")
    query = dataclasses.replace(lineage.one(Query), text=original, length=length)
    lineage = dataclasses.replace(lineage, passage=passage, rows=(*lineage.rows[:2], query))
    world.answers(rewrite=lambda _: json.dumps({"query": published}))
    (row,) = world.run(rewrite.STAGE, lineage, world.pipeline(lengths={length: 1}))
    assert isinstance(row, Rewrite), row
    assert (row.text, row.attempts) == (published, 1)
