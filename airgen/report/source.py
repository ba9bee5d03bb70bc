"""What a report is about: one dataset, the job that made it (which may be running), and the results of systems on it.

    source.dataset, source.results, source.job
    source.labels("dev")                        # {query id: {passage id: label}}
    ranks_of(result, labels)["q1"].ranks        # {"p7": 1, "p9": 84}

A source says what may be shown. In the public form the labels of withheld splits do not exist for whoever asks it, and
neither do the job, the lineage and scores by query of these splits, so no part of a report can tell them.
"""

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from airgen.dataset.beir import BeirDataset, BeirQuery, read_qrels
from airgen.dataset.human_labels import PEOPLE
from airgen.dataset.manifest import MANIFEST, Manifest, load_manifest
from airgen.errors import AirgenError, DatasetError, StoreError
from airgen.evaluation.result import Result
from airgen.evaluation.run import read_run
from airgen.pipeline.job import Job
from airgen.publishing.withhold import public_part
from airgen.store import Store
from airgen.text.analysis.languages import STOPWORDS

_COPIES = 5


@contextmanager
def open_store(job: Job) -> Iterator[Store]:
    """The work database for reading; while another process has it open, a copy of it.

    Raises StoreError where there is none, or where it cannot be read.
    """
    try:
        store = job.open_store(read_only=True)
    except StoreError:
        if not job.running:
            raise
    else:
        with store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="airgen-report-") as folder, _copied(job, Path(folder)) as store:
        yield store


@contextmanager
def _copied(job: Job, folder: Path) -> Iterator[Store]:
    """A copy of a database that another process writes: the rows up to one of its commits."""
    path, copy = job.directory / "work.duckdb", folder / "work.duckdb"
    error: AirgenError | OSError | None = None
    for _ in range(_COPIES):
        try:
            before = _stamp(path)
            for suffix in (".wal", ""):
                (folder / f"work.duckdb{suffix}").unlink(missing_ok=True)
                with suppress(FileNotFoundError):
                    shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
            if _stamp(path) != before:
                continue  # the log was merged into the database meanwhile, so the two copies may not match
            store = Store.open(copy, create=False)
        except (StoreError, OSError) as problem:
            error = problem
            continue
        with store:
            yield store
        return
    raise StoreError(f"{path}: cannot be copied while its job runs ({error}): try again when it has ended")


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


_QUESTIONS = {
    "en": "about can could did do does from had has have how i me my our should we what when where which who why would "
    "you your"
}

TOP = 10
"""How many hits of a system are shown."""


@dataclass(frozen=True, slots=True)
class SystemRanks:
    """One system's answer to one query: ids of the first hits, and the ranks (from 1) of labelled documents."""

    top: tuple[str, ...]
    ranks: Mapping[str, int]


def ranks_of(result: Result, labels: Mapping[str, Mapping[str, float]]) -> dict[str, SystemRanks]:
    """Return {query id: its ranks} of a result's run, for the queries that have labels.

    Hits whose id is the query's own are left out where the rules of the result leave them out. Raises DatasetError for
    a file that is missing or damaged.
    """
    run = read_run(result.paths.run)
    if result.rules.get("identical_ids") == "left out":
        run = run.without_identical_ids()
    run, ranks_by_query = run.ranked(), {}
    places = {key: place for place, key in enumerate(run.passage_ids)}
    for query, start, end in zip(run.query_ids, run.offsets[:-1], run.offsets[1:], strict=True):
        if query in labels:
            hits = run.passages[start:end]
            labelled = np.isin(hits, [places[key] for key in labels[query] if key in places])
            ranks = {run.passage_ids[hits[at]]: at + 1 for at in np.flatnonzero(labelled).tolist()}
            ranks_by_query[query] = SystemRanks(tuple(run.passage_ids[place] for place in hits[:TOP]), ranks)
    return ranks_by_query


