"""One job: a pipeline, its work directory, and the plan of its rows. `airgen.pipeline.run` does the work.

runs/NAME/
    work.duckdb     every row; a stopped job goes on from here
    status.json     the state of the job, for other processes while it runs
    secret.key      what samples, public ids and splits depend on; the dataset's private part has a copy
    secret.name     the public name of the secret that samples are drawn with: that one, and no other, can go on
    dataset/        the finished dataset
    evaluation/     runs, scores and tables
    people.jsonl    people's labels, which count more than the model's
runs/.embeddings/   vectors by content and model, which all jobs beside each other share
"""

import contextlib
import functools
import os
import time
from pathlib import Path

from airgen import __version__
from airgen.control.judge_examples import with_examples
from airgen.control.judgment import JUDGMENT, OWN
from airgen.corpus import load_corpus_settings
from airgen.corpus.settings import CorpusSettings
from airgen.dataset.files import is_alive, write_text
from airgen.dataset.manifest import MANIFEST, load_manifest
from airgen.dataset.secret import SECRET_FILE, Secret, load_secret, new_secret, secret_of, write_secret
from airgen.dataset.verify import damaged_file
from airgen.errors import CorpusError, DatasetError
from airgen.generation.flow import Flow
from airgen.generation.generate import accepted_so_far
from airgen.generation.sample import sample_fingerprint
from airgen.keys import fingerprint
from airgen.paths import RUNS
from airgen.pipeline.audit_answers import labels_digest
from airgen.pipeline.store_corpus import CORPUS
from airgen.pipeline.user_queries import OWN_QUERIES, own_accepted
from airgen.prompts import PromptSet
from airgen.records import TABLES
from airgen.settings import Pipeline, load_pipeline
from airgen.settings.base import answer_settings, find_yaml
from airgen.steps.accepted import Accepted
from airgen.steps.progress import STATUS, read_status
from airgen.steps.public_ids import PublicIds
from airgen.steps.step import Plan
from airgen.store import Store

NAME_FILE = "secret.name"
_SILENT_SECONDS = 600.0  # seconds without a sign of life after which a job is considered stopped


