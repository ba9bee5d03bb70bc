"""Suites: many datasets under one name and version, as AIR-Bench's 24.04 and 24.05 (paper section 3.1, appendix B.1).

    suites/NAME/26.11/{task}_{domain}_{language}/{dataset}/      finished datasets
    suites/NAME/26.11/suite.json, statistics.md, statistics.csv  last: then the version is finished and never changes

A version is built from pipelines, one by one, with one budget. Existing datasets are not rebuilt.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from airgen.dataset.air_bench import air_bench_datasets
from airgen.dataset.beir import BeirDataset
from airgen.dataset.derive import derive
from airgen.dataset.manifest import MANIFEST, Manifest, load_manifest, statistics_csv, statistics_markdown, table_rows
from airgen.dataset.secret import long_doc_splits
from airgen.dataset.verify import DatasetProblem, verify
from airgen.errors import BudgetSpent, DatasetError, UsageError
from airgen.publishing import dataset_key, version_order
from airgen.publishing.withhold import secrecy_problems
from airgen.safety.escaping import dollars, one_line
from airgen.settings.suite import Suite
from airgen.storage.json_values import DAMAGE, read_json, write_json
from airgen.storage.whole_files import write_text

SUITE = "suite.json"
_KEY = re.compile(r"[A-Za-z0-9][\w.+-]{0,200}/[A-Za-z0-9][\w.+-]{0,200}", re.ASCII)  # two folders below the suite


@dataclass(frozen=True, slots=True)
class FinishedPipeline:
    """The dataset directory of a finished pipeline, and the total cost of its job in US dollars, over all runs."""

    dataset: Path
    spent_usd: float


RunPipeline = Callable[[Path, float | None], FinishedPipeline]
"""Runs or resumes a pipeline within a budget (US dollars for all its runs; None: no limit)."""


@dataclass(frozen=True, slots=True)
class SuiteVersion:
    """A finished version: its directory, the manifests by dataset key, and the cost."""

    directory: Path
    datasets: Mapping[str, Manifest]
    spent_usd: float


def build(
    suite: Suite,
    root: Path,
    run: RunPipeline,
    *,
    budget_usd: float | None = None,
    count_tokens: Callable[[str], int] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> SuiteVersion:
    """Build a version below `root`, or continue building it.

    Raises DatasetError if the version or a newer one is already finished, if two pipelines build the same dataset, if a
    dataset of the previous version is missing, or if `verify` finds an error; and BudgetSpent (resumable) if the budget
    is spent.
    """
    home = root / suite.name / suite.version
    if (home / SUITE).is_file():
        raise DatasetError(f"{home} is finished, and finished versions do not change: raise the version")
    known = versions(root, suite.name)
    newer = [version for version in known if version_order(version) > version_order(suite.version)]
    if newer:
        raise DatasetError(
            f"version {suite.version} would come after {newer[-1]}, which is finished: raise the version"
        )
    limit = budget_usd if budget_usd is not None else suite.budget_usd
    finished: list[FinishedPipeline] = []
    spent = 0.0
    for number, member in enumerate(suite.pipelines):
        if limit is not None and spent > limit:
            raise BudgetSpent(
                f"the suite's budget of {dollars(limit)} is spent after {number} pipelines: raise it to continue"
            )
        say(f"{number + 1} of {len(suite.pipelines)}: {member.path}")
        finished.append(run(member.path, None if limit is None else limit - spent))
        spent += finished[-1].spent_usd
    manifests = [load_manifest(pipeline.dataset) for pipeline in finished]
    keys = [key_of(manifest) for manifest in manifests]
    for position, key in enumerate(keys):
        if key in keys[:position]:
            first, second = suite.pipelines[keys.index(key)].path, suite.pipelines[position].path
            raise DatasetError(f"{first} and {second} make the same dataset {key}: rename one of them")
    earlier = datasets_of(root / suite.name / known[-1]) if known else {}
    lost = sorted(set(earlier) - set(keys))
    if lost:
        raise DatasetError(f"version {suite.version} lacks {lost[0]}, which the previous version has: add its pipeline")
    splits = _splits(suite, manifests, earlier)
    datasets = {}
    for member, source, manifest, key in zip(suite.pipelines, finished, manifests, keys, strict=True):
        size = member.max_passages or suite.max_passages
        datasets[key] = _take(
            source.dataset,
            home / key,
            manifest=manifest,
            version=suite.version,
            size=size,
            split=splits.get(key),
            count_tokens=count_tokens,
        )
        say(f"{key}: {datasets[key].statistics.passages:,} passages")
    rows = table_rows(datasets.values())
    title = f"# {suite.name} {suite.version}\n\n" + (f"{suite.description}\n\n" if suite.description else "")
    write_text(home / "statistics.md", title + statistics_markdown(rows))
    write_text(home / "statistics.csv", statistics_csv(rows))
    digests = {key: manifest.digest for key, manifest in sorted(datasets.items())}
    about = {"name": suite.name, "version": suite.version, "description": suite.description}
    write_json(home / SUITE, {**about, "datasets": digests})
    return SuiteVersion(home, datasets, spent)


def key_of(manifest: Manifest) -> str:
    """Return the key of a dataset."""
    info = manifest.info
    return dataset_key(info.task, info.domain, info.language, info.name)


def _splits(suite: Suite, manifests: list[Manifest], earlier: Mapping[str, Manifest]) -> dict[str, str]:
    """Return the split of each Long-Doc dataset: from an earlier version, from the YAML, or one dev dataset per domain.

    The YAML may turn a test set into a dev set, as AIR-Bench 24.05 does with five sets of 24.04, but never a dev set,
    whose labels are known, into a test set.
    """
    decided = {}
    for manifest in earlier.values():
        splits = list(manifest.statistics.splits)
        if manifest.info.task == "long-doc" and len(splits) == 1:
            decided[manifest.info.domain, key_of(manifest)] = splits[0]
    for member, manifest in zip(suite.pipelines, manifests, strict=True):
        pair = (manifest.info.domain, key_of(manifest))
        if member.split is not None:
            before = decided.get(pair, member.split)
            if before != member.split and (before, member.split) != ("test", "dev"):
                raise DatasetError(
                    f"{pair[1]} was {before!r} in an earlier version: the only possible change is from test to dev"
                )
            decided[pair] = member.split
    long_docs = [(m.info.domain, key_of(m)) for m in manifests if m.info.task == "long-doc"]
    chosen = {key: split for (_, key), split in long_doc_splits(long_docs, decided).items()}
    return chosen | {key: split for (_, key), split in decided.items()}


def _take(
    source: Path,
    target: Path,
    manifest: Manifest,
    version: str,
    size: int | None,
    split: str | None,
    count_tokens: Callable[[str], int] | None,
) -> Manifest:
    """Write the dataset as configured in the suite, unless it already exists."""
    passages = min(size or manifest.statistics.passages, manifest.statistics.passages)
    if is_dataset(target):
        present = load_manifest(target)
        same_split = split is None or list(present.statistics.splits) == [split]
        same_size = present.statistics.passages == passages
        if present.notes.get("made from") == manifest.digest and same_split and same_size:
            return present
    taken = derive(source, target, max_passages=size, split=split, version=version, count_tokens=count_tokens)
    problems = [problem for problem in verify(target) if problem.severity == "error"]
    if problems:
        raise DatasetError(f"{target} has an error: {problems[0]}")
    return taken


def is_dataset(home: Path) -> bool:
    """Return whether a directory is a finished dataset rather than a version of a suite."""
    return (home / MANIFEST).is_file()


def versions(root: Path, name: str) -> list[str]:
    """Return the finished versions of a suite, oldest first."""
    names = [path.parent.name for path in (root / name).glob(f"*/{SUITE}")]
    return sorted(names, key=version_order)


def verify_directory(home: Path) -> dict[str, list[DatasetProblem]]:
    """Return the problems of a dataset, or of each dataset of a finished version, by directory.

    If the version itself is damaged, its problem is listed under the name of `home`.
    """
    if not (home / SUITE).is_file():
        return {str(home): _verified(home)}
    try:
        named = datasets_of(home)
    except DatasetError as error:
        return {str(home): [DatasetProblem("suite", SUITE, str(error))]}
    return {str(home / key): _verified(home / key) for key in sorted(named)}


def _verified(dataset: Path) -> list[DatasetProblem]:
    problems = verify(dataset)
    return problems if any(problem.kind == "manifest" for problem in problems) else problems + secrecy_problems(dataset)


def dataset_folders(home: Path) -> dict[str, Path]:
    """Return the dataset folders at a path by key: those of a finished version or in AIR-Bench's layout, or the path
    itself.

    Raises DatasetError if a version was changed, or if there are several versions in AIR-Bench's layout.
    """
    if (home / SUITE).is_file():
        return {key: home / key for key in datasets_of(home)}
    if is_dataset(home) or (home / "qrels").is_dir():
        return {home.resolve().name: home}
    folders: dict[str, Path] = {}
    released = air_bench_datasets(home)
    for dataset in released:
        key = f"{dataset.group}/{dataset.name}"
        if key in folders:
            known = ", ".join(sorted({other.version for other in released})[:5])
            raise DatasetError(f"{home} holds {key} in several versions ({known}): name the folder of one version")
        folders[key] = home if len(released) == 1 else dataset.folder
    return folders or {home.resolve().name: home}


def opened_datasets(
    given: Sequence[Path], split: str = "", say: Callable[[str], None] = lambda _: None
) -> dict[Path, BeirDataset]:
    """Return {folder: dataset}, including the datasets in suites. Results are saved by dataset name, so names must be
    unique.

    Args:
        given: Datasets and suites.
        split: Include only those datasets of a suite that have this split, with or without labels.
        say: Called with a line about the datasets that were left out.

    Raises:
        UsageError: Two datasets have the same name. Datasets in a suite are distinguished by their keys.
        DatasetError: No dataset of a suite has the split.
    """
    opened: dict[Path, BeirDataset] = {}
    for home in given:
        inside = {folder: BeirDataset.open(folder) for folder in dataset_folders(home).values()}
        if split and len(inside) > 1:
            lack = [dataset.name for dataset in inside.values() if split not in (*dataset.splits, *dataset.withheld)]
            if len(lack) == len(inside):
                raise DatasetError(f"{home}: no dataset has the split {split!r}")
            if lack:
                say(f"{home}: without {', '.join(sorted(lack))}, which have no split {split!r}")
            inside = {
                folder: dataset for folder, dataset in inside.items() if split in (*dataset.splits, *dataset.withheld)
            }
        opened |= inside
    for home in given:
        folders = {key: folder for key, folder in dataset_folders(home).items() if folder in opened}
        names = [opened[folder].name for folder in folders.values()]
        for key, folder in folders.items():
            if names.count(opened[folder].name) > 1:
                opened[folder] = replace(opened[folder], called=key.replace("/", "_"))
    so_far: dict[str, Path] = {}
    for folder, dataset in opened.items():
        if (other := so_far.setdefault(dataset.name, folder)) != folder:
            raise UsageError(
                f"{other} and {folder} are both named {dataset.name!r}: evaluate them separately, each "
                f"with "
                f"its "
                f"own "
                f"--out"
            )
    return opened


def datasets_of(home: Path) -> dict[str, Manifest]:
    """Return the manifests of a finished version, by key.

    Raises DatasetError if the version is unfinished or was changed after it was finished.
    """
    try:
        named = read_json(home / SUITE)["datasets"]
    except FileNotFoundError:
        raise DatasetError(f"{home} is not a finished version of a suite: it has no {SUITE}") from None
    except DAMAGE as error:
        raise DatasetError(f"{home / SUITE} cannot be read: {error}") from error
    if not isinstance(named, dict):
        raise DatasetError(
            f"{home / SUITE}: datasets is {type(named).__name__}, but must be an object: collect it again"
        )
    for key in named:
        if not _KEY.fullmatch(key):
            raise DatasetError(f"{home / SUITE}: {one_line(repr(key), 100)} is not a dataset of it: collect it again")
    manifests = {key: load_manifest(home / key) for key in named}
    for key, manifest in manifests.items():
        if key_of(manifest) != key:
            raise DatasetError(f"{home / key} holds the dataset {key_of(manifest)}, but {SUITE} names another there")
        if manifest.digest != named[key]:
            raise DatasetError(
                f"{home / key} is not the dataset that {SUITE} names: it was changed after the version was finished"
            )
    return manifests
