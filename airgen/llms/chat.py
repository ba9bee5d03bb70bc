"""The chat completions form that OpenAI, vLLM, Ollama, llama.cpp and most others speak: request out, reply in.

body = chat_body(request)                 # a dict for POST /chat/completions
reply = chat_reply(body_of_the_answer)    # Reply; raises Refused, Retry
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airgen.llms.base import Refused, Reply, Request, Retry

__all__ = ["FORMATS", "chat_body", "chat_reply", "closed"]

FORMATS = ("json_schema", "json_object", "none")
"""How an answer's form can be asked for, the strictest first; a server that refuses one is given the next."""


def chat_body(request: Request, *, form: str = "json_schema", max_tokens: str = "max_tokens") -> dict[str, Any]:
    """The request as the endpoint takes it. `max_tokens` is the name that the model has for that limit."""
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
    """The schema with every object closed that does not say otherwise: a small model pads an open one with more."""
    if isinstance(schema, list | tuple):
        return [closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {
        # the values of these are names to schemas, so that a property may itself be called "type"
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
    """Whether OpenAI's strict mode takes the schema: each object closed, with all of its properties required."""
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
    """What a server's answer says. Raises Refused where the model refused, Retry("bad_body") for an alien form."""
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
        raise Retry("bad_body", detail="the message's content is not a text")
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
    """Each token's alternatives; a token without any stands for itself."""
    if not isinstance(value, dict):
        return []
    tokens = []
    for token in value.get("content") or ():
        try:
            alternatives = token.get("top_logprobs") or [token]
            tokens.append([(str(one["token"]), float(one["logprob"])) for one in alternatives])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Retry("bad_body", detail="log-probabilities in an unknown form") from None
    return tokens
