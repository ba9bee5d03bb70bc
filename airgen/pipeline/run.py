"""Run a job: from the corpus to the exported dataset and the scores of systems, and the last lines that are printed.

run_pipeline(Path("pipeline.yaml"))      # checked, run, evaluated
run_job(job, display)                    # the same without checks and evaluation

What is on the disk already is not done again.
"""

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from airgen.compute import computing
from airgen.control.quality_control import control_quality
from airgen.control.query_set import Control
from airgen.dataset.content import FunnelStep
from airgen.dataset.manifest import Manifest, load_manifest
from airgen.dataset.people import NOTE, note_text
from airgen.dataset.verify import damaged_file, keep_card
from airgen.errors import AirgenError, UsageError
from airgen.evaluation.result import peak_bytes
from airgen.evaluation.significance import Comparison
from airgen.evaluation.verdict import verdict_of, whole_verdict
from airgen.generation.generate import generate
from airgen.generation.round_trip import RoundTrip
from airgen.interruptible import exit_soon, listen_again
from airgen.llms.engine import Engine
from airgen.paths import EVALUATION, RUNS
from airgen.pipeline.export import export_dataset, splits_of
from airgen.pipeline.funnel import funnel_so_far
from airgen.pipeline.job import Job
from airgen.pipeline.mlflow_log import log_run
from airgen.pipeline.own_queries import OWN_QUERIES, QueriesSource
from airgen.pipeline.people import has_answers
from airgen.pipeline.preflight import ensure_ready, probe_models, rehearse
from airgen.pipeline.refresh import REFRESHED, change_lines
from airgen.pipeline.store_corpus import CORPUS, CorpusSource
from airgen.retrievers import load_embedder
from airgen.retrievers.encodings import shared_encodings
from airgen.settings.compute import compute_settings
from airgen.steps.accepted import Accepted
from airgen.steps.ask import health_of, make_engine, money, run_to_end, saw_answer, workers_of
from airgen.steps.loops import run_whole
from airgen.steps.progress import BEAT_SECONDS, STATUS, Display
from airgen.steps.step import Tools
from airgen.store import Store
from airgen.study import Shown
from airgen.text.display import dollars, terminal_lines, terminal_table, terminal_text

_WAKE_SECONDS = 0.2
STOPS = ("corpus", "hard_negative", "judgment")


@dataclass(frozen=True)
class RunResult(Shown):
    """What a run left behind. `manifest` is None where it stopped before the export.

    scores: of each system, best first. ranking: their table for a terminal, with intervals. verdict: what can be told
    of them, and what to do next. labels: do they rank as the sources of the queries alone do. failed: a line for each
    system that could not be run. report: the page to browse.
    """

    directory: Path
    manifest: Manifest | None = field(default=None, repr=False)
    already_done: bool = False
    scores: list[dict[str, Any]] = field(default_factory=list, repr=False)
    ranking: str = field(default="", repr=False)
    verdict: str = ""
    labels: str = ""
    failed: list[str] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict, repr=False)
    note: str = ""
    seconds: float = 0.0
    memory_mb: float | None = None
    report: Path | None = None


