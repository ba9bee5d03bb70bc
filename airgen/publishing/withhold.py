"""Divide a dataset into a public part and the labels that stay private (paper, appendix B.1).

The public part must not contain labels of withheld splits in any variant, the lineage, or anything else that connects a
withheld query with a document. `public_part` searches the files it has written for such connections.

`secrecy_problems` checks whether private labels can be computed from public data, as far as this needs neither
retrieval nor an LLM; `tests/publishing/test_attack.py` carries out the full attack. The adversary has airgen's code,
the public part, the source corpus and the original ids. Marks are simple yes-or-no questions about a row: an LLM has
habits, such as typographic quotes or capitalised titles, that could distinguish generated passages from others.
"""

import dataclasses
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.components.keys import text_key
from airgen.dataset.beir import typed_rows
from airgen.dataset.content import FILTER, MEAN_OVERLAP, NAMED_OVERLAP, OVERLAP, TITLE_OVERLAP, WORDING
from airgen.dataset.layouts import label_rows_of, read_rows
from airgen.dataset.manifest import MANIFEST, FileEntry, Manifest, data_digest, load_manifest, manifest_text
from airgen.dataset.secret import SECRET_FILE, secret_of
from airgen.dataset.verify import DatasetProblem
from airgen.dataset.write import seal
from airgen.errors import DatasetError, disk_error
from airgen.publishing.public import (
    PAIR,
    QUERY_FIELDS,
    public_files,
    public_manifest,
    public_metadata,
    same_ids,
    same_numbers,
)
from airgen.storage.json_values import DAMAGE
from airgen.storage.whole_files import building, encode_row, labelled_split, write_text

Row = Mapping[str, Any]

DOCUMENTS = "private/documents.jsonl"
"""The file in a private repository with the ids of all documents that a submission may contain."""

_DOCUMENT_FIELDS = frozenset({"_id", "title", "text"})

_WORDS = re.compile(r"[^\s\"'`,;:()\[\]{}|<>]+")


def is_labels_of(name: str, splits: Sequence[str]) -> bool:
    """Return whether a file may contain labels of one of `splits`, in any variant or layout, judging cautiously by its
    name.

    >>> is_labels_of("qrels-graded/test.tsv", ["test"]), is_labels_of("qrels/dev.tsv", ["test"])
    (True, False)
    """
    path = Path(name)
    labels = any("qrels" in part or "answers" in part for part in path.parts)
    return labels and any(split in path.name for split in splits)


def public_part(dataset: Path, out: Path, withhold: Sequence[str], *, permission: str = "") -> Manifest:
    """Copy the public files to `out`, with their own card and manifest, and return the manifest.

    `permission` is the rights holder's permission to publish, which is quoted in the card.

    Raises DatasetError if the dataset does not have the split, or if the public files connect a withheld query with a
    document.
    """
    manifest = _whole(dataset, withhold)
    files = {name: manifest.files[name] for name in public_files(manifest, withhold)}
    public = public_manifest(manifest, withhold, pair_of(dataset, manifest), permission)
    with building(out, durable=False) as directory:
        _copy(dataset, directory, files)
        if withhold:
            _leave_out_fields(dataset, directory, files, withhold)
        if public.pipeline_yaml:
            files["pipeline.yaml"] = FileEntry(*write_text(directory / "pipeline.yaml", public.pipeline_yaml))
        sealed = seal(directory, dataclasses.replace(public, files=dict(sorted(files.items()))))
        if leak := next(_leaks(dataset, directory, withhold), None):
            raise DatasetError(f"not published: {leak}")
    return sealed


def _leave_out_fields(dataset: Path, directory: Path, files: dict[str, FileEntry], withhold: Sequence[str]) -> None:
    """Write the queries and documents again without fields that are not public, since labels may follow from them.

    Of a document, the metadata by which queries are filtered remain.
    """

    def write(name: str, kind: str, rows: Iterable[dict[str, Any]]) -> None:
        lines = [encode_row(row, f"{kind} {row['_id']!r}") for row in rows]
        (directory / name).unlink()  # it is a link to the file of the whole dataset
        files[name] = FileEntry(*write_text(directory / name, "".join(lines)))

    queries = [
        {"_id": row["_id"], "text": row["text"], "metadata": public_metadata(row["metadata"], withhold)}
        for row in read_rows(dataset / "queries.jsonl")
    ]
    write("queries.jsonl", "query", queries)
    filters = {name.removeprefix(FILTER) for row in queries for name in row["metadata"] if name.startswith(FILTER)}
    corpus = dataset / "corpus.jsonl"
    if any(row.keys() - _DOCUMENT_FIELDS for row in read_rows(corpus)):
        write(corpus.name, "document", (_public_document(row, filters) for row in read_rows(corpus)))


