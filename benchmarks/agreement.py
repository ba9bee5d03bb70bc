"""Measure how much agreement with human labels is lost through generated labels, apart from queries, without an LLM.

airgen evaluate COLLECTION... --systems pipelines/systems-agree.yaml --out results
python benchmarks/agreement.py results COLLECTION... --target labels.md

The queries are human, so nothing is lost by generation. Each query keeps one random human positive, as a generated
query keeps its source document. Its other labels are made from the top ranks of eight systems, and the systems are
ranked by these labels. The reference is the ranking by all human labels. Figures are means of 20 draws.

    --generated "from documents: cranfield=runs/agree-cranfield"

adds the same labels on queries that `airgen study agree` generated, with the same systems; their source is positive.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from airgen.dataset.beir import BeirDataset
from airgen.evaluation.measures import parse_measure, score
from airgen.evaluation.result import Paths
from airgen.evaluation.run import Run, read_run, run_from_dict
from airgen.evaluation.systems import SystemSettings, load_systems, models_of
from airgen.safety.escaping import markdown_table, md
from airgen.steps.votes import SOURCE_LABEL
from airgen.studies.agree.rankings import Side
from airgen.studies.rank_correlation import average_ranks, spearman

VOTERS = ("bm25", "dirichlet", "rm3", "lsa-100", "bm25-4grams", "minilm", "minilm-maxsim", "splade-tiny")
MAJORITY = ("bm25", "minilm-maxsim", "splade-tiny")  # the re-rankers of pipelines/agree.yaml
DEPTH, DRAWS, MEASURE = 10, 20, "nDCG@10"

Labels = Mapping[str, Mapping[str, float]]
Pools = dict[str, dict[str, NDArray[np.float64]]]


@dataclass(frozen=True)
class Collected:
    """A collection: its human labels, all systems' runs, and the pairs that the voters rank within `DEPTH`."""

    name: str
    labels: Labels
    runs: dict[str, Run]
    ranks: dict[str, dict[str, dict[str, int]]]  # voter -> query -> document -> rank

    def pool(self, voters: Sequence[str]) -> Pools:
        """{query: {document: features}}: each voter's reciprocal rank, and the share of votes within `DEPTH`."""
        found: Pools = {}
        for query in self.labels:
            ranks = [self.ranks[voter].get(query, {}) for voter in voters]
            pool = dict.fromkeys(id_ for of in ranks for id_, rank in of.items() if rank <= DEPTH)
            found[query] = {
                id_: np.array(
                    [1 / of[id_] if id_ in of else 0.0 for of in ranks]
                    + [sum(of.get(id_, DEPTH + 1) <= DEPTH for of in ranks) / len(voters)]
                )
                for id_ in pool
            }
        return found

    def side(self, labels: Labels) -> Side:
        """Return the scores of all systems by these labels."""
        wanted = [parse_measure(MEASURE)]
        return Side(tuple(self.runs), np.array([score(run, labels, wanted).of(MEASURE) for run in self.runs.values()]))


def read(results: Path, collection: Path, systems: Sequence[SystemSettings]) -> Collected:
    dataset = BeirDataset.open(collection)
    labels = {q: of for q, of in dataset.qrels("test").labels.items() if any(label > 0 for label in of.values())}
    return ranked_top(dataset.name, results / dataset.name / "test", labels, systems)


def read_generated(run: Path, systems: Sequence[SystemSettings]) -> Collected:
    """Read the queries of a finished `airgen study agree`, each with its source document."""
    dataset = BeirDataset.open(run / "dataset")
    lines = (run / "dataset" / "private" / "lineage.jsonl").read_text(encoding="utf-8").splitlines()
    sources = {row["query"]: {row["source"]: 1.0} for row in map(json.loads, lines)}
    known = dataset.queries()
    (folder,) = (run / "agreement" / "generated").glob("*/all")
    return ranked_top(dataset.name, folder, {q: of for q, of in sources.items() if q in known}, systems)


def ranked_top(name: str, folder: Path, labels: Labels, systems: Sequence[SystemSettings]) -> Collected:
    """Read the runs of all systems from a folder of results, up to the cutoff of the measure."""
    runs, ranks = {}, {}
    for one in systems:
        ranked = read_run(Paths.of(folder, one.name).run).ranked()
        # The measure looks no deeper, and there are many labels to score with.
        runs[one.name] = run_from_dict({query: dict(hits[:DEPTH]) for query, hits in ranked.items()})
        if one.name in VOTERS:
            ranks[one.name] = {
                query: {id_: rank for rank, (id_, _) in enumerate(hits[:100], 1)} for query, hits in ranked.items()
            }
    return Collected(name, labels, runs, ranks)


def judge(others: Sequence[Collected], voters: Sequence[str]) -> NDArray[np.float64]:
    """Fit a logistic regression on the pooled pairs of other collections, with equal weight for each collection."""
    features, relevant, weights = [], [], []
    for one in others:
        pairs = [(q, id_, x) for q, of in one.pool(voters).items() for id_, x in of.items()]
        features += [x for _, _, x in pairs]
        relevant += [one.labels[q].get(id_, 0) > 0 for q, id_, _ in pairs]
        weights += [1000 / len(pairs)] * len(pairs)
    return fit(np.array(features), np.array(relevant), np.array(weights))


