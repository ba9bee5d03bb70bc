"""Measure how many human answers are needed to decide whether A is better than B, simulated on human-labelled
collections.

airgen evaluate COLLECTION... --systems benchmarks/systems-few-labels.yaml --top 100 --out results
python benchmarks/few_labels.py results COLLECTION... --target docs/notes/trust.md

For forty pairs of systems and three drawn samples of each, `airgen audit systems` is played with the collection's
labels (relevant or not) as answers. Judges: `lsa` (a logistic regression on the rank of one LSA system) and
`voters` (on the ranks of five systems), both fitted to the other collections; and two simulated ones, whose scores are
normal with an AUC of .75 and .90 and whose probabilities are exact.

coverage: how often the 95 % interval for a number of answers that was fixed before holds the difference by all labels.
fewer: how many times more answers plain sampling needs for intervals of the same width (people only, every pair of the
two top tens with the same chance; "pool": every pair in the top ten of any system). called: share of pairs for which
`airgen audit systems`, which looks after every 25 answers, has said which system is better. wrong: share of all pairs
for which it has named the worse one.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from agreement import fit, predict
from numpy.typing import NDArray

from airgen.audit.difference import (
    BATCH,
    Pairs,
    critical_values,
    draw_order,
    estimate,
    information,
    rank_weights,
    spent,
)
from airgen.dataset.beir import BeirDataset
from airgen.evaluation.result import Paths
from airgen.evaluation.run import read_run
from airgen.evaluation.systems import load_systems
from airgen.safety.escaping import markdown_table

DEPTH, COUPLES, SAMPLES, ANSWERS = 10, 40, 3, (50, 100, 200)
VOTERS = ("bm25", "rm3", "bm25-4grams", "lsa-100", "minilm")
START, END = "<!-- few labels: start -->", "<!-- few labels: end -->"

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """weights: what a relevant pair adds to each system's mean DCG@10, (systems, pairs). ranks: 1/rank by voters."""

    name: str
    systems: list[str]
    weights: Matrix
    labels: Matrix
    ranks: Matrix


def read(results: Path, home: Path, names: Sequence[str]) -> World:
    dataset = BeirDataset.open(home)
    labels = {q: of for q, of in dataset.qrels("test").labels.items() if any(label > 0 for label in of.values())}
    runs = {}
    names = [name for name in names if Paths.of(results / dataset.name / "test", name).run.is_file()]
    for name in names:
        ranked = read_run(Paths.of(results / dataset.name / "test", name).run).ranked()
        runs[name] = {query: [id_ for id_, _ in hits[:100]] for query, hits in ranked.items() if query in labels}
    pairs = sorted({(q, id_) for run in runs.values() for q, hits in run.items() for id_ in hits[:DEPTH]})
    place = {pair: at for at, pair in enumerate(pairs)}
    weights, gains = np.zeros((len(names), len(pairs))), rank_weights(DEPTH) / len(labels)
    ranks = np.zeros((len(pairs), len(VOTERS)))
    for row, (name, run) in enumerate(runs.items()):
        for query, hits in run.items():
            for rank, id_ in enumerate(hits):
                at = place.get((query, id_))
                if at is not None and rank < DEPTH:
                    weights[row, at] = gains[rank]
                if at is not None and name in VOTERS:
                    ranks[at, VOTERS.index(name)] = 1 / (rank + 1)
    relevant = np.array([float(labels[q].get(id_, 0) > 0) for q, id_ in pairs])
    return World(dataset.name, list(names), weights, relevant, ranks)


def judges(world: World, others: Sequence[World], random: np.random.Generator) -> dict[str, Matrix]:
    """Return Return {judge: probability of each pair}."""
    found = {}
    for name, columns in (("lsa", [VOTERS.index("lsa-100")]), ("voters", list(range(len(VOTERS))))):
        features = np.concatenate([other.ranks[:, columns] for other in others])
        labels = np.concatenate([other.labels for other in others]) > 0
        each = np.concatenate([np.full(len(other.labels), 1000 / len(other.labels)) for other in others])
        found[name] = predict(fit(features, labels, each), world.ranks[:, columns])
    share = world.labels.mean()
    for area, apart in ((0.75, 0.9539), (0.90, 1.8124)):  # sqrt(2) times the normal quantile of the AUC
        score = random.normal(size=len(world.labels)) + apart * world.labels
        odds = share / (1 - share) * np.exp(apart * score - apart**2 / 2)
        found[f"AUC {area:.2f}"] = odds / (1 + odds)
    return found


def auc(probability: Matrix, labels: Matrix) -> float:
    order = np.argsort(probability, kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1, len(order) + 1)
    for value in np.unique(probability):
        same = probability == value
        ranks[same] = ranks[same].mean()
    positive = labels.sum()
    return float((ranks[labels > 0].sum() - positive * (positive + 1) / 2) / (positive * (len(labels) - positive)))


