"""Measure the gain from a change to a model, on several datasets, before and after (paper 4.3, RQ3).

All comparisons are paired, with the same queries before and after. Intervals are 95% bootstrap intervals over queries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirDataset, BeirQuery
from airgen.display.study import Column, P, Shown, Study, Table, columns
from airgen.errors import UsageError
from airgen.evaluation.breakdown import attributes
from airgen.evaluation.intervals import DIFFERENCES, Interval, bootstrap_interval, resampled_means
from airgen.evaluation.result import Result, all_scores
from airgen.evaluation.significance import ALPHA, compare, decide, holm
from airgen.safety.escaping import one_line
from airgen.storage.json_values import write_json

Verdict = Literal["gains", "loses", "no significant difference"]
_VERDICTS: dict[str, Verdict] = {"better": "gains", "worse": "loses", "cannot tell": "no significant difference"}
Matrix = NDArray[np.float64]
_LEAST_GROUP_QUERIES = 10  # with fewer, a group's interval says nothing
_EXAMPLE_QUERIES = 5  # with the largest gain, and as many with the largest loss


@dataclass(frozen=True, slots=True)
class GroupGain:
    """The difference on a dataset's queries with this value of `attribute`."""

    attribute: str
    value: str
    queries: int
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class DatasetGain:
    """The gain on one dataset.

    `won` and `lost` count the queries with a higher and a lower score. `p` is from Fisher's test, and `p_holm` is
    corrected over datasets. `verdict` is from `decide`. `most` lists (query id, text,
    before, after) for the queries that changed most, the largest gains followed by the largest losses.
    """

    dataset: str
    split: str
    measure: str
    queries: int
    before: float
    after: float
    difference: float
    low: float
    high: float
    won: int
    lost: int
    p: float
    p_holm: float
    verdict: Verdict
    groups: tuple[GroupGain, ...]
    most: tuple[tuple[str, str, float, float], ...]


@dataclass(frozen=True)
class GainReport(Shown):
    """The gains on all datasets. `means` is the unweighted mean difference over the datasets of each measure, with its
    interval."""

    before: str
    after: str
    rows: tuple[DatasetGain, ...]
    means: Mapping[str, tuple[float, float, float]]
    alpha: float = ALPHA

    def text(self) -> str:
        """Return the text for a terminal: a line per dataset, and their means."""
        return "\n".join([Table(self.rows, _COLUMNS).text(), *self._mean_lines()])

    def _mean_lines(self) -> list[str]:
        lines = []
        for measure, (value, low, high) in self.means.items():
            count = sum(row.measure == measure for row in self.rows)
            lines.append(
                f"mean {measure} over {count} dataset{'s' * (count > 1)}: {value:+.4f} (95 % {low:+.4f} to {high:+.4f})"
            )
        return lines

    def study(self) -> Study:
        """Return the report."""
        groups = [(row.dataset, group) for row in self.rows for group in row.groups]
        return Study(
            f"{self.before}, then {self.after}",
            [
                "The difference is that of the means, with its 95 % bootstrap interval over the queries, the same on "
                "both sides. p: Fisher's randomisation test, after Holm over the datasets. Won and lost: queries with "
                "a higher and with a lower score.",
                Table(self.rows, _COLUMNS),
                *(f"{line[:1].upper()}{line[1:]}." for line in self._mean_lines()),
                "## By kind of query",
                f"Groups of at least {_LEAST_GROUP_QUERIES} queries; the intervals are not corrected for their number."
                if groups
                else "",
                Table(
                    [
                        (name, group.attribute, group.value, group.queries, group.difference, (group.low, group.high))
                        for name, group in groups
                    ],
                    columns("dataset", "attribute", "value", "queries", "difference", "95 %", form="+.4f"),
                ),
                "## Queries that changed most",
                Table(
                    [(row.dataset, *query) for row in self.rows for query in row.most],
                    columns("dataset", "query", "text", "before", "after", form=".3f"),
                ),
            ],
        )

    def write(self, folder: Path) -> None:
        """Write `gain.md` and `gain.json` to a folder."""
        write_json(folder / "gain.json", self)
        self.study().write(folder / "gain.md")


_COLUMNS = (
    Column("dataset", lambda row: row.dataset),
    Column("split", lambda row: row.split, left=True),
    Column("measure", lambda row: row.measure, left=True),
    Column("queries", lambda row: row.queries),
    Column("before", lambda row: row.before, ".4f"),
    Column("after", lambda row: row.after, ".4f"),
    Column("difference", lambda row: row.difference, "+.4f"),
    Column("95 %", lambda row: (row.low, row.high), "+.4f"),
    Column("p", lambda row: row.p, P),
    Column("after Holm", lambda row: row.p_holm, P),
    Column("won", lambda row: row.won),
    Column("lost", lambda row: row.lost),
    Column("", lambda row: row.verdict, left=True),
)


