"""The next version of a dataset: the same corpus, queries and ids, and more labels of one split.

Results of the earlier version fit the new labels, so they can be scored again without a new search.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airgen.dataset.atomic import building
from airgen.dataset.content import ModelUse, QrelRow
from airgen.dataset.derive import copy_file, write_qrels
from airgen.dataset.layouts import read_rows
from airgen.dataset.manifest import FileEntry, Manifest, load_manifest
from airgen.dataset.write import label_value, seal
from airgen.errors import DatasetError

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
            rows: list[dict[str, Any]] = [
                row
                for row in read_rows(source / folder / f"{split}.jsonl")
                if (row["query-id"], row["corpus-id"]) not in newly  # an unsure pair has a soft gain already
            ]
            for row in added:
                score = label_value(kind, row, manifest.info.relevant_from)
                if score is not None:
                    rows.append({"query-id": row.query, "corpus-id": row.document, "score": score})
            write_qrels(directory, folder, split, rows, files)
        for name, entry in manifest.files.items():
            if name not in files and name not in ("README.md", "croissant.json"):
                files[name] = copy_file(source, directory, name, entry)
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
    if manifest.part != "whole":
        raise DatasetError(f"{source} is the {manifest.part} part of a dataset: the whole one is needed")
    if version == manifest.info.version or version in (manifest.notes.get(EARLIER) or {}):
        raise DatasetError(
            f"{source}: version {version!r} is there already, and a version never changes: name a new one"
        )
    if split not in manifest.labelled_splits:
        raise DatasetError(
            f"{source} has no labels of the split {split!r} (it has: {', '.join(manifest.labelled_splits)})"
        )
