"""What a change of a model is worth, and where: two systems on several datasets, before and after (paper 4.3, RQ3).

    report = gains(before, after)                 # Results of `evaluate`, one of each for every dataset
    report.rows[0].difference, report.rows[0].verdict
    report.write(Path("gain"))

All comparisons are paired: the same queries before and after. Intervals are 95 % bootstrap intervals over queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirDataset, BeirQuery
from airgen.errors import UsageError
from airgen.evaluation.breakdown import attributes
from airgen.evaluation.result import Result, read_scores, without_nan, write_json
from airgen.evaluation.significance import bootstrap_interval, fisher_test, holm, resampled_means
from airgen.text.display import markdown_table, md, one_line, p_value, terminal_table

Verdict = Literal["gains", "loses", "not told apart"]
_LEAST_GROUP = 10  # queries below which a group's interval says nothing
_SHOWN = 5  # queries with the largest gain and the largest loss


@dataclass(frozen=True, slots=True)
class GroupGain:
    """The difference on the queries of one dataset whose `attribute` has this value."""

    attribute: str
    value: str
    queries: int
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class DatasetGain:
    """One dataset.

    won and lost: queries with a higher and with a lower score after. p: Fisher's test; p_holm: corrected over datasets.
    verdict: `gains` or `loses` where p_holm is at most alpha. most: (query id, text, before, after) of the queries that
    changed most, the largest gains first, then the largest losses.
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
class GainReport:
    """All datasets; `mean` is the mean difference over datasets, each counting alike, with its interval."""

    before: str
    after: str
    rows: tuple[DatasetGain, ...]
    mean: tuple[float, float, float]
    alpha: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(without_nan(asdict(self)))

    def text(self) -> str:
        """For a terminal: a line for each dataset, and their mean."""
        rows = [["dataset", "measure", "queries", "before", "after", "difference", "95 %", "p", "after Holm", "won",
                 "lost", ""]]  # fmt: skip
        rows += [
            [one.dataset, one.measure, str(one.queries), *_figures(one), one.verdict] for one in self.rows
        ]  # fmt: skip
        return terminal_table(rows, left=(0, 1, 11)) + "\n" + self._mean_line()

    def _mean_line(self) -> str:
        value, low, high = self.mean
        count = len(self.rows)
        return f"mean over {count} dataset{'s' * (count > 1)}: {value:+.4f} (95 % {low:+.4f} to {high:+.4f})"

    def markdown(self) -> str:
        """The report; text from outside is escaped."""
        rows = [
            [md(one.dataset), md(one.split), md(one.measure), str(one.queries), *_figures(one), one.verdict]
            for one in self.rows
        ]
        header = ["dataset", "split", "measure", "queries", "before", "after", "difference", "95 %", "p", "after Holm",
                  "won", "lost", ""]  # fmt: skip
        parts = [
            f"# {md(self.before)}, then {md(self.after)}",
            "The difference is that of the means, with its 95 % bootstrap interval over the queries, the same on both "
            "sides. p: Fisher's randomisation test, after Holm over the datasets. Won and lost: queries with a "
            "higher and with a lower score.",
            markdown_table(header, rows),
            f"{self._mean_line().capitalize()}.",
        ]
        groups = [
            [md(one.dataset), md(group.attribute), md(group.value), str(group.queries), f"{group.difference:+.4f}",
             f"{group.low:+.4f} to {group.high:+.4f}"]
            for one in self.rows
            for group in one.groups
        ]  # fmt: skip
        if groups:
            about = f"Groups of at least {_LEAST_GROUP} queries; the intervals are not corrected for their number."
            table = markdown_table(["dataset", "attribute", "value", "queries", "difference", "95 %"], groups)
            parts.append(f"## By kind of query\n\n{about}\n\n{table}")
        changed = [
            [md(one.dataset), md(key), md(text), f"{before:.3f}", f"{after:.3f}"]
            for one in self.rows
            for key, text, before, after in one.most
        ]
        if changed:
            table = markdown_table(["dataset", "query", "text", "before", "after"], changed)
            parts.append(f"## Queries that changed most\n\n{table}")
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path) -> None:
        """Write `gain.md`, `gain.json` and `gain.svg` into the folder."""
        from airgen.evaluation.charts import Panel, panels_chart, save_svg

        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "gain.json", self.as_dict())
        (folder / "gain.md").write_text(self.markdown(), encoding="utf-8", errors="backslashreplace")
        names = [f"{one.dataset} ({one.measure})" for one in self.rows]
        values = {name: (one.difference, one.low, one.high) for name, one in zip(names, self.rows, strict=True)}
        groups = {name: one.verdict for name, one in zip(names, self.rows, strict=True)}
        title = f"{self.after} less {self.before}"
        chart = panels_chart(names, [Panel("difference", values, form="+.3f")], groups, title=title)
        save_svg(chart, folder / "gain.svg")


