"""Measure how often equally good systems are called different by `against_baseline`, `compare` and `decide`.

    python benchmarks/false_alarms.py                   # 15 minutes on one core
    python benchmarks/false_alarms.py --trials 2000

Two systems are equally good: a share of the queries is scored again from the same distribution. A trial draws the
scores of n queries, and asks whether the new system is better or worse. The nominal rate is 2.5 % per side. Cells show
the share of "better" and of "worse" in percent. The last line is the highest rate of all cells, and its standard error.
"""

import argparse
import math
from collections.abc import Callable

import numpy as np

from airgen.evaluation.intervals import Matrix
from airgen.evaluation.significance import against_baseline, decide_alone
from airgen.safety.escaping import markdown_table

QUERIES = (1, 2, 3, 4, 5, 6, 10, 20, 50, 100, 200, 500, 1000)
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
KINDS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Matrix]] = {
    "continuous": lambda random, shape: random.random(shape),
    "binary": lambda random, shape: (random.random(shape) < 0.6).astype(np.float64),
    "1 / rank": lambda random, shape: 1 / np.ceil(random.exponential(3, shape) + 1e-12),
}
BATCH = 500  # trials whose scores are in memory together


def rates(kind: str, queries: int, share: float, trials: int, random: np.random.Generator) -> tuple[float, float]:
    """Return the shares of "better" and "worse"."""
    draw, better, worse = KINDS[kind], 0, 0
    for _ in range(0, trials, BATCH):
        old = draw(random, (BATCH, queries))
        new = np.where(random.random((BATCH, queries)) < share, draw(random, (BATCH, queries)), old)
        answers = decide_alone(new - old)[1]
        better, worse = better + answers.count("better"), worse + answers.count("worse")
        # The batch answers as the gate does.
        gate = against_baseline("new", new[0], old[0], measure="x").verdict
        assert gate == answers[0] or (gate == "not worse" and (new[0] == old[0]).all())
    done = math.ceil(trials / BATCH) * BATCH
    return better / done, worse / done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--queries", type=int, nargs="*", default=QUERIES)
    args = parser.parse_args()
    random, highest = np.random.default_rng(0), (0.0, "")
    rows = []
    for kind in KINDS:
        for queries in args.queries:
            cells = [kind, f"{queries:,}"]
            for share in SHARES:
                sides = rates(kind, queries, share, args.trials, random)
                cells.append("{:.1f} / {:.1f}".format(*(100 * side for side in sides)))
                highest = max(highest, (max(sides), f"{kind}, {queries} queries, {share:.0%}"))
            rows.append(cells)
            print(*cells, sep="  ", flush=True)
    print(markdown_table(["scores", "queries", *(f"{share:.0%}" for share in SHARES)], rows))
    error = math.sqrt(0.025 * 0.975 / args.trials)
    print(f"highest: {highest[0]:.2%} ({highest[1]}); {args.trials:,} trials, standard error at 2.5 %: {error:.2%}")


if __name__ == "__main__":
    main()
