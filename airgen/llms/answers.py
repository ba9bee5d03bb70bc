"""Parse structured answers: turn a model's text into a value that fits its schema, or an error that says why not.

    schema = {"type": "object", "properties": {"query": {"type": "string", "minLength": 1}}, "required": ["query"]}
    parse_json('Sure! ```json\n{"query": "why is the sky blue",}\n```', schema)   # {"query": "why is the sky blue"}
    parse_json('{"query": ""}', schema)                                           # ValueError: query: '' should be ...

A stage asks and parses. After a ValueError, it asks again with `corrective`, which shows the model its answer and what
was wrong with it, or with `afresh`, which does not show the answer. The stage records the last failure.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from airgen.components.keys import canonical_json
from airgen.llms.base import Message, Request
from airgen.storage.records import Answer

_MAX_CHARACTERS = 200_000  # 20 times what any stage asks for
# Repair takes quadratic time in the broken part. Within these limits, it takes at most a fifth of a second.
_MAX_REPAIRED_CHARACTERS = 8_000
_MAX_REPAIRED_MARKS = 250  # brackets, quotes, colons and commas
_MAX_REPAIRED_DEPTH = 32  # nested brackets
_MAX_PIECES = 8  # code fences and members of a list that are tried
_MARK = re.compile(r"[][{}\"'“”:,]")
_BRACKET = re.compile(r"[][{}]")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[a-zA-Z]+|.|\Z)", re.DOTALL)
# LaTeX commands that begin like a JSON escape: frac like a form feed, theta like a tab. The others may be a line break
# before a word (a line begins with "e" in Portuguese), and count only if something else shows that LaTeX is meant.
_LATEX = frozenset(
    """
    backslash bar begin beta between big bigcap bigcirc bigcup bigl bigoplus bigotimes bigr bigvee bigwedge binom bmod
    boldsymbol bot bowtie boxed breve bullet fbox flat footnote forall frac frown
    rVert rangle rbrace rceil ref rfloor rho right rightarrow rightharpoonup rightleftharpoons rm
    nabla natural nearrow neg neq ngeq nleq nmid nolimits nonumber notin nparallel nsubseteq
    tan tanh tau text textbf textit textrm texttt tfrac theta thinspace tilde times top triangle triangleq
    """.split()  # noqa: SIM905  # a list of so many words cannot be read
)
_PERHAPS_LATEX = frozenset(("bf", "bm", "ne", "newline", "ni", "not", "nu", "to"))
_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)


def parse_json(text: str, schema: Mapping[str, Any]) -> Any:
    """Parse the JSON value in a model's answer.

    Surrounding prose and code fences, trailing commas, single quotes and similar errors are tolerated.

    Args:
        text: The answer.
        schema: The JSON Schema (draft 2020-12) for the value.

    Raises:
        ValueError: The text is empty or not JSON, or a field does not fit the schema. The one-line message says which.
    """
    if not text.strip():
        raise ValueError("the answer is empty")
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"the answer has {len(text):,} characters, far more than was asked for")
    reason = "the answer is not JSON"
    if len(text) > _MAX_REPAIRED_CHARACTERS:
        reason += f" ({len(text):,} characters)"
    for value in _candidates(text):
        problem = _problem(value, schema)
        if problem is None:
            return value
        reason = problem
        for inner in islice(_wrapped(value), _MAX_PIECES):
            if _problem(inner, schema) is None:
                return inner
    raise ValueError(reason)


def _wrapped(value: Any, depth: int = 2) -> Iterator[Any]:
    """Yield possible answers inside a value: the only item of a list, an object in an object, JSON in a text."""
    inner: list[Any] = []
    if isinstance(value, list) and len(value) == 1:
        inner = value
    elif isinstance(value, dict):
        inner = [candidate for candidate in value.values() if isinstance(candidate, dict)]
    elif isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            inner = [json.loads(value)]
        except (ValueError, RecursionError):
            inner = []
    for candidate in inner:
        yield candidate
        if depth > 1:
            yield from _wrapped(candidate, depth - 1)


def parse_answer(answer: Answer, schema: Mapping[str, Any]) -> Any:
    """Parse an answer like `parse_json`, but without repair if it was cut off at its token limit.

    A repair would close the brackets of such an answer and keep half a sentence.

    Args:
        answer: The answer of a call.
        schema: The JSON Schema that the value must fit.

    Raises:
        ValueError: As for `parse_json`, or the answer is a failure.
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
    """Add two messages to a request: the bad answer, and what was wrong with it.

    The beginning of the prompt is unchanged, so a prefix cache can serve it. The key differs, so it is a new call.
    """
    shown = text if len(text) <= 4000 else text[:4000] + " [...]"
    wish = "Answer again, with only the JSON that was asked for." if request.schema else "Answer again."
    complaint = f"That answer cannot be used: {reason}. {wish}"
    return replace(
        request, messages=(*request.messages, Message("assistant", shown or "(no answer)"), Message("user", complaint))
    )


