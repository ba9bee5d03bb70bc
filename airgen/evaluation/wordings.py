"""Whether the order of systems depends on how queries are worded, by the systems' scores on every wording of each need.

    split = WordingsSplit.of(DatasetSplit(dataset, "test", "en"))     # None if the dataset has one wording
    by_wording(results).sentence     # "bm25 leads if users type the documents' terms, minilm if they ..."

The wordings share the labels of their query, so they cost no label and no LLM call. Their runs are in a folder beside
those of the split.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from airgen.components.keys import content_key, file_sha256
from airgen.dataset.beir import BeirQuery, Qrels
from airgen.dataset.content import OVERLAP, WORDINGS_FILE
from airgen.display.study import Column, Plain, Shown, Study, Table, columns
from airgen.evaluation.breakdown import OVERLAP_BINS, overlap_class
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.intervals import bootstrap_interval
from airgen.evaluation.result import Paths, Result, all_scores, load_result
from airgen.evaluation.significance import compare
from airgen.evaluation.verdict import FEWEST
from airgen.retrievers.passages import Passages

FOLDER = "wordings"
"""The folder beside a split's results with the results on its wordings."""

_IF = {
    "terms": "type the documents' terms",
    "plain": "type plain words",
    "lay": "use everyday words",
    "described": "describe things without their names",
}
"""What users do, by the wording that it leads to."""


@dataclass
class WordingsSplit(DatasetSplit):
    """The wordings of a split's queries, each of which has the labels of its query."""

    base: DatasetSplit | None = None

    @classmethod
    def of(cls, split: DatasetSplit) -> "WordingsSplit | None":
        """Return the wordings of a split, or None if it has none or its labels are withheld. Raises DatasetError."""
        if split.split in split.dataset.withheld or not (split.dataset.path / WORDINGS_FILE).is_file():
            return None
        wordings = cls(split.dataset, split.split, split.language, split.words, split.token_lines, base=split)
        return wordings if wordings.queries else None

    @property
    def _base(self) -> DatasetSplit:
        assert self.base is not None
        return self.base

    @property
    def base_digest(self) -> str:
        """Return the hash of the split."""
        return self._base.digest

    @cached_property
    def digest(self) -> str:
        """Return the hash of the split and of its wordings."""
        return content_key([self.base_digest, file_sha256(self.dataset.path / WORDINGS_FILE)])

    @cached_property
    def _worded(self) -> list[tuple[str, BeirQuery]]:
        return [(key, query) for key, query in self.dataset.wordings() if key in self._base.queries]

    @cached_property
    def queries(self) -> dict[str, BeirQuery]:
        """Return the wordings by id."""
        return {query.id: query for _, query in self._worded}

    @cached_property
    def qrels(self) -> Qrels:
        """Return the labels of the wordings."""
        labels = self._base.qrels.labels
        return Qrels({query.id: labels[key] for key, query in self._worded if key in labels})

    @cached_property
    def filters(self) -> dict[str, dict[str, Any]]:
        """Return the filters of the wordings."""
        filters = self._base.filters
        return {query.id: filters[key] for key, query in self._worded if key in filters}

    @cached_property
    def unanswered(self) -> dict[str, BeirQuery]:
        """Return nothing: queries without an answer have no wordings."""
        return {}

    @cached_property
    def answers(self) -> dict[str, list[str]]:
        """Return nothing: answers are compared for the queries themselves."""
        return {}

    @cached_property
    def corpus(self) -> Passages:
        """Return the corpus of the split."""
        return self._base.corpus