def run_pipeline(
    path: Path,
    *,
    runs: Path = RUNS,
    budget_usd: float | None = None,
    target: int | None = None,
    until: str | None = None,
    retry_failed: bool = False,
    evaluate: bool = True,
    console: Console | None = None,
    every: float = BEAT_SECONDS,
    compute: str | None = None,
    log: Callable[[dict[str, Any]], None] | None = None,
) -> RunResult:
    """Run a pipeline to its end, and evaluate the systems that it names on the finished dataset.

    What the run needs is checked first. compute: where heavy work runs, see `compute_settings`. log: see `Display`.
    Raises SettingsError with all that is missing, and what `run_job` raises. A system that fails is named in the
    result's `failed`.
    """
    if until is not None and until not in STOPS:
        raise UsageError(f"--until {until}: must be one of {', '.join(STOPS)}")
    began = time.monotonic()
    job = Job(path, runs, target=target)
    settings = job.pipeline.compute if compute is None else compute_settings(compute, job.pipeline.compute)
    display = Display(job.directory / STATUS, console, every=every, log=log)
    done = until is None and job.finished()
    if not done:
        ensure_ready(job, until=until, evaluate=evaluate, budget_usd=budget_usd)
    with (
        display.lasting(**job.about(done)),
        shared_encodings(job.embeddings),
        computing(settings) as where,
    ):
        display.compute = where.describe
        if not done:
            if until != "corpus":  # first: a wrong key is said in seconds, and models take a minute to load
                probe_models(job, display.say, budget_usd=budget_usd)
            rehearse(job, display, until=until, evaluate=evaluate)
        try:
            result = run_job(job, display, until=until, budget_usd=budget_usd, retry_failed=retry_failed)
        except AirgenError:
            with contextlib.suppress(AirgenError), job.open_store(read_only=True) as store:
                if steps := funnel_so_far(job, store, job.accepted(store)):
                    text = "\n".join(_funnel_lines(steps))
                    display.console.print(text, markup=False, highlight=False, soft_wrap=True)
            raise
        if evaluate and result.manifest is not None and job.pipeline.evaluate.systems:
            result = evaluate_systems(job, display, result)
            if job.pipeline.evaluate.mlflow is not None:
                result = logged_in_mlflow(job, display, result)
    memory = peak_bytes()
    return replace(result, seconds=time.monotonic() - began, memory_mb=None if memory is None else memory / (1 << 20))


def run_job(
    job: Job, display: Display, *, until: str | None = None, budget_usd: float | None = None, retry_failed: bool = False
) -> RunResult:
    """Do all that is left to do. Raises Stopped (resumable) where the user or the budget ends the run."""
    done = until is None and job.finished()
    with display.lasting(**job.about(done)):
        if done:
            return RunResult(job.directory, load_manifest(job.dataset), already_done=True)
        with job.open_store() as store:
            store_sources(job, store, display)
            if until == "corpus":
                return RunResult(job.directory, note="stopped after the corpus, as asked")
            if retry_failed:
                store.forget_failures()
            if (job.dataset / "manifest.json").exists() and (name := damaged_file(job.dataset)):
                display.say(f"{job.dataset}: {name} is missing or damaged, so the dataset is exported again")
            accepted, usage = run_to_end(_ask(job, store, display, until, budget_usd, retry_failed))
            if until is not None:
                return RunResult(job.directory, usage=usage, note=f"stopped after {until}, as asked")
            if (copy := keep_card(job.dataset, job.directory)) is not None:
                display.say(f"{job.dataset / 'README.md'} was edited: your text is kept as {copy}")
            before = splits_of(job.dataset) if job.pipeline.export.exact else {}
            manifest = export_dataset(job, store, accepted, job.dataset)
            for query, split in splits_of(job.dataset).items() if before else ():
                if before.get(query, split) != split:
                    display.say(f"query {query} moved from {before[query]} to {split}, so that the ratio is exact")
            if accepted.spent:
                display.say(
                    f"no document is left: {len(accepted.lineages)} of {job.pipeline.target} queries were accepted; "
                    "add documents, raise generation.queries_per_passage, or lower the target"
                )
            display.write(finished=job.identity, usage=usage)
            return RunResult(job.directory, manifest, usage=usage)


def store_sources(job: Job, store: Store, display: Display) -> None:
    """Read the corpus and the user's own queries into the work database, unless that is done."""
    plan, pipeline = job.fingerprints, job.pipeline
    run_whole(CORPUS, CorpusSource(store=store, display=display, plan=plan, settings=job.corpus, pipeline=pipeline))
    if pipeline.queries is not None:
        source = QueriesSource(
            store=store,
            display=display,
            plan=plan,
            pipeline=pipeline,
            corpus=job.corpus,
            folder=job.folder,
        )
        run_whole(OWN_QUERIES, source)


