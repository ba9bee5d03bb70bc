"""Divide a dataset for publishing into a public part and the labels that stay private (paper, appendix B.1).

The public part must not contain labels of withheld splits in any variant, lineage, or anything else that connects a
withheld query with a document. `public_part` searches the files that it has written for such connections.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from airgen.dataset.atomic import building
from airgen.dataset.files import write_text
from airgen.dataset.layouts import read_rows
from airgen.dataset.manifest import MANIFEST, FileEntry, Manifest, data_digest, load_manifest, manifest_text
from airgen.dataset.write import seal
from airgen.errors import DatasetError

__all__ = ["is_labels_of", "labels_part", "public_part"]

_WORDS = re.compile(r"[^\s\"'`,;:()\[\]{}|<>]+")
_ENDS = ("tsv", "jsonl")
_DERIVED = ("README.md", "croissant.json")


def is_labels_of(name: str, splits: Sequence[str]) -> bool:
    """Whether a file may hold labels of one of `splits`, in any variant or layout, judged cautiously by its name.

    >>> is_labels_of("qrels-graded/test.tsv", ["test"]), is_labels_of("qrels/dev.tsv", ["test"])
    (True, False)
    """
    path = Path(name)
    return any("qrels" in part for part in path.parts) and any(split in path.name for split in splits)


def _is_own_labels(name: str, splits: Sequence[str]) -> bool:
    """Whether `write_dataset` wrote this file of labels for one of `splits`."""
    folder, _, file = name.partition("/")
    return re.fullmatch(r"qrels(-[a-z]+)?", folder) is not None and file in {f"{s}.{e}" for s in splits for e in _ENDS}


def public_part(dataset: Path, out: Path, withhold: Sequence[str], *, permission: str = "") -> Manifest:
    """Copy the public files to `out`, with a card and manifest of its own; returns the manifest.

    `permission`, the words in which the rights holder permits publication, goes into the card.

    Raises DatasetError for a split that the dataset does not have, and if the public files connect a withheld query
    with a document.
    """
    manifest = _whole(dataset, withhold)
    files = {
        name: entry
        for name, entry in manifest.files.items()
        if not name.startswith("private/") and name not in _DERIVED and not _is_own_labels(name, withhold)
    }
    public_splits = sorted(set(manifest.statistics.splits) - set(withhold))
    for name in files:
        if is_labels_of(name, withhold) and not _is_own_labels(name, public_splits):
            raise DatasetError(f"not published: {name} looks like labels that must stay private")
    notes = {**manifest.notes, **({"permission to publish the corpus": permission} if permission else {})}
    with building(out, durable=False) as directory:
        _copy(dataset, directory, files)
        public = dataclasses.replace(
            manifest,
            part="public",
            files=files,
            withheld=tuple(sorted(withhold)),
            notes={**notes, "digest of the whole dataset": manifest.digest},
        )
        sealed = seal(directory, public)
        for leak in _leaks(dataset, directory, withhold):
            raise DatasetError(f"not published: {leak}")
    return sealed


def labels_part(dataset: Path, out: Path, withhold: Sequence[str]) -> Manifest:
    """Copy the labels of `withhold` and the lineage to `out`, for a private repository; returns the manifest."""
    manifest = _whole(dataset, withhold)
    files = {
        name: entry
        for name, entry in manifest.files.items()
        if name.startswith("private/") or _is_own_labels(name, withhold)
    }
    with building(out, durable=False) as directory:
        _copy(dataset, directory, files)
        info = manifest.info
        card = (
            f"---\nviewer: false\n---\n\n# Private labels of {info.name}\n\nVersion {info.version}, splits "
            f"{', '.join(withhold)}. Keep this repository private: who has seen labels cannot be measured by them.\n"
        )
        files["README.md"] = FileEntry(*write_text(directory / "README.md", card))
        labels = dataclasses.replace(
            manifest,
            part="labels",
            files=dict(sorted(files.items())),
            digest=data_digest(files),
            withheld=tuple(sorted(set(manifest.statistics.splits) - set(withhold))),
            notes={**manifest.notes, "digest of the whole dataset": manifest.digest},
        )
        write_text(directory / MANIFEST, manifest_text(labels))
    return labels


def _whole(dataset: Path, withhold: Sequence[str]) -> Manifest:
    manifest = load_manifest(dataset)
    if manifest.part != "whole":
        raise DatasetError(f"{dataset} is already the {manifest.part} part of a dataset: publish the whole dataset")
    for split in withhold:
        if split not in manifest.statistics.splits:
            known = ", ".join(sorted(manifest.statistics.splits))
            raise DatasetError(f"{dataset} has no split {split!r} whose labels could be private (it has: {known})")
    return manifest


def _copy(dataset: Path, directory: Path, files: dict[str, FileEntry]) -> None:
    for name in files:
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(dataset / name, target)  # the parts are only read and sent, never changed
        except OSError:  # another file system, or a file system without links
            shutil.copyfile(dataset / name, target)


def _leaks(dataset: Path, public: Path, withhold: Sequence[str]) -> Iterator[str]:
    """Connections between withheld queries and documents in the public files, as text."""
    judged: dict[str, set[str]] = {}
    for split in withhold:
        for row in read_rows(dataset / "qrels" / f"{split}.jsonl"):
            judged.setdefault(row["query-id"], set()).add(row["corpus-id"])
    for row in read_rows(public / "queries.jsonl"):
        values = {str(value) for value in row["metadata"].values()}
        for document in sorted(judged.get(row["_id"], set()) & values):
            yield f"the metadata of query {row['_id']!r} names the document {document!r}, which is labelled for it"
    for path in sorted(public.rglob("*")):
        name = path.relative_to(public).as_posix()
        if path.is_dir() or name in ("corpus.jsonl", "queries.jsonl"):
            continue
        words = set(_WORDS.findall(path.read_text(encoding="utf-8")))
        for query in sorted(words & judged.keys()):
            yield f"{name} mentions the query {query!r}, whose labels must stay private"
