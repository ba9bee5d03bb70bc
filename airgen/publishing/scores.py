"""Score submissions with private labels, by the leaderboard's measure.

A query without results counts as zero and is reported. Hits for unknown queries or documents are counted, but do not
affect the scores. Results for a version other than that of the labels are refused.

Anyone who can submit results can learn labels from the scores. A score therefore consists of one measure, rounded as on
the leaderboard, and nothing else that depends on labels: queries are counted against those of the split, which are
public, and results with mostly unknown documents, which could place a passage at any rank, are refused. `save_score`
limits the submissions per system.
"""

import hashlib
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from airgen.components.keys import text_key
from airgen.dataset.derive import EARLIER
from airgen.dataset.layouts import label_rows_of, read_rows
from airgen.dataset.manifest import MANIFEST, Manifest, load_manifest
from airgen.display.study import Shown
from airgen.errors import DatasetError
from airgen.evaluation.measures import score
from airgen.evaluation.run import run_from_dict
from airgen.publishing import A_DAY, dataset_key
from airgen.publishing.submission import NO_RERANKER, RefusedSubmission, Submission, SystemHits, reasons_of
from airgen.publishing.suites import key_of
from airgen.publishing.withhold import DOCUMENTS, pair_of
from airgen.safety.escaping import json_text
from airgen.storage.json_values import DAMAGE, FORMAT, read_kept
from airgen.storage.paths import locked
from airgen.storage.whole_files import whole_file, write_text

CLASSES = ("Retrieval Only", "Reranking Only", "Retrieval + Reranking")
"""AIR-Bench's classes: no re-ranker; a re-ranker on BM25's top 100; any other retriever with a re-ranker."""

HEAD = {"qa": "nDCG@10", "long-doc": "Recall@10"}
"""The measure that ranks systems, by task."""

RERANK_DEPTH = 100
DIGITS = 3
"""Decimal places of a score in [0, 1] on the leaderboard and in all output."""

SUBMISSIONS = "submissions.jsonl"
"""The file in a folder of scores with the time, the system and the hash of each submission."""

_MOST_UNKNOWN_SHARE = 0.5  # share of a submission's hits
_MOST_LISTED_QUERIES = 50  # missing queries that are listed by id


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of one split. `pair` has the same meaning as in SystemHits.

    `queries` are the ids of all its queries, including those without labels, and `corpus` is a file with the ids of all
    documents. Both are None for private labels published by an older airgen. `earlier` are versions with the same
    corpus and queries but fewer labels, each with its pair, whose results can also be scored.
    """

    manifest: Manifest
    split: str
    qrels: Mapping[str, Mapping[str, int]]
    corpus: Path | None = None
    queries: frozenset[str] | None = None
    pair: str = ""
    earlier: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """The key of the dataset, and the split."""
        return key_of(self.manifest), self.split


@dataclass(frozen=True, slots=True)
class DatasetScore:
    """The scores of a system on one split of one dataset.

    `measures` and `standard_errors` contain only the task's main measure, as shown on the leaderboard. `queries` is the
    number of queries in the split, with or without labels. `missing_count` is the number of queries without results,
    and `missing` lists the first by id. `unknown_queries` and `unknown_documents` count results and hits that are not
    in the dataset, or are None if this is unknown.
    """

    dataset: str
    task: str
    domain: str
    language: str
    split: str
    measures: Mapping[str, float]
    queries: int
    missing: tuple[str, ...] = ()
    missing_count: int = 0
    unknown_queries: int | None = 0
    unknown_documents: int | None = None
    standard_errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key of the dataset."""
        return dataset_key(self.task, self.domain, self.language, self.dataset)