def plain_variance(values: Matrix, pool: int, answers: int) -> float:
    """Return the variance of plain sampling's estimate of a sum. `values` are the non-zero pairs of a pool."""
    answers = min(answers, pool)
    spread = ((values**2).sum() - values.sum() ** 2 / pool) / (pool - 1)
    return float(pool**2 * (1 - answers / pool) * spread / answers)


def play(world: World, probability: Matrix, seed: int) -> dict[str, object]:
    """Return figures over pairs of systems and samples."""
    count = len(world.systems)
    cover: dict[int, list[bool]] = {n: [] for n in ANSWERS}
    width: dict[int, list[float]] = {n: [] for n in ANSWERS}
    fewer: dict[tuple[int, str], list[float]] = {}
    calls: dict[int, list[int]] = {n: [] for n in ANSWERS}
    kept = []
    couples = list(itertools.combinations(range(count), 2))
    for place in sorted(np.random.default_rng(seed).permutation(len(couples))[:COUPLES].tolist()):
        one, other = couples[place]
        gap = world.weights[one] - world.weights[other]
        inside = gap != 0
        if not inside.any():
            continue
        pairs = Pairs(gap[None, inside], probability[inside])
        labels = world.labels[inside]
        truth = float(gap @ world.labels)
        either = int(((world.weights[one] > 0) | (world.weights[other] > 0)).sum())
        most = min(max(ANSWERS), len(labels))
        steps = list(range(BATCH, most + 1, BATCH))
        told = information(pairs, most)[np.array(steps) - 1]
        critical = critical_values(told, np.array([spent(n) for n in steps]))
        for sample in range(SAMPLES):
            order = draw_order(pairs, seed=seed + 1000 * (one * count + other) + sample)
            call, held = 0, True
            for n, z in zip(steps, critical.tolist(), strict=True):
                found = estimate(pairs, order, labels[order[:n]])
                value, error = float(found.value[0]), float(found.errors[0])
                held &= abs(value - truth) <= z * error + 1e-12
                if not call and abs(value) > z * error:
                    call = n if np.sign(value) == np.sign(truth) and abs(truth) > 1e-12 else -n
                if n in cover:
                    cover[n].append(abs(value - truth) <= 1.96 * error + 1e-12)
                    width[n].append(2 * 1.96 * error)
                    calls[n].append(0 if not call else int(np.sign(call)))
                    for name, pool in (("both", either), ("pool", len(probability))):
                        plain = plain_variance((gap * world.labels)[inside], pool, n)
                        if error > 0 and plain > 0:
                            # Answers that plain sampling needs for this error: its variance falls as 1 / answers.
                            fewer.setdefault((n, name), []).append(plain / error**2)
            kept.append(held)
    return {
        "coverage": {n: np.mean(each) for n, each in cover.items() if each},
        "width": {n: np.mean(each) for n, each in width.items() if each},
        "fewer": {key: np.median(each) for key, each in fewer.items()},
        "called": {n: np.mean(np.array(each) > 0) for n, each in calls.items() if each},
        "wrong": {n: np.mean(np.array(each) < 0) for n, each in calls.items() if each},
        "all looks": np.mean(kept),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--target", type=Path)
    options = parser.parse_args()
    systems = [one.name for one in load_systems(Path(__file__).parent / "systems-few-labels.yaml")]
    worlds = [read(options.results, home, systems) for home in options.collections]
    random, rows = np.random.default_rng(0), []
    for world in worlds:
        for name, probability in judges(world, [other for other in worlds if other is not world], random).items():
            found = play(world, probability, 7)
            called = "{:.0%}, {:.0%}, {:.0%}".format(*(found["called"].get(n, np.nan) for n in ANSWERS))
            rows.append([
                world.name, f"{name} ({auc(probability, world.labels):.2f})",
                ", ".join(f"{found['coverage'].get(n, np.nan):.3f}" for n in ANSWERS),
                f"{found['all looks']:.3f}",
                f"{found['width'].get(100, np.nan):.3f}",
                f"{found['fewer'].get((100, 'both'), np.nan):.1f}, {found['fewer'].get((100, 'pool'), np.nan):.1f}",
                called, f"{found['wrong'].get(200, np.nan):.1%}",
            ])  # fmt: skip
            print(rows[-1], flush=True)
    header = [
        "collection", "judge (AUC)", "coverage at 50, 100, 200", "at all looks", "width at 100",
        "fewer at 100: both, pool", "called by 50, 100, 200", "wrong",
    ]  # fmt: skip
    table = markdown_table(header, rows, right=[False, False, *[True] * 6])
    if options.target is None:
        print(table)
        return
    text = options.target.read_text(encoding="utf-8")
    before, rest = text.split(START)
    options.target.write_text(f"{before}{START}\n{table}{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
