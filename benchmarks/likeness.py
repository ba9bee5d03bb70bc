"""What the likeness to a query's source is worth to labels, by the runs of a finished `airgen agree`; no LLM is asked.

    airgen agree A --pipeline P.yaml --systems pipelines/systems-agree.yaml --from any      # and B
    python benchmarks/likeness.py A B --pipeline P.yaml --runs runs

Voters are systems whose runs are there: MiniLM, MaxSim, e5, static vectors, SPLADE, BM25. The recall is that of
pipelines/agree.yaml (MiniLM, RM3, LSA and BM25, fused), and a passage's features are computed from these runs as the
combined judge computes them. Each collection is labelled by weights that were fitted on people's queries of the others.

`people's`: their queries keep one relevant passage each, drawn at random, as the source (three draws); the rest of
their labels is made again. `generated`: the queries of `airgen agree`, with their source. Both are Spearman with the
ranking by all human labels, of all systems. AUC: of relevant against other recalled passages, on people's queries.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirDataset
from airgen.evaluation.measures import parse_measure, score
from airgen.evaluation.rank_correlation import spearman
from airgen.evaluation.result import Paths
from airgen.evaluation.run import Run, read_run
from airgen.evaluation.systems import load_systems
from airgen.pipeline.control.source_likeness import cosines
from airgen.quality.agreement.scored_sides import agree_job
from airgen.quality.judge.agreement_figures import auc, best_threshold
from airgen.quality.judge.logistic import fit, predict
from airgen.retrievers import load_embedder
from airgen.text.display import markdown_table

RECALL = ("minilm", "rm3", "lsa-100", "bm25")
VOTERS = ("minilm-maxsim", "minilm", "e5", "static", "splade-tiny", "bm25")
SETS: dict[str, tuple[str, ...]] = {
    "MaxSim, MiniLM": VOTERS[:2], "MaxSim, MiniLM, e5": VOTERS[:3], "MaxSim, MiniLM, e5, static": VOTERS[:4],
    "MaxSim, MiniLM, e5, static, SPLADE": VOTERS[:5], "all six": VOTERS, "MaxSim, e5": VOTERS[:3:2],
    "e5, static": VOTERS[2:4], "the recall alone": (),
}  # fmt: skip
FEATURES = {"scores, votes": (0, 1), "scores, votes, likeness": (0, 1, 2), "likeness": (2,)}
TOP, NEAR, VOTE, REFERENCE, DRAWS = 100, 10, 10, 100, 3
LABEL_FROM = {"medquad-liveqa-open": 2.0}  # 1 is "related, but no answer"
MEASURE, EMBEDDER = "nDCG@10", "all-minilm-l6-v2-int8"
Floats = NDArray[np.float64]
Labels = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Recalled:
    """One query's recalled passages: z-scores and votes by list (the recall first), likeness, and who is near."""

    ids: list[str]
    scores: Floats
    votes: Floats
    likeness: Floats
    near: NDArray[np.bool_]

    def features(self, voters: Sequence[str]) -> Floats:
        rows = [0, *(1 + VOTERS.index(one) for one in voters)]
        return np.stack([self.scores[rows].mean(0), self.votes[rows].mean(0), self.likeness], 1)


@dataclass(frozen=True)
class Queries:
    """Some queries, each system's run on them, and their relevant passages."""

    runs: Mapping[str, Run]
    labels: Labels

    def hits(self, system: str) -> dict[str, dict[str, float]]:
        return {key: dict(found) for key, found in self.runs[system].ranked().items()}

    def means(self, labels: Labels) -> list[float]:
        wanted = [parse_measure(MEASURE)]
        return [float(score(run, labels, wanted).of(MEASURE).mean()) for run in self.runs.values()]


