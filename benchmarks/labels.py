"""What to do with pairs that the judge is not sure of, and where to cut: on human queries, without an LLM.

    python benchmarks/labels.py COLLECTION... --work runs/labels

The queries are people's. Each keeps one human positive, drawn at random, as a generated query keeps its source;
the other labels are made by `judge: {kind: rerankers}` with the recall and the voters of `--pipeline`, by coefficients
that were fitted on the other collections. The systems are ranked by these labels and by all human ones (Spearman).
Means over `--draws` sources; intervals: 95 %, queries resampled and sources drawn.

agreement: what is done with unsure pairs. "0/1 at the cut"; "unsure is 0" (a higher cut); "condensed": the ranked lists
without unsure pairs; "judged only": without all pairs that nobody judged (Sakai 2007); "drawn": mean over 20 draws of
unsure labels from their probabilities; "soft gains": the probabilities.
cuts: precision and recall of the added positives at each cut. Where people did not judge a pair, it counts as not
relevant ("of all"), so this is a lower bound; "of judged" looks at judged pairs alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from voters import IGNORED, LABEL_FROM, voter

from airgen.dataset.beir import BeirDataset
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.experiment import EvaluationOptions, evaluate
from airgen.evaluation.measures import parse_measure, score
from airgen.evaluation.rank_correlation import spearman
from airgen.evaluation.run import Run, read_run, run_from_dict
from airgen.evaluation.significance import resampled_means
from airgen.evaluation.systems import SystemSettings, load_systems
from airgen.keys import text_key
from airgen.pipeline.control.combined_judge import BY_RERANKERS, Combination
from airgen.pipeline.control.prelabels import prelabel_stages, prelabels_of
from airgen.pipeline.control.recall import RECALL
from airgen.pipeline.control.set_stage import SetWork, add_rows
from airgen.pipeline.control.table2 import pairs_to_judge
from airgen.pipeline.progress import Display
from airgen.quality.agreement.bias import models_of
from airgen.quality.judge.evidence import Evidence
from airgen.quality.judge.fit import fit_combination
from airgen.quality.judge.labelled_pairs import select_pairs
from airgen.records import Prelabel, Recall
from airgen.retrievers.shared_encodings import shared_encodings
from airgen.settings import ControlSettings, load_pipeline
from airgen.store import Store
from airgen.text.display import markdown_table

MEASURE, DEPTH = "nDCG@10", 10
TOP = 100  # hits of each system: enough for ten that are left
PAIRS = 200  # of each collection, for the fit
MINILM = "all-minilm-l6-v2-int8"
CUTS = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8)
BANDS = ((0.15, 0.35), (0.25, 0.45), (0.25, 0.6), (0.35, 0.6), (0.4, 0.8))

Labels = Mapping[str, Mapping[str, float]]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Collected:
    """One collection: human labels, the systems' runs, recall and votes of every query, and the pairs to fit on."""

    name: str
    labels: Labels
    runs: Mapping[str, Run]
    recalls: Mapping[str, Recall]
    prelabels: Mapping[str, list[Prelabel]]
    voted: Mapping[str, list[str]]
    evidence: Evidence

    @property
    def relevant_from(self) -> float:
        return LABEL_FROM.get(self.name, 1.0)

    def probabilities(self, judge: Combination) -> dict[str, dict[str, float]]:
        """{query: {document: P(relevant)}} of the pairs that quality control judges."""
        return {
            query: {id_: judge.probability(id_, self.recalls[query], self.prelabels[query], None) or 0.0 for id_ in ids}
            for query, ids in self.voted.items()
        }

    def sources(self, seed: int) -> dict[str, str]:
        """One human positive of each query."""
        random = np.random.default_rng(seed)
        found = {}
        for query, of in self.labels.items():
            positives = sorted(id_ for id_, label in of.items() if label >= self.relevant_from)
            found[query] = positives[random.integers(len(positives))]
        return found


def asked_queries(task: DatasetSplit, positive: float, most: int) -> dict[str, str]:
    """At most so many queries with a relevant passage, drawn by their ids."""
    labels = task.qrels.labels
    some = [key for key in task.queries if any(label >= positive for label in labels[key].values())]
    chosen = set(sorted(some, key=text_key)[:most])
    return {key: task.queries[key].text for key in some if key in chosen}


