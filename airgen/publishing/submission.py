"""Submissions: search results for private labels, packed as air-benchmark packs them, and read with suspicion.

    {model}_{reranker}.zip
        {task}/{domain}/{language}_{dataset}_{split}.json     one per dataset: `search_results` and what they are of

A submission comes from a stranger: nothing is extracted to disk, sizes are counted while reading, and what is not
as it must be ends in an error that names the entry.
"""

from __future__ import annotations

import json
import math
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.dataset.atomic import safe_name
from airgen.errors import DatasetError

__all__ = ["NO_RERANKER", "Limits", "Results", "Submission", "pack", "read_results_tree"]

NO_RERANKER = "NoReranker"
# All that zipfile raises of a damaged file; RuntimeError is its word for a missing password.
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, RuntimeError, EOFError, OSError)
_FIELDS = {  # air-benchmark's names of our fields
    "model": "model_name",
    "reranker": "reranker_name",
    "version": "benchmark_version",
    "task": "task_type",
    "domain": "domain",
    "language": "language",
    "dataset": "dataset_name",
    "split": "split",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a submission may be: entries, bytes when unpacked (each and in all), and hits of one query."""

    entries: int = 2_000
    entry_bytes: int = 600_000_000
    total_bytes: int = 4_000_000_000
    ratio: int = 200
    hits: int = 1_000


@dataclass(frozen=True, slots=True)
class Results:
    """One system's hits on one split of one dataset: `hits` is {query id: {document id: score}}."""

    model: str
    reranker: str
    version: str
    task: str
    domain: str
    language: str
    dataset: str
    split: str
    hits: Mapping[str, Mapping[str, float]]

    @property
    def key(self) -> str:
        """The dataset in a suite: `{task}_{domain}_{language}/{dataset}`."""
        return f"{self.task}_{self.domain}_{self.language}/{self.dataset}"

    @property
    def entry(self) -> str:
        """Its name in the zip."""
        return f"{self.task}/{self.domain}/{self.language}_{self.dataset}_{self.split}.json"


def pack(results: Iterable[Results], out: Path, *, limits: Limits = Limits()) -> Path:
    """Write a submission of test splits; the same results give the same bytes. Returns `out`.

    Raises DatasetError for no results, more than one system, the same dataset twice, or a name that is not one.
    """
    ordered = sorted(results, key=lambda one: one.entry)
    if not ordered:
        raise DatasetError("there are no results to submit")
    systems = sorted({(one.model, one.reranker) for one in ordered})
    if len(systems) > 1:
        raise DatasetError(f"a submission is of one system, not of {len(systems)}: {systems[0]}, {systems[1]}")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        last = ""
        for one in ordered:
            for part in (one.task, one.domain, one.language, one.dataset, one.split):
                safe_name(part)
            if one.entry == last:
                raise DatasetError(f"{one.entry}: two results for the same dataset and split")
            last = one.entry
            value: dict[str, Any] = {theirs: getattr(one, ours) for ours, theirs in _FIELDS.items()}
            value["search_results"] = _checked_hits(one.hits, one.entry, limits)
            info = zipfile.ZipInfo(one.entry, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True))
    partial.replace(out)
    return out


class Submission:
    """A zip of ours or of air-benchmark's, read one entry at a time; entries that are not JSON are passed over.

    Iterating gives its `Results` by entry name; memory is that of the largest entry, about ten times its bytes.
    Raises DatasetError, while opening or iterating: not a zip, encrypted, too many or too large entries (counted
    while reading, whatever the headers say), names that leave the zip, JSON that is broken or repeats a key, scores
    that are not finite numbers, too many hits, fields that contradict the entry's name, several systems, nothing.
    """

    def __init__(self, path: Path, *, limits: Limits = Limits()) -> None:
        self.path, self.limits = path, limits
        with self._open() as archive:
            infos = archive.infolist()
        if len(infos) > limits.entries:
            raise DatasetError(f"{path}: {len(infos)} entries, at most {limits.entries} are read")
        for info in infos:
            _check_entry(path, info)
        wanted = [i for i in infos if i.filename.endswith(".json") and "__MACOSX" not in i.filename]
        self._infos = sorted(wanted, key=lambda info: _tail(info.filename))
        if not self._infos:
            raise DatasetError(f"{path}: holds no search results")
        for before, info in zip(self._infos, self._infos[1:], strict=False):
            if _tail(before.filename) == _tail(info.filename):
                raise DatasetError(f"{path}: holds {_tail(info.filename)} twice")

    def __iter__(self) -> Iterator[Results]:
        total = 0
        first: Results | None = None
        with self._open() as archive:
            for info in self._infos:
                data = self._read(archive, info, self.limits.total_bytes - total)
                total += len(data)
                results = _parse(data, f"{self.path}: {info.filename}", info.filename, self.limits)
                first = first or results
                _check_same_system(first, results, str(self.path))
                yield results

    def find(self, entry: str) -> Results | None:
        """The results of one entry name, if there are any."""
        for info in self._infos:
            if _tail(info.filename) == entry:
                with self._open() as archive:
                    data = self._read(archive, info, self.limits.total_bytes)
                return _parse(data, f"{self.path}: {info.filename}", info.filename, self.limits)
        return None

    @contextmanager
    def _open(self) -> Iterator[zipfile.ZipFile]:
        try:
            archive = zipfile.ZipFile(self.path)
        except _DAMAGE as error:
            raise DatasetError(f"{self.path}: cannot be read as a zip: {error}") from error
        with archive:
            yield archive

    def _read(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, left: int) -> bytes:
        """An entry's bytes, given up as soon as they are too many."""
        limits = self.limits
        most = min(limits.entry_bytes, left, max(info.compress_size * limits.ratio, 1_000_000))
        data = bytearray()
        try:
            with archive.open(info) as file:
                while len(data) <= most and (block := file.read(1 << 20)):
                    data += block
        except _DAMAGE as error:
            raise DatasetError(f"{self.path}: {info.filename!r} cannot be unpacked: {error}") from error
        if len(data) > most:
            raise DatasetError(f"{self.path}: {info.filename!r} unpacks to more than {most:,} bytes: not read further")
        return bytes(data)


