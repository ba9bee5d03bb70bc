"""Make a dataset from a finished one: with fewer passages, one split for all queries, or another version.

Trimming keeps every judged passage and adds others in the order of a hash of their ids. So a smaller trimmed corpus is
a part of a larger one. The hash depends on the dataset's secret: without it, anyone could tell from the ids of the
trimmed corpus which passages are there only because they are judged.
"""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from airgen.dataset.atomic import building
from airgen.dataset.files import FileWriter, encode_row, labelled_split, write_text
from airgen.dataset.layouts import read_rows
from airgen.dataset.manifest import FileEntry, Manifest, SplitStatistics, load_manifest
from airgen.dataset.secret import secret_of
from airgen.dataset.statistics import count_words_and_characters
from airgen.dataset.write import seal
from airgen.errors import DatasetError
from airgen.keys import file_sha256
from airgen.records import flat_text


def derive(
    source: Path,
    out: Path,
    *,
    max_passages: int | None = None,
    split: str | None = None,
    version: str | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> Manifest:
    """Write a variant of the whole dataset `source` to `out`; returns its manifest.

    `max_passages` trims the corpus; `split` puts all queries into one split (Long-Doc, paper appendix A.4);
    `version` sets another version. `count_tokens` counts a trimmed corpus, by default with
    `count_words_and_characters`. Raises DatasetError if the source is not whole, or `max_passages` is smaller than the
    number of judged passages.
    """
    manifest = load_manifest(source)
    if manifest.part != "whole":
        raise DatasetError(f"{source} is the {manifest.part} part of a dataset: the whole one is needed")
    notes: dict[str, Any] = {**manifest.notes, "made from": manifest.digest}
    statistics = manifest.statistics
    with building(out) as directory:
        files: dict[str, FileEntry] = {}
        keep = _kept(source, max_passages) if max_passages and statistics.passages > max_passages else None
        if keep is not None:
            notes |= {"passages before trimming": statistics.passages}
            count = count_tokens or count_words_and_characters
            mean = _write_trimmed(source, directory, keep, count, files)
            statistics = dataclasses.replace(statistics, passages=len(keep), mean_tokens=mean)
        if split is not None:
            _merge_splits(source, directory, manifest, split, files)
            statistics = dataclasses.replace(statistics, splits={split: _merged(statistics.splits.values())})
        moved = [name for name in manifest.files if split and (name == "queries.jsonl" or labelled_split(name))]
        for name, entry in manifest.files.items():
            if name not in files and name not in moved and name not in ("README.md", "croissant.json"):
                files[name] = copy_file(source, directory, name, entry)
        info = dataclasses.replace(manifest.info, version=version or manifest.info.version)
        if split is not None:
            info = dataclasses.replace(info, splits={split: 1})
        if keep is not None and count_tokens is None:
            info = dataclasses.replace(info, tokenizer="words")
        derived = dataclasses.replace(manifest, info=info, statistics=statistics, files=files, notes=notes)
        return seal(directory, derived)


def _kept(source: Path, size: int) -> set[str]:
    """The ids of the passages that a corpus trimmed to `size` keeps."""
    judged = {row["corpus-id"] for path in (source / "qrels").glob("*.jsonl") for row in read_rows(path)}
    if len(judged) > size:
        raise DatasetError(f"{source}: {len(judged)} passages are judged, so its corpus cannot be trimmed to {size}")

    secret = secret_of(source)

    def place(identifier: str) -> bytes:
        if secret is not None:
            return bytes.fromhex(secret.text("trim", identifier))
        return hashlib.blake2b(identifier.encode(), digest_size=8).digest()

    def others() -> Iterator[tuple[bytes, str]]:
        for row in read_rows(source / "corpus.jsonl"):
            if row["_id"] not in judged:
                yield place(row["_id"]), row["_id"]

    return judged | {identifier for _, identifier in heapq.nsmallest(size - len(judged), others())}


def _write_trimmed(
    source: Path, directory: Path, keep: set[str], count: Callable[[str], int], files: dict[str, FileEntry]
) -> float:
    """Write the kept passages in their order; returns their mean number of tokens."""
    tokens = 0
    with FileWriter(directory / "corpus.jsonl") as file:
        for row in read_rows(source / "corpus.jsonl"):
            if row["_id"] in keep:
                file.write(encode_row(row, row["_id"]))
                tokens += count(flat_text(row["title"], row["text"]))
    files["corpus.jsonl"] = FileEntry(file.bytes, file.sha256)
    return tokens / len(keep)


def _merge_splits(source: Path, directory: Path, manifest: Manifest, split: str, files: dict[str, FileEntry]) -> None:
    def note(name: str, text: str) -> None:
        files[name] = FileEntry(*write_text(directory / name, text))

    rows = list(read_rows(source / "queries.jsonl"))
    for row in rows:
        row["metadata"]["split"] = split
    note("queries.jsonl", "".join(encode_row(row, row["_id"]) for row in rows))
    for folder in ("qrels", *(f"qrels-{variant}" for variant in manifest.variants)):
        labels = [row for old in manifest.labelled_splits for row in read_rows(source / folder / f"{old}.jsonl")]
        write_qrels(directory, folder, split, labels, files)
    answers = [path for old in manifest.labelled_splits if (path := source / "answers" / f"{old}.jsonl").is_file()]
    if answers:
        found = sorted((row for path in answers for row in read_rows(path)), key=lambda row: str(row["query-id"]))
        note(f"answers/{split}.jsonl", "".join(encode_row(row, "answers") for row in found))


def write_qrels(
    directory: Path, folder: str, split: str, labels: list[dict[str, Any]], files: dict[str, FileEntry]
) -> None:
    """Write the labels of one split, as TSV and JSONL, by query and passage."""
    labels = sorted(labels, key=lambda row: (row["query-id"], row["corpus-id"]))
    lines = (f"{row['query-id']}\t{row['corpus-id']}\t{json.dumps(row['score'])}\n" for row in labels)
    tsv = "query-id\tcorpus-id\tscore\n" + "".join(lines)
    for name, text in ((".tsv", tsv), (".jsonl", "".join(encode_row(row, folder) for row in labels))):
        files[f"{folder}/{split}{name}"] = FileEntry(*write_text(directory / folder / f"{split}{name}", text))


def _merged(parts: Iterable[SplitStatistics]) -> SplitStatistics:
    parts = list(parts)
    queries = sum(part.queries for part in parts)
    return SplitStatistics(
        queries=queries,
        mean_tokens=sum(part.mean_tokens * part.queries for part in parts) / queries,
        positives=sum(part.positives or 0 for part in parts),
        hard_negatives=sum(part.hard_negatives or 0 for part in parts),
    )


def copy_file(source: Path, directory: Path, name: str, entry: FileEntry) -> FileEntry:
    """Copy a file. Raises DatasetError if it is not the one that the manifest names."""
    target = directory / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / name, target)  # with its mode: the secret is its owner's alone
    if file_sha256(target) != entry.sha256:
        raise DatasetError(f"{source / name} differs from the manifest: run airgen verify {source}")
    return entry