def recalled(
    folder: Path, control: ControlSettings, store: Store, work: Path, most: int
) -> tuple[DatasetSplit, SetWork]:
    """The collection, and quality control of its queries up to the recall."""
    dataset = BeirDataset.open(folder)
    task = DatasetSplit(dataset, "test", str(dataset.info.get("language") or "en"))
    places = {id_: place for place, id_ in enumerate(task.corpus.ids)}
    queries = asked_queries(task, LABEL_FROM.get(dataset.name, 1.0), most)
    display = Display(work / "status.json")
    found = SetWork(
        store, control, task.corpus, task.digest, places, queries, display, work / "embeddings", scope=task.digest
    )
    with shared_encodings(work / "embeddings"):
        return task, add_rows(RECALL, found)


def collect(
    folder: Path, control: ControlSettings, systems: Sequence[SystemSettings], store: Store, work: Path, most: int
) -> Collected:
    """Search, recall, vote; what was done before is kept in `work`."""
    task, done = recalled(folder, control, store, work, most)
    name, positive = task.dataset.name, LABEL_FROM.get(task.dataset.name, 1.0)
    with shared_encodings(work / "embeddings"):
        for stage in prelabel_stages(done):
            done = add_rows(stage, done)
        results = evaluate(task.dataset, systems, work / "results", EvaluationOptions(measures=[MEASURE], report=False))
    labels = {key: task.qrels.labels[key] for key in done.queries}
    recalls: dict[str, Recall] = done.rows("recall", Recall)
    prelabels = prelabels_of(done)
    runs = {}
    for one in results:
        ranked = dict(read_run(one.paths.run).ranked().items())
        runs[one.name] = run_from_dict({key: dict(ranked.get(key, [])[:TOP]) for key in labels})
    runs["recall"] = run_from_dict({key: dict(zip(one.ids, one.scores, strict=True)) for key, one in recalls.items()})
    for place, row in enumerate(next(iter(prelabels.values()))):
        of = {key: prelabels[key][place] for key in labels}
        runs[f"recall, then {row.model}"] = run_from_dict(
            {key: dict(zip(one.ids, one.scores, strict=True)) for key, one in of.items()}
        )
    bm25 = dict(runs["bm25"].items())
    pools = {}
    for key in labels:
        both = [*recalls[key].ids[:DEPTH], *(id_ for id_, _ in bm25[key][:DEPTH])]
        pools[key] = [id_ for id_ in dict.fromkeys(both) if id_ in set(recalls[key].ids)]
    pairs = select_pairs(labels, pools, PAIRS, relevant_from=positive, ignore=IGNORED.get(name, ()))
    evidence = Evidence(name, pairs, done.queries, {}, recalls, prelabels)
    voted = {
        key: [pair.id for pair in pairs_to_judge(key, "", [], prelabels[key], control.thresholds)] for key in labels
    }
    return Collected(name, labels, runs, recalls, prelabels, voted, evidence)


def fitted(others: Sequence[Collected]) -> Combination:
    return fit_combination([one.evidence for one in others], lambda *_: None, {}, BY_RERANKERS)


class Lists:
    """The systems' ranked lists as arrays, and nDCG@10 of all of them by any gains.

    place: {query: {document: column}} of everything that was found or judged. found: (systems, queries, TOP), columns;
    the last column stands for nothing.
    """

    def __init__(self, runs: Mapping[str, Run], known: Mapping[str, Sequence[str]]) -> None:
        self.queries = list(known)
        lists = [dict(run.items()) for run in runs.values()]
        self.place: dict[str, dict[str, int]] = {}
        for query in self.queries:
            ids = [id_ for of in lists for id_, _ in of.get(query, [])[:TOP]]
            self.place[query] = {id_: at for at, id_ in enumerate(dict.fromkeys([*known[query], *ids]))}
        self.width = max(map(len, self.place.values())) + 1
        self.found = np.full((len(runs), len(self.queries), TOP), self.width - 1)
        for row, of in enumerate(lists):
            for column, query in enumerate(self.queries):
                hits = [self.place[query][id_] for id_, _ in of.get(query, [])[:TOP]]
                self.found[row, column, : len(hits)] = hits
        self.discount = 1 / np.log2(np.arange(2, DEPTH + 2))

    def table(self, values: Labels) -> Floats:
        """{query: {document: value}} as (queries, columns)."""
        table = np.zeros((len(self.queries), self.width))
        for row, query in enumerate(self.queries):
            for id_, value in values.get(query, {}).items():
                table[row, self.place[query][id_]] = value
        return table

    def scores(self, gains: Floats, out: NDArray[np.bool_] | None = None) -> Floats:
        """nDCG@10, (systems, queries), by gains (queries, columns); without what is `out` (queries, columns)."""
        rows = np.arange(len(self.queries))[None, :, None]
        top = self.found[:, :, :DEPTH]
        if out is not None:
            order = np.argsort(out[rows, self.found], axis=2, kind="stable")[:, :, :DEPTH]
            top = np.take_along_axis(self.found, order, axis=2)
            gains = np.where(out, 0.0, gains)
        best = np.sort(gains, axis=1)[:, ::-1][:, :DEPTH] @ self.discount
        return np.asarray((gains[rows, top] @ self.discount) / np.where(best > 0, best, 1))