def _public_document(row: Row, filters: Collection[str]) -> dict[str, Any]:
    public = {name: value for name, value in row.items() if name in _DOCUMENT_FIELDS}
    metadata = {name: value for name, value in (row.get("metadata") or {}).items() if name in filters}
    return {**public, "metadata": metadata} if metadata else public


def labels_part(dataset: Path, out: Path, withhold: Sequence[str]) -> Manifest:
    """Copy the lineage, and what is needed to score `withhold`, to `out` for a private repository, and return the
    manifest."""
    manifest = _whole(dataset, withhold)
    files = {
        name: entry
        for name, entry in manifest.files.items()
        if name.startswith("private/") or name == "queries.jsonl" or labelled_split(name) in withhold
    }
    with building(out, durable=False) as directory:
        _copy(dataset, directory, files)
        # The ids that a submission may contain: the scorer checks against these, not against the labels.
        rows = (encode_row({"_id": id_}, id_) for id_ in _document_ids(dataset))
        files[DOCUMENTS] = FileEntry(*write_text(directory / DOCUMENTS, rows))
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
            notes={**manifest.notes, PAIR: pair_of(dataset, manifest)},
        )
        write_text(directory / MANIFEST, manifest_text(labels))
    return labels


def pair_of(dataset: Path, manifest: Manifest) -> str:
    """Return the mark shared by the public and private parts of a dataset, by which labels of another dataset are
    recognised.

    It depends on the secret, because a plain hash of the labels would let anyone confirm a guess. It is "" without a
    secret. `dataset` is the whole dataset or one of its parts.
    """
    if manifest.part != "whole":
        return str(manifest.notes.get(PAIR, ""))
    secret = secret_of(dataset)
    return "" if secret is None else secret.text("pair", manifest.digest)[:32]


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


