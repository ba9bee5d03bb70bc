"""The result of a system on a dataset, its costs, and its files (JSON, MTEB's JSON, and scores per query as Parquet).

Costs are those in BEIR's Table 3: time per query, index size, memory, parameters and device. Times depend on the
machine and the moment, so they are kept apart from the scores and are never part of a key.
"""

import importlib.metadata
import math
import os
import platform
import re
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from airgen import __version__
from airgen.components.registry import EXTRAS
from airgen.display.study import Column, Shown, Study, Table
from airgen.errors import DatasetError
from airgen.evaluation.breakdown import Group
from airgen.evaluation.measures import Scores, parse_measure
from airgen.retrievers.model_facts import ModelSetup
from airgen.storage.json_values import DAMAGE, FORMAT, kept_of, read_json, write_json
from airgen.storage.sql_connections import in_shared_memory, without_globs
from airgen.storage.whole_files import whole_file


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs in seconds, milliseconds and bytes, or None if unknown. A system's times include those of the systems on
    which it builds.

    Attributes:
        latency_p50_ms, latency_p95_ms: Median and 95th percentile for single queries.
        batch_ms: Milliseconds per query if all are searched at once. `queries_per_second` is its inverse.
        memory_bytes: Growth of resident memory while indexing and searching.
        ann_recall: Share of the exact 10 nearest passages among the first 10 hits of an approximate index.
        hosted_usd_per_1000: Price of 1,000 queries for the system's own hosted models, by the tokens that were billed.
        usd_per_1000: Price of 1,000 queries according to the systems YAML, including the systems on which it builds.
    """

    index_seconds: float | None = None
    index_bytes: int | None = None
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    batch_ms: float | None = None
    queries_per_second: float | None = None
    memory_bytes: int | None = None
    parameters: int | None = None
    device: str | None = None
    threads: int | None = None
    dtype: str | None = None
    ann_recall: float | None = None
    usd_per_1000: float | None = None
    hosted_usd_per_1000: float | None = None


def resident_bytes() -> int:
    """Return the resident memory of this process, or its maximum so far if the system reports only that."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return peak_bytes() or 0


def peak_bytes() -> int | None:
    """Return the peak resident memory of this process, or None if the system does not report it."""
    try:
        import resource  # only on POSIX
    except ModuleNotFoundError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def single_latencies(search: Callable[[str], object], queries: Sequence[str], *, most: int = 50) -> list[float]:
    """Time single queries, evenly spread over all queries, in milliseconds, for at most ten seconds.

    The first query is a warm-up. It is not timed unless it is the only query, because a re-ranker may cache its
    encodings.
    """
    count = min(most + 1, len(queries))
    chosen = [queries[place] for place in np.linspace(0, len(queries) - 1, count).astype(int)]
    if not chosen:
        return []
    started = time.perf_counter()
    search(chosen[0])
    taken = []
    for text in chosen[1:] or chosen:
        start = time.perf_counter()
        search(text)
        taken.append((time.perf_counter() - start) * 1000)
        if time.perf_counter() - started > 10:
            break
    return taken


_LIBRARIES = (
    "numpy",
    "torch",
    "transformers",
    "sentence_transformers",
    "FlagEmbedding",
    "faiss",
    "onnxruntime",
    "numba",
)
_SECRET = re.compile(r"(key|token|password|secret|authorization)$", re.IGNORECASE)
MTEB_LANGUAGES = {
    "ar": "ara-Arab", "bn": "ben-Beng", "de": "deu-Latn", "en": "eng-Latn", "es": "spa-Latn", "fa": "fas-Arab",
    "fr": "fra-Latn", "hi": "hin-Deva", "id": "ind-Latn", "ja": "jpn-Jpan", "ko": "kor-Hang", "ru": "rus-Cyrl",
    "zh": "zho-Hans", "it": "ita-Latn", "pt": "por-Latn", "nl": "nld-Latn", "pl": "pol-Latn", "sv": "swe-Latn",
    "tr": "tur-Latn", "cs": "ces-Latn", "da": "dan-Latn", "no": "nor-Latn", "fi": "fin-Latn", "hu": "hun-Latn",
    "ro": "ron-Latn", "el": "ell-Grek", "ca": "cat-Latn", "et": "est-Latn", "lt": "lit-Latn", "eu": "eus-Latn",
    "ga": "gle-Latn", "hy": "hye-Armn", "sr": "srp-Cyrl", "ta": "tam-Taml", "ne": "npi-Deva", "uk": "ukr-Cyrl",
    "vi": "vie-Latn", "th": "tha-Thai",
}  # fmt: skip
_MTEB = {"nDCG": "ndcg", "AP": "map", "Recall": "recall", "P": "precision", "RR": "mrr"}


