"""Compare two versions of a benchmark: what changed, what was carried over, and whether they rank systems alike.

    comparison = compare_versions(Path("suites/notes/26.11"), Path("suites/notes/26.12"), anchors)
    comparison.rankings[0].spearman               # Interval(value=0.94, low=0.77, high=1.0)

Anchor systems run on both versions. Intervals resample queries: common queries jointly, and the others independently
for each version. A pair of systems is reversed if its order differs, and significantly reversed only if the difference
is significant in both versions (Fisher's randomisation test with Holm's correction).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import file_sha256, text_key
from airgen.dataset.beir import BeirDataset
from airgen.dataset.layouts import read_rows
from airgen.dataset.manifest import MANIFEST, Manifest, load_manifest
from airgen.display.study import Column, Shown, Table, columns
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.experiment import EvaluationOptions, evaluate
from airgen.evaluation.intervals import Interval, resampled_means
from airgen.evaluation.result import as_matrix
from airgen.evaluation.systems import SystemSettings
from airgen.job.job import Job
from airgen.job.refresh import DRIFT
from airgen.publishing.suites import dataset_folders
from airgen.safety.escaping import p_value
from airgen.storage.json_values import write_json
from airgen.storage.records import flat_text
from airgen.studies.agree.rankings import Side, SystemsPair, best_third, correlate, pairs_of
from airgen.studies.rank_correlation import LEAST_SYSTEMS, average_ranks

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Anchors:
    """The systems that run on both versions.

    Their paths are relative to `base`. `out` is the folder for results. `measure` is by default each task's main
    measure.
    """

    systems: Sequence[SystemSettings]
    base: Path
    out: Path
    measure: str = ""


@dataclass(frozen=True, slots=True)
class DatasetChange:
    """The change of one dataset. `kind` is added, removed, changed or same, and `details` are lines of text."""

    dataset: str
    kind: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CarriedOver:
    """Counts of what happened to the texts of one kind.

    `same` texts have the same id and text, `renamed` ones the same text under another id, and `changed` ones the same
    id but another text. For labels, only queries that were carried over count, and `changed` means another label for
    the same pair.
    """

    dataset: str
    kind: str
    old: int
    new: int
    same: int
    renamed: int
    changed: int
    added: int
    gone: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranking of the anchors on one dataset, or on all datasets of a task (the mean of the datasets' means).

    `top` is the Spearman correlation over the best third of the systems in the old version, or None if there are fewer
    than three.
    """

    name: str
    measure: str
    old_queries: int
    new_queries: int
    systems: tuple[str, ...]
    old_means: tuple[float, ...]
    new_means: tuple[float, ...]
    spearman: Interval
    kendall: Interval
    top: Interval | None
    pairs: int
    turned: tuple[SystemsPair, ...]


@dataclass(frozen=True, slots=True)
class VersionComparison(Shown):
    """The comparison of two versions. `changes` concern whole datasets, whatever the split. Datasets in `only_old` and
    `only_new` have no counterpart on the split. `again` are the systems that had to run on the old version, of which no
    result was kept."""

    split: str
    changes: tuple[DatasetChange, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]
    carried: tuple[CarriedOver, ...]
    rankings: tuple[Ranking, ...]
    again: tuple[str, ...] = ()


def compare_versions(
    old: Path,
    new: Path,
    anchors: Anchors | None = None,
    *,
    split: str = "test",
    say: Callable[[str], None] = lambda _: None,
) -> VersionComparison:
    """Compare two finished versions, or two datasets.

    Args:
        old: The folder of the old version.
        new: The folder of the new version.
        anchors: The systems to run on both versions. Without them, only what changed and what was carried over is
            compared.
        split: The split of the queries.
        say: Called with lines of progress.

    Raises:
        UsageError: There are fewer than three anchors.
        DatasetError: A version or dataset was edited, the versions have no common dataset, the split has no labels, or
            the labels belong to another dataset.
    """
    if anchors is not None and len(anchors.systems) < LEAST_SYSTEMS:
        raise UsageError(f"{len(anchors.systems)} system(s): the rankings of {LEAST_SYSTEMS} or more can be compared")
    changes = changes_between(old, new)
    before, after = _versions(old, new, split)
    shared = [key for key in before if key in after]
    if not shared:
        raise DatasetError(f"{old} and {new} have no dataset in common: {', '.join(before)}; {', '.join(after)}"[:500])
    carried: list[CarriedOver] = []
    joined: dict[str, list[tuple[str, str]]] = {}
    for key in shared:
        rows, joined[key] = carried_over(key, before[key], after[key])
        carried += rows
    rankings: list[Ranking] = []
    if anchors is not None:
        for versions in (before, after):
            for version in versions.values():
                version.dataset.qrels(split)  # raise the error of private labels before any system runs
        for versions in (before, after):
            for key, version in versions.items():
                version.run(
                    anchors, anchors.out / ("old" if versions is before else "new") / key.replace("/", "-"), say
                )
        rankings = _rankings(before, after, joined)
    return VersionComparison(
        split=split,
        changes=tuple(changes),
        only_old=tuple(key for key in before if key not in after),
        only_new=tuple(key for key in after if key not in before),
        carried=tuple(carried),
        rankings=tuple(rankings),
        again=tuple(dict.fromkeys(name for version in before.values() for name in version.ran)),
    )


