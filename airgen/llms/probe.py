"""Probe a model with a few short questions before the first real call, for a few cents at most.

    profile = await probe(engine, settings)
    profile.seconds(calls=1000, prompt_tokens=900_000, completion_tokens=60_000, workers=64)

It sends requests like those of a judge and of a generation step, so that the backend learns what the model accepts
(`airgen.llms.accepted_parameters`). It measures how the server counts tokens, how much the model thinks, and how
fast it is. The result is stored in the job's folder, in `models.json`.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from airgen.components.keys import content_key
from airgen.errors import disk_error
from airgen.llms.answers import parse_answer
from airgen.llms.base import Llm, Message, Request
from airgen.llms.chat import count_messages
from airgen.settings import LlmSettings
from airgen.settings.base import marked
from airgen.storage.json_values import DAMAGE, kept_of, read_json, write_json
from airgen.storage.records import Answer
from airgen.text.token_counts import count_tokens

STAGE = "probe"
MIN_PARALLEL_GAIN = 1.5  # speed-up of two concurrent calls that shows that the server works on several
MAX_PARALLEL_GAIN = 2.0

_FILE = "models.json"
_OF_THE_KEY = {"base_url", "query"}  # settings that change no answer, but may lead to another server

_WRITER = "You write test data."
_JUDGE = "You judge whether a document answers a query. Answer with one number: 0, 1, 2 or 3."
_YES_NO = "You judge whether a document answers a query. Answer Yes or No."
_FACT = "In the year {year} the bees of valley {valley} found their flowers by colour and by scent."
_WRITE = "Write three sentences about {topic}, and a search query that they answer. Answer with JSON."
_TOPICS = ("bees", "lighthouses", "bridges", "violins")
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"sentences": {"type": "string"}, "query": {"type": "string"}},
    "required": ["sentences", "query"],
}


Figure = Annotated[float, Field(ge=0, lt=1e9)]


@dataclass(frozen=True)
class ModelProfile:
    """What the probe found.

    Attributes:
        known: What the backend has learnt.
        tokens: Ratio of the server's count of prompt tokens to airgen's.
        thinking: Number of thinking tokens per call.
        latency: Seconds per call.
        read, write: Seconds per prompt token and per generated token.
        together: Speedup of two concurrent calls, 1 to 2, or None if it was not measured.
        problems: What the model does not support.
        unusable: Why no job can use its answers, or "". Such a model is probed again, and `tried` counts the earlier
            probes.
    """

    known: dict[str, Any] = field(default_factory=dict)
    tokens: Figure = 1.0
    thinking: Figure = 0.0
    latency: Figure = 0.0
    read: Figure = 0.0
    write: Figure = 0.0
    together: Figure | None = None
    problems: list[str] = field(default_factory=list)
    unusable: str = ""
    tried: int = 0

    def seconds(self, calls: float, prompt_tokens: float, completion_tokens: float, workers: int) -> float:
        """Estimate how long these calls take with at most `workers` calls in flight.

        A server that was twice as fast with two calls is assumed to scale to any number of calls.
        """
        alone = calls * self.latency + prompt_tokens * self.read + completion_tokens * self.write
        gain = MIN_PARALLEL_GAIN if self.together is None else self.together
        return alone / max(1.0, min(float(workers), calls) if gain >= MIN_PARALLEL_GAIN else min(gain, float(workers)))

    def about(self) -> str:
        """Return the result on one line."""
        parts = [f"{self.latency + 300 * self.read + 60 * self.write:.1f} s for 300 tokens in and 60 out"]
        if self.write:
            parts.append(f"{1 / self.write:,.0f} tokens/s written")
        if self.together is not None and self.together < MIN_PARALLEL_GAIN:
            parts.append("one call at a time")
        if self.thinking:
            parts.append(f"thinks about {self.thinking:,.0f} tokens per call")
        parts.append(f"counts {self.tokens:.2f} tokens for each token that airgen counts")
        return ", ".join([*parts, *self.problems])


async def probe(llm: Llm, settings: LlmSettings, *, logprobs: bool = False, tried: int = 0) -> ModelProfile:
    """Ask a model six or seven short questions.

    Args:
        llm: The engine that sends the questions.
        settings: The settings of the LLM.
        logprobs: Whether a judge of this job needs log-probabilities.
        tried: Number of earlier probes of the model.

    Returns:
        The profile. Its `known` is empty, because only the caller has the backend.

    Raises:
        LlmError: The model accepts no calls; the message quotes the server. Other errors of the engine pass through.
    """
    clock = asyncio.get_running_loop().time
    questions = _questions(settings, logprobs, tried)
    answers = [await llm.ask(request) for request in questions[:-2]]
    began = clock()
    answers += await asyncio.gather(*(llm.ask(request) for request in questions[-2:]))
    pairs = list(zip(questions, answers, strict=True))
    speed = _speed(answers[-5:-2], answers[-2:], clock() - began)
    good = [(request, answer) for request, answer in pairs if not answer.error and answer.prompt_tokens]
    generated = [_problem(request, answer) for request, answer in pairs if request.schema is not None]
    counted = sum(count_messages(request.messages) for request, _ in good)
    thinking = [max(0, answer.completion_tokens - 2 * count_tokens(answer.text) - 20) for _, answer in good]
    return ModelProfile(
        tokens=sum(answer.prompt_tokens for _, answer in good) / counted if counted else 1.0,
        thinking=sum(thinking) / len(thinking) if thinking else 0.0,
        problems=[line for line in dict.fromkeys(_problem(*pair) for pair in pairs) if line],
        unusable=generated[0] if all(generated) else "",
        tried=tried,
        **speed,
    )


def _questions(settings: LlmSettings, logprobs: bool, tried: int) -> list[Request]:
    """Return the questions: a generation, from which the backend learns; a judgment by log-probabilities if needed;
    then those to measure: a short judgment, a long judgment, a generation, and two concurrent generations.
    """
    # Answers are stored without the server's address, so those of another server say nothing about this one.
    server = content_key([getattr(settings, "base_url", None)])
    sample = tried + (int(server[:6], 16) << 8)
    fact = _FACT.format(year=1900, valley=1)
    document = " ".join(_FACT.format(year=1901 + place, valley=2 + place) for place in range(30))
    judge = {"temperature": 0, "max_tokens": 8}
    by_token = {"temperature": 0, "max_tokens": 1, "logprobs": True, "top_logprobs": 20}
    generate: dict[str, Any] = {"temperature": settings.temperature, "max_tokens": min(settings.max_tokens, 256)}

    def question(system: str, user: str, params: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> Request:
        return Request(
            settings.model,
            messages=(Message("system", system), Message("user", user)),
            params=params,
            schema=schema,
            sample=sample,
            endpoint=settings.endpoint,
            stage=STAGE,
        )

    query = "Query: how do bees find flowers\nDocument: "
    lesson, *others = [question(_WRITER, _WRITE.format(topic=topic), generate, _SCHEMA) for topic in _TOPICS]
    extra = [question(_YES_NO, query + fact, by_token)] if logprobs else []
    return [lesson, *extra, question(_JUDGE, query + fact, judge), question(_JUDGE, query + document, judge), *others]


def _speed(alone: Sequence[Answer], two: Sequence[Answer], wall: float) -> dict[str, Any]:
    """Return the latency and the reading and writing speeds from three calls that each differ in one of them, and the
    speedup of two concurrent calls.
    """
    if any(answer.error for answer in alone):
        return {}
    calls = np.array([[1.0, answer.prompt_tokens, answer.completion_tokens] for answer in alone])
    solution, *_ = np.linalg.lstsq(calls, np.array([answer.seconds for answer in alone]), rcond=None)
    latency, read, write = (max(0.0, float(value)) for value in solution)
    good = [answer for answer in two if not answer.error]
    apart = sum(latency + write * answer.completion_tokens + read * answer.prompt_tokens for answer in good)
    fresh = len(good) == 2 and wall > 0.5 * max(answer.seconds for answer in good)  # otherwise, they came from the disk
    together = min(MAX_PARALLEL_GAIN, max(1.0, apart / wall)) if fresh and wall > 0 else None
    return {"latency": latency, "read": read, "write": write, "together": together}


def _problem(request: Request, answer: Answer) -> str:
    """Return what the model did not do as requested, or ""."""
    if answer.error:
        return f"a question failed ({answer.error}: {' '.join(answer.text.split())[:160]})"
    if request.params.get("logprobs"):
        return "" if answer.logprobs else "gives no log-probabilities: a yes/no judge is read by its text"
    if request.schema is not None:
        try:
            parse_answer(answer, request.schema)
        except ValueError as error:
            return f"its JSON cannot be used ({str(error)[:160]})"
    elif not re.search("[0-3]", answer.text):
        return f"answered {' '.join(answer.text.split())[:40]!r} where one number was asked for"
    return ""


def read_profiles(folder: Path, llms: Iterable[LlmSettings]) -> dict[tuple[str, str], ModelProfile]:
    """Return the profiles of the LLMs that were probed with these settings, by endpoint and model."""
    stored = _read(folder / _FILE)
    profiles = {}
    for llm in llms:
        try:
            profiles[llm.endpoint, llm.model] = kept_of(ModelProfile, stored[_key(llm)])
        except DAMAGE:
            continue  # not probed, or a file of another version, so the model is probed again
    return profiles


def save_profile(folder: Path, llm: LlmSettings, profile: ModelProfile) -> None:
    """Save a profile. Raises AirgenError if it cannot be written."""
    path = folder / _FILE
    try:
        write_json(path, {**_read(path), _key(llm): profile})
    except OSError as error:
        raise disk_error(error) from error


def _key(llm: LlmSettings) -> str:
    speed = {name for name, _ in marked(type(llm), "speed")} - _OF_THE_KEY
    return content_key(llm.model_dump(mode="json", exclude=speed | {"temperature", "max_tokens"}))


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except DAMAGE:
        return {}
