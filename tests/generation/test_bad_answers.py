"""Models that answer in prose, refuse, repeat the prompt, use another language, or give one item for three."""

import json
import re
from typing import Any

import pytest

from airgen import models
from airgen.generation.flow import CANDIDATES
from airgen.generation.hard_negative import HARD_NEGATIVE
from airgen.llms.base import Request
from airgen.steps.step import Step
from airgen.storage.records import Character, HardNegative, Judgment, Query, Rewrite, Skip

CHARACTER, SCENARIO, QUERY, REWRITE, ACCEPT = CANDIDATES
STAGES = (*CANDIDATES, HARD_NEGATIVE)
ASKING = [CHARACTER, SCENARIO, QUERY, REWRITE, HARD_NEGATIVE]


def skipped(rows: list[Any]) -> Skip:
    (row,) = rows
    assert isinstance(row, Skip)
    return row


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_prose_is_asked_again_a_refusal_is_not_and_both_are_given_up_with_the_words_kept(
    world: Any, stage: Step
) -> None:
    row = skipped(world.fails("prose").run(stage))
    assert (row.reason, row.cause) == ("malformed", "malformed")
    assert "as a language model" in row.detail
    assert len(world.llm.requests) == (2 if stage is ACCEPT else 3)
    again = world.llm.requests[1].messages
    assert "as a language model" in again[-2].content and "cannot be used" in again[-1].content
    row = skipped(world.fails("refuse").run(stage))
    assert (row.reason, row.cause) == ("llm: content_filter", "llm")
    assert len(world.llm.requests) == 1
    assert skipped(world.fails("empty").run(stage)).reason == "malformed"


def repeated(request: Request) -> str:
    """The prompt's own last words, in the form that was asked for."""
    words = " ".join(request.messages[-1].content.split("Answer as")[0].split()[-60:])
    inner = {"character": ["characters"], "scenario": ["scenarios"]}.get(request.stage)
    if inner:
        return json.dumps({inner[0]: [words[:190]] * 3})
    if request.stage == "hard_negative":
        return json.dumps({"documents": [{"title": "a", "text": words}] * 3})
    return json.dumps({"query": " ".join(words.split()[-8:])})


@pytest.mark.parametrize("stage", ASKING, ids=lambda stage: stage.name)
def test_the_prompt_repeated_is_no_answer(world: Any, stage: Step) -> None:
    row = skipped(world.answers(**{stage.name: repeated}).run(stage))
    assert row.reason == "repeats the instructions"


@pytest.mark.parametrize("language", ["de", "es", "fr", "id"])
def test_an_example_of_the_prompt_is_no_answer(world: Any, language: str) -> None:
    example = re.compile(r'{"query": "([^"]+)"}')

    def parrot(request: Request) -> str:
        return json.dumps({"query": example.findall(request.messages[-1].content)[-1]})

    pipeline = world.pipeline(language, prompts="small", lengths={"10to20": 1})
    assert skipped(world.answers(query=parrot).run(QUERY, pipeline=pipeline)).reason == "repeats the instructions"


GERMAN = "Die Bienen sind im Winter in dem Stock und werden von der Königin nicht mehr gebraucht, Nummer "


@pytest.mark.parametrize(
    ("texts", "usable"),
    [([GERMAN + str(n) for n in range(7)], 0), (["Wasps make paper of wood, and no honey at all."], 1)],
    ids=["another language", "one for three"],
)
def test_too_few_negatives_are_asked_again(world: Any, texts: list[str], usable: int) -> None:
    world.answers(hard_negative={"documents": [{"title": "", "text": text} for text in texts]})
    assert skipped(world.run(HARD_NEGATIVE)).reason == "too few usable documents"
    assert f"{usable} usable documents, but" in world.llm.requests[-1].messages[-1].content
    assert len(world.llm.requests) == 3


def test_one_character_for_three_is_taken(world: Any) -> None:
    (row,) = world.answers(character={"characters": ["a cook"]}).run(CHARACTER)
    assert isinstance(row, Character) and (row.text, row.options) == ("a cook", ["a cook"])


def test_negatives_are_neither_the_positive_nor_each_other(world: Any) -> None:
    document = world.lineage().passage.text
    texts = [
        document, document.upper(), "Wasps make paper of chewed wood and hang their nests in trees.",
        "Wasps make paper of chewed wood, and hang their nests in trees!", "Ants farm aphids for the dew they give.",
        "Spiders spin silk that is stronger than steel of the same weight.",
    ]  # fmt: skip
    world.answers(hard_negative={"documents": [{"title": str(n), "text": text} for n, text in enumerate(texts)]})
    rows = world.run(HARD_NEGATIVE, pipeline=world.pipeline(hard_negatives=[3, 3]))
    assert [row.title for row in rows if isinstance(row, HardNegative)] == ["2", "4", "5"]
    assert [row.ordinal for row in rows] == [1, 2, 3]
    # Four are wanted and three are there: not worth another call, as three is the least.
    world.run(HARD_NEGATIVE, pipeline=world.pipeline(hard_negatives=[3, 4]))
    assert len(world.llm.requests) == 2