def changes_between(old: Path, new: Path, *, needed: bool = False) -> list[DatasetChange]:
    """List the datasets that were added, removed or changed between two versions.

    A dataset has changed if its corpus was trimmed or extended, if a query moved to another split (which should not
    happen), or if the licence differs. Two single datasets are compared whatever their names.

    Args:
        old: The folder of the old version.
        new: The folder of the new version.
        needed: Whether to raise an error for a folder without a manifest, rather than leaving it out.

    Raises:
        DatasetError: A version was changed after it was finished.
    """
    for home in (old, new):
        if needed and not _folders(home):
            raise DatasetError(f"{home}: is not a finished version or dataset: it has no {MANIFEST}")
    before, after = ({key: load_manifest(folder) for key, folder in _folders(home).items()} for home in (old, new))
    homes = _folders(old), _folders(new)
    if len(before) == len(after) == 1 and before.keys() != after.keys():
        key = next(iter(after))
        before, homes = {key: next(iter(before.values()))}, ({key: next(iter(homes[0].values()))}, homes[1])
    changes = []
    for key in sorted(before.keys() | after.keys()):
        if key in before and key in after:
            same = before[key].digest == after[key].digest
            details = () if same else _details(homes[0][key], homes[1][key], before[key], after[key])
            changes.append(DatasetChange(key, "same" if same else "changed", tuple(details)))
        else:
            kind, statistics = ("added", after[key].statistics) if key in after else ("removed", before[key].statistics)
            queries = sum(part.queries for part in statistics.splits.values())
            changes.append(DatasetChange(key, kind, (f"{statistics.passages:,} passages, {queries:,} queries",)))
    return changes


def _folders(home: Path) -> dict[str, Path]:
    """Return the folders of the datasets with a manifest, without which a dataset cannot be compared."""
    return {key: folder for key, folder in dataset_folders(home).items() if (folder / MANIFEST).is_file()}


def changes_text(changes: Sequence[DatasetChange]) -> str:
    """Return the changes as lines of text. Unchanged datasets are only counted."""
    lines = []
    for change in changes:
        if change.kind != "same":
            lines += [f"{change.kind}: {change.dataset}", *(f"  {detail}" for detail in change.details)]
    return "\n".join([*lines, f"{sum(change.kind == 'same' for change in changes)} unchanged"])


def _details(old: Path, new: Path, before: Manifest, after: Manifest) -> list[str]:
    lines = []
    a, b = before.statistics.passages, after.statistics.passages
    if a != b:
        trimmed = " (trimmed)" if "passages before trimming" in after.notes and b < a else ""
        lines.append(f"passages: {a:,} -> {b:,}{trimmed}")
    was, now = (
        {row["_id"]: row["metadata"]["split"] for row in read_rows(home / "queries.jsonl")} for home in (old, new)
    )
    added, gone = now.keys() - was.keys(), was.keys() - now.keys()
    if added or gone:
        lines.append(f"queries: {len(added):,} added, {len(gone):,} removed")
    moved = sorted(query for query in was.keys() & now.keys() if was[query] != now[query])
    opened = [query for query in moved if (was[query], now[query]) == ("test", "dev")]
    if opened:
        lines.append(f"{len(opened):,} queries of test are dev queries now: their labels are public")
    if others := [query for query in moved if query not in set(opened)]:
        lines.append(f"{len(others):,} queries changed split, such as {others[0]!r}: this should never happen")
    positives = [sum(part.positives or 0 for part in m.statistics.splits.values()) for m in (before, after)]
    if positives[0] != positives[1]:
        lines.append(f"positives: {positives[0]:,} -> {positives[1]:,}")
    for licence in ("source_licence", "labels_licence"):
        first, second = getattr(before.info, licence), getattr(after.info, licence)
        if first != second:
            lines.append(f"{licence}: {first!r} -> {second!r}")
    return lines or ["texts or labels differ"]


