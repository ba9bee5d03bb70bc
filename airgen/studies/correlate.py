"""Correlate how two benchmarks, or two tasks of a benchmark, rank the same systems (paper 4.2, RQ2)."""

import itertools
import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.display.study import Column, Shown, Study, Table, columns
from airgen.errors import UsageError
from airgen.evaluation.intervals import Interval, resampled_means
from airgen.evaluation.score_tables import BenchmarkMeans
from airgen.evaluation.significance import holm
from airgen.safety.escaping import md, p_value
from airgen.storage.json_values import write_json
from airgen.studies.rank_correlation import (
    LEAST_SYSTEMS,
    RankCorrelation,
    average_ranks,
    kendall,
    rank_correlation,
    spearman,
)

FEW = 10  # number of systems below which a rank correlation says little
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BenchmarkPair:
    """The correlation of two benchmarks. `spearman_holm` and `kendall_holm` are p-values after Holm's correction over
    all pairs.

    `by_queries` is {"spearman": (low, high), "kendall": (low, high)}, the 95% intervals over the queries of both
    benchmarks, or empty if one has no scores per query.
    """

    first: str
    second: str
    systems: tuple[str, ...]
    figures: RankCorrelation
    spearman_holm: float
    kendall_holm: float
    by_queries: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class CorrelationStudy(Shown):
    """All pairs of some benchmarks. Those with too few common systems are listed separately as (first, second,
    number)."""

    benchmarks: tuple[BenchmarkMeans, ...]
    pairs: tuple[BenchmarkPair, ...]
    too_few: tuple[tuple[str, str, int], ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        pairs: list[dict[str, Any]] = [{**asdict(pair), "few": len(pair.systems) < FEW} for pair in self.pairs]
        too_few = [{"first": first, "second": second, "systems": count} for first, second, count in self.too_few]
        means = [
            {
                "name": benchmark.name,
                "datasets": list(benchmark.rows),
                "means": benchmark.means,
                "incomplete": benchmark.incomplete,
            }
            for benchmark in self.benchmarks
        ]
        return {"benchmarks": means, "pairs": pairs, "too_few": too_few}

    def notes(self) -> list[str]:
        """Return caveats about the figures."""
        notes = [
            f"{first} and {second} have {count} systems in common: a rank correlation needs {LEAST_SYSTEMS}"
            for first, second, count in self.too_few
        ]
        few = sorted(len(pair.systems) for pair in self.pairs if len(pair.systems) < FEW)
        if few:
            size = str(few[0]) if few[0] == few[-1] else f"{few[0]} to {few[-1]}"
            notes.append(
                f"{len(few)} of {len(self.pairs)} pairs have only {size} systems in common: such correlations are "
                f"unreliable; see their intervals over systems"
            )
        for benchmark in self.benchmarks:
            if benchmark.incomplete:
                names = sorted(benchmark.incomplete)
                shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
                notes.append(
                    f"{benchmark.name}: no mean of {shown}, which lack some of its {len(benchmark.rows)} datasets"
                )
        return notes

    def text(self) -> str:
        """Return the text for a terminal: the pairs and the caveats."""
        return "\n".join(
            [Table(self.pairs, _COLUMNS).text() if self.pairs else "no two benchmarks can be compared", *self.notes()]
        )

    def study(self) -> Study:
        """Return the report."""
        return Study(
            "Rank correlation of benchmarks",
            [
                "Spearman's rho and Kendall's tau-b between the systems' means. p: two-sided, Spearman's by Student's "
                "t as in the paper, Kendall's counted over all orders where no systems tie; after Holm over all pairs "
                "in brackets. Over systems: the 95 % interval if other systems had been taken (Bonett and Wright "
                "2000). Over queries: the 95 % interval over 1,000 resamplings of the queries of both, where scores by "
                "query are kept.",
                Table(self.pairs, _COLUMNS),
                "\n".join(f"- {md(note)}" for note in self.notes()),
                "## Systems",
                "The mean of each system, and its rank among the systems of that column.",
                self._systems(),
            ],
        )

    def _systems(self) -> Table:
        ranks = []
        for benchmark in self.benchmarks:
            values = np.array(list(benchmark.means.values()))
            ranks.append(
                dict(zip(benchmark.means, average_ranks(-values).tolist() if len(values) else (), strict=True))
            )
        names = sorted(
            {name for benchmark in self.benchmarks for name in benchmark.means},
            key=lambda name: (float(np.mean([rank.get(name, len(rank) + 1) for rank in ranks])), name),
        )
        both = list(zip(self.benchmarks, ranks, strict=True))
        rows = [
            [
                name,
                *(f"{benchmark.means[name]:.4f} ({rank[name]:g})" if name in rank else "–" for benchmark, rank in both),
            ]
            for name in names
        ]
        return Table(rows, columns("system", *(benchmark.name for benchmark in self.benchmarks)))

    def write(self, folder: Path) -> None:
        """Write `correlation.md`, `correlation.json` and `correlation.svg` (Spearman) to a folder."""
        from airgen.evaluation.charts import heat_map, save_svg

        write_json(folder / "correlation.json", self)
        self.study().write(folder / "correlation.md")
        names = [benchmark.name for benchmark in self.benchmarks]
        values = np.full((len(names), len(names)), np.nan)
        np.fill_diagonal(values, 1.0)
        for pair in self.pairs:
            left, right = names.index(pair.first), names.index(pair.second)
            values[left, right] = values[right, left] = pair.figures.spearman
        save_svg(heat_map(names, values, title="Spearman's rho between the rankings"), folder / "correlation.svg")


_NO_INTERVAL = (math.nan, math.nan)


def _p(value: float, corrected: float) -> str:
    return p_value(value) if corrected == value else f"{p_value(value)} ({p_value(corrected)})"


_COLUMNS = (
    Column("benchmarks", lambda pair: f"{pair.first} ~ {pair.second}"),
    Column("systems", lambda pair: pair.figures.systems),
    Column("Spearman", lambda pair: pair.figures.spearman, ".3f", missing="undefined"),
    Column("p", lambda pair: _p(pair.figures.spearman_p, pair.spearman_holm)),
    Column("over systems", lambda pair: (pair.figures.spearman_low, pair.figures.spearman_high), ".2f"),
    Column("over queries", lambda pair: pair.by_queries.get("spearman", _NO_INTERVAL), ".2f"),
    Column("Kendall", lambda pair: pair.figures.kendall, ".3f", missing="undefined"),
    Column("p", lambda pair: _p(pair.figures.kendall_p, pair.kendall_holm)),
    Column("over systems", lambda pair: (pair.figures.kendall_low, pair.figures.kendall_high), ".2f"),
    Column("over queries", lambda pair: pair.by_queries.get("kendall", _NO_INTERVAL), ".2f"),
)


def correlate(
    benchmarks: Sequence[BenchmarkMeans], *, least: int = LEAST_SYSTEMS, samples: int = 1000
) -> CorrelationStudy:
    """Correlate every pair of benchmarks over their common systems.

    Args:
        benchmarks: The benchmarks with their systems' means.
        least: Minimum number of common systems. Benchmarks with fewer are not compared.
        samples: Number of resamplings of the queries.

    Raises:
        UsageError: There are fewer than two benchmarks, or no pair has enough systems in common.
    """
    if len(benchmarks) < 2:
        raise UsageError(
            f"{len(benchmarks)} benchmark(s): give two sources, or one with --by task, domain, language or dataset"
        )
    couples, too_few = [], []
    for left, right in itertools.combinations(benchmarks, 2):
        common = tuple(sorted(name for name in left.means if name in right.means))
        if len(common) < max(least, LEAST_SYSTEMS):
            too_few.append((left.name, right.name, len(common)))
        else:
            couples.append((left, right, common))
    if not couples:
        first, second, most = max(too_few, key=itemgetter(2))
        raise UsageError(
            f"no two benchmarks have {max(least, LEAST_SYSTEMS)} systems in common; the most have {first} and "
            f"{second}: {most}. Names can be mapped with --names, and datasets that only some systems have "
            "can be left out with --dataset"
        )
    figures = [
        rank_correlation([left.means[name] for name in common], [right.means[name] for name in common])
        for left, right, common in couples
    ]
    spearman_holm = holm([figure.spearman_p for figure in figures]).tolist()
    kendall_holm = holm([figure.kendall_p for figure in figures]).tolist()
    pairs = []
    drawn: dict[tuple[str, tuple[str, ...]], Matrix | None] = {}
    for side, common in [(side, common) for *sides, common in couples for side in sides]:
        if (side.name, common) not in drawn:
            drawn[side.name, common] = _resampled(side, common, samples)
    for place, (left, right, common) in enumerate(couples):
        left_drawn, right_drawn = drawn[left.name, common], drawn[right.name, common]
        over_queries = {}
        if left_drawn is not None and right_drawn is not None:
            for name, measure in (("spearman", spearman), ("kendall", kendall)):
                span = Interval.of(0.0, measure(left_drawn, right_drawn))
                if not math.isnan(span.low):
                    over_queries[name] = (span.low, span.high)
        pairs.append(
            BenchmarkPair(
                first=left.name,
                second=right.name,
                systems=common,
                figures=figures[place],
                spearman_holm=spearman_holm[place],
                kendall_holm=kendall_holm[place],
                by_queries=over_queries,
            )
        )
    return CorrelationStudy(tuple(benchmarks), tuple(pairs), tuple(too_few))


def _resampled(side: BenchmarkMeans, systems: Sequence[str], samples: int) -> Matrix | None:
    """Return the systems' means over resampled queries of each dataset, (samples, systems).

    The draw depends on the dataset's name, so that a dataset in two benchmarks is resampled identically.
    """
    read = side.queries(systems)
    if read is None:
        return None
    rows = []
    for parts, scores in zip(side.rows.values(), read, strict=True):
        seeds = [zlib.crc32("\0".join(names).encode("utf-8", "surrogatepass")) for names in parts]
        drawn = [resampled_means(part, samples=samples, seed=seed) for part, seed in zip(scores, seeds, strict=True)]
        rows.append(np.mean(drawn, axis=0))
    means: Matrix = np.mean(rows, axis=0)
    return means