async def _ask(
    job: Job, store: Store, display: Display, until: str | None, budget_usd: float | None, retry_failed: bool
) -> tuple[Accepted, dict[str, Any]]:
    """Candidate generation and quality control: all that asks models."""
    pipeline, embeddings = job.pipeline, job.embeddings
    engine = make_engine(
        pipeline, store, budget_usd=budget_usd, retry_failed=retry_failed, rules=job.flow.scripted, say=display.say
    )
    workers = workers_of(*pipeline.llms.values())

    def usage() -> dict[str, Any]:
        """Calls of this process by stage; another thread may add to them meanwhile."""
        return {stage: one.as_dict(time.monotonic()) for stage, one in list(engine.usage().items())}

    def bill() -> str:
        stages = usage().values()
        return f"{sum(stage['calls'] for stage in stages):,} calls, {dollars(sum(stage['usd'] for stage in stages))}"

    def figures() -> dict[str, Any]:
        return {"usage": usage(), "spent_usd": round(engine.spent_usd, 6), "budget_usd": engine.budget_usd}

    display.bill, display.figures = bill, figures
    async with engine:
        with _interruptible(engine) as stopping:
            members = health_of(pipeline, store)

            def watch(name: str, found: object) -> None:
                saw_answer(members, name, found)
                members.check()

            find = None
            if pipeline.queries is None and (pipeline.generation.candidates > 1 or not pipeline.control.judge.members):
                find = RoundTrip(store, pipeline, job.fingerprints, embeddings, display)
                if len(job.accepted(store).lineages) < pipeline.target:
                    await asyncio.to_thread(find.prepare)
            check = pipeline.generation.meaning if pipeline.generation.rewrites else None
            meaning = None if check is None else load_embedder(check.model)
            apart = find.apart if find is not None and not pipeline.control.judge.members else None
            tools = Tools(pipeline, job.prompts, job.fingerprints, engine, meaning, job.folder, watch, find, apart)
            if pipeline.queries is not None:
                accepted = job.accepted(store)
            else:
                accepted = await generate(store, tools, job.flow, display, workers, job.frame)
            if until is None or until == "judgment":
                ids = job.ids if pipeline.control.systems is not None else None  # systems may be run files
                control = Control.of(
                    store,
                    tools,
                    accepted,
                    display=display,
                    embeddings=embeddings,
                    workers=workers,
                    stopping=stopping,
                    name=pipeline.name,
                    names={one.final.key: ids.query(one) for one in accepted.lineages} if ids is not None else {},
                )
                plan = await control_quality(control)
                await asyncio.to_thread(store.save_plan, {**plan, **job.control_settings()})
        return accepted, usage()


