"""Derive a dataset from a finished one, with fewer passages, a single split, another version or more labels.

Trimming keeps every judged passage and adds others in the order of a hash of their ids, so a smaller trimmed corpus is
a subset of a larger one. The hash depends on the dataset's secret; otherwise, anyone could tell from the ids which
passages were kept only because they are judged. The next version of a dataset has the same corpus, queries and ids, and
more labels in one split, so results of the earlier version can be rescored without a new search.
"""

import dataclasses
import hashlib
import heapq
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from airgen.components.keys import file_sha256
from airgen.dataset.content import ModelUse, QrelRow, QueryRow
from airgen.dataset.human_labels import NOTE, PEOPLE, Change, PersonsLabel, override
from airgen.dataset.layouts import label_rows_of, read_rows
from airgen.dataset.manifest import FileEntry, Manifest, SplitStatistics, count_words_and_characters, load_manifest
from airgen.dataset.secret import secret_of
from airgen.dataset.write import label_value, seal, write_split
from airgen.errors import DatasetError
from airgen.storage.records import flat_text
from airgen.storage.whole_files import building, encode_row, labelled_split, write_text
from airgen.text.token_counts import load_tokenizer


def derive(
    source: Path,
    out: Path,
    *,
    max_passages: int | None = None,
    split: str | None = None,
    version: str | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> Manifest:
    """Write a variant of the complete dataset `source` to `out`, and return its manifest.

    `max_passages` trims the corpus, `split` puts all queries into one split (Long-Doc, paper appendix A.4), and
    `version` sets another version. `count_tokens` counts the tokens of a trimmed corpus, by default
    `count_words_and_characters`. Raises DatasetError if the source is not complete, or if `max_passages` is less than
    the number of judged passages.
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
            _merge_splits(source, directory, manifest, split, files=files)
            statistics = dataclasses.replace(statistics, splits={split: _merged(statistics.splits.values())})
        moved = [name for name in manifest.files if split and (name == "queries.jsonl" or labelled_split(name))]
        _copy_others(source, directory, manifest, files, moved=moved)
        info = dataclasses.replace(manifest.info, version=version or manifest.info.version)
        if split is not None:
            info = dataclasses.replace(info, splits={split: 1})
        if keep is not None and count_tokens is None:
            info = dataclasses.replace(info, tokenizer="words")
        derived = dataclasses.replace(manifest, info=info, statistics=statistics, files=files, notes=notes)
        return seal(directory, derived)


def _check_whole(source: Path, manifest: Manifest) -> None:
    if manifest.part != "whole":
        raise DatasetError(f"{source} is only the {manifest.part} part of a dataset: the whole dataset is needed")


def _kept(source: Path, size: int) -> set[str]:
    """Return the ids of the passages that a corpus trimmed to `size` keeps."""
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


def _merge_splits(
    source: Path, directory: Path, manifest: Manifest, split: str, *, files: dict[str, FileEntry]
) -> None:
    def note(name: str, text: str) -> None:
        files[name] = FileEntry(*write_text(directory / name, text))

    rows = list(read_rows(source / "queries.jsonl"))
    for row in rows:
        row["metadata"]["split"] = split
    note("queries.jsonl", "".join(encode_row(row, row["_id"]) for row in rows))
    for folder in ("qrels", *(f"qrels-{variant}" for variant in manifest.variants)):
        places = [source / folder / f"{old}.jsonl" for old in manifest.labelled_splits]
        labels = sorted(row for place in places for row in _labels_in(place))
        write_split(directory, f"{folder}/{split}", labels, files)
    answers = [path for old in manifest.labelled_splits if (path := source / "answers" / f"{old}.jsonl").is_file()]
    if answers:
        merged = sorted((row for path in answers for row in read_rows(path)), key=lambda row: str(row["query-id"]))
        note(f"answers/{split}.jsonl", "".join(encode_row(row, "answers") for row in merged))


def _merged(parts: Iterable[SplitStatistics]) -> SplitStatistics:
    parts = list(parts)
    queries = sum(part.queries for part in parts)
    return SplitStatistics(
        queries=queries,
        mean_tokens=sum(part.mean_tokens * part.queries for part in parts) / queries,
        positives=sum(part.positives or 0 for part in parts),
        hard_negatives=sum(part.hard_negatives or 0 for part in parts),
    )


def _labels_in(path: Path) -> list[tuple[str, str, int | float]]:
    """Read the labels in a file; none if it has no people's labels for the split."""
    rows = label_rows_of(path) if path.is_file() or path.parent.name != f"qrels-{PEOPLE}" else ()
    return [(row["query-id"], row["corpus-id"], row["score"]) for row in rows]


def _copy_others(
    source: Path, directory: Path, manifest: Manifest, files: dict[str, FileEntry], *, moved: Sequence[str] = ()
) -> None:
    """Copy the data files that were not rewritten."""
    for name, entry in manifest.files.items():
        if name not in files and name not in moved and name not in ("README.md", "croissant.json"):
            files[name] = copy_file(source, directory, name, entry)


def copy_file(source: Path, directory: Path, name: str, entry: FileEntry) -> FileEntry:
    """Copy a file. Raises DatasetError if it is not the file in the manifest."""
    target = directory / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / name, target)  # with its mode: the secret is its owner's alone
    if file_sha256(target) != entry.sha256:
        raise DatasetError(f"{source / name} differs from the manifest: run airgen publish verify {source}")
    return entry


