"""Compare the coverage of rank intervals: percentiles of resampled ranks, and `rank_intervals`.

python benchmarks/rank_intervals.py                 # 5 minutes on one core

The truth is a world of 20,000 queries: a query is easy or hard for all systems, systems differ by a normal effect of
the given size (in standard deviations of the noise), scores are cut to [0, 1]. From it some queries are drawn, the
intervals are made from these, and the true ranks are looked up in the world. "all" is the share of draws in which the
intervals of all systems are right together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airgen.evaluation.intervals import resampled_means
from airgen.evaluation.significance import compare, rank_intervals
from airgen.safety.escaping import markdown_table

EFFECTS = {"close": 0.01, "middle": 0.05, "far": 0.3}
SYSTEMS, QUERIES, WORLDS, DRAWS = (5, 12, 26), (30, 100, 400), 3, 20

Matrix = NDArray[np.float64]


def world(systems: int, effect: float, random: np.random.Generator) -> Matrix:
    """Return the scores of all queries, float64 (systems, 20000)."""
    easy = random.normal(size=20_000)
    latent = 0.8 * easy + random.normal(size=(systems, 1)) * effect + 0.6 * random.normal(size=(systems, 20_000))
    scores: Matrix = np.clip(1.6 / (1 + np.exp(-2 * latent)) - 0.3, 0, 1)
    return scores


def percentiles(scores: Matrix, seed: int) -> Matrix:
    means = resampled_means(scores, samples=1000, seed=seed)
    ranks = 1 + (means[:, None, :] > means[:, :, None]).sum(axis=2)
    low, high = np.quantile(ranks, [0.025, 0.975], axis=0)
    return np.stack([np.floor(low), np.ceil(high)], axis=1)


def by_pairs(scores: Matrix) -> Matrix:
    """Return the bounds from the significant pairs of the table (t-test, Holm over all pairs)."""
    names = [str(row) for row in range(len(scores))]
    found = np.tile([1.0, len(scores)], (len(scores), 1))
    for pair in compare(names, scores).pairs:
        if pair.t_holm <= 0.05:
            better, worse = (pair.first, pair.second) if pair.difference > 0 else (pair.second, pair.first)
            found[int(better), 1] -= 1
            found[int(worse), 0] += 1
    return found


def main() -> None:
    random = np.random.default_rng(1)
    rows = []
    for systems in SYSTEMS:
        for effect, size in EFFECTS.items():
            worlds = [world(systems, size, random) for _ in range(WORLDS)]
            for queries in QUERIES:
                found: dict[str, list[list[float]]] = {}
                for everything in worlds:
                    means = everything.mean(axis=1)
                    true = 1 + (means[None] > means[:, None]).sum(axis=1)
                    for draw in range(DRAWS):
                        scores = everything[:, random.integers(0, 20_000, queries)]
                        ways = {
                            "percentiles": percentiles(scores, draw),
                            "airgen": rank_intervals(scores, seed=draw),
                            "all pairs": by_pairs(scores),
                        }
                        for way, ranks in ways.items():
                            held = (ranks[:, 0] <= true) & (true <= ranks[:, 1])
                            width = np.mean(ranks[:, 1] - ranks[:, 0] + 1)
                            found.setdefault(way, []).append([held.mean(), held.all(), float(width)])
                cells = [np.mean(each, axis=0) for each in found.values()]
                texts = [f"{one:.3f}, all {every:.2f}, width {width:.1f}" for one, every, width in cells]
                rows.append([str(systems), effect, str(queries), *texts])
    header = ["systems", "differences", "queries", "percentiles", "`rank_intervals`", "significant pairs"]
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