def recalled(queries: Queries, sources: Mapping[str, str], vectors: Mapping[str, Floats]) -> dict[str, Recalled]:
    """Features by query, as quality control computes them."""
    hits = {system: queries.hits(system) for system in {*RECALL, *VOTERS}}
    found = {}
    for key, source in sources.items():
        fused: dict[str, float] = {}
        for system in RECALL:
            for rank, id_ in enumerate(list(hits[system].get(key, {}))[:TOP], 1):
                fused[id_] = fused.get(id_, 0.0) + 1 / (60 + rank)
        ids = sorted(fused, key=lambda id_: (-fused[id_], id_))
        lists = [[fused[id_] for id_ in ids]]
        for voter in VOTERS:
            mine = hits[voter].get(key, {})
            lists.append([mine.get(id_, min(mine.values(), default=0.0)) for id_ in ids])
        values = np.array(lists)
        reference = values[:, :REFERENCE]
        spread = np.maximum(reference.std(1, keepdims=True), 1e-12)
        votes = np.array([[(of > one).sum() < VOTE for one in row] for row, of in zip(values, reference, strict=True)])
        like = cosines(np.array([vectors[id_] for id_ in ids]), vectors[source][None])
        others = np.array([one for one, id_ in zip(like, ids, strict=True) if id_ != source])[:REFERENCE]
        ranks = np.argsort(np.argsort(-values, 1, kind="stable"), 1)
        found[key] = Recalled(
            ids, (values - reference.mean(1, keepdims=True)) / spread, votes.astype(float),
            (like - others.mean()) / others.std(), ranks[[0, 1 + VOTERS.index("bm25")]].min(0) < NEAR,
        )  # fmt: skip
    return found


@dataclass
class Collection:
    """A collection with both sides, their features, and the ranking of the systems by people's labels."""

    name: str
    people: Queries
    generated: Queries
    sources: list[dict[str, str]]
    drawn: list[dict[str, Recalled]]
    made_from: dict[str, str]
    made: dict[str, Recalled]
    ranking: list[float]

    @classmethod
    def of(cls, folder: Path, pipeline: Path, runs: Path, systems: Sequence[str]) -> Collection:
        dataset, job = BeirDataset.open(folder), agree_job(folder, pipeline, runs, sources="any")
        least = LABEL_FROM.get(dataset.name, 1.0)
        passages = list(dataset.passages())
        embedder = load_embedder(EMBEDDER)
        rows = np.vstack([embedder.encode([f"{one.title} {one.text}"], "passage") for one in passages])
        vectors = {one.id: row.astype(np.float64) for one, row in zip(passages, rows, strict=True)}
        labels = positives(dataset.qrels("test").labels, 1e-9)
        relevant = positives(dataset.qrels("test").labels, least)
        (human,) = (runs / "collections" / dataset.name).glob("*/test")
        people = Queries({name: read_run(Paths.of(human, name).run) for name in systems}, labels)
        kept = job.directory / "agreement"
        (where,) = (*kept.glob("without-control/*/all"),) or kept.glob("generated/*/all")
        naive = positives(BeirDataset.open(kept / "datasets" / "without-control").qrels("all").labels, 1e-9)
        generated = Queries({name: read_run(Paths.of(where, name).run) for name in systems}, naive)
        random = np.random.default_rng(1)
        sources = [{key: str(random.choice(sorted(of))) for key, of in relevant.items()} for _ in range(DRAWS)]
        made_from = {key: next(iter(of)) for key, of in naive.items()}
        return cls(
            dataset.name, people, generated, sources, [recalled(people, one, vectors) for one in sources],
            made_from, recalled(generated, made_from, vectors), people.means(labels),
        )  # fmt: skip

    def rows(self, voters: Sequence[str], near: bool) -> tuple[Floats, NDArray[np.bool_], Floats]:
        """Features, relevance and weights of people's pairs: those near the top of BM25 or the recall, or all."""
        values, relevant = [], []
        for sources, drawn in zip(self.sources, self.drawn, strict=True):
            for key, one in drawn.items():
                others = np.array([id_ != sources[key] for id_ in one.ids])
                chosen = others & (one.near if near else True)
                values.append(one.features(voters)[chosen])
                relevant.append(np.array([id_ in self.people.labels[key] for id_ in one.ids])[chosen])
        answer = np.concatenate(relevant)
        share = answer.mean() if near else 0.5  # of sampled pairs, half are relevant
        weights = np.where(answer, 0.5 / share, 0.5 / (1 - share))
        return np.vstack(values), answer, weights / weights.sum()


def positives(labels: Mapping[str, Mapping[str, float]], least: float) -> Labels:
    found = {key: {id_: one for id_, one in of.items() if one >= least} for key, of in labels.items()}
    return {key: of for key, of in found.items() if of}


