"""The format of chat completions, which OpenAI, vLLM, Ollama, llama.cpp and most others share; and its tokens.

body = chat_body(request)                 # a dict for POST /chat/completions
reply = chat_reply(body_of_the_answer)    # Reply; raises Refused, Retry
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from airgen.llms.base import Message, Refused, Reply, Request, Retry
from airgen.text.tokens import count_tokens

__all__ = ["FORMATS", "chat_body", "chat_reply", "closed", "count_messages", "upper_bound", "with_usage"]

FORMATS = ("json_schema", "json_object", "none")
"""The ways to ask for JSON, the strictest first. A server that refuses one gets the next."""

_PER_MESSAGE = 4  # tokens of the role and the delimiters in OpenAI's chat format


def chat_body(request: Request, *, form: str = "json_schema", max_tokens: str = "max_tokens") -> dict[str, Any]:
    """The request as JSON for the endpoint. `max_tokens` is the model's name for that limit."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        **request.params,
    }
    if "max_tokens" in body and max_tokens != "max_tokens":
        body[max_tokens] = body.pop("max_tokens")
    if request.schema is not None and form == "json_schema":
        schema = closed(request.schema)
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": request.stage or "answer", "schema": schema, "strict": _is_strict(schema)},
        }
    elif request.schema is not None and form == "json_object":
        body["response_format"] = {"type": "json_object"}
    return body


def closed(schema: Any) -> Any:
    """The schema without additional properties in its objects, unless it allows them: small models add many."""
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


def _is_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode accepts the schema: each object is closed and requires all of its properties."""
    if isinstance(schema, list | tuple):
        return all(_is_strict(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties):
            return False
        return all(_is_strict(item) for item in properties.values())
    return all(_is_strict(value) for value in schema.values())


def chat_reply(payload: Any) -> Reply:
    """A server's answer as a Reply. Raises Refused where the model refused, Retry("bad_body") for another format."""
    try:
        choice = payload["choices"][0]
        message = choice["message"]
        text = message.get("content") or ""
        finish = str(choice.get("finish_reason") or "")
        refusal = message.get("refusal")
    except (TypeError, KeyError, IndexError, AttributeError):
        raise Retry("bad_body", detail="the answer holds no choices[0].message") from None
    if isinstance(text, list):  # some servers send the content in typed parts
        text = "".join(str(part.get("text", "")) for part in text if isinstance(part, dict))
    if not isinstance(text, str):
        raise Retry("bad_body", detail="the message's content is not text")
    if refusal:
        raise Refused("refusal", str(refusal))
    if finish == "content_filter":
        raise Refused("content_filter", text)
    usage = payload.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    return Reply(
        text=text,
        finish_reason=finish,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(cached),
        completion_tokens=_count(usage.get("completion_tokens")),
        logprobs=_logprobs(choice.get("logprobs")),
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _logprobs(value: Any) -> list[list[tuple[str, float]]]:
    """Each token's alternatives; a token without alternatives is its own only one."""
    if not isinstance(value, dict):
        return []
    tokens = []
    for token in value.get("content") or ():
        try:
            alternatives = token.get("top_logprobs") or [token]
            tokens.append([(str(one["token"]), float(one["logprob"])) for one in alternatives])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Retry("bad_body", detail="log-probabilities in an unknown format") from None
    return tokens


def with_usage(request: Request, reply: Reply) -> Reply:
    """The reply, with its tokens counted here where the server did not report them, so that a budget still holds."""
    prompt, completion = reply.prompt_tokens, reply.completion_tokens
    if prompt and (completion or not reply.text):
        return reply
    return dataclasses.replace(
        reply,
        prompt_tokens=prompt or count_messages(request.messages),
        completion_tokens=completion or count_tokens(reply.text),
    )


def count_messages(messages: Iterable[Message]) -> int:
    """Prompt tokens of a chat: those of the contents, and four for the frame of each message."""
    return sum(count_tokens(message.content) + _PER_MESSAGE for message in messages)


def upper_bound(messages: Iterable[Message]) -> int:
    """The most prompt tokens that a byte-level tokenizer can give: one a byte. A budget reserves so many."""
    return sum(len(message.content.encode("utf-8", "replace")) + 8 for message in messages)
