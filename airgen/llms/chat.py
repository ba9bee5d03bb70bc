"""The chat completions format of OpenAI, vLLM, Ollama, llama.cpp and most other servers, and its token counts.

reply = chat_reply(body_of_the_answer)    # Reply; raises Refused, Retry
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from airgen.llms.base import CallFailed, Message, Refused, Reply, Request, Retry
from airgen.llms.error_bodies import stated_error
from airgen.llms.money import Usage
from airgen.safety.escaping import one_line
from airgen.text.token_counts import count_tokens

MAX_TOKENS = 2**31 - 1  # a larger count is not plausible
_THINKING = ("reasoning_content", "reasoning", "thinking")  # where servers put it: fields of a message, types of parts

_DECODER = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) <= 18 else math.inf)
_TOKENS_PER_MESSAGE = 4  # tokens of the role and the delimiters in OpenAI's chat format
_SERVER_FRAME_TOKENS = 64  # tokens that a server adds to a chat: the default system prompt of some templates

_OPEN = re.compile(r"(?<!\s)\s*(?:<(think|thinking|thought)>|\[(THINK)\])", re.IGNORECASE)
_CLOSED = {tag: re.compile(rf"</{tag}>|\[/{tag}\]", re.IGNORECASE) for tag in ("think", "thinking", "thought")}
_ANY_CLOSED = re.compile(r"</(?:think|thinking|thought)>|\[/THINK\]", re.IGNORECASE)
_ANSWERS = ("{", "[", '"', "```")  # an answer that begins so may quote a closing tag; thinking does not begin so


def closed(schema: Any) -> Any:
    """Disallow additional properties in the schema's objects, unless it allows them, because small models add many."""
    if isinstance(schema, list | tuple):
        return [closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {
        # these map names to schemas, so a property may itself be called "type"
        name: {key: closed(item) for key, item in value.items()}
        if name in ("properties", "$defs", "definitions", "patternProperties") and isinstance(value, Mapping)
        else value
        if name in ("enum", "const", "default", "examples")
        else closed(value)
        for name, value in schema.items()
    }
    if schema.get("type") == "object" and "properties" in schema:
        inner.setdefault("additionalProperties", False)
    return inner


def is_strict(schema: Any) -> bool:
    """Return whether OpenAI's strict mode accepts the schema: every object is closed and requires all of its
    properties."""
    if isinstance(schema, list | tuple):
        return all(is_strict(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties):
            return False
        return all(is_strict(item) for item in properties.values())
    return all(is_strict(value) for value in schema.values())


def example_of(schema: Any) -> Any:
    """Return a value with the form that a schema describes, for a model that the server does not hold to the schema.

    >>> example_of({"type": "object", "properties": {"people": {"type": "array", "items": {"type": "string"}}}})
    {'people': ['...', '...']}
    """
    schema = schema if isinstance(schema, Mapping) else {}
    kind = schema.get("type")
    if schema.get("enum"):
        return " or ".join(map(str, filter(None, schema["enum"]))) or "..."
    if isinstance(schema.get("properties"), Mapping):
        return {name: example_of(inner) for name, inner in schema["properties"].items()}
    if kind == "array":
        return [example_of(schema.get("items"))] * 2
    return True if kind == "boolean" else schema.get("minimum", 0) if kind in ("integer", "number") else "..."


def chat_reply(payload: Any) -> Reply:
    """Convert a server's response to a Reply. Raises Refused if the model refused, and Retry("bad_body") for any other
    format.

    It raises nothing else, whatever the payload is. Both errors contain what the server bills for the response.
    """
    usage = Usage()
    try:
        usage = _usage(payload)
        return _reply(payload, usage)
    except CallFailed as problem:
        problem.usage = usage
        raise
    except Exception as error:  # noqa: BLE001  # the payload is text from outside: it can be anything
        raise Retry("bad_body", detail=f"not a chat completion ({type(error).__name__})", usage=usage) from None


def billed_in(payload: Any) -> Usage | None:
    """Return what the server bills for an error, or None if its payload reports no usage."""
    return _usage(payload) if _mapping(payload).get("usage") else None


def load_json(content: bytes | str) -> Any:
    """Parse JSON. Raises ValueError. A whole number of more than 18 digits becomes infinity."""
    try:
        text = content if isinstance(content, str) else content.decode(json.detect_encoding(content), "surrogatepass")
        if text.startswith("\ufeff"):
            raise ValueError("begins with a byte order mark")
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _reply(payload: Any, usage: Usage) -> Reply:
    try:
        choice = payload["choices"][0]
        message = choice["message"]
        text, refusal = message.get("content") or "", message.get("refusal")
        thought = "".join(content for name in _THINKING[:2] if isinstance(content := message.get(name), str))
    except (TypeError, KeyError, IndexError, AttributeError):
        words = stated_error(payload)
        detail = "the answer holds no choices[0].message" + (f": {words}" if words else "")
        raise Retry("bad_body", detail=detail) from None
    if isinstance(text, dict):
        text = [text]
    if isinstance(text, list):  # some servers send the content in typed parts
        parts = [part if isinstance(part, dict) else {"text": part} for part in text]
        text = "".join(_part_text(part) for part in parts if part.get("type") not in _THINKING)
        thought += "".join(json.dumps(part) for part in parts if part.get("type") in _THINKING)
    if not text and (words := stated_error(choice.get("error"))):  # of a router whose provider failed meanwhile
        raise Retry("bad_body", detail=words)
    if not isinstance(text, str):
        raise Retry("bad_body", detail="the message's content is not text")
    if refusal:
        raise Refused("refusal", str(refusal))
    finish = str(choice.get("finish_reason") or "")[:40]
    if finish == "content_filter":
        raise Refused("content_filter", text)
    answer, written = split_thinking(text)
    thought += written
    guess = -(-len(thought.encode("utf-8", "replace")) // 4)
    tokens, logprobs = _logprobs(choice.get("logprobs"))
    return Reply(
        text=answer,
        finish_reason=finish,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        logprobs=logprobs[first_of_answer(answer, tokens) :] if thought or usage.thinking_tokens else logprobs,
        # If the server does not count the reasoning: about four bytes per token, and at most the number of tokens
        # written.
        thinking_tokens=usage.thinking_tokens or min(guess, usage.completion_tokens or guess),
        stated=usage.stated,
    )


def _part_text(part: Mapping[str, Any]) -> str:
    """Return the text of a part of the content, which may be in an object of its own."""
    text = part.get("text", "")
    text = text.get("value", "") if isinstance(text, dict) else text
    return text if isinstance(text, str) else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _usage(payload: Any) -> Usage:
    """Return the usage that a server reports, or an unknown usage if a count is missing or absurd."""
    usage = _mapping(_mapping(payload).get("usage"))
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if not prompt or completion is None:
        given = {name: usage[name] for name in ("prompt_tokens", "completion_tokens") if is_number(usage.get(name))}
        wrong = [f"{name} {value}" for name, value in given.items() if _count(value) is None]
        return Usage(stated=one_line(", ".join(wrong), 100))
    details = _mapping(usage.get("prompt_tokens_details"))
    cached = _count(details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")) or 0
    written = _mapping(usage.get("completion_tokens_details"))
    thinking = _count(written.get("reasoning_tokens") or usage.get("reasoning_tokens")) or 0
    total = _count(usage.get("total_tokens")) or 0
    if total > prompt + completion:  # some servers count the reasoning only in the total
        thinking = max(thinking, total - prompt - completion)
        completion = total - prompt
    elif thinking > completion:
        completion = min(completion + thinking, MAX_TOKENS)
    return Usage(prompt, min(cached, prompt), completion, min(thinking, completion))


def is_number(value: Any) -> bool:
    """Return whether a value of JSON is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: Any) -> int | None:
    """Return a token count if it is plausible for an answer, or None."""
    if not is_number(value) or not 0 <= value <= MAX_TOKENS:
        return None
    return int(value)


def _logprobs(value: Any) -> tuple[list[str], list[list[tuple[str, float]]]]:
    """Return the tokens and their alternatives. A token without alternatives is its own only alternative.

    Returns nothing for an unknown format.
    """
    spelled, tokens = [], []
    try:
        for token in _mapping(value).get("content") or ():
            alternatives = token.get("top_logprobs") or [token]
            tokens.append([(str(alternative["token"]), float(alternative["logprob"])) for alternative in alternatives])
            spelled.append(str(token.get("token") or alternatives[0]["token"]))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return [], []
    finite = all(math.isfinite(number) for token in tokens for _, number in token)
    return (spelled, tokens) if finite else ([], [])


def masked(reply: Reply, mask: Callable[[str], str]) -> Reply:
    """Remove the key, which a server may echo, from the reply.

    Log-probabilities are left out if their tokens spell the key.
    """
    spelled = "".join(alternatives[0][0] for alternatives in reply.logprobs if alternatives)
    all_tokens = "\n".join(token for alternatives in reply.logprobs for token, _ in alternatives)
    clean = mask(spelled) == spelled and mask(all_tokens) == all_tokens
    return dataclasses.replace(
        reply, text=mask(reply.text), finish_reason=mask(reply.finish_reason), logprobs=reply.logprobs if clean else ()
    )


def with_usage(request: Request, reply: Reply) -> Reply:
    """Return the reply with token counts, counted by airgen if the server reported no usable counts."""
    if reply.prompt_tokens and (reply.completion_tokens or not reply.text):
        return reply
    return dataclasses.replace(
        reply,
        prompt_tokens=reply.prompt_tokens or count_messages(request.messages),
        completion_tokens=count_tokens(reply.text) + reply.thinking_tokens,
        estimated=True,
    )


def count_messages(messages: Iterable[Message]) -> int:
    """Count the prompt tokens of a chat: the contents, plus four tokens for the frame of each message."""
    return sum(count_tokens(message.content) + _TOKENS_PER_MESSAGE for message in messages)


def most_prompt_tokens(request: Request) -> int:
    """Return the maximum number of prompt tokens that a server can count, for which the budget reserves the cost: one
    per byte of the messages and the schema (no byte-level tokenizer produces more), plus the server's own frame."""
    schema = "" if request.schema is None else json.dumps(request.schema)
    content = sum(len(message.content.encode("utf-8", "replace")) + 8 for message in request.messages)
    return content + len(schema) + _SERVER_FRAME_TOKENS


def split_thinking(text: str) -> tuple[str, str]:
    """Split a text into the model's answer and the thinking before it.

    Tags inside an answer are left alone.

    >>> split_thinking("<think>Is it 2? Yes.</think>\\n2")
    ('2', 'Is it 2? Yes.')
    >>> split_thinking("<think>Is it 2? Or")  # cut off while it was thinking
    ('', 'Is it 2? Or')
    >>> split_thinking("Is it 2? Yes.</think>2")  # the template wrote the first tag
    ('2', 'Is it 2? Yes.')
    """
    place, thinking = 0, []
    while opening := _OPEN.match(text, place):
        closing = _CLOSED[(opening[1] or opening[2]).lower()].search(text, opening.end())
        thinking.append(text[opening.end() : closing.start() if closing else None])
        place = closing.end() if closing else len(text)
    if not thinking and not text.lstrip().startswith(_ANSWERS) and (closing := _ANY_CLOSED.search(text)):
        thinking.append(text[: closing.start()])
        place = closing.end()
    return (text[place:].lstrip(), "\n".join(thinking)) if thinking else (text, "")


def first_of_answer(answer: str, tokens: Sequence[str]) -> int:
    """Return the position of the first token of the answer, after the thinking, or `len(tokens)` if there is none."""
    wanted, length, place = answer.strip(), 0, len(tokens)
    while place and length < len(wanted):
        place -= 1
        length += len(tokens[place].strip() if length == 0 else tokens[place])
    return place if wanted and "".join(tokens[place:]).strip() == wanted else len(tokens)
