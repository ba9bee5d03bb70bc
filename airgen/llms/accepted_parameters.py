"""Learn from a server's refusals and answers what a model accepts in a chat request, and how much it thinks.

    dialect = Dialect()
    body = dialect.body(request)
    dialect.learn(body, "Unsupported value: 'temperature' does not support 0 with this model.")   # a line for the user
    dialect.body(request)                                                                         # no temperature

A refused request is not billed, so each lesson costs one short round trip per model. Only what has an alternative is
learnt: a parameter that merely shapes the answer is omitted, a strict format is replaced by a looser one (and the
prompt says the form), and a system message is moved to the first user message. Everything else remains an error with
the server's message.

No list of phrases covers every server. Where the words are unknown, the backend tries the alternatives
(`Dialect.alternatives_to`), and what makes the server accept the request is learnt (`Dialect.adopt`).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field

from airgen.llms.base import Backend, Reply, Request
from airgen.llms.chat import closed, example_of, is_strict
from airgen.storage.json_values import kept_of

FORMATS = ("json_schema", "json_object", "none")
"""The ways to request JSON, strictest first. If a server refuses one, the next is tried."""

FIRST_ROOM = 4096  # tokens for reasoning, once a model is known to reason; doubled when they are used up
MOST_ROOM = 32_768

_DEFAULT_OUTPUT = 4096  # tokens of an answer whose request sets no maximum; otherwise, its cost would have no limit
_OPTIONAL = (
    "temperature",
    "top_p",
    "seed",
    "stop",
    "logprobs",
    "top_logprobs",
    "presence_penalty",
    "frequency_penalty",
)
_QUOTED = {"stop"}  # these are also ordinary words, so they count only in quotation marks, or before "parameter"
_UNSUPPORTED = re.compile(
    r"unsupported|not (?:be )?support|n't support|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed|"
    r"not available|not enabled|not implemented|extra (?:fields|inputs)|only (?:the )?default|only support|may only be|"
    r"deprecated|removed|invalid (?:param|argument|field)|can(?:not|'t) be (?:set|used|specified)|cannot both|"
    r"must be (?:omitted|unset|1\b)|not a valid (?:param|field|argument)|disabled|remove",
    re.IGNORECASE,
)
_FORMAT = re.compile(
    r"response_format|json_schema|json_object|json schema|guided|grammar|structured output|"
    r"output_(?:config|format)|response_(?:json_)?schema|response_?mime_?type|responseJsonSchema",
    re.IGNORECASE,
)
_PERHAPS_FORMAT = re.compile(rf"{_FORMAT.pattern}|\bschema\b|json[ _-]?mode|additional_?properties", re.IGNORECASE)
_SYSTEM = re.compile(r"\bsystem\b|\bdeveloper\b", re.IGNORECASE)
_SYSTEM_MESSAGE = re.compile(
    r"\b(?:system|developer)\W?[ _-]?(?:role|message|prompt|instruction)|\brole\b", re.IGNORECASE
)
_NO_PARAMETER = re.compile(
    r"api[ _-]?key|quota|billing|credit|balance|moderation|flagged|inappropriate|inspection|safety|"
    r"content[ _](?:filter|policy)",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(r"max_(?:completion_|output_)?tokens|context|maximum", re.IGNORECASE)
_TOO_MANY = re.compile(r"too (?:large|many|long)|exceed|at most|greater|maximum|reduce", re.IGNORECASE)
_MOST_ALTERNATIVES = re.compile(r"(?:max|most|than|below|to|<=?)\D{0,20}(\d{1,3})\b", re.IGNORECASE)


_FEW_ALTERNATIVES = 5  # log-probabilities per token that most servers with a limit allow

Concession = tuple[str, Any]
"""An alternative to a part of a request: the attribute of `Dialect`, and its new value (for `dropped`, one name)."""


def most_output(request: Request) -> int:
    """Return the maximum number of tokens of the answer itself."""
    return int(request.params.get("max_tokens") or _DEFAULT_OUTPUT)


@dataclass
class Dialect:
    """What a model is known to accept.

    Attributes:
        form: Index in `FORMATS` of the strictest accepted format.
        limit: Name of the parameter for the maximum number of tokens.
        dropped: Parameters to omit.
        system: Whether system messages are accepted.
        alternatives: Maximum number of log-probabilities per token.
        room: Number of tokens for thinking beyond a request's maximum, or 0 for a model not known to think.
        extra: Members of the body set by the user, which override others.
    """

    form: Annotated[int, Field(ge=0, lt=len(FORMATS))] = 0
    limit: str = "max_tokens"
    dropped: list[str] = field(default_factory=list)
    system: bool = True
    alternatives: int | None = None
    room: Annotated[int, Field(ge=0, le=MOST_ROOM)] = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def known(self) -> dict[str, Any]:
        """Return what was learnt, as JSON values."""
        return {name: value for name, value in asdict(self).items() if name != "extra"}

    def remember(self, known: Mapping[str, Any]) -> None:
        """Restore what another process has learnt, unless it is damaged."""
        try:
            learnt = kept_of(Dialect, known)
        except ValueError:
            return
        for name in self.known().keys() & known.keys():
            setattr(self, name, getattr(learnt, name))

    def body(self, request: Request, room: int | None = None) -> dict[str, Any]:
        """Return the request in this model's dialect, with the reserved number of tokens for thinking, `room`."""
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        given = {name: value for name, value in request.params.items() if name not in self.dropped}
        given.pop("max_tokens", None)
        given[self.limit] = most_output(request) + (request.room if room is None else room)
        if self.alternatives is not None and "top_logprobs" in given:
            given["top_logprobs"] = min(self.alternatives, given["top_logprobs"])
        if request.schema is not None and self.form:
            _say_form(messages, request.schema)
        if request.schema is not None and (form := FORMATS[self.form]) != "none":
            given["response_format"] = {"type": form}
            if form == "json_schema":
                schema = closed(request.schema)
                named = {"name": request.stage or "answer", "schema": schema, "strict": is_strict(schema)}
                given["response_format"]["json_schema"] = named
        messages = messages if self.system else _without_system(messages)
        return {"model": request.model, "messages": messages, **given, **self.extra}

    def learn(self, sent: Mapping[str, Any], message: str) -> str | None:
        """Learn from the server's refusal of `sent`. Returns a line for the user, or "" if it was already known.

        Returns None if nothing can be learnt, so that the refusal is final.
        """
        message = message.lower()
        if "max_completion_tokens" in message and "max_tokens" in sent and not _TOO_MANY.search(message):
            return self._set("limit", "max_completion_tokens", "accepts max_completion_tokens instead of max_tokens")
        form = sent.get("response_format")
        if form and "response_format" not in self.extra and _FORMAT.search(message):
            place = FORMATS.index(form["type"]) + 1 if form.get("type") in FORMATS else len(FORMATS) - 1
            return self._loosen(form, place)
        roles = {part["role"] for part in sent["messages"]}
        if "system" in roles and "role" in message and (_SYSTEM.search(message) or "alternate" in message):
            return self._move_system_message()
        if "top_logprobs" in sent and "logprobs" in message:
            numbers = map(int, _MOST_ALTERNATIVES.findall(message))
            fewer = [number for number in numbers if 0 < number < sent["top_logprobs"]]
            if fewer:
                return self._set("alternatives", min(fewer), f"returns at most {min(fewer)} alternatives per token")
        if not _UNSUPPORTED.search(message):
            return None
        named = [name for name in _OPTIONAL if name in sent and name not in self.extra and _names(message, name)]
        if not named:
            return None
        # "temperature and top_p cannot both be specified": one of them is enough.
        refused = named[-1:] if "both" in message else named
        return self._drop(refused, sent)

    def alternatives_to(self, sent: Mapping[str, Any], message: str) -> tuple[list[Concession], list[Concession]]:
        """Return the possible concessions for a refusal of `sent`: those for what the message names, in its order, and
        all."""
        places: dict[Concession, int | None] = {}
        form = (sent.get("response_format") or {}).get("type")
        if form in FORMATS and "response_format" not in self.extra:
            place = _place(_PERHAPS_FORMAT.search(message))
            places |= {("form", looser): place for looser in range(FORMATS.index(form) + 1, len(FORMATS))}
        if any(part["role"] == "system" for part in sent["messages"]):
            places["system", False] = _place(_SYSTEM_MESSAGE.search(message))
        for name in _OPTIONAL:
            if name not in sent or name in self.extra or (name == "top_logprobs" and "logprobs" in sent):
                continue
            place = _place(_named(message, name))
            if name == "logprobs" and "top_logprobs" in sent and "top_logprobs" not in self.extra:
                count = _named(message, "top_logprobs")
                place = place if count is None else count.start()
                stated = {int(number) for number in re.findall(r"\b\d{1,3}\b", message)} if count else set()
                fewer = {number for number in stated | {_FEW_ALTERNATIVES} if 0 < number < sent["top_logprobs"]}
                places |= {("alternatives", number): place for number in sorted(fewer, reverse=True)}
            places["dropped", name] = place
        named = [concession for concession, place in places.items() if place is not None]
        return sorted(named, key=lambda concession: places[concession] or 0), list(places)

    def with_concessions(self, concessions: Iterable[Concession]) -> "Dialect":
        """Return a copy that makes these concessions."""
        copy = replace(self, dropped=list(self.dropped))
        copy.adopt(concessions, {})
        return copy

    def adopt(self, concessions: Iterable[Concession], sent: Mapping[str, Any]) -> list[str]:
        """Make these concessions from now on. Returns lines for the user. `sent` is the request without them."""
        concessions = list(concessions)
        dropped = [value for name, value in concessions if name == "dropped"]
        lines = []
        for name, value in {name: value for name, value in concessions if name != "dropped"}.items():
            if name == "form":
                lines.append(self._loosen(sent.get("response_format") or {}, value))
            elif name == "system":
                lines.append(self._move_system_message())
            elif "logprobs" not in dropped:
                lines.append(self._set(name, value, f"returns at most {value} alternatives per token"))
        return [line for line in (*lines, self._drop(dropped, sent)) if line]

    def cut_off(self, request: Request, reply: Reply) -> bool:
        """Learn from an answer how much the model thinks. Returns True if thinking used up the tokens and the room was
        increased."""
        requested, ended = most_output(request), reply.finish_reason == "length"
        # Some servers hide the reasoning completely: all tokens were used, and no text came.
        hidden = ended and not reply.text and reply.completion_tokens >= requested + request.room
        if not (reply.thinking_tokens or hidden):
            return False
        thought = 2 * reply.thinking_tokens if reply.completion_tokens > requested + request.room else 0
        self.room = max(self.room, min(max(FIRST_ROOM, thought), MOST_ROOM))
        if not ended or (reply.text and reply.completion_tokens - reply.thinking_tokens >= requested):
            return False
        self.room = max(self.room, min(2 * request.room, MOST_ROOM))
        return self.room > request.room

    def _loosen(self, form: Mapping[str, Any], place: int) -> str:
        effect = {"json_object": "gets a JSON object without a schema", "none": "gets no JSON format, only the prompt"}
        place = max(place, self.form)
        return self._set("form", place, f"does not take {form.get('type')}: it {effect[FORMATS[place]]}")

    def _move_system_message(self) -> str:
        return self._set("system", False, "takes no system message: it goes into the first user message")

    def _drop(self, names: Iterable[str], sent: Mapping[str, Any]) -> str:
        names = [*names, "top_logprobs"] if "logprobs" in names else names
        new = [name for name in dict.fromkeys(names) if name not in self.dropped]
        self.dropped += new
        left_out = ", ".join(f"{name}={sent[name]!r}" for name in new if name in sent)
        return f"does not take {left_out}: left out" if left_out else ""

    def _set(self, name: str, value: Any, words: str) -> str:
        if getattr(self, name) == value:
            return ""
        setattr(self, name, value)
        return words


