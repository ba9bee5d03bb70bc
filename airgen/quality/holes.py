"""Holes: passages that systems rank high and that have no label. Judge them, blind to the system, and score again.

    holes = find_holes(runs, qrels, depth=10)            # (query id, passage id): the system is not named
    filled = fill(qrels, judge_all(holes))               # existing labels are never changed
    moves(runs, qrels, filled, "nDCG@10", 10)            # scores and ranks before and after, with intervals

BEIR's section 6: a pool collected with lexical systems has few holes for BM25 and many for dense retrievers, and
those gain most when the holes are judged.
"""

import importlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.measures import parse_measure, score
from airgen.evaluation.run import Run, read_run
from airgen.evaluation.significance import rank_bounds, resampled_means
from airgen.keys import text_key
from airgen.llms.base import Llm
from airgen.pipeline.ask import ask_about
from airgen.pipeline.control.judge import judge_pair
from airgen.pipeline.stage import Problem, Tools
from airgen.pipeline.stages import Flow
from airgen.prompts import PromptSet
from airgen.records import prompt_text
from airgen.settings import load_pipeline
from airgen.study import Column, Table
from airgen.text.display import json_text

Labels = Mapping[str, Mapping[str, float]]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Move:
    """One system before and after its holes were judged. Intervals are of 95 %, over queries that are drawn anew.

    change: of the score, after less before. ranks: the interval of the rank. holes: mean share of the top `depth`
    without a label for the query (BEIR's Hole@k counts a passage as judged if it has a label for any query).
    """

    system: str
    before: float
    after: float
    before_interval: tuple[float, float]
    after_interval: tuple[float, float]
    change: float
    change_interval: tuple[float, float]
    rank_before: int
    rank_after: int
    ranks_before: tuple[int, int]
    ranks_after: tuple[int, int]
    holes_before: float
    holes_after: float


def moves_table(systems: Sequence[Move], measure: str) -> str:
    """For a terminal: every system before and after."""
    shown = [
        Column("system", lambda one: one.system),
        Column(f"{measure} before", lambda one: one.before, ".3f"),
        Column("95 %", lambda one: one.before_interval, ".3f"),
        Column("after", lambda one: one.after, ".3f"),
        Column("95 %", lambda one: one.after_interval, ".3f"),
        Column("change", lambda one: one.change, "+.3f"),
        Column("95 %", lambda one: one.change_interval, "+.3f"),
        Column("rank", lambda one: one.rank_before),
        Column("95 %", lambda one: one.ranks_before),
        Column("after", lambda one: one.rank_after),
        Column("95 %", lambda one: one.ranks_after),
        Column("holes before", lambda one: one.holes_before, ".3f"),
        Column("after", lambda one: one.holes_after, ".3f"),
    ]
    return Table(systems, shown).text()


def find_holes(runs: Iterable[Run], qrels: Labels, depth: int) -> list[Pair]:
    """(query, passage) pairs in any run's top `depth` without a label for that query.

    Each once, in an order drawn from their ids: a judge can learn neither system nor rank from it.
    """
    found: set[Pair] = set()
    for run in runs:
        for query, hits in run.ranked().items():
            if query in qrels:
                found.update((query, passage) for passage, _ in hits[:depth] if passage not in qrels[query])
    return sorted(found, key=lambda pair: (text_key("\x1f".join(pair)), pair))


def fill(qrels: Labels, judged: Mapping[Pair, float]) -> dict[str, dict[str, float]]:
    """The labels with the new ones added; where both have one, the old one stays."""
    filled = {query: dict(labels) for query, labels in qrels.items()}
    for (query, passage), label in judged.items():
        filled.setdefault(query, {}).setdefault(passage, label)
    return filled