class _Version:
    """One dataset of one version on one split. `side` has the scores of the anchors, and `order` the column of each
    query."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder, self.split = folder, split
        self.dataset = BeirDataset.open(folder)
        self.task = DatasetSplit(self.dataset, split, str(self.dataset.info.get("language") or "en"))
        self.side, self.order, self.measure = Side((), np.empty((0, 0))), dict[str, int](), self.task.headline
        self.ran: list[str] = []  # the anchors that had no kept result
        entries = self.dataset.manifest.get("files")
        for name, entry in sorted(entries.items()) if isinstance(entries, dict) else ():
            known = entry.get("sha256") if isinstance(entry, dict) else None
            if name in ("corpus.jsonl", "queries.jsonl") or name.startswith("qrels/"):
                path = folder / name
                if not path.is_file() or file_sha256(path) != known:
                    raise DatasetError(f"{path} was edited after the dataset was made: export or download it again")

    @property
    def has_split(self) -> bool:
        """Return whether the dataset has the split, with or without labels."""
        return self.split in (*self.dataset.splits, *self.dataset.withheld)

    @cached_property
    def labels(self) -> dict[tuple[str, str], float]:
        """Return the labels by query and passage; none if they are private."""
        labels = {} if self.split in self.dataset.withheld else self.task.qrels.labels
        return {(query, passage): label for query, row in labels.items() for passage, label in row.items()}

    def texts(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return digests of queries and passages by id."""
        queries = {key: text_key(query.text) for key, query in self.task.queries.items()}
        return queries, {row.id: text_key(flat_text(row.title, row.text)) for row in self.dataset.passages()}

    def run(self, anchors: Anchors, out: Path, say: Callable[[str], None]) -> None:
        """Evaluate the anchors."""
        self.measure = anchors.measure or self.task.headline
        options = EvaluationOptions(self.split, self.measure, folder=anchors.base)
        results = evaluate(self.folder, anchors.systems, out, options, progress=say, started=say)
        queries, scores = as_matrix(results, self.measure)
        self.ran = [result.name for result in results if not result.cached]
        self.order = {query: at for at, query in enumerate(queries)}
        self.side = Side(tuple(result.name for result in results), scores)


def _versions(old: Path, new: Path, split: str) -> tuple[dict[str, _Version], dict[str, _Version]]:
    """Return the datasets of both versions that have the split. Two single datasets are compared whatever their
    names."""
    folders = [dataset_folders(home) for home in (old, new)]
    if all(len(datasets) == 1 for datasets in folders) and folders[0].keys() != folders[1].keys():
        name = BeirDataset.open(next(iter(folders[1].values()))).name
        folders = [{name: next(iter(datasets.values()))} for datasets in folders]
    single = all(len(datasets) == 1 for datasets in folders)
    both = []
    for home, datasets in zip((old, new), folders, strict=True):
        versions = {key: _Version(folder, split) for key, folder in sorted(datasets.items())}
        if not single and split != "all":
            versions = {key: version for key, version in versions.items() if version.has_split}
        if not versions:
            raise DatasetError(f"{home}: no dataset has the split {split!r}")
        both.append(versions)
    return both[0], both[1]


def carried_over(key: str, old: _Version, new: _Version) -> tuple[list[CarriedOver], list[tuple[str, str]]]:
    """Count what happened to queries, passages and labels, and return the (old, new) ids of the queries carried
    over."""
    (old_queries, old_passages), (new_queries, new_passages) = old.texts(), new.texts()
    queries, of_query = _matched(key, "queries", old_queries, new_queries)
    passages, of_passage = _matched(key, "passages", old_passages, new_passages)
    if not old.labels or not new.labels:
        return [queries, passages], list(of_query.items())
    before = {
        (of_query[query], of_passage.get(passage, f"no passage of the new version: {passage}")): label
        for (query, passage), label in old.labels.items()
        if query in of_query
    }
    carried_queries = set(of_query.values())
    after = {pair: label for pair, label in new.labels.items() if pair[0] in carried_queries}
    same = sum(after.get(pair) == label for pair, label in before.items())
    changed = sum(pair in after for pair in before) - same
    labels = CarriedOver(
        dataset=key,
        kind="labels",
        old=len(before),
        new=len(after),
        same=same,
        renamed=0,
        changed=changed,
        added=len(after) - same - changed,
        gone=len(before) - same - changed,
    )
    return [queries, passages, labels], list(of_query.items())


