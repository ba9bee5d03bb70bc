"""What a job costs, how long it takes, and what it lacks: the one answer of `airgen check`, `airgen.estimate`,
`airgen label --check` and `airgen study agree --check`.

    checked = check_job(job)
    checked.usd, checked.minutes, checked.calls, checked.problems
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from airgen.corpus.fetch import is_fetched
from airgen.corpus.show import in_words
from airgen.display.study import Plain, Shown, Study, Table
from airgen.errors import AirgenError
from airgen.job.estimate import (
    Estimate,
    FirstPassages,
    Standing,
    calls_time,
    estimate,
    estimate_table,
    standing,
)
from airgen.job.job import Job
from airgen.job.local_model_time import LocalWork, load_of_machine, local_work, model_of, price_and_time
from airgen.job.preflight import (
    advice,
    downloads,
    preflight,
    probe_models,
    profile_words,
    unanswered,
    unprobed,
    unusable,
    used_parts,
)
from airgen.settings import RELEVANCE
from airgen.settings.model_size import reading_words
from airgen.settings.suite import published_sizes


@dataclass(frozen=True, repr=False)
class Check(Shown):
    """What a job or a suite costs, and what it lacks.

    Attributes:
        problems: What must be solved before the job can run.
        advice: Warnings and recommendations.
        name: Name of the job or suite.
        estimate: Calls, tokens and cost of each stage; None for a suite, or if the corpus cannot be read.
        probed: What the probe found.
        untested: Models of which it is not known whether they answer, and how fast.
        usd: Total cost in US dollars; None if a price is unknown.
        datasets: The datasets of a suite.
        local: What the models on this machine read, and how long they take.
        unmeasured: The models on this machine whose time is not in the estimate.
        standing: What a started job has paid, and what remains.
        notes: What else `airgen check` says.
    """

    problems: list[str]
    advice: list[str]
    name: str = ""
    estimate: Estimate | None = None
    probed: list[str] | None = None
    untested: list[str] | None = None
    usd: float | None = None
    datasets: list[dict[str, Any]] | None = None
    local: list[LocalWork] = field(default_factory=list)
    standing: Standing | None = None
    notes: list[str] = field(default_factory=list)
    load: float = 0.0
    unmeasured: list[str] = field(default_factory=list)
    stages: bool = True
    words: Callable[[str], str] = str  # as the caller names settings and commands

    @property
    def calls(self) -> int:
        """Number of LLM calls."""
        return sum(stage.calls for stage in self.estimate.stages) if self.estimate else 0

    @property
    def tokens(self) -> int:
        """Number of input and output tokens."""
        stages = self.estimate.stages if self.estimate else ()
        return sum(stage.prompt_tokens + stage.completion_tokens for stage in stages)

    @property
    def minutes(self) -> float | None:
        """Total time of LLM calls and of the models on this machine; None without an estimate. A call to an LLM that
        was not probed counts as 2 seconds."""
        if self.estimate is None:
            return None
        calls = self.estimate.assumed_seconds if self.estimate.seconds is None else self.estimate.seconds
        return (calls + sum(work.seconds or 0.0 for work in self.local)) / 60

    @property
    def lines(self) -> list[str]:
        """The price and the time, what a started job has paid, and how much is generated."""
        if self.estimate is None:
            return []
        first = price_and_time(self.estimate, self.local, self.load, self.unmeasured)
        lines = [first, *([self.standing.line] if self.standing else []), self.estimate.head]
        return [self.words(line) for line in lines]

    def worded(self, words: Callable[[str], str]) -> "Check":
        """Return the same with other names of settings and commands in its texts."""
        problems, advice, notes = (list(map(words, lines)) for lines in (self.problems, self.advice, self.notes))
        return replace(self, words=words, problems=problems, advice=advice, notes=notes)

    def study(self) -> Study:
        """Return the price and time, the stages, and a line for everything else that the user should know."""
        parts: list[str | Table] = [Plain(line) for line in self.lines]
        if self.estimate and self.stages:
            parts += [estimate_table(self.estimate), Plain(calls_time(self.estimate))]
        return Study("", [*parts, *(Plain(f"  {note}") for note in self.notes if note)])

    def __repr__(self) -> str:
        return self.study().text()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values: the figures of the estimate along with the lines."""
        own = {name: getattr(self, name) for name in ("name", "problems", "advice", "usd")}
        if self.datasets is not None:
            return {**own, "datasets": self.datasets}
        figures = {"seconds": self.estimate.seconds, **asdict(self.estimate)} if self.estimate else {}
        figures["local"] = [asdict(work) for work in self.local]
        figures["standing"] = asdict(self.standing) if self.standing else None
        return {**own, "probed": self.probed, "untested": self.untested, **figures}


