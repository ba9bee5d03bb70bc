"""Submissions: search results that are scored with private labels, in the format of air-benchmark.

    {model}_{reranker}.zip
        {task}/{domain}/{language}_{dataset}_{split}.json     one per dataset: `search_results` and their origin

A submission is untrusted: nothing is extracted to disk, sizes are counted while reading, and every entry is checked.
Errors name the entry.
"""

import json
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.components.keys import file_sha256
from airgen.components.registry import closest
from airgen.dataset.air_bench import air_bench_files
from airgen.dataset.beir import BeirDataset
from airgen.dataset.layouts import read_rows
from airgen.dataset.manifest import MANIFEST, load_manifest
from airgen.errors import DatasetError
from airgen.evaluation.run import read_run
from airgen.publishing import dataset_key
from airgen.publishing.withhold import pair_of
from airgen.safety.escaping import terminal_text
from airgen.storage.whole_files import safe_name, whole_file

NO_RERANKER = "NoReranker"
# The errors of zipfile for a damaged file; RuntimeError is for a missing password.
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, RuntimeError, EOFError, OSError)
_FIELDS = {  # our field: its name in air-benchmark
    "model": "model_name",
    "reranker": "reranker_name",
    "version": "benchmark_version",
    "task": "task_type",
    "domain": "domain",
    "language": "language",
    "dataset": "dataset_name",
    "split": "split",
}


_PAIR = "dataset_pair"  # only ours: which build of a version was searched
_MOST_REASONS = 20
_MOST_ENTRIES = 2_000
_ENTRY_BYTES, _TOTAL_BYTES = 600_000_000, 4_000_000_000  # unpacked
_MOST_COMPRESSION_RATIO = 200  # maximum compression ratio
_MOST_HITS = 1_000  # maximum hits per query
_MOST_VALUES = 30_000_000  # maximum values of an entry's JSON, each of which is an object in memory


