"""Evaluate a judge on pairs from human-labelled collections. It can be resumed like any job.

runs/judge/
    work.duckdb      recall, pre-labels and every answer of the LLM: asked once, whatever judge is tried next
    embeddings/      vectors by content and model
    JUDGE.md, .json  the figures of the last time that this judge was tried
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airgen.components.keys import text_key
from airgen.control.prelabel import prelabel_steps, prelabels_of
from airgen.control.query_set import QuerySet
from airgen.control.recall import RECALL
from airgen.dataset.beir import BeirDataset
from airgen.display.study import Shown, Study, Table
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.systems import model_or_kind
from airgen.generation.flow import Flow
from airgen.llms.base import Llm
from airgen.llms.prompts import PromptSet
from airgen.retrievers import load_retriever
from airgen.settings import ControlSettings, JudgeSettings, Pipeline
from airgen.settings.control import VOTES
from airgen.settings.spec import spec_given
from airgen.steps.ask import ask_about
from airgen.steps.judge import Verdict, judge_name, judge_pair, kind_of_prompt
from airgen.steps.loops import run_whole
from airgen.steps.progress import Display
from airgen.steps.step import Problem, Tools
from airgen.steps.votes import FEW, least_share, relevant, voted
from airgen.storage.json_values import plain, write_json
from airgen.storage.records import Prelabel, Recall
from airgen.storage.store import Store
from airgen.studies.judge import agreement
from airgen.studies.judge.agreement import Assessment, CalibrationPair, Opinion


@dataclass(frozen=True)
class Selection:
    """How to choose `count` pairs.

    `label_from` is the lowest human label that counts as relevant. Pairs with a label in `ignore` are left out.
    `language` is used for a collection whose manifest does not name one. With `source`, a relevant passage of each
    query, drawn by the seed, serves as its source, like the document of a generated query, and is not in any pair.
    """

    split: str = "test"
    count: int = 60
    depth: int = 10
    label_from: float = 1
    ignore: tuple[float, ...] = ()
    seed: int = 0
    language: str = "en"
    source: bool = False


@dataclass(frozen=True)
class Evidence:
    """The pairs of one collection, with pre-labels and sources by query id, and texts by id."""

    name: str
    pairs: list[CalibrationPair]
    queries: Mapping[str, str]
    documents: Mapping[str, str]
    prelabels: Mapping[str, list[Prelabel]]
    sources: Mapping[str, list[str]]


def gather(
    store: Store, folder: Path, selection: Selection, control: ControlSettings, display: Display, embeddings: Path
) -> Evidence:
    """Recall, select and pre-label, reusing the rows in the store.

    The pool of a query consists of the top `depth` hits of BM25 and of the recall model. Passages that were not
    recalled are left out, because quality control never judges them. Raises DatasetError if the pools contain no
    relevant passages, or only relevant ones.
    """
    dataset = BeirDataset.open(folder)
    task = DatasetSplit(dataset, selection.split, str(dataset.info.get("language") or selection.language))
    corpus, depth = task.corpus, selection.depth
    queries = {key: query.text for key, query in task.queries.items()}
    sources: dict[str, list[str]] = {}
    for key in queries if selection.source else ():
        labels = task.qrels.labels.get(key, {})
        candidates = [
            id_ for id_, label in labels.items() if label >= selection.label_from and label not in selection.ignore
        ]
        sources[key] = sorted(candidates, key=lambda id_: text_key(f"source\x1f{selection.seed}\x1f{key}\x1f{id_}"))[:1]
    work = run_whole(
        RECALL,
        query_set_of(
            store, task, queries=queries, control=control, display=display, embeddings=embeddings, sources=sources
        ),
    )
    recalls: dict[str, Recall] = work.rows("recall", Recall)
    pools = {key: [id_ for id_ in recalls[key].ids if id_ not in sources.get(key, ())] for key in queries}
    bm25 = load_retriever("bm25")
    bm25.index(corpus)
    hits = bm25.search(list(queries.values()), depth)
    for place, key in enumerate(queries):
        both = [*recalls[key].ids[:depth], *(corpus.ids[at] for at in hits.positions[place] if at >= 0)]
        recalled = set(pools[key])
        pools[key] = [id_ for id_ in dict.fromkeys(both) if id_ in recalled]
    every = agreement.every_pair(task.qrels.labels, pools, relevant_from=selection.label_from, ignore=selection.ignore)
    pairs = agreement.select_pairs(every, selection.count, seed=selection.seed)
    if not pairs:
        raise DatasetError(
            f"{folder}: the top {depth} of BM25 and the recall model contain no relevant passage, or only "
            f"relevant ones: try a larger --depth, another --split or another --relevant-from"
        )
    chosen = {pair.query: queries[pair.query] for pair in pairs}
    work = replace(work, queries=chosen)
    for step in prelabel_steps(work.settings):
        work = run_whole(step, work)
    documents = work.documents({pair.id for pair in pairs})
    return Evidence(
        name=dataset.name,
        pairs=pairs,
        queries=queries,
        documents=documents,
        prelabels=prelabels_of(work),
        sources=sources,
    )


def query_set_of(
    store: Store,
    task: DatasetSplit,
    queries: Mapping[str, str],
    control: ControlSettings,
    display: Display,
    embeddings: Path,
    sources: Mapping[str, Sequence[str]] = {},
) -> QuerySet:
    """Return a human-labelled collection's queries, {id: text}, for the steps of quality control."""
    corpus = task.corpus
    # Rows in another language belong to another corpus.
    digest = task.digest if task.language == "en" else f"{task.digest}-{task.language}"
    places = {id_: place for place, id_ in enumerate(corpus.ids)}
    return QuerySet(
        store=store,
        display=display,
        settings=control,
        corpus=corpus,
        digest=digest,
        places=places,
        queries=queries,
        embeddings=embeddings,
        scope=digest,
        sources=sources,
    )