def check_job(
    job: Job, *, budget: float | None = None, probe: bool = False, stages: bool = True, measure: bool = True
) -> Check:
    """Return what a job will cost, how long it will take, and what it lacks.

    Args:
        job: The job.
        budget: Budget in US dollars, in place of the pipeline's.
        probe: Probe each LLM that has not been probed yet.
        stages: Show the calls, tokens and cost of each stage.
        measure: Run the local models on a few passages to measure their speed, and send each search service one query.
    """
    problems = preflight(job, budget_usd=budget)
    problems += unanswered(job) if measure else []
    warnings = [*advice(job), *downloads(job, problems)]
    probed: list[str] = []
    if probe and not problems:
        try:
            probe_models(job, probed.append, budget_usd=budget, every=True)
        except AirgenError as error:
            problems += error.problems
    elif probe:
        problems.append("no model was probed because of the problems above: solve them, then probe again")
    problems += unusable(job)
    untested = [llm.model for llm in unprobed(job).values()]
    passages = FirstPassages(job.corpus.unlimited, job.pipeline.task)
    estimated, published = None, None if is_fetched(job.corpus) else published_sizes(job.path)
    if published:
        warnings.append(
            f"its corpus is not on this machine: the estimate uses the published {published.tokens:,} tokens per "
            "passage"
        )
    try:
        estimated = estimate(job, published.tokens if published else None, budget, passages)
        problems += estimated.problems
    except AirgenError as error:  # the corpus cannot be read, or its cleaning lacks a package
        problems += [line for line in error.problems if line not in problems]
    local: list[LocalWork] = []
    unmeasured: list[str] = []
    if estimated is not None and (published or not measure):
        unmeasured = list(dict.fromkeys(filter(None, (model_of(spec) for _, spec in used_parts(job)))))
    if measure and estimated is not None and not published:
        queries = min(job.pipeline.target, estimated.samples)
        same = passages if job.corpus.limit is None else None
        local = local_work(job, samples=estimated.samples, queries=queries, passages=same)
    every = list(dict.fromkeys([*(estimated.warnings if estimated else []), *warnings]))
    problems = list(dict.fromkeys(problems))
    return Check(
        problems=problems,
        advice=warnings,
        name=job.pipeline.name,
        estimate=estimated,
        probed=probed,
        untested=untested,
        usd=estimated.usd if estimated else None,
        local=local,
        standing=standing(job, estimated) if estimated is not None else None,
        notes=_notes(job, local, probed, [*every, *problems], untested=untested if not problems else None),
        load=load_of_machine() if local else 0.0,
        unmeasured=unmeasured,
        stages=stages,
    )


def _notes(
    job: Job, local: Sequence[LocalWork], probed: Sequence[str], urgent: Sequence[str], untested: Sequence[str] | None
) -> list[str]:
    """Return the lines below the figures. `untested` is None if there are problems."""
    pipeline = job.pipeline
    notes = [
        profile_words(pipeline),
        reading_words(pipeline.llm, pipeline.query_language) if pipeline.generates else "",
        f"relevant: {RELEVANCE[pipeline.relevance]} (relevance: {pipeline.relevance})",
        in_words(pipeline.language),
        *_setups(local),
        *(f"probe: {line}" for line in probed),
        *(f"! {line}" for line in urgent),
    ]
    if untested is not None:
        notes.append("nothing is missing")
    if untested:
        asked = ", ".join(untested)
        notes.append(f"not tested: whether {asked} answers, and how fast: airgen check --probe asks")
    return notes


def _setups(local: Sequence[LocalWork]) -> list[str]:
    """Return a line for each local model: how it is run, if it could be loaded."""
    later = "not on this machine: its prompts, maximum length and dtype are known once it is loaded"
    return list(
        dict.fromkeys(
            f"{work.model}: {setup.words if setup else later}" for work in local for setup in (work.setups or (None,))
        )
    )
