"""Estimate how long the local models take for a job, by running each of them on a few passages.

    for one in local_work(job, samples=133, queries=100):
        one.what, one.seconds                     # "the re-rankers", 2280.0

Calls to LLMs are not included: `airgen.job.estimate` counts them, and `airgen check --probe` measures their speed.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from airgen import models
from airgen.errors import AirgenError
from airgen.job.estimate import ANSWER_SECONDS, Estimate, FirstPassages
from airgen.job.job import Job
from airgen.retrievers import Component
from airgen.retrievers.model_facts import ModelSetup
from airgen.retrievers.model_setup import setups_of
from airgen.safety.escaping import dollars
from airgen.safety.guard import guarded
from airgen.settings import Pipeline
from airgen.settings.requirements import located
from airgen.settings.spec import Spec, part_fields
from airgen.steps.votes import DEPTH, DRAFT_DEPTH

READ = 8  # passages that each model reads
MOST_COUNTED = 50_000  # maximum passages of a corpus that are counted; with more, the estimate is a minimum
NEW = 0.75  # share of the hits of two retrievers that only one of them returns
QUERY = "how is this done"
BUSY = 2.0  # processes per core above which the times depend more on other programs than on this job

_PAIRWISE = frozenset({"cross-encoder", "flag-reranker", "onnx-cross-encoder", "python"})

RERANKERS, ENCODING, SYSTEMS = "the re-rankers", "encoding the corpus", "the systems' re-rankers"


@dataclass(frozen=True)
class LocalWork:
    """The input of a local model. `seconds` is None if the model is not on this machine, and then `setups` is empty."""

    what: str
    model: str
    texts: int
    seconds: float | None
    setups: tuple[ModelSetup, ...] = ()


def local_work(job: Job, *, samples: int, queries: int, passages: FirstPassages | None = None) -> list[LocalWork]:
    """Yield the input of a job's local models, and how long they take at the current speed of this machine.

    Args:
        job: A job that has not started; finished work is not subtracted.
        samples: The number of documents for which queries are tried.
        queries: The number of accepted queries.
        passages: The passages of `job.corpus`, if others read them too.
    """
    passages = passages or FirstPassages(job.corpus, job.pipeline.task)
    first_passages = passages.first(READ)
    if not first_passages:
        return []
    count = passages.count(MOST_COUNTED)
    texts = [f"{passage.title}\n{passage.text}" if passage.title else passage.text for passage in first_passages]
    speeds: dict[str, tuple[float | None, tuple[ModelSetup, ...]]] = {}

    def work(kind: str, spec: Spec, read: float) -> Iterator[LocalWork]:
        name = model_of(spec)
        if not name or read < 1:
            return
        if name not in speeds:
            speeds[name] = _seconds_a_text(spec, texts)
        speed, setups = speeds[name]
        yield LocalWork(kind, name, round(read), None if speed is None else speed * read, setups)

    control = job.pipeline.control
    pairs = pairs_per_voter(job.pipeline, count, samples=samples, queries=queries)
    encoded: set[str] = set()
    done: list[LocalWork] = []
    for spec in control.recallers.values():
        if spec.part == "embedder":
            encoded.add(model_of(spec))
            done += work(ENCODING, spec, count)
    for spec in control.voters.values():
        if not model_of(spec):
            continue
        reads_once = _is_encoder(spec)
        if reads_once and model_of(spec) in encoded:
            continue  # its encodings are cached
        encoded |= {model_of(spec)} if reads_once else set()
        done += work(RERANKERS, spec, min(count, pairs) if reads_once else pairs)
    try:
        systems = job.systems
    except AirgenError:
        systems = ()  # `preflight` reports what is wrong
    for system in systems:
        options = system.options
        held = (getattr(options, name) for name, _ in part_fields(type(options)))
        for spec in (value for value in held if isinstance(value, Spec)):
            model = model_of(spec)
            if spec.part == "embedder" and model not in encoded:
                encoded.add(model)
                done += work(ENCODING, spec, count)
            elif spec.part == "reranker":
                pairs = queries * getattr(options, "top", 100)
                done += work(SYSTEMS, spec, min(count, pairs) if _is_encoder(spec) else pairs)
    return done


def pairs_per_voter(pipeline: Pipeline, passages: float, *, samples: int, queries: int) -> float:
    """Return how many pairs each re-ranker is expected to score in a corpus of this size: those of queries and recalled
    passages, and those that show whether a query finds its own document."""
    control, generation = pipeline.control, pipeline.generation
    retrievers, depth = len(control.recallers), min(control.recall.top_k, passages)
    pairs = queries * min(passages, depth * (1 + NEW * (retrievers - 1)))
    if pipeline.round_trips:
        drafts = generation.candidates * DRAFT_DEPTH if generation.candidates > 1 else 0
        pairs += samples * min(passages, drafts + DEPTH)
    return pairs


def model_of(spec: Spec) -> str:
    """Return the name of a part's model; empty if it has none or if the model runs on a service."""
    specs = [inner for _, inner in spec.all_parts()]
    if any(hasattr(inner.settings, "base_url") or hasattr(inner.settings, "url") for inner in specs):
        return ""
    return next((inner.model for inner in specs if inner.model), "")