@dataclass
class ReportSource:
    """One dataset of a report, with all that is known about it. Each part is read at its first use.

    key: its name in the page's addresses. job: the work directory that made it. dataset: its published files.
    results: by split, one for each system, all of exactly these files. notes: what a reader must know about it.
    private: the splits whose labels must not be shown; of a public report only. home: the job's work directory.
    """

    key: str
    name: str
    job: Job | None = None
    dataset: BeirDataset | None = None
    results: dict[str, list[Result]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    public: bool = False
    private: frozenset[str] = frozenset()
    home: Path | None = None
    _store: Store | None = field(default=None, repr=False)
    _labels: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict, repr=False)
    _peoples: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict, repr=False)
    _rankings: dict[str, dict[str, dict[str, SystemRanks]]] = field(default_factory=dict, repr=False)

    @cached_property
    def manifest(self) -> Manifest | None:
        """The dataset's manifest, or None if there is none that can be read."""
        if self.dataset is None or not (self.dataset.path / MANIFEST).is_file():
            return None
        try:
            return load_manifest(self.dataset.path)
        except DatasetError as error:
            self.notes.append(str(error))
            return None

    def take_public_part(self, withhold: Sequence[str]) -> None:
        """Replace the dataset by its public part, in a folder that is removed with the last reference to it.

        Raises DatasetError where the public files would connect a withheld query with a document.
        """
        assert self.dataset is not None
        folder = tempfile.mkdtemp(prefix="airgen-public-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        part = Path(folder) / self.dataset.path.resolve().name
        public_part(self.dataset.path, part, withhold)
        self.dataset = BeirDataset.open(part)
        for name in ("manifest", "state", "withheld", "splits", "queries", "split_of"):
            self.__dict__.pop(name, None)  # what was read of the whole dataset

    @property
    def info(self) -> Mapping[str, Any]:
        """Name, task, language, domain and so on, as far as they are known."""
        if self.dataset is not None and self.dataset.info:
            return self.dataset.info
        if self.job is not None:
            pipeline = self.job.pipeline
            return {"task": pipeline.task, "language": pipeline.language, "domain": pipeline.domain}
        return next((result.about for every in self.results.values() for result in every), {})

    @property
    def language(self) -> str:
        """The language's code; `en` where none is named."""
        return str(self.info.get("language") or "en")

    @cached_property  # for a finished job every file of the dataset is read
    def state(self) -> str:
        """`finished`, `running` or `stopped` of a job; else `dataset` or `results`."""
        if self.job is None:
            return "results" if self.dataset is None else "dataset"
        return "running" if self.job.running else "finished" if self.job.finished() else "stopped"

    @cached_property
    def withheld(self) -> frozenset[str]:
        """The splits whose labels this report does not have: they are not there, or are private."""
        absent = frozenset() if self.dataset is None else frozenset(self.dataset.withheld)
        return absent | self.private

    @cached_property
    def splits(self) -> list[str]:
        """The splits whose labels may be shown."""
        return [] if self.dataset is None else [split for split in self.dataset.splits if split not in self.withheld]

    @cached_property
    def queries(self) -> dict[str, BeirQuery]:
        """The dataset's queries of every split, with the split in their metadata where it is known."""
        if self.dataset is None:
            return {}
        return self.dataset.queries()

    @cached_property
    def split_of(self) -> dict[str, str]:
        """{query id: split}: by the metadata, else by the labels that may be shown."""
        splits = {key: str(split) for key, query in self.queries.items() if (split := query.metadata.get("split"))}
        for split in self.splits:
            for key in self.labels(split):
                splits.setdefault(key, split)
        return splits

    def is_private(self, split: str) -> bool:
        """Return whether the split's single queries must not be shown; `all` has those of every split."""
        return split in self.withheld or (split == "all" and bool(self.withheld))

    def labels(self, split: str) -> dict[str, dict[str, float]]:
        """Return {query id: {passage id: label}} of a split, or of `all`; empty if they may not be shown."""
        if self.dataset is None or self.is_private(split) or split not in (*self.splits, "all"):
            return {}
        if split not in self._labels:
            self._labels[split] = self.dataset.qrels(split).labels
        return self._labels[split]

    def peoples(self, split: str) -> dict[str, dict[str, float]]:
        """Return {query id: {passage id: level}} of the labels of a split that people gave; empty if they
        may not be shown.
        """
        if self.dataset is None or split not in self.splits:
            return {}
        path = self.dataset.path / f"qrels-{PEOPLE}" / f"{split}.tsv"
        if split not in self._peoples:
            self._peoples[split] = read_qrels(path).labels if path.is_file() else {}
        return self._peoples[split]

    @cached_property
    def stopwords(self) -> list[str]:
        """Words of the language that mark nothing worth seeing; the index's stop words leave out those of questions."""
        language = self.language.partition("-")[0].lower()
        return sorted({*STOPWORDS.get(language, ()), *_QUESTIONS.get(language, "").split()})

    def rankings(self, split: str) -> dict[str, dict[str, SystemRanks]]:
        """Return {system: {query id: ranking}} of a split; empty if its labels may not be shown.

        A system whose run cannot be read is left out, with a note.
        """
        labels = self.labels(split)
        if split not in self._rankings:
            rankings: dict[str, dict[str, SystemRanks]] = {}
            for result in self.results.get(split, ()) if labels else ():
                try:
                    rankings[result.name] = ranks_of(result, labels)
                except DatasetError as error:
                    self.notes.append(f"{result.name}: its hits are not shown: {error}")
            self._rankings[split] = rankings
        return self._rankings[split]

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The job's work database for reading. Inside another `with` of it, the same one, so a copy is made only once.

        Raises StoreError where there is none, or where it cannot be read.
        """
        assert self.job is not None
        if self._store is not None:
            yield self._store
            return
        with open_store(self.job) as self._store:
            try:
                yield self._store
            finally:
                self._store = None
