"""Write a dataset directory atomically, with `manifest.json` last. Equal content gives equal bytes.

The rows of the corpus and the queries are sorted by id. `qrels` contains 1 (relevant) and 0 (hard negative), as TSV and
JSONL, and its variants have the same labels. `private/` is never published with the queries: the lineage says what each
query was generated from, and `parents.jsonl` says which document each passage is a chunk of, and where.
docs/10-publishing.md lists the files.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airgen.components.keys import file_sha256
from airgen.dataset.card import render_card
from airgen.dataset.content import (
    OVERLAP,
    WORDING,
    WORDINGS_FILE,
    AnswerRow,
    DatasetContent,
    QrelRow,
    QueryRow,
    WordingRow,
    check_document,
    check_info,
    check_qrels,
    check_queries,
)
from airgen.dataset.human_labels import PEOPLE
from airgen.dataset.manifest import (
    MANIFEST,
    FileEntry,
    Manifest,
    SplitStatistics,
    Statistics,
    count_words_and_characters,
    croissant_text,
    data_digest,
    made_with,
    manifest_text,
)
from airgen.dataset.secret import SECRET_FILE, write_secret
from airgen.errors import DatasetError
from airgen.storage.records import flat_text
from airgen.storage.whole_files import building, encode_row, sort_by_id, write_text

_Entries = dict[str, FileEntry]


def write_dataset(out: Path, content: DatasetContent) -> Manifest:
    """Write `content` to the directory `out` and return its manifest.

    Rows are sorted, so their order does not matter. A rename at the end creates `out` or replaces an older export.
    Raises DatasetError and leaves `out` unchanged for invalid file names, invalid or repeated ids, empty texts, queries
    without a positive, labels of unknown queries or documents, text that is not Unicode, a directory that is not a
    dataset, or a full disk.
    """
    check_info(content.info)
    queries = check_queries(content.queries)
    qrels = check_qrels(content.qrels, queries)
    count = content.count_tokens or count_words_and_characters
    with building(out) as directory:
        entries: _Entries = {}
        judged = {row.document for row in qrels}
        passages, tokens = _write_corpus(directory, content, judged, count, entries=entries)
        # Every row has the same keys, because loaders infer one schema for the file.
        fields = _query_fields(queries)
        keys = [key for key in fields if key != "split"]
        query_rows = (
            {
                "_id": row.id,
                "text": row.text,
                "metadata": {"split": row.split, **{key: row.metadata.get(key) for key in keys}},
            }
            for row in queries
        )
        _write_rows(directory, "queries.jsonl", query_rows, entries)
        written = _write_labels(directory, queries, qrels, entries, relevant_from=content.info.relevant_from)
        _write_answers(directory, queries, content.answers, entries)
        _write_wordings(directory, queries, content.wordings, entries)
        _write_rows(directory, "private/lineage.jsonl", content.lineage, entries)
        rows = (
            {"_id": parent.passage, "parent": parent.document, "start": parent.start, "end": parent.end}
            for parent in content.parents
        )
        _write_rows(directory, "private/parents.jsonl", rows, entries)
        if content.secret is not None:
            path = directory / "private" / SECRET_FILE
            write_secret(path, content.secret)
            _note(entries, f"private/{SECRET_FILE}", (path.stat().st_size, file_sha256(path)))
        if content.pipeline_yaml:
            _note(entries, "pipeline.yaml", write_text(directory / "pipeline.yaml", content.pipeline_yaml))
        statistics = Statistics(passages, tokens / passages, _split_statistics(queries, qrels, count))
        return seal(
            directory,
            Manifest(
                info=content.info,
                statistics=statistics,
                files=entries,
                digest="",
                query_fields=fields,
                variants=written,
                provenance=tuple(content.provenance),
                funnel=tuple(content.funnel),
                pipeline_yaml=content.pipeline_yaml,
                audit=content.audit,
                secret=content.secret.name if content.secret is not None else "",
                notes=content.notes,
                made_with=made_with(),
            ),
        )


def _write_labels(
    directory: Path, queries: Sequence[QueryRow], qrels: Sequence[QrelRow], entries: _Entries, *, relevant_from: int
) -> tuple[str, ...]:
    """Write `qrels/` and the variants as TSV and JSONL for each split, and return the variants that were written.

    `positives` omits labels of 0. `graded` contains the judge's levels, 0 to 3, if any are known; a pair without a
    level gets 0 (hard negative) or `relevant_from`. `soft` contains gains in [0, 1], if any are known. `people`
    contains only the pairs with a level from a person.
    """
    split_of_query = {row.id: row.split for row in queries}
    graded, soft = any(row.level is not None for row in qrels), any(row.gain is not None for row in qrels)
    by_people = any(row.by for row in qrels)
    kinds = ("", "positives", *["graded"] * graded, *["soft"] * soft, *[PEOPLE] * by_people)
    for kind in kinds:
        folder = f"qrels-{kind}" if kind else "qrels"
        for split in sorted(set(split_of_query.values())):
            labels = [
                (row, label_value(kind, row, relevant_from)) for row in qrels if split_of_query[row.query] == split
            ]
            rows = [(row.query, row.document, score) for row, score in labels if score is not None]
            if rows or kind != PEOPLE:
                write_split(directory, f"{folder}/{split}", rows, entries)
    return kinds[1:]


def write_split(directory: Path, name: str, rows: Sequence[tuple[str, str, int | float]], entries: _Entries) -> None:
    """Write the (query, document, score) rows of one split as TSV and JSONL."""
    tsv = "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t{score}\n" for q, d, score in rows)
    _note(entries, f"{name}.tsv", write_text(directory / f"{name}.tsv", tsv))
    objects = ({"query-id": q, "corpus-id": d, "score": score} for q, d, score in rows)
    _write_rows(directory, f"{name}.jsonl", objects, entries)


def _write_answers(
    directory: Path, queries: Sequence[QueryRow], answers: Iterable[AnswerRow], entries: _Entries
) -> None:
    """Write `answers/`, with a file for each split that has answers. They reveal a query's document, so they count as
    labels."""
    split_of_query = {row.id: row.split for row in queries}
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(answers, key=lambda row: row.query):
        if row.query not in split_of_query:
            raise DatasetError(f"there is a reference answer to the query {row.query!r}, which is not in the dataset")
        rows.setdefault(split_of_query[row.query], []).append(
            {
                "query-id": row.query,
                "corpus-id": row.document,
                "answer": row.text,
                "quote": row.quote,
                "start": row.start,
                "end": row.end,
            }
        )
    for split, rows_of_split in sorted(rows.items()):
        _write_rows(directory, f"answers/{split}.jsonl", rows_of_split, entries)


def _write_wordings(
    directory: Path, queries: Sequence[QueryRow], wordings: Iterable[WordingRow], entries: _Entries
) -> None:
    split_of_query = {row.id: row.split for row in queries}
    rows = []
    for row in sorted(wordings, key=lambda row: (row.query, row.wording)):
        if row.query not in split_of_query:
            raise DatasetError(f"there is a wording of the query {row.query!r}, which is not in the dataset")
        about = {"split": split_of_query[row.query], WORDING: row.wording, OVERLAP: row.overlap}
        rows.append({"_id": f"{row.query}.{row.wording}", "query-id": row.query, "text": row.text, "metadata": about})
    _write_rows(directory, WORDINGS_FILE, rows, entries)


def label_value(kind: str, row: QrelRow, relevant_from: int) -> int | float | None:
    """Return the label of a pair in a variant ("" for `qrels` itself), or None if the variant omits the pair."""
    if kind == "positives":
        return row.score or None
    if kind == PEOPLE and not row.by:
        return None
    if kind in ("graded", PEOPLE):
        return row.level if row.level is not None else relevant_from * (row.score > 0)
    if kind == "soft":
        return float(row.gain if row.gain is not None else row.score > 0)
    return row.score


def seal(directory: Path, manifest: Manifest) -> Manifest:
    """Write croissant.json, README.md and finally manifest.json for the data files already in `directory`.

    `manifest.files` names the data files. Returns the manifest with its digest and all files.
    """
    files: _Entries = dict(manifest.files)
    manifest = dataclasses.replace(manifest, digest=data_digest(files))
    _note(files, "croissant.json", write_text(directory / "croissant.json", croissant_text(manifest)))
    _note(files, "README.md", write_text(directory / "README.md", render_card(manifest)))
    manifest = dataclasses.replace(manifest, files=dict(sorted(files.items())))
    write_text(directory / MANIFEST, manifest_text(manifest))
    return manifest


def _write_corpus(
    directory: Path, content: DatasetContent, judged: set[str], count: Callable[[str], int], *, entries: _Entries
) -> tuple[int, int]:
    """Write the corpus, sorted by id, and return the numbers of documents and tokens."""
    missing = set(judged)
    passages = tokens = 0
    last: str | None = None

    def lines() -> Iterator[tuple[str, str]]:
        nonlocal tokens
        for row in content.corpus:
            check_document(row)
            tokens += count(flat_text(row.title, row.text))
            values: dict[str, Any] = {"_id": row.id, "title": row.title, "text": row.text}
            if row.metadata is not None:
                values["metadata"] = dict(row.metadata)
            yield row.id, encode_row(values, f"document {row.id!r}")

    def unique() -> Iterator[str]:
        nonlocal last, passages
        for identifier, line in sort_by_id(lines()):
            if identifier == last:
                raise DatasetError(f"document id {identifier!r} appears twice in the corpus: ids must be unique")
            last = identifier
            missing.discard(identifier)
            passages += 1
            yield line

    _note(entries, "corpus.jsonl", write_text(directory / "corpus.jsonl", unique()))
    if not passages:
        raise DatasetError("the corpus is empty: there is nothing to export")
    if missing:
        raise DatasetError(f"{len(missing)} labelled document(s) are not in the corpus, for example {min(missing)!r}")
    return passages, tokens


def _query_fields(queries: Sequence[QueryRow]) -> dict[str, str]:
    """Return the names of the metadata, `split` first, with the Hub's type, or string if all values are None."""
    types = {key: value for row in queries for key, value in row.metadata.items() if value is not None}
    names = sorted({key for row in queries for key in row.metadata} - {"split"})
    dtypes = {bool: "bool", int: "int64", float: "float64"}
    return {"split": "string"} | {name: dtypes.get(type(types.get(name)), "string") for name in names}


def _write_rows(directory: Path, name: str, rows: Any, entries: _Entries) -> None:
    """Write a JSONL file of a few rows, or no file if there are none."""
    lines = [encode_row(dict(row), f"a row of {name}") for row in rows]
    if name.startswith("private/"):
        lines.sort()
    if lines:
        _note(entries, name, write_text(directory / name, "".join(lines)))


def _split_statistics(
    queries: Sequence[QueryRow], qrels: Sequence[QrelRow], count: Callable[[str], int]
) -> Mapping[str, SplitStatistics]:
    split_of_query = {row.id: row.split for row in queries}
    result = {}
    for split in sorted(set(split_of_query.values())):
        texts = [row.text for row in queries if row.split == split]
        relevant = [row.score > 0 for row in qrels if split_of_query[row.query] == split]
        result[split] = SplitStatistics(
            queries=len(texts),
            mean_tokens=sum(map(count, texts)) / len(texts),
            positives=sum(relevant),
            hard_negatives=len(relevant) - sum(relevant),
        )
    return result


def _note(entries: _Entries, name: str, written: tuple[int, str]) -> None:
    entries[name] = FileEntry(*written)
