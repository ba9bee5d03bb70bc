"""Evaluate systems on a dataset: index, search, score, keep everything, and never run the same thing twice.

    results = evaluate("scifact", load_systems("systems.yaml"), "results")

In `out/<dataset>/<split>/` each system has a TREC run, its result as JSON, its per-query scores as Parquet and MTEB's
form; beside them lie the comparison and the plots. A run's key is made of the dataset's content, the system's
settings and what it builds on: the same key again costs nothing, other measures alone cost no search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airgen import __version__
from airgen.dataset.beir import BeirDataset
from airgen.evaluation.breakdown import attributes, biases, by_attribute, negatives_above, worst_queries
from airgen.evaluation.measures import Measure, judged_hits, parse_measures, score
from airgen.evaluation.report import DatasetReport
from airgen.evaluation.result import (
    Paths,
    Result,
    library_versions,
    load_result,
    without_secrets,
    write_result,
    write_scores,
)
from airgen.evaluation.run import read_run, write_run
from airgen.evaluation.run_system import Context, Made, produce
from airgen.evaluation.significance import bootstrap_interval
from airgen.evaluation.systems import SystemSettings, in_order
from airgen.evaluation.task import Task
from airgen.keys import content_key
from airgen.retrievers.base import Retriever

__all__ = ["DEFAULT_MEASURES", "evaluate"]

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

Progress = Callable[[str], None]

_PATHS = ("path", "model", "embedder", "reranker", "folder")  # settings that may name files; a cache is none


def evaluate(
    dataset: str | Path,
    systems: Sequence[SystemSettings],
    out: str | Path,
    split: str = "test",
    measures: Sequence[str] | str = DEFAULT_MEASURES,
    *,
    top: int = 1000,
    ignore_identical_ids: bool = False,
    language: str | None = None,
    folder: str | Path | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    started: Progress | None = None,
    indexes: MutableMapping[str, Retriever] | None = None,
) -> list[Result]:
    """Evaluate every system on one split; one Result a system, in the order given.

    dataset: a directory in BEIR's layout. out: where results are kept. top: how deep systems search.
    ignore_identical_ids: leave out hits whose id is the query's own (ArguAna, Quora). language: of the corpus, else
    the manifest's, else English. folder: where relative paths of systems start. fresh: run again what is kept.
    progress: is told one line for each finished system; started: one for each that has to be run. indexes: keeps
    what was indexed, for another call on the same corpus; such a run has no index time.

    Raises DatasetError, SettingsError, UsageError, MissingExtra, ModelError; finished systems stay kept.
    """
    opened = BeirDataset.open(dataset)
    task = Task(opened, split, language or str(opened.info.get("language") or "en"))
    wanted = _with_headline(parse_measures(measures), task.headline)
    target = Path(out) / _folder_name(opened.name) / split
    target.mkdir(parents=True, exist_ok=True)
    say = progress or (lambda line: None)
    rules = _rules(ignore_identical_ids)
    results: dict[str, Result] = {}
    made: dict[str, Made] = {}
    for system in in_order(systems):
        paths = Paths.of(target, system.name)
        base = Path(folder) if folder is not None else Path.cwd()
        key = _key(task, system, top, base, [results[name].key for name in system.uses])
        scores_key = content_key([key, [str(measure) for measure in wanted], rules])
        kept = None if fresh else load_result(paths)
        if kept is not None and kept.key == key and kept.scores_key == scores_key and _there(paths):
            results[system.name] = kept
            say(_line(kept, "kept"))
            continue
        if kept is not None and kept.key == key and paths.run.is_file():
            how = "scored again"
            current = Made(read_run(paths.run), kept.description, kept.costs, kept.notes)
        else:
            how = "ran"
            if started is not None:
                started(f"{opened.name}: {system.name}: running")
            finished = {name: made.get(name) or _again(results[name]) for name in system.uses}
            context = Context(
                task.corpus,
                {key: query.text for key, query in task.queries.items()},
                top,
                opened.name,
                split,
                base,
                finished,
                indexes,
            )
            current = produce(system, context)
            write_run(paths.run, current.run, system.name)
        made[system.name] = current
        result = _score(task, system, current, wanted, rules, top, paths)
        result = replace(result, key=key, scores_key=scores_key)
        write_result(result)
        results[system.name] = result
        say(_line(result, how))
    ordered = [results[system.name] for system in systems]
    DatasetReport.of(ordered).write(target)
    return ordered


def _line(result: Result, how: str) -> str:
    return f"{result.dataset}: {result.name}: {result.headline} {result.score:.4f} ({how})"


def _score(
    task: Task,
    system: SystemSettings,
    made: Made,
    measures: tuple[Measure, ...],
    rules: Mapping[str, Any],
    top: int,
    paths: Paths,
) -> Result:
    labels = task.qrels.labels
    run = made.run.without_identical_ids() if rules["identical_ids"] == "left out" else made.run
    scores = score(run, labels, measures)
    write_scores(paths.scores, {"dataset": task.dataset.name, "split": task.split, "system": system.name}, scores)
    intervals = bootstrap_interval(scores.values)
    names = [str(measure) for measure in measures]
    info = task.dataset.info
    about = {
        "digest": task.digest,
        "passages": len(task.corpus),
        "language": task.language,
        "task": info.get("task"),
        "domain": info.get("domain"),
        "judged_pairs": task.qrels.judged,
        "queries_without_text": len(labels) - len(task.queries),
        "search_depth": top,
    }
    return Result(
        name=system.name,
        kind=system.kind,
        dataset=task.dataset.name,
        split=task.split,
        headline=task.headline,
        means=scores.means(),
        intervals={name: (float(low), float(high)) for name, (low, high) in zip(names, intervals, strict=True)},
        queries=len(scores.query_ids),
        missing=scores.missing,
        unjudged=scores.unjudged,
        without_relevant=scores.without_relevant,
        costs=made.costs,
        paths=paths,
        settings=without_secrets(system.settings),
        description=without_secrets(made.description),
        about=about,
        rules=rules,
        versions=library_versions(),
        groups=tuple(by_attribute(scores, task.headline, attributes(task.queries, task.language))),
        negatives_above=negatives_above(judged_hits(run, labels)),
        biases=biases(run, labels, task.queries, task.corpus, split=task.words),
        worst=tuple(worst_queries(scores, task.headline, run, labels, task.queries, task.corpus)),
        notes=made.notes,
    )


def _key(task: Task, system: SystemSettings, top: int, folder: Path, uses: Sequence[str]) -> str:
    """The identity of a run. Times, output folder and measures are no part of it."""
    settings = system.settings
    return content_key(
        {
            "airgen": __version__,
            "dataset": task.digest,
            "split": task.split,
            "language": task.language,
            "kind": system.kind,
            "settings": settings,
            "files": {name: _stamp(path) for name, path in sorted(_local_files(settings, task, folder).items())},
            "uses": list(uses),
            "top": top,
        }
    )


def _local_files(settings: Mapping[str, Any], task: Task, folder: Path) -> dict[str, Path]:
    """Settings that name a file or folder of this machine: what they hold can change under the same name."""
    found: dict[str, Path] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            inner = _local_files(value, task, folder)
            found.update({f"{name}.{part}": path for part, path in inner.items()})
        elif name in _PATHS and isinstance(value, str) and value.strip(" ./") and "\0" not in value:
            path = folder / value.replace("{dataset}", task.dataset.name).replace("{split}", task.split)
            if path.exists():
                found[name] = path
    return found


def _stamp(path: Path) -> list[list[object]]:
    """Names, sizes and times of the files behind a path."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files if file.is_file()]


def _again(result: Result) -> Made:
    """A kept run, for a system that builds on it."""
    return Made(read_run(result.paths.run), result.description, result.costs, result.notes)


def _there(paths: Paths) -> bool:
    return paths.run.is_file() and paths.scores.is_file()


def _with_headline(measures: tuple[Measure, ...], headline: str) -> tuple[Measure, ...]:
    return tuple(dict.fromkeys((*parse_measures(headline), *measures)))


def _rules(ignore_identical_ids: bool) -> dict[str, str]:
    """What figures depend on and papers seldom say."""
    return {
        "gains": "linear, negative labels gain 0",
        "ties": "passage id descending",
        "scores": "float32",
        "relevant": "label above 0",
        "missing_queries": "score 0, denominator from the qrels",
        "identical_ids": "left out" if ignore_identical_ids else "kept",
        "hole_scope": "judged for any query of the split",
    }


def _folder_name(name: str) -> str:
    """A dataset's name as a folder's: a manifest must not lead out of the output folder."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    return safe.strip(".") or "dataset"