@contextlib.contextmanager
def _interruptible(engine: Engine) -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM let the calls in flight finish. Without any, or after a second one, the process ends soon."""
    loop = asyncio.get_running_loop()
    known = (signal.SIGINT, signal.SIGTERM)
    before = signal.getsignal(signal.SIGINT)
    # asyncio.run's own handler only cancels the main task, and a task group that is just ending swallows that.
    second = signal.default_int_handler if isinstance(before, partial) else before
    stopping = threading.Event()

    def release() -> None:
        for one in known:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                if loop.remove_signal_handler(one) and one == signal.SIGINT:
                    signal.signal(one, second)
        with contextlib.suppress(ValueError):  # not the main thread
            listen_again()

    def wake() -> None:
        """Look for a second interrupt: where another thread received it, nothing else wakes this one."""
        loop.call_later(_WAKE_SECONDS, wake)

    def stop() -> None:
        stopping.set()
        release()
        wake()
        if not engine.busy:
            exit_soon()
        engine.stop("stopped by the user: run the same command again to continue")

    try:
        for one in known:
            loop.add_signal_handler(one, stop)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        pass
    try:
        yield stopping
    finally:
        release()


def evaluate_systems(job: Job, display: Display, result: RunResult) -> RunResult:
    """The result with the scores of the pipeline's systems on its finished dataset; runs that exist stay."""
    from airgen.evaluation import EvaluationOptions, evaluate, load_systems
    from airgen.evaluation.systems import named_once
    from airgen.evaluation.tables import compare_results, ranking_text

    settings = job.pipeline.evaluate
    path = job.systems_file
    assert path is not None
    systems = load_systems(path)
    measures = ["nDCG@10", "R@10", "R@100", "MRR@10", "MAP"]
    failed: list[str] = []
    with display.stage("evaluation", len(systems)) as bar:
        results = evaluate(
            job.dataset, systems, job.directory / EVALUATION,
            EvaluationOptions(settings.split, measures, folder=path.parent),
            progress=lambda line: bar.advance(note=line),
            started=lambda line: bar.advance(0, line),
            encoding=bar.encoding,
            failed=lambda name, error: failed.append(f"{path.name}: {named_once([name], str(error))}"),
        )  # fmt: skip
    if not results:
        return replace(result, failed=failed)
    results = sorted(results, key=lambda one: -one.score)
    comparison = compare_results(results)
    scores = [{"system": one.name, **one.means, "interval": list(one.intervals[one.headline])} for one in results]
    asked, passages = results[0].queries, int(results[0].about.get("passages") or 0) or None
    audit = None if result.manifest is None else result.manifest.audit
    verdict = _verdict(job, comparison, asked, passages, audit)
    ranking = f"{ranking_text(results, comparison)}\n{verdict}"
    return replace(result, scores=scores, ranking=ranking, verdict=verdict, failed=failed)


def logged_in_mlflow(job: Job, display: Display, result: RunResult) -> RunResult:
    """The result; what MLflow does not take is told in `failed`, since the dataset and its scores are on the disk."""
    try:
        name = log_run(job, result.scores, result.manifest, cost_of(job), result.verdict)
    except AirgenError as error:
        return replace(result, failed=[*result.failed, str(error)])
    if name:
        display.say(f"logged in MLflow as {name}")
    return result


def cost_of(job: Job) -> dict[str, float]:
    """What the job has cost, earlier processes included: calls, tokens, money."""
    with job.open_store(read_only=True) as store:
        ((calls, read, wrote),) = store.query(
            "SELECT count(*), coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0) FROM answer"
        )
        return {
            "llm_calls": calls, "llm_tokens_in": read, "llm_tokens_out": wrote, "llm_usd": money(store).spent,
        }  # fmt: skip


def _verdict(job: Job, found: Comparison, queries: int, passages: int | None, audit: Mapping[str, Any] | None) -> str:
    """One line: are there queries enough to rank these systems, what people say of the labels, and what to do next."""
    own = job.pipeline.queries
    # A corpus limits how many queries can be generated, not how many people have.
    more = "raise `target`" if own is None else "label more of your own queries"
    text = verdict_of(found, queries, more, passages if own is None else None)
    text += " in the systems YAML" if not found.pairs else ""
    if own is not None and own.labels:  # who brings labels has had them from people
        unchecked = ""
    elif has_answers(job.directory):
        unchecked = f". Other labels than those that people have checked: airgen audit score {job.path} ANSWERS"
    else:
        unchecked = f". No person has checked the labels yet: airgen audit sample {job.path} 40"
    return terminal_text(f"Verdict: {whole_verdict(text, audit, unchecked)}")


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
        lines += [text] if (text := note_text(result.manifest.notes.get(NOTE))) else []
        if result.scores:
            lines += ["", result.ranking, *([result.labels] if result.labels else []), ""]
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
        (EVALUATION, "run files, scores, tables"),
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