EARLIER = "earlier versions with the same corpus and queries"
"""The manifest note with {version: mark of its pair of parts, or nothing without a secret}."""


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
    """Write the complete dataset `source` with `more` labels of one split to `out`, and return the new manifest.

    A pair that already has a label keeps it. `pair` is the mark by which the parts of the source recognise each other,
    and `provenance` names the models that judged. Raises DatasetError if the source is not complete, if the version
    already exists, or if the split has no labels.
    """
    manifest = load_manifest(source)
    check_next_version(source, manifest, version, split)
    earlier = {**(manifest.notes.get(EARLIER) or {}), manifest.info.version: pair}
    labelled = {(row["query-id"], row["corpus-id"]) for row in label_rows_of(source / "qrels" / f"{split}.jsonl")}
    added = [row for row in more if (row.query, row.document) not in labelled]
    newly = {(row.query, row.document) for row in added}
    with building(out) as directory:
        files: dict[str, FileEntry] = {}
        for kind in ("", *manifest.variants):
            folder = f"qrels-{kind}" if kind else "qrels"
            rows = [row for row in _labels_in(source / folder / f"{split}.jsonl") if row[:2] not in newly]
            for row in added:
                score = label_value(kind, row, manifest.info.relevant_from)
                if score is not None:
                    rows.append((row.query, row.document, score))
            if rows or kind != PEOPLE:
                write_split(directory, f"{folder}/{split}", sorted(rows), files)
        _copy_others(source, directory, manifest, files)
        old, relevant = manifest.statistics.splits[split], sum(row.score > 0 for row in added)
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


