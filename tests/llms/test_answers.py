"""Answers as models write them."""

import json
import sys
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from airgen.llms.answers import afresh, corrective, parse_answer, parse_json, with_latex
from airgen.llms.base import Message, Request
from airgen.llms.chat import closed, is_strict
from airgen.storage.records import Answer

QUERY = {"type": "object", "properties": {"query": {"type": "string", "minLength": 1}}, "required": ["query"]}
THREE = {
    "type": "object",
    "properties": {"characters": {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 3}},
    "required": ["characters"],
}


@pytest.mark.parametrize(
    "text",
    [
        '{"query": "why?"}',
        '  {"query": "why?"}\n',
        '```json\n{"query": "why?"}\n```',
        'Sure! Here it is:\n```\n{"query": "why?"}\n```\nHope that helps.',
        'Here you are: {"query": "why?"} Is that fine?',
        "{'query': 'why?'}",
        '{"query": "why?",}',
        '{query: "why?"}',
        '{"query": "why?"',
        '[{"query": "why?"}]',
        '{"answer": {"query": "why?"}}',
        '{"name": "x", "arguments": {"query": "why?"}}',
        '"{\\"query\\": \\"why?\\"}"',
    ],
)
def test_what_means_the_same(text: str) -> None:
    assert parse_json(text, QUERY) == {"query": "why?"}


@pytest.mark.parametrize(
    ("text", "schema", "reason"),
    [
        ("", QUERY, "empty"),
        ("   \n", QUERY, "empty"),
        ("I cannot do that.", QUERY, "not JSON"),
        ('{"query": ""}', QUERY, "query: '' should be non-empty"),
        ('{"question": "why?"}', QUERY, "'query' is a required property"),
        ('{"query": 3}', QUERY, "query: 3 is not of type 'string'"),
        ('"why?"', QUERY, "not of type 'object'"),
        ('{"characters": ["a"]}', THREE, "characters: ['a'] is too short"),
        ('{"characters": ["a", "b", 3]}', THREE, "characters.2"),
        ("[" * 100_000, QUERY, ""),
        ('{"a":' * 50_000, QUERY, ""),
        ("x" * 2_000_000, QUERY, "2,000,000 characters"),
    ],
)
def test_what_cannot_be_used_says_why_in_one_line(text: str, schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_json(text, schema)
    said = str(caught.value)
    assert reason in said and "\n" not in said and 0 < len(said) < 300


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text())))
def test_property_what_is_json_comes_back_unchanged(value: dict[str, Any]) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=2)):
        assume(with_latex(text) == text)  # a line break before "rm" reads as LaTeX, as the next test has it
        assert parse_json(text, {"type": "object"}) == value


def test_half_a_sentence_is_not_repaired_into_an_answer() -> None:
    cut = Answer("k", "query", "m", "default", '{"query": "how does one', finish_reason="length")
    with pytest.raises(ValueError, match="cut off"):
        parse_answer(cut, QUERY)
    whole = Answer("k", "query", "m", "default", '{"query": "how?"}', finish_reason="length")
    assert parse_answer(whole, QUERY) == {"query": "how?"}
    failed = Answer("k", "query", "m", "default", "the server's words", error="refusal")
    with pytest.raises(ValueError, match=r"^refusal$"):
        parse_answer(failed, QUERY)


def test_the_corrective_request_keeps_the_prompts_beginning_and_is_a_new_call() -> None:
    request = Request("m", (Message("user", "the document, then the wish"),), schema=QUERY, stage="query")
    again = corrective(request, '{"query": ""}', "query: '' should be non-empty")
    assert again.messages[:1] == request.messages and again.key != request.key
    assert [message.role for message in again.messages] == ["user", "assistant", "user"]
    assert "should be non-empty" in again.messages[2].content
    assert len(corrective(request, "x" * 100_000, "too long").messages[1].content) < 5000
    assert corrective(request, "", "empty").messages[1].content  # no endpoint takes an empty message


