"""Judge holes, that is, unlabelled passages that systems rank high, blind to the system, and rescore.

    judged = judge_holes(Path("scifact"), {"bm25": run}, Path("holes"), pipeline=Path("notes.yaml"))
    judged.systems                     # scores and ranks before and after, with intervals

    holes/holes.jsonl                  the pairs, for people: a number as `score` is a label
    holes/audit.html, audit.csv        the same as a page and for a spreadsheet
    holes/judgments.jsonl              every judgment, of people (`by`), of a function and of a model

What people wrote is read before anything is written, and stays in their files. Their labels override any other judgment
of the pair.

As BEIR's section 6 shows, a pool collected with lexical systems has few holes for BM25 and many for dense retrievers,
which gain most when the holes are judged. For submissions, the judgments can become the labels of the next version: the
pipeline's re-rankers vote on unlabelled hits, and its LLM judges those that more than half of them rank high. Answers
and votes are saved in the folder: a second call asks nothing, and a stopped call can be continued.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from airgen.audit.answers import answered, key_in, read_answers
from airgen.audit.sample import (
    ANSWERS,
    GRADED,
    QUESTION,
    AuditItem,
    AuditSample,
    earlier_samples,
    four_levels,
    has_levels,
    load_sample,
    write_sample,
    yes_or_no,
)
from airgen.components.keys import content_key, fingerprint, row_key, text_key
from airgen.control.prelabel import prelabel_steps, prelabels_of
from airgen.control.query_set import QuerySet
from airgen.control.table2 import pairs_to_judge
from airgen.dataset.beir import BeirDataset
from airgen.dataset.content import ModelUse, QrelRow
from airgen.dataset.derive import check_next_version, with_more_labels
from airgen.display.study import Column, Shown, Table
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.intervals import DIFFERENCES, Interval, resampled_means
from airgen.evaluation.measures import check_common, parse_measure, score
from airgen.evaluation.run import Run, run_from_dict
from airgen.evaluation.significance import rank_intervals
from airgen.generation.flow import Flow
from airgen.job.estimate import Estimate, estimate_judgments
from airgen.llms.base import Llm
from airgen.llms.prompts import PromptSet
from airgen.publishing.scores import Labels as PrivateLabels
from airgen.publishing.scores import reasons_to_refuse
from airgen.publishing.submission import Submission, SystemHits, reasons_of
from airgen.publishing.withhold import pair_of
from airgen.safety.escaping import json_text
from airgen.safety.guard import guarded
from airgen.settings import ControlSettings, load_pipeline
from airgen.steps.ask import ask_about
from airgen.steps.judge import judge_pair
from airgen.steps.loops import run_whole
from airgen.steps.progress import STATUS, Display
from airgen.steps.step import Problem, Tools
from airgen.storage.json_values import DAMAGE
from airgen.storage.records import Recall, prompt_text
from airgen.storage.store import Store
from airgen.storage.whole_files import keep_copy, whole_file

Labels = Mapping[str, Mapping[str, float]]
Pair = tuple[str, str]  # query id, passage id


@dataclass(frozen=True, slots=True)
class Move:
    """A system before and after its holes were judged. The 95% intervals are over resampled queries.

    `change` is the change of the score. `ranks` is the interval of the rank. `holes` is the mean share of the top
    `depth` without a label for the query (whereas BEIR's Hole@k counts a passage as judged if it has a label for any
    query).
    """

    system: str
    before: Interval
    after: Interval
    change: Interval
    rank_before: int
    rank_after: int
    ranks_before: tuple[int, int]
    ranks_after: tuple[int, int]
    holes_before: float
    holes_after: float


def find_holes(runs: Iterable[Run], qrels: Labels, depth: int) -> list[Pair]:
    """Return the (query, passage) pairs in any run's top `depth` without a label for that query.

    The pairs are distinct, in an order derived from their ids, so that a judge can infer neither system nor rank.
    """
    holes: set[Pair] = set()
    for run in runs:
        for query, hits in run.ranked().items():
            if query in qrels:
                holes.update((query, passage) for passage, _ in hits[:depth] if passage not in qrels[query])
    return sorted(holes, key=lambda pair: (text_key("\x1f".join(pair)), pair))


def fill(qrels: Labels, judged: Mapping[Pair, float]) -> dict[str, dict[str, float]]:
    """Add new labels. If a pair has both, the old label is kept."""
    filled = {query: dict(labels) for query, labels in qrels.items()}
    for (query, passage), label in judged.items():
        filled.setdefault(query, {}).setdefault(passage, label)
    return filled


def moves(runs: Mapping[str, Run], before: Labels, after: Labels, measure: str, depth: int) -> list[Move]:
    """Return every system's scores and ranks before and after, sorted by the score after, best first.

    The same queries are resampled for all systems, before and after.
    """
    names, wanted = sorted(runs), parse_measure(measure)
    scores = np.stack([score(runs[name], labels, [wanted]).values[0] for labels in (before, after) for name in names])
    drawn = np.split(resampled_means(scores), 2, axis=1)
    means, sides = np.split(scores.mean(axis=1), 2), np.split(scores, 2)
    ranks = [(1 + (side[None] > side[:, None]).sum(axis=1)).tolist() for side in means]
    spans = [rank_intervals(side).tolist() for side in sides]
    rows = []
    for at, name in enumerate(names):
        (old, new), (old_drawn, new_drawn) = [float(side[at]) for side in means], [side[:, at] for side in drawn]
        holes = [_hole_share(runs[name], labels, depth) for labels in (before, after)]
        was, now = scores[at], scores[at + len(names)]
        rows.append(
            Move(
                system=name,
                before=Interval.of(old, old_drawn, was),
                after=Interval.of(new, new_drawn, now),
                change=Interval.of(new - old, new_drawn - old_drawn, now - was, span=DIFFERENCES),
                rank_before=ranks[0][at],
                rank_after=ranks[1][at],
                ranks_before=tuple(spans[0][at]),
                ranks_after=tuple(spans[1][at]),
                holes_before=holes[0],
                holes_after=holes[1],
            )
        )
    return sorted(rows, key=lambda move: (move.rank_after, move.system))


def _hole_share(run: Run, qrels: Labels, depth: int) -> float:
    """Return the mean share of the top `depth` without a label for the query. A missing query has no holes."""
    hits = dict(run.ranked().items())
    counts = [sum(passage not in of for passage, _ in hits.get(query, [])[:depth]) for query, of in qrels.items()]
    return float(np.mean(counts)) / depth if counts else 0.0


class HoleLabel(NamedTuple):
    """A label with the judge's level and probability, if any. `by` is `people` for a person's label."""

    label: float
    level: int | None = None
    probability: float | None = None
    by: str = ""


class Ledger:
    """Judgments in a JSON Lines file. Each is written immediately, so that no pair is judged twice.

    If there are several lines about a pair, the last one counts, but a person's label overrides all others. An
    incomplete last line left by a crash is dropped. Raises DatasetError for any other unreadable line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.judged: dict[Pair, HoleLabel] = {}
        if not path.exists():
            return
        text = path.read_bytes()
        whole, _, torn = text.rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), 1):
            if not line.strip():
                continue
            try:
                self._take(json.loads(line))
            except DAMAGE as error:
                raise DatasetError(f"{path}:{number}: not a judgment ({error})") from error
        if torn:
            try:  # a person's editor may omit the last line end
                self._take(json.loads(torn))
                path.write_bytes(text + b"\n")
            except DAMAGE:
                path.write_bytes(text[: len(text) - len(torn)])

    def _take(self, row: Mapping[str, Any]) -> None:
        level, probability = row.get("level"), row.get("probability")
        label = _label_of(row["score"])
        if label is None:
            raise ValueError("it has no score")
        judgment = HoleLabel(
            label,
            None if level is None else int(level),
            None if probability is None else float(probability),
            str(row.get("by") or ""),
        )
        pair = str(row["query-id"]), str(row["corpus-id"])
        if judgment.by or not (pair in self.judged and self.judged[pair].by):
            self.judged[pair] = judgment

    def add(self, pair: Pair, judgment: HoleLabel) -> None:
        """Save a judgment. Raises UsageError if the label is not a finite number."""
        label, level, probability, by = judgment
        if not math.isfinite(label):
            raise UsageError(
                f"the judge returned {label} for query {pair[0]!r} and passage {pair[1]!r}, not a finite number"
            )
        self.judged[pair] = judgment
        row = {"query-id": pair[0], "corpus-id": pair[1], "score": label}
        row |= {} if level is None else {"level": level, "probability": probability}
        row |= {"by": by} if by else {}
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json_text(row) + "\n")


