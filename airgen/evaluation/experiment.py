"""Evaluate systems on a dataset: index, search, score, save all results, and never run the same system twice.

    results = evaluate("scifact", load_systems("systems.yaml"), "results")

A run's key covers the dataset's content, all system settings that can change results, and the keys of the systems on
which it builds. A run with the same key is reused; if only the measures changed, it is rescored. If labels are private,
runs are saved for `submit`.
"""

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from uuid import uuid4

import numpy as np

from airgen import __version__
from airgen.components.keys import content_key, file_sha256
from airgen.components.user_functions import is_kept, unidentified
from airgen.dataset.beir import BeirDataset
from airgen.dataset.card import OWN_QUERIES
from airgen.errors import AirgenError, ModelError, SettingsError, UsageError
from airgen.evaluation import breakdown
from airgen.evaluation.dataset_split import PARENTS, DatasetSplit, labels_by_parent, run_by_parent
from airgen.evaluation.intervals import bootstrap_interval
from airgen.evaluation.measures import Scores, judged_hits, measures_code, parse_measures, score
from airgen.evaluation.result import (
    NO_NEGATIVES,
    SEARCHED,
    Costs,
    Paths,
    Result,
    library_versions,
    load_result,
    without_secrets,
    write_result,
    write_scores,
)
from airgen.evaluation.result_tables import write_report
from airgen.evaluation.run import read_own_run, write_run
from airgen.evaluation.run_system import FinishedRun, context_of, rehearse, run_beside, run_system
from airgen.evaluation.systems import (
    Failed,
    SystemSettings,
    in_order,
    label_makers,
    made_labels,
    missing_needs,
    run_all,
    stamp_of,
)
from airgen.evaluation.user_search import OwnSystem
from airgen.evaluation.wordings import FOLDER, WordingsSplit, mean_overlap, overlaps_of
from airgen.models import give_up_silent_hub, in_hub_cache, on_hub
from airgen.retrievers.protocols import Retriever
from airgen.settings.base import Settings
from airgen.settings.requirements import files_of, hub_models, located
from airgen.settings.user_function import PYTHON
from airgen.storage.json_values import DAMAGE, read_json, write_json

DEFAULT_MEASURES = (
    "nDCG@10",
    "Recall@10",
    "Recall@100",
    "R_cap@100",
    "AP@1000",
    "RR@10",
    "P@10",
    "Hole@10",
    "Judged@10",
)
_WORST_QUERIES = 10  # queries per system whose texts are kept
RULES = {
    "gains": "linear, negative labels gain 0",
    "ties": "passage id descending",
    "scores": "float32",
    "relevant": "label above 0",
    "missing_queries": "score 0, denominator from the qrels",
    "identical_ids": "kept",
    "hole_scope": "judged for any query of the split",
}
"""Settings that affect scores but are rarely reported in papers."""