class LearningBackend(Backend):
    """A backend that learns what its model accepts."""

    def __init__(self, dialect: Dialect | None = None) -> None:
        self.dialect = dialect or Dialect()

    def known(self) -> dict[str, Any]:
        """Return what was learnt, as JSON values."""
        return self.dialect.known()

    def remember(self, known: Mapping[str, Any]) -> None:
        """Adopt what an earlier process has learnt."""
        self.dialect.remember(known)

    def room(self, request: Request) -> int:
        """Return the tokens that the model may need for thinking."""
        return self.dialect.room


def too_much(message: str, room: int) -> bool:
    """Return whether a refusal may be about the room for thinking, in which case less may be accepted."""
    return room > 0 and bool(_TOO_LONG.search(message) and _TOO_MANY.search(message))


def perhaps_for_a_parameter(message: str) -> bool:
    """Return False for a refusal that is about the key, the quota or the content."""
    return not _NO_PARAMETER.search(message)


def _names(message: str, name: str) -> bool:
    return _named(message, name) is not None


def _named(message: str, name: str) -> re.Match[str] | None:
    """Find a parameter's name in any case, including camel case."""
    if name in _QUOTED:
        return re.search(rf"['\"`]{name}['\"`]|\b{name} (?:sequences?|param|is)|param\w*:? {name}\b", message, re.I)
    spelled = name.replace("_", "[_ -]?")
    return re.search(rf"(?<![A-Za-z_]){spelled}(?![A-Za-z_])", message, re.I)


def _say_form(messages: list[dict[str, str]], schema: Mapping[str, Any]) -> None:
    """End the last message with the form of the answer, unless the prompt names all of its fields: nothing else does if
    the server does not take the schema. It is shorter than the schema, for which the budget reserves the cost."""
    text = "\n".join(message["content"] for message in messages)
    if messages and not all(f'"{name}"' in text for name in schema.get("properties", {})):
        form = json.dumps(example_of(schema), ensure_ascii=False)
        messages[-1] = {**messages[-1], "content": f"{messages[-1]['content']}\n\nAnswer only with JSON such as {form}"}


def _place(match: re.Match[str] | None) -> int | None:
    return match.start() if match else None


def _without_system(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """Move the system message to the beginning of the first user message."""
    system = [part["content"] for part in messages if part["role"] == "system"]
    others = [part for part in messages if part["role"] != "system"]
    if not system or not others:
        return [{**part, "role": "user"} for part in messages]
    return [{**others[0], "content": "\n\n".join([*system, others[0]["content"]])}, *others[1:]]