def _figures(one: DatasetGain) -> list[str]:
    return [
        f"{one.before:.4f}", f"{one.after:.4f}", f"{one.difference:+.4f}", f"{one.low:+.4f} to {one.high:+.4f}",
        p_value(one.p), p_value(one.p_holm), str(one.won), str(one.lost),
    ]  # fmt: skip


def gains(
    pairs: Sequence[tuple[BeirDataset, Result, Result]], *, measure: str | None = None, alpha: float = 0.05
) -> GainReport:
    """Compare two systems on each dataset: pairs of (dataset, result before, result after).

    measure: by default each dataset's own, nDCG@10 or for Long-Doc Recall@10. Raises UsageError without a dataset, or
    for results of different systems or queries.
    """
    if not pairs:
        raise UsageError("no dataset was evaluated with both systems")
    names = {(before.name, after.name) for _, before, after in pairs}
    if len(names) > 1:
        raise UsageError("the same two systems are needed on each dataset")
    read = [_read(before, after, measure or before.headline) for _, before, after in pairs]
    fisher = np.array([fisher_test(after - before)[0] for _, before, after in read])
    rows = [
        _row(*pair, measure or pair[1].headline, *scores, float(p), float(corrected), alpha)
        for pair, scores, p, corrected in zip(pairs, read, fisher, holm(fisher), strict=True)
    ]
    drawn = np.mean(
        [
            resampled_means(after - before, samples=10_000, seed=place)[:, 0]
            for place, (_, before, after) in enumerate(read)
        ],
        axis=0,
    )
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    ((first, second),) = names
    return GainReport(first, second, tuple(rows), (float(np.mean([row.difference for row in rows])), low, high), alpha)


Scores = tuple[list[str], NDArray[np.float64], NDArray[np.float64]]


def _read(before: Result, after: Result, measure: str) -> Scores:
    """Query ids, and the scores of both systems in their order."""
    left, right = (read_scores(result.paths.scores, measure) for result in (before, after))
    if left.keys() != right.keys() or not left:
        raise UsageError(f"{before.dataset}: {before.name} and {after.name} have no common queries by {measure}")
    keys = sorted(left)
    return keys, np.array([left[key] for key in keys]), np.array([right[key] for key in keys])


def _row(
    dataset: BeirDataset,
    before: Result,
    after: Result,
    measure: str,
    keys: list[str],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    p: float,
    corrected: float,
    alpha: float,
) -> DatasetGain:
    difference = right - left
    queries = dataset.queries(before.split)
    ((low, high),) = bootstrap_interval(difference[None], samples=10_000).tolist()
    mean = float(difference.mean())
    verdict: Verdict = "not told apart" if corrected > alpha or not mean else "gains" if mean > 0 else "loses"
    order = np.argsort(difference, kind="stable").tolist()
    changed = [place for place in order[::-1][:_SHOWN] if difference[place] > 0]
    changed += [place for place in order[:_SHOWN] if difference[place] < 0]
    most = tuple(
        (key, one_line(queries[key].text if key in queries else "", 200), float(left[at]), float(right[at]))
        for at, key in ((at, keys[at]) for at in changed)
    )
    return DatasetGain(
        before.dataset, before.split, measure, len(keys), float(left.mean()), float(right.mean()), mean, low, high,
        int((difference > 0).sum()), int((difference < 0).sum()), p, corrected, verdict,
        _groups(queries, keys, difference, str(before.about.get("language") or "en")), most,
    )  # fmt: skip


def _groups(
    queries: Mapping[str, BeirQuery], keys: Sequence[str], difference: NDArray[np.float64], language: str
) -> tuple[GroupGain, ...]:
    """The difference by each attribute of the queries, in groups that are large enough."""
    found = []
    known = attributes({key: queries[key] for key in keys if key in queries}, language)
    for name in sorted(known):
        for value in sorted(set(known[name].values())):
            some = difference[[place for place, key in enumerate(keys) if known[name].get(key) == value]]
            if len(some) >= _LEAST_GROUP:
                ((low, high),) = bootstrap_interval(some[None]).tolist()
                found.append(GroupGain(name, value, len(some), float(some.mean()), low, high))
    return tuple(found)
