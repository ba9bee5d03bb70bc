"""Measure the coverage of 95% intervals of a mean: before (percentiles) and after (corrected percentiles).

    python benchmarks/intervals.py

Scores as retrieval has them: many zeros and ones, skewed. Each trial draws the scores of some queries and asks whether
the interval holds the true mean. The standard error of a share is that of its number of trials.
"""

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from airgen.evaluation.intervals import bootstrap_interval, resampled_means

Scores = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Scores]


def mixed(zeros: float, ones: float, rest: Draw) -> Draw:
    """Draw a share of zeros, a share of ones, and the rest from a distribution."""

    def draw(random: np.random.Generator, count: int) -> Scores:
        place = random.random(count)
        return np.where(place < zeros, 0.0, np.where(place < zeros + ones, 1.0, rest(random, count)))

    return draw


KINDS: dict[str, Draw] = {
    "nDCG: 25 % zeros, 35 % ones": mixed(0.25, 0.35, lambda random, count: random.random(count)),
    "hard: 70 % zeros, 10 % ones": mixed(0.7, 0.1, lambda random, count: random.beta(1, 2, count)),
    "easy: 5 % zeros, 80 % ones": mixed(0.05, 0.8, lambda random, count: random.beta(4, 2, count)),
    "RR: 1 / rank, 15 % zeros": lambda random, count: (
        (random.random(count) < 0.85) / np.maximum(np.ceil(random.exponential(3, count)), 1)
    ),
    "U-shaped: beta(.3, .5)": lambda random, count: random.beta(0.3, 0.5, count),
}


def percentiles(scores: Scores, seed: int) -> Scores:
    """Return the earlier intervals: plain percentiles of the resampled means."""
    found: Scores = np.quantile(resampled_means(scores, seed=seed), [0.025, 0.975], axis=0).T
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1500)
    parser.add_argument("--queries", type=int, nargs="*", default=[20, 50, 100, 200])
    args = parser.parse_args()
    random = np.random.default_rng(0)
    truth = {kind: float(draw(random, 4_000_000).mean()) for kind, draw in KINDS.items()}
    ways: dict[str, Callable[[Scores, int], Scores]] = {
        "before": percentiles,
        "after": lambda scores, seed: bootstrap_interval(scores, seed=seed),
    }
    print(f"{args.trials} trials; standard error of a share near .95: {math.sqrt(0.95 * 0.05 / args.trials):.3f}")
    for queries in args.queries:
        shares: dict[str, list[float]] = {way: [] for way in ways}
        for kind, draw in KINDS.items():
            words = []
            # A single set of queries per row would share its draws with the others, so trials run in batches with their
            # own seeds.
            batches = [draw(random, 100 * queries).reshape(100, queries) for _ in range(math.ceil(args.trials / 100))]
            for way, make in ways.items():
                started = time.perf_counter()
                ends = np.concatenate([make(batch, seed) for seed, batch in enumerate(batches)])
                taken = time.perf_counter() - started
                held = float(np.mean((ends[:, 0] - 1e-12 <= truth[kind]) & (truth[kind] <= ends[:, 1] + 1e-12)))
                shares[way].append(held)
                words.append(f"{way} {held:.3f} (width {np.mean(ends[:, 1] - ends[:, 0]):.3f}, {taken:.1f} s)")
            print(f"{queries:4} {kind:30} {'; '.join(words)}", flush=True)
        means = "; ".join(f"{way} {np.mean(of):.3f}, lowest {min(of):.3f}" for way, of in shares.items())
        print(f"{queries:4} {'in the mean':30} {means}", flush=True)


if __name__ == "__main__":
    main()