@dataclass(frozen=True, slots=True)
class Paths:
    """The files of a result: the TREC run, the result as JSON, the scores per query, and MTEB's format."""

    run: Path
    json: Path
    scores: Path
    mteb: Path

    @classmethod
    def of(cls, folder: Path, name: str) -> "Paths":
        """Return the paths of a system's files in a folder."""
        return cls(
            folder / f"{name}.run.gz", folder / f"{name}.json", folder / f"{name}.parquet", folder / f"{name}.mteb.json"
        )


NO_NEGATIVES = "generated_negatives_never_found"
"""The note of a third-party system that never retrieved a generated hard negative; its index may lack them."""


@dataclass(frozen=True)
class Result(Shown):
    """The result of a system on one split of a dataset.

    Attributes:
        means: {measure: mean over the queries in the qrels}.
        intervals: {measure: (low, high)}, the 95% bootstrap intervals.
        missing: Number of queries in the qrels without results, which score zero.
        unjudged: Number of queries in the run that are not in the qrels, which are ignored.
        headline: The measure that ranks systems.
        cached: Whether the system did not run for this result: its run was read from a file.
        reads: Names of values that a user's function reads, and that are not part of its identity. Only of a cached
            result.
        worst: Texts of the queries with the lowest scores.
        notes: Counts of unusual events.
        by_document: {measure: (mean, low, high)} by document, for a dataset of chunks.
        answers: {measure: (mean, low, high)} for the queries with known answers.
        refusal: Statistics of refusal; see `airgen.evaluation.breakdown`.
        family: Group of the system in reports.
        made_labels: The system's models that also retrieved or voted for the dataset's labels.
        models: How each of its models was run, and what it cut.
    """

    name: str
    kind: str
    dataset: str
    split: str
    headline: str
    means: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    queries: int
    missing: int
    unjudged: int
    costs: Costs
    paths: Paths
    settings: Mapping[str, Any]
    description: Mapping[str, Any]
    about: Mapping[str, Any]
    rules: Mapping[str, Any]
    versions: Mapping[str, str]
    groups: tuple[Group, ...] = ()
    negatives_above: Mapping[str, float] = field(default_factory=dict)
    negative_ranks: Mapping[str, float] = field(default_factory=dict)
    biases: Mapping[str, float] = field(default_factory=dict)
    worst: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)
    by_document: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    answers: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    refusal: Mapping[str, float] = field(default_factory=dict)
    key: str = ""
    scores_key: str = ""
    family: str = ""
    made_labels: tuple[str, ...] = ()
    models: tuple[ModelSetup, ...] = ()
    cached: bool = False
    reads: tuple[str, ...] = ()

    def study(self) -> Study:
        """Return the measures with their 95% intervals, and the costs."""
        measures = [
            Column("measure", lambda name: name),
            Column("mean", lambda name: self.means[name], ".4f"),
            Column("95 %", lambda name: self.intervals.get(name), ".3f"),
        ]
        costs = [(name.replace("_", " "), value) for name, value in asdict(self.costs).items() if value is not None]
        about = [("kind", self.kind), ("queries", self.queries), ("without hits", self.missing)]
        about += [("queries without labels", self.unjudged), ("run", str(self.paths.run))]
        pairs = [Column("", itemgetter(0), left=True), Column("", itemgetter(1), ".4g", left=True)]
        title = f"{self.name}{self.mark} on {self.dataset}"
        return Study(title, [Table(list(self.means), measures), "## Costs", Table(costs, pairs), Table(about, pairs)])

    @property
    def kept(self) -> str:
        """Return the local time at which a cached run was made, such as `2026-11-30 14:05`, or "" if it is new."""
        try:
            made = self.paths.run.stat().st_mtime if self.cached else None
        except OSError:  # the file is gone
            return "unknown time"
        return "" if made is None else f"{datetime.fromtimestamp(made):%Y-%m-%d %H:%M}"

    @property
    def mark(self) -> str:
        """Return the mark for the name of a system that helped make the labels."""
        return " †" if self.made_labels else ""

    @property
    def score(self) -> float:
        """Return the mean of the main measure."""
        return self.means[self.headline]