def moves(runs: Mapping[str, Run], before: Labels, after: Labels, measure: str, depth: int) -> list[Move]:
    """Every system, the best one after first. The same queries are drawn for all systems, before and after."""
    names, wanted = sorted(runs), parse_measure(measure)
    scores = np.stack([score(runs[name], labels, [wanted]).values[0] for labels in (before, after) for name in names])
    means, drawn = np.split(scores.mean(axis=1), 2), np.split(resampled_means(scores), 2, axis=1)
    ranks = [(1 + (of[None] > of[:, None]).sum(axis=1)).tolist() for of in means]
    spans = [rank_bounds(*each).tolist() for each in zip(means, drawn, strict=True)]
    change, changes = means[1] - means[0], drawn[1] - drawn[0]

    def span(of: NDArray[np.float64], at: int) -> tuple[float, float]:
        low, high = np.quantile(of[:, at], [0.025, 0.975]).tolist()
        return low, high

    found = [
        Move(
            name, float(means[0][at]), float(means[1][at]), span(drawn[0], at), span(drawn[1], at),
            float(change[at]), span(changes, at), ranks[0][at], ranks[1][at], tuple(spans[0][at]), tuple(spans[1][at]),
            hole_share(runs[name], before, depth), hole_share(runs[name], after, depth),
        )
        for at, name in enumerate(names)
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.rank_after, one.system))