@dataclass(frozen=True, slots=True)
class SystemScore(Shown):
    """The scores of one system on the datasets of one version. `absent` are datasets without results."""

    model: str
    reranker: str
    version: str
    datasets: tuple[DatasetScore, ...]
    absent: tuple[str, ...] = ()

    @property
    def system_class(self) -> str:
        """Return the class, one of `CLASSES`."""
        if self.reranker == NO_RERANKER:
            return CLASSES[0]
        return CLASSES[1] if self.model.lower() == "bm25" else CLASSES[2]

    def lines(self) -> list[str]:
        """Format the scores for a terminal: the main measure on each dataset, and what is missing."""
        lines = [f"{self.model} + {self.reranker}, version {self.version}: {self.system_class}"]
        for row in self.datasets:
            head = HEAD[row.task]
            line = f"{row.key} {row.split}: {head} {row.measures[head]:.{DIGITS}f}"
            if row.missing_count:
                line += f"; {row.missing_count} of {row.queries} queries missing: {', '.join(row.missing[:5])}"
            if row.unknown_queries:
                line += f"; {row.unknown_queries} unknown queries left out"
            if row.unknown_documents:
                line += f"; {row.unknown_documents} hits of unknown documents"
            lines.append(line)
        return lines + [f"no results for {name}" for name in self.absent]


def load_labels(directories: Sequence[Path], split: str = "test") -> list[Labels]:
    """Load the labels of `split` from all datasets, label parts and suites below the directories.

    Raises DatasetError if there are none.
    """
    labels_by_key: dict[tuple[str, str], Labels] = {}
    for directory in directories:
        if not directory.is_dir():
            raise DatasetError(f"{directory} is not a directory")
        for path in sorted(directory.rglob(MANIFEST)):
            manifest = load_manifest(path.parent)
            if split not in manifest.labelled_splits:
                continue
            labels = _load(path.parent, manifest, split)
            if labels.key in labels_by_key:
                raise DatasetError(f"there are two sets of labels for {labels.key[0]}, one of them in {path.parent}")
            labels_by_key[labels.key] = labels
    if not labels_by_key:
        raise DatasetError(f"no labels of {split!r} in {', '.join(map(str, directories))}")
    return [labels_by_key[key] for key in sorted(labels_by_key)]


def _load(home: Path, manifest: Manifest, split: str) -> Labels:
    qrels: dict[str, dict[str, int]] = {}
    for row in label_rows_of(home / "qrels" / f"{split}.jsonl"):
        qrels.setdefault(row["query-id"], {})[row["corpus-id"]] = row["score"]
    corpus = next((path for name in ("corpus.jsonl", DOCUMENTS) if (path := home / name).is_file()), None)
    asked: frozenset[str] | None = None
    if (home / "queries.jsonl").is_file():
        rows = read_rows(home / "queries.jsonl")
        asked = frozenset(row["_id"] for row in rows if row["metadata"].get("split") == split)
    earlier = {str(version): str(pair) for version, pair in dict(manifest.notes.get(EARLIER) or {}).items()}
    return Labels(
        manifest=manifest,
        split=split,
        qrels=qrels,
        corpus=corpus,
        queries=asked,
        pair=pair_of(home, manifest),
        earlier=earlier,
    )


def score_results(
    results: Iterable[SystemHits] | Submission, labels: Sequence[Labels], *, bm25: Submission | None = None
) -> SystemScore:
    """Score the results of one system, dataset by dataset.

    `bm25` is the official BM25 submission, against which results in the class Reranking Only are checked. Raises
    RefusedSubmission, with all reasons, if results have no labels or are for another split, version or build of the
    version, if results in the class Reranking Only are not from BM25's top 100, if results have mostly unknown
    documents, if entries cannot be read, and if there are no results.
    """
    by_key = {label.key: label for label in labels}
    scored: list[DatasetScore] = []
    reasons: list[str] = []
    present = set()
    first: SystemHits | None = None
    version = ""
    for hits_of_one in results.read() if isinstance(results, Submission) else results:
        if isinstance(hits_of_one, DatasetError):
            reasons += reasons_of(hits_of_one)
            continue
        first = first or hits_of_one
        label = by_key.get((hits_of_one.key, hits_of_one.split))
        refusals = _why_not(hits_of_one, label, by_key, bm25)
        reasons += refusals
        unknown = None if label is None or reasons else _unknown_documents(hits_of_one, label)
        hits = sum(map(len, hits_of_one.hits.values()))
        if isinstance(results, Submission) and unknown and unknown > _MOST_UNKNOWN_SHARE * hits:
            reasons.append(
                f"{hits_of_one.key}: {unknown:,} of {hits:,} hits are of documents that the dataset does not have: "
                "search the published corpus"
            )
        if label is not None and not reasons:
            scored.append(_score_one(hits_of_one, label, unknown))
            version = version or label.manifest.info.version
            present.add((hits_of_one.key, hits_of_one.split))
    if reasons:
        raise RefusedSubmission(reasons)
    if first is None:
        raise RefusedSubmission(["there are no results to score"])
    absent = tuple(f"{key} {split}" for key, split in by_key if (key, split) not in present)
    return SystemScore(
        model=first.model, reranker=first.reranker, version=version, datasets=tuple(scored), absent=absent
    )


