"""A job: a pipeline, its work directory and the plan of its rows. `airgen.job.run_job` does the work.

runs/NAME/
    work.duckdb     every row; a stopped job resumes from it
    status.json     the state of the job, for other processes while it runs
    secret.key      the secret behind samples, public ids and splits; the dataset's private part has a copy
    secret.name     the public name of the secret with which samples are drawn; the job resumes with no other
    dataset/        the finished dataset
    evaluation/     runs, scores and tables
    people.jsonl    people's labels, which count more than the model's
runs/.embeddings/   vectors by content and model, shared by all jobs in the folder
"""

import contextlib
import functools
import os
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airgen import __version__
from airgen.components.keys import fingerprint
from airgen.control.query_set import OWN
from airgen.corpus import load_corpus_settings
from airgen.corpus.settings import CorpusSettings
from airgen.dataset.manifest import MANIFEST, load_manifest
from airgen.dataset.secret import SECRET_FILE, Secret, load_secret, new_secret, secret_of, write_secret
from airgen.dataset.verify import damaged_file
from airgen.errors import CorpusError, DatasetError, SettingsError, UsageError
from airgen.evaluation.systems import SystemSettings, load_systems
from airgen.generation.flow import Flow
from airgen.generation.generate import accepted_so_far
from airgen.generation.sample import sample_fingerprint
from airgen.job.audit_answers import labels_digest
from airgen.job.plan import steps_of
from airgen.job.store_corpus import CORPUS
from airgen.job.user_queries import OWN_QUERIES, own_accepted
from airgen.llms.prompts import PromptSet
from airgen.settings import Labelling, Pipeline, read_pipeline
from airgen.settings.base import LARGEST_INT, answer_settings, find_yaml
from airgen.settings.generation import WordingSettings
from airgen.steps.accepted import Accepted
from airgen.steps.judge_examples import with_examples
from airgen.steps.progress import STATUS, read_status
from airgen.steps.public_ids import PublicIds
from airgen.steps.step import Plan, Step
from airgen.storage.json_values import DAMAGE, read_json, write_json
from airgen.storage.paths import RUNS, beside, is_alive
from airgen.storage.records import TABLES
from airgen.storage.store import Store
from airgen.storage.whole_files import write_text

NAME_FILE = "secret.name"
_SILENT_SECONDS = 600.0  # seconds without a sign of life after which a job is considered stopped