@dataclass(frozen=True)
class ByWording(Shown):
    """The scores of systems by wording and by overlap.

    Attributes:
        systems: The names of the systems, best on the queries first.
        scores: The scores of each wording, float64 (systems, queries with this wording).
        overlaps: The overlap of each wording of each query, in the order of the scores.
        headline: The measure.
    """

    systems: Sequence[str]
    scores: Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]
    overlaps: Mapping[str, Sequence[float | None]]
    headline: str

    @cached_property
    def leaders(self) -> dict[str, list[str]]:
        """Return the best system and those that are not significantly worse, for each wording of enough queries."""
        leaders = {}
        for name, scores in self.scores.items():
            if scores.shape[1] < FEWEST:
                continue
            comparison = compare(self.systems, scores)
            together = comparison.together[0] if comparison.pairs else []
            leaders[name] = [comparison.names[0], *(other for other in comparison.names if other in together)]
        return leaders

    @property
    def depends(self) -> bool:
        """Return whether no system is among the best for every wording."""
        return len(self.leaders) > 1 and not set.intersection(*map(set, self.leaders.values()))

    @property
    def sentence(self) -> str:
        """Return whether the leading systems keep their places whatever the wording, without a full stop."""
        if len(self.leaders) < 2:
            most = max(scores.shape[1] for scores in self.scores.values())
            return f"{most} queries of a wording are too few to tell whether the order of systems depends on wording"
        first = {name: leaders[0] for name, leaders in self.leaders.items()}
        common = [name for name in self.systems if all(name in leaders for leaders in self.leaders.values())]
        count = {1: "one wording", 2: "both wordings"}.get(len(first), f"all {len(first)} wordings")
        if common:
            same = "the order of the leading systems holds for every wording"
            if len(set(first.values())) == 1:
                return f"{same}: {common[0]} leads for {count} of the queries"
            return f"{same}: {common[0]} is among the best for {count} of the queries"
        by_system: dict[str, list[str]] = {}
        for name, system in first.items():
            by_system.setdefault(system, []).append(_IF.get(name, f"use the wording {name}"))
        parts = [f"{system} leads if users {' or '.join(habits)}" for system, habits in by_system.items()]
        decided = "ten real queries would decide (airgen run --like LOG)"
        return f"the order depends on how users word their queries: {', '.join(parts)}; {decided}"

    def table(self) -> Table:
        """Return the mean score of each system by wording, with its interval, best in bold."""
        wordings = list(self.scores)
        means = {name: scores.mean(axis=1) for name, scores in self.scores.items()}
        ends = {name: bootstrap_interval(scores) for name, scores in self.scores.items()}
        rows = []
        for place, system in enumerate(self.systems):
            rows.append([system, *((float(means[name][place]), *ends[name][place].tolist()) for name in wordings)])

        def column(place: int, name: str) -> list[Column]:
            return [
                Column(self._head(name), lambda row: row[place][0], ".3f", best=True),
                Column("95 %", lambda row: row[place][1:], ".2f"),
            ]

        parts = [part for place, name in enumerate(wordings, 1) for part in column(place, name)]
        return Table(rows, [Column("system", lambda row: row[0]), *parts])

    def _head(self, name: str) -> str:
        known = [value for value in self.overlaps[name] if value is not None]
        return f"{name} ({np.mean(known):.2f})" if known else name

    def classes(self) -> list[tuple[str, int, list[float]]]:
        """Return (class of overlap, number of wordings, mean score of each system), all wordings pooled."""
        values = [value for name in self.scores for value in self.overlaps[name]]
        pooled = np.hstack([self.scores[name] for name in self.scores])
        rows = []
        for low, high in pairwise(OVERLAP_BINS):
            label = f"{low:.1f}-{high:.1f}"
            members = [at for at, value in enumerate(values) if value is not None and overlap_class(value) == label]
            if members:
                rows.append((label, len(members), pooled[:, members].mean(axis=1).tolist()))
        return rows

    def by_overlap(self) -> Table:
        """Return the mean score of each system by class of overlap."""

        def mean(place: int, row: tuple[str, int, list[float]]) -> float:
            return row[2][place]

        heads = [Column(name, partial(mean, place), ".3f") for place, name in enumerate(self.systems)]
        return Table(self.classes(), [*columns("overlap", "wordings"), *heads])

    def svg(self) -> str:
        """Return a chart of each system's score by overlap."""
        from airgen.evaluation.charts import overlap_chart, svg_text  # Altair takes half a second to import

        chart = overlap_chart(self.systems, self.classes(), measure=self.headline, title="Score by overlap")
        return svg_text(chart.to_dict(validate=False))

    @property
    def parts(self) -> list[str | Table]:
        """Return both tables and the sentence."""
        about = (
            "The same needs in several wordings, each with its mean overlap: the share of its content words that its "
            "passage has. The second table pools all wordings by their overlap."
        )
        return [about, self.table(), self.by_overlap(), Plain(self.sentence)]

    def study(self) -> Study:
        """Return both tables and the sentence."""
        return Study(f"{self.headline} by the wording of the queries", self.parts)


