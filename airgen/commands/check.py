"""`airgen check`: report what a pipeline or a suite lacks and what it will cost; try out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from airgen.commands.command import command
from airgen.commands.options import Budget, JobName, Runs, Target, arg, opt, path_or_none
from airgen.commands.outcome import Outcome
from airgen.errors import AirgenError, UsageError
from airgen.paths import RUNS, beside
from airgen.study import Plain, Shown, Study, Table

if TYPE_CHECKING:
    from airgen.pipeline.estimate import Estimate, Standing
    from airgen.pipeline.job import Job
    from airgen.pipeline.local_model_time import LocalWork
    from airgen.pipeline.try_prompts import PromptTrial


@dataclass(frozen=True)
class Check(Shown):
    """What a job or a suite costs, and what it lacks, as lines of text.

    `estimate` is None for a suite or if the corpus cannot be read. `probed` is what the probe found. `datasets` is for
    suites. `local` is what the models on this machine read, and how long they take. `standing` is what a started job
    has paid, and what remains.
    """

    problems: list[str]
    advice: list[str]
    estimate: Estimate | None = None
    probed: list[str] | None = None
    untested: list[str] | None = None
    usd: float | None = None
    datasets: list[dict[str, Any]] | None = None
    local: list[LocalWork] = field(default_factory=list)
    standing: Standing | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values: the figures of the estimate along with the lines."""
        own = {name: getattr(self, name) for name in ("problems", "advice", "usd")}
        if self.datasets is not None:
            return {**own, "datasets": self.datasets}
        figures = {"seconds": self.estimate.seconds, **asdict(self.estimate)} if self.estimate else {}
        figures["local"] = [asdict(work) for work in self.local]
        figures["standing"] = asdict(self.standing) if self.standing else None
        return {**own, "probed": self.probed, "untested": self.untested, **figures}


@command
def check(
    pipeline: JobName,
    target: Target = None,
    budget: Budget = None,
    probe: Annotated[
        bool, opt("Ask each LLM a few short questions, to learn what it supports and how fast it is.")
    ] = False,
    stages: Annotated[bool, opt("Show the calls, tokens and cost of each stage.")] = False,
    runs: Runs = None,
) -> Outcome[Check]:
    """Check settings, prompts, models, extras, keys and disk space; estimate calls, tokens and cost of each stage.

    The first line gives the price and the time. To measure their speed, local models read a few passages. The systems
    of the pipeline are checked as well. LLMs are called only with --probe, which costs a few cents at most. For a
    suite, every dataset is checked and priced, by its published size if the corpus has not been downloaded.

    Example: airgen check pipelines/full.yaml --probe

    Returns:
        The problems, the advice and the estimate.

    Raises:
        SettingsError: A file cannot be read.
        UsageError: An option does not apply to a suite.
    """
    from airgen.pipeline.check_suite import check_suite
    from airgen.pipeline.show import find_suite, read_job

    path = find_suite(pipeline)
    if path is None:
        job = read_job(pipeline, path_or_none(runs), target=target)
        return check_job(job, budget=budget, probe=probe, stages=stages, measure=True)
    if target is not None or probe:
        raise UsageError("--target and --probe apply to one pipeline: name a dataset of the suite, SUITE.yaml#DATASET")
    suite_estimate = check_suite(path, path_or_none(runs) or beside(path) / RUNS, budget_usd=budget)
    rows = [{**asdict(row), "usd": row.estimate.usd if row.estimate else None} for row in suite_estimate.datasets]
    value = Check(list(suite_estimate.problems), list(suite_estimate.warnings), usd=suite_estimate.usd, datasets=rows)
    shown = {
        "name": suite_estimate.suite.name,
        **value.as_dict(),
        "problems": suite_estimate.problems,
        "advice": suite_estimate.warnings,
    }
    return Outcome(value, suite_estimate.study(), json=shown, code=1 if suite_estimate.problems else 0)


