"""A backend without a model, which answers by rules, for tests, docs and trial runs of a whole pipeline.

    backend = ScriptedBackend(rules={"query": lambda request: '{"query": "why?"}'})
    backend = ScriptedBackend(faults={"prose": 0.05, "refuse": 0.02})      # 5 % and 2 % of requests

An answer depends only on the request, so order, concurrency and resuming do not matter. Each stage provides its own
rule. The helper functions read a prompt and choose words from its document, so that retrieval finds it.
"""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated

from pydantic import Field

from airgen.components.keys import rng
from airgen.components.registry import closest
from airgen.errors import SettingsError
from airgen.llms.base import Backend, Refused, Reply, Request, Rule
from airgen.settings.base import SPEED
from airgen.settings.llm import LlmSettings

_WORD = re.compile(r"[^\W\d_]{4,}")
# On a line of its own: the instructions speak of the tags, too.
_BLOCK = re.compile(r"^<(document|passage|text)\b[^>\n]*>$\s*(.*?)\s*^</\1>", re.DOTALL | re.MULTILINE)
_QUERIES = (
    re.compile(r"(?is)<query\b[^>]*>\s*(.*?)\s*</query>"),
    re.compile(r"(?im)^[^\w\n]*+query\W*:\s*(.+?)$"),  # only without a tag: a document may have such a line
)
_TABLE_8 = re.compile(r"Query:\n“‘\n(.*?)\n”’\nDocument:\n“‘\n(.*?)\n”’", re.DOTALL)
_LENGTHS = (
    ("at most 4 words", 4),
    ("fewer than 10 words", 8),
    ("between 10 and 20 words", 14),
    ("at least 20 words", 24),
)
_FILLER = (
    *("what", "is", "meant", "here", "and", "how", "one", "would", "go", "about", "it", "in", "practice"),
    *("when", "nobody", "else", "has", "an", "answer", "yet", "today"),
)


class ScriptedSettings(LlmSettings):
    """Settings of the scripted backend.

    Attributes:
        faults: Share of failing requests, by kind of fault.
        latency: Seconds per call.
    """

    backend: str = "scripted"
    model: str = "scripted"
    faults: Annotated[dict[str, float], SPEED] = Field(default_factory=dict)  # of requests without an answer yet
    latency: Annotated[float, SPEED, Field(ge=0)] = 0.0


class ScriptedBackend(Backend):
    """Answers from `rules`, {stage: function of the request}.

    Without a rule, every field that a stage's schema requires is filled with words from the prompt.

    Raises SettingsError for an unknown fault.

    Args:
        faults: {name (see `FAULTS`): share of the requests}, chosen by the request's key.
        latency: Duration of each call in seconds.
    """

    Settings = ScriptedSettings

    @classmethod
    def make(cls, settings: ScriptedSettings, *, folder: Path, rules: Mapping[str, Rule]) -> Backend:
        """Return a backend with the rules of the stages."""
        return cls(rules=rules, faults=settings.faults, latency=settings.latency)

    def __init__(
        self,
        *,
        rules: Mapping[str, Rule] | None = None,
        faults: Mapping[str, float] | None = None,
        latency: float = 0.0,
    ) -> None:
        self._rules, self._faults, self._latency = dict(rules or {}), dict(faults or {}), latency
        self.calls = 0
        for name in self._faults:
            if name not in FAULTS:
                raise SettingsError([f"llm.faults: unknown fault {name!r}{closest(name, list(FAULTS))}"])

    async def send(self, request: Request) -> Reply:
        """Answer by rule after `latency` seconds. Raises Refused for some faults."""
        self.calls += 1
        if self._latency:
            await asyncio.sleep(self._latency)
        text, fault = self._rules.get(request.stage, _echo)(request), self._fault(request)
        if fault == "refuse":
            raise Refused("content_filter")
        if fault:
            text = FAULTS[fault](text, rng("fault", request.key))
        tokens = [(text, math.log(0.9)), ("No" if text == "Yes" else "Yes", math.log(0.1))]
        return Reply(
            text,
            "length" if fault == "truncate" else "stop",
            prompt_tokens=sum(len(message.content) for message in request.messages) // 4 + 4,
            completion_tokens=len(text) // 4 + 1,
            logprobs=[tokens] if request.params.get("logprobs") else (),
        )

    def _fault(self, request: Request) -> str:
        """Return the fault of this request, or "", by comparing one draw with the shares of the faults in order."""
        draw = rng("faults", 0, request.key).random()
        for name, share in self._faults.items():
            if draw < share:
                return name
            draw -= share
        return ""