class Ledger:
    """Judgments in a file of JSON lines. Each is written as soon as it is made, so no pair is judged twice.

    An incomplete last line, as a crash leaves it, is dropped. Raises DatasetError for any other unreadable line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.judged: dict[Pair, float] = {}
        self.verdicts: dict[Pair, tuple[int | None, float | None]] = {}
        if not path.exists():
            return
        text = path.read_bytes()
        whole, _, torn = text.rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                row = json.loads(line)
                pair = str(row["query-id"]), str(row["corpus-id"])
                self.judged[pair] = float(row["score"])
                level, probability = row.get("level"), row.get("probability")
                self.verdicts[pair] = (
                    None if level is None else int(level), None if probability is None else float(probability)
                )  # fmt: skip
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
                raise DatasetError(f"{path}:{number}: not a judgment ({error})") from error
        if torn:
            path.write_bytes(text[: len(text) - len(torn)])

    def add(self, pair: Pair, label: float, level: int | None = None, probability: float | None = None) -> None:
        """Keep one judgment, with the level and probability of the judge, if it gives them.

        Raises UsageError for a label that is not a finite number.
        """
        if not math.isfinite(label):
            raise UsageError(
                f"the judge gave {label} for query {pair[0]!r} and passage {pair[1]!r}: it must give a finite number"
            )
        self.judged[pair], self.verdicts[pair] = label, (level, probability)
        row = {"query-id": pair[0], "corpus-id": pair[1], "score": label}
        row |= {} if level is None else {"level": level, "probability": probability}
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json_text(row) + "\n")


def judged_in(
    out: Path,
    pairs: Sequence[Pair],
    queries: Mapping[str, str],
    texts: Mapping[str, str],
    *,
    ask: Callable[[str, str], float] | None = None,
    pipeline: Path | None = None,
    budget_usd: float | None = None,
    before_asking: Callable[[list[Pair]], bool] = lambda left: True,
) -> Ledger:
    """The judgments in OUT/judgments.jsonl, after a function of two texts or a pipeline's judge made those that lack.

    The pairs without one are written to OUT/holes.jsonl with their texts, so that people can label them. Nobody is
    asked if `before_asking` gives False for them.
    """
    out.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(out / "judgments.jsonl")
    left = [pair for pair in pairs if pair not in ledger.judged]
    rows = ({"query-id": q, "corpus-id": p, "query": queries[q], "text": texts[p]} for q, p in left)
    lines = "".join(json_text(row) + "\n" for row in rows)
    (out / "holes.jsonl").write_text(lines, encoding="utf-8", errors="surrogatepass")
    if not before_asking(left):
        return ledger
    if ask is not None:
        for query, passage in left:
            ledger.add((query, passage), float(ask(queries[query], texts[passage])))
    elif pipeline is not None:
        judge_with(pipeline, out, left, queries, texts, ledger, budget_usd=budget_usd)
    return ledger


def hole_share(run: Run, qrels: Labels, depth: int) -> float:
    """The mean share of the top `depth` without a label for the query; a missing query has no holes."""
    hits = dict(run.ranked().items())
    counts = [
        sum(passage not in labels for passage, _ in hits.get(query, [])[:depth]) for query, labels in qrels.items()
    ]
    return float(np.mean(counts)) / depth if counts else 0.0


def judge_with(
    pipeline: Path,
    out: Path,
    pairs: Sequence[Pair],
    queries: Mapping[str, str],
    texts: Mapping[str, str],
    ledger: Ledger,
    *,
    budget_usd: float | None = None,
) -> None:
    """Ask a pipeline's judge, with the prompts beside it; a pair that it refuses stays a hole.

    A level below the pipeline's cut becomes 0. The answers are kept in OUT/answers.duckdb. Raises UsageError for a
    pipeline whose judge asks no LLM.
    """
    settings, prompts = load_pipeline(pipeline), PromptSet.beside(pipeline.parent)
    judge = settings.control.judge
    if not judge.members:
        raise UsageError(f"{pipeline}: its judge is the re-rankers, which rank what was recalled: holes need an LLM")

    async def one(engine: Llm, pair: Pair) -> None:
        found = await judge_pair(Tools(settings, prompts, {}, engine), queries[pair[0]], texts[pair[1]])
        if not isinstance(found, Problem):
            ledger.add(pair, float(found.level >= judge.relevant_from), found.level, found.probability)

    rules = Flow().scripted
    ask_about(pairs, one, settings, out / "answers.duckdb", budget_usd=budget_usd, rules=rules)


@dataclass(frozen=True)
class JudgedHoles:
    """What became of the holes of some runs: their number, how many are judged, and how many are not in the dataset."""

    holes: int
    judged: int
    not_in_the_dataset: int
    systems: list[Move]


def judge_holes(
    home: Path,
    runs: Sequence[Path],
    out: Path,
    *,
    split: str,
    depth: int,
    measure: str,
    ask: Callable[[str, str], float] | None = None,
    pipeline: Path | None = None,
    budget_usd: float | None = None,
) -> JudgedHoles:
    """Judge the holes of run files with a function of two texts, or with a pipeline's judge, and score them again.

    Without either they are only counted and written to OUT/holes.jsonl. Raises DatasetError for runs of another
    dataset.
    """
    dataset = BeirDataset.open(home)
    labels = dataset.qrels(split).labels
    found = {str(path): read_run(path) for path in runs}
    pairs = find_holes(found.values(), labels, depth)
    wanted = {passage for _, passage in pairs}
    texts = {one.id: prompt_text(one.title, one.text) for one in dataset.passages() if one.id in wanted}
    queries = {key: query.text for key, query in dataset.queries().items()}
    known = [(query, passage) for query, passage in pairs if query in queries and passage in texts]
    if pairs and not known:
        raise DatasetError(f"none of the unjudged hits is in {home}: check that the runs belong to this dataset")
    ledger = judged_in(out, known, queries, texts, ask=ask, pipeline=pipeline, budget_usd=budget_usd)
    judged = {pair: ledger.judged[pair] for pair in pairs if pair in ledger.judged}
    changes = moves(found, labels, fill(labels, judged), measure, depth)
    return JudgedHoles(len(pairs), len(judged), len(pairs) - len(known), changes)


def judge_function(target: str) -> Callable[[str, str], Any]:
    """The function at `module:function`, from the working directory too. Raises UsageError."""
    module, _, name = target.replace(":", ".").rpartition(".")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--judge {target}: {error}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not callable(found):
        raise UsageError(f"--judge {target}: is not a function")
    return found  # type: ignore[no-any-return]