class RefusedSubmission(DatasetError):
    """A submission is refused. `reasons` lists all reasons."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(dict.fromkeys(reasons))
        shown = [*self.reasons[:_MOST_REASONS]]
        if len(self.reasons) > _MOST_REASONS:
            shown.append(f"and {len(self.reasons) - _MOST_REASONS} more reasons")
        listed = "".join(f"\n- {reason}" for reason in shown)
        super().__init__(shown[0] if len(shown) == 1 else f"refused for {len(self.reasons)} reasons:{listed}")


def reasons_of(error: DatasetError) -> tuple[str, ...]:
    """Return all reasons in an error."""
    return error.reasons if isinstance(error, RefusedSubmission) else (str(error),)


@dataclass(frozen=True, slots=True)
class SystemHits:
    """One system's hits on one split of a dataset. `hits` is {query id: {document id: score}}.

    `pair` identifies the build of the version that was searched, or is "" if unknown, as for air-benchmark's results.
    """

    model: str
    reranker: str
    version: str
    task: str
    domain: str
    language: str
    dataset: str
    split: str
    hits: Mapping[str, Mapping[str, float]]
    pair: str = ""

    @property
    def key(self) -> str:
        """The key of the dataset."""
        return dataset_key(self.task, self.domain, self.language, self.dataset)

    @property
    def entry(self) -> str:
        """The name of the entry in the zip."""
        return f"{self.task}/{self.domain}/{self.language}_{self.dataset}_{self.split}.json"


Results = SystemHits
"""The name used by other programs."""


def results_of_run(dataset: Path, run: Path, *, model: str, reranker: str, split: str) -> tuple[SystemHits, int]:
    """Convert a TREC run on a dataset to results, and return them with the number of queries in the split without hits.

    Raises DatasetError if a query or the split is not in the dataset, or if the dataset was edited.
    """
    facts, splits, pair = _asked(dataset, split)
    hits: dict[str, dict[str, float]] = {}
    for query, ranked in read_run(run).ranked().items():
        if query not in splits:
            raise DatasetError(f"{run}: query {query!r} is not in {dataset}")
        if splits[query] == split:
            hits[query] = dict(ranked[:_MOST_HITS])
    missing = sum(of_query == split and query not in hits for query, of_query in splits.items())
    return SystemHits(model=model, reranker=reranker, **facts, split=split, hits=hits, pair=pair), missing


def _asked(dataset: Path, split: str) -> tuple[dict[str, str], dict[str, str], str]:
    """Return the version, task, domain, language and name of a dataset, the split of each query, and the mark of its
    parts."""
    files = None if (dataset / MANIFEST).is_file() else air_bench_files(dataset)
    if files is not None:
        if split not in files.queries:
            raise DatasetError(f"{dataset} has no split {split!r}{closest(split, list(files.queries))}")
        split_of = dict.fromkeys(BeirDataset.open(dataset).queries(split), split)
        info = {key: files.info.get(key, "") for key in ("version", "task", "domain", "language", "dataset")}
        return info, split_of, ""
    manifest = load_manifest(dataset)
    about = manifest.info
    if split not in manifest.statistics.splits:
        raise DatasetError(f"{dataset} has no split {split!r}{closest(split, list(manifest.statistics.splits))}")
    for name in ("corpus.jsonl", "queries.jsonl"):
        if file_sha256(dataset / name) != manifest.files[name].sha256:
            raise DatasetError(f"{dataset / name} was edited after it was published: download the dataset again")
    splits = {row["_id"]: row["metadata"]["split"] for row in read_rows(dataset / "queries.jsonl")}
    facts = {key: getattr(about, key) for key in ("version", "task", "domain", "language")}
    return {**facts, "dataset": about.name}, splits, pair_of(dataset, manifest)


def pack(results: Iterable[SystemHits], out: Path) -> Path:
    """Write a submission to `out`, and return `out`. The same results give the same bytes.

    Raises DatasetError if there are no results, several systems, a dataset twice, or a name that cannot be in a path.
    """
    ordered = sorted(results, key=lambda hits: hits.entry)
    if not ordered:
        raise DatasetError("there are no results to submit")
    systems = sorted({(hits.model, hits.reranker) for hits in ordered})
    if len(systems) > 1:
        raise DatasetError(
            f"a submission must contain a single system, but there are {len(systems)}: {systems[0]}, {systems[1]}"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(out) as fresh, zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
        last = ""
        for hits in ordered:
            for part in (hits.task, hits.domain, hits.language, hits.dataset, hits.split):
                safe_name(part)
            if hits.entry == last:
                raise DatasetError(f"{hits.entry}: two results for the same dataset and split")
            last = hits.entry
            value: dict[str, Any] = {theirs: getattr(hits, ours) for ours, theirs in _FIELDS.items()}
            if hits.pair:
                value[_PAIR] = hits.pair
            value["search_results"] = _checked_hits(hits.hits, hits.entry)
            info = zipfile.ZipInfo(hits.entry, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True))
    return out


class Submission:
    """A zip file packed by airgen or air-benchmark, read one entry at a time. Only .json entries are read.

    It is read in the order of entry names, and needs about ten times the memory of the largest entry.

    Raises DatasetError on opening or reading for a file that is not a zip, encrypted entries, too many or too large
    entries (counted while reading, whatever the headers say), names that point outside the zip, invalid JSON or
    repeated keys, scores that are not finite numbers, too many hits, fields that contradict the name of the entry,
    several systems, or a zip without results.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as archive:
            infos = archive.infolist()
        if len(infos) > _MOST_ENTRIES:
            raise DatasetError(f"{path}: {len(infos)} entries, but at most {_MOST_ENTRIES} are allowed")
        for info in infos:
            name = info.filename
            if name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/"):
                raise DatasetError(f"{path}: the entry {name!r} points outside the zip")
            if info.flag_bits & 1:
                raise DatasetError(f"{path}: {name!r} is encrypted")
        wanted = [i for i in infos if i.filename.endswith(".json") and "__MACOSX" not in i.filename]
        self._infos = sorted(wanted, key=lambda info: _tail(info.filename))
        if not self._infos:
            raise DatasetError(f"{path}: contains no search results")
        for before, info in zip(self._infos, self._infos[1:], strict=False):
            if _tail(before.filename) == _tail(info.filename):
                raise DatasetError(f"{path}: contains {_tail(info.filename)} twice")

    def read(self) -> Iterator[SystemHits | DatasetError]:
        """Yield the results of each entry, or why it is refused. A zip that exceeds the limits is aborted with an
        error."""
        total = 0
        first: SystemHits | None = None
        with self._open() as archive:
            for info in self._infos:
                data = self._read(archive, info, _TOTAL_BYTES - total)
                total += len(data)
                try:
                    results = _parse(data, f"{self.path}: {info.filename}", info.filename)
                    first = first or results
                    _check_same_system(first, results, str(self.path))
                except DatasetError as error:
                    yield error
                else:
                    yield results

    def find(self, entry: str) -> SystemHits | None:
        """Return the results of one entry, or None."""
        for info in self._infos:
            if _tail(info.filename) == entry:
                with self._open() as archive:
                    data = self._read(archive, info, _TOTAL_BYTES)
                return _parse(data, f"{self.path}: {info.filename}", info.filename)
        return None

    @contextmanager
    def _open(self) -> Iterator[zipfile.ZipFile]:
        try:
            archive = zipfile.ZipFile(self.path)
        except _DAMAGE as error:
            raise DatasetError(
                f"{self.path}: cannot be read as a zip: {error}; pack a run file with `airgen publish submit`, or "
                "score it without a leaderboard with `airgen evaluate measures`"
            ) from error
        with archive:
            yield archive

    def _read(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, left: int) -> bytes:
        """Return the bytes of an entry. Reading stops as soon as there are too many."""
        most = min(_ENTRY_BYTES, left, max(info.compress_size * _MOST_COMPRESSION_RATIO, 1_000_000))
        data = bytearray()
        try:
            with archive.open(info) as file:
                while len(data) <= most and (block := file.read(1 << 20)):
                    data += block
        except _DAMAGE as error:
            raise DatasetError(f"{self.path}: {info.filename!r} cannot be unpacked: {error}") from error
        if len(data) > most:
            raise DatasetError(
                f"{self.path}: {info.filename!r} unpacks to more than {most:,} bytes, which is the limit"
            )
        return bytes(data)


