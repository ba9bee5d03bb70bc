"""The reference answers of a dataset: `answers/{split}.jsonl`, where there are any."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from airgen.dataset.layouts import read_rows
from airgen.dataset.manifest import Manifest


def answer_files(manifest: Manifest) -> list[str]:
    """The files of reference answers in a dataset, by split."""
    names = (f"answers/{split}.jsonl" for split in manifest.labelled_splits)
    return [name for name in names if name in manifest.files]


def answer_problems(directory: Path, manifest: Manifest, queries: Collection[str]) -> Iterator[tuple[str, str]]:
    """(file, message) for each answer without its query or document, or whose quote is not at its place.

    The corpus is read once more. Raises DatasetError for a file that cannot be read.
    """
    waiting: dict[str | None, list[tuple[str, dict[str, Any]]]] = {}
    for name in answer_files(manifest):
        for row in read_rows(directory / name):
            query, document = row.get("query-id"), row.get("corpus-id")
            if not isinstance(query, str) or query not in queries:
                yield name, f"query {query!r} is not in queries.jsonl"
            waiting.setdefault(document if isinstance(document, str) else None, []).append((name, row))
    if not waiting:
        return
    for passage in read_rows(directory / "corpus.jsonl"):
        identifier, text = passage.get("_id"), str(passage.get("text"))
        for name, row in waiting.pop(identifier, ()) if isinstance(identifier, str) else ():
            start, end = row.get("start"), row.get("end")
            whole = isinstance(start, int) and isinstance(end, int)
            if not whole or text[start:end] != row.get("quote") or not row.get("quote"):
                yield name, f"query {row.get('query-id')!r}: its quote is not at [start, end) of its document"
    for document, rows in waiting.items():
        yield rows[0][0], f"document {document!r} is not in the corpus"