def gains(pairs: Sequence[tuple[BeirDataset, Result, Result]], *, measure: str | None = None) -> GainReport:
    """Compare two systems on each dataset, given (dataset, result before, result after).

    `measure` is by default each dataset's own: nDCG@10, or Recall@10 for Long-Doc. Raises UsageError if there are no
    datasets, or if results are from different systems or queries.
    """
    if not pairs:
        raise UsageError("no dataset was evaluated with both systems")
    names = {(before.name, after.name) for _, before, after in pairs}
    if len(names) > 1:
        raise UsageError("the same two systems are needed on each dataset")
    read = [_read(before, after, measure or before.headline) for _, before, after in pairs]
    alone = [compare(["before", "after"], np.stack([before, after])).pairs[0] for _, before, after in read]
    corrected = holm([pair.fisher for pair in alone])
    rows = []
    for (dataset, result, _), (keys, left, right), pair, p_holm in zip(
        pairs, read, alone, corrected.tolist(), strict=True
    ):
        difference, queries = right - left, dataset.queries(result.split)
        pair = pair.seen_from("after")
        (decision,) = decide(p_holm, pair.low, pair.high, pair.differing)
        verdict: Verdict = _VERDICTS[decision]
        order = np.argsort(difference, kind="stable").tolist()
        changed = [place for place in order[::-1][:_EXAMPLE_QUERIES] if difference[place] > 0]
        changed += [place for place in order[:_EXAMPLE_QUERIES] if difference[place] < 0]
        most = tuple(
            (key, one_line(queries[key].text if key in queries else "", 200), float(left[at]), float(right[at]))
            for at, key in ((place, keys[place]) for place in changed)
        )
        groups = _groups(queries, keys, difference, str(result.about.get("language") or "en"))
        rows.append(
            DatasetGain(
                dataset=result.dataset,
                split=result.split,
                measure=measure or result.headline,
                queries=len(keys),
                before=float(left.mean()),
                after=float(right.mean()),
                difference=float(difference.mean()),
                low=pair.low,
                high=pair.high,
                won=int((difference > 0).sum()),
                lost=int((difference < 0).sum()),
                p=pair.fisher,
                p_holm=p_holm,
                verdict=verdict,
                groups=groups,
                most=most,
            )
        )
    drawn = [
        resampled_means(after - before, samples=10_000, seed=place)[:, 0]
        for place, (_, before, after) in enumerate(read)
    ]
    means = {}
    for each in dict.fromkeys(row.measure for row in rows):
        places = [place for place, row in enumerate(rows) if row.measure == each]
        value = float(np.mean([rows[place].difference for place in places]))
        mean = Interval.of(value, np.mean([drawn[place] for place in places], axis=0))
        means[each] = (mean.value, mean.low, mean.high)
    ((first, second),) = names
    return GainReport(first, second, tuple(rows), means)


def _read(before: Result, after: Result, measure: str) -> tuple[list[str], Matrix, Matrix]:
    """Return the query ids, and both systems' scores in the same order."""
    left, right = all_scores([before.paths.scores, after.paths.scores], measure)
    if left.keys() != right.keys() or not left:
        raise UsageError(f"{before.dataset}: {before.name} and {after.name} have no common queries by {measure}")
    keys = sorted(left)
    return keys, np.array([left[key] for key in keys]), np.array([right[key] for key in keys])


def _groups(
    queries: Mapping[str, BeirQuery], keys: Sequence[str], difference: Matrix, language: str
) -> tuple[GroupGain, ...]:
    """Return the difference by each attribute of the queries, for groups that are large enough."""
    gains = []
    known = attributes({key: queries[key] for key in keys if key in queries}, language)
    for name in sorted(known):
        for value in sorted(set(known[name].values())):
            differences = difference[[place for place, key in enumerate(keys) if known[name].get(key) == value]]
            if len(differences) >= _LEAST_GROUP_QUERIES:
                ((low, high),) = bootstrap_interval(differences[None], span=DIFFERENCES).tolist()
                gains.append(
                    GroupGain(
                        attribute=name,
                        value=value,
                        queries=len(differences),
                        difference=float(differences.mean()),
                        low=low,
                        high=high,
                    )
                )
    return tuple(gains)