_SHORT = {"judge_yes_no": "small/judge_yes_no", "rubric": "judge_rubric"}


@dataclass(frozen=True)
class JudgeTrial:
    """The setup for evaluating a judge: the pipeline with its models, its prompts, and the folder for all answers.

    `words` is the maximum number of words of a document that an LLM reads.
    """

    pipeline: Pipeline
    prompts: PromptSet
    work: Path
    words: int | None = None
    budget_usd: float | None = None


@dataclass(frozen=True)
class Calibration(Shown):
    """The result: tables by title, with a row per collection."""

    judge: str
    about: str
    tables: Mapping[str, list[Assessment]]
    refusals: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> Any:
        """Plain values for JSON."""
        return plain(vars(self), 6)

    def study(self) -> Study:
        """Return the report."""
        tables: list[str | Table] = []
        for title, table in self.tables.items():
            tables += [f"## {title}", *agreement.assessments_table(table)]
        lost = "; ".join(f"{count} x {why}" for why, count in self.refusals.items())
        return Study(f"Calibration of {self.judge}", [self.about, *tables, lost and f"No opinion: {lost}"])


def calibrate(
    judge: str, collections: Sequence[tuple[Path, Selection]], trial: JudgeTrial, display: Display
) -> Calibration:
    """Evaluate a judge on some collections, and write the report to the trial's folder.

    `judge` is a prompt's name (`judge`, `judge_yes_no`, `rubric`, ...), `pipeline` for the pipeline's own judge or
    panel, `votes` for the votes of its re-rankers, or a re-ranker. For votes, a relevant passage of each query is drawn
    as its source, and is not in any pair. Raises UsageError if there is no such judge, and Stopped (resumable) if the
    user or the budget ends it.
    """
    pipeline, prompts, work = trial.pipeline, trial.prompts, trial.work
    by_votes = judge == VOTES or (judge == "pipeline" and not pipeline.control.judge.members)
    if by_votes:
        settings, rerankers = None, pipeline.control.rerankers
        collections = [(folder, replace(selection, source=True)) for folder, selection in collections]
    else:
        settings = pipeline.control.judge if judge == "pipeline" else _prompt_judge(judge, pipeline, prompts)
        rerankers = [spec_given("reranker", judge)] if settings is None else []
    control = pipeline.control.model_copy(update={"rerankers": rerankers, "judge": settings or pipeline.control.judge})
    pipeline = pipeline.model_copy(update={"control": control})
    with Store.open(work / "work.duckdb") as store:
        every_evidence = [
            gather(store, folder, selection=selection, control=control, display=display, embeddings=work / "embeddings")
            for folder, selection in collections
        ]
        counts = Counter(evidence.name for evidence in every_evidence)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise UsageError(f"two collections are named {twice[0]!r}: rename one of the folders")
        threshold, refused = None, Counter[str]()
        if by_votes:
            title, threshold = "By the votes", least_share(pipeline.relevance, len(control.rerankers))
            names = ", ".join(map(model_or_kind, control.rerankers))
            few = (
                f"; where more than {FEW} besides the source do, only the source"
                if pipeline.relevance == "answer"
                else ""
            )
            about = (
                f"A passage is relevant if every re-ranker puts it at least {threshold:g} of the way from the query's "
                f"typical candidate to its source ({names}){few}."
                if math.isfinite(threshold)
                else f"One re-ranker is not a majority ({names}), so only a query's source is relevant."
            )
            opinions = [_by_votes(evidence, pipeline.relevance, len(control.rerankers)) for evidence in every_evidence]
        elif settings is None:
            title, about = "By score", "A re-ranker, by its score."
            opinions = [_by_score(evidence) for evidence in every_evidence]
        else:
            models = ", ".join((member.llm or pipeline.llm).model for member in control.judge.members)
            title, about = "By the LLM", f"The prompt {judge_name(pipeline)}, answered by {models}."
            opinions, refused = _by_llm(store, replace(trial, pipeline=pipeline), every_evidence, display)
    rows = [
        agreement.assess(evidence.name, evidence.pairs, answers, threshold=threshold)
        for evidence, answers in zip(every_evidence, opinions, strict=True)
    ]
    result = Calibration(judge, about, {title: rows}, dict(refused.most_common()))
    name = "".join(char if char.isalnum() or char in "-_" else "-" for char in judge.removesuffix(".json"))
    result.study().write(work / f"{name}.md")
    write_json(work / f"{name}.json", result)
    return result