# -- what is in the prompt -------------------------------------------------------------------------------------


def _prompt_text(request: Request) -> str:
    return "\n\n".join(message.content for message in request.messages if message.role != "assistant")


def document(request: Request) -> str:
    """Return the document in the prompt: the first <document>, <passage> or <text> block, or else the longest
    paragraph.
    """
    text = _prompt_text(request)
    if match := _TABLE_8.search(text):
        return match[2]
    if match := _BLOCK.search(text):
        return match[2]
    return max(text.split("\n\n"), key=len)


def last_block(request: Request) -> str:
    """Return the variable part of the prompt: its query, or its last paragraph."""
    text = _prompt_text(request)
    if table_8 := _TABLE_8.search(text):
        return table_8[1]
    for pattern in _QUERIES:
        if queries := pattern.findall(text):
            return str(queries[-1])
    return text.rstrip().split("\n\n")[-1]


def keywords(text: str, number: int, random: Random) -> list[str]:
    """Return words from one place in the text, in order, preferring rare and long words."""
    words = [word.lower() for word in _WORD.findall(text)]
    if not words:
        return (text.split() or ["this", "document"])[:number]
    counts = Counter(words)
    start = random.randrange(max(1, len(words) - 3 * number))
    window = words[start : start + 3 * number]
    best = sorted(dict.fromkeys(window), key=lambda word: (counts[word], -len(word), word))[:number]
    return [word for word in dict.fromkeys(window) if word in best]


def asked_length(request: Request) -> int:
    """Return the number of words that the prompt asks for, or 8 if it names none."""
    text = request.messages[-1].content if len(request.messages) < 4 else request.messages[-3].content
    return next((count for words, count in _LENGTHS if words in text), 8)


def padded(words: Sequence[str], count: int) -> str:
    """Return exactly `count` words: the given words, followed by filler."""
    filler = [_FILLER[place % len(_FILLER)] for place in range(max(0, count - len(words)))]
    return " ".join([*words[:count], *filler])


def overlap(request: Request) -> float:
    """Return the share of the query's words that occur in the document, 0 to 1."""
    query = {word.lower() for word in _WORD.findall(last_block(request))}
    document_words = {word.lower() for word in _WORD.findall(document(request))}
    return len(query & document_words) / max(1, len(query))


def _echo(request: Request) -> str:
    words = " ".join(keywords(last_block(request), 8, rng("echo", request.key)))
    return json.dumps(dict.fromkeys(request.schema["required"], words)) if request.schema else words


# -- faults ----------------------------------------------------------------------------------------------------


def _first_items(text: str, random: Random) -> str:
    """Return only the first item of each list, as an answer with too few items."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if not isinstance(value, dict):
        return text
    return json.dumps({name: item[:1] if isinstance(item, list) else item for name, item in value.items()})


FAULTS: dict[str, Callable[[str, Random], str]] = {
    "refuse": lambda text, random: "",  # not used: `send` raises Refused
    "empty": lambda text, random: "",
    "prose": lambda text, random: "I am sorry, but as a language model I cannot do that. Let me explain why.",
    "truncate": lambda text, random: text[: max(1, random.randrange(max(2, len(text) - 2)))],
    "language": lambda text, random: json.dumps({"query": "这是一个用中文写的问题吗？"}, ensure_ascii=False),
    "one_item": _first_items,
}
"""Possible faults of an answer: name -> function that corrupts the text."""