def afresh(request: Request, reason: str) -> Request:
    """Add what was wrong with an answer to a request, but not the answer, since a small model repeats what it sees."""
    *earlier, last = request.messages
    content = f"{last.content}\n\nAn earlier answer could not be used: {reason}. Answer with another one."
    return replace(request, messages=(*earlier, Message(last.role, content)))


def _candidates(text: str) -> list[Any]:
    """Return the possible values of a text, the strictest interpretation first."""
    import json_repair

    values: list[Any] = []
    pieces = [text.strip(), *(match.group(1).strip() for match in islice(_FENCE.finditer(text), _MAX_PIECES))]
    pieces = [with_latex(piece) for piece in pieces]
    for piece in pieces:
        try:
            return [json.loads(piece)]
        except (ValueError, RecursionError):
            continue
    starts = [position for position in (text.find("{"), text.find("[")) if position >= 0]
    for piece in [*pieces[1:], *([with_latex(text[min(starts) :])] if starts else [])]:
        if not _repairable(piece):
            continue
        try:
            value = json_repair.loads(piece)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list):
            values.append(value)
            # Repair puts an object and the text after it into a list, so the list's members are candidates too.
            if isinstance(value, list):
                values.extend(islice((member for member in value if isinstance(member, dict)), _MAX_PIECES))
    return values


def with_latex(text: str) -> str:
    """Return JSON whose backslashes before words of LaTeX are doubled: a model that writes `\\frac` means no form feed.

    Commands that begin like a JSON escape are recognised by name; anything else after a backslash is text anyway.
    """
    if "\\" not in text:
        return text
    clear = any(_is_latex(match[1]) for match in _ESCAPE.finditer(text))

    def doubled(match: re.Match[str]) -> str:
        word = match[1]
        latex = _is_latex(word) or (clear and word in _PERHAPS_LATEX)
        return f"\\\\{word}" if latex else match[0]

    return _ESCAPE.sub(doubled, text)


def _is_latex(word: str) -> bool:
    """Return whether the text after a backslash is a LaTeX command or an escape that JSON does not have."""
    first = word[:1]
    if not first or first in '"\\/':
        return False
    if first == "u":
        return not re.match("u[0-9a-fA-F]{4}", word)
    return first not in "bfnrt" or word in _LATEX


def _repairable(text: str) -> bool:
    """Return whether the text can be repaired in bounded time."""
    if len(text) > _MAX_REPAIRED_CHARACTERS or len(_MARK.findall(text)) > _MAX_REPAIRED_MARKS:
        return False
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket in "{[" else -1
        deepest = max(deepest, depth)
    return deepest <= _MAX_REPAIRED_DEPTH


def _problem(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return one line about what does not fit the schema, or None."""
    from jsonschema.exceptions import best_match

    try:
        error = best_match(_validator(canonical_json(schema)).iter_errors(value))
    except RecursionError:
        return "the answer is nested too deeply"
    if error is None:
        return None
    where = ".".join(str(part) for part in error.absolute_path)
    message = " ".join(error.message.split())
    if len(message) > 200:  # the message repeats the whole value; its end states what was expected
        message = message[:60] + " ... " + message[-120:]
    return f"{where}: {message}" if where else message


@functools.lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema))