Say = Callable[[str], None]
Encoding = Callable[[str, int, int], None]


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of an evaluation.

    Attributes:
        top: Number of hits to request for each query.
        ignore_identical_ids: Whether to ignore hits whose id equals the query's id (ArguAna, Quora).
        language: Language of the corpus. Default: the manifest's, or else English.
        folder: Folder to which paths are relative in systems that were not read from a file. Default: the working
            directory.
        fresh: Whether to rerun systems that have saved results.
        report: Whether to write the split's tables next to the results.
        without_negatives: Whether to remove the generated hard negatives from every run, for search services that do
            not index them.
    """

    split: str = "test"
    measures: Sequence[str] | str = DEFAULT_MEASURES
    top: int = 1000
    ignore_identical_ids: bool = False
    language: str | None = None
    folder: str | Path | None = None
    fresh: bool = False
    report: bool = True
    without_negatives: bool = False


def evaluate(
    dataset: str | Path | BeirDataset,
    systems: Sequence[SystemSettings],
    out: str | Path,
    options: EvaluationOptions = EvaluationOptions(),
    *,
    progress: Say | None = None,
    started: Say | None = None,
    indexes: MutableMapping[str, Retriever] | None = None,
    failed: Failed | None = None,
    encoding: Encoding | None = None,
) -> list[Result]:
    """Evaluate every system on one split, and return one Result per system, in the given order.

    Raises SettingsError before the first system runs, listing everything that is missing. A failing system does not
    stop the others: their results and tables are saved for the next call. Its DatasetError, UsageError, MissingExtra or
    ModelError is raised at the end or, with `failed`, passed to that function, and its Result is left out.

    Args:
        dataset: A directory in BEIR's layout, or an opened dataset.
        out: Folder for results.
        progress: Called with one line for each finished system.
        started: Called with one line for each system that needs to run.
        indexes: Keeps indexes for another call on the same corpus. A run on such an index has no index time.
        failed: Called with the name and the error of a failing system.
        encoding: Called with a system's name, and the numbers of encoded passages and of all passages.
    """
    experiment = _Experiment(
        dataset,
        systems,
        out,
        options,
        progress=progress,
        started=started,
        indexes=indexes,
        encoding=encoding,
    )
    for line in trained_on(experiment.task, experiment.systems):
        experiment.progress(f"! {line}")
    experiment.rehearse()
    experiment.check_hub()
    experiment.run_beside()
    worded = experiment.on_wordings()

    def add(system: SystemSettings) -> None:
        experiment.add(system)
        if worded is not None:
            worded.add_if_possible(system)
        if indexes is None and experiment.indexes is not None:
            experiment.indexes.clear()  # the index was kept for the wordings alone

    try:
        run_all(experiment.systems, add, failed)
    finally:
        results = [experiment.results[system.name] for system in systems if system.name in experiment.results]
        if results and options.report:
            write_report(experiment.target, results)
    return results


def makes_first(
    dataset: BeirDataset, systems: Sequence[SystemSettings], out: str | Path, options: EvaluationOptions
) -> list[str]:
    """Return a line for each system without saved results that must train or generate something first, with its
    cost."""
    if not any(_makes(spec.settings) for system in systems for _, spec in system.parts()):
        return []
    experiment = _Experiment(dataset, systems, out, options)
    passages = sum(1 for _ in dataset.passages())
    notices = []
    for system in experiment.systems:
        notes = (spec.settings.makes_first(passages, spec.folder) for _, spec in system.parts())
        lines = list(filter(None, notes))
        if lines and (system.uses or options.fresh or experiment.is_pending(system)):
            notices += [f"{dataset.name}: {system.name} first {line}" for line in lines]
    return notices


def _makes(settings: Settings) -> bool:
    return type(settings).makes_first is not Settings.makes_first


def trained_on(task: DatasetSplit, systems: Sequence[SystemSettings]) -> list[str]:
    """Return a line for each system whose model was trained on queries of this split, according to its card."""
    warnings = []
    for system in systems:
        for place, spec in system.parts():
            for name, value, _ in files_of(spec.settings):
                card = located(value, spec.folder) / "card.json"
                try:
                    data = read_json(card)["data"]
                    same = (data["dataset"], data["split"]) == (task.dataset.name, task.split)
                except DAMAGE:
                    continue  # it is not a model from `airgen train`
                held = card.with_name("held-out.tsv")
                measure = f"score its run with `airgen evaluate measures RUN {held}`"
                if same:
                    warnings.append(
                        f"system {system.name}: {'.'.join(filter(None, (place, name)))} was trained on queries of "
                        f"{task.dataset.name} {task.split}, so its score is too high: "
                        f"{measure if held.is_file() else 'use another split'}"
                    )
    return warnings


class _Experiment:
    """The state of an evaluation on one split."""

    def __init__(
        self,
        dataset: str | Path | BeirDataset,
        systems: Sequence[SystemSettings],
        out: str | Path,
        options: EvaluationOptions,
        *,
        progress: Say | None = None,
        started: Say | None = None,
        indexes: MutableMapping[str, Retriever] | None = None,
        encoding: Encoding | None = None,
    ) -> None:
        opened = dataset if isinstance(dataset, BeirDataset) else BeirDataset.open(dataset)
        task = DatasetSplit(opened, options.split, options.language or str(opened.info.get("language") or "en"))
        self.task, self.options, self.target = task, options, results_folder(out, opened.name, options.split)
        self.progress, self.started = progress or (lambda line: None), started or (lambda line: None)
        self.say = self.progress
        self.indexes, self.encoding = indexes, encoding
        folder = None if options.folder is None else Path(options.folder)
        self.systems = in_order([system.below(folder).on(opened.name) for system in systems])
        if missing := missing_needs(self.systems):
            raise SettingsError(missing)
        self.target.mkdir(parents=True, exist_ok=True)
        self.measures = tuple(dict.fromkeys((*parse_measures(task.headline), *parse_measures(options.measures))))
        if options.without_negatives and not task.generated:
            raise UsageError(
                f"{opened.path}: it is unknown which passages were generated: the dataset has no hard negatives, or "
                "it is a published copy without private/lineage.jsonl"
            )
        self.rules = RULES | {"identical_ids": "left out" if options.ignore_identical_ids else "kept"}
        if task.generated:
            self.rules["generated_negatives"] = "left out" if options.without_negatives else "kept"
        provenance = task.dataset.manifest.get("provenance") or ()
        makers = label_makers([entry for entry in provenance if isinstance(entry, dict)])
        self.made_labels = made_labels(self.systems, makers)
        self.unreachable: set[str] = set()  # Hub models that are not cached, with a Hub that does not answer
        self.results: dict[str, Result] = {}
        self.searched: dict[str, Searched] = {}
        self.keys: dict[str, str] = {}
        self.runs: dict[str, FinishedRun] = {}
        self.labels_reported = False
        self.beside: dict[str, FinishedRun] = {}  # systems that workers have already run

    def on_wordings(self) -> "_Experiment | None":
        """Return the evaluation of the same systems on the wordings of this split's queries, or None if there are
        none. Both use the same indexes."""
        split = WordingsSplit.of(self.task)
        if split is None:
            return None
        if self.indexes is None:
            self.indexes = {}
        other = copy(self)
        other.task, other.target, other.measures = split, self.target / FOLDER, parse_measures(split.headline)
        other.results, other.searched, other.keys, other.runs, other.beside = {}, {}, {}, {}, {}
        other.progress = other.started = lambda line: None
        other.labels_reported = True
        other.target.mkdir(parents=True, exist_ok=True)
        return other

    def add_if_possible(self, system: SystemSettings) -> None:
        """Run and score one system on wordings. A run file has no hits for them, and neither have systems on it."""
        if system.kind == "run" or any(name not in self.results for name in system.uses):
            return
        try:
            self.add(system)
        except AirgenError as error:
            self.say(f"! {system.name}: not evaluated on other wordings: {error}")

    def is_pending(self, system: SystemSettings) -> bool:
        """Return whether a system that builds on no other system has no saved result."""
        return self._kept(system, self._key(system)) is None

    def rehearse(self) -> None:
        """Try out the user's own components in the systems that will run, before the first system runs.

        Raises SettingsError with a line for each failure.
        """
        own_systems = [system for system in self.systems if any(spec.kind == PYTHON for _, spec in system.parts())]
        context = context_of(self.task, self.options.top) if own_systems else None
        errors = []
        for system in own_systems:
            if context is not None and (system.uses or self._kept(system, self._key(system)) is None):
                try:
                    rehearse(system, context)
                except AirgenError as error:
                    line = str(error)
                    errors.append(line if f"system {system.name}" in line else f"system {system.name}: {line}")
        if errors:
            raise SettingsError(errors)

    def check_hub(self) -> None:
        """Check whether the Hub responds, before the first system runs, if any of them needs it."""
        pending = (system for system in self.systems if system.uses or self._kept(system, self._key(system)) is None)
        named = (name for system in pending for name in _hub_models(system))
        away = list(dict.fromkeys(name for name in named if not in_hub_cache(name)))
        if away and give_up_silent_hub():
            self.unreachable.update(away)

    def run_beside(self) -> None:
        """Run the systems that need no other system and no model on the workers, if there are any."""
        if self.indexes is None:
            alone = (system for system in self.systems if not system.uses)
            pending = (system for system in alone if self._kept(system, self._key(system)) is None)
            self.beside.update(run_beside(self.task, pending, self.options.top, self.started))

    def add(self, system: SystemSettings) -> None:
        """Run and score one system, reusing saved results."""
        paths, own_labels = Paths.of(self.target, system.name), self.made_labels.get(system.name, ())
        key = self._key(system)
        scores_key = content_key(
            [key, [str(measure) for measure in self.measures], self.rules, *self._scored_by, *self._measured_by]
        )
        previous = self._kept(system, key)
        if previous is not None and previous.scores_key == scores_key and paths.scores.is_file():
            how, result = "kept", previous
            family = system.family or system.kind
            if (previous.family, previous.made_labels) != (family, own_labels):  # they are not part of a run's identity
                result = replace(previous, family=family, made_labels=own_labels)
                write_result(result)
        else:
            how = "ran" if previous is None else "scored again"
            finished = self.runs[system.name] = self._run(system) if previous is None else _read_again(previous)
            scored = self._score(system, finished, paths)
            result = replace(
                scored, key=key, scores_key=scores_key, made_labels=own_labels, cached=previous is not None
            )
            write_result(result)
        usd = self._price(system, result.costs.hosted_usd_per_1000)
        if result.costs.usd_per_1000 != usd:  # a price is not part of a run's identity either
            result = replace(result, costs=replace(result.costs, usd_per_1000=usd))
            write_result(result)
        if result.cached and isinstance(system.options, OwnSystem):
            result = replace(result, reads=tuple(unidentified(system.options.found(system.folder))))
        self.results[system.name] = result
        self.progress(f"{result.dataset}: {result.name}: {result.headline} {result.score:.4f} ({how})")

    def _price(self, system: SystemSettings, hosted: float | None) -> float | None:
        """Return the price of 1,000 queries in US dollars: the system's own price, or that of its hosted models, plus
        those of the systems on which it builds."""
        own = hosted if system.price is None else system.price
        parts = [self.results[name].costs.usd_per_1000 for name in system.uses if name in self.results]
        known = [price for price in (own, *parts) if price is not None]
        return math.fsum(known) if known else None

    def search(self, system: SystemSettings) -> None:
        """Run one system on a split without labels, unless its run is saved."""
        name, paths, task = system.name, Paths.of(self.target, system.name), self.task
        note, key = self.target / f"{name}{SEARCHED}", self._key(system)
        try:
            cached = not self.options.fresh and paths.run.is_file() and read_json(note)["key"] == key
        except DAMAGE:
            cached = False  # the file is missing or damaged
        self.runs[name] = FinishedRun(read_own_run(paths.run), {}, Costs()) if cached else self._run(system)
        if not cached:
            write_json(note, {"key": key, "kind": system.kind, "settings": without_secrets(system.settings)})
        self.searched[name] = Searched(
            name, task.dataset.name, task.split, queries=len(task.queries), run=paths.run, cached=cached
        )

    def _kept(self, system: SystemSettings, key: str) -> Result | None:
        """Return the saved result of a run with this key."""
        paths = Paths.of(self.target, system.name)
        options = system.options
        again = isinstance(options, OwnSystem) and not is_kept(options.version)
        result = None if self.options.fresh or again else load_result(paths)
        return result if result is not None and result.key == key and paths.run.is_file() else None

    def _key(self, system: SystemSettings) -> str:
        """Return the key of a run, which does not depend on times, the output folder, measures or speed settings."""
        task = self.task
        identity = system.identity(task.dataset.name, task.split, stamp_of)
        code = _identified(identity.pop("code"))
        key = self.keys[system.name] = content_key(
            {
                **({"code": code} if code else {}),
                "airgen": __version__,
                "dataset": task.digest,
                "split": task.split,
                "language": task.language,
                **identity,
                "uses": [self.keys[name] for name in system.uses],
                "top": self.options.top,
                "unanswered": sorted(task.unanswered),
            }
        )
        return key

    @cached_property
    def _is_generated(self) -> bool:
        """Return whether airgen generated the queries."""
        stages = [
            step.get("stage") for step in self.task.dataset.manifest.get("funnel") or () if isinstance(step, dict)
        ]
        return bool(stages) and OWN_QUERIES not in stages

    @property
    def _measured_by(self) -> list[object]:
        """Return what identifies the code of the measures, if it is not airgen's."""
        code = _identified(measures_code(self.measures))
        return [{"measures": code}] if code else []

    @cached_property
    def _scored_by(self) -> list[object]:
        """Return what affects scores in the dataset besides its labels."""
        tree = self.task.dataset.path / PARENTS
        parts: list[object] = [file_sha256(tree)] if tree.is_file() else []
        return parts + ([content_key(self.task.answers)] if self.task.answers else [])

    def _run(self, system: SystemSettings) -> FinishedRun:
        """Run one system and write its run. The systems on which it builds are finished."""
        if not self.labels_reported and self.task.split not in self.task.dataset.withheld:
            lost, self.labels_reported = self.task.lost_labels, True
            if lost:
                self.progress(f"! {lost}")
        if (finished_run := self.beside.pop(system.name, None)) is None:
            if away := next((name for name in _hub_models(system) if name in self.unreachable), None):
                raise ModelError(f"the model {away}: {on_hub(away).problem}")  # before torch is loaded unnecessarily
            self.started(f"{self.task.dataset.name}: {system.name}: running")
            finished = {name: self.runs.get(name) or _read_again(self.results[name]) for name in system.uses}
            report = partial(self.encoding, system.name) if self.encoding else None
            context = context_of(self.task, self.options.top)
            timed = not isinstance(self.task, WordingsSplit)
            context = replace(context, finished=finished, indexes=self.indexes, encoding=report, timed=timed)
            finished_run = run_system(system, context)
        write_run(Paths.of(self.target, system.name).run, finished_run.run, system.name)
        return finished_run

    def _score(self, system: SystemSettings, finished: FinishedRun, paths: Paths) -> Result:
        task, options, labels = self.task, self.options, self.task.qrels.labels
        answerable = [key for key, row in labels.items() if any(label > 0 for label in row.values())]
        run = finished.run.without_identical_ids() if options.ignore_identical_ids else finished.run
        outside = system.kind in ("http", "run") and self.rules.get("generated_negatives") == "kept"
        notes = {name: count for name, count in finished.notes.items() if name != NO_NEGATIVES}
        if outside and task.generated.isdisjoint(run.passage_ids):
            notes[NO_NEGATIVES] = len(task.generated)
        if options.without_negatives:
            run = run.without_passages(task.generated)
        scores, judged = score(run, labels, self.measures), judged_hits(run, labels)
        means = _means(scores)
        write_scores(paths.scores, {"dataset": task.dataset.name, "split": task.split, "system": system.name}, scores)
        by_document: Mapping[str, tuple[float, float, float]] = {}
        if task.parents and any(passage in task.parents for passage in run.passage_ids):
            of_parents = labels_by_parent(labels, task.parents)
            by_document = _means(score(run_by_parent(run, task.parents), of_parents, self.measures))
        lowest = np.argsort(scores.of(task.headline), kind="stable")[:_WORST_QUERIES]
        worst = [scores.query_ids[row] for row in lowest.tolist()]
        info, kinds = task.dataset.info, breakdown.attributes(task.queries, task.language) | task.of_relevant
        about = {
            "digest": task.digest,
            "passages": len(task.corpus),
            "language": task.language,
            "task": info.get("task"),
            "domain": info.get("domain"),
            "search_depth": options.top,
            **({"generated": True} if self._is_generated else {}),
            **({"queries_with_answers": len(task.answers)} if task.answers else {}),
            **({"overlap": shared} if (shared := mean_overlap(task.queries.values())) is not None else {}),
            **({"base": task.base_digest, "overlaps": overlaps_of(task)} if isinstance(task, WordingsSplit) else {}),
        }
        return Result(
            name=system.name,
            kind=system.kind,
            dataset=task.dataset.name,
            split=task.split,
            headline=task.headline,
            means={name: mean for name, (mean, _, _) in means.items()},
            intervals={name: (low, high) for name, (_, low, high) in means.items()},
            queries=len(scores.query_ids),
            missing=scores.missing,
            unjudged=scores.unjudged - len(task.unanswered.keys() & set(run.query_ids)),
            costs=finished.costs,
            paths=paths,
            settings=without_secrets(system.settings),
            description=without_secrets(finished.description),
            about=about,
            rules=self.rules,
            versions=library_versions(),
            groups=tuple(breakdown.by_attribute(scores, task.headline, kinds)),
            negatives_above=breakdown.negatives_above(judged),
            negative_ranks=breakdown.negative_ranks(judged),
            biases=breakdown.biases(run, labels, task.queries, task.corpus, split=task.words),
            worst={key: task.queries[key].text for key in worst if key in task.queries},
            notes=notes,
            by_document=by_document,
            answers=breakdown.answer_accuracy(
                run, task.answers, task.corpus, depth=options.top, lines=task.token_lines
            ),
            family=system.family or system.kind,
            models=finished.models,
            refusal=breakdown.refusal(run, answerable, task.unanswered) if task.unanswered else {},
        )