def _tail(name: str) -> str:
    """Return the name of an entry without the folders above it."""
    return "/".join(name.split("/")[-3:])


def read_results_tree(directory: Path) -> list[SystemHits]:
    """Return the results in air-benchmark's folder {retriever}/{reranker}/, without those of dev splits."""
    paths = [path for path in sorted(directory.rglob("*.json")) if not path.name.endswith("_dev.json")]
    results_read = [_parse(path.read_bytes(), str(path), path.as_posix()) for path in paths]
    if not results_read:
        raise DatasetError(f"{directory}: contains no search results")
    for results in results_read:
        _check_same_system(results_read[0], results, str(directory))
    return sorted(results_read, key=lambda hits: hits.entry)


def _check_same_system(first: SystemHits, other: SystemHits, where: str) -> None:
    systems = [(hits.model, hits.reranker, hits.version) for hits in (first, other)]
    if systems[0] != systems[1]:
        raise DatasetError(f"{where}: contains results of several systems or versions: {systems[0]}, {systems[1]}")


def _parse(data: bytes, where: str, name: str) -> SystemHits:
    def no_constants(word: str) -> float:
        raise DatasetError(f"{where}: holds {word}, but scores must be finite numbers")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            seen: set[str] = set()
            # `add` returns None, so this finds the first key that was there before, in one pass.
            repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise DatasetError(f"{where}: {repeated[:80]!r} appears twice in one object")
        return value

    if sum(data.count(mark) for mark in (b",", b"{", b"[")) > _MOST_VALUES:
        raise DatasetError(f"{where}: has more than {_MOST_VALUES:,} JSON values")
    try:
        value = json.loads(data, parse_constant=no_constants, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: is not JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict) or not isinstance(value.get("search_results"), dict):
        raise DatasetError(f"{where}: lacks the object search_results")
    fields, reasons = {}, []
    parts = name.split("/")
    for ours, theirs in _FIELDS.items():
        text = value.get(theirs)
        if text is None and ours == "task" and len(parts) >= 3:
            text = parts[-3]  # early versions of air-benchmark store the task only in the folder name
        if not isinstance(text, str) or not text or len(text) > 200 or terminal_text(text) != text:
            reasons.append(f"{where}: {theirs} is missing or is not a short text that can be printed")
        fields[ours] = str(text)
    hits: dict[str, dict[str, float]] = {}
    try:
        hits = _checked_hits(value["search_results"], where)
    except DatasetError as error:
        reasons += reasons_of(error)
    results = SystemHits(**fields, hits=hits, pair=str(value.get(_PAIR) or "")[:64])
    if not reasons and _tail(name) != results.entry:
        reasons.append(
            f"{where}: its contents name {results.entry}, but its file name differs: rename the file or correct "
            f"the contents"
        )
    if reasons:
        raise RefusedSubmission(reasons)
    return results


def _checked_hits(value: Mapping[str, Any], where: str) -> dict[str, dict[str, float]]:
    reasons: list[str] = []
    for query, hits in value.items():
        if not isinstance(hits, Mapping):
            reasons.append(f"{where}: the hits of query {query[:80]!r} are not an object")
            continue
        if len(hits) > _MOST_HITS:
            reasons.append(f"{where}: query {query[:80]!r} has {len(hits)} hits, but at most {_MOST_HITS} are allowed")
        for document, score in hits.items():
            if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= sys.float_info.max:
                place = f"{where}: query {query[:80]!r}, document {document[:80]!r}"
                reasons.append(f"{place}: the score is not a finite number")
                break  # one for each query
    if reasons:
        raise RefusedSubmission(reasons)
    return {query: {document: float(score) for document, score in hits.items()} for query, hits in value.items()}
