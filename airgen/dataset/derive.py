"""Make a dataset from a finished one: fewer passages, one split for all queries, another version, more labels.

Trimming keeps every judged passage and adds others in the order of a hash of their ids, so a smaller trimmed corpus is
a part of a larger one. The hash depends on the dataset's secret: without it, anyone could tell from the ids which
passages are there only because they are judged. The next version of a dataset has the same corpus, queries and ids, and
more labels of one split: results of the earlier version are scored again without a new search.
"""

import dataclasses
import hashlib
import heapq
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airgen.dataset.content import ModelUse, QrelRow
from airgen.dataset.files import building, encode_row, labelled_split, write_text
from airgen.dataset.layouts import read_rows
from airgen.dataset.manifest import FileEntry, Manifest, SplitStatistics, count_words_and_characters, load_manifest
from airgen.dataset.secret import secret_of
from airgen.dataset.write import label_value, seal, write_split
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
    _check_whole(source, manifest)
    notes: dict[str, Any] = {**manifest.notes, "made from": manifest.digest}
    statistics = manifest.statistics
    with building(out) as directory:
        files: dict[str, FileEntry] = {}
        keep = _kept(source, max_passages) if max_passages and statistics.passages > max_passages else None
        if keep is not None:
            notes |= {"passages before trimming": statistics.passages}
            count = count_tokens or count_words_and_characters
            tokens = 0

            def lines() -> Iterator[str]:
                nonlocal tokens
                for row in read_rows(source / "corpus.jsonl"):
                    if row["_id"] in keep:
                        tokens += count(flat_text(row["title"], row["text"]))
                        yield encode_row(row, row["_id"])

            files["corpus.jsonl"] = FileEntry(*write_text(directory / "corpus.jsonl", lines()))
            statistics = dataclasses.replace(statistics, passages=len(keep), mean_tokens=tokens / len(keep))
        if split is not None:
            _merge_splits(source, directory, manifest, split, files)
            statistics = dataclasses.replace(statistics, splits={split: _merged(statistics.splits.values())})
        moved = [name for name in manifest.files if split and (name == "queries.jsonl" or labelled_split(name))]
        _copy_others(source, directory, manifest, files, moved)
        info = dataclasses.replace(manifest.info, version=version or manifest.info.version)
        if split is not None:
            info = dataclasses.replace(info, splits={split: 1})
        if keep is not None and count_tokens is None:
            info = dataclasses.replace(info, tokenizer="words")
        derived = dataclasses.replace(manifest, info=info, statistics=statistics, files=files, notes=notes)
        return seal(directory, derived)


def _check_whole(source: Path, manifest: Manifest) -> None:
    if manifest.part != "whole":
        raise DatasetError(f"{source} is the {manifest.part} part of a dataset: the whole one is needed")


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


def _merge_splits(source: Path, directory: Path, manifest: Manifest, split: str, files: dict[str, FileEntry]) -> None:
    def note(name: str, text: str) -> None:
        files[name] = FileEntry(*write_text(directory / name, text))

    rows = list(read_rows(source / "queries.jsonl"))
    for row in rows:
        row["metadata"]["split"] = split
    note("queries.jsonl", "".join(encode_row(row, row["_id"]) for row in rows))
    for folder in ("qrels", *(f"qrels-{variant}" for variant in manifest.variants)):
        labels = (row for old in manifest.labelled_splits for row in read_rows(source / folder / f"{old}.jsonl"))
        write_split(directory, f"{folder}/{split}", sorted(map(_triple, labels)), files)
    answers = [path for old in manifest.labelled_splits if (path := source / "answers" / f"{old}.jsonl").is_file()]
    if answers:
        found = sorted((row for path in answers for row in read_rows(path)), key=lambda row: str(row["query-id"]))
        note(f"answers/{split}.jsonl", "".join(encode_row(row, "answers") for row in found))


def _merged(parts: Iterable[SplitStatistics]) -> SplitStatistics:
    parts = list(parts)
    queries = sum(part.queries for part in parts)
    return SplitStatistics(
        queries=queries,
        mean_tokens=sum(part.mean_tokens * part.queries for part in parts) / queries,
        positives=sum(part.positives or 0 for part in parts),
        hard_negatives=sum(part.hard_negatives or 0 for part in parts),
    )


