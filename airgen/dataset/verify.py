"""Verify that a dataset directory is complete, consistent and publishable. Each fault is a `DatasetProblem`.

A dataset with an `error` must not be used; a `warning` should be checked.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airgen.components.keys import file_sha256
from airgen.dataset.content import ANSWERED, check_id
from airgen.dataset.human_labels import PEOPLE
from airgen.dataset.manifest import MANIFEST, FileEntry, Manifest, data_digest, load_manifest
from airgen.errors import DatasetError
from airgen.storage.whole_files import keep_copy

_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d(:?\d\d(:?\d\d)?)?)?Z?")
_MOST_LISTED = 20  # maximum number of problems of one kind that are listed; the others are counted
_SECRETS = (
    re.compile(r"\b(sk|rk|pk)-[A-Za-z0-9_-]{16,}"),
    re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    re.compile(r"\b(ghp|gho|github_pat)_[A-Za-z0-9_]{16,}"),
    re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    re.compile(r"\bAIza[0-9A-Za-z_-]{30,}"),
    re.compile(r"(?i)\b(api[_-]?key|token|secret|password)\s*[:=]\s*['\"]?[A-Za-z0-9_\-/+]{16,}"),
    re.compile(r"https?://[^\s/:@]+:[^\s/:@]+@"),
)


@dataclass(frozen=True, slots=True)
class DatasetProblem:
    """A problem: its kind, the file and a message. `severity` is error or warning."""

    kind: str
    file: str
    message: str
    severity: str = "error"

    def __str__(self) -> str:
        return f"{self.severity}: {self.file}: {self.message} [{self.kind}]"


@dataclass
class _Problems:
    problems: list[DatasetProblem] = field(default_factory=list)
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    unanswered: set[str] = field(default_factory=set)  # queries that are marked so

    def add(self, kind: str, file: str, message: str, severity: str = "error") -> None:
        self.seen[kind, file] += 1
        if self.seen[kind, file] <= _MOST_LISTED:
            self.problems.append(DatasetProblem(kind, file, message, severity))

    def finish(self) -> list[DatasetProblem]:
        for (kind, file), count in sorted(self.seen.items()):
            if count > _MOST_LISTED:
                severity = next(p.severity for p in self.problems if (p.kind, p.file) == (kind, file))
                self.problems.append(DatasetProblem(kind, file, f"and {count - _MOST_LISTED} more", severity))
        return self.problems


def verify(directory: Path) -> list[DatasetProblem]:
    """List all problems of a dataset directory; an empty list means that there are none. The corpus is streamed.

    Checks the manifest, the size and SHA-256 of each file, unlisted files, ids (unknown, repeated, invalid, or changed
    by loaders), empty texts, queries without a positive or in two splits, contradictory variants, counts, labels of
    withheld splits, secrets, and signs that reveal the generated negatives.
    """
    problems = _Problems()
    try:
        manifest = load_manifest(directory)
    except DatasetError as error:
        return [DatasetProblem("manifest", MANIFEST, str(error))]
    try:
        _check(directory, manifest, problems)
    except OSError as error:
        problems.add("unreadable", error.filename or str(directory), f"cannot be read: {error.strerror or error}")
    return problems.finish()


def damaged_file(directory: Path) -> str | None:
    """Return the first file that is missing or differs from what was written, or None.

    Each file is read once. The card may have been edited by hand, so it only needs to exist.
    """
    try:
        manifest = load_manifest(directory)
        for name, entry in manifest.files.items():
            path = directory / name
            if not path.is_file() or (name != "README.md" and not _as_written(path, entry)):
                return name
    except (DatasetError, OSError):
        return MANIFEST
    return None


def keep_card(dataset: Path, folder: Path) -> Path | None:
    """Copy a dataset's card to `folder` if a person has edited it, before it is rewritten. Returns the copy."""
    card = dataset / "README.md"
    try:
        entry = load_manifest(dataset).files.get("README.md")
    except DatasetError:
        return None
    if entry is None or not card.is_file() or file_sha256(card) == entry.sha256:
        return None
    return keep_copy(card, folder=folder)


def _as_written(path: Path, entry: FileEntry) -> bool:
    return path.stat().st_size == entry.bytes and file_sha256(path) == entry.sha256