def _is_encoder(spec: Spec) -> bool:
    """Return whether a re-ranker reads each passage once, and not with each query."""
    return spec.kind not in _PAIRWISE


def _seconds_a_text(spec: Spec, texts: list[str]) -> tuple[float | None, tuple[ModelSetup, ...]]:
    """Return the faster of two measurements, and how the model is run; (None, ()) if it is not on this machine."""
    name = model_of(spec)
    here = models.fetched(name) if name in models.catalogue() else located(name, spec.folder).exists()
    if not here and not models.on_hub(name).here:
        return None, ()
    try:
        with guarded(f"{spec.part} {name}"):
            part = spec.make()
            try:
                speed = min(_reading(part, texts) for _ in range(2)) / len(texts)
                return speed, tuple(setups_of(part))
            finally:
                if isinstance(part, Component):
                    part.release()
    except AirgenError:
        return None, ()  # a run reports what is wrong


def _reading(part: Any, texts: list[str]) -> float:
    began = time.perf_counter()
    if hasattr(part, "encode"):
        part.encode(texts, "passage")
    else:
        part.score([(QUERY, text) for text in texts])
    return time.perf_counter() - began


def load_of_machine() -> float:
    """Return the load per core, or 0 if the operating system does not report it."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0


def price_and_time(
    estimated: Estimate, work: Sequence[LocalWork], load: float = 0.0, unmeasured: Sequence[str] = ()
) -> str:
    """Return one line: `about $0.15 and 40 minutes, of which 38 for the re-rankers on this CPU`.

    Args:
        estimated: The cost of all calls, and their duration if the LLM was probed.
        work: The input of the local models.
        load: The load per core during the measurement.
        unmeasured: The models on this machine whose time is not known, because it was not asked for.
    """
    usd, calls = estimated.usd, estimated.seconds
    money = "an unknown price" if usd is None else "no money" if usd == 0 else dollars(usd)
    kinds = {row.what: 0.0 for row in work}
    for row in work:
        kinds[row.what] += row.seconds or 0.0
    total = sum(kinds.values()) + (calls or 0.0)
    line = f"about {money} and {_minutes(total)}" if work or calls is not None else f"about {money}"
    if kinds and (largest := max(kinds, key=lambda kind: kinds[kind])) and kinds[largest] > 60:
        part, whole = _minutes(kinds[largest]), _minutes(total)
        unit = " hours" if whole.endswith(" hours") else " minutes"
        line += f", of which {part.removesuffix(unit)} for {largest} on this machine"
        if load > BUSY:
            line += f", which is busy now ({load:.0f} processes per core)"
    if calls is None:
        line += f", plus the LLM's own time: {_minutes(estimated.assumed_seconds)} if a call takes "
        line += f"{ANSWER_SECONDS:.0f} s (`airgen check --probe` measures it)"
    if missing := list(dict.fromkeys(row.model for row in work if row.seconds is None)):
        line += f"; not measured, because it is not on this machine: {', '.join(missing)}"
    if unmeasured:
        line += f"; plus the time of the models on this machine, which was not measured: {', '.join(unmeasured)}"
    return line


def _minutes(seconds: float) -> str:
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:,.1f} hours"
    return "less than a minute" if seconds < 60 else f"{seconds / 60:,.0f} minute{'s' if seconds >= 90 else ''}"