def by_wording(results: Sequence[Result]) -> ByWording | None:
    """Return the scores of systems by wording, or None if the dataset has one wording or a system was not run on it.

    Args:
        results: The results of one split of a dataset.
    """
    if len({(result.dataset, result.split) for result in results}) != 1:
        return None
    known = [beside for result in results if (beside := wordings_of(result)) is not None]
    if len(known) < 2:
        return None
    ordered = sorted(known, key=lambda beside: (-_main(results, beside.name), beside.name))
    return _of_files(tuple((beside.paths, beside.paths.scores.stat().st_mtime_ns) for beside in ordered))


@lru_cache(maxsize=4)  # a report asks for its table, its notes and its chart
def _of_files(files: tuple[tuple[Paths, int], ...]) -> ByWording:
    """Return the scores in these results, best system first, each with the time at which its scores were written."""
    known = [result for paths, _ in files if (result := load_result(paths)) is not None]
    headline = known[0].headline
    scores = all_scores([result.paths.scores for result in known], headline)
    present = {key.rpartition(".")[2] for key in scores[0]}
    names = [*(name for name in _IF if name in present), *sorted(present - set(_IF))]
    keys = {name: sorted(key for key in scores[0] if key.rpartition(".")[2] == name) for name in names}
    overlaps = known[0].about.get("overlaps") or {}
    return ByWording(
        systems=[result.name for result in known],
        scores={name: np.array([[of[key] for key in keys[name]] for of in scores]) for name in names},
        overlaps={name: [overlaps.get(key) for key in keys[name]] for name in names},
        headline=headline,
    )


def _main(results: Sequence[Result], name: str) -> float:
    return next(result.score for result in results if result.name == name)


def wordings_of(result: Result) -> Result | None:
    """Return the result of a system on the wordings, or None if there is none for this version of the dataset."""
    beside = load_result(Paths.of(result.paths.run.parent / FOLDER, result.name))
    return beside if beside is not None and beside.about.get("base") == result.about.get("digest") else None


def mean_overlap(queries: Iterable[BeirQuery]) -> float | None:
    """Return the mean overlap in the metadata of queries, or None if they have none."""
    known = [value for query in queries if isinstance(value := query.metadata.get(OVERLAP), int | float)]
    return float(np.mean(known)) if known else None


NEAR = 0.75
"""A mean overlap from which lexical systems may be over-rated. On eight collections, that of people's queries is .28 to
.75 (docs/notes/agreement.md)."""


def nearness_line(result: Result) -> str:
    """Return a line if the queries of a dataset with one wording share most of their words with their passages."""
    shared = result.about.get("overlap")
    if not isinstance(shared, float) or shared < NEAR or wordings_of(result) is not None:
        return ""
    return (
        f"its queries share {shared:.0%} of their content words with the passages that answer them: lexical systems "
        "are over-rated if your users word things differently (airgen study diversity DATASET --real LOG compares)"
    )


def overlaps_of(split: WordingsSplit) -> dict[str, Any]:
    """Return the overlap of each wording by id."""
    return {key: query.metadata.get(OVERLAP) for key, query in split.queries.items()}
