"""One job: a pipeline, its work directory, and the way from the corpus to the exported dataset.

runs/NAME/
    work.duckdb     every row; a stopped job goes on from here
    status.json     the state of the job, for other processes while it runs
    embeddings/     vectors by content and model
    secret.key      what samples, public ids and splits depend on; the dataset's private part has a copy
    dataset/        the finished dataset
    evaluation/     runs, scores and tables
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from airgen import __version__
from airgen.corpus import load_corpus_settings
from airgen.corpus.settings import CorpusSettings
from airgen.dataset.content import FunnelStep
from airgen.dataset.manifest import Manifest, load_manifest
from airgen.dataset.verify import damaged_file
from airgen.dataset.write import write_dataset
from airgen.errors import UsageError
from airgen.evaluation.systems import load_systems
from airgen.interruptible import exit_soon
from airgen.keys import fingerprint
from airgen.llms.engine import Engine
from airgen.pipeline.ask import saw_answer
from airgen.pipeline.ask_each import run_to_end
from airgen.pipeline.assemble import Source, assemble
from airgen.pipeline.control.judgments import DECISIONS, OWN
from airgen.pipeline.control.quality_control import control_quality
from airgen.pipeline.control.recall import systems_path
from airgen.pipeline.control.set_stage import Control
from airgen.pipeline.engines import health_of, make_engine, workers_of
from airgen.pipeline.export_rules import PublicIds
from airgen.pipeline.funnel import funnel
from airgen.pipeline.generate import NEAR, PARTNER, Accepted, accepted_so_far, generate
from airgen.pipeline.job_secret import JobSecret
from airgen.pipeline.load_corpus import corpus_fingerprint, load_corpus
from airgen.pipeline.own_queries import own_accepted, own_fingerprint, store_queries
from airgen.pipeline.progress import Display, read_status
from airgen.pipeline.refresh import next_version
from airgen.pipeline.round_trip import RoundTrip
from airgen.pipeline.stage import Plan, Tools
from airgen.pipeline.stages import JUDGMENT, Flow
from airgen.prompts import PromptSet
from airgen.records import TABLES
from airgen.settings import Pipeline, load_pipeline, pipeline_text
from airgen.settings.base import answer_settings, find_yaml
from airgen.store import Store
from airgen.text.display import dollars

_WAKE_SECONDS = 0.2


@dataclass(frozen=True)
class RunResult:
    """What a run left behind. `manifest` is None where it stopped before the export.

    scores: of each system, best first. ranking: their table for a terminal, with intervals. verdict: what can be told
    of them, and what to do next. failed: a line for each system that could not be run. report: the page to browse.
    """

    directory: Path
    manifest: Manifest | None = None
    already_done: bool = False
    scores: list[dict[str, Any]] = field(default_factory=list)
    ranking: str = ""
    verdict: str = ""
    failed: list[str] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    seconds: float = 0.0
    memory_mb: float | None = None
    report: Path | None = None


class Job:
    """See the module. Raises SettingsError with every problem in the pipeline's or the corpus's YAML.

    `path` may be the name of a pipeline that airgen ships: `quickstart`.

    `pipeline` and `corpus` replace the YAML's. `frame` is the sampling frame: the ids of the documents that may become
    sources (None: all of the corpus). A sample's identity does not depend on the frame, so another frame keeps what
    was made from the documents that both have.
    """

    def __init__(
        self,
        path: Path,
        runs: Path = Path("runs"),
        *,
        target: int | None = None,
        pipeline: Pipeline | None = None,
        corpus: CorpusSettings | None = None,
        frame: frozenset[str] | None = None,
    ) -> None:
        self.path = path = find_yaml("pipelines", path)
        pipeline = pipeline or load_pipeline(path)
        self.pipeline: Pipeline = pipeline.model_copy(update={"target": target}) if target else pipeline
        if corpus is None:
            corpus = load_corpus_settings(self.pipeline.corpus, path.parent)
        self.corpus, self.frame = corpus, frame
        self.flow = Flow.of(self.pipeline)
        self.prompts = PromptSet.beside(path.parent)
        self.directory = runs / self.pipeline.name
        self.secret = JobSecret(self.directory)
        self.fingerprints = self._fingerprints()

    def _fingerprints(self) -> dict[str, str]:
        pipeline = self.pipeline
        found = {
            "corpus": corpus_fingerprint(self.corpus, pipeline),
            "sample": fingerprint(stage="sample", version=1, seed=self.secret.seed(pipeline)),
        }
        if hops := pipeline.generation.multi_hop:
            found["sample"] = found[PARTNER] = fingerprint(sample=found["sample"], multi_hop=hops, near=NEAR)
        if pipeline.queries is not None:
            found["judgment"] = JUDGMENT.fingerprint(pipeline, self.prompts)
            found[OWN] = own_fingerprint(pipeline, self.corpus, self.folder, found["sample"], found["corpus"])
        found.update({stage.name: stage.fingerprint(pipeline, self.prompts) for stage in self.flow.every})
        return found

    @property
    def folder(self) -> Path:
        """Where relative paths of the pipeline's YAML start."""
        return self.path.resolve().parent

    @property
    def systems_file(self) -> Path | None:
        """The systems YAML of the evaluation: beside the pipeline, shipped, or in the working directory."""
        name = self.pipeline.evaluate.systems
        return None if name is None else find_yaml("pipelines", name, self.path.parent)

    @property
    def ids(self) -> PublicIds:
        """The public ids of the job's dataset."""
        return PublicIds(self.pipeline, self.secret.keep() if self.pipeline.export.secret else None)

    @property
    def dataset(self) -> Path:
        """Where the finished dataset is."""
        return self.directory / "dataset"

    @property
    def identity(self) -> str:
        """A hash of everything that can change the dataset. A finished job of the same identity is not run again."""
        settings = answer_settings(self.pipeline)
        settings.pop("evaluate")
        return fingerprint(version=__version__, settings=settings, fingerprints=self.fingerprints, frame=self._frame)

    @property
    def _frame(self) -> list[str] | None:
        return None if self.frame is None else sorted(self.frame)

    def plan(self, store: Store) -> Plan:
        """The fingerprints of all stages: of generation from the settings, of quality control as it was last run."""
        return store.find_plan({**self.fingerprints, **self._control()}) or self.fingerprints

    def _control(self) -> dict[str, str]:
        """What tells this job's saved plan from those of others in the same work database."""
        control, negatives = answer_settings(self.pipeline.control), self.pipeline.generation.negatives
        settings = fingerprint(stage="control settings", control=control, negatives=negatives, frame=self._frame)
        return {"control settings": settings}

    def finished(self) -> bool:
        """Whether the work directory holds the dataset of exactly this job, with every file as it was written."""
        status = read_status(self.directory / "status.json") or {}
        return status.get("finished") == self.identity and damaged_file(self.dataset) is None

    def open_store(self, *, read_only: bool = False) -> Store:
        """The work database."""
        if not read_only:
            self.secret.begin()
        store = Store.open(self.directory / "work.duckdb", read_only=read_only)
        if not read_only:
            for kind in (kind for stage in self.flow.every for kind in (stage.writes, *stage.beside)):
                if kind not in TABLES:
                    store.ensure_table(kind)
        return store

    def run(
        self,
        display: Display,
        *,
        until: str | None = None,
        budget_usd: float | None = None,
        retry_failed: bool = False,
    ) -> RunResult:
        """Do all that is left to do. Raises Stopped (resumable) where the user or the budget ends the run."""
        done = until is None and self.finished()
        with display.lasting(**self.about(done)):
            if done:
                return RunResult(self.directory, load_manifest(self.dataset), already_done=True)
            return self._run(display, until, budget_usd, retry_failed)

    def about(self, finished: bool) -> dict[str, str | int]:
        """What the status file says of the job, besides its progress."""
        name, target = self.pipeline.name, self.pipeline.target
        identity = self.identity if finished else ""
        return {"finished": identity, "name": name, "pipeline": str(self.path.resolve()), "target": target}

    def _run(self, display: Display, until: str | None, budget_usd: float | None, retry_failed: bool) -> RunResult:
        with self.open_store() as store:
            load_corpus(store, self.corpus, self.pipeline, self.fingerprints["corpus"], display)
            if self.pipeline.queries is not None:
                store_queries(store, self.pipeline, self.corpus, self.fingerprints, self.folder, display)
            if until == "corpus":
                return RunResult(self.directory, note="stopped after the corpus, as asked")
            if retry_failed:
                store.forget_failures()
            if (self.dataset / "manifest.json").exists() and (name := damaged_file(self.dataset)):
                display.say(f"{self.dataset}: {name} is missing or damaged, so the dataset is exported again")
            accepted, usage = run_to_end(self._ask(store, display, until, budget_usd, retry_failed))
            if until is not None:
                return RunResult(self.directory, usage=usage, note=f"stopped after {until}, as asked")
            manifest = self.export(store, accepted, self.dataset)
            if accepted.spent:
                display.say(
                    f"no document is left: {len(accepted.lineages)} of {self.pipeline.target} queries were accepted; "
                    "add documents, raise generation.queries_per_passage, or lower the target"
                )
            display.write(finished=self.identity, usage=usage)
            return RunResult(self.directory, manifest, usage=usage)

    async def _ask(
        self, store: Store, display: Display, until: str | None, budget_usd: float | None, retry_failed: bool
    ) -> tuple[Accepted, dict[str, Any]]:
        engine = make_engine(
            self.pipeline, store, budget_usd=budget_usd, retry_failed=retry_failed, rules=self.flow.scripted,
            say=display.say,
        )  # fmt: skip
        workers = workers_of(*self.pipeline.llms.values())
        display.bill, display.figures = lambda: _bill(engine), lambda: _figures(engine)
        async with engine:
            with _interruptible(engine) as stopping:
                members = health_of(self.pipeline, store)

                def watch(name: str, found: object) -> None:
                    saw_answer(members, name, found)
                    members.check()

                find = await self._round_trip(store, display)
                tools = Tools(
                    self.pipeline, self.prompts, self.fingerprints, engine, self._meaning(), self.folder, watch,
                    find,
                )  # fmt: skip
                if self.pipeline.queries is not None:
                    accepted = own_accepted(store, self.flow, self.fingerprints, self.pipeline)
                else:
                    accepted = await generate(store, tools, self.flow, display, workers, self.frame)
                if until is None or until == "judgment":
                    embeddings = self.directory / "embeddings"
                    control = Control.of(
                        store, tools, accepted, display, embeddings,
                        workers=workers, stopping=stopping,
                        name=self.pipeline.name, names=self._names(accepted),
                    )  # fmt: skip
                    plan = await control_quality(control)
                    await asyncio.to_thread(store.save_plan, {**plan, **self._control()})
            usage = _usage(engine)
        return accepted, usage

    def _names(self, accepted: Accepted) -> dict[str, str]:
        """The ids of the queries in the dataset, where systems are asked that may be run files."""
        if self.pipeline.control.systems is None:
            return {}
        ids = self.ids
        return {lineage.final.key: ids.query(lineage) for lineage in accepted.lineages}

    async def _round_trip(self, store: Store, display: Display) -> RoundTrip | None:
        """What says whether queries find their source; ready where queries are still to be made."""
        pipeline = self.pipeline
        if pipeline.queries is not None or (pipeline.generation.candidates == 1 and pipeline.control.judge.members):
            return None
        found = RoundTrip(store, pipeline, self.fingerprints, self.folder, self.directory / "embeddings", display)
        if len(self.accepted(store).lineages) < pipeline.target:
            await asyncio.to_thread(found.prepare)
        return found

    def _meaning(self) -> Any:
        if self.pipeline.generation.meaning is None or not self.pipeline.generation.rewrites:
            return None
        from airgen.retrievers import load_embedder

        return load_embedder(self.pipeline.generation.meaning.model, self.folder)

    def export(self, store: Store, accepted: Accepted, out: Path, without: Collection[str] = ()) -> Manifest:
        """Write the dataset of the rows that are in the work database.

        Raises UsageError where quality control has not run with these settings.
        """
        text, plan = pipeline_text(self.path), self.plan(store)
        if DECISIONS.name not in plan:
            raise UsageError(f"{self.path}: quality control has not run with these settings: run `airgen run` first")
        seed = None if self.pipeline.export.secret or self.pipeline.seed == "secret" else self.pipeline.seed
        own = self.pipeline.control.systems
        systems = [] if own is None else [one.name for one in load_systems(systems_path(own, self.path.parent))]
        source = Source(
            self.pipeline, self.corpus, self.prompts, self.flow, plan, text, self.ids, seed, self.folder, systems
        )
        content = assemble(store, source, accepted, without)
        if out == self.dataset and not without:
            content = next_version(store, plan["corpus"], content, out)
        return write_dataset(out, content)

    def funnel_so_far(self) -> list[FunnelStep]:
        """The funnel of a job that stopped: of what is on the disk, up to quality control. Empty before any sample."""
        with self.open_store(read_only=True) as store:
            return self.funnel_of(store, self.accepted(store))

    def funnel_of(self, store: Store, accepted: Accepted) -> list[FunnelStep]:
        """The same of an open work database."""
        if not (accepted.lineages or accepted.rejected):
            return []
        steps = funnel(store, self.flow, self.fingerprints, accepted, ())
        if self.pipeline.queries is not None:
            return steps[:-2]
        return steps[: 1 + len(self.flow.candidates) + len(self.flow.accepted)]

    def accepted(self, store: Store) -> Accepted:
        """The accepted queries of the work database; no LLM is asked."""
        if self.pipeline.queries is not None:
            return own_accepted(store, self.flow, self.fingerprints, self.pipeline)
        return accepted_so_far(store, self.flow, self.fingerprints, self.pipeline, self.frame)


def _bill(engine: Engine) -> str:
    """Calls and money of this process so far, for a line of progress; another thread may add to them meanwhile."""
    stages = list(engine.usage().values())
    return f"{sum(stage.calls for stage in stages):,} calls, {dollars(sum(stage.usd for stage in stages))}"


def _usage(engine: Engine) -> dict[str, Any]:
    return {stage: one.as_dict(time.monotonic()) for stage, one in list(engine.usage().items())}


def _figures(engine: Engine) -> dict[str, Any]:
    """Calls of this process by stage, and the money of the job, for the status file."""
    return {"usage": _usage(engine), "spent_usd": round(engine.spent_usd, 6), "budget_usd": engine.budget_usd}


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

    def wake() -> None:
        """Look for a second interrupt: where another thread received it, nothing else wakes this one."""
        loop.call_later(_WAKE_SECONDS, wake)

    def stop() -> None:
        stopping.set()
        release()
        wake()
        if not engine.busy:
            exit_soon()
        engine.stop("stopped by the user: run the same command to go on")

    try:
        for one in known:
            loop.add_signal_handler(one, stop)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        pass
    try:
        yield stopping
    finally:
        release()