def _withheld_labels(dataset: Path, withhold: Sequence[str]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return {query id: labelled documents} and {query id: relevant documents} for every query of the withheld
    splits."""
    judged: dict[str, set[str]] = {}
    relevant = {
        row["_id"]: set[str]()
        for row in read_rows(dataset / "queries.jsonl")
        if row["metadata"].get("split") in withhold
    }
    for split in withhold:
        for row in label_rows_of(dataset / "qrels" / f"{split}.jsonl"):
            judged.setdefault(row["query-id"], set()).add(row["corpus-id"])
            if row["score"] > 0:
                relevant.setdefault(row["query-id"], set()).add(row["corpus-id"])
    return judged, relevant


def _document_ids(dataset: Path) -> Iterator[str]:
    return (row["_id"] for row in read_rows(dataset / "corpus.jsonl"))


def _leaks(dataset: Path, public: Path, withhold: Sequence[str]) -> Iterator[str]:
    """Describe connections between withheld queries and documents in the public files."""
    judged, relevant = _withheld_labels(dataset, withhold)
    if leaking_ids := same_ids(relevant, _document_ids(public)) if relevant else []:
        yield (
            f"{len(leaking_ids)} of {len(relevant)} withheld queries have the id of a passage, "
            f"such as {leaking_ids[0]!r}, which tells what answers them: {OPAQUE}"
        )
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


_FEWEST_GENERATED = 20  # number of generated passages below which a share is meaningless
_DEVIATIONS, _DIFFERENCE = 5.0, 0.1
_END = re.compile(r"[.!?。！？؟।…][\"'”’»)\]]*$")
_BULLET = re.compile(r"(?m)^[^\S\n]*(?:[-*•‣◦]|\d{1,2}[.)]) ")


def _searches(pattern: str) -> Callable[[Row], bool]:
    compiled = re.compile(pattern)
    return lambda row: compiled.search(row["text"]) is not None


MARKS: dict[str, Callable[[Row], bool]] = {
    "have no title": lambda row: not row["title"],
    "have a title that ends in a sentence mark": lambda row: _END.search(row["title"]) is not None,
    "have a title with capitals": lambda row: row["title"].istitle() and " " in row["title"],
    "begin with their title": lambda row: bool(row["title"]) and row["text"].startswith(row["title"]),
    "have line breaks": _searches(r"\n"),
    "have blank lines": _searches(r"\n\n"),
    "have double spaces": _searches("  "),
    "have spaces at an end": lambda row: row["text"] != row["text"].strip(),
    "have typographic double quotes": _searches("[“”„]"),
    "have plain double quotes": _searches('"'),
    "have typographic apostrophes": _searches("[‘’]"),
    "have plain apostrophes": _searches("'"),
    "have long dashes": _searches("[—–]"),
    "have an ellipsis as one character": _searches("…"),
    "have Markdown": _searches(r"\*\*|__|(?m:^#+ )|`"),
    "have bullets or numbers at the beginning of a line": lambda row: _BULLET.search(row["text"]) is not None,
    "have odd spaces or invisible characters": lambda row: not row["text"].replace("\n", "").isprintable(),
    "end without a sentence mark": lambda row: _END.search(row["text"]) is None,
    "begin with a small letter": lambda row: row["text"][:1].islower(),
    "have a length that 10 divides": lambda row: len(row["text"]) % 10 == 0,
    "have an id with other characters": lambda row: re.fullmatch("[a-z][0-9a-f]+", row["_id"]) is None,
    "have other fields": lambda row: list(row) != ["_id", "title", "text"],
}


@dataclass(frozen=True, slots=True)
class TellingMark:
    """A question that distinguishes generated passages from others, with the number of positive answers for each."""

    name: str
    generated: int
    of_generated: int
    others: int
    of_others: int

    def __str__(self) -> str:
        return (
            f"generated passages can be recognised: {self.generated:,} of {self.of_generated:,} {self.name}, "
            f"{self.others:,} of {self.of_others:,} other passages do"
        )


def marks_of_generated(rows: Iterable[Row], generated: Collection[str]) -> Iterator[TellingMark]:
    """Yield the significant marks: five standard errors, and at least a tenth of the passages."""
    yes: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    total: Counter[bool] = Counter()
    for row in rows:
        is_generated = row["_id"] in generated
        total[is_generated] += 1
        yes[is_generated].update(name for name, has in MARKS.items() if has(row))
    n, m = total[True], total[False]
    if n < _FEWEST_GENERATED or m < _FEWEST_GENERATED:
        return
    for name in MARKS:
        a, b = yes[True][name], yes[False][name]
        share = (a + b) / (n + m)
        error = math.sqrt(share * (1 - share) * (1 / n + 1 / m))
        if abs(a / n - b / m) > max(_DEVIATIONS * error, _DIFFERENCE):
            yield TellingMark(name=name, generated=a, of_generated=n, others=b, of_others=m)


_LINEAGE = "private/lineage.jsonl"
OPAQUE = "write `export: {ids: opaque}` in the pipeline and run it again"
"""The remedy if ids reveal labels."""


def secrecy_problems(dataset: Path) -> list[DatasetProblem]:
    """Return why the labels of a dataset are not secret: errors if the secret is public, otherwise warnings.

    Raises DatasetError if the directory has no readable manifest.
    """
    manifest = load_manifest(dataset)
    if manifest.part == "labels":
        return []
    if not manifest.secret:
        what = "its ids and splits do not depend on a secret, so anyone with the corpus can derive its labels"
        how = "remove `secret: false` from export in the pipeline, and run it again"
        return [DatasetProblem("not-secret", "manifest.json", f"{what}: {how}", "warning")]
    try:
        generated = {str(id_) for _, row in typed_rows(dataset / _LINEAGE, {}) for id_ in row.get("negatives") or ()}
        marks = marks_of_generated(read_rows(dataset / "corpus.jsonl"), generated) if generated else ()
        habits = [DatasetProblem("habits", "corpus.jsonl", str(mark), "warning") for mark in marks]
        return [*_secret_in_public(dataset, manifest), *_ids(dataset, manifest), *_order(dataset), *habits]
    except DatasetError as error:
        return [DatasetProblem("unreadable", "manifest.json", f"secrecy cannot be checked: {error}")]
    except DAMAGE as error:  # `verify` reports what is wrong with the files
        reason = str(disk_error(error)) if isinstance(error, OSError) else "a row has an unexpected form"
        return [DatasetProblem("unreadable", "manifest.json", f"secrecy cannot be checked: {reason}")]


def _secret_in_public(dataset: Path, manifest: Manifest) -> Iterator[DatasetProblem]:
    """Yield a problem for the secret in a file that is not private, or for a missing secret unless the dataset is
    public.
    """
    secret = secret_of(dataset)
    if secret is None:
        if manifest.part == "whole":
            message = "is missing: restore secret.key of the job, or this file from the private repository"
            yield DatasetProblem("lost-secret", f"private/{SECRET_FILE}", message)
        return
    if secret.name != manifest.secret:
        yield DatasetProblem(
            "lost-secret", f"private/{SECRET_FILE}", "is not the secret that this dataset was made with"
        )
    pattern = re.compile(re.escape(secret.hex.encode()), re.IGNORECASE)
    for path in sorted(dataset.rglob("*")):
        name = path.relative_to(dataset).as_posix()
        if path.is_file() and not name.startswith("private/"):
            with path.open("rb") as file:
                if any(pattern.search(line) for line in file):
                    yield DatasetProblem("leak", name, "holds the secret of the dataset: remove it and make a new one")


def _ids(dataset: Path, manifest: Manifest) -> Iterator[DatasetProblem]:
    """Yield a problem if ids can be derived from the original ids, some of which are in the private lineage."""
    for _, row in typed_rows(dataset / _LINEAGE, {}):
        source, published = row.get("source"), row.get("positive")
        if source is not None and published in (source, "d" + text_key(f"{manifest.info.name}\x1f{source}")[:15]):
            message = f"the id {published!r} follows from the original id {source!r}: export with `ids: opaque`"
            yield DatasetProblem("ids", "corpus.jsonl", message, "warning")
            return


def warnings_of(dataset: Path, withhold: Sequence[str]) -> list[DatasetProblem]:
    """Return warnings before withholding the labels of these splits: queries with the same numbers as their passages,
    and fields that are left out.
    """
    manifest = load_manifest(dataset)
    _, relevant = _withheld_labels(dataset, sorted(set(withhold) & set(manifest.labelled_splits)))
    warnings = []
    if same := same_numbers(relevant, _document_ids(dataset)):
        message = f"the ids of {len(same)} of {len(relevant)} queries have the number of a passage that answers them"
        warnings.append(DatasetProblem("ids", "queries.jsonl", f"{message}, such as {same[0]!r}: {OPAQUE}", "warning"))
    airgens = {"judged", "hops", OVERLAP, NAMED_OVERLAP, TITLE_OVERLAP, MEAN_OVERLAP, WORDING}
    for name in sorted(manifest.query_fields.keys() - QUERY_FIELDS - airgens):
        message = f"metadata.{name} is left out beside private labels: it may follow from them"
        warnings.append(DatasetProblem("fields", "queries.jsonl", message, "warning"))
    if any("metadata" in row for row in read_rows(dataset / "corpus.jsonl")):
        message = "metadata of documents is left out beside private labels, except what queries filter by"
        warnings.append(DatasetProblem("fields", "corpus.jsonl", message, "warning"))
    return warnings


def _order(dataset: Path) -> Iterator[DatasetProblem]:
    """Yield rows that are not in order of their ids, or whose fields differ from the first row, since both can mark
    rows."""
    for name in ("corpus.jsonl", "queries.jsonl"):
        last, fields = "", None
        for row in read_rows(dataset / name):
            metadata = row.get("metadata")
            shape = [*row, *(metadata if isinstance(metadata, dict) else ())]
            fields = fields or shape
            if row["_id"] < last or shape != fields:
                message = f"the row {row['_id']!r} is out of order or has other fields than the first: export it again"
                yield DatasetProblem("order", name, message, "warning")
                break
            last = row["_id"]