@dataclass(frozen=True)
class Made:
    """Every system's scores by labels that were made, (systems, queries): one entry for each draw."""

    draws: list[Floats]

    def figure(self, human: Floats, rows: Sequence[int], samples: int = 1000) -> tuple[float, float, float]:
        """Mean Spearman over the draws, and the interval over draws and queries."""
        means = [float(spearman(human[rows].mean(axis=1), one[rows].mean(axis=1))) for one in self.draws]
        found = []
        for seed, one in enumerate(self.draws):
            # The same queries are drawn on both sides: they are the same queries.
            some = max(1, samples // len(self.draws))
            pair = [resampled_means(side[rows], samples=some, seed=seed) for side in (human, one)]
            found.append(spearman(*pair))
        low, high = np.nanquantile(np.concatenate(found), [0.025, 0.975])
        return float(np.mean(means)), float(low), float(high)


class Bench:
    """The labels of one collection, made by a judge that has not seen it."""

    def __init__(self, one: Collected, judge: Combination, draws: int) -> None:
        self.one, self.judge = one, judge
        self.chances = one.probabilities(judge)
        known = {query: [*of, *self.chances[query]] for query, of in one.labels.items()}
        self.lists = Lists(one.runs, known)
        human = self.lists.table({query: {i: max(v, 0) for i, v in of.items()} for query, of in one.labels.items()})
        self.human = self.lists.scores(human)
        wanted = [parse_measure(MEASURE)]  # the arrays say what airgen's measure says
        first = score(one.runs["bm25"], one.labels, wanted).of(MEASURE)
        assert np.allclose(self.human[list(one.runs).index("bm25")], first)
        self.sources = [one.sources(seed) for seed in range(draws)]
        self.given = [self.lists.table({query: {id_: 1.0} for query, id_ in of.items()}) for of in self.sources]
        self.p = self.lists.table(self.chances)
        self.voted = self.lists.table({query: dict.fromkeys(of, 1.0) for query, of in self.chances.items()}) > 0

    def made(self, gains: Floats) -> Made:
        """Labels (queries, columns), added to each draw of the sources."""
        return Made([self.lists.scores(np.maximum(gains, source)) for source in self.given])

    def cut(self, at: float) -> Made:
        return self.made((self.voted & (self.p >= at)).astype(float))

    def soft(self) -> Made:
        return self.made(self.p)

    def source_alone(self) -> Made:
        return self.made(np.zeros_like(self.p))

    def condensed(self, low: float, high: float, *, judged_only: bool = False) -> Made:
        """0 below `low`, 1 from `high`, and lists without what lies between, or without all that nobody judged."""
        sure = (self.voted & (self.p >= high)).astype(float)
        out = self.voted & (self.p >= low) & (self.p < high)
        if judged_only:
            out |= ~self.voted
        return Made([self.lists.scores(np.maximum(sure, source), out & (source == 0)) for source in self.given])

    def drawn(self, low: float, high: float, times: int = 20) -> tuple[Made, Made]:
        """Unsure labels drawn from their probabilities: mean scores over the draws, and every draw by itself."""
        means, every = [], []
        unsure = self.voted & (self.p >= low) & (self.p < high)
        for place, source in enumerate(self.given):
            random = np.random.default_rng(place)
            found = []
            for _ in range(times):
                chosen = (self.voted & (self.p >= high)) | (unsure & (random.random(self.p.shape) < self.p))
                found.append(self.lists.scores(np.maximum(chosen, source)))
            means.append(np.mean(found, axis=0))
            every += found
        return Made(means), Made(every)

    def positives(self, at: float) -> dict[str, float]:
        """The added positives at a cut: how many a query, and how right they are."""
        right = added = judged = known = 0
        one = self.one
        for source in self.sources[:5]:
            for query, of in self.chances.items():
                labels = {id_: v for id_, v in one.labels[query].items() if v not in IGNORED.get(one.name, ())}
                some = [id_ for id_, p in of.items() if p >= at and id_ != source[query]]
                added += len(some)
                right += sum(labels.get(id_, 0) >= one.relevant_from for id_ in some)
                judged += sum(id_ in labels for id_ in some)
                known += sum(v >= one.relevant_from for v in labels.values()) - 1
        queries = 5 * len(self.chances)
        return {
            "added": added / queries,
            "precision": right / added if added else float("nan"),
            "of judged": right / judged if judged else float("nan"),
            "recall": right / known if known else float("nan"),
        }


def shown(value: tuple[float, float, float]) -> str:
    return f"{value[0]:.2f} [{value[1]:.2f}, {value[2]:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--pipeline", type=Path, default=Path("pipelines/agree.yaml"))
    parser.add_argument("--systems", type=Path, default=Path("benchmarks/systems-labels.yaml"))
    parser.add_argument("--work", type=Path, default=Path("runs/labels"))
    parser.add_argument("--voters", type=voter, nargs="+", help="in place of those of the pipeline")
    parser.add_argument("--queries", type=int, default=100, help="of each collection, at most")
    parser.add_argument("--top", type=int, default=100, help="passages that each retriever of the recall finds")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--fit-on", nargs="+", help="fit on these alone (never on the collection itself)")
    parser.add_argument("--tables", nargs="+", default=["agreement", "cuts"])
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    control, systems = load_pipeline(asked.pipeline).control, load_systems(asked.systems)
    recall, voters = control.recall.model_copy(update={"top_k": asked.top}), asked.voters or control.rerankers
    control = control.model_copy(update={"recall": recall, "rerankers": voters})
    with Store.open(asked.work / "work.duckdb") as store:
        found = [collect(one, control, systems, store, asked.work, asked.queries) for one in asked.collections]
    models = models_of(systems)
    weakened = {one.name for one in systems if one.weakened}
    names = list(found[0].runs)
    sets = {
        "all": list(range(len(names))),
        "not weakened": [place for place, name in enumerate(names) if name not in weakened],
        # The recall holds MiniLM, too.
        "without MiniLM": [place for place, name in enumerate(names) if name in models and MINILM not in models[name]],
    }
    for one in found:
        others = [other for other in found if other is not one and other.name in (asked.fit_on or [other.name])]
        judge = fitted(others)
        bench = Bench(one, judge, asked.draws)
        print(f"\n## {one.name}: {len(one.labels)} queries; fitted on {', '.join(o.name for o in others)}: "
              f"{dict(judge.weights)}, {judge.intercept}, threshold {judge.threshold}\n", flush=True)  # fmt: skip
        rows = []

        def row(name: str, made: Made, human: Floats = bench.human, rows: list[list[str]] = rows) -> None:
            rows.append([name, *(shown(made.figure(human, at)) for at in sets.values())])

        if "agreement" in asked.tables:
            row("the source alone", bench.source_alone())
            row(f"0/1 at {judge.threshold:.2f} (calibrated)", bench.cut(judge.threshold))
            row("soft gains", bench.soft())
            for low, high in BANDS:
                row(f"{low} to {high}: 0/1 in the middle", bench.cut((low + high) / 2))
                row(f"{low} to {high}: unsure is 0", bench.cut(high))
                row(f"{low} to {high}: condensed", bench.condensed(low, high))
                row(f"{low} to {high}: judged only", bench.condensed(low, high, judged_only=True))
                mean, every = bench.drawn(low, high, 10)
                row(f"{low} to {high}: drawn, mean", mean)
                row(f"{low} to {high}: each draw by itself", every)
            print(markdown_table(["labels", *sets], rows), flush=True)
        if "cuts" in asked.tables:
            rows = []
            for at in sorted({*CUTS, round(judge.threshold, 3)}):
                figures = bench.positives(at)
                agreement = [shown(bench.cut(at).figure(bench.human, some)) for some in sets.values()]
                rows.append([f"{at:g}", *(f"{value:.2f}" for value in figures.values()), *agreement])
            print(
                markdown_table(["cut", "added", "right of all", "of judged", "found of the rest", *sets], rows),
                flush=True,
            )


if __name__ == "__main__":
    main()