def with_peoples_labels(
    source: Path, out: Path, labels: Sequence[PersonsLabel], *, version: str, split: str, pair: str = ""
) -> tuple[Manifest, Change]:
    """Write the complete dataset `source` to `out` with people's labels of one split (`airgen.dataset.human_labels`).

    `pair` has the same meaning as in `with_more_labels`. If no query is dropped, results of the source can be rescored,
    so the source is recorded as an earlier version.

    Returns:
        The new manifest, and the changes.

    Raises:
        DatasetError: The source is not complete, the version already exists, or the split has no labels.
    """
    manifest = load_manifest(source)
    check_next_version(source, manifest, version, split)
    qrels, queries = _rows_of(source, manifest, split), list(_queries_of(source))
    of_split = [row for row in queries if row.split == split]
    labelled = {label.document for label in labels}
    present = {row["_id"] for row in read_rows(source / "corpus.jsonl") if row["_id"] in labelled}
    rows, left, change = override(qrels, of_split, labels, manifest.info.relevant_from, absent=labelled - present)
    if not left:
        raise DatasetError(
            f"{source}: according to people's answers, no query of {split} has a relevant passage: nothing is left"
        )
    remaining = {row.id: row for row in left}
    variants = tuple(dict.fromkeys((*manifest.variants, *[PEOPLE] * bool(change.labels))))
    with building(out) as directory:
        files: dict[str, FileEntry] = {}
        for kind in ("", *variants):
            values = [(row, label_value(kind, row, manifest.info.relevant_from)) for row in rows]
            written = sorted((row.query, row.document, score) for row, score in values if score is not None)
            if written or kind != PEOPLE:
                write_split(directory, f"qrels-{kind}/{split}" if kind else f"qrels/{split}", written, files)
        lines = []
        for row in read_rows(source / "queries.jsonl"):
            if row["_id"] in remaining:
                row["metadata"] |= remaining[row["_id"]].metadata
            elif row["metadata"].get("split") == split:
                continue
            lines.append(encode_row(row, row["_id"]))
        files["queries.jsonl"] = FileEntry(*write_text(directory / "queries.jsonl", "".join(lines)))
        gone = {row.id for row in of_split} - remaining.keys()
        answers, lineage = f"answers/{split}.jsonl", "private/lineage.jsonl"
        _copy_without(source, directory, manifest, files, name=answers, key="query-id", gone=gone)
        _copy_without(source, directory, manifest, files, name=lineage, key="query", gone=gone)
        _copy_others(source, directory, manifest, files, moved=[answers, lineage])
        positives, old = sum(row.score > 0 for row in rows), manifest.statistics.splits[split]
        count = load_tokenizer(manifest.info.tokenizer, manifest.info.language)
        counts = SplitStatistics(
            queries=len(left),
            mean_tokens=sum(count.count([row.text for row in left])) / len(left) if gone else old.mean_tokens,
            positives=positives,
            hard_negatives=len(rows) - positives,
        )
        notes: dict[str, Any] = {**manifest.notes, "made from": manifest.digest, NOTE: change.as_note()}
        if not gone:
            notes[EARLIER] = {**(manifest.notes.get(EARLIER) or {}), manifest.info.version: pair}
        else:
            notes.pop(EARLIER, None)
        splits = {**manifest.statistics.splits, split: counts}
        newer = dataclasses.replace(
            manifest,
            info=dataclasses.replace(manifest.info, version=version),
            statistics=dataclasses.replace(manifest.statistics, splits=splits),
            files=files,
            variants=variants,
            notes=notes,
            provenance=tuple(dict.fromkeys((*manifest.provenance, ModelUse("labels", PEOPLE)))),
        )
        return seal(directory, newer), change


def _rows_of(source: Path, manifest: Manifest, split: str) -> list[QrelRow]:
    """Return the labels of a split, including its variants."""
    known = {
        kind: {row[:2]: row[2] for row in _labels_in(source / f"qrels-{kind}" / f"{split}.jsonl")}
        for kind in ("graded", "soft", PEOPLE)
        if kind in manifest.variants
    }
    graded, soft, people = (known.get(kind, {}) for kind in ("graded", "soft", PEOPLE))
    rows = []
    for query, document, score in _labels_in(source / "qrels" / f"{split}.jsonl"):
        pair, level = (query, document), graded.get((query, document))
        by = PEOPLE if pair in people else ""
        rows.append(
            QrelRow(
                query,
                document,
                score=int(score),
                level=None if level is None else int(level),
                gain=None if by or pair not in soft else float(soft[pair]),
                by=by,
            )
        )
    return rows


def _queries_of(source: Path) -> Iterator[QueryRow]:
    for row in read_rows(source / "queries.jsonl"):
        yield QueryRow(row["_id"], row["text"], str(row["metadata"].get("split")), row["metadata"])


def _copy_without(
    source: Path,
    directory: Path,
    manifest: Manifest,
    files: dict[str, FileEntry],
    *,
    name: str,
    key: str,
    gone: Collection[str],
) -> None:
    """Copy a file of rows without those of some queries. No file is written if no rows are left."""
    if name not in manifest.files:
        return
    lines = [encode_row(row, name) for row in read_rows(source / name) if row[key] not in gone]
    if lines:
        files[name] = FileEntry(*write_text(directory / name, "".join(lines)))


def version_after(version: str, folder: Path) -> str:
    """Return the next version by incrementing the last number past the versions in a folder: 0.1 -> 0.2, beta ->
    beta.1"""
    taken = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    while True:
        match = re.search(r"[0-9]{1,9}$", version)
        version = f"{version[: match.start()]}{int(match[0]) + 1}" if match else f"{version}.1"
        if version not in taken:
            return version


def check_next_version(source: Path, manifest: Manifest, version: str, split: str) -> None:
    """Check that `version` can be the next one. Raises DatasetError."""
    _check_whole(source, manifest)
    if version == manifest.info.version or version in (manifest.notes.get(EARLIER) or {}):
        raise DatasetError(f"{source}: version {version!r} already exists, and versions never change: choose a new one")
    if split not in manifest.labelled_splits:
        raise DatasetError(
            f"{source} has no labels of the split {split!r} (it has: {', '.join(manifest.labelled_splits)})"
        )