def _means(scores: Scores) -> dict[str, tuple[float, float, float]]:
    """Return {measure: (mean, low, high)}."""
    ends = bootstrap_interval(scores.values).tolist()
    return {name: (mean, low, high) for (name, mean), (low, high) in zip(scores.means().items(), ends, strict=True)}


def _read_again(result: Result) -> FinishedRun:
    """Read a saved run, for new measures or for a system that builds on it."""
    return FinishedRun(
        read_own_run(result.paths.run), result.description, result.costs, result.notes, models=result.models
    )


def _identified(code: dict[str, str]) -> dict[str, str]:
    """Return code by its digests. Code without a file cannot be identified, so it is different each time."""
    return code if all(code.values()) else {**code, "run": uuid4().hex}


def _hub_models(system: SystemSettings) -> list[str]:
    return [name for _, spec in system.parts() for name in hub_models(spec)]


def results_folder(out: str | Path, name: str, split: str) -> Path:
    """Return the folder of a dataset's results. The name comes from a manifest, and must not lead out of `out`."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    return Path(out) / (safe.strip(".") or "dataset") / split


@dataclass(frozen=True, slots=True)
class Searched:
    """The run of a system on a split without labels. `cached` says whether it already existed."""

    name: str
    dataset: str
    split: str
    queries: int
    run: Path
    cached: bool = False


def run_without_labels(
    dataset: str | Path | BeirDataset,
    systems: Sequence[SystemSettings],
    out: str | Path,
    options: EvaluationOptions,
    *,
    started: Callable[[str], None] | None = None,
    failed: Failed | None = None,
) -> list[Searched]:
    """Search all queries of a withheld split with every system, and return one Searched per system, in the given order.

    The arguments and errors are those of `evaluate`.
    """
    experiment = _Experiment(dataset, systems, out, options, started=started)
    run_all(experiment.systems, experiment.search, failed)
    return [experiment.searched[system.name] for system in systems if system.name in experiment.searched]
