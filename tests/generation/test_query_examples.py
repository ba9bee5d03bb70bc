"""Queries in the style of real ones."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from beir_folder import read_rows
from job_maker import LEXICAL, Run

from airgen.errors import SettingsError
from airgen.generation.flow import CANDIDATES
from airgen.generation.query_examples import draw_examples, form_of, repeats_example, unlike_model
from airgen.generation.query_pattern import words_pattern
from airgen.job import Job
from airgen.llms.base import Reply, Request

_, _, QUERY, REWRITE, ACCEPT = CANDIDATES
TITLE, TEXT = "Wing flutter", "Thin wings vibrate at high speed, and the flutter can tear them off."
JOB = LEXICAL
EXAMPLES = (
    *(f"which {word} need repair?" for word in ("bells", "boats", "clocks", "roofs", "wells")),
    *(f"{word} prices" for word in ("tea", "salt", "rope", "wool", "tin")),
)


CHANGES = {"target: 4": "target: 6\ngeneration: {examples: examples.txt, rewrites: 0, hard_negatives: [0, 0]}"}


@pytest.fixture
def examples(folder: Path) -> Path:
    path = folder / "examples.txt"
    path.write_text("\n".join(EXAMPLES), encoding="utf-8")
    return path


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


@pytest.mark.parametrize(
    ("text", "fits"),
    [("what are the equations", True), ("what are the equations here", True), ("what are the", False),
     ("what is the equation", False), ("what are the equations of motion", False)],  # six words
)  # fmt: skip
def test_an_opening_binds_the_answer_of_a_small_model(text: str, fits: bool) -> None:
    assert bool(re.match(words_pattern(3, 5, False, "en", "what are the ") or "", text)) is fits


def test_eight_words_of_an_example_in_a_row_are_content() -> None:
    long = "can a criterion be developed to show empirically the validity of flow solutions in gases and elsewhere"
    examples = (*EXAMPLES, long)
    assert repeats_example("can a criterion be developed to show bees are happy", examples, "en") is None  # seven
    assert repeats_example("Can a criterion be developed to show empirically why bees fly?", examples, "en") is not None


def test_a_job_writes_as_the_examples_do(run: Run, examples: Path, asked: list[Request]) -> None:
    rows = read_rows(run(changes=CHANGES).directory / "dataset" / "queries.jsonl")
    assert {row["metadata"]["type"] for row in rows} <= {"question", "keywords"}
    assert all(row["text"].endswith("?") == (row["metadata"]["type"] == "question") for row in rows)
    assert all(len(row["text"].split()) <= 7 for row in rows)
    first = [request.messages for request in asked if request.stage == "query"]
    prompts = [messages[-1].content for messages in first if "assistant" not in {one.role for one in messages}]
    assert prompts and all("<examples>" in text for text in prompts)
    assert all(sum(example in text for example in EXAMPLES) == 4 for text in prompts)
    # The same bytes of the file are the same job; other examples are other queries.
    job = examples.parent / "job.yaml"
    before = Job(job, examples.parent / "runs").fingerprints["query"]
    examples.write_text("\n".join([*EXAMPLES, "oats prices"]), encoding="utf-8")
    assert Job(job, examples.parent / "runs").fingerprints["query"] != before


def test_an_example_that_comes_back_is_refused_and_a_small_model_is_shown_none(
    run: Run, examples: Path, model_says: Callable[..., None]
) -> None:
    prompts = list[str]()

    def parrot(request: Request) -> Reply | None:
        if request.stage != "query":
            return None
        prompts.append(request.messages[-1].content)
        if len(prompts) % 2:  # every other query is an example at first
            return Reply(json.dumps({"query": EXAMPLES[0]}), prompt_tokens=1, completion_tokens=1)
        return None

    model_says(parrot)
    small = CHANGES["target: 4"].replace("{examples", "{variants: {query_like: small/query_like}, examples")
    result = run(changes={"target: 4": small, "concurrency: 32": "concurrency: 1"})
    texts = [row["text"] for row in read_rows(result.directory / "dataset" / "queries.jsonl")]
    assert texts and not any(repeats_example(text, EXAMPLES, "en") for text in texts)
    assert any("repeats one of the examples" in text for text in prompts)
    assert any('Begin with "which".' in text for text in prompts)
    first = [text for text in prompts if "Answer again" not in text]
    assert len(first) >= 6 and not any(example in text for text in first for example in EXAMPLES)


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        ("one\ntwo\n", "", "has 2 queries, but 10 to 10,000 are needed"),
        (None, "", "examples.txt cannot be read"),
        ("\n".join(EXAMPLES), ", rewrites: 1", "examples needs rewrites: 0"),
    ],
)
def test_wrong_examples(run: Run, folder: Path, content: str | None, more: str, words: str) -> None:
    if content is not None:
        (folder / "examples.txt").write_text(content, encoding="utf-8")
    rewrites = more or ", rewrites: 0"
    with pytest.raises(SettingsError, match=words):
        run(changes={"target: 4": f"target: 6\ngeneration: {{examples: examples.txt{rewrites}}}"})
