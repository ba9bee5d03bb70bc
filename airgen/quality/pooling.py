"""Pooling from submissions: judge what submitted systems found and nobody judged, and see who moves.

    found = judge_submissions(dataset, [Path("submissions")], Path("holes"), pipeline=Path("notes.yaml"))
    found.moves                    # scores and ranks before and after, with intervals

The re-rankers of the pipeline's quality control vote on the hits without a label, and its LLM judges what more than
half of them rank high. No judge learns which system found a passage. The judgments become the labels of the next
version. Answers and votes are kept in the folder: a second call asks nothing, and a stopped one goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from airgen.pipeline.progress import STATUS, Display
from airgen.prompts import PromptSet
from airgen.publishing.scores import Labels as PrivateLabels
from airgen.publishing.scores import load_labels, reasons_to_refuse
from airgen.publishing.submission import Results, Submission, reasons_of
from airgen.publishing.withhold import pair_of
from airgen.quality.holes import Move, Pair, fill, find_holes, judged_in, moves, moves_table
from airgen.records import Recall, prompt_text
from airgen.settings import ControlSettings, load_pipeline
from airgen.store import Store


def read_submissions(places: Sequence[Path], labels: PrivateLabels) -> tuple[dict[str, Run], dict[str, list[str]]]:
    """(the runs of all submissions on this split by the system's name, the reasons of those that are refused, by file).

    A place is a zip, or a folder of zips. Results of other datasets are passed over. Raises DatasetError for a folder
    without zips, for two submissions of one name, and where every submission is refused.
    """
    found: dict[str, tuple[Path, Run]] = {}
    refused: dict[str, list[str]] = {}
    zips: list[Path] = []
    for place in places:
        zips += (inside := sorted(place.glob("*.zip")) if place.is_dir() else [place])
        if not inside:
            raise DatasetError(f"{place}: holds no submissions (*.zip)")
    for path in zips:
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


def voted(
    task: DatasetSplit, unjudged: list[Pair], control: ControlSettings, folder: Path, out: Path, display: Display
) -> list[Pair]:
    """The unjudged pairs that more than half of the re-rankers rank within their thresholds (paper, A.3).

    A query's unjudged and labelled passages are ranked together. Passages that are labelled as not relevant have the
    threshold of hard negatives. Scores are kept in OUT/votes.duckdb. All pairs if there is no re-ranker.
    """
    if not control.rerankers or not unjudged:
        return unjudged
    labels, corpus = task.qrels.labels, task.corpus
    places = {id_: place for place, id_ in enumerate(corpus.ids)}
    queries = {query: task.queries[query].text for query, _ in unjudged}
    pools = {query: places.keys() & labels[query].keys() for query in queries}
    for query, passage in unjudged:
        pools[query].add(passage)
    ids = {query: sorted(pool, key=partial(_place, query)) for query, pool in pools.items()}
    pool_fp = fingerprint(stage="pool", version=1, dataset=task.digest, pools=content_key(ids))
    with Store.open(out / "votes.duckdb") as store:
        store.put(
            Recall(row_key("pool", query, pool_fp), query, pool_fp, 0, "submissions", list(of), [0.0] * len(of))
            for query, of in ids.items()
        )
        work = SetWork(
            store, control, corpus, task.digest, places, queries, display, out / "embeddings", plan={"recall": pool_fp},
            scope=task.digest, folder=folder,
        )  # fmt: skip
        for stage in prelabel_stages(work):
            work = add_rows(stage, work)
        chosen: set[Pair] = set()
        for query, rows in prelabels_of(work).items():
            negatives = [id_ for id_, label in labels[query].items() if label <= 0]
            chosen |= {(query, pair.id) for pair in pairs_to_judge(query, "", negatives, rows, control.thresholds)}
    return [pair for pair in unjudged if pair in chosen]


def _place(query: str, passage: str) -> str:
    return text_key(f"{query}\x1f{passage}")


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
    opened = BeirDataset.open(dataset)
    task = DatasetSplit(opened, split, str(opened.info.get("language") or "en"))
    before, known = task.qrels.labels, {key: place for place, key in enumerate(task.corpus.ids)}
    holes = find_holes(runs.values(), before, depth)
    unjudged = [(query, passage) for query, passage in holes if passage in known and query in task.queries]
    chosen, estimate, titles = unjudged, None, task.corpus.titles
    queries = {query: task.queries[query].text for query, _ in unjudged}
    texts = {
        passage: prompt_text(titles[known[passage]] if titles else "", task.corpus.texts[known[passage]])
        for _, passage in unjudged
    }
    if settings is not None and pipeline is not None:
        out.mkdir(parents=True, exist_ok=True)
        display = Display(out / STATUS)
        chosen = voted(task, unjudged, settings.control, pipeline.resolve().parent, out, display)

    def agreed(left: list[Pair]) -> bool:
        nonlocal estimate
        if settings is None or pipeline is None:
            return True
        asked = [(queries[query], texts[passage]) for query, passage in left]
        estimate = estimate_judgments(settings, PromptSet.beside(pipeline.parent), asked)
        return before_asking(estimate)

    ledger = judged_in(
        out, chosen, queries, texts, ask=judge, pipeline=pipeline, budget_usd=budget_usd, before_asking=agreed
    )
    judged = {pair: ledger.judged[pair] for pair in unjudged if pair in ledger.judged}
    written = None
    if version is not None:
        written = out / "dataset"
        rows = [QrelRow(*pair, int(label > 0), *ledger.verdicts[pair]) for pair, label in judged.items()]
        role, judges = "judge of what submissions found", settings.control.judge.members if settings else ()
        uses = [ModelUse(role, (one.llm or settings.llm).model, one.prompt) for one in judges if settings]
        uses, pair = uses or [ModelUse(role, "people or a function")], pair_of(dataset, labels.manifest)
        with_more_labels(dataset, written, rows, version=version, split=split, pair=pair, provenance=uses)
    after = fill(before, {pair: float(label > 0) for pair, label in judged.items()})
    return Pooling(
        moves(runs, before, after, measure, depth), refused, len(unjudged), len(holes) - len(unjudged), len(chosen),
        len(judged), sum(label > 0 for label in judged.values()), estimate, written,
    )  # fmt: skip
