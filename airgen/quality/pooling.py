"""Pooling from submissions: judge what submitted systems found and nobody judged, and see who moves.

    found = judge_submissions(dataset, [Path("submissions")], Path("holes"), pipeline=Path("notes.yaml"))
    found.moves                    # scores and ranks before and after, with intervals

The re-rankers of the pipeline's quality control vote on the hits without a label, and its LLM judges what more than
half of them rank high. No judge learns which system found a passage. The judgments become the labels of the next
version. Answers and votes are kept in the folder: a second call asks nothing, and a stopped one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from airgen.dataset.beir import BeirDataset
from airgen.dataset.content import ModelUse, QrelRow
from airgen.dataset.derive import check_next_version, with_more_labels
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.run import Run, run_from_dict
from airgen.keys import content_key, fingerprint, row_key, text_key
from airgen.pipeline.control.recall import prelabel_stages, prelabels_of
from airgen.pipeline.control.set_stage import SetWork, add_rows
from airgen.pipeline.control.table2 import pairs_to_judge
from airgen.pipeline.estimate import Estimate, estimate_judgments
from airgen.pipeline.progress import Display
from airgen.prompts import PromptSet
from airgen.publishing.scores import Labels as PrivateLabels
from airgen.publishing.scores import load_labels, reasons_to_refuse
from airgen.publishing.submission import Results, Submission, reasons_of
from airgen.publishing.withhold import pair_of
from airgen.quality.holes import Ledger, Move, Pair, fill, find_holes, judge_with, moves, moves_table, write_holes
from airgen.records import Recall
from airgen.settings import ControlSettings, Pipeline, load_pipeline
from airgen.store import Store


def read_submissions(places: Sequence[Path], labels: PrivateLabels) -> tuple[dict[str, Run], dict[str, list[str]]]:
    """(the runs of all submissions on this split by the system's name, the reasons of those that are refused, by file).

    A place is a zip, or a folder of zips. Results of other datasets are passed over. Raises DatasetError for a folder
    without zips, for two submissions of one name, and where every submission is refused.
    """
    found: dict[str, tuple[Path, Run]] = {}
    refused: dict[str, list[str]] = {}
    for path in _zips(places):
        mine, reasons = _results(path, labels)
        if reasons:
            refused[str(path)] = reasons
            continue
        for one in mine:
            name = f"{one.model} + {one.reranker}"
            if name in found:
                raise DatasetError(
                    f"{found[name][0]} and {path} are both submissions of {name}: move away the one that does not "
                    "count, or let it be submitted under another --model name"
                )
            found[name] = path, run_from_dict(one.hits)
    if not found:
        listed = "".join(f"\n- {file}: {reason}" for file, why in refused.items() for reason in why[:3])
        raise DatasetError(f"no submission has results for {labels.key[0]} {labels.split}{listed}")
    return {name: run for name, (_, run) in found.items()}, refused


def _results(path: Path, labels: PrivateLabels) -> tuple[list[Results], list[str]]:
    """What a zip has for the dataset and split of the labels, and why it is refused."""
    mine: list[Results] = []
    reasons: list[str] = []
    try:
        for one in Submission(path).read():
            if isinstance(one, DatasetError):
                reasons += reasons_of(one)
            elif (one.key, one.split) == labels.key:
                mine.append(one)
                reasons += reasons_to_refuse(one, labels)
    except DatasetError as error:
        reasons += reasons_of(error)
    return mine, reasons


def _zips(places: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        inside = sorted(place.glob("*.zip")) if place.is_dir() else [place]
        if not inside:
            raise DatasetError(f"{place}: holds no submissions (*.zip)")
        found += inside
    return found


@dataclass(frozen=True)
class SubmittedHits:
    """What submitted systems found on one split. `unjudged`: pairs without a label whose query and passage are known.

    `unknown` are pairs of passages that the dataset does not have.
    """

    task: DatasetSplit
    unjudged: list[Pair]
    unknown: int

    @classmethod
    def of(cls, dataset: BeirDataset, split: str, runs: Mapping[str, Run], depth: int) -> SubmittedHits:
        """The top `depth` of all runs, without what has a label."""
        task = DatasetSplit(dataset, split, str(dataset.info.get("language") or "en"))
        pairs, known = find_holes(runs.values(), task.qrels.labels, depth), set(task.corpus.ids)
        unjudged = [pair for pair in pairs if pair[1] in known and pair[0] in task.queries]
        return cls(task, unjudged, len(pairs) - len(unjudged))

    @property
    def queries(self) -> dict[str, str]:
        """The text of each query that has an unjudged passage."""
        return {key: self.task.queries[key].text for key in dict.fromkeys(query for query, _ in self.unjudged)}

    def documents(self) -> dict[str, str]:
        """What the judge reads of each unjudged passage."""
        return self._work(None, ControlSettings(), None, Path()).documents({passage for _, passage in self.unjudged})

    def voted(self, control: ControlSettings, folder: Path, out: Path, display: Display) -> list[Pair]:
        """The unjudged pairs that more than half of the re-rankers rank within their thresholds (paper, A.3).

        A query's unjudged and labelled passages are ranked together. Passages that are labelled as not relevant have
        the threshold of hard negatives. Scores are kept in OUT/votes.duckdb. All pairs if there is no re-ranker.
        """
        if not control.rerankers or not self.unjudged:
            return self.unjudged
        labels, pools = self.task.qrels.labels, {query: set(self.task.qrels.labels[query]) for query in self.queries}
        for query, passage in self.unjudged:
            pools[query].add(passage)
        known = set(self.task.corpus.ids)
        ids = {
            query: sorted(pool & known, key=lambda id_, query=query: text_key(f"{query}\x1f{id_}"))  # type: ignore[misc]
            for query, pool in pools.items()
        }
        pool_fp = fingerprint(stage="pool", version=1, dataset=self.task.digest, pools=content_key(ids))
        with Store.open(out / "votes.duckdb") as store:
            store.put(
                Recall(row_key("pool", query, pool_fp), query, pool_fp, 0, "submissions", list(of), [0.0] * len(of))
                for query, of in ids.items()
            )
            work = self._work(store, control, folder, out, display)
            work = replace(work, plan={"recall": pool_fp})
            for stage in prelabel_stages(work):
                work = add_rows(stage, work)
            chosen: set[Pair] = set()
            for query, rows in prelabels_of(work).items():
                negatives = [id_ for id_, label in labels[query].items() if label <= 0]
                voted = pairs_to_judge(query, "", negatives, rows, control.thresholds)
                chosen |= {(query, pair.id) for pair in voted}
        return [pair for pair in self.unjudged if pair in chosen]

    def _work(
        self, store: Store | None, control: ControlSettings, folder: Path | None, out: Path,
        display: Display | None = None,
    ) -> SetWork:  # fmt: skip
        corpus, digest = self.task.corpus, self.task.digest
        places = {id_: place for place, id_ in enumerate(corpus.ids)}
        return SetWork(
            store, control, corpus, digest, places, self.queries, display, out / "embeddings", scope=digest,  # type: ignore[arg-type]
            folder=folder,
        )  # fmt: skip


@dataclass(frozen=True)
class Pooling:
    """What came of it. Numbers are of (query, passage) pairs.

    unjudged: in a top `depth`, without a label. voted: of these, how many the re-rankers let through. judged, relevant:
    of the unjudged, how many have a judgment now. refused: reasons by file. dataset: the next version, if it was made.
    """

    moves: list[Move]
    refused: Mapping[str, list[str]]
    unjudged: int
    unknown: int
    voted: int
    judged: int
    relevant: int
    estimate: Estimate | None = None
    dataset: Path | None = None

    def lines(self, measure: str, version: str | None) -> list[str]:
        """For a terminal: who moved, and what was judged."""
        moved = [one for one in self.moves if one.rank_before != one.rank_after]
        sure = [one for one in moved if one.ranks_after[1] < one.rank_before or one.ranks_after[0] > one.rank_before]
        lines = [
            moves_table(self.moves, measure),
            f"{len(moved)} of {len(self.moves)} systems have another rank, {len(sure)} of them beyond its interval",
            f"{self.unjudged} hits without a label, {self.voted} chosen by the re-rankers, {self.judged} judged, "
            f"{self.relevant} relevant; {self.unknown} are not in the dataset",
        ]
        if self.dataset:
            lines.append(f"{self.dataset}: version {version}; score the submissions again with `airgen publish score`")
        return lines


def judge_submissions(
    dataset: Path,
    places: Sequence[Path],
    out: Path,
    *,
    pipeline: Path | None = None,
    judge: Callable[[str, str], float] | None = None,
    split: str = "test",
    depth: int = 10,
    measure: str = "nDCG@10",
    version: str | None = None,
    budget_usd: float | None = None,
    before_asking: Callable[[Estimate], bool] = lambda estimate: True,
    display: Display | None = None,
) -> Pooling:
    """Judge what the submissions in `places` found, and write OUT/dataset if the next `version` is named.

    The judge is the quality control of `pipeline`, or the function `judge` of query and passage texts, or nobody: then
    OUT/judgments.jsonl counts as it is. `before_asking` gets the estimate; if it gives False, nothing is asked. Raises
    DatasetError as `read_submissions` and `check_next_version` do, UsageError for a pipeline whose judge is not an LLM
    alone, and Stopped (resumable).
    """
    (labels,) = load_labels([dataset], split)
    if version is not None:
        check_next_version(dataset, labels.manifest, version, split)
    settings = None if pipeline is None else load_pipeline(pipeline)
    if settings is not None and not settings.control.judge.members:
        raise UsageError(f"{pipeline}: its judge is not an LLM, which judging submissions needs")
    runs, refused = read_submissions(places, labels)
    out.mkdir(parents=True, exist_ok=True)
    ledger, pool = Ledger(out / "judgments.jsonl"), SubmittedHits.of(BeirDataset.open(dataset), split, runs, depth)
    chosen, estimate, texts = pool.unjudged, None, pool.documents()
    if settings is not None and pipeline is not None:
        shown = display or Display(out / "status.json")
        chosen = pool.voted(settings.control, pipeline.resolve().parent, out, shown)
    waiting = [pair for pair in chosen if pair not in ledger.judged]
    write_holes(out / "holes.jsonl", waiting, pool.queries, texts)
    if settings is not None and pipeline is not None:
        prompts = PromptSet.beside(pipeline.parent)
        estimate = estimate_judgments(settings, prompts, [(pool.queries[q], texts[p]) for q, p in waiting])
        if before_asking(estimate):
            judge_with(pipeline, out, waiting, pool.queries, texts, ledger, budget_usd=budget_usd)
    elif judge is not None:
        ledger.judge(waiting, lambda query, passage: float(judge(pool.queries[query], texts[passage])))
    judged = {pair: ledger.judged[pair] for pair in pool.unjudged if pair in ledger.judged}
    written = None
    if version is not None:
        written = out / "dataset"
        rows = [QrelRow(*pair, int(label > 0), *ledger.verdicts[pair]) for pair, label in judged.items()]
        pair, uses = pair_of(dataset, labels.manifest), _provenance(settings)
        with_more_labels(dataset, written, rows, version=version, split=split, pair=pair, provenance=uses)
    after = fill(pool.task.qrels.labels, {pair: float(label > 0) for pair, label in judged.items()})
    relevant = sum(label > 0 for label in judged.values())
    return Pooling(
        moves(runs, pool.task.qrels.labels, after, measure, depth), refused, len(pool.unjudged), pool.unknown,
        len(chosen), len(judged), relevant, estimate, written,
    )  # fmt: skip


def _provenance(settings: Pipeline | None) -> list[ModelUse]:
    if settings is None:
        return [ModelUse("judge of what submissions found", "people or a function")]
    judges = settings.control.judge.members
    return [
        ModelUse("judge of what submissions found", (judge.llm or settings.llm).model, judge.prompt) for judge in judges
    ]
