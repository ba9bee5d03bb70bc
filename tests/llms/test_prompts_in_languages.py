"""Small models are instructed in four languages of their own; in all others in English, as in the paper."""

import json
import re
from itertools import product
from pathlib import Path

import jsonschema
import pytest
from prompt_reader import PROMPTS, VALUES

from airgen.generation.attributes import WORDS
from airgen.generation.one_call import keywords_pattern
from airgen.generation.query_checks import wrong_length, wrong_type
from airgen.llms.prompts import Prompt, PromptSet
from airgen.settings import INFORMATION, STYLES, TYPES, Pipeline
from airgen.settings.languages import LANGUAGES, language_name
from airgen.settings.model_size import ONE_CALL_LANGUAGES, READ, reading_words
from airgen.steps.step import stage_prompt
from airgen.text.language_check import wrong_language

OTHERS = ["de", "es", "fr", "id"]
STEPS = ("brief_hard_negative", "character", "hard_negative", "query", "rewrite", "scenario")


def prompts_of(language: str) -> list[Prompt]:
    return [PROMPTS.get(f"small/{language}/{name}") for name in STEPS]


def rendered(prompt: Prompt, **values: object) -> str:
    return "".join(f"=== {one.role} ===\n{one.content}\n" for one in prompt.render(**{**VALUES, **values}))


def test_every_language_has_every_step_and_no_other() -> None:
    translated = {name for name in PROMPTS.names() if PROMPTS.get(name).translates}
    at_once = {f"small/{language}/searches" for language in ONE_CALL_LANGUAGES - {"en"}}
    assert translated == at_once | {f"small/{language}/{name}" for language in OTHERS for name in STEPS}


@pytest.mark.parametrize("language", sorted(ONE_CALL_LANGUAGES))
def test_the_worked_examples_pass_the_checks_that_answers_must_pass(language: str) -> None:
    """An example that a check refuses teaches the model to write what is thrown away."""
    prompt = PROMPTS.get(PROMPTS.in_language("small/searches", language))
    system, *turns, last = prompt.render(document="\ue000", language_name=language_name(language))
    shots = [(json.loads(turns[place + 1].content), turns[place].content) for place in range(0, len(turns), 2)]
    assert len(shots) >= 3 and "\ue000" in last.content and "\ue000" not in system.content
    assert isinstance(prompt.output, dict)
    for answer, asked in shots:
        jsonschema.validate(answer, prompt.output)
        assert [*answer] == prompt.output["required"]
        # The same question after each document, so that the prefix of all calls is one.
        assert asked.partition("</document>")[2] == last.content.partition("</document>")[2]
        if prompt.constrain:  # what the grammar would not let the model write
            document = asked.partition("<document>\n")[2].partition("\n</document>")[0]
            assert re.fullmatch(keywords_pattern(document, language) or "", answer["keywords"]), answer["keywords"]
        for kind in TYPES:
            assert wrong_type(answer[kind], kind, language) is None, answer[kind]
            assert wrong_language(answer[kind], language) is None, answer[kind]
            assert len(answer[kind]) < prompt.output["properties"][kind]["maxLength"] - 1


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_asks_for_the_same_with_the_same_material(language: str) -> None:
    for one in prompts_of(language):
        english = PROMPTS.get("small/" + one.name.rpartition("/")[2])
        assert one.translates == english.name
        # A text in English is replaced by its class, which the template names in its language.
        plain = {name.removesuffix("_class") for name in english.inputs}
        assert {name.removesuffix("_class") for name in one.inputs} == plain
        assert (one.constrain, one.count) == (english.constrain, english.count)
        assert type(one.output) is type(english.output)
        if isinstance(one.output, dict) and isinstance(english.output, dict):
            assert without_lengths(one.output) == without_lengths(english.output)
        values = VALUES | {"document": "\ue000", "query": "\ue001", "character": "\ue002", "scenario": "\ue003"}
        found, wanted = (re.findall("[\ue000-\ue003]|</?\\w+>", rendered(p, **values)) for p in (one, english))
        assert found == wanted  # the same material between the same tags, in the same order
        assert [m.role for m in one.render(**VALUES)] == [m.role for m in english.render(**VALUES)]