def _why_not(
    results: SystemHits, label: Labels | None, labels: Mapping[tuple[str, str], Labels], bm25: Submission | None
) -> list[str]:
    """Return the reasons to refuse the results of one dataset."""
    if label is None:
        splits = [split for key, split in labels if key == results.key]
        if splits:
            return [
                f"{results.key}: the results are for the split {results.split!r}, but the labels for "
                f"{', '.join(map(repr, splits))}"
            ]
        known = ", ".join(f"{key} {split}" for key, split in labels)
        return [f"there are no labels for {results.key} {results.split} (there are for: {known})"]
    reasons = reasons_to_refuse(results, label)
    if results.reranker != NO_RERANKER and results.model.lower() == "bm25":
        try:
            _check_reranking(results, bm25.find(results.entry) if bm25 else None)
        except DatasetError as error:
            reasons += reasons_of(error)
    return reasons


def reasons_to_refuse(results: SystemHits, label: Labels) -> list[str]:
    """Return why results for the labels' dataset and split are for another version, or another build of the version.

    Results of an earlier version fit if only labels were added since.
    """
    wanted = label.manifest.info.version
    pair = label.pair if results.version == wanted else label.earlier.get(results.version)
    if pair is None:
        return [f"{results.key}: the results are for version {results.version!r}, but the labels for {wanted!r}"]
    if results.pair and pair and results.pair != pair:
        return [
            f"{results.key}: the results and labels belong to two different datasets, both named version "
            f"{results.version!r}: search the published dataset, or use the labels published with it"
        ]
    return []


def _check_reranking(results: SystemHits, bm25: SystemHits | None) -> None:
    for query, hits in results.hits.items():
        if len(hits) > RERANK_DEPTH:
            raise DatasetError(
                f"{results.key}: Reranking Only is of BM25's top {RERANK_DEPTH}, but query {query!r} has {len(hits)} "
                "hits"
            )
        if bm25 is not None:
            ranked = sorted(bm25.hits.get(query, {}).items(), key=lambda item: (-item[1], item[0]))
            top = {document for document, _ in ranked[:RERANK_DEPTH]}
            for document in hits:
                if document not in top:
                    raise DatasetError(
                        f"{results.key}: document {document!r} of query {query!r} is not in BM25's top {RERANK_DEPTH}"
                    )


def _unknown_documents(results: SystemHits, label: Labels) -> int | None:
    """Return the number of hits that are not in the dataset, or None if its documents are unknown."""
    if label.corpus is None:
        return None
    unknown = Counter(document for hits in results.hits.values() for document in hits)
    for row in read_rows(label.corpus):  # as a stream: the corpus can be large
        unknown.pop(row["_id"], None)
    return unknown.total()


