"""A run as a user sees it: the job, the evaluation of its dataset, and the last lines that are printed."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from airgen.compute import computing
from airgen.dataset.content import FunnelStep
from airgen.errors import AirgenError, UsageError
from airgen.evaluation.result import peak_bytes
from airgen.pipeline.job import Job, RunResult
from airgen.pipeline.preflight import ensure_ready, probe_models, rehearse
from airgen.pipeline.progress import BEAT_SECONDS, Display
from airgen.pipeline.refresh import REFRESHED, change_lines
from airgen.retrievers.encodings import shared_encodings
from airgen.settings.compute import compute_settings
from airgen.text.display import dollars, json_text, terminal_table, terminal_text

STOPS = ("corpus", "hard_negative", "judgment")


def run_pipeline(
    path: Path,
    *,
    runs: Path = Path("runs"),
    budget_usd: float | None = None,
    target: int | None = None,
    until: str | None = None,
    retry_failed: bool = False,
    evaluate: bool = True,
    console: Console | None = None,
    every: float = BEAT_SECONDS,
    compute: str | None = None,
) -> RunResult:
    """Run a pipeline to its end, and evaluate the systems that it names on the finished dataset.

    compute: where heavy work runs, in place of the pipeline's `compute`; see `compute_settings`.
    Everything that the run needs is checked first, and its local models are used once. Raises SettingsError with all
    that is missing, and what `Job.run` raises. A system that fails is named in the result's `failed`.
    """
    if until is not None and until not in STOPS:
        raise UsageError(f"--until {until}: must be one of {', '.join(STOPS)}")
    began = time.monotonic()
    job = Job(path, runs, target=target)
    settings = job.pipeline.compute if compute is None else compute_settings(compute, job.pipeline.compute)
    display = Display(job.directory / "status.json", console, every=every)
    done = until is None and job.finished()
    if not done:
        ensure_ready(job, until=until, evaluate=evaluate, budget_usd=budget_usd)
    with (
        display.lasting(**job.about(done)),
        shared_encodings(job.directory / "embeddings"),
        computing(settings) as where,
    ):
        display.compute = where.describe
        if not done:
            if until != "corpus":  # first: a wrong key is said in seconds, and models take a minute to load
                probe_models(job, display.say, budget_usd=budget_usd)
            rehearse(job, display, until=until, evaluate=evaluate)
        try:
            result = job.run(display, until=until, budget_usd=budget_usd, retry_failed=retry_failed)
        except AirgenError:
            with suppress(AirgenError):
                if steps := job.funnel_so_far():
                    _print_funnel(display.console, steps)
            raise
        if evaluate and result.manifest is not None and job.pipeline.evaluate.systems:
            scores, failed = evaluate_systems(job, display)
            result = replace(result, scores=scores, failed=failed)
    memory = peak_bytes()
    return replace(result, seconds=time.monotonic() - began, memory_mb=None if memory is None else memory / (1 << 20))


def evaluate_systems(job: Job, display: Display) -> tuple[list[dict[str, Any]], list[str]]:
    """Scores of the pipeline's systems on its finished dataset, and a line for each system that failed.

    A run that exists already is not made again.
    """
    from airgen.evaluation import EvaluationOptions, evaluate, load_systems

    settings = job.pipeline.evaluate
    path = job.systems_file
    assert path is not None
    systems = load_systems(path)
    measures = ["nDCG@10", "R@10", "R@100", "MRR@10", "MAP"]
    failed: list[str] = []
    with display.stage("evaluation", len(systems)) as bar:
        results = evaluate(
            job.dataset, systems, job.directory / "evaluation",
            EvaluationOptions(settings.split, measures, folder=path.parent),
            progress=lambda line: bar.advance(note=line),
            started=lambda line: bar.advance(0, line),
            encoding=bar.encoding,
            failed=lambda name, error: failed.append(f"{path.name}: system {name}: {error}"),
        )  # fmt: skip
    return [{"system": one.name, **one.means} for one in results], failed


def print_result(result: RunResult, *, as_json: bool = False, reasons: int = 4) -> None:
    """The last lines of a run: the funnel with its most frequent `reasons`, the scores, the bill and the paths."""
    if as_json:
        value = asdict(replace(result, manifest=None))
        value["directory"] = str(result.directory)
        value["report"] = None if result.report is None else str(result.report)
        value["funnel"] = [asdict(step) for step in result.manifest.funnel] if result.manifest else []
        print(json_text(value, indent=1, default=str))
        return
    console = Console()
    if result.manifest is not None:
        _print_funnel(console, result.manifest.funnel, reasons)
        note = result.manifest.notes.get(REFRESHED)
        for line in change_lines(note, result.manifest.info.version) if isinstance(note, dict) else ():
            console.print(terminal_text(line), markup=False, highlight=False, soft_wrap=True)
        if result.scores:
            _print_scores(console, result)
    if result.note:
        console.print(terminal_text(result.note), markup=False)
    calls = sum(stage["calls"] for stage in result.usage.values())
    if result.already_done:
        console.print("already finished: no model was asked and nothing was paid", markup=False)
    elif result.usage:
        read = sum(stage["prompt_tokens"] for stage in result.usage.values())
        cached = sum(stage["cached_tokens"] for stage in result.usage.values())
        wrote = sum(stage["completion_tokens"] for stage in result.usage.values())
        usd = sum(stage["usd"] for stage in result.usage.values())
        console.print(
            f"{calls:,} calls, {read:,} tokens in ({cached:,} from caches), {wrote:,} out, {dollars(usd)}; "
            f"{result.seconds:.0f} s" + ("" if result.memory_mb is None else f", {result.memory_mb:,.0f} MB"),
            markup=False, highlight=False,
        )  # fmt: skip
    for name, what in (
        ("dataset", "the benchmark (BEIR layout, card: README.md)"),
        ("evaluation", "run files, scores, tables"),
        ("work.duckdb", "every step of every query: airgen show"),
    ):
        if (result.directory / name).exists():
            _print_path(console, result.directory / name, what)
    if result.report is not None:
        _print_path(console, result.report, "the report: open it in a browser")


def _print_path(console: Console, path: Path, what: str) -> None:
    console.print(terminal_text(f"{path}  {what}"), markup=False, highlight=False, soft_wrap=True)


def _print_funnel(console: Console, steps: Sequence[FunnelStep], most: int = 4) -> None:
    rows = [["stage", "entered", "left", "why not"]]
    for step in steps:
        reasons = [f"{count:,} {reason}" for reason, count in step.reasons.items()]
        more = [f"{len(reasons) - most} other reasons"] if len(reasons) > most else []
        rows.append([step.stage, f"{step.entered:,}", f"{step.left:,}", "; ".join([*reasons[:most], *more])])
    console.print("Funnel")
    _print_table(console, rows, left=(0, 3))


def _print_scores(console: Console, result: RunResult) -> None:
    measures = [name for name in result.scores[0] if name != "system"]
    rows = [[str(row["system"]), *(f"{row[name]:.4f}" for name in measures)] for row in result.scores]
    console.print("\nScores")
    _print_table(console, [["system", *measures], *rows])
    console.print()


def _print_table(console: Console, rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> None:
    lines = (line.rstrip() for line in terminal_table(rows, left).splitlines())
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