def test_a_bad_first_answer_is_mended_by_the_reason(world: Any) -> None:
    def learns(request: Request) -> str:
        told = request.messages[-1].content
        return json.dumps({"query": "who seals the cells" if "wrong length" in told else "bees " * 12})

    (row,) = world.answers(query=learns).run(QUERY)
    assert isinstance(row, Query) and (row.text, row.attempts) == ("who seals the cells", 2)
    first, second = world.llm.requests
    assert second.messages[: len(first.messages)] == first.messages  # a prefix cache serves it
    assert (first.sample, second.sample) == (0, 1)
    assert "it has 12 words, but must have fewer than 10 words" in second.messages[-1].content


@pytest.mark.parametrize(
    ("stage", "answer", "reason"),
    [
        (QUERY, "what does the passage say of bees", "refers to the document"),
        (QUERY, "do workers pass it from mouth to mouth until", "copies the document: 8 words in a row"),
        (QUERY, "how do bees bees bees bees bees bees make", "repeats itself: only 4 of its 9 words are different"),
        (QUERY, "蜜蜂怎样酿造蜂蜜呢", "wrong language"),
        (REWRITE, "蜜蜂怎样酿造蜂蜜呢", "wrong language"),
        (QUERY, None, "malformed"),
        # A rewrite must lose words of the document.
        (REWRITE, "How do bees make honey", "says the same words again"),
        (REWRITE, "how do honey bees collect nectar", "shares more words with the document than before"),
        (REWRITE, "how does that sweet stuff come about", None),
    ],
)
def test_what_fails_a_check_is_dropped_with_the_reason(
    world: Any, stage: Step, answer: str | None, reason: str | None
) -> None:
    value = {"query": answer} if answer else {"question": "honey"}
    lineage = world.lineage(
        "how do bees brew their sweet stuff" if "nectar" in str(answer) else "how do bees make honey"
    )
    (row,) = world.answers(**{stage.name: value}).run(stage, lineage)
    if reason is None:
        assert isinstance(row, Rewrite) and row.ordinal == 1
    else:
        assert f"{row.reason}: {row.detail}".startswith(reason)


@pytest.mark.parametrize(
    ("answer", "kept"), [("what do insects brew sweet syrup out of", True), ("who pays rent", False)]
)
def test_a_rewrite_keeps_the_meaning_of_the_original_by_a_real_model(world: Any, answer: str, kept: bool) -> None:
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen fetch tests")
    from airgen.retrievers import load_embedder

    world.meaning = load_embedder("all-minilm-l6-v2-int8")
    pipeline = world.pipeline(meaning={"model": "all-minilm-l6-v2-int8", "min_cosine": 0.35})
    rows = world.answers(rewrite={"query": answer}).run(REWRITE, pipeline=pipeline)
    if kept:
        assert isinstance(rows[0], Rewrite)
    else:
        row = skipped(rows)
        assert row.reason == "changed its meaning" and row.detail.startswith("similarity 0.")


def test_a_round_that_fails_leaves_the_round_before(world: Any) -> None:
    def second_fails(request: Request) -> str:
        good = "how do bees make honey" in request.messages[-1].content
        return json.dumps({"query": "how does that sweet stuff come about" if good else "honey bees collect nectar"})

    rows = world.answers(rewrite=second_fails).run(REWRITE, pipeline=world.pipeline(rewrites=2))
    assert [(row.text, row.ordinal) for row in rows if isinstance(row, Rewrite)] == [
        ("how does that sweet stuff come about", 1)
    ]


def test_a_level_in_prose_is_asked_for_once_more(world: Any) -> None:
    def learns(request: Request) -> str:
        return "3" if "one number" in request.messages[-1].content else "It is fairly relevant."

    (row,) = world.answers(judgment=learns).run(ACCEPT)
    assert isinstance(row, Judgment) and row.level == 3
    assert len(world.llm.requests) == 2


def test_a_small_model_is_told_what_was_wrong_and_not_shown_it(world: Any) -> None:
    world.fails("prose").run(QUERY, pipeline=world.pipeline(prompts="small"))
    first, second, _ = world.llm.requests
    assert len(second.messages) == len(first.messages)
    assert "could not be used: malformed" in second.messages[-1].content
    assert "as a language model" not in second.messages[-1].content