def _check(directory: Path, manifest: Manifest, problems: _Problems) -> None:
    _check_files(directory, manifest, problems)
    if manifest.part != "labels":
        queries = _check_queries(directory, problems)
        labels = _check_labels(directory, manifest, queries, problems)
        _check_corpus(directory, manifest, labels, problems)
        _check_answers(directory, manifest, queries, problems)
        _check_counts(manifest, queries, labels, problems)
    for name in ("README.md", "pipeline.yaml", MANIFEST):
        path = directory / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for hint in secrets_in(text):
            problems.add(
                "secret",
                name,
                f"contains something that looks like a key or password ({hint}): remove it and export again",
            )


def secrets_in(text: str) -> list[str]:
    """Return the first characters of everything in a text that looks like a key or a password."""
    return sorted({match.group(0)[:6] + "..." for pattern in _SECRETS for match in pattern.finditer(text)})


def _of_the_hub(name: str) -> bool:
    """Return whether a file comes from the Hub, or from its client in a download folder."""
    return name == ".gitattributes" or name.startswith(".cache/huggingface/")


def _check_files(directory: Path, manifest: Manifest, problems: _Problems) -> None:
    cached = directory.resolve().parent.name == "snapshots"
    advice = ", as in the Hub's cache: download it into a folder (local_dir)" if cached else ""
    for name, entry in manifest.files.items():
        path = directory / name
        if not Path(os.path.realpath(path)).is_relative_to(directory.resolve()):  # `resolve` fails for a loop of links
            problems.add("path", name, f"is a link to a place outside the dataset{advice}")
        elif not path.is_file():
            problems.add("missing", name, "is in the manifest but not in the directory")
        elif not _as_written(path, entry):
            problems.add("hash", name, "its size or SHA-256 differs from the manifest: it was changed after the export")
    present = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir()}
    for name in sorted(present - set(manifest.files) - {MANIFEST}):
        if not _of_the_hub(name):
            problems.add("extra", name, "is not in the manifest")
    for name in ("corpus.jsonl", "queries.jsonl"):
        if name not in manifest.files and manifest.part != "labels":
            problems.add("missing", name, "is not in the manifest")
    if data_digest(manifest.files) != manifest.digest:
        problems.add("hash", MANIFEST, "its digest does not match its files: it was edited")
    for split in manifest.withheld:
        for name in sorted(present):
            if re.fullmatch(rf"(qrels[^/]*|answers)/{re.escape(split)}\..*", name):
                problems.add(
                    "leak",
                    name,
                    f"the manifest says that the labels of {split} are withheld, but they are in the dataset",
                )
    if manifest.part == "public" and any(name.startswith("private/") for name in present):
        problems.add("leak", "private/", "the lineage is in the dataset although labels are withheld, and reveals them")