def check_job(
    job: Job, *, budget: float | None = None, probe: bool = False, stages: bool = True, measure: bool = False
) -> Outcome[Check]:
    """Return what a job will cost, how long it will take, and what it lacks.

    Args:
        job: The job.
        budget: Budget in US dollars, in place of the pipeline's.
        probe: Probe each LLM that has not been probed yet.
        stages: Show the calls, tokens and cost of each stage.
        measure: Run the local models on a few passages to measure their speed.
    """
    from airgen.corpus.fetch import is_fetched
    from airgen.llms.probe import read_profiles
    from airgen.pipeline.estimate import estimate, standing
    from airgen.pipeline.local_model_time import local_work
    from airgen.pipeline.preflight import advice, downloads, preflight, probe_models, unprobed
    from airgen.settings.suite import published_sizes

    problems = preflight(job, budget_usd=budget)
    warnings = [*advice(job), *downloads(job, problems)]
    probed: list[str] = []
    if probe and not problems:
        try:
            probe_models(job, probed.append, budget_usd=budget, every=True)
        except AirgenError as error:
            problems += str(error).splitlines()
    elif probe:
        problems.append("no model was probed because of the problems above: solve them, then probe again")
    known = read_profiles(job.directory, job.pipeline.llms.values())
    problems += [
        f"{model}: {profile.unusable}: choose another model, or fix its server and probe again"
        for (_, model), profile in known.items()
        if profile.unusable
    ]
    untested = [llm.model for llm in unprobed(job).values()]
    estimated, published = None, None if is_fetched(job.corpus) else published_sizes(job.path)
    if published:
        warnings.append(
            f"its corpus is not on this machine: the estimate uses the published {published.tokens:,} "
            f"tokens "
            f"per "
            f"passage"
        )
    try:
        estimated = estimate(job, published.tokens if published else None, budget)
        problems += estimated.problems
    except AirgenError as error:  # the corpus cannot be read, or its cleaning lacks a package
        problems += [line for line in str(error).splitlines() if line not in problems]
    local: list[LocalWork] = []
    if measure and estimated is not None and not published and not problems:
        queries = estimated.samples if job.pipeline.queries is not None else job.pipeline.target
        local = local_work(job, samples=estimated.samples, queries=queries)
    where = standing(job, estimated) if estimated is not None else None
    value = Check(
        problems=problems,
        advice=warnings,
        estimate=estimated,
        probed=probed,
        untested=untested,
        usd=estimated.usd if estimated else None,
        local=local,
        standing=where,
    )
    return Outcome(value, _study(job, value, stages=stages), code=1 if problems else 0)


def _setups(local: Sequence[LocalWork]) -> list[str]:
    """Return a line for each local model: how it is run, if it could be loaded."""
    later = "not on this machine: its prompts, maximum length and dtype are known once it is loaded"
    return list(
        dict.fromkeys(
            f"{work.model}: {setup.words if setup else later}" for work in local for setup in (work.setups or (None,))
        )
    )


def _study(job: Job, checked: Check, *, stages: bool) -> Study:
    """Return the cost and time, the stages on request, then each line for the user."""
    from airgen.corpus.cleaning.mask_personal_data import what_remains
    from airgen.corpus.show import in_words
    from airgen.pipeline.estimate import calls_time, estimate_head, estimate_table, standing_line
    from airgen.pipeline.local_model_time import load_of_machine, price_and_time
    from airgen.pipeline.preflight import profile_words
    from airgen.settings import RELEVANCE
    from airgen.settings.model_size import reading_words

    pipeline, estimated = job.pipeline, checked.estimate
    parts: list[str | Table] = []
    if estimated:
        parts.append(Plain(price_and_time(estimated.usd, estimated.seconds, checked.local, load_of_machine())))
    if checked.standing:
        parts.append(Plain(standing_line(job, checked.standing)))
    if estimated:
        parts.append(Plain(estimate_head(job, estimated)))
        parts += [estimate_table(estimated), Plain(calls_time(estimated))] if stages else []
    notes = [
        profile_words(pipeline),
        reading_words(pipeline.llm, pipeline.query_language) if pipeline.queries is None else "",
        f"relevant: {RELEVANCE[pipeline.relevance]} (relevance: {pipeline.relevance})",
        what_remains(job.corpus, pipeline.task),
        in_words(pipeline.language),
        *_setups(checked.local),
        *(f"probe: {line}" for line in checked.probed or ()),
        *(f"! {line}" for line in [*(estimated.warnings if estimated else []), *checked.advice, *checked.problems]),
    ]
    if not checked.problems:
        notes.append("nothing is missing")
        if checked.untested:
            asked = ", ".join(checked.untested)
            notes.append(f"not tested: whether {asked} answers, and how fast: airgen check --probe asks")
    parts += [Plain(f"  {note}") for note in notes if note]
    return Study("", parts)


@command
def check_prompts(
    pipeline: JobName,
    names: Annotated[Sequence[str], arg("PROMPT", "One or more prompts: names, or .j2 files.")],
    documents: Annotated[int, opt("Number of documents.", "-n", min=1)] = 3,
    runs: Runs = None,
) -> Outcome[PromptTrial]:
    """Send prompts for real documents and show the parsed answers side by side, with the results of a job's checks.

    Answers are saved, so none is paid for twice.

    Example: airgen check prompts pipelines/quickstart.yaml query my/query.j2 -n 5

    Returns:
        The answers by document and prompt, and the totals of each prompt.

    Raises:
        PromptError: There is no such prompt, or its template is wrong.
    """
    from airgen.pipeline.show import read_job
    from airgen.pipeline.try_prompts import try_on_documents

    trial = try_on_documents(read_job(pipeline, path_or_none(runs)), list(names), documents)
    return Outcome(trial, trial.study(), json={"documents": trial.rows, "totals": trial.totals()})
