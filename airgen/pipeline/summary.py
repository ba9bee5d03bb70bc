"""A run as a user sees it: the job, the evaluation of its dataset, and the last lines that are printed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from airgen.compute import computing
from airgen.dataset.content import FunnelStep
from airgen.errors import AirgenError, UsageError
from airgen.evaluation.result import peak_bytes
from airgen.evaluation.significance import Comparison
from airgen.pipeline.job import Job, RunResult
from airgen.pipeline.preflight import ensure_ready, probe_models, rehearse
from airgen.pipeline.progress import BEAT_SECONDS, Display
from airgen.pipeline.refresh import REFRESHED, change_lines
from airgen.retrievers.encodings import shared_encodings
from airgen.settings.compute import compute_settings
from airgen.text.display import dollars, terminal_lines, terminal_table, terminal_text

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
                    text = "\n".join(_funnel_lines(steps))
                    display.console.print(text, markup=False, highlight=False, soft_wrap=True)
            raise
        if evaluate and result.manifest is not None and job.pipeline.evaluate.systems:
            result = evaluate_systems(job, display, result)
    memory = peak_bytes()
    return replace(result, seconds=time.monotonic() - began, memory_mb=None if memory is None else memory / (1 << 20))


def evaluate_systems(job: Job, display: Display, result: RunResult) -> RunResult:
    """The result with the scores of the pipeline's systems on its finished dataset, best first, and what they say.

    A run that exists already is not made again. `failed` has a line for each system that failed.
    """
    from airgen.evaluation import EvaluationOptions, evaluate, load_systems
    from airgen.evaluation.tables import compare_results, ranking_text

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
    if not results:
        return replace(result, failed=failed)
    results = sorted(results, key=lambda one: -one.score)
    comparison = compare_results(results)
    scores = [{"system": one.name, **one.means, "interval": list(one.intervals[one.headline])} for one in results]
    verdict = _verdict(job, comparison, results[0].queries, audited=bool(result.manifest and result.manifest.audit))
    ranking = f"{ranking_text(results, comparison)}\n{verdict}"
    return replace(result, scores=scores, ranking=ranking, verdict=verdict, failed=failed)


def _verdict(job: Job, found: Comparison, queries: int, *, audited: bool) -> str:
    """One line: are there queries enough to rank these systems, were the labels checked, and what to do next."""
    pairs = len(found.pairs)
    told = pairs - sum(map(len, found.together)) // 2
    if not pairs:
        text = "one system is no comparison: name more in the systems YAML"
    elif told == pairs:
        text = f"{queries:,} queries are enough: every pair of these systems is told apart"
    else:
        text = f"{told} of {pairs} pairs of systems are told apart by {queries:,} queries"
        best, *others = found.names
        unsure = [one for one in found.pairs if {one.first, one.second} == {best, others[0]}]
        pair = unsure[0] if others[0] in found.together[0] else None
        more = "label more of your own queries" if job.pipeline.queries is not None else "raise `target`"
        if pair is not None and pair.queries_needed:
            text += f"; about {pair.queries_needed:,} would tell {best} from {others[0]} ({more})"
        elif pair is None:
            text += f"; {best} is the best for certain"
        else:
            text += f"; {best} and {others[0]} have equal scores"
    checked = "" if audited else f". No person has checked the labels yet: airgen audit sample {job.path} 40"
    return terminal_text(f"Verdict: {text}{checked}")


def result_values(result: RunResult) -> dict[str, Any]:
    """A run's result as plain values: the funnel in place of the manifest."""
    value = asdict(replace(result, manifest=None))
    value["funnel"] = [asdict(step) for step in result.manifest.funnel] if result.manifest else []
    return value


def result_lines(result: RunResult, reasons: int = 4) -> list[str]:
    """The last lines of a run: the funnel with its most frequent `reasons`, the ranking, the bill and the paths."""
    lines: list[str] = []
    if result.manifest is not None:
        lines += _funnel_lines(result.manifest.funnel, reasons)
        note = result.manifest.notes.get(REFRESHED)
        lines += change_lines(note, result.manifest.info.version) if isinstance(note, dict) else []
        if result.scores:
            lines += ["", result.ranking, ""]
    if result.note:
        lines.append(result.note)
    if result.already_done:
        lines.append("already finished: no model was asked and nothing was paid")
    elif result.usage:
        calls, read, cached, wrote, usd = (
            sum(stage[name] for stage in result.usage.values())
            for name in ("calls", "prompt_tokens", "cached_tokens", "completion_tokens", "usd")
        )
        lines.append(
            f"{calls:,} calls, {read:,} tokens in ({cached:,} from caches), {wrote:,} out, {dollars(usd)}; "
            f"{result.seconds:.0f} s" + ("" if result.memory_mb is None else f", {result.memory_mb:,.0f} MB")
        )
    for name, what in (
        ("dataset", "the benchmark (BEIR layout, card: README.md)"),
        ("evaluation", "run files, scores, tables"),
        ("work.duckdb", "every step of every query: airgen show"),
    ):
        if (result.directory / name).exists():
            lines.append(f"{result.directory / name}  {what}")
    if result.report is not None:
        lines.append(f"{result.report}  the report: open it in a browser")
    return [terminal_lines(line) for line in lines]


def _funnel_lines(steps: Sequence[FunnelStep], most: int = 4) -> list[str]:
    rows = [["stage", "entered", "left", "why not"]]
    for step in steps:
        reasons = [f"{count:,} {reason}" for reason, count in step.reasons.items()]
        more = [f"{len(reasons) - most} other reasons"] if len(reasons) > most else []
        rows.append([step.stage, f"{step.entered:,}", f"{step.left:,}", "; ".join([*reasons[:most], *more])])
    return ["Funnel", *(line.rstrip() for line in terminal_table(rows, (0, 3)).splitlines())]
