"""Structured answers: from what a model wrote to a value that fits its schema, or one line saying why not.

    schema = {"type": "object", "properties": {"query": {"type": "string", "minLength": 1}}, "required": ["query"]}
    parse_json('Sure! ```json\n{"query": "why is the sky blue",}\n```', schema)   # {"query": "why is the sky blue"}
    parse_json('{"query": ""}', schema)                                           # ValueError: query: '' should be ...

A stage asks once, parses, and on a ValueError asks once more with `corrective`, which shows the model its own
answer and what was wrong with it. The second failure is the stage's to record.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airgen.keys import canonical_json
from airgen.llms.base import Message, Request
from airgen.records import Answer

__all__ = ["afresh", "corrective", "parse_answer", "parse_json"]

_LONGEST = 1_000_000  # characters: no stage asks for a hundredth of it, and repair is slow on runaway text
_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)


def parse_json(text: str, schema: Mapping[str, Any]) -> Any:
    """The JSON value in `text`, valid under `schema` (JSON Schema, draft 2020-12).

    Prose and code fences around it, trailing commas, single quotes and the like are tolerated. Raises ValueError
    with a one-line reason: nothing there, not JSON, or which field does not fit and why.
    """
    if not text.strip():
        raise ValueError("the answer is empty")
    if len(text) > _LONGEST:
        raise ValueError(f"the answer has {len(text):,} characters, far more than was asked for")
    reason = "the answer is not JSON"
    for value in _candidates(text):
        problem = _problem(value, schema)
        if problem is None:
            return value
        reason = problem
    raise ValueError(reason)


def parse_answer(answer: Answer, schema: Mapping[str, Any]) -> Any:
    """`parse_json` of an answer's text, knowing how the answer ended.

    Repair would close the brackets of an answer that was cut off at its token limit and so keep half a sentence:
    such an answer must be complete JSON as it stands. Raises ValueError as `parse_json` does, also for an answer
    that is a failure.
    """
    if answer.error:
        raise ValueError(answer.error)
    if answer.finish_reason == "length":
        try:
            value = json.loads(answer.text)
        except (ValueError, RecursionError):
            raise ValueError("the answer was cut off at its token limit") from None
        if problem := _problem(value, schema):
            raise ValueError(problem)
        return value
    return parse_json(answer.text, schema)


def corrective(request: Request, text: str, reason: str) -> Request:
    """The request again, with the bad answer and what was wrong with it as two more messages.

    The prompt's beginning is unchanged, so a prefix cache still serves it; the key differs, so it is a new call.
    """
    shown = text if len(text) <= 4000 else text[:4000] + " [...]"
    wish = "Answer again, with only the JSON that was asked for." if request.schema else "Answer again."
    complaint = f"That answer cannot be used: {reason}. {wish}"
    return replace(
        request,
        messages=(*request.messages, Message("assistant", shown or "(no answer)"), Message("user", complaint)),
    )


def afresh(request: Request, reason: str) -> Request:
    """The request again, with what was wrong with an answer that is not shown: a small model repeats what it sees."""
    *earlier, last = request.messages
    said = f"{last.content}\n\nAn earlier answer could not be used: {reason}. Answer with another one."
    return replace(request, messages=(*earlier, Message(last.role, said)))


def _candidates(text: str) -> list[Any]:
    """Values that the text may mean, the strictest reading first."""
    import json_repair

    found: list[Any] = []
    pieces = [text.strip(), *(match.group(1).strip() for match in _FENCE.finditer(text))]
    for piece in pieces:
        try:
            return [json.loads(piece)]
        except (ValueError, RecursionError):
            continue
    starts = [position for position in (text.find("{"), text.find("[")) if position >= 0]
    for piece in [*pieces[1:], *([text[min(starts) :]] if starts else [])]:
        try:
            value = json_repair.loads(piece)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list):
            found.append(value)
            # Repair gathers an object and the prose after it into a list: the members are candidates too.
            if isinstance(value, list):
                found.extend(member for member in value if isinstance(member, dict))
    return found


def _problem(value: Any, schema: Mapping[str, Any]) -> str | None:
    """What in the value does not fit the schema, in one line, or None."""
    from jsonschema.exceptions import best_match

    try:
        error = best_match(_validator(canonical_json(schema)).iter_errors(value))
    except RecursionError:
        return "the answer is nested too deep"
    if error is None:
        return None
    where = ".".join(str(part) for part in error.absolute_path)
    what = " ".join(error.message.split())
    if len(what) > 200:  # the message repeats the whole value: keep its end, which says what was expected
        what = what[:60] + " ... " + what[-120:]
    return f"{where}: {what}" if where else what


@functools.lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema))