def _rows(directory: Path, name: str, problems: _Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for each line of a JSONL file. A line without an object is a problem."""
    path = directory / name
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict):
                yield number, row
            else:
                problems.add("line", name, f"line {number} is not a JSON object")


def _identifier(row: dict[str, Any], number: int, kind: str, *, name: str, problems: _Problems) -> str | None:
    """Return the id of a query or document, or None if it is invalid, which is a problem."""
    value = row.get("_id")
    try:
        check_id(value if isinstance(value, str) else "", kind)
    except DatasetError as error:
        problems.add("id", name, f"line {number}: {error}")
        return None
    if not str(row.get("text") or "").strip():
        problems.add("empty", name, f"line {number}: {kind} {value!r} has no text")
    return str(value)


def _check_queries(directory: Path, problems: _Problems) -> dict[str, str | None]:
    """Return {query id: its split, or None if the metadata has none}."""
    queries: dict[str, str | None] = {}
    for number, row in _rows(directory, "queries.jsonl", problems):
        identifier = _identifier(row, number, "query", name="queries.jsonl", problems=problems)
        if identifier is None:
            continue
        if identifier in queries:
            problems.add("duplicate", "queries.jsonl", f"line {number}: query id {identifier!r} appears twice")
        metadata = row.get("metadata")
        queries[identifier] = metadata.get("split") if isinstance(metadata, dict) else None
        if isinstance(metadata, dict) and metadata.get(ANSWERED) is False:
            problems.unanswered.add(identifier)
    return queries


def _check_answers(directory: Path, manifest: Manifest, queries: dict[str, str | None], problems: _Problems) -> None:
    """Check that each answer has a query and a document, and that its quote is at its position. Reads the corpus once
    more."""
    waiting: dict[str | None, list[tuple[str, dict[str, Any]]]] = {}
    for name in manifest.answer_files:
        for _, row in _rows(directory, name, problems):
            query, document = row.get("query-id"), row.get("corpus-id")
            if not isinstance(query, str) or query not in queries:
                problems.add("answer", name, f"query {query!r} is not in queries.jsonl")
            waiting.setdefault(document if isinstance(document, str) else None, []).append((name, row))
    for _, passage in _rows(directory, "corpus.jsonl", _Problems()) if waiting else ():
        identifier, text = passage.get("_id"), str(passage.get("text"))
        for name, row in waiting.pop(identifier, ()) if isinstance(identifier, str) else ():
            start, end = row.get("start"), row.get("end")
            has_span = isinstance(start, int) and isinstance(end, int)
            if not has_span or text[start:end] != row.get("quote") or not row.get("quote"):
                message = f"query {row.get('query-id')!r}: its quote is not at [start, end) of its document"
                problems.add("answer", name, message)
    for document, rows in waiting.items():
        problems.add("answer", rows[0][0], f"document {document!r} is not in the corpus")


_Labels = dict[str, dict[str, dict[str, float]]]  # split -> query -> document -> score


def _check_labels(directory: Path, manifest: Manifest, queries: dict[str, str | None], problems: _Problems) -> _Labels:
    labels: _Labels = {}
    home: dict[str, str] = {}
    for split in manifest.labelled_splits:
        name = f"qrels/{split}.jsonl"
        labels[split] = _read_labels(directory, name, problems)
        for query, documents in labels[split].items():
            if query not in queries:
                problems.add("dangling", name, f"query {query!r} is not in queries.jsonl")
            elif queries[query] not in (None, split):
                problems.add("split", name, f"query {query!r} belongs to {queries[query]!r} according to queries.jsonl")
            if home.setdefault(query, split) != split:
                problems.add("split", name, f"query {query!r} is also in {home[query]!r}: splits overlap")
            if query in problems.unanswered:
                problems.add("positive", name, f"query {query!r} has labels, but is marked as answered: false")
            elif not any(score > 0 for score in documents.values()):
                problems.add("positive", name, f"query {query!r} has no relevant document")
        _check_tsv(directory, f"qrels/{split}.tsv", labels[split], problems)
        _check_variants(directory, manifest, split, labels[split], problems=problems)
    for query, named in queries.items():
        if query not in home and named not in manifest.withheld and query not in problems.unanswered:
            problems.add("positive", "queries.jsonl", f"query {query!r} has no labels")
    return labels


def _read_labels(directory: Path, name: str, problems: _Problems) -> dict[str, dict[str, float]]:
    labels: dict[str, dict[str, float]] = {}
    for number, row in _rows(directory, name, problems):
        query, document, score = row.get("query-id"), row.get("corpus-id"), row.get("score")
        if not isinstance(query, str) or not isinstance(document, str) or type(score) not in (int, float):
            problems.add("line", name, f"line {number} lacks query-id, corpus-id or a number as score")
            continue
        labels_of_query = labels.setdefault(query, {})
        if document in labels_of_query:
            problems.add("duplicate", name, f"line {number}: query {query!r} and document {document!r} appear twice")
        labels_of_query[document] = score  # type: ignore[assignment]  # checked above
    return labels


def _check_tsv(directory: Path, name: str, labels: dict[str, dict[str, float]], problems: _Problems) -> None:
    path = directory / name
    if not path.is_file():
        return
    pairs = [line.split("\t") for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[1:] if line]
    wanted = [[q, d, str(score)] for q, documents in labels.items() for d, score in documents.items()]
    if sorted(pairs) != sorted(wanted):
        problems.add("variant", name, "its labels differ from those of the JSONL file of the same name")


def _check_variants(
    directory: Path, manifest: Manifest, split: str, labels: dict[str, dict[str, float]], *, problems: _Problems
) -> None:
    for variant in manifest.variants:
        name = f"qrels-{variant}/{split}.jsonl"
        if variant == PEOPLE and name not in manifest.files:
            continue  # people have not labelled anything in this split
        variant_labels = _read_labels(directory, name, problems)
        _check_tsv(directory, f"qrels-{variant}/{split}.tsv", variant_labels, problems)
        if variant == PEOPLE:
            _check_peoples(name, labels, variant_labels, manifest.info.relevant_from, problems=problems)
            continue
        if variant == "positives":
            expected = {(q, d) for q, row in labels.items() for d, score in row.items() if score > 0}
        else:
            expected = {(q, d) for q, row in labels.items() for d in row}
        labelled = {(q, d) for q, row in variant_labels.items() for d in row}
        if expected != labelled:
            problems.add("variant", name, "does not label the same pairs as qrels")


def _check_peoples(
    name: str,
    labels: dict[str, dict[str, float]],
    peoples: dict[str, dict[str, float]],
    relevant_from: int,
    *,
    problems: _Problems,
) -> None:
    """Check that people's labels have been applied, that is, that `qrels` agrees with them on each pair."""
    for query, row in peoples.items():
        for document, level in row.items():
            label = labels.get(query, {}).get(document)
            if label is None or (label > 0) != (level >= relevant_from):
                problems.add("variant", name, f"qrels does not say of query {query!r} and {document!r} what people say")


def _check_corpus(directory: Path, manifest: Manifest, labels: _Labels, problems: _Problems) -> None:
    name = "corpus.jsonl"
    judged: dict[str, str] = {}
    positives: set[str] = set()
    for split, queries in labels.items():
        for documents in queries.values():
            judged.update(dict.fromkeys(documents, split))
            positives |= {document for document, score in documents.items() if score > 0}
    negatives = judged.keys() - positives
    seen: set[str] = set()
    marks: Counter[tuple[bool, str]] = Counter()
    for number, row in _rows(directory, name, problems):
        identifier = _identifier(row, number, "document", name=name, problems=problems)
        if identifier is None:
            continue
        if identifier in seen:
            problems.add("duplicate", name, f"line {number}: document id {identifier!r} appears twice")
        seen.add(identifier)
        marks[identifier in negatives, _shape(identifier, str(row.get("title") or ""))] += 1
        if _DATE.fullmatch(identifier):
            problems.add(
                "date", name, f"document id {identifier!r} looks like a date, so `datasets` rewrites it", "warning"
            )
    for document in sorted(set(judged) - seen):
        problems.add("dangling", f"qrels/{judged[document]}.jsonl", f"document {document!r} is not in the corpus")
    if len(seen) != manifest.statistics.passages:
        wanted = manifest.statistics.passages
        problems.add("count", name, f"contains {len(seen)} documents, but the manifest says {wanted}")
    _check_marks(marks, name, problems)


def _shape(identifier: str, title: str) -> str:
    """Return the form of an id, and whether there is a title. `neg-00af31` and `neg-12` have the same form."""
    shape = re.sub(r"[0-9a-f]{6,}|\d+", "#", identifier.lower())[:40]
    return f"an id like {shape!r}, {'a' if title else 'no'} title"


def _check_marks(marks: Counter[tuple[bool, str]], name: str, problems: _Problems) -> None:
    """Find forms of ids and titles that only negatives have, because they reveal labels."""
    negative = {shape for is_negative, shape in marks if is_negative}
    other = {shape for is_negative, shape in marks if not is_negative}
    alone = {shape: marks[True, shape] for shape in negative - other if marks[True, shape] >= 5}
    for shape, count in sorted(alone.items()):
        message = f"{count} documents labelled 0, and no others, have {shape}: this reveals their label"
        problems.add("mark", name, message, "warning")


def _check_counts(manifest: Manifest, queries: dict[str, str | None], labels: _Labels, problems: _Problems) -> None:
    splits = manifest.statistics.splits
    wanted = sum(part.queries for part in splits.values())
    if len(queries) != wanted:
        problems.add("count", "queries.jsonl", f"contains {len(queries)} queries, but the manifest says {wanted}")
    for split, rows in labels.items():
        scores = [score for documents in rows.values() for score in documents.values()]
        positives = sum(1 for score in scores if score > 0)
        part = splits[split]
        queries_of_split = len(rows) + sum(1 for query in problems.unanswered if queries[query] == split)
        if (queries_of_split, positives, len(scores) - positives) != (
            part.queries,
            part.positives,
            part.hard_negatives,
        ):
            problems.add(
                "count", f"qrels/{split}.jsonl", "its numbers of queries and labels differ from the manifest's"
            )