def _matched(key: str, kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> tuple[CarriedOver, dict[str, str]]:
    """Return the counts, and {old id: new id} for the texts that were carried over."""
    same = {id_: id_ for id_, digest in old.items() if new.get(id_) == digest}
    changed = sum(id_ in new for id_ in old) - len(same)
    free: dict[str, list[str]] = {}
    for id_, digest in reversed(list(new.items())):
        if id_ not in old:
            free.setdefault(digest, []).append(id_)
    renamed = {id_: free[digest].pop() for id_, digest in old.items() if id_ not in new and free.get(digest)}
    known = len(same) + len(renamed) + changed
    row = CarriedOver(
        dataset=key,
        kind=kind,
        old=len(old),
        new=len(new),
        same=len(same),
        renamed=len(renamed),
        changed=changed,
        added=len(new) - known,
        gone=len(old) - known,
    )
    return row, {**same, **renamed}


def _rankings(
    before: Mapping[str, _Version], after: Mapping[str, _Version], joined: Mapping[str, list[tuple[str, str]]]
) -> list[Ranking]:
    """Return a ranking for each common dataset, and for each task with several datasets in a version."""
    draws = {
        key: _draws(before.get(key), after.get(key), joined.get(key, []), 3 * number)
        for number, key in enumerate(dict.fromkeys((*before, *after)))
    }
    rankings = [_ranking(key, {key: before[key]}, {key: after[key]}, draws) for key in joined]
    for measure in dict.fromkeys(version.measure for version in before.values()):
        parts = [
            {key: version for key, version in versions.items() if version.measure == measure}
            for versions in (before, after)
        ]
        if all(parts) and max(map(len, parts)) > 1:
            rankings.append(_ranking(f"all datasets ({measure})", parts[0], parts[1], draws))
    return rankings


def _draws(
    old: _Version | None, new: _Version | None, pairs: list[tuple[str, str]], seed: int
) -> tuple[Matrix, Matrix]:
    """Return resampled means (samples, systems) of both versions. Common queries are drawn jointly."""
    if old is None or new is None:
        known = old or new
        assert known is not None
        means = resampled_means(known.side.scores, seed=seed)
        return means, means
    common = [(old.order[a], new.order[b]) for a, b in pairs if a in old.order and b in new.order]
    places = [list(columns) for columns in zip(*common, strict=True)] or [[], []]
    sides, count = [old.side.scores, new.side.scores], len(old.side.names)
    sums = [np.zeros((1, count)), np.zeros((1, count))]
    if common:
        both = np.concatenate([scores[:, at] for scores, at in zip(sides, places, strict=True)])
        sums = np.split(resampled_means(both, seed=seed) * len(common), 2, axis=1)
    for number, (scores, at) in enumerate(zip(sides, places, strict=True)):
        rest = np.delete(scores, at, axis=1)
        if rest.shape[1]:
            own = resampled_means(rest, seed=seed + number + 1)
            sums[number] = sums[number] + own * rest.shape[1]
    return sums[0] / old.side.queries, sums[1] / new.side.queries


def _ranking(
    name: str, old: Mapping[str, _Version], new: Mapping[str, _Version], draws: Mapping[str, tuple[Matrix, Matrix]]
) -> Ranking:
    sides = [_weighted([version.side for version in versions.values()]) for versions in (old, new)]
    resampled = [np.mean([draws[key][at] for key in versions], axis=0) for at, versions in enumerate((old, new))]
    names, best = sides[0].names, best_third(sides[0])
    whole = correlate(sides[0], sides[1], resampled)
    places = [names.index(name) for name in best]
    drawn = [means[:, places] for means in resampled]
    top = correlate(sides[0].of(best), sides[1].of(best), drawn) if best else None
    pairs = pairs_of(sides[0], sides[1])
    return Ranking(
        name=name,
        measure=next(iter(old.values())).measure,
        old_queries=sides[0].queries,
        new_queries=sides[1].queries,
        systems=names,
        old_means=tuple(sides[0].means.tolist()),
        new_means=tuple(sides[1].means.tolist()),
        spearman=whole.spearman,
        kendall=whole.kendall,
        top=top.spearman if top else None,
        pairs=len(pairs),
        turned=tuple(pair for pair in pairs if pair.old_difference > 0 > pair.new_difference),
    )


def _weighted(sides: Sequence[Side]) -> Side:
    """Return all queries of several datasets, weighted so that their mean is the mean of the datasets' means."""
    total = sum(side.queries for side in sides)
    parts = [side.of(sides[0].names).scores * (total / (len(sides) * side.queries)) for side in sides]
    return Side(sides[0].names, np.concatenate(parts, axis=1))


_CARRIED = columns("dataset", "", "old", "new", "same", "other id", "changed", "added", "gone", form=",")
_RANKINGS = (
    Column("ranking", lambda ranking: ranking.name),
    Column("queries", lambda ranking: f"{ranking.old_queries:,} -> {ranking.new_queries:,}"),
    Column("Spearman", lambda ranking: ranking.spearman, ".3f"),
    Column("Kendall", lambda ranking: ranking.kendall, ".3f"),
    Column("best third", lambda ranking: ranking.top and ranking.top.value, ".3f"),
    Column("pairs", lambda ranking: ranking.pairs),
    Column("turned", lambda ranking: len(ranking.turned)),
    Column("for certain", lambda ranking: sum(pair.significant == "both" for pair in ranking.turned)),
)


def versions_text(comparison: VersionComparison) -> str:
    """Return what was carried over, how the anchors rank, and which pairs were reversed."""
    text = [changes_text(comparison.changes), ""] if comparison.changes else []
    text += [f"split {comparison.split}", Table(list(map(astuple, comparison.carried)), _CARRIED).text()]
    for where, keys in (("old", comparison.only_old), ("new", comparison.only_new)):
        if keys:
            text.append(f"only in the {where} version: {', '.join(keys)}")
    if not comparison.rankings:
        return "\n".join(text)
    text += ["", Table(comparison.rankings, _RANKINGS).text()]
    whole = comparison.rankings[-1]
    means = (whole.old_means, whole.new_means)
    ranks = [average_ranks(-np.array(values)) for values in means]
    rows = [
        [whole.systems[at], *(f"{values[at]:.4f}" for values in means), *(rank[at] for rank in ranks)]
        for at in np.argsort(ranks[1], kind="stable").tolist()
    ]
    text += ["", Table(rows, columns(whole.name, f"{whole.measure} old", "new", "rank old", "new", form="g")).text()]
    versions = {
        "both": "both versions",
        "neither": "neither version",
        "old": "the old version only",
        "new": "the new version only",
    }
    for ranking in comparison.rankings:
        text += [
            f"{ranking.name}: {pair.first} > {pair.second} turned: {pair.old_difference:+.4f} ({p_value(pair.old_p)}) "
            f"-> {pair.new_difference:+.4f} ({p_value(pair.new_p)}), significant in {versions[pair.significant]}"
            for pair in ranking.turned
        ]
    return "\n".join(text)


def drift_since(job: Job, version: str) -> str:
    """Compare a job's dataset with an earlier version of it, and return the report.

    The report is saved in `runs/NAME/drift.json`. The systems also run on the earlier version; with fewer than three
    systems, only what was carried over is compared.

    Args:
        job: The job, whose dataset is the new version.
        version: The name of the earlier version in the job's `versions` folder.

    Raises:
        AirgenError: `compare_versions` failed.
    """
    path, systems = job.systems_file, job.systems
    anchors = None
    if path is not None and len(systems) >= LEAST_SYSTEMS:
        anchors = Anchors(systems, path.resolve().parent, job.directory / DRIFT)
    earlier = job.directory / "versions" / version
    comparison = compare_versions(earlier, job.dataset, anchors, split=job.pipeline.evaluate.split)
    write_json(job.directory / "drift.json", comparison)
    return f"since version {version}:\n{versions_text(comparison)}{_how_old(comparison, version)}"


def _how_old(comparison: VersionComparison, version: str) -> str:
    """Say whether the old scores are those that were reported for the old version."""
    if not comparison.rankings:
        return ""
    if not comparison.again:
        return f"\nold: the results of version {version} as they were then"
    return f"\nold: {', '.join(comparison.again)} ran again today on version {version}: no result of it was kept"
