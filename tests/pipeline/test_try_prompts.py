"""`airgen check prompts`: two versions of a prompt side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke

from airgen.errors import PromptError
from airgen.llms.base import Refused, Reply, Request
from airgen.llms.scripted import ScriptedBackend
from airgen.paths import data_dir


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A pipeline of three documents that needs no model."""
    lines = [
        {"id": f"d{n}", "title": f"Honey {n}", "text": f"Bees number {n} collect nectar from orange flowers in spring."}
        for n in range(3)
    ]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "c.yaml").write_text(
        "name: c\nlanguage: en\ndomain: test\nlicence: CC0-1.0\nsource: made by the tests\n"
        "reader: {kind: jsonl, path: c.jsonl}\n"
        'clean: {min_tokens: 1, language: "off", boilerplate: "off", personal_data: "off", near_duplicates: null}\n'
    )
    (tmp_path / "p.yaml").write_text(
        "name: p\ntask: qa\ncorpus: c.yaml\ntarget: 3\nllm: {backend: scripted}\n"
        "generation: {lengths: {lt10: 1}, types: {question: 1}}\n"
    )
    return tmp_path / "p.yaml"


def call(*arguments: object) -> Any:
    return invoke("check", "prompts", *arguments, raises=True)


def test_two_versions_on_n_documents(pipeline: Path) -> None:
    edited = pipeline.parent / "mine" / "query.j2"
    edited.parent.mkdir()
    text = (data_dir("prompts") / "query.j2").read_text(encoding="utf-8")
    edited.write_text(text.replace("Length: {{ length }}.", "Length: at least 20 words."), encoding="utf-8")
    runs = pipeline.parent / "runs"
    value = json.loads(call(pipeline, "query", edited, "-n", 2, "--runs", runs, "--json").stdout)
    assert len(value["documents"]) == 2
    for row in value["documents"]:
        assert list(row["tried"]) == ["query", str(edited)]
        ours, theirs = row["tried"].values()
        assert ours["problem"] == "" and len(json.loads(ours["answer"])["query"].split()) == 8
        assert theirs["problem"] == "wrong length: it has 24 words, wanted is fewer than 10 words"
    totals = value["totals"]
    assert totals["query"]["usable"] == 2 and totals[str(edited)]["usable"] == 0
    assert 0 < totals["query"]["borrowed"] < 1
    text = call(pipeline, "query", edited, "-n", 2, "--runs", runs).stdout
    assert "2 of 2" in text and "0 of 2" in text and "(wrong length" in text


def test_answers_are_kept(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = pipeline.parent / "runs"
    first = call(pipeline, "character", "--runs", runs).stdout

    async def refuse(self: ScriptedBackend, request: Request) -> Reply:
        raise Refused("content_filter")

    monkeypatch.setattr(ScriptedBackend, "send", refuse)
    assert call(pipeline, "character", "--runs", runs).stdout == first
    assert "content_filter" in call(pipeline, "scenario", "--runs", runs).stdout


def test_every_shipped_prompt_can_be_tried(pipeline: Path) -> None:
    from airgen.prompts import PromptSet

    names = PromptSet().names()
    value = json.loads(call(pipeline, *names, "-n", 1, "--runs", pipeline.parent / "runs", "--json").stdout)
    assert list(value["totals"]) == names
    judged = value["documents"][0]["tried"]["judge"]
    assert judged["answer"] in {"0", "1", "2", "3"} and judged["borrowed"] is None


def test_an_answer_that_repeats_its_prompt_is_not_usable(pipeline: Path) -> None:
    parrot = pipeline.parent / "query_parrot.j2"
    text = (data_dir("prompts") / "query.j2").read_text(encoding="utf-8")
    # The scripted model fills its queries up with these words.
    parrot.write_text(
        text.replace("{{ length }}.", "at least 20 words. What is meant here and how one would go about it.")
    )
    value = json.loads(call(pipeline, parrot, "-n", 1, "--runs", pipeline.parent / "runs", "--json").stdout)
    (tried,) = value["documents"][0]["tried"].values()
    assert tried["problem"].startswith("repeats the instructions") and value["totals"][str(parrot)]["usable"] == 0


def test_a_prompt_that_there_is_not_is_named(pipeline: Path) -> None:
    with pytest.raises(PromptError, match="did you mean 'query'"):
        call(pipeline, "qery", "--runs", pipeline.parent / "runs")
    with pytest.raises(PromptError, match="no prompt 'gone'"):
        call(pipeline, pipeline.parent / "gone.j2", "--runs", pipeline.parent / "runs")