class JobSecret:
    """The secret of one work directory. Nothing is written before `keep` or `begin`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._new = new_secret()  # for a directory that has none
        self._drawn_with: Secret | None = None

    def keep(self) -> Secret:
        """Return the directory's secret. A new one is written, or one that is put back from the job's dataset.

        Raises DatasetError if the job's dataset was made with a secret that is lost, or with another one.
        """
        secret, path = self._find() or self._new, self.directory / SECRET_FILE
        if not path.is_file():
            try:
                write_secret(path, secret)
            except FileExistsError:  # another process was faster; `begin` reports it if it matters
                return load_secret(path)
        return secret

    def seed(self, pipeline: Pipeline) -> int | str:
        """Return what the order of samples depends on: the seed, and with secret labels the secret.

        Raises DatasetError if samples were drawn with a secret that is lost.
        """
        self._drawn_with = None
        if not pipeline.export.secret:
            return pipeline.seed
        drawn, named, secret = self.directory / "work.duckdb", self.directory / NAME_FILE, self._find()
        if drawn.is_file() and named.is_file():
            name = named.read_text(encoding="utf-8", errors="replace").strip()
            if secret is None or name != secret.name:
                raise DatasetError(
                    f"{self.directory / SECRET_FILE} is lost, and the samples of {drawn} were drawn with it: put the "
                    f"file back (the private repository has it as private/{SECRET_FILE}), or move {self.directory} "
                    "away to begin again"
                )
        self._drawn_with = secret or self._new
        return self._drawn_with.text("seed", *([] if pipeline.seed == "secret" else [str(pipeline.seed)]))

    def begin(self) -> None:
        """Write the secret, and that samples are drawn with it. Raises DatasetError if there is another one by now."""
        if self._drawn_with is None:
            return
        if self.keep().name != self._drawn_with.name:
            raise DatasetError(f"{self.directory} was begun by another process: run the command again")
        if not (self.directory / NAME_FILE).is_file() or not (self.directory / "work.duckdb").is_file():
            write_text(self.directory / NAME_FILE, self._drawn_with.name + "\n")

    def _find(self) -> Secret | None:
        path, dataset = self.directory / SECRET_FILE, self.directory / "dataset"
        expected = load_manifest(dataset).secret if (dataset / MANIFEST).is_file() else ""
        secret = load_secret(path) if path.is_file() else secret_of(dataset)
        if expected and (secret is None or secret.name != expected):
            raise DatasetError(
                f"{path}: the secret of {dataset} is lost, so its public ids cannot be made again: put back "
                f"private/{SECRET_FILE} of the private repository, or move {self.directory} away to begin again"
            )
        return secret


class Job:
    """See the module. Raises SettingsError with every problem in the pipeline's or the corpus's YAML.

    path: a file, or the name of a shipped pipeline. pipeline, corpus: replace the YAML's. frame: the ids of the
    documents that may become sources (None: all); another frame keeps what was made from the documents that both have.
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
        self.pipeline = with_examples(self.pipeline, self.directory)
        self.secret = JobSecret(self.directory)
        with contextlib.suppress(CorpusError):  # of a corpus that is not here, which `airgen check` tells with all else
            _ = self.fingerprints

    @functools.cached_property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprint of each stage. Raises CorpusError if the corpus must be fetched first."""
        pipeline = self.pipeline
        fingerprints = {
            "corpus": CORPUS.fingerprint(self.corpus, pipeline),
            "sample": sample_fingerprint(pipeline, self.secret.seed(pipeline)),
        }
        if pipeline.queries is not None:
            fingerprints["judgment"] = JUDGMENT.fingerprint(pipeline, self.prompts)
            fingerprints[OWN] = OWN_QUERIES.fingerprint(pipeline, self.corpus, self.folder, plan=fingerprints)
        fingerprints.update({stage.name: stage.fingerprint(pipeline, self.prompts) for stage in self.flow.every})
        return fingerprints

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
    def embeddings(self) -> Path:
        """Where vectors are kept: with those of the other jobs, which may have the same corpus. A job that has a folder
        of its own, of an earlier version, goes on with it."""
        own = self.directory / "embeddings"
        return own if own.is_dir() else self.directory.parent / ".embeddings"

    @property
    def identity(self) -> str:
        """A hash of everything that can change the dataset. A finished job of the same identity is not run again."""
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
        """Return the fingerprints of all stages: of generation from the settings, of quality control as it
        was last run.
        """
        return store.find_plan({**self.fingerprints, **self.control_settings()}) or self.fingerprints

    def control_settings(self) -> dict[str, str]:
        """Return what tells this job's saved plan from those of others in the same work database."""
        control, negatives = answer_settings(self.pipeline.control), self.pipeline.generation.negatives
        settings = fingerprint(stage="control settings", control=control, negatives=negatives, frame=self._frame)
        return {"control settings": settings}

    @property
    def running(self) -> bool:
        """Whether another process works at it now, by its status file."""
        status = read_status(self.directory / STATUS)
        if status is None or status.get("ended") or status["pid"] is None:
            return False
        return is_alive(status["pid"]) and time.time() - status["updated"] < _SILENT_SECONDS and not self.finished()

    def finished(self) -> bool:
        """Return whether the work directory holds the dataset of exactly this job, with every file as it
        was written.
        """
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

    def about(self, finished: bool) -> dict[str, str | int]:
        """Return what the status file says of the job, besides its progress."""
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
        """Return the accepted queries of the work database; no LLM is asked."""
        if self.pipeline.queries is not None:
            return own_accepted(store, self.flow, self.fingerprints, self.pipeline)
        return accepted_so_far(store, self.flow, plan=self.fingerprints, pipeline=self.pipeline, frame=self.frame)


def owner_of(directory: Path) -> Path | None:
    """Return the pipeline's file of a work directory, which need not be there; None where its status file names none.

    Where the directory was moved or copied since, with the files around it, it is the file that came along.
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
