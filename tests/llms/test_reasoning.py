"""Models that think before they answer, and models that refuse what others take: learnt once, adapted, paid for."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import MemoryStore, ask_all, engine_of, openai, send, simulated

from airgen.errors import AirgenError, LlmError
from airgen.llms.accepted_parameters import FIRST_ROOM, FORMATS, Dialect, too_much
from airgen.llms.base import Backend, Message, Refused, Reply, Request, Retry, parse_logprobs
from airgen.llms.chat import chat_reply, first_of_answer, split_thinking
from airgen.llms.money import Price, Usage
from airgen.storage.records import Answer

CENT = Price(10_000.0, 10_000.0, 10_000.0)
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
FRAME = (Message("system", "Judge."), Message("user", "One number."))


def judgments(count: int, **params: Any) -> list[Request]:
    params = {"temperature": 0, "max_tokens": 8, **params}
    return [Request("m", (FRAME[0], Message("user", f"pair {n}")), params, stage="judgment") for n in range(count)]


def run(url: str, path: Path, asked: list[Request], **options: Any) -> tuple[list[Answer], float, list[str]]:
    """The answers, the money spent, and what the user was told."""
    said: list[str] = []
    answers, engine = ask_all(url, path / "w.duckdb", asked, price=CENT, say=said.append, **options)
    return answers, engine.spent_usd, said


# -- thinking -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["hidden", "silent", "beside", "text", "field"])
@pytest.mark.parametrize("thinks", [100, 6000])
def test_a_judge_of_eight_tokens_gets_room_to_think_and_every_token_is_paid(
    place: str, thinks: int, loopback: Callable[..., Any], tmp_path: Path
) -> None:
    server = loopback(text="2", thinks=thinks, thinks_in=place)
    answers, spent, _ = run(server.base_url, tmp_path, judgments(40), concurrency=4)
    assert {(one.text, one.error) for one in answers} == {("2", "")}
    stats = server.stats()
    assert 40 < stats["requests"] <= 40 + 4 * 3  # only those in flight at the start were cut off
    asked, billed = len("Judge." + "pair 10") // 4, 0
    for body in stats["bodies"]:
        billed += asked + min(thinks, body["max_tokens"]) + (10 if thinks + 10 <= body["max_tokens"] else 0)
    assert spent * 100 == pytest.approx(
        billed, abs=0.6 * stats["requests"]
    )  # cached tokens cost as much; digits differ


def test_the_budget_reserves_the_thinking(loopback: Callable[..., Any], tmp_path: Path) -> None:
    """Four calls at a time, and money for the thinking of only two: never more is in flight than is paid for."""
    server = loopback(text="2", thinks=1000, latency=0.02)
    budget = 2.5 * (FIRST_ROOM + 200) / 100
    with pytest.raises(AirgenError, match="budget"):
        run(server.base_url, tmp_path, judgments(40), concurrency=4, budget_usd=budget)
    billed = sum(min(1000, body["max_tokens"]) + 10 * (body["max_tokens"] > 1010) for body in server.stats()["bodies"])
    assert 0.5 * budget < billed / 100 <= budget


def test_thinking_without_end_is_an_answer_that_was_cut_off(
    loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(thinks=10**6, thinks_in="text")
    monkeypatch.setattr("airgen.llms.accepted_parameters.MOST_ROOM", 8192)
    (answer,), _, _ = run(server.base_url, tmp_path, judgments(1))
    assert (answer.text, answer.finish_reason, answer.error) == ("", "length", "")
    assert [body["max_tokens"] for body in server.stats()["bodies"]] == [8, 8 + 4096, 8 + 8192]


def test_a_smaller_window_than_the_room_is_found_and_logprobs_are_those_of_the_answer(
    loopback: Callable[..., Any], tmp_path: Path
) -> None:
    server = loopback(text="Yes", thinks=700, thinks_in="text", most_tokens=1500)
    asked = judgments(3, max_tokens=20, logprobs=True, top_logprobs=2)
    for answer in run(server.base_url, tmp_path, asked, concurrency=1)[0]:
        assert answer.text == "Yes" and parse_logprobs(answer) == [[("Yes", -0.1), ("No", -2.4)]]


@pytest.mark.parametrize(
    ("text", "answer", "thinking"),
    [
        ("2", "2", ""),
        ("<think>Is it 2?</think>\n\n2", "2", "Is it 2?"),
        ("\n<THINK>a</think><think>b</think>2", "2", "a\nb"),
        ("[THINK]a[/THINK]2", "2", "a"),
        ("<thinking>a < b</thinking>{}", "{}", "a < b"),
        ("<think>Or perhaps", "", "Or perhaps"),
        ("<think>", "", ""),
        ("Is it 2? Yes.\n</think>\n2", "2", "Is it 2? Yes.\n"),
        ('{"query": "what does </think> close?"}', '{"query": "what does </think> close?"}', ""),
        ("The tag <think> opens it", "The tag <think> opens it", ""),
    ],
)
def test_thinking_is_taken_out_of_the_text(text: str, answer: str, thinking: str) -> None:
    assert split_thinking(text) == (answer, thinking)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["<think>", "</think>", "[/THINK]", "<thought>", "</thought>", " ", "x", "{"])))
def test_property_an_answer_is_the_end_of_the_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    answer, thinking = split_thinking(text)
    assert text.endswith(answer) and len(answer) + len(thinking) <= len(text) + thinking.count("\n")


def test_a_million_tags_are_read_once() -> None:
    text = "<think></think>" * 1_000_000
    assert split_thinking(text)[0] == ""  # a copy of the rest for each tag would take hours


def test_the_place_of_the_answer_among_the_tokens() -> None:
    assert first_of_answer("Yes", ["<think>", "hm", "</think>", "\n\n", "Y", "es", "\n"]) == 4
    assert first_of_answer("Yes", ["No"]) == 1 and first_of_answer("", ["a"]) == 1


def test_typed_parts_and_both_fields_are_read() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "2"}]
    reply = chat_reply({"choices": [{"message": {"content": parts}}]})
    assert reply.text == "2" and reply.thinking_tokens > 0
    reply = chat_reply({"choices": [{"message": {"content": None, "reasoning": "hm, hm"}, "finish_reason": "length"}]})
    assert (reply.text, reply.thinking_tokens) == ("", 2)


@pytest.mark.parametrize(
    ("usage", "completion", "thinking"),
    [
        ({"completion_tokens": 30, "completion_tokens_details": {"reasoning_tokens": 20}}, 30, 20),
        ({"completion_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 20}}, 30, 20),
        ({"completion_tokens": 10, "total_tokens": 39, "completion_tokens_details": {"reasoning_tokens": 20}}, 30, 20),
        ({"completion_tokens": 10, "total_tokens": 39}, 30, 20),
        ({"completion_tokens": 10, "total_tokens": 19}, 10, 0),
        ({"completion_tokens": 10, "total_tokens": 10**20}, 10, 0),
    ],
)
def test_thinking_is_billed_wherever_it_is_counted(usage: dict[str, Any], completion: int, thinking: int) -> None:
    reply = chat_reply({"choices": [{"message": {"content": "2"}}], "usage": {"prompt_tokens": 9, **usage}})
    assert (reply.completion_tokens, reply.thinking_tokens) == (completion, thinking)


# -- what a model refuses ---------------------------------------------------------------------------------------------


def test_every_refusal_is_learnt_once_and_said(loopback: Callable[..., Any], tmp_path: Path) -> None:
    refused = ["temperature", "max_tokens", "seed", "stop", "logprobs", "top_p"]
    server = loopback(
        text='{"query": "2"}', thinks=100, refuse=refused[:1] + refused[2:], refuse_max_tokens=True, refuse_system=True,
        refuse_schema=["json_schema", "json_object"],
    )  # fmt: skip
    more = {"seed": 7, "stop": ["\n"], "logprobs": True, "top_logprobs": 5, "top_p": 0.5}
    asked = [Request(one.model, one.messages, {**one.params, **more}, SCHEMA) for one in judgments(60)]
    answers, _, said = run(server.base_url, tmp_path, asked, concurrency=2)
    assert {(one.text, one.error) for one in answers} == {('{"query": "2"}', "")}
    assert server.stats()["requests"] <= 60 + 2 * 9 + 2
    last = server.stats()["bodies"][-1]
    assert last == {"model": "m", "max_completion_tokens": 8 + FIRST_ROOM}
    assert len(said) == len(set(said)) == 9 and all(line.startswith("m at 127.0.0.1:") for line in said)
    for name in refused:
        assert sum(name in line for line in said) == 1, name
    assert any("takes no system message" in line for line in said)


MESSAGES = [  # what servers really say
    ("temperature", "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value "
     "is supported."),
    ("temperature", "litellm.UnsupportedParamsError: gpt-5 models don't support temperature=0. Only temperature=1 is "
     "supported."),
    ("temperature", "`temperature` may only be set to 1 when thinking is enabled."),
    ("top_p", "`temperature` and `top_p` cannot both be specified for this model. Please use only one."),
    ("logprobs", "Unsupported parameter: 'logprobs' is not supported with this model."),
    ("logprobs", "body -> logprobs: property 'logprobs' is not supported"),
    ("seed", "Extra inputs are not permitted: seed"),
    ("seed", '{"object":"error","message":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not '
     'permitted"}]}'),
    ("stop", "Unsupported parameter: 'stop' is not supported with this model."),
    ("system", "System role not supported"),
    ("system", "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
    ("system", "Conversation roles must alternate user/assistant/user/assistant/..."),
    ("form", "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."),
    ("form", "This model does not support structured outputs"),
    ("limit", "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
     "instead."),
    ("alternatives", "Invalid value for 'top_logprobs': must be less than or equal to 5."),
    ("alternatives", "Requested sample logprobs of 20, which is greater than max allowed: 5"),
    ("", "Invalid 'temperature': decimal above maximum value. Expected a value <= 1, but got 2 instead."),
    ("", "The stop of the context was unexpected"),
    ("", "This model's maximum context length is 8192 tokens"),
    ("", "'max_tokens' or 'max_completion_tokens' is too large: 36864"),
    ("", "invalid api key"),
    ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("what", "message"), MESSAGES)
def test_what_servers_say_is_understood(what: str, message: str) -> None:
    dialect = Dialect()
    params = {"temperature": 0, "top_p": 0.5, "seed": 1, "stop": "x", "logprobs": True, "top_logprobs": 20}
    request = Request("m", FRAME, {**params, "max_tokens": 9}, SCHEMA)
    before = dialect.known()
    words = dialect.learn(dialect.body(request), message)
    changed = {name for name, value in dialect.known().items() if value != before[name]}
    assert (words is None) == (not what) == (not changed)
    if what in params:
        assert changed == {"dropped"} and dialect.dropped[0] == what and what not in dialect.body(request)
    elif what:
        assert changed == {what}


UNKNOWN = [  # (parameters refused, whether system messages are, status, words): nothing that a list of phrases has
    (["temperature"], False, 400, "bad temperature: this model runs hot"),
    (["temperature"], False, 422, "Input validation error: `Temperature` is out of the open interval"),
    (["logprobs"], False, 400, "LogProbs? Not for models/m-2.5"),
    (["logprobs"], False, 403, "You lack access to {name} here"),
    (["presence_penalty"], False, 400, "no presencePenalty with this one"),
    (["response_format"], True, 400, "we have no {name} here"),
    (["response_format"], False, 400, "JSON mode is off"),
    (["temperature"], False, 400, "that will not do"),
    (["logprobs"], False, 400, "that will not do"),
    (["response_format"], True, 400, "that will not do"),
    (["temperature", "seed", "response_format"], False, 400, ""),
]


@pytest.mark.parametrize(("refused", "system", "status", "words"), UNKNOWN)
def test_a_refusal_in_unknown_words_is_found_out(
    refused: list[str], system: bool, status: int, words: str, loopback: Callable[..., Any], tmp_path: Path
) -> None:
    """Whatever the words are, what is refused is left out for this model, and every answer is paid."""
    server = loopback(text='{"query": "2"}', refuse=refused, refuse_system=system, refuse_as=[status, words])
    more = {"seed": 7, "logprobs": True, "top_logprobs": 5, "presence_penalty": 0.5}
    asked = [replace(one, params={**one.params, **more}, schema=SCHEMA) for one in judgments(40)]
    answers, spent, said = run(server.base_url, tmp_path, asked, concurrency=4)
    assert {(one.text, one.error) for one in answers} == {('{"query": "2"}', "")}
    last = server.stats()["bodies"][-1]
    assert not last.keys() & set(refused)
    optional = {"temperature", "seed", "logprobs", "presence_penalty", "response_format"}
    if words or len(refused) < 3:  # otherwise, leaving out everything was all that helped
        assert optional - last.keys() == set(refused)
        assert system == any("takes no system message" in line for line in said)
    assert said and len(said) == len(set(said))
    named = words != "that will not do" and words != ""
    paid = 40 if named else 41  # at most one call without optional parts
    assert spent * 100 == pytest.approx(sum(one.cost_usd for one in answers) / 40 * paid * 100, rel=0.05)


def test_a_refusal_that_is_not_about_parameters_is_asked_once_more(loopback: Callable[..., Any]) -> None:
    for words, asks in ("the moon is wrong", 2), ("Invalid API key", 1), ("your input was flagged", 1):
        server = loopback(refuse=["messages"], refuse_as=[400, words])
        with pytest.raises(Refused, match=words):
            send(openai(server.base_url), judgments(1)[0])
        assert server.stats()["requests"] == asks
    server = loopback(refuse=["messages"], refuse_as=[403, "no entry"])
    with pytest.raises(LlmError, match="no entry"):
        send(openai(server.base_url), judgments(1)[0])
    assert server.stats()["requests"] == 1


def test_calls_refused_among_accepted_ones_teach_nothing(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(text='{"query": "2"}', faults={"bad_parameter": 0.3}, fault_attempts=99)
    asked = [replace(one, schema=SCHEMA) for one in judgments(60)]
    answers, _, said = run(server.base_url, tmp_path, asked, concurrency=1)
    refused = [one for one in answers if one.error]
    assert {one.error for one in refused} == {"http_400"} and 5 < len(refused) < 40
    assert not said
    forms = [body.get("response_format", {}).get("type") for body in server.stats()["bodies"]]
    assert forms[0] == forms[-1] == "json_schema" and forms.count(None) <= 1


def test_json_that_the_model_broke_is_asked_for_again(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(text='{"query": "2"}', faults={"bad_json": 0.9}, fault_attempts=2)
    answers, _, said = run(server.base_url, tmp_path, [replace(one, schema=SCHEMA) for one in judgments(12)])
    assert {one.error for one in answers} == {""} and not said
    assert server.stats()["bodies"][-1]["response_format"]["type"] == "json_schema"


def test_fewer_alternatives_are_asked_for_before_none(loopback: Callable[..., Any]) -> None:
    dialect = Dialect()
    request = replace(judgments(1)[0], params={"logprobs": True, "top_logprobs": 20})
    named, _ = dialect.alternatives_to(dialect.body(request), "Range of top_logprobs should be [0, 5]")
    assert named == [("alternatives", 5), ("dropped", "logprobs")]
    assert dialect.with_concessions(named[:1]).body(request)["top_logprobs"] == 5
    assert dialect.body(request)["top_logprobs"] == 20


def test_what_the_user_set_is_sent_and_stays() -> None:
    dialect = Dialect(extra={"temperature": 0.7, "reasoning_effort": "low", "response_format": {"type": "x"}})
    request = Request("m", FRAME, {"temperature": 0, "max_tokens": 9}, SCHEMA)
    body = dialect.body(request)
    assert (body["temperature"], body["reasoning_effort"], body["response_format"]) == (0.7, "low", {"type": "x"})
    for words in (
        "Unsupported value: 'temperature'",
        "reasoning_effort is not supported",
        "response_format: unsupported",
    ):
        assert dialect.learn(body, words) is None


@settings(deadline=None)
@given(st.text(max_size=80), st.lists(st.integers(0, len(MESSAGES) - 1), max_size=30))
def test_property_learning_ends(message: str, order: list[int]) -> None:
    """Each lesson makes the request poorer, so no server can make a call go round for ever."""
    dialect = Dialect()
    params = {"temperature": 0, "top_p": 0.5, "seed": 1, "stop": "x", "logprobs": True, "top_logprobs": 20}
    request = Request("m", FRAME, {**params, "max_tokens": 9}, SCHEMA, room=5000)
    room, turns = request.room, 0
    words = [message, *(MESSAGES[place][1] for place in order)] * 10
    for line in words:
        body = dialect.body(request, room)
        if dialect.learn(body, line) is not None:
            assert dialect.body(request, room) != body
            turns += 1
        elif too_much(line, room):
            room //= 2
            turns += 1
    assert turns <= 6 + len(FORMATS) + 3 + 20 + 13


def test_a_prompt_says_the_form_that_the_server_does_not_enforce() -> None:
    """Prompts for small models leave the form to the schema: without it, no answer could be used."""
    schema = {
        "type": "object",
        "required": ["people", "kind"],
        "properties": {
            "people": {"type": "array", "items": {"type": "object", "properties": {"age": {"type": "integer"}}}},
            "kind": {"enum": ["", "good", "bad"]},
            "sure": {"type": "boolean"},
        },
    }
    request = Request("m", FRAME, {"max_tokens": 9}, schema)
    named = Request("m", (Message("user", 'As {"kind": 1, "people": [], "sure": true}.'),), {"max_tokens": 9}, schema)
    dialect = Dialect()
    assert dialect.body(request)["messages"][-1]["content"] == "One number."
    for form in (1, 2):
        dialect.form = form
        told = dialect.body(request)["messages"][-1]["content"]
        form_said = '{"people": [{"age": 0}, {"age": 0}], "kind": "good or bad", "sure": true}'
        assert told == f"One number.\n\nAnswer only with JSON such as {form_said}"
        assert len(told) - len("One number.") <= len(json.dumps(schema)) + 64  # what the budget reserves
        assert dialect.body(named)["messages"] == Dialect().body(named)["messages"]
    assert dialect.body(Request("m", FRAME, {}))["messages"][-1]["content"] == "One number."


def test_what_was_learnt_is_remembered() -> None:
    dialect = Dialect()
    request = Request("m", FRAME, {"temperature": 0, "max_tokens": 9})
    dialect.learn(dialect.body(request), MESSAGES[0][1])
    dialect.cut_off(request, Reply("", "length", 5, 0, 9, thinking_tokens=9))
    other = Dialect()
    other.remember(dialect.known())
    assert other == dialect and other.room == FIRST_ROOM
    for damaged in ({"room": "x"}, {"room": 10**9}, {"form": 99}, {"dropped": None}, {"limit": 5}, {"unknown": 1}, {}):
        other.remember(damaged)
        assert other == dialect


@simulated
async def test_a_retry_for_more_room_is_paid_and_bounded() -> None:
    class Endless(Backend):
        calls = 0

        def room(self, request: Request) -> int:
            return 10

        async def send(self, request: Request) -> Reply:
            self.calls += 1
            assert request.room == 10
            raise Retry("thinking", usage=Usage(1, 0, 18, 18))

    backend = Endless()
    async with engine_of(backend, MemoryStore(), price=CENT, retries=0) as engine:
        answer = await engine.ask(judgments(1)[0])
    assert answer.error == "thinking" and backend.calls == 9 and engine.spent_usd == pytest.approx(9 * 0.19)