def without_lengths(schema: object) -> object:
    """A schema without the bounds of its texts: ideographs say more."""
    if isinstance(schema, list):
        return [without_lengths(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: without_lengths(value) for key, value in schema.items() if key not in ("minLength", "maxLength")}


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_is_in_its_language(language: str) -> None:
    for one in prompts_of(language):
        text = re.sub(r"<(\w+)>\n.*?\n</\1>", " ", rendered(one, document="", query=""), flags=re.DOTALL)
        text = re.sub(r"=== \w+ ===|JSON|Yes|No|\"?query\"?|\"?document\"?", " ", text)
        assert wrong_language(text, language) is None, one.name
        other = "fr" if language != "fr" else "es"
        assert language == "id" or wrong_language(text, other) is not None, one.name


@pytest.mark.parametrize("language", OTHERS)
def test_the_examples_are_of_the_class_that_is_asked_for(language: str) -> None:
    prompt = PROMPTS.get(f"small/{language}/query")
    for length, kind, information in product(WORDS, [kind for kind in TYPES if kind != "keywords"], INFORMATION):
        if kind == "claim" and length in ("lt5", "lt10"):
            continue  # never drawn: a short claim is ambiguous
        text = rendered(prompt, length_class=length, type_class=kind, information_class=information)
        examples = re.findall(r'{"query": "([^"]+)"}', text)
        assert examples
        for one in examples:
            assert wrong_length(one, length, language) is None, (length, one)
            assert wrong_type(one, kind) is None and wrong_language(one, language) is None, one


@pytest.mark.parametrize("language", OTHERS)
def test_every_style_has_examples_of_its_own(language: str) -> None:
    prompt = PROMPTS.get(f"small/{language}/rewrite")
    found = [rendered(prompt, style_class=style, length_class=length) for style, length in product(STYLES, WORDS)]
    assert len(set(found)) == len(STYLES) * len(WORDS)
    for text in found:
        after = re.findall(r'{"query": "([^"]+)"}', text)
        assert len(after) == 2 and not any(wrong_language(one, language) for one in after), after


def pipeline(language: str, **generation: object) -> Pipeline:
    """A pipeline in a language."""
    values = {"name": "p", "task": "qa", "corpus": "c", "target": 1, "language": language, "generation": generation}
    return Pipeline.model_validate({**values, "llm": {"backend": "scripted"}})


def test_instructions_are_in_the_language_of_the_answer_where_there_is_a_translation() -> None:
    for language in LANGUAGES:
        own = f"small/{language}/query" if language in OTHERS else "small/query"
        assert stage_prompt(pipeline(language, prompts="small"), PROMPTS, "query").name == own
        assert (
            stage_prompt(pipeline(language), PROMPTS, "query").name == "query"
        )  # large models: English, as in the paper


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("family", ["", "small/"])
def test_english_instructions_name_the_language_of_the_answer(family: str, language: str) -> None:
    for name in ("character", "scenario", "query", "rewrite", "hard_negative"):
        text = rendered(PROMPTS.get(family + name), language_name=language_name(language), language=language)
        assert language_name(language) in text, name


def test_a_variant_is_in_the_language_too_and_a_step_without_translation_in_english() -> None:
    german = pipeline("de", prompts="small", variants={"hard_negative": "small/brief_hard_negative"})
    assert stage_prompt(german, PROMPTS, "hard_negative").name == "small/de/brief_hard_negative"
    assert stage_prompt(german, PROMPTS, "answer").name == "small/answer"


def test_a_prompt_beside_the_pipeline_hides_the_shipped_translation(tmp_path: Path) -> None:
    for name in ("small/query", "small/it/query"):
        path = tmp_path / "prompts" / f"{name}.j2"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("---\nversion: 1\ntranslates: small/character\n---\n=== user ===\nhi", encoding="utf-8")
    prompts = PromptSet.beside(tmp_path)
    assert prompts.in_language("small/query", "de") == "small/query"
    assert prompts.in_language("small/query", "it") == "small/it/query"
    assert prompts.in_language("small/character", "de") == "small/de/character"


def test_a_fingerprint_changes_with_the_front_matter_that_is_left_out(tmp_path: Path) -> None:
    shipped = PROMPTS.get("small/de/query")
    path = tmp_path / "small" / "query.j2"
    path.parent.mkdir()
    english = PROMPTS.get("small/query").source
    path.write_text(english.replace("maxLength: 240", "maxLength: 99"), encoding="utf-8")
    changed = PromptSet([tmp_path]).get("small/de/query")
    assert changed.fingerprint != shipped.fingerprint and changed.constrained() != shipped.constrained()
    path.write_text(english.replace("version: 9", "version: 10"), encoding="utf-8")
    assert PromptSet([tmp_path]).get("small/de/query").fingerprint == shipped.fingerprint


def test_it_is_said_how_good_a_small_models_queries_are_in_a_language() -> None:
    """Each language with examples of its own was read, and a user hears the result; of others, that nobody did."""
    small = {"backend": "embedded"}
    assert READ.keys() <= ONE_CALL_LANGUAGES
    for language, good in READ.items():
        words = reading_words(small, language)
        assert f"{good}%" in words and language_name(language) in words
        assert ("larger model" in words) == (good < 75)
    assert "has not been checked" in reading_words(small, "hi") and "Hindi" in reading_words(small, "hi")
    assert reading_words({"backend": "openai", "model": "gpt-4o-mini"}, "hi") == ""