def write_result(result: Result) -> None:
    """Write the result in MTEB's format, then in airgen's. Each file is written atomically.

    The result is the last of a system's files, so if it exists, the others do as well.
    """
    value = {"format": FORMAT, **asdict(result)}
    for name in ("paths", "cached", "reads"):  # these depend on where the file is and how it was read
        del value[name]
    write_json(result.paths.mteb, mteb_form(result))
    write_json(result.paths.json, value)


def load_result(paths: Paths) -> Result | None:
    """Load a saved result, marked as cached, or None if it is missing, damaged or from another version."""
    try:
        result = replace(kept_of(Result, {**read_json(paths.json), "paths": asdict(paths)}), cached=True)
        ends = [end for interval in result.intervals.values() for end in interval]
        costs = [cost for cost in asdict(result.costs).values() if isinstance(cost, int | float)]
        numbers = [result.score, *result.means.values(), *ends, *costs, *(group.mean for group in result.groups)]
    except DAMAGE:
        return None  # the file is missing or damaged, so the system is run again
    return None if any(map(math.isinf, numbers)) else result


@dataclass(frozen=True, slots=True)
class RecordedSystem:
    """What the record beside a run says of its system: its retriever, and the re-rankers of the hits, in order."""

    retriever: str
    rerankers: tuple[str, ...]


def recorded_system(run: Path) -> RecordedSystem | None:
    """Return the system that wrote a run, or None if it is unknown whether it re-ranks.

    That is the case for a run without a record, and for systems outside airgen: services, run files and functions. The
    retriever of a re-ranked run of BM25 is called bm25, whatever its name.
    """
    name = run.name.removesuffix(".gz").removesuffix(".run")
    found = _recorded(run.parent, name)
    return found if found is None or found.rerankers else replace(found, retriever=name)


def _recorded(folder: Path, name: str) -> RecordedSystem | None:
    for path in (folder / f"{name}.json", folder / f"{name}{SEARCHED}"):
        try:
            record = read_json(path)
            kind, settings = str(record["kind"]), record["settings"]
            if kind == "rerank":
                first, last = str(settings["first"]), settings["reranker"]
                below = _recorded(folder, first) or RecordedSystem(first, ())
                last = last if isinstance(last, str) else last.get("model") or last["kind"]
                return replace(below, rerankers=(*below.rerankers, str(last)))
            parts = [_recorded(folder, str(each)) for each in settings["systems"]] if kind == "fuse" else []
        except DAMAGE:
            continue
        if kind in _OUTSIDE or ":" in kind or None in parts:
            return None
        rerankers = [each for part in parts if part is not None for each in part.rerankers]
        return RecordedSystem("bm25" if kind == "bm25" else name, tuple(dict.fromkeys(rerankers)))
    return None


_OUTSIDE = ("run", "http", "python")  # kinds of systems that may re-rank or not
SEARCHED = ".searched.json"
"""The ending of the record of a run on a split without labels."""