def _prompt_judge(judge: str, pipeline: Pipeline, prompts: PromptSet) -> JudgeSettings | None:
    """Return the settings for a prompt's name, or None for anything else, which must then be a re-ranker."""
    name = _SHORT.get(judge, judge)
    if name not in prompts.names():
        return None
    prompt = prompts.get(name)
    if set(prompt.inputs) != {"query", "document"}:
        raise UsageError(f"the prompt {name!r} is not a judge prompt: its inputs are {', '.join(prompt.inputs)}")
    kind, own = kind_of_prompt(prompt), pipeline.control.judge
    values = {"prompt": name, "kind": kind, "llm": own.llm, "threshold": own.threshold}
    return JudgeSettings.model_validate(values)


def _by_votes(evidence: Evidence, relevance: str, voters: int) -> list[Opinion | None]:
    """Return the opinions by votes, or None for a query whose source is missing or not recognised by a re-ranker."""
    sources = {key: evidence.sources.get(key, ()) for key in evidence.prelabels}
    shares_of = {key: voted(rows, sources[key]) for key, rows in evidence.prelabels.items()}
    chosen = {key: relevant(shares, sources[key], relevance, voters) for key, shares in shares_of.items()}
    shares = [shares_of[pair.query].get(pair.id) for pair in evidence.pairs]
    return [
        None if share is None else Opinion(share, 2 if pair.id in chosen[pair.query] else 0)
        for pair, share in zip(evidence.pairs, shares, strict=True)
    ]


def _by_score(evidence: Evidence) -> list[Opinion | None]:
    scores = {query: dict(zip(row.ids, row.scores, strict=True)) for query, (row,) in evidence.prelabels.items()}
    return [Opinion(scores[pair.query][pair.id]) for pair in evidence.pairs]


def _by_llm(
    store: Store, trial: JudgeTrial, every_evidence: Sequence[Evidence], display: Display
) -> tuple[list[list[Opinion | None]], Counter[str]]:
    """Return the opinion on every pair, or why there is none. Pairs with the same document are adjacent, for prefix
    caches.
    """
    pairs = [
        (evidence, pair)
        for evidence in every_evidence
        for pair in sorted(evidence.pairs, key=lambda pair: (pair.id, pair.query))
    ]

    async def judge(engine: Llm, item: tuple[Evidence, CalibrationPair]) -> Verdict | Problem:
        evidence, pair = item
        tools = Tools(trial.pipeline, trial.prompts, {}, engine)
        words = evidence.documents[pair.id].split(" ")[: trial.words]
        return await judge_pair(tools, evidence.queries[pair.query], " ".join(words))

    with display.stage("judgments", len(pairs)) as bar:
        verdicts = ask_about(
            pairs,
            judge,
            trial.pipeline,
            store,
            budget_usd=trial.budget_usd,
            progress=lambda done: bar.advance(done - bar.done),
            rules=Flow().scripted,
        )
    opinions: dict[tuple[str, CalibrationPair], Opinion | None] = {}
    for (evidence, pair), verdict in zip(pairs, verdicts, strict=True):
        opinions[evidence.name, pair] = None if isinstance(verdict, Problem) else _opinion(verdict)
    refused = Counter(verdict.reason for verdict in verdicts if isinstance(verdict, Problem))
    return [[opinions[evidence.name, pair] for pair in evidence.pairs] for evidence in every_evidence], refused


def _opinion(verdict: Verdict) -> Opinion:
    score = float(verdict.level) if verdict.probability is None else verdict.probability
    return Opinion(score, verdict.level, verdict.probability)
