"""Measure whether correction by a few human answers improves the judge's ranking, and whether the test for a family of
systems is valid.

python benchmarks/corrected_ranking.py results COLLECTION...        # results: see benchmarks/few_labels.py

All systems are in one audit, with the collection's labels as answers. Spearman is with the ranking by all labels: by
the judge alone, by the full correction, and by the shrunk one, which `airgen audit systems` gives. "holds" is how often
the 95 % interval of how much the judge favours the lexical systems holds the true value, and how often all rank
intervals hold the true ranks together. Means over 12 drawn samples.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from few_labels import judges, read

from airgen.audit.difference import Pairs, corrected, draw_order, estimate, favours
from airgen.evaluation.systems import load_systems
from airgen.safety.escaping import markdown_table
from airgen.studies.rank_correlation import spearman

SAMPLES, ANSWERS = 12, (50, 100, 200)
LEXICAL = ("bm25", "bm25-multi", "bm25-long", "bm25-unstemmed", "dirichlet", "bm25-4grams", "rm3", "bm25-raw")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("collections", nargs="+", type=Path)
    options = parser.parse_args()
    names = [one.name for one in load_systems(Path(__file__).parent / "systems-few-labels.yaml")]
    worlds = [read(options.results, home, names) for home in options.collections]
    random, rows = np.random.default_rng(0), []
    for world in worlds:
        for name, probability in judges(world, [other for other in worlds if other is not world], random).items():
            centred = world.weights - world.weights.mean(axis=0)
            inside = (centred != 0).any(axis=0)
            pairs, labels = Pairs(centred[:, inside], probability[inside]), world.labels[inside]
            judge, human = world.weights @ probability, world.weights @ world.labels
            true_rank = 1 + (human[None] > human[:, None]).sum(axis=1)
            group = np.array([one in LEXICAL for one in world.systems])
            truth = float((judge - human)[group].mean() - (judge - human)[~group].mean())
            cells = [f"{float(spearman(judge, human)):.2f}"]
            for answers in ANSWERS:
                found = []
                for seed in range(SAMPLES):
                    order = draw_order(pairs, seed=seed)
                    one = estimate(pairs, order, labels[order[:answers]])
                    ranking = {row.name: row for row in corrected(world.systems, one, judge)}
                    ranked = [ranking[system] for system in world.systems]
                    (favour,) = favours(world.systems, {"lexical": LEXICAL}, one)
                    bounds = [row.low <= rank <= row.high for row, rank in zip(ranked, true_rank.tolist(), strict=True)]
                    found.append([
                        float(spearman(np.array([row.people for row in ranked]), human)),
                        float(spearman(np.array([row.score for row in ranked]), human)),
                        favour.low <= truth <= favour.high,
                        all(bounds),
                    ])  # fmt: skip
                full, shrunk, held, ranks = np.mean(found, axis=0)
                cells.append(f"{full:.2f}, {shrunk:.2f}; holds {held:.2f}, {ranks:.2f}")
            rows.append([world.name, name, *cells])
            print(rows[-1], flush=True)
    print(
        markdown_table(["collection", "judge", "judge alone", *(f"{n} answers: full, shrunk" for n in ANSWERS)], rows)
    )


if __name__ == "__main__":
    main()