def fit(features: NDArray[np.float64], labels: NDArray[np.bool_], each: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fit the coefficients and intercept of a logistic regression, by weighted log-loss with a ridge penalty."""
    rows, sign = np.hstack([features, np.ones((len(features), 1))]), np.where(labels, -1, 1)

    def loss(found: NDArray[np.float64]) -> float:
        return float(each @ np.logaddexp(0, sign * (rows @ found)) + found[:-1] @ found[:-1] / 2)

    return minimize(loss, np.zeros(rows.shape[1])).x  # type: ignore[no-any-return]


def predict(found: NDArray[np.float64], features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities, (n,)."""
    return expit(features @ found[:-1] + found[-1])  # type: ignore[no-any-return]


def one_positive(one: Collected, seed: int) -> dict[str, dict[str, float]]:
    random = np.random.default_rng(seed)
    drawn = {}
    for query, of in one.labels.items():
        positives = sorted(id_ for id_, label in of.items() if label > 0)
        drawn[query] = {positives[random.integers(len(positives))]: 1.0}
    return drawn


def ways(one: Collected, weights: NDArray[np.float64], seed: int, voters: Sequence[str]) -> dict[str, Labels]:
    """Return the labels of each method by name."""
    source, pool, majority = one_positive(one, seed), one.pool(voters), one.pool(MAJORITY)
    gains = {
        q: dict(zip(of, predict(weights, np.array(list(of.values()))).tolist(), strict=True)) if of else {}
        for q, of in pool.items()
    }
    voted = {q: {id_: 1.0 for id_, x in majority[q].items() if x[-1] > 0.5} for q in source}
    return {
        "one positive": source,
        "and what two of three re-rankers put in their top 10": {q: {**voted[q], **of} for q, of in source.items()},
        "the same, where the positive counts twice": {
            q: {**voted[q], **dict.fromkeys(of, float(SOURCE_LABEL))} for q, of in source.items()
        },
        "and what the fitted votes of eight call relevant (from .5)": {
            q: {**{id_: 1.0 for id_, gain in gains[q].items() if gain >= 0.5}, **of} for q, of in source.items()
        },
        "and the votes' probabilities as soft gains": {q: {**gains[q], **of} for q, of in source.items()},
        "the probabilities alone, no positive known": gains,
    }


def correlations(human: Side, made: Side, sets: Sequence[Sequence[str]]) -> list[float]:
    """Return Spearman's correlation for each set of systems."""
    return [float(spearman(human.of(names).means, made.of(names).means)) for names in sets]


def left_out(one: Collected, others: Sequence[Collected], systems: Sequence[SystemSettings], seed: int) -> Side:
    """Return each system's negated rank by soft gains of the voters that share no model with it."""
    models = models_of(systems)
    sides: dict[tuple[str, ...], Side] = {}
    places = []
    for name in one.runs:
        voters = tuple(voter for voter in VOTERS if not models[voter] & models[name])
        if voters not in sides:
            labels = ways(one, judge(others, voters), seed, voters)["and the votes' probabilities as soft gains"]
            sides[voters] = one.side(labels)
        # Labels from other voters give other means, so ranks are comparable but scores are not.
        place = average_ranks(-sides[voters].means)[list(one.runs).index(name)]
        places.append([-float(place)])
    return Side(tuple(one.runs), np.array(places))


def table(collections: Sequence[Collected], systems: Sequence[SystemSettings]) -> str:
    weakened = {one.name for one in systems if one.weakened}
    rows: dict[str, list[str]] = {}
    for one in collections:
        others = [other for other in collections if other is not one]
        weights = judge(others, VOTERS)
        every = [system.name for system in systems]
        strong = [name for name in every if name not in weakened]
        human = one.side(one.labels)
        found: dict[str, list[list[float]]] = {}
        for seed in range(DRAWS):
            for way, labels in ways(one, weights, seed, VOTERS).items():
                found.setdefault(way, []).append(correlations(human, one.side(labels), (every, strong)))
        found["soft gains, each system without its own models"] = [
            correlations(human, left_out(one, others, systems, seed), (every, strong)) for seed in range(3)
        ]
        for way, values in found.items():
            rows.setdefault(way, []).append("; ".join(f"{mean:.2f}" for mean in np.mean(values, axis=0)))
    header = ["labels on the human queries", *(md(one.name) for one in collections)]
    return markdown_table(header, [[way, *cells] for way, cells in rows.items()])


def generated_table(
    collections: Sequence[Collected], generated: Mapping[tuple[str, str], Collected], systems: Sequence[SystemSettings]
) -> str:
    """{(arm, collection): queries}: Spearman with the human ranking, all systems; without the weakened, by labels."""
    every = [system.name for system in systems]
    strong = [system.name for system in systems if not system.weakened]
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for (arm, name), one in generated.items():
        (human,) = (other for other in collections if other.name == name)
        others = [other for other in collections if other is not human]
        for way, labels in ways(one, judge(others, VOTERS), 0, VOTERS).items():
            values = correlations(human.side(human.labels), one.side(labels), (every, strong))
            cell = "; ".join(f"{value:.2f}" for value in values)
            cells.setdefault((arm, way), {})[name] = cell
        cells.setdefault((arm, "queries"), {})[name] = str(len(one.labels))
    names = list(dict.fromkeys(name for _, name in generated))
    rows = [[arm, way, *(of.get(name, "") for name in names)] for (arm, way), of in cells.items()]
    return markdown_table(["queries", "labels", *map(md, names)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--systems", type=Path, default=Path("pipelines/systems-agree.yaml"))
    parser.add_argument("--generated", action="append", default=[], metavar="ARM: COLLECTION=RUN")
    parser.add_argument("--target", type=Path)
    arguments = parser.parse_args()
    systems = load_systems(arguments.systems)
    collections = [read(arguments.results, path, systems) for path in arguments.collections]
    found = table(collections, systems)
    generated = {}
    for one in arguments.generated:
        arm, _, rest = one.partition(":")
        name, _, run = rest.strip().partition("=")
        generated[arm, name] = read_generated(Path(run), systems)
    if generated:
        found += "\n" + generated_table(collections, generated, systems)
    print(found)
    if arguments.target:
        arguments.target.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main()
