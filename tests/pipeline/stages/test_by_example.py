"""Queries in the style of real ones: length and form come from the examples, content never does."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from job_maker import Run

from airgen.errors import SettingsError
from airgen.llms.base import Reply, Request
from airgen.llms.scripted import ScriptedBackend
from airgen.pipeline import Job
from airgen.pipeline.stages.attributes import words_pattern
from airgen.pipeline.stages.query import draw_examples, form_of, repeats_example, unlike_model

EXAMPLES = (
    *(f"which {word} need repair?" for word in ("bells", "boats", "clocks", "roofs", "wells")),
    *(f"{word} prices" for word in ("tea", "salt", "rope", "wool", "tin")),
)
CHANGES = {"target: 12": "target: 6\ngeneration: {examples: examples.txt, rewrites: 0, hard_negatives: [0, 0]}"}


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("which bells need repair?", "question"),
        ("tea prices", "keywords"),
        ("the price of tea", "sentence"),
        ("茶の値段は？", "question"),
    ],
)
def test_forms(text: str, form: str) -> None:
    assert form_of(text, "ja" if "茶" in text else "en") == form


def test_the_model_is_drawn_by_the_key_and_bounds_the_query() -> None:
    drawn = [draw_examples(EXAMPLES, f"key {number}", "en") for number in range(200)]
    assert draw_examples(EXAMPLES, "key 7", "en") == drawn[7]
    forms = Counter(model.form for model in drawn)
    assert 70 <= forms["question"] <= 130  # half of the examples
    question = next(model for model in drawn if model.form == "question")
    assert (question.least, question.most) == (2, 7) and question.shown[0] == question.text
    assert unlike_model("which harbours differ in colour?", question, "en") is None
    assert unlike_model("which harbours differ in colour", question, "en").reason == "wrong form"
    assert unlike_model("harbours?", question, "en").reason == "wrong length"
    assert repeats_example("Which roofs need repair", EXAMPLES, "en").reason == "repeats an example"
    assert repeats_example("which lanterns decline slowly?", EXAMPLES, "en") is None


@pytest.mark.parametrize(
    ("text", "opening"),
    [
        ("what are the equations of flow", "what are the"),  # `what` begins two examples, the rest are function words
        ("papers on slip flow", "papers on"),
        ("thrust vector control for what", ""),  # no other example begins so
        ("what is it", "what is"),  # a word is left to write
        ("papers, cheap, for flow", ""),  # a mark could be one of the grammar's
        ("papers what", ""),  # keywords begin with their subject
    ],
)
def test_the_opening_of_an_example_says_nothing_of_its_subject(text: str, opening: str) -> None:
    examples = ("what are papers worth", "papers on the moon", *(f"{word} is" for word in "abcdefghij"))
    key = next(str(one) for one in range(1000) if draw_examples((text, *examples), str(one), "en").text == text)
    assert draw_examples((text, *examples), key, "en").opening == opening


def test_an_opening_binds_the_answer_of_a_small_model() -> None:
    pattern = words_pattern(3, 5, False, "en", "what are the ")
    assert pattern is not None
    assert re.match(pattern, "what are the equations") and re.match(pattern, "what are the equations here")
    assert not re.match(pattern, "what are the")
    assert not re.match(pattern, "what is the equation")
    assert not re.match(pattern, "what are the equations of motion")  # six words


def test_eight_words_of_an_example_in_a_row_are_content() -> None:
    long = "can a criterion be developed to show empirically the validity of flow solutions in gases and elsewhere"
    examples = (*EXAMPLES, long)
    assert repeats_example("can a criterion be developed to show bees are happy", examples, "en") is None  # seven
    assert repeats_example("Can a criterion be developed to show empirically why bees fly?", examples, "en") is not None


def test_a_small_model_is_shown_no_example(run: Run, folder: Path, asked: list[Request]) -> None:
    (folder / "examples.txt").write_text("\n".join(EXAMPLES), encoding="utf-8")
    changes = {
        "target: 12": CHANGES["target: 12"].replace("{examples", "{variants: {query_like: small/query_like}, examples")
    }
    run(changes=changes)
    prompts = [request.messages[-1].content for request in asked if request.stage == "query"]
    assert prompts and not any(example in text for text in prompts for example in EXAMPLES)
    assert any('Begin with "which".' in text for text in prompts)


def test_a_job_writes_as_the_examples_do(run: Run, folder: Path, asked: list[Request]) -> None:
    (folder / "examples.txt").write_text("\n".join(EXAMPLES), encoding="utf-8")
    result = run(changes=CHANGES)
    rows = [json.loads(line) for line in (result.directory / "dataset" / "queries.jsonl").read_text().splitlines()]
    assert {row["metadata"]["type"] for row in rows} <= {"question", "keywords"}
    assert all(row["text"].endswith("?") == (row["metadata"]["type"] == "question") for row in rows)
    assert all(len(row["text"].split()) <= 7 for row in rows)
    first = [request.messages for request in asked if request.stage == "query"]
    prompts = [messages[-1].content for messages in first if "assistant" not in {one.role for one in messages}]
    assert prompts and all("<examples>" in text for text in prompts)
    assert all(sum(example in text for example in EXAMPLES) == 4 for text in prompts)
    # The same bytes of the file are the same job; other examples are other queries.
    before = Job(folder / "job.yaml", folder / "runs").fingerprints["query"]
    (folder / "examples.txt").write_text("\n".join([*EXAMPLES, "oats prices"]), encoding="utf-8")
    assert Job(folder / "job.yaml", folder / "runs").fingerprints["query"] != before


def test_an_example_that_comes_back_is_refused(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "examples.txt").write_text("\n".join(EXAMPLES), encoding="utf-8")
    send, told = ScriptedBackend.send, []

    async def parrot(self: ScriptedBackend, request: Request) -> Reply:
        if request.stage != "query" or len(request.messages) > 2:
            told.extend(message.content for message in request.messages if "cannot be used" in message.content)
            return await send(self, request)
        first = request.messages[-1].content.partition("<examples>\n")[2].partition("\n")[0]
        return Reply(json.dumps({"query": first}), prompt_tokens=1, completion_tokens=1)

    monkeypatch.setattr(ScriptedBackend, "send", parrot)
    result = run(changes=CHANGES)
    lines = (result.directory / "dataset" / "queries.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert texts and not any(repeats_example(text, EXAMPLES, "en") for text in texts)
    assert any("repeats" in text for text in told)


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        ("one\ntwo\n", "", "has 2 queries, wanted are 10 to 10,000"),
        (None, "", "examples.txt cannot be read"),
        ("\n".join(EXAMPLES), ", rewrites: 1", "examples needs rewrites: 0"),
    ],
)
def test_wrong_examples(run: Run, folder: Path, content: str | None, more: str, words: str) -> None:
    if content is not None:
        (folder / "examples.txt").write_text(content, encoding="utf-8")
    rewrites = more or ", rewrites: 0"
    with pytest.raises(SettingsError, match=words):
        run(changes={"target: 12": f"target: 6\ngeneration: {{examples: examples.txt{rewrites}}}"})