class JobSecret:
    """The secret of a work directory. Nothing is written before `keep` or `begin`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._new = new_secret()  # for a directory that has none
        self._drawn_with: Secret | None = None

    def keep(self) -> Secret:
        """Return the directory's secret. If there is none, it is restored from the job's dataset or newly created.

        Raises DatasetError if the job's dataset was made with a lost or a different secret.
        """
        secret, path = self._find() or self._new, self.directory / SECRET_FILE
        if not path.is_file():
            try:
                write_secret(path, secret)
            except FileExistsError:  # another process was faster; `begin` reports it if it matters
                return load_secret(path)
        return secret

    def seed(self, pipeline: Pipeline) -> int | str:
        """Return the seed for the order of samples, which may depend on the secret (`Pipeline.draws_in_secret`).

        Raises DatasetError if samples were drawn with a lost secret.
        """
        self._drawn_with = None
        if not pipeline.draws_in_secret:
            return pipeline.seed
        drawn, named, secret = self.directory / "work.duckdb", self.directory / NAME_FILE, self._find()
        if drawn.is_file() and named.is_file():
            name = named.read_text(encoding="utf-8", errors="replace").strip()
            if secret is None or name != secret.name:
                raise DatasetError(
                    f"{self.directory / SECRET_FILE} is lost, and the samples of {drawn} were drawn with it: "
                    f"restore the file (private/{SECRET_FILE} in the private repository), or move "
                    f"{self.directory} away to start over"
                )
        self._drawn_with = secret or self._new
        return self._drawn_with.text("seed", *([] if pipeline.seed == "secret" else [str(pipeline.seed)]))

    def begin(self) -> None:
        """Write the secret, and record that samples are drawn with it. Raises DatasetError if another secret has been
        written meanwhile."""
        if self._drawn_with is None:
            return
        if self.keep().name != self._drawn_with.name:
            raise DatasetError(f"{self.directory} was started by another process: run the command again")
        if not (self.directory / NAME_FILE).is_file() or not (self.directory / "work.duckdb").is_file():
            write_text(self.directory / NAME_FILE, self._drawn_with.name + "\n")

    def _find(self) -> Secret | None:
        path, dataset = self.directory / SECRET_FILE, self.directory / "dataset"
        expected = load_manifest(dataset).secret if (dataset / MANIFEST).is_file() else ""
        secret = load_secret(path) if path.is_file() else secret_of(dataset)
        if expected and (secret is None or secret.name != expected):
            raise DatasetError(
                f"{path}: the secret of {dataset} is lost, so its public ids cannot be recreated: restore "
                f"private/{SECRET_FILE} from the private repository, or move {self.directory} away to start over"
            )
        return secret


class Job:
    """A pipeline with its work directory; see the module. Raises SettingsError with every problem in the YAML of the
    pipeline or corpus.

    The files are read once, here: everything else takes the job.

    Attributes:
        path: The pipeline's file. The argument may be the name of a shipped pipeline.
        runs: Parent folder of the work directory.
        pipeline, corpus: The settings. As arguments, they replace those in the YAML files.
        written, text: The pipeline's settings before a `target` or real queries replace some, and their YAML text.
        frame: The ids of the documents that may become sources, by default all. With a different frame, work on the
            documents in both is kept.
    """

    def __init__(
        self,
        path: Path,
        runs: Path = RUNS,
        *,
        target: int | None = None,
        pipeline: Pipeline | None = None,
        corpus: CorpusSettings | None = None,
        frame: frozenset[str] | None = None,
        text: str = "",
    ) -> None:
        self.path = path = find_yaml("pipelines", path)
        if pipeline is None:
            pipeline, text = read_pipeline(path)
        if target is not None and not 1 <= target <= LARGEST_INT:
            raise UsageError(f"target: must be a number of queries, at least 1, not {str(target)[:40]}")
        self.written, self.text, self.runs = pipeline, text, runs
        self.pipeline: Pipeline = pipeline.model_copy(update={"target": target}) if target else pipeline
        if corpus is None:
            corpus = load_corpus_settings(self.pipeline.corpus, path.parent)
        self.corpus, self.frame = corpus, frame
        self.flow = Flow.of(self.pipeline)
        self.prompts = PromptSet.beside(path.parent)
        self.directory = runs / self.pipeline.name
        self.pipeline = with_examples(with_real_queries(self.pipeline, self.directory), self.directory)
        self.secret = JobSecret(self.directory)
        self._systems: dict[Path, Sequence[SystemSettings]] = {}
        with contextlib.suppress(CorpusError):  # of a corpus that is not here, which `airgen check` tells with all else
            _ = self.fingerprints

    def changed(self, **settings: Any) -> "Job":
        """Return the job with another `target`, `pipeline`, `corpus` or `frame`, without reading a file again."""
        same = {"pipeline": self.written, "corpus": self.corpus, "frame": self.frame}
        return Job(self.path, self.runs, text=self.text, **{**same, **settings})

    @functools.cached_property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprint of each stage. Raises CorpusError if the corpus must be fetched first."""
        pipeline = self.pipeline
        fingerprints = {
            "corpus": CORPUS.fingerprint(self.corpus, pipeline.task),
            "sample": sample_fingerprint(pipeline, self.secret.seed(pipeline)),
        }
        if isinstance(pipeline, Labelling):
            fingerprints[OWN] = OWN_QUERIES.fingerprint(pipeline, self.corpus, self.folder, plan=fingerprints)
        asking = (step for step in steps_of(pipeline, self.flow) if isinstance(step, Step))
        return fingerprints | {step.name: step.fingerprint(pipeline, self.prompts) for step in asking}

    @property
    def words(self) -> str:
        """The words by which a command finds this job: its file and, unless it is the default, the folder of jobs."""
        default = self.runs.resolve() == (beside(self.path) / RUNS).resolve()
        return shlex.join([str(self.path), *([] if default else ["--runs", str(self.runs)])])

    @property
    def folder(self) -> Path:
        """The folder to which paths in the pipeline's YAML are relative."""
        return self.path.resolve().parent

    @property
    def systems_file(self) -> Path | None:
        """The systems YAML of the evaluation: next to the pipeline, shipped, or in the working directory."""
        name = self.pipeline.evaluate.systems
        return None if name is None else find_yaml("pipelines", name, self.path.parent)

    @property
    def systems(self) -> Sequence[SystemSettings]:
        """The systems to evaluate. Raises SettingsError with every problem in their YAML."""
        name = self.pipeline.evaluate.systems
        return () if name is None else self.systems_in(name)

    @property
    def recall_systems(self) -> Sequence[SystemSettings] | None:
        """The systems whose hits join the recall; None without any. Raises SettingsError as `systems` does."""
        name = self.pipeline.control.systems
        return None if name is None else self.systems_in(name)

    def systems_in(self, name: str) -> Sequence[SystemSettings]:
        """Return the systems of a YAML that the pipeline names. Raises SettingsError with every problem in it."""
        path = find_yaml("pipelines", name, self.path.parent)
        if path not in self._systems:
            self._systems[path] = load_systems(path)
        return self._systems[path]

    @property
    def ids(self) -> PublicIds:
        """The public ids of the job's dataset.

        Those of the user's own queries in one split need no secret, so others in a team, who cannot read it, can show
        such a job.
        """
        export = self.pipeline.export
        open_ids = not self.pipeline.generates and export.ids == "original" and len(+Counter(export.splits)) == 1
        return PublicIds(self.pipeline, self.secret.keep() if export.secret and not open_ids else None)

    @property
    def dataset(self) -> Path:
        """The folder of the finished dataset."""
        return self.directory / "dataset"

    @property
    def embeddings(self) -> Path:
        """The folder of vectors, shared with other jobs, which may have the same corpus. A job with its own folder from
        an earlier version continues to use it."""
        own = self.directory / "embeddings"
        return own if own.is_dir() else self.directory.parent / ".embeddings"

    @property
    def identity(self) -> str:
        """A hash of everything that can change the dataset. A finished job with the same identity is not run again."""
        settings = answer_settings(self.pipeline)
        settings.pop("evaluate")
        people = labels_digest(self.directory)
        more = {} if people is None else {"people": people}
        return fingerprint(
            version=__version__, settings=settings, fingerprints=self.fingerprints, frame=self._frame, **more
        )

    @property
    def _frame(self) -> list[str] | None:
        return None if self.frame is None else sorted(self.frame)

    def plan(self, store: Store) -> Plan:
        """Return the fingerprints of all stages: of generation from the settings, and of quality control from its last
        run.
        """
        return store.find_plan({**self.fingerprints, **self.control_settings()}) or self.fingerprints

    def control_settings(self) -> dict[str, str]:
        """Return the settings that distinguish this job's saved plan from others in the same work database."""
        control, negatives = answer_settings(self.pipeline.control), self.pipeline.generation.negatives
        settings = fingerprint(stage="control settings", control=control, negatives=negatives, frame=self._frame)
        return {"control settings": settings}

    @property
    def running(self) -> bool:
        """Whether another process is running the job, according to its status file."""
        status = read_status(self.directory / STATUS)
        if status is None or status.get("ended") or status["pid"] is None:
            return False
        return is_alive(status["pid"]) and time.time() - status["updated"] < _SILENT_SECONDS and not self.finished()

    def finished(self) -> bool:
        """Return whether the work directory contains the dataset of exactly this job, with all files unchanged."""
        finished_identity = (read_status(self.directory / STATUS) or {}).get("finished")
        return bool(finished_identity) and finished_identity == self.identity and damaged_file(self.dataset) is None

    def open_store(self, *, read_only: bool = False) -> Store:
        """Return the work database."""
        if not read_only:
            self.secret.begin()
        store = Store.open(self.directory / "work.duckdb", read_only=read_only)
        if not read_only:
            for kind in (kind for stage in self.flow.every for kind in (stage.writes, *stage.beside)):
                if kind not in TABLES:
                    store.ensure_table(kind)
        return store

    def check_draw(self, store: Store) -> None:
        """Raise UsageError if queries were generated with the other value of `export.secret`, which draws others."""
        pipeline = self.pipeline
        if pipeline.seed == "secret":
            return
        secret = not pipeline.export.secret
        if secret and not (self.directory / SECRET_FILE).is_file():
            return
        export = pipeline.export.model_copy(update={"secret": secret})
        other = JobSecret(self.directory).seed(pipeline.model_copy(update={"export": export}))
        if store.query("SELECT 1 FROM sample WHERE fingerprint = ? LIMIT 1", [sample_fingerprint(pipeline, other)]):
            raise UsageError(
                f"{self.path}: the queries in {self.directory} were drawn with export.secret: {str(secret).lower()}; "
                "the other value draws others, which cost as much again: set it back, or choose another `name` for a "
                "new job"
            )

    def about(self, finished: bool) -> dict[str, str | int]:
        """Return the contents of the status file about the job, except its progress."""
        name, target = self.pipeline.name, self.pipeline.target
        identity = self.identity if finished else ""
        return {
            "finished": identity,
            "name": name,
            "pipeline": str(self.path.resolve()),
            "directory": str(self.directory.resolve()),
            "target": target,
        }

    def accepted(self, store: Store) -> Accepted:
        """Return the accepted queries from the work database, without calling an LLM."""
        if not self.pipeline.generates:
            return own_accepted(store, self.flow, self.fingerprints, self.pipeline)
        return accepted_so_far(store, self.flow, plan=self.fingerprints, pipeline=self.pipeline, frame=self.frame)


