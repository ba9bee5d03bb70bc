"""`airgen run`: the main job, of a pipeline, of queries that are there already, or of a suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airgen.commands.command import Outcome, command, echo, end_event, logging_events, say
from airgen.commands.options import Budget, Compute, Place, Quiet, Runs, Target, arg, opt, path_or_none
from airgen.errors import AirgenError, UsageError
from airgen.paths import RUNS, beside
from airgen.text.display import dollars, terminal_text

if TYPE_CHECKING:
    from airgen.pipeline.run import RunResult


@command
def run(
    pipeline: Annotated[
        Place | None, arg("JOB", "A pipeline (YAML or name), a job (name or folder), or a suite.")
    ] = None,
    queries: Annotated[Place | None, opt("Label these: text, CSV, TSV, JSONL, or a folder in BEIR format.")] = None,
    corpus: Annotated[str | None, opt("With --queries: a corpus YAML, or a shipped corpus.")] = None,
    labels: Annotated[Sequence[Place], opt("With --queries: qrels, Quepid's CSV, OpenSearch's JSON.")] = (),
    no_labels: Annotated[bool, opt("With --queries: leave out the qrels of a BEIR folder.")] = False,
    systems: Annotated[Place | None, opt("With --queries: systems whose hits are judged, too.", exists=True)] = None,
    sample: Annotated[int | None, opt("With --queries: draw so many, by how often they were asked.", min=1)] = None,
    column: Annotated[str, opt("With --queries: column of the text. Default: found by its name.")] = "",
    count_column: Annotated[str, opt("With --queries: column that says how often a query was asked.")] = "",
    keep_languages: Annotated[bool, opt("With --queries: keep those in another language than the pipeline's.")] = False,
    name: Annotated[str, opt("With --queries: name of the dataset. Default: that of the file.")] = "",
    check: Annotated[bool, opt("Say what is missing and what it will cost, and stop.")] = False,
    budget: Budget = None,
    target: Target = None,
    until: Annotated[str | None, opt("Stop after this stage: corpus, hard_negative, judgment.")] = None,
    retry_failed: Annotated[bool, opt("Repeat LLM calls that failed before.")] = False,
    compute: Compute = None,
    runs: Runs = None,
    root: Annotated[Place, opt("Folder that holds the versions of suites.")] = Path("suites"),
    evaluate: Annotated[bool, opt("Evaluate the pipeline's systems at the end.", "--evaluate/--no-evaluate")] = True,
    report: Annotated[bool, opt("Write the report, a page to browse, at the end.", "--report/--no-report")] = True,
    quiet: Quiet = False,
    verbose: Annotated[
        bool, opt("Without a terminal a line every 5 s, not 30; all reasons.", "--verbose", "-v")
    ] = False,
    log: Annotated[
        Literal["text", "json"], opt("What standard error has: json is one line for each stage, for machines.")
    ] = "text",
) -> Outcome[RunResult]:
    """Build a benchmark from a corpus: generate, control, export, evaluate, report. Run a stopped job again to go on.

    With --queries nothing is generated: passages are found for your own queries by several retrievers, and judged.
    NAME.yaml, a pipeline, is written, and `airgen run NAME.yaml` does the same from then on; JOB says whose LLM, judge
    and retrievers are used. Of a suite, all pipelines are run and their datasets collected as a version.

    Example: airgen run pipelines/quickstart.yaml
    Example: airgen run pipeline.yaml --queries log.csv --corpus corpus.yaml --sample 300
    """
    from airgen.pipeline.label_pipeline import label_pipeline
    from airgen.pipeline.show import find_place
    from airgen.settings.suite import is_suite

    own = {
        "--corpus": corpus, "--labels": labels, "--no-labels": no_labels, "--systems": systems, "--sample": sample,
        "--column": column, "--count-column": count_column, "--keep-languages": keep_languages, "--name": name,
    }  # fmt: skip
    if queries is None and (without := [option for option, value in own.items() if value]):
        raise UsageError(f"{without[0]} is for queries of your own: name them with --queries")
    if queries is None and pipeline is None:
        raise UsageError("give a pipeline, a job, or a suite; or --queries FILE")
    path, folder = find_place(pipeline or "quickstart", path_or_none(runs))
    if queries is not None:
        if labels and no_labels:
            raise UsageError("--labels and --no-labels: choose one")
        kept = "keep" if keep_languages else ""
        settings = {"column": column, "count_column": count_column, "other_language": kept}
        path = label_pipeline(
            Path(queries), path, corpus=corpus, name=name, sample=sample,
            settings={key: value for key, value in settings.items() if value},
            labels=[] if no_labels else [Path(one) for one in labels] or None,
            systems=path_or_none(systems),
        )  # fmt: skip
        folder = beside(path) / RUNS if runs is None else Path(runs)
        say(f"{path}: the pipeline of this job")
    if check:
        from airgen.commands.check import check_job
        from airgen.pipeline.job import Job
        from airgen.pipeline.run import RunResult

        job = Job(path, folder, target=target)
        looked = check_job(job, budget=budget)
        return Outcome(RunResult(job.directory), looked.text, json=looked.value, code=looked.code)
    if is_suite(path):
        return _suite(path, folder, Path(root), budget)
    with logging_events(log == "json") as events:
        return run_and_report(
            path, folder, report=report, verbose=verbose, quiet=quiet, budget_usd=budget, target=target, until=until,
            retry_failed=retry_failed, evaluate=evaluate, compute=compute, log=events,
        )  # fmt: skip


def run_and_report(
    path: Place,
    runs: Path,
    *,
    report: bool = True,
    verbose: bool = False,
    quiet: bool = False,
    log: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> Outcome[RunResult]:
    """Run one pipeline, and write its report. log: is told each stage in place of the terminal."""
    from rich.console import Console

    from airgen.pipeline.job import Job
    from airgen.pipeline.refresh import earlier_version
    from airgen.pipeline.run import result_lines, result_values, run_pipeline
    from airgen.report.report import report_of_run
    from airgen.settings import load_pipeline
    from airgen.settings.base import find_yaml
    from airgen.steps.progress import BEAT_SECONDS
    from airgen.studies.compare import drift_since
    from airgen.studies.label_sets import label_sets_of_job

    console, every = Console(stderr=True, quiet=quiet), 5.0 if verbose else BEAT_SECONDS
    result = run_pipeline(Path(path), runs=runs, console=console, every=every, log=log, **options)
    if report:
        target = options.get("target")
        result = report_of_run(result, Path(path), runs, target, say if log else lambda line: echo(line, err=True))
    names = [row["system"] for row in result.scores]
    if names and (sets := label_sets_of_job(Job(Path(path), runs, target=options.get("target")), names)) is not None:
        result = replace(result, labels=terminal_text(f"Labels: {sets.sentence}"))
    version = earlier_version(result.manifest)
    if version is not None and not result.already_done and result.scores:
        say(drift_since(Job(Path(path), runs), version))  # how the ranking of the pipeline's systems has changed
    lines = result_lines(result, 100 if verbose else 4)
    wanted = options.get("target")
    if wanted is not None and wanted != (written := load_pipeline(find_yaml("pipelines", path)).target):
        lines.append(
            f"target: {wanted:,} this time; {path} says {written:,}, and a run without --target goes on to that"
        )
    error = AirgenError("\n".join(result.failed)) if result.failed else None
    if log is not None:
        log(end_event(error, directory=result.directory, verdict=result.verdict, seconds=round(result.seconds, 3)))
        if error is not None:
            error.told = True
    return Outcome(result, lines, json=result_values(result), error=error)


def _suite(path: Path, runs: Path, root: Path, budget: float | None) -> Outcome[RunResult]:
    from airgen.pipeline.job import Job
    from airgen.pipeline.run import RunResult, run_pipeline
    from airgen.publishing.suites import FinishedPipeline, build
    from airgen.settings.suite import load_suite
    from airgen.steps.ask import money
    from airgen.text.tokens import count_tokens

    def finish(path: Path, budget_usd: float | None) -> FinishedPipeline:
        run_pipeline(path, runs=runs, budget_usd=budget_usd, evaluate=False)
        job = Job(path, runs)
        with job.open_store(read_only=True) as store:
            return FinishedPipeline(job.dataset, money(store).spent)

    built = build(load_suite(path), root, finish, budget_usd=budget, count_tokens=count_tokens, say=say)
    value = {"directory": built.directory, "spent_usd": built.spent_usd, "datasets": sorted(built.datasets)}
    text = (built.directory / "statistics.md").read_text(encoding="utf-8")
    return Outcome(RunResult(built.directory), [text, f"{built.directory}, {dollars(built.spent_usd)}"], json=value)
