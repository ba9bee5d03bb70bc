"""The subject of a report: a dataset, the job that made it (which may be running), and the results of systems on it.

    source.dataset, source.results, source.job
    source.labels("dev")                        # {query id: {passage id: label}}
    ranks_of(result, labels)["q1"].ranks        # {"p7": 1, "p9": 84}

A source determines what may be shown. In the public form, it does not provide the labels of withheld splits, nor the
job, the lineage, and the scores per query of these splits, so that no part of a report can reveal them.
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
from airgen.dataset.content import ANSWERED
from airgen.dataset.human_labels import PEOPLE
from airgen.dataset.manifest import MANIFEST, Manifest, load_manifest
from airgen.errors import AirgenError, DatasetError, StoreError
from airgen.evaluation.result import Result
from airgen.evaluation.run import read_own_run
from airgen.job.job import Job
from airgen.publishing.withhold import public_part
from airgen.storage.store import Store
from airgen.text.analysis.languages import STOPWORDS

_COPIES = 5


@contextmanager
def open_store(job: Job) -> Iterator[Store]:
    """Open the work database for reading, or a copy of it while another process has it open.

    Raises StoreError if it is missing or cannot be read.
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
    """Copy a database that another process is writing, with the rows up to one of its commits."""
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
"""The number of hits shown per system."""


@dataclass(frozen=True, slots=True)
class SystemRanks:
    """One system's results for a query: the ids of the top hits, and the ranks (from 1) of labelled documents."""

    top: tuple[str, ...]
    ranks: Mapping[str, int]


def ranks_of(result: Result, labels: Mapping[str, Mapping[str, float]]) -> dict[str, SystemRanks]:
    """Return {query id: ranks} from a result's run, for the queries that have labels.

    Hits whose id equals the query's are left out if the result's options say so. Raises DatasetError if a file is
    missing or damaged.
    """
    run = read_own_run(result.paths.run)
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
    """A dataset in a report, with everything known about it. Each part is read on first use.

    `key` is its name in the page's URLs. `job` is the job that made it. `dataset` are its published files. `results`
    are the systems' results by split, all for exactly these files. `notes` are for the reader. `private` are the splits
    whose labels must not be shown, for a public report only. `home` is the job's work directory.
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
        """Return the dataset's manifest, or None if it is missing or cannot be read."""
        if self.dataset is None or not (self.dataset.path / MANIFEST).is_file():
            return None
        try:
            return load_manifest(self.dataset.path)
        except DatasetError as error:
            self.notes.append(str(error))
            return None

    def take_public_part(self, withhold: Sequence[str]) -> None:
        """Replace the dataset with its public part, in a folder that is removed with the last reference to it.

        Raises DatasetError if the public files would connect a withheld query with a document.
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
        """Return the name, task, language, domain and so on, as far as known."""
        if self.dataset is not None and self.dataset.info:
            return self.dataset.info
        if self.job is not None:
            pipeline = self.job.pipeline
            return {"task": pipeline.task, "language": pipeline.language, "domain": pipeline.domain}
        return next((result.about for every in self.results.values() for result in every), {})

    @property
    def language(self) -> str:
        """Return the language code, by default `en`."""
        return str(self.info.get("language") or "en")

    @cached_property  # for a finished job every file of the dataset is read
    def state(self) -> str:
        """Return `finished`, `running` or `stopped` for a job, or else `dataset` or `results`."""
        if self.job is None:
            return "results" if self.dataset is None else "dataset"
        return "running" if self.job.running else "finished" if self.job.finished() else "stopped"

    @cached_property
    def withheld(self) -> frozenset[str]:
        """Return the splits whose labels are missing or private."""
        absent = frozenset() if self.dataset is None else frozenset(self.dataset.withheld)
        return absent | self.private

    @cached_property
    def splits(self) -> list[str]:
        """Return the splits whose labels may be shown."""
        return [] if self.dataset is None else [split for split in self.dataset.splits if split not in self.withheld]

    @cached_property
    def queries(self) -> dict[str, BeirQuery]:
        """Return the queries of all splits, with the split in their metadata if it is known."""
        if self.dataset is None:
            return {}
        return self.dataset.queries()

    @cached_property
    def split_of(self) -> dict[str, str]:
        """Return {query id: split}, from the metadata or else from the labels that may be shown."""
        splits = {key: str(split) for key, query in self.queries.items() if (split := query.metadata.get("split"))}
        for split in self.splits:
            for key in self.labels(split):
                splits.setdefault(key, split)
        return splits

    def is_private(self, split: str) -> bool:
        """Return whether the split's individual queries must not be shown. `all` covers every split."""
        return split in self.withheld or (split == "all" and bool(self.withheld))

    def labels(self, split: str) -> dict[str, dict[str, float]]:
        """Return {query id: {passage id: label}} for a split or `all`; empty if they must not be shown."""
        if self.dataset is None or self.is_private(split) or split not in (*self.splits, "all"):
            return {}
        if split not in self._labels:
            self._labels[split] = self.dataset.qrels(split).labels
        return self._labels[split]

    def peoples(self, split: str) -> dict[str, dict[str, float]]:
        """Return {query id: {passage id: level}} for people's labels of a split; empty if they must not be shown."""
        if self.dataset is None or split not in self.splits:
            return {}
        path = self.dataset.path / f"qrels-{PEOPLE}" / f"{split}.tsv"
        if split not in self._peoples:
            self._peoples[split] = read_qrels(path).labels if path.is_file() else {}
        return self._peoples[split]

    @cached_property
    def stopwords(self) -> list[str]:
        """Return the words of the language that should not be highlighted: stop words, including question words."""
        language = self.language.partition("-")[0].lower()
        return sorted({*STOPWORDS.get(language, ()), *_QUESTIONS.get(language, "").split()})

    def rankings(self, split: str, *, unanswered: bool = False) -> dict[str, dict[str, SystemRanks]]:
        """Return {system: {query id: ranking}} for a split; empty if its labels must not be shown.

        A system whose run cannot be read is left out, with a note. `unanswered` includes queries that nothing answers,
        which have no labels.
        """
        labels = self.labels(split)
        if split not in self._rankings:
            rankings: dict[str, dict[str, SystemRanks]] = {}
            without = {key for key, query in self.queries.items() if query.metadata.get(ANSWERED) is False}
            for result in self.results.get(split, ()) if labels else ():
                try:
                    rankings[result.name] = ranks_of(result, {**{key: {} for key in without}, **labels})
                except DatasetError as error:
                    self.notes.append(f"{result.name}: its hits are not shown: {error}")
            self._rankings[split] = rankings
        if unanswered:
            return self._rankings[split]
        return {
            system: {query: ranks for query, ranks in of_system.items() if query in labels}
            for system, of_system in self._rankings[split].items()
        }

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Open the job's work database for reading. Nested `with` blocks share it, so that it is copied only once.

        Raises StoreError if it is missing or cannot be read.
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