def labelled(found: Mapping[str, Recalled], sources: Mapping[str, str], judge: Any) -> Labels:
    """The source, and what the judge calls relevant."""
    labels: Labels = {}
    for key, one in found.items():
        yes = judge(one)
        labels[key] = {sources[key]: 1.0} | {id_: 1.0 for id_, is_ in zip(one.ids, yes, strict=True) if is_}
    return labels


def cut_for(found: Mapping[str, Recalled], sources: Mapping[str, str], score_of: Any, positives_: float) -> float:
    """The cut that gives a query so many positives in the mean, its source among them."""
    every = [
        value for key, one in found.items() for id_, value in zip(one.ids, score_of(one), strict=True)
        if id_ != sources[key]
    ]  # fmt: skip
    return float(np.sort(every)[::-1][min(len(every) - 1, round((positives_ - 1) * len(found)))])


def row(
    one: Collection,
    others: Sequence[Collection],
    voters: Sequence[str],
    which: Sequence[int],
    near: bool,
    count: float | None = None,
) -> list[str]:
    """One collection's cells of a row: the AUC, and both agreements with the positives a query."""
    parts = [other.rows(voters, near) for other in others]
    values, relevant = np.vstack([part[0] for part in parts])[:, which], np.concatenate([part[1] for part in parts])
    weights = np.concatenate([part[2] for part in parts]) * len(relevant) / len(parts)
    found = fit(values, relevant, ridge=1.0, weights=weights)
    cut = best_threshold(predict(found, values), relevant, weights)

    def score_of(of: Recalled) -> Floats:
        return predict(found, of.features(voters)[:, which])

    def again_for(drawn: Mapping[str, Recalled], sources: Mapping[str, str]) -> Labels:
        least = cut if count is None else cut_for(drawn, sources, score_of, count)
        return labelled(drawn, sources, lambda of: score_of(of) >= least)

    own, answer, _ = one.rows(voters, near=False)
    again = [again_for(drawn, sources) for drawn, sources in zip(one.drawn, one.sources, strict=True)]
    made = again_for(one.made, one.made_from)
    people = np.mean([spearman(one.ranking, one.people.means(labels)) for labels in again])
    generated = spearman(one.ranking, one.generated.means(made))
    sizes = [np.mean([len(of) for of in labels.values()]) for labels in (again[0], made)]
    area = auc(predict(found, own[:, which]), answer)
    return [f"{area:.2f}", f"{people:.2f} ({sizes[0]:.0f})", f"{generated:.2f} ({sizes[1]:.0f})"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument(
        "--fit-on", type=Path, nargs="*", default=[], help="further collections, which are fitted on only"
    )
    parser.add_argument("--pipeline", type=Path, default=Path("pipelines/agree.yaml"))
    parser.add_argument("--systems", type=Path, default=Path("pipelines/systems-agree.yaml"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument(
        "--all-pairs", action="store_true", help="fit on all recalled pairs instead of those near the top"
    )
    parser.add_argument(
        "--positives", type=float, help="cut where a query has so many positives, not where kappa is best"
    )
    asked = parser.parse_args()
    systems = [one.name for one in load_systems(asked.systems)]
    given = [*asked.collections, *asked.fit_on]
    every = [Collection.of(folder, asked.pipeline, asked.runs, systems) for folder in given]
    tried = every[: len(asked.collections)]
    header = [
        "voters",
        "features",
        *(f"{one.name}: {what}" for one in tried for what in ("AUC", "people's", "generated")),
    ]
    rows = []
    for one in tried:
        alone = {key: {id_: 1.0} for key, id_ in one.sources[0].items()}
        only = {key: {id_: 1.0} for key, id_ in one.made_from.items()}
        rows.append(
            [spearman(one.ranking, side.means(of)) for side, of in ((one.people, alone), (one.generated, only))]
        )
    table = [["nobody", "the source alone", *(cell for pair in rows for cell in ("", *(f"{one:.2f}" for one in pair)))]]
    for name, voters in SETS.items():
        for features, which in FEATURES.items():
            if features != "likeness" or not voters:
                cells = []
                for one in tried:
                    fitted_on = [other for other in every if other is not one]
                    cells += row(one, fitted_on, voters, which, not asked.all_pairs, asked.positives)
                table.append([name if features != "likeness" else "nobody", features, *cells])
    print(markdown_table(header, table))


if __name__ == "__main__":
    main()