def _triple(row: Mapping[str, Any]) -> tuple[str, str, int | float]:
    return row["query-id"], row["corpus-id"], row["score"]


def _copy_others(
    source: Path, directory: Path, manifest: Manifest, files: dict[str, FileEntry], moved: Sequence[str] = ()
) -> None:
    """Copy the data files that were not written anew."""
    for name, entry in manifest.files.items():
        if name not in files and name not in moved and name not in ("README.md", "croissant.json"):
            files[name] = copy_file(source, directory, name, entry)


def copy_file(source: Path, directory: Path, name: str, entry: FileEntry) -> FileEntry:
    """Copy a file. Raises DatasetError if it is not the one that the manifest names."""
    target = directory / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / name, target)  # with its mode: the secret is its owner's alone
    if file_sha256(target) != entry.sha256:
        raise DatasetError(f"{source / name} differs from the manifest: run airgen publish verify {source}")
    return entry


EARLIER = "earlier versions with the same corpus and queries"
"""The note of a manifest: {version: its pair of parts, or nothing without a secret}."""


def with_more_labels(
    source: Path,
    out: Path,
    more: Sequence[QrelRow],
    *,
    version: str,
    split: str,
    pair: str = "",
    provenance: Sequence[ModelUse] = (),
) -> Manifest:
    """Write the whole dataset `source` with `more` labels of one split to `out`; returns the new manifest.

    A pair that has a label keeps it. `pair` is the mark by which the parts of the source recognise each other, and
    `provenance` says which models judged. Raises DatasetError if the source is not whole, for a version that is there
    already, and for a split without labels.
    """
    manifest = load_manifest(source)
    check_next_version(source, manifest, version, split)
    earlier = {**(manifest.notes.get(EARLIER) or {}), manifest.info.version: pair}
    labelled = {(row["query-id"], row["corpus-id"]) for row in read_rows(source / "qrels" / f"{split}.jsonl")}
    added = [row for row in more if (row.query, row.document) not in labelled]
    newly = {(row.query, row.document) for row in added}
    with building(out) as directory:
        files: dict[str, FileEntry] = {}
        for kind in ("", *manifest.variants):
            folder = f"qrels-{kind}" if kind else "qrels"
            old_rows = map(_triple, read_rows(source / folder / f"{split}.jsonl"))
            rows = [row for row in old_rows if row[:2] not in newly]
            for row in added:
                score = label_value(kind, row, manifest.info.relevant_from)
                if score is not None:
                    rows.append((row.query, row.document, score))
            write_split(directory, f"{folder}/{split}", sorted(rows), files)
        _copy_others(source, directory, manifest, files)
        old, relevant = manifest.statistics.splits[split], sum(row.score for row in added)
        counts = dataclasses.replace(
            old,
            positives=(old.positives or 0) + relevant,
            hard_negatives=(old.hard_negatives or 0) + len(added) - relevant,
        )
        splits = {**manifest.statistics.splits, split: counts}
        newer = dataclasses.replace(
            manifest,
            info=dataclasses.replace(manifest.info, version=version),
            statistics=dataclasses.replace(manifest.statistics, splits=splits),
            files=files,
            notes={**manifest.notes, "made from": manifest.digest, EARLIER: earlier},
            provenance=tuple(dict.fromkeys((*manifest.provenance, *provenance))),
        )
        return seal(directory, newer)


def check_next_version(source: Path, manifest: Manifest, version: str, split: str) -> None:
    """Check that `version` can be the next one. Raises DatasetError."""
    _check_whole(source, manifest)
    if version == manifest.info.version or version in (manifest.notes.get(EARLIER) or {}):
        raise DatasetError(
            f"{source}: version {version!r} is there already, and a version never changes: name a new one"
        )
    if split not in manifest.labelled_splits:
        raise DatasetError(
            f"{source} has no labels of the split {split!r} (it has: {', '.join(manifest.labelled_splits)})"
        )