def _score_one(results: SystemHits, label: Labels, unknown_documents: int | None) -> DatasetScore:
    info, head = label.manifest.info, HEAD[label.manifest.info.task]
    queries = label.manifest.statistics.splits[label.split].queries
    sent = {query for query, hits in results.hits.items() if hits}
    missing: list[str] = []
    if label.queries is not None:
        missing, queries = sorted(label.queries - sent), len(label.queries)
    # All hits, although only those of queries with labels count: the time must not tell which queries have labels.
    scores = score(run_from_dict(results.hits), label.qrels, head)
    count = len(label.qrels)
    errors = {head: scores.of(head).std(ddof=1) / math.sqrt(count)} if count > 1 else {}
    return DatasetScore(
        dataset=info.name,
        task=info.task,
        domain=info.domain,
        language=info.language,
        split=results.split,
        measures={head: round(float(scores.means()[head]), DIGITS)},
        queries=queries,
        missing=tuple(missing[:_MOST_LISTED_QUERIES]),
        missing_count=len(missing) if label.queries is not None else max(0, queries - len(sent)),
        unknown_queries=None if label.queries is None else len(results.hits.keys() - label.queries),
        unknown_documents=unknown_documents,
        standard_errors={name: round(float(error), DIGITS) for name, error in errors.items()},
    )


def save_score(
    scored: SystemScore,
    directory: Path,
    *,
    replace: bool = False,
    submission: str = "",
    per_day: int = A_DAY,
    today: date | None = None,
) -> Path:
    """Write a score for the leaderboard. Returns the file.

    Args:
        scored: The score.
        directory: The folder of scores, whose file `SUBMISSIONS` records the submissions.
        replace: Whether to replace the score of another submission with the same name.
        submission: Hash of the submission. The same submission is not counted twice.
        per_day: Maximum number of scored submissions per system and day.
        today: The current day. Default: the clock's, in UTC.

    Raises:
        DatasetError: The system has reached its daily limit, another submission has the same name and `replace` is
            false, or `SUBMISSIONS` is damaged.
    """
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{scored.model}_{scored.reranker}")[:80].strip("-.")
    identity = hashlib.blake2b(
        repr((scored.model, scored.reranker, scored.version)).encode(), digest_size=4
    ).hexdigest()
    path = directory / f"{name}-{identity}.score.json"
    value = {"format": FORMAT, "class": scored.system_class, **asdict(scored)}
    text = json_text(value, indent=1, sort_keys=True) + "\n"
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / f".{SUBMISSIONS}.lock", wait=True):
        _count(scored, directory / SUBMISSIONS, submission=submission or text_key(text), per_day=per_day, today=today)
        if not replace and path.is_file() and path.read_text(encoding="utf-8") != text:
            raise DatasetError(
                f"{path}: another submission of {scored.model} + {scored.reranker}, version {scored.version}, was "
                "scored before: replace it with --replace, or submit under another --model name"
            )
        with whole_file(path) as fresh:
            write_text(fresh, text)
    return path


def _count(scored: SystemScore, path: Path, submission: str, per_day: int, today: date | None) -> None:
    """Record that a submission is scored. Raises DatasetError if the system has reached its daily limit.

    Every score counts, even if it is not saved afterwards. A future day counts as today, so setting back the clock does
    not raise the limit.
    """
    day = (today or datetime.now(UTC).date()).isoformat()
    system = re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", f"{scored.model}|{scored.reranker}").casefold())
    rows = []
    if path.is_file():
        try:
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            asked = {str(row["submission"]) for row in rows if row["system"] == system and str(row["day"]) >= day}
        except DAMAGE as error:
            raise DatasetError(f"{path}: is damaged: repair it, or move it away to restart the count") from error
        if submission in asked:
            return
        if len(asked) >= per_day:
            raise DatasetError(
                f"{scored.model} + {scored.reranker}: {len(asked)} submissions were scored today ({day} UTC), "
                f"which is the limit (--per-day), as each score reveals something about the private labels: "
                f"try again tomorrow"
            )
    row = {
        "day": day,
        "system": system,
        "model": scored.model,
        "reranker": scored.reranker,
        "version": scored.version,
        "submission": submission,
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json_text(row) + "\n")


def load_scores(directory: Path) -> list[SystemScore]:
    """Load the saved scores in a directory by file name. Raises DatasetError if a file is not a saved score."""
    paths = sorted(directory.glob("*.score.json"))
    return [read_kept(SystemScore, path, "saved score", "score the submission again") for path in paths]