@dataclass(frozen=True)
class JudgedHoles(Shown):
    """The result of judging the holes of some runs. Counts are of (query, passage) pairs.

    `holes` are unlabelled pairs in a top `depth`. `voted` is how many of these the re-rankers voted for. `judged` and
    `relevant` count the pairs with a judgment, and `by_people` those judged by people. `refused` lists reasons by file.
    `dataset` is the next version, if it was made.
    """

    systems: list[Move]
    measure: str
    holes: int
    not_in_the_dataset: int
    voted: int
    judged: int
    relevant: int
    by_people: int = 0
    estimate: Estimate | None = None
    dataset: Path | None = None
    refused: Mapping[str, list[str]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the text for a terminal: which systems moved, and what was judged."""
        moved = [move for move in self.systems if move.rank_before != move.rank_after]
        sure = [move for move in moved if not move.ranks_after[0] <= move.rank_before <= move.ranks_after[1]]
        voted = self.holes - self.not_in_the_dataset != self.voted
        return [
            Table(
                self.systems,
                [
                    Column("system", lambda move: move.system),
                    Column(f"{self.measure} before", lambda move: move.before, ".3f"),
                    *_MOVES,
                ],
            ).text(),
            f"{len(moved)} of {len(self.systems)} systems change rank, {len(sure)} of them beyond their intervals",
            f"{self.holes} hits without a label, {f'{self.voted} chosen by the re-rankers, ' * voted}{self.judged} "
            f"judged, {self.relevant} relevant; {self.not_in_the_dataset} are not in the dataset",
            *[f"{self.by_people} of the judgments are by people"] * bool(self.by_people),
        ]


_MOVES = (
    Column("after", lambda move: move.after, ".3f"),
    Column("change", lambda move: move.change, "+.3f"),
    Column("rank", lambda move: move.rank_before),
    Column("95 %", lambda move: move.ranks_before),
    Column("after", lambda move: move.rank_after),
    Column("95 %", lambda move: move.ranks_after),
    Column("holes before", lambda move: move.holes_before, ".3f"),
    Column("after", lambda move: move.holes_after, ".3f"),
)


def judge_holes(
    home: Path,
    runs: Mapping[str, Run],
    out: Path,
    *,
    split: str = "test",
    depth: int = 10,
    measure: str = "nDCG@10",
    judge: Callable[[str, str], float] | None = None,
    pipeline: Path | None = None,
    submitted: PrivateLabels | None = None,
    version: str | None = None,
    budget_usd: float | None = None,
    before_asking: Callable[[Estimate], bool] = lambda estimate: True,
    answers: Sequence[Path] = (),
) -> JudgedHoles:
    """Judge the holes of runs with a function of two texts or a pipeline's judge, and rescore the runs.

    Without either, existing judgments are used: OUT/judgments.jsonl, and what people wrote in OUT/holes.jsonl,
    OUT/audit.csv and the files saved by the page OUT/audit.html (`answers` and OUT/audit-answers.json). These files are
    then written for the pairs without a judgment, keeping everything that people wrote. `submitted` are the labels for
    which the runs were submitted; in that case, the re-rankers vote first, labels are 1 or 0, and OUT/dataset is
    written if the next `version` is named. `before_asking` is called with the estimate; if it returns False, nothing is
    asked. Raises DatasetError for runs on another dataset or an invalid next version, UsageError if the pipeline's
    judge does not use an LLM, and Stopped (resumable).
    """
    if submitted is not None and version is not None:
        check_next_version(home, submitted.manifest, version, split)
    settings = None if pipeline is None else load_pipeline(pipeline)
    if settings is not None and not settings.control.judge.members:
        raise UsageError(f"{pipeline}: its judge is the re-rankers, not an LLM, which judging holes needs")
    dataset = BeirDataset.open(home)
    task = DatasetSplit(dataset, split, str(dataset.info.get("language") or "en"))
    before = task.qrels.labels
    for name, run in runs.items():
        check_common(name, run, before, least=0)
    holes = find_holes(runs.values(), before, depth)
    wanted = {passage for _, passage in holes}
    texts = {row.id: prompt_text(row.title, row.text) for row in dataset.passages() if row.id in wanted}
    known = [(query, passage) for query, passage in holes if query in task.queries and passage in texts]
    if holes and not known:
        raise DatasetError(f"none of the unjudged hits is in {home}: check that the runs belong to this dataset")
    queries = {query: task.queries[query].text for query, _ in known}
    out.mkdir(parents=True, exist_ok=True)
    chosen, estimate = known, None
    if settings is not None and pipeline is not None and submitted is not None:
        chosen = _voted(task, known, control=settings.control, folder=pipeline.resolve().parent, out=out)
    ledger = Ledger(out / "judgments.jsonl")
    least_level = int(str(dataset.info.get("relevant_from") or 2))
    people = dict(_of_pages(out, answers, least_level)) | dict(_of_lines(out / HOLES))
    for pair, judgment in people.items():
        if ledger.judged.get(pair) != judgment:
            ledger.add(pair, judgment)
    left = [pair for pair in chosen if pair not in ledger.judged]
    _write_for_people(
        out,
        f"{dataset.name} {split}",
        chosen=chosen,
        left=left,
        queries=queries,
        texts=texts,
        ledger=ledger,
        relevant_from=least_level,
        graded=has_levels(dataset),
    )
    if judge is not None:
        for query, passage in left:
            with guarded("the judge", UsageError):
                label = float(judge(queries[query], texts[passage]))
            ledger.add((query, passage), HoleLabel(label))
    elif settings is not None and pipeline is not None:
        prompts, least = PromptSet.beside(pipeline.parent), settings.control.judge.relevant_from
        estimate = estimate_judgments(settings, prompts, [(queries[query], texts[passage]) for query, passage in left])

        async def judge_hole(engine: Llm, pair: Pair) -> None:  # a pair that the judge refuses remains a hole
            verdict = await judge_pair(Tools(settings, prompts, {}, engine), queries[pair[0]], texts[pair[1]])
            if not isinstance(verdict, Problem):
                ledger.add(pair, HoleLabel(float(verdict.level >= least), verdict.level, verdict.probability))

        if before_asking(estimate):
            ask_about(left, judge_hole, settings, out / "answers.duckdb", budget_usd=budget_usd, rules=Flow().scripted)
    judged = {pair: ledger.judged[pair] for pair in known if pair in ledger.judged}
    written = None
    if submitted is not None and version is not None:
        written = out / "dataset"
        more = [QrelRow(*pair, int(label > 0), level, p) for pair, (label, level, p, _) in judged.items()]
        members = [] if settings is None else settings.control.judge.members
        judges = [((member.llm or settings.llm).model, member.prompt) for member in members] if settings else []
        role = "judge of hits in submissions"
        uses = [ModelUse(role, model, prompt) for model, prompt in judges]
        persons = [ModelUse(role, "people")] * any(label.by for label in judged.values())
        uses = [*persons, *uses] or [ModelUse(role, "people or a function")]
        mark = pair_of(home, submitted.manifest)
        with_more_labels(home, written, more, version=version, split=split, pair=mark, provenance=uses)
    after = {pair: label.label if submitted is None else float(label.label > 0) for pair, label in judged.items()}
    return JudgedHoles(
        systems=moves(runs, before, after=fill(before, after), measure=measure, depth=depth),
        measure=measure,
        holes=len(holes),
        not_in_the_dataset=len(holes) - len(known),
        voted=len(chosen),
        judged=len(judged),
        relevant=sum(label > 0 for label in after.values()),
        by_people=sum(bool(label.by) for label in judged.values()),
        estimate=estimate,
        dataset=written,
    )


HOLES = "holes.jsonl"
PEOPLE = "people"
_PAGE_PAIRS = 1_000  # pairs; a person does not answer more at a time
_NOTE = "Systems retrieved these documents, which are still unjudged. The systems are not named."


def _label_of(value: object) -> float | None:
    """Parse a person's label: a number, possibly as text, true or false, or None if it is not filled in."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    label = float(value) if isinstance(value, bool | int | float | str) else math.nan
    if not math.isfinite(label):
        raise ValueError(f"its score {str(value)[:40]!r} is not a number")
    return label


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file that people fill in. Raises DatasetError, naming the line, for an invalid row."""
    rows = []
    try:
        text = path.read_text(encoding="utf-8-sig", errors="surrogatepass") if path.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: cannot be read ({error}): repair it, or move it away") from error
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            row["query-id"], row["corpus-id"] = str(row["query-id"]), str(row["corpus-id"])
            _label_of(row.get("score"))
        except DAMAGE as error:
            raise DatasetError(
                f"{path}:{number}: not a pair with a score ({str(error)[:100]}): correct the line; nothing was changed"
            ) from error
        rows.append(row)
    return rows


def _of_lines(path: Path) -> Iterator[tuple[Pair, HoleLabel]]:
    """Yield the pairs that people labelled in the file of holes."""
    for row in _lines(path):
        if (label := _label_of(row.get("score"))) is not None:
            yield (row["query-id"], row["corpus-id"]), HoleLabel(label, by=PEOPLE)


def _of_pages(out: Path, answers: Sequence[Path], relevant_from: int) -> Iterator[tuple[Pair, HoleLabel]]:
    """Yield the pairs that people answered on the page or in the table. Several levels are combined by the lower
    median. Answers to earlier samples in this folder also count for their pairs."""
    if not (out / "sample.json").is_file():
        if answers:
            raise DatasetError(
                f"{answers[0]}: {out} has no page with holes yet: run the command without --answers first"
            )
        return
    current = load_sample(out / "sample.json", "airgen audit holes")
    samples = {**earlier_samples(out), current.key: current}
    beside = [path for name in ("audit.csv", ANSWERS) if (path := out / name).is_file()]
    levels: dict[Pair, list[int]] = {}
    for path in dict.fromkeys([*beside, *answers]):
        key = key_in(path)
        sample = samples.get(key, current)
        if path in beside and not answered(path):
            continue
        for number, level in read_answers(path, sample.key, len(sample.items), sample.levels).answers.items():
            item = sample.items[number - 1]
            if level is not None:
                levels.setdefault((item.query, item.document), []).append(level)
    for pair, given in levels.items():
        level = sorted(given)[(len(given) - 1) // 2]
        yield pair, HoleLabel(float(level >= relevant_from), level, None, PEOPLE)


def _write_for_people(
    out: Path,
    title: str,
    chosen: Sequence[Pair],
    left: Sequence[Pair],
    queries: Mapping[str, str],
    texts: Mapping[str, str],
    ledger: Ledger,
    relevant_from: int,
    graded: bool,
) -> None:
    """Write the pairs that people should judge, keeping everything that people wrote in the file."""
    path, old = out / HOLES, {}
    rows = _lines(path)
    for row in rows:
        old[row["query-id"], row["corpus-id"]] = row
    labelled = [pair for pair, row in old.items() if _label_of(row.get("score")) is not None]
    labelled_rows = [old[pair] for pair in labelled]
    waiting = [
        {"query-id": q, "corpus-id": p, "query": queries[q], "text": texts[p], "score": None, **_remarks(old, (q, p))}
        for q, p in left
        if (q, p) not in labelled
    ]
    text = "".join(json_text(row) + "\n" for row in [*labelled_rows, *waiting])
    lost = [pair for pair in old if pair not in labelled and pair not in left and _remarks(old, pair)]
    if lost or len(rows) > len(old):
        keep_copy(path, text)  # remarks on pairs that are no longer asked about, and second lines for a pair
    with whole_file(path) as fresh:
        fresh.write_text(text, encoding="utf-8", errors="surrogatepass")
    asked = [pair for pair in chosen if pair in left or ledger.judged[pair].by][:_PAGE_PAIRS]
    if asked:
        items = tuple(
            AuditItem(
                query=q,
                document=p,
                kind="other",
                level=None,
                relevant=False,
                query_text=queries[q],
                title="",
                text=texts[p],
            )
            for q, p in asked
        )
        sample = AuditSample(
            title,
            relevant_from,
            items,
            populations={"other, not judged": len(chosen)},
            levels=four_levels() if graded else yes_or_no(relevant_from),
            question=GRADED if graded else QUESTION,
        )
        write_sample(sample, out, note=_NOTE)


def _remarks(rows: Mapping[Pair, Mapping[str, Any]], pair: Pair) -> dict[str, Any]:
    """Return what a person wrote in a row besides the label."""
    own = ("query-id", "corpus-id", "query", "text", "score")
    return {name: value for name, value in rows.get(pair, {}).items() if name not in own}


def read_submissions(places: Sequence[Path], labels: PrivateLabels) -> tuple[dict[str, Run], dict[str, list[str]]]:
    """Return the runs of all submissions on this split by system name, and the reasons for refused ones by file.

    A place is a zip file or a folder of zip files. Results for other datasets are ignored. Raises DatasetError if a
    folder has no zip files, if two submissions have the same name, or if every submission is refused.
    """
    runs: dict[str, tuple[Path, Run]] = {}
    refused: dict[str, list[str]] = {}
    zips: list[Path] = []
    for place in places:
        zips += (inside := sorted(place.glob("*.zip")) if place.is_dir() else [place])
        if not inside:
            raise DatasetError(f"{place}: contains no submissions (*.zip)")
    for path in zips:
        mine, reasons = _results(path, labels)
        if reasons:
            refused[str(path)] = reasons
            continue
        for hits in mine:
            name = f"{hits.model} + {hits.reranker}"
            if name in runs:
                raise DatasetError(
                    f"{runs[name][0]} and {path} are both submissions of {name}: remove one of them, or submit it "
                    f"under a different --model name"
                )
            runs[name] = path, run_from_dict(hits.hits)
    if not runs:
        listed = "".join(f"\n- {file}: {reason}" for file, why in refused.items() for reason in why[:3])
        raise DatasetError(f"no submission has results for {labels.key[0]} {labels.split}{listed}")
    return {name: run for name, (_, run) in runs.items()}, refused


def _results(path: Path, labels: PrivateLabels) -> tuple[list[SystemHits], list[str]]:
    """Return the results in a zip file for the labels' dataset and split, and why they are refused."""
    mine: list[SystemHits] = []
    reasons: list[str] = []
    try:
        for hits in Submission(path).read():
            if isinstance(hits, DatasetError):
                reasons += reasons_of(hits)
            elif (hits.key, hits.split) == labels.key:
                mine.append(hits)
                reasons += reasons_to_refuse(hits, labels)
    except DatasetError as error:
        reasons += reasons_of(error)
    return mine, reasons


def _voted(task: DatasetSplit, unjudged: list[Pair], control: ControlSettings, folder: Path, out: Path) -> list[Pair]:
    """Return the unjudged pairs that more than half of the re-rankers rank within their thresholds (paper, A.3).

    A query's unjudged and labelled passages are ranked together. Passages labelled as not relevant use the threshold
    for hard negatives. Scores are saved in OUT/votes.duckdb. If there are no re-rankers, all pairs are returned.
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
            Recall(
                key=row_key("pool", query, pool_fp),
                parent=query,
                fingerprint=pool_fp,
                ordinal=0,
                model="submissions",
                ids=list(passages),
                scores=[0.0] * len(passages),
            )
            for query, passages in ids.items()
        )
        pooled = QuerySet(
            store=store,
            display=Display(out / STATUS),
            plan={"recall": pool_fp},
            settings=control,
            corpus=corpus,
            digest=task.digest,
            places=places,
            queries=queries,
            embeddings=out / "embeddings",
            scope=task.digest,
            folder=folder,
        )
        for step in prelabel_steps(pooled.settings):
            pooled = run_whole(step, pooled)
        chosen: set[Pair] = set()
        for query, rows in prelabels_of(pooled).items():
            negatives = [id_ for id_, label in labels[query].items() if label <= 0]
            chosen |= {
                (query, pair.id)
                for pair in pairs_to_judge(
                    query, "", negatives=negatives, prelabels=rows, thresholds=control.thresholds
                )
            }
    return [pair for pair in unjudged if pair in chosen]


def _place(query: str, passage: str) -> str:
    return text_key(f"{query}\x1f{passage}")
