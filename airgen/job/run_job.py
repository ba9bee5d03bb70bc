"""Run a job, from the corpus to the exported dataset and the scores of systems.

run_pipeline(Job(Path("pipeline.yaml")))      # checked, run, evaluated
run_job(job, display)                         # the same without checks and evaluation

Work that is already on disk is not repeated.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console

from airgen.compute import computing
from airgen.control.quality_control import control_quality
from airgen.control.query_set import Control
from airgen.dataset.manifest import load_manifest
from airgen.dataset.verify import damaged_file, keep_card
from airgen.display.study import Study
from airgen.errors import AirgenError, SettingsError, UsageError
from airgen.evaluation.result import peak_bytes
from airgen.generation.generate import ask_ahead, generate
from airgen.generation.round_trip import RoundTrip
from airgen.job.evaluate_systems import evaluate_systems
from airgen.job.export import export_dataset, exported_queries, moved_queries
from airgen.job.funnel import funnel_so_far, funnel_table
from airgen.job.interrupts import stopping_on_signals
from airgen.job.job import Job
from airgen.job.mlflow_log import logged_in_mlflow
from airgen.job.preflight import ensure_ready, probe_models, rehearse, unusable
from airgen.job.run_result import RunResult
from airgen.job.store_corpus import CORPUS, CorpusSource
from airgen.job.user_queries import OWN_QUERIES, QueriesSource
from airgen.retrievers import load_embedder
from airgen.retrievers.encoding_cache import shared_encodings
from airgen.safety.escaping import dollars
from airgen.settings import Labelling
from airgen.settings.compute import compute_settings
from airgen.steps.accepted import Accepted
from airgen.steps.ask import health_of, make_engine, run_to_end, saw_answer, workers_of
from airgen.steps.kept_scores import KeptScores
from airgen.steps.loops import run_whole
from airgen.steps.progress import BEAT_SECONDS, STATUS, Display
from airgen.steps.step import Tools
from airgen.storage.store import Store

STOPS = ("corpus", "hard_negative", "judgment")


def run_pipeline(
    job: Job,
    *,
    budget_usd: float | None = None,
    until: str | None = None,
    retry_failed: bool = False,
    evaluate: bool = True,
    console: Console | None = None,
    every: float = BEAT_SECONDS,
    compute: str | None = None,
    log: Callable[[dict[str, Any]], None] | None = None,
) -> RunResult:
    """Run a whole pipeline, and evaluate its systems on the finished dataset.

    The requirements of the run are checked first. `compute` selects where heavy work runs, see `compute_settings`; for
    `log`, see `Display`. Raises SettingsError with all missing requirements, and the errors of `run_job`. A system that
    fails is listed in the result's `failed`.
    """
    if until is not None and until not in STOPS:
        raise UsageError(f"--until {until}: must be one of {', '.join(STOPS)}")
    began = time.monotonic()
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
                if problems := unusable(job):
                    raise SettingsError(problems)
            rehearse(job, display, until=until, evaluate=evaluate)
        try:
            result = run_job(job, display, until=until, budget_usd=budget_usd, retry_failed=retry_failed)
        except AirgenError:
            with contextlib.suppress(AirgenError), job.open_store(read_only=True) as store:
                if steps := funnel_so_far(job, store, job.accepted(store)):
                    text = Study("Funnel", [funnel_table(steps)]).text()
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
    """Do all remaining work. Raises Stopped (resumable) if the user or the budget ends the run."""
    done = until is None and job.finished()
    with display.lasting(**job.about(done)):
        if done:
            manifest = load_manifest(job.dataset)
            return RunResult(job.directory, manifest, already_done=True, target=job.pipeline.asked_for)
        with job.open_store() as store:
            if store.replaced:
                display.say(f"{store.path}: its creation was interrupted, and nothing was in it, so it was made again")
            job.check_draw(store)
            store_sources(job, store, display)
            if until == "corpus":
                return RunResult(job.directory, note="stopped after the corpus, as asked")
            if retry_failed:
                store.forget_failures()
            if (job.dataset / "manifest.json").exists() and (name := damaged_file(job.dataset)):
                display.say(f"{job.dataset}: {name} is missing or damaged, so the dataset is exported again")
            accepted, usage = run_to_end(
                _ask(job, store, display=display, until=until, budget_usd=budget_usd, retry_failed=retry_failed)
            )
            if until is not None:
                return RunResult(job.directory, usage=usage, note=f"stopped after {until}, as asked")
            if (copy := keep_card(job.dataset, job.directory)) is not None:
                display.say(f"{job.dataset / 'README.md'} was edited: your text was saved as {copy}")
            may_move = job.pipeline.export.exact or job.pipeline.unanswerable
            before = exported_queries(job.dataset) if may_move else {}
            manifest = export_dataset(job, store, accepted, job.dataset)
            for line in moved_queries(before, exported_queries(job.dataset)) if before else ():
                display.say(line)
            if accepted.spent:
                display.say(
                    f"no document is left: {len(accepted.lineages)} of {job.pipeline.target} queries were accepted; "
                    "add documents, raise generation.queries_per_passage, or lower the target"
                )
            display.write(finished=job.identity, usage=usage)
            return RunResult(job.directory, manifest, usage=usage, target=job.pipeline.asked_for)


def store_sources(job: Job, store: Store, display: Display) -> None:
    """Read the corpus and the user's own queries into the work database, unless they are already there."""
    plan, pipeline = job.fingerprints, job.pipeline
    run_whole(CORPUS, CorpusSource(store=store, display=display, plan=plan, settings=job.corpus, pipeline=pipeline))
    if isinstance(pipeline, Labelling):
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
    """Run candidate generation and quality control, which call the models."""
    pipeline, embeddings = job.pipeline, job.embeddings
    engine = make_engine(
        pipeline, store, budget_usd=budget_usd, retry_failed=retry_failed, rules=job.flow.scripted, say=display.say
    )
    workers = workers_of(*pipeline.llms.values())

    def usage() -> dict[str, Any]:
        """Return this process's calls by stage, while other threads may add more."""
        return {stage: counts.as_dict(time.monotonic()) for stage, counts in list(engine.usage().items())}

    def bill() -> str:
        stages = usage().values()
        return f"{sum(stage['calls'] for stage in stages):,} calls, {dollars(sum(stage['usd'] for stage in stages))}"

    def figures() -> dict[str, Any]:
        return {"usage": usage(), "spent_usd": round(engine.spent_usd, 6), "budget_usd": engine.budget_usd}

    display.bill, display.figures = bill, figures
    async with engine:
        with stopping_on_signals(engine) as stopping:
            members = health_of(pipeline, store)

            def watch(name: str, answer: object) -> None:
                saw_answer(members, name, answer)
                members.check()

            find = None
            if pipeline.round_trips:
                find = RoundTrip(
                    store=store, pipeline=pipeline, plan=job.fingerprints, embeddings=embeddings, display=display
                )
            check = pipeline.generation.meaning if pipeline.generation.rewrites else None
            meaning = None if check is None else load_embedder(check.model)
            apart = find.apart if find is not None and pipeline.votes_accept else None
            tools = Tools(
                pipeline=pipeline,
                prompts=job.prompts,
                plan=job.fingerprints,
                llm=engine,
                meaning=meaning,
                folder=job.folder,
                watch=watch,
                find=find,
                apart=apart,
            )
            if find is not None and len(job.accepted(store).lineages) < pipeline.target:
                await ask_ahead(store, tools, flow=job.flow, display=display, frame=job.frame)
                await asyncio.to_thread(find.prepare)
            if pipeline.generates:
                accepted = await generate(
                    store, tools, flow=job.flow, display=display, workers=workers, frame=job.frame
                )
            else:
                accepted = job.accepted(store)
            if until is None or until == "judgment":
                systems = job.recall_systems
                ids = job.ids if systems is not None else None  # systems may be run files
                control = Control.of(
                    store,
                    tools,
                    accepted,
                    display=display,
                    embeddings=embeddings,
                    workers=workers,
                    stopping=stopping,
                    name=pipeline.name,
                    systems=systems,
                    kept=KeptScores() if find is None else find.scores,
                    names={lineage.final.key: ids.query(lineage) for lineage in accepted.lineages}
                    if ids is not None
                    else {},
                )
                plan = await control_quality(control)
                await asyncio.to_thread(store.save_plan, {**plan, **job.control_settings()})
        return accepted, usage()
