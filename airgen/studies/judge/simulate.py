"""Simulate better and worse judges by adding random errors to human labels, without an LLM.

    plan = SimulationPlan(pipeline, systems, Path("runs/judge"))
    simulate_judges([(Path("scifact"), Selection())], plan, display).study()

In each draw, one relevant passage of each query serves as its source. As in Table 2, the query is dropped if the judge
finds its source not relevant; otherwise, its positives are the source and the passages that the judge finds relevant
among those it sees. It sees the passages for which more than half of the re-rankers vote, or all recalled passages.
Systems are ranked by these labels and by human labels for the same queries. Unjudged passages count as not relevant.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import rng, text_key
from airgen.control.prelabel import prelabel_steps, prelabels_of
from airgen.control.recall import RECALL
from airgen.control.table2 import pairs_to_judge
from airgen.dataset.beir import BeirDataset
from airgen.display.study import Column, Shown, Study, Table
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.experiment import EvaluationOptions, evaluate
from airgen.evaluation.intervals import Interval
from airgen.evaluation.measures import score
from airgen.evaluation.run import Run, read_own_run, run_from_dict
from airgen.evaluation.systems import SystemSettings, labelling_models, made_labels
from airgen.retrievers.encoding_cache import shared_encodings
from airgen.safety.escaping import md
from airgen.settings import Pipeline
from airgen.steps.loops import run_whole
from airgen.steps.progress import Display
from airgen.storage.json_values import write_json
from airgen.storage.records import Recall
from airgen.storage.store import Store
from airgen.studies.judge.calibrate import Selection, query_set_of
from airgen.studies.rank_correlation import refuse_few, spearman

MEASURE = "nDCG@10"
DEPTH = 10  # depth of the runs, which the measure needs
Labels = Mapping[str, Mapping[str, float]]
Chance = Callable[[str, str], float]


@dataclass(frozen=True, slots=True)
class Judge:
    """A judge with errors, given by the shares of relevant passages that it misses and of other passages that it calls
    relevant."""

    name: str
    missed: float = 0.0
    mistaken: float = 0.0

    def says(self, relevant: bool, chance: float) -> bool:
        """Return the judge's answer for a pair. `chance` is uniform on [0, 1), so a worse judge also errs on the same
        pairs.
        """
        return relevant != (chance < (self.missed if relevant else self.mistaken))


JUDGES = (
    Judge("right"),
    Judge("10 % wrong", 0.1, 0.1),
    Judge("20 % wrong", 0.2, 0.2),
    Judge("30 % wrong", 0.3, 0.3),
    Judge("generous", mistaken=0.2),
    Judge("strict", missed=0.2),
)


def chance(seed: int, draw: int, query: str, id_: str) -> float:
    """Return the random number of a pair in a draw, which is the same for every judge, whatever else it sees."""
    return rng("simulated judge", seed, draw, query, id_).random()


def draw_sources(relevant: Mapping[str, Collection[str]], seed: int, draw: int) -> dict[str, str]:
    """Return a relevant passage of each query, which serves as the document from which it was generated."""
    return {query: rng("source", seed, draw, query).choice(sorted(ids)) for query, ids in relevant.items()}


def judged_labels(
    judge: Judge,
    seen: Mapping[str, Sequence[str]],
    sources: Mapping[str, str],
    relevant: Mapping[str, Collection[str]],
    luck: Chance,
    *,
    drop: bool = True,
) -> dict[str, dict[str, float]]:
    """Return the positives of each remaining query.

    Args:
        judge: The judge.
        seen: The passages of each query that the judge sees, in addition to the source.
        sources: The source of each query, which is always a positive.
        relevant: The passages that people call relevant.
        luck: Function that returns the random number of a query and a passage, such as `chance` for a draw.
        drop: Whether to leave out queries whose source the judge finds not relevant.
    """
    labels = {}
    for query, source in sources.items():

        def finds(id_: str, query: str = query) -> bool:
            return judge.says(id_ in relevant[query], luck(query, id_))

        if not drop or finds(source):
            labels[query] = dict.fromkeys([source, *(id_ for id_ in seen[query] if id_ != source and finds(id_))], 1.0)
    return labels


def system_means(runs: Mapping[str, Run], labels: Labels) -> NDArray[np.float64]:
    """Return the mean nDCG@10 of every system with these labels, in the order of their names, float64 (systems,)."""
    return np.array([score(runs[name], labels, MEASURE).means()[MEASURE] for name in sorted(runs)])


def agreement(runs: Mapping[str, Run], labels: Labels, people: NDArray[np.float64]) -> float:
    """Return the Spearman correlation of the systems' means by these labels with those by people's labels, or NaN if
    there are no labels or all systems have the same score."""
    return float(spearman(system_means(runs, labels), people)) if labels else np.nan


def relevant_passages(labels: Labels, least: float = 1, ignore: Collection[float] = ()) -> dict[str, set[str]]:
    """Return the passages with labels of at least `least`, except ignored labels, for each query that has any."""
    relevant = {
        query: {id_ for id_, label in row.items() if label >= least and label not in ignore}
        for query, row in labels.items()
    }
    return {query: ids for query, ids in relevant.items() if ids}


@dataclass(frozen=True)
class SimulationPlan:
    """Settings of the simulation.

    `pipeline` provides the recall and the re-rankers that choose what a judge sees. `systems` are the systems to rank.
    `work` is the folder for recall, scores and runs. `queries` is the number of queries to draw per collection, `draws`
    the number of draws of sources and errors, and `seed` the seed for both.
    """

    pipeline: Pipeline
    systems: Sequence[SystemSettings]
    work: Path
    queries: int = 30
    draws: int = 20
    seed: int = 0


@dataclass(frozen=True)
class SimulationEvidence:
    """The data of one collection. For each query: the passages that people call relevant, and `seen`, {votes or all:
    the passages that a judge sees}.

    `runs` are the top hits of each system. `all_queries` is the Spearman correlation of the systems' rankings by these
    queries and by all `total` queries, both with people's labels.
    """

    name: str
    relevant: Mapping[str, set[str]]
    seen: Mapping[str, Mapping[str, list[str]]]
    runs: Mapping[str, Run]
    all_queries: float
    total: int


@dataclass(frozen=True, slots=True)
class SimulatedJudge:
    """The Spearman correlation with people's ranking if the judge sees the votes' passages or all, and the share of
    remaining queries.

    Each value is the mean over the draws, and each interval contains 95% of them.
    """

    judge: str
    votes: Interval
    all: Interval
    left: float


@dataclass(frozen=True, slots=True)
class SimulatedCollection:
    """The result for one collection.

    `positives` is the mean number of relevant passages per query according to people. `pairs` is {votes or all:
    passages per query that the judge sees}, and `recalled` is {votes or all: the share of people's relevant passages
    among these}. `source` is the Spearman correlation if only the source is a positive and no judge is asked.
    `all_queries` is explained in `SimulationEvidence`.
    """

    collection: str
    queries: int
    total: int
    positives: float
    pairs: Mapping[str, float]
    recalled: Mapping[str, float]
    source: Interval
    all_queries: float
    judges: tuple[SimulatedJudge, ...]


@dataclass(frozen=True)
class JudgeSimulation(Shown):
    """The results for all collections. `shared` is {system: its models that recall or vote}."""

    systems: int
    draws: int
    seed: int
    collections: tuple[SimulatedCollection, ...]
    shared: Mapping[str, tuple[str, ...]]

    def study(self) -> Study:
        """Return the report."""
        parts: list[str | Table] = [
            f"Spearman of {self.systems} systems ({MEASURE}) with their ranking by people's labels of the same "
            f"queries: means of {self.draws} draws of sources and errors, with the range of 95 % of the draws. Other "
            "queries or systems would give other figures. People's labels play the judge, with errors: *generous* "
            "calls 20 % of the passages that are not relevant relevant, *strict* misses 20 % of the relevant ones. It "
            "sees the passages that more than half of the re-rankers vote for (*votes*), or all that were recalled "
            "(*all*).",
            f"Systems that share a model with recall or votes, so that their ranks may be too high: "
            f"{md(', '.join(self.shared))}."
            if self.shared
            else "",
        ]
        for collection in self.collections:
            parts += [
                f"## {md(collection.collection)}",
                f"{collection.queries} queries with {collection.positives:.1f} relevant passages each, of which the "
                f"votes' {collection.pairs['votes']:.1f} passages hold {collection.recalled['votes']:.0%} and all "
                f"{collection.pairs['all']:.1f} recalled ones {collection.recalled['all']:.0%}. The source alone, "
                f"without a judge: {_shown(collection.source)}. People's ranking by all {collection.total} queries "
                f"agrees with that by these at {collection.all_queries:.2f}.",
                Table(collection.judges, _COLUMNS),
            ]
        return Study("A better judge, simulated", parts)


_COLUMNS = (
    Column("judge", lambda row: row.judge),
    Column("votes", lambda row: row.votes, ".2f"),
    Column("all", lambda row: row.all, ".2f"),
    Column("queries left", lambda row: row.left, ".0%"),
)


def _shown(value: Interval) -> str:
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def simulate_judges(
    collections: Sequence[tuple[Path, Selection]], plan: SimulationPlan, display: Display
) -> JudgeSimulation:
    """Rank systems by the labels of simulated judges, and write `simulated.md` and `.json` to the plan's folder.

    Existing recall, scores and runs are reused. Raises UsageError if there are fewer than three systems or two
    collections have the same name, DatasetError if a collection has no relevant passages, and the errors of an
    evaluation.
    """
    refuse_few(len(plan.systems))
    counts = Counter(BeirDataset.open(folder).name for folder, _ in collections)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise UsageError(f"two collections are named {twice[0]!r}: rename one of the folders")
    plan.work.mkdir(parents=True, exist_ok=True)
    with Store.open(plan.work / "work.duckdb") as store, shared_encodings(plan.work / "embeddings"):
        evidence = [
            gather(store, folder, selection=selection, plan=plan, display=display) for folder, selection in collections
        ]
    with display.stage("draws", plan.draws * len(evidence)) as bar:
        rows = tuple(simulated(collection, plan.draws, plan.seed, lambda: bar.advance()) for collection in evidence)
    shared = made_labels(plan.systems, labelling_models(plan.pipeline.control))
    result = JudgeSimulation(
        systems=len(plan.systems), draws=plan.draws, seed=plan.seed, collections=rows, shared=shared
    )
    result.study().write(plan.work / "simulated.md")
    write_json(plan.work / "simulated.json", result)
    return result


def gather(
    store: Store, folder: Path, selection: Selection, plan: SimulationPlan, display: Display
) -> SimulationEvidence:
    """Run the systems, draw queries, recall and pre-label; existing results are reused."""
    dataset, control = BeirDataset.open(folder), plan.pipeline.control
    task = DatasetSplit(dataset, selection.split, str(dataset.info.get("language") or selection.language))
    known = relevant_passages(
        {query: task.qrels.labels[query] for query in task.queries}, selection.label_from, selection.ignore
    )
    if not known:
        raise DatasetError(
            f"{folder}: no passage is relevant to a query of the split {selection.split!r}: try another --split or "
            "--relevant-from"
        )
    options = EvaluationOptions(selection.split, [MEASURE], language=task.language, report=False)
    with display.stage(f"systems on {dataset.name}", len(plan.systems)) as bar:
        results = evaluate(
            dataset,
            plan.systems,
            plan.work / "results",
            options,
            progress=lambda line: bar.advance(note=line.split(": ", 1)[-1]),
        )
    runs = {result.name: first_hits(read_own_run(result.paths.run), known) for result in results}
    chosen = sorted(sorted(known), key=lambda query: text_key(f"simulated\x1f{plan.seed}\x1f{query}"))[: plan.queries]
    relevant = {query: known[query] for query in sorted(chosen)}
    queries = {query: task.queries[query].text for query in relevant}
    work = run_whole(
        RECALL,
        query_set_of(
            store, task, queries=queries, control=control, display=display, embeddings=plan.work / "embeddings"
        ),
    )
    for step in prelabel_steps(work.settings):
        work = run_whole(step, work)
    recalls, prelabels = work.rows("recall", Recall), prelabels_of(work)
    left_out = {
        query: {id_ for id_, label in task.qrels.labels[query].items() if label in selection.ignore}
        for query in relevant
    }
    recalled = {query: [id_ for id_ in recalls[query].ids if id_ not in left_out[query]] for query in relevant}
    voted = {
        query: [
            pair.id
            for pair in pairs_to_judge(
                query, "", negatives=[], prelabels=prelabels[query], thresholds=control.thresholds
            )
        ]
        for query in relevant
    }
    seen = {
        "votes": {query: [id_ for id_ in ids if id_ not in left_out[query]] for query, ids in voted.items()},
        "all": recalled,
    }
    rho = agreement(runs, as_labels(relevant), system_means(runs, as_labels(known)))
    own = {name: first_hits(run, relevant) for name, run in runs.items()}
    return SimulationEvidence(
        name=dataset.name, relevant=relevant, seen=seen, runs=own, all_queries=rho, total=len(known)
    )


def first_hits(run: Run, queries: Collection[str]) -> Run:
    """Return the hits of a run on which the measure depends, for these queries."""
    return run_from_dict({key: dict(hits[:DEPTH]) for key, hits in run.ranked().items() if key in queries})


def as_labels(relevant: Mapping[str, Collection[str]]) -> dict[str, dict[str, float]]:
    """Convert relevant passages to labels of 1."""
    return {query: dict.fromkeys(sorted(ids), 1.0) for query, ids in relevant.items()}


def simulated(evidence: SimulationEvidence, draws: int, seed: int, done: Callable[[], object]) -> SimulatedCollection:
    """Simulate all judges on one collection. `done` is called after each draw."""
    relevant, runs, seen = evidence.relevant, evidence.runs, evidence.seen
    people = system_means(runs, as_labels(relevant))
    alone: list[float] = []
    rhos: dict[tuple[str, str], list[float]] = defaultdict(list)
    left: dict[str, list[float]] = defaultdict(list)
    for draw in range(draws):
        sources = draw_sources(relevant, seed, draw)
        luck = cache(partial(chance, seed, draw))
        alone.append(agreement(runs, as_labels({query: [source] for query, source in sources.items()}), people))
        for judge in JUDGES:
            for sees, passages in seen.items():
                labels = judged_labels(judge, passages, sources=sources, relevant=relevant, luck=luck)
                rhos[judge.name, sees].append(agreement(runs, labels, people))
            left[judge.name].append(len(labels) / len(relevant))
        done()
    rows = [
        SimulatedJudge(
            judge.name,
            _over_draws(rhos[judge.name, "votes"]),
            _over_draws(rhos[judge.name, "all"]),
            fmean(left[judge.name]),
        )
        for judge in JUDGES
    ]
    positives = sum(map(len, relevant.values()))
    held = {
        sees: sum(len(ids & set(passages[query])) for query, ids in relevant.items()) / positives
        for sees, passages in seen.items()
    }
    return SimulatedCollection(
        collection=evidence.name,
        queries=len(relevant),
        total=evidence.total,
        positives=positives / len(relevant),
        pairs={sees: fmean(map(len, passages.values())) for sees, passages in seen.items()},
        recalled=held,
        source=_over_draws(alone),
        all_queries=evidence.all_queries,
        judges=tuple(rows),
    )


def _over_draws(values: Sequence[float]) -> Interval:
    """Return the mean and the middle 95% of the draws that have a value."""
    drawn = np.array(values)
    known = drawn[~np.isnan(drawn)]
    return Interval.of(float(known.mean()) if len(known) else np.nan, drawn)