def test_schemas_are_closed_and_strict_where_they_can_be() -> None:
    tricky = {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": ["object"]}, "items": {"type": "array", "items": QUERY}},
        "required": ["type"],
    }
    shut = closed(tricky)
    assert shut["additionalProperties"] is False
    assert shut["properties"]["items"]["items"]["additionalProperties"] is False
    assert set(shut["properties"]) == {"type", "items"} and shut["properties"]["type"] == tricky["properties"]["type"]  # type: ignore[index]

    # strict wants every property required
    assert [is_strict(closed(schema)) for schema in (QUERY, THREE, tricky)] == [True, True, False]
    assert not is_strict(QUERY)


def test_an_answer_that_would_be_repeated_is_not_shown() -> None:
    request = Request("m", (Message("system", "s"), Message("user", "the wish")), schema=QUERY, stage="query")
    again = afresh(request, "wrong length: it has 21 words")
    assert [message.role for message in again.messages] == ["system", "user"] and again.key != request.key
    assert again.messages[1].content.startswith("the wish") and "it has 21 words" in again.messages[1].content


# -- hostile answers -----------------------------------------------------------------------------------------------

HOSTILE = ("{", "[", '{"a":', "{'a'", '"a":"b" c', 'q,"', "```\n{", "```json\n{a\n```\n", "aaaa /```json\n}e", "}", '"',
           "\\", "}" + "a" * 30, "/1*}\n" + "a" * 30, '{"query": "a",', "\n ")  # fmt: skip


def steps(text: str) -> int:
    """Lines of Python that `parse_json` runs for a text, in whatever module."""
    count = 0

    def line(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        parse_json(text, QUERY)
    except ValueError:
        pass
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("prefix", ["", "[", '{"query": "'])
@pytest.mark.parametrize("unit", HOSTILE)
def test_a_hostile_answer_takes_steps_in_proportion_to_its_length(prefix: str, unit: str) -> None:
    """From 20,000 to 80,000 characters: four times the text takes at most six times the steps, and never many."""
    small, large = (steps(prefix + unit * (size // len(unit))) for size in (20_000, 80_000))
    assert large <= 6 * small + 5_000
    assert max(steps(prefix + unit * (size // len(unit))) for size in (1_000, 7_900)) < 10_000_000


@pytest.mark.parametrize(
    ("at_most", "too_much"),
    [
        ("{'query': 'why?'}" + " " * (8_000 - 17), "{'query': 'why?'}" + " " * (8_001 - 17)),  # characters
        ("{'query': 'why?', 'n': [" + "1," * 237 + "]}", "{'query': 'why?', 'n': [" + "1," * 238 + "]}"),  # 250 marks
        ("{'query': 'why?', 'n': " + "[" * 31 + "]" * 31 + "}", "{'query': 'why?', 'n': " + "[" * 32 + "]" * 32 + "}"),
    ],
)
def test_broken_json_is_repaired_up_to_each_bound(at_most: str, too_much: str) -> None:
    assert parse_json(at_most, QUERY)["query"] == "why?"
    with pytest.raises(ValueError, match="the answer is not JSON"):
        parse_json(too_much, QUERY)


def test_a_long_answer_that_is_json_is_read_whatever_its_length() -> None:
    value = {"query": "why? " * 30_000}
    assert parse_json(json.dumps(value), QUERY) == value
    assert parse_json(f"Sure:\n```json\n{json.dumps(value)}\n```", QUERY) == value


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (r"what is \frac{a}{b} for \theta", r"what is \frac{a}{b} for \theta"),
        (r"the rate \rho, the frequency \nu and \beta", r"the rate \rho, the frequency \nu and \beta"),
        (r"\alpha, \(x\) and \upsilon", r"\alpha, \(x\) and \upsilon"),
        (r"\\frac{1}{2} as it should be", r"\frac{1}{2} as it should be"),
        (r"a\nb\tc \u00e9", "a\nb\tc é"),
        (r"uma linha\ne outra", "uma linha\ne outra"),
        (r"a column\tto the right\rof it", "a column\tto the right\rof it"),
        (r"C:\\temp\\new", r"C:\temp\new"),
    ],
)
def test_formulas_keep_their_letters(said: str, meant: str) -> None:
    for text in (f'{{"query": "{said}"}}', f'Here:\n```json\n{{"query": "{said}",}}\n```'):
        assert parse_json(text, QUERY) == {"query": meant}