def _tail(name: str) -> str:
    """The entry's name below whatever folders were zipped with it."""
    return "/".join(name.split("/")[-3:])


def read_results_tree(directory: Path, *, limits: Limits = Limits()) -> list[Results]:
    """The same from air-benchmark's folder {retriever}/{reranker}/: its JSON files below, without those of dev."""
    paths = [path for path in sorted(directory.rglob("*.json")) if not path.name.endswith("_dev.json")]
    found = [_parse(path.read_bytes(), str(path), path.as_posix(), limits) for path in paths]
    if not found:
        raise DatasetError(f"{directory}: holds no search results")
    for results in found:
        _check_same_system(found[0], results, str(directory))
    return sorted(found, key=lambda one: one.entry)


def _check_same_system(first: Results, other: Results, where: str) -> None:
    systems = [(one.model, one.reranker, one.version) for one in (first, other)]
    if systems[0] != systems[1]:
        raise DatasetError(f"{where}: holds results of several systems or versions: {systems[0]}, {systems[1]}")


def _check_entry(path: Path, info: zipfile.ZipInfo) -> None:
    name = info.filename
    if name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/"):
        raise DatasetError(f"{path}: the entry {name!r} points out of the zip")
    if info.flag_bits & 1:
        raise DatasetError(f"{path}: {name!r} is encrypted")


def _parse(data: bytes, where: str, name: str, limits: Limits) -> Results:
    def no_constants(word: str) -> float:
        raise DatasetError(f"{where}: holds {word}, scores must be finite numbers")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            names = [key for key, _ in pairs]
            repeated = next(key for key in names if names.count(key) > 1)
            raise DatasetError(f"{where}: {repeated[:80]!r} appears twice in one object")
        return value

    try:
        value = json.loads(data, parse_constant=no_constants, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: is not JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict) or not isinstance(value.get("search_results"), dict):
        raise DatasetError(f"{where}: lacks the object search_results")
    fields = {}
    parts = name.split("/")
    for ours, theirs in _FIELDS.items():
        text = value.get(theirs)
        if text is None and ours == "task" and len(parts) >= 3:
            text = parts[-3]  # early versions of air-benchmark leave it to the folder
        if not isinstance(text, str) or not text or len(text) > 200:
            raise DatasetError(f"{where}: {theirs} is missing or is not a short text")
        fields[ours] = text
    results = Results(**fields, hits=_checked_hits(value["search_results"], where, limits))
    if _tail(name) != results.entry:
        raise DatasetError(f"{where}: says of itself that it is {results.entry}: which is it?")
    return results


def _checked_hits(value: Mapping[str, Any], where: str, limits: Limits) -> dict[str, dict[str, float]]:
    for query, hits in value.items():
        if not isinstance(hits, Mapping):
            raise DatasetError(f"{where}: the hits of query {query[:80]!r} are not an object")
        if len(hits) > limits.hits:
            raise DatasetError(f"{where}: query {query[:80]!r} has {len(hits)} hits, at most {limits.hits} are scored")
        for document, score in hits.items():
            if isinstance(score, bool) or not isinstance(score, int | float) or not _finite(score):
                raise DatasetError(
                    f"{where}: query {query[:80]!r}, document {document[:80]!r}: the score is no finite number"
                )
    return {query: {document: float(score) for document, score in hits.items()} for query, hits in value.items()}


def _finite(score: int | float) -> bool:
    try:
        return math.isfinite(score)
    except OverflowError:  # an integer beyond floats
        return False