LIKE = "like.json"
"""The file of a work directory that names the real queries of `airgen run --like`."""


def match_queries(job: Job, file: str) -> Job:
    """Return the job with queries whose wording the real queries of a file decide, from now on; "" ends that.

    Raises UsageError if the job's queries have one wording, or if there is no such file.
    """
    if job.pipeline.generation.method != "needs":
        raise UsageError(
            f"--like: {job.path} writes each query in one wording: set generation.method: needs, which words each need "
            "in several ways"
        )
    if file and not Path(file).expanduser().exists():
        raise UsageError(f"--like {file}: no such file", code="no_file", where=file)
    saved = job.directory / LIKE
    if file:
        write_json(saved, {"like": str(Path(file).expanduser().resolve())})
    else:
        saved.unlink(missing_ok=True)
    return job.changed(target=job.pipeline.target)


def with_real_queries(pipeline: Pipeline, directory: Path) -> Pipeline:
    """Return the settings with the real queries of `airgen run --like`, if the work directory names any."""
    saved = directory / LIKE
    if pipeline.generation.method != "needs" or not saved.is_file():
        return pipeline
    try:
        wording = WordingSettings(like=str(read_json(saved)["like"]))
    except DAMAGE as error:
        raise SettingsError([f"{saved}: is damaged: repeat `airgen run --like FILE`, or delete it"]) from error
    generation = pipeline.generation.model_copy(update={"wording": wording})
    return pipeline.model_copy(update={"generation": generation})


def owner_of(directory: Path) -> Path | None:
    """Return the pipeline file of a work directory, which may be missing, or None if the status file names none.

    If the directory was moved or copied together with the files around it, the moved file is returned.
    """
    status = read_status(directory / STATUS) or {}
    owner, was = status.get("pipeline"), status.get("directory")
    if not isinstance(owner, str) or not owner:
        return None
    if isinstance(was, str) and was != str(directory.resolve()):
        moved = Path(os.path.normpath(directory.resolve() / os.path.relpath(owner, was)))
        if moved.is_file():
            return moved
    return Path(owner)