def write_scores(path: Path, result_of: Mapping[str, str], scores: Scores) -> None:
    """Write scores per query as Parquet, with one row per query and measure.

    Columns: dataset, split, system (all from `result_of`), query, measure, score. DuckDB reads all systems at once:
    SELECT system, measure, avg(score) FROM 'results/*/*/*.parquet' GROUP BY ALL.
    """
    queries = [key for _ in scores.measures for key in scores.query_ids]
    measures = [str(measure) for measure in scores.measures for _ in scores.query_ids]
    with whole_file(path) as fresh, in_shared_memory() as base:
        base.execute(
            "CREATE TEMP TABLE score AS SELECT ?::VARCHAR AS dataset, ?::VARCHAR AS split, ?::VARCHAR AS system, "
            "unnest(?::VARCHAR[]) AS query, unnest(?::VARCHAR[]) AS measure, unnest(?::DOUBLE[]) AS score",
            [*(result_of[name] for name in ("dataset", "split", "system")), queries, measures, scores.values.ravel()],
        )
        target = str(fresh).replace("'", "''")
        base.execute(f"COPY score TO '{target}' (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)")


def read_scores(path: Path, measure: str) -> dict[str, float]:
    """Read {query id: score} for one measure. Raises DatasetError if the file is missing or damaged."""
    return all_scores([path], measure)[0]


def all_scores(paths: Sequence[Path], measure: str) -> list[dict[str, float]]:
    """Read the scores in each file, like `read_scores`."""
    import duckdb

    scores = []
    with in_shared_memory() as base:
        for path in paths:
            try:
                rows = base.execute(
                    "SELECT query, score FROM read_parquet(?) WHERE measure = ? ORDER BY query",
                    [without_globs(path), measure],
                ).fetchall()
            except duckdb.Error as error:
                raise DatasetError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error
            scores.append(dict(rows))
    return scores


def without_secrets(value: Any) -> Any:
    """Return settings without secrets: keys are masked, and URLs lose their user name, password and query.

    Keys belong in environment variables (`api_key_env`). This protects keys that are in settings nevertheless.
    """
    if isinstance(value, Mapping):
        return {
            name: "***" if isinstance(part, str) and _SECRET.search(str(name)) else without_secrets(part)
            for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(part) for part in value]
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        parts = urllib.parse.urlsplit(value)
        return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return value


def mteb_form(result: Result) -> dict[str, Any]:
    """Return the result in MTEB's format: `{task_name, scores: {split: [{ndcg_at_10, ..., main_score,
    hf_subset}]}}`."""
    scores: dict[str, Any] = {}
    for name, value in result.means.items():
        measure = parse_measure(name)
        if measure.name in _MTEB and measure.cutoff is not None and measure.relevant_from is None:
            scores[f"{_MTEB[measure.name]}_at_{measure.cutoff}"] = round(value, 5)
    language = str(result.about.get("language") or "und")
    language = MTEB_LANGUAGES.get(language, language)
    return {
        "dataset_revision": result.about.get("digest"),
        "task_name": result.dataset,
        "mteb_version": None,
        "scores": {
            result.split: [
                {**scores, "main_score": round(result.score, 5), "hf_subset": "default", "languages": [language]}
            ]
        },
        "evaluation_time": None,
        "kg_co2_emissions": None,
    }


def library_versions() -> dict[str, str]:
    """Return the versions of airgen, Python, and those of the `_LIBRARIES` that are installed, loaded or not, so that
    an interrupted evaluation writes the same result."""
    versions = {"airgen": __version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(EXTRAS.get(name, (name, ""))[0])
    return versions


def as_matrix(results: Iterable[Result], measure: str) -> tuple[list[str], np.ndarray[Any, np.dtype[np.float64]]]:
    """Return the sorted query ids, and the scores of several results per query, float64 (results, queries).

    Raises DatasetError if scores cannot be read, or the results are for different queries.
    """
    results = list(results)
    rows = all_scores([result.paths.scores for result in results], measure)
    for result, row in zip(results, rows, strict=True):
        if row.keys() != rows[0].keys():
            raise DatasetError(
                f"{result.name} and {results[0].name} were scored on different queries ({len(row):,} and "
                f"{len(rows[0]):,}, of which {len(row.keys() & rows[0].keys()):,} are the same): evaluate both again"
            )
    keys = sorted(rows[0])
    return keys, np.array([[row[key] for key in keys] for row in rows])
