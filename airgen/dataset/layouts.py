"""Convert a dataset, or the labels of one split, to the layouts and formats of other tools (`LAYOUTS`, `FORMATS`).

trec        docs.tsv, topics.{split}.tsv, qrels.{split}.txt          ir_datasets.create_dataset, trec_eval, pyserini
air-bench   AIR-Bench/{task}_{domain}_{language}/... and its two qrels folders      air-benchmark, which reads
            local folders of these names under the working directory instead of the Hub

Quepid and OpenSearch identify a query by its text. `airgen label` can read both, and TREC qrels.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.components.registry import unknown_name
from airgen.dataset.air_bench import labels_repository
from airgen.dataset.beir import BeirDataset, objects, read_qrels
from airgen.dataset.card import air_bench_cards, air_bench_group
from airgen.dataset.manifest import Manifest, load_manifest
from airgen.display.study import Shown
from airgen.errors import DatasetError
from airgen.safety.escaping import csv_lines
from airgen.storage.records import flat_text
from airgen.storage.whole_files import building, encode_row, keep_copy, whole_file, write_text


def export_layouts(datasets: Mapping[str, Path], layout: str, out: Path) -> list[Path]:
    """Write datasets, given by name, to `out` in another layout: a folder for each (trec), or a tree of repositories.

    A dataset without a name is written to `out` itself. Returns the files, sorted. Raises UsageError for an unknown
    layout, and DatasetError for a directory that is not a finished dataset. `out` is written atomically, with
    `layout.json` last.
    """
    if layout not in LAYOUTS:
        raise unknown_name("layout", layout, LAYOUTS)
    manifests = {name: load_manifest(path) for name, path in sorted(datasets.items())}
    with building(out, marker="layout.json") as directory:
        for name, manifest in manifests.items():
            LAYOUTS[layout](datasets[name], manifest, directory / name if layout == "trec" else directory)
        if layout == "air-bench":
            for repo, text in air_bench_cards(manifests.values()).items():
                write_text(directory / "AIR-Bench" / repo / "README.md", text)
        digests = {name or manifest.info.name: manifest.digest for name, manifest in manifests.items()}
        write_text(directory / "layout.json", json.dumps({"layout": layout, "datasets": digests}, indent=1) + "\n")
    return sorted(path for path in out.rglob("*") if path.is_file())


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of a dataset's JSONL file. Raises DatasetError with file and line."""
    if path.exists() and not path.is_file():  # reading a pipe without a writer would never end
        raise DatasetError(f"{path}: is not a file")
    return (row for _, row in objects(path))


def label_rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of a dataset's JSONL file of labels. Raises DatasetError with file and line.

    There is no such file if no query of its split has an answer; the TSV beside it then has only its header.
    """
    table = path.with_suffix(".tsv")
    if not path.exists() and table.is_file() and table.read_text(encoding="utf-8").count("\n") == 1:
        return iter(())
    return read_rows(path)


def _tsv_text(text: str) -> str:
    """Convert a text for TSV, which has no escapes: each run of white space and NUL becomes one space."""
    return " ".join(text.replace("\0", " ").split())


def _queries_of_splits(dataset: Path) -> dict[str, list[dict[str, Any]]]:
    splits: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(dataset / "queries.jsonl"):
        splits.setdefault(row["metadata"]["split"], []).append(row)
    return splits


def _trec_layout(dataset: Path, manifest: Manifest, out: Path) -> None:
    corpus = read_rows(dataset / "corpus.jsonl")
    lines = (f"{row['_id']}\t{_tsv_text(flat_text(row.get('title'), row['text']))}\n" for row in corpus)
    write_text(out / "docs.tsv", lines)
    for split, rows in _queries_of_splits(dataset).items():
        write_text(out / f"topics.{split}.tsv", "".join(f"{row['_id']}\t{_tsv_text(row['text'])}\n" for row in rows))
    for split in manifest.labelled_splits:
        for variant in ("", *(v for v in manifest.variants if v == "graded")):
            folder, suffix = (f"qrels-{variant}", f"-{variant}") if variant else ("qrels", "")
            labels = read_rows(dataset / folder / f"{split}.jsonl")
            lines = (f"{row['query-id']} 0 {row['corpus-id']} {row['score']}\n" for row in labels)
            write_text(out / f"qrels{suffix}.{split}.txt", lines)


def _air_bench(dataset: Path, manifest: Manifest, out: Path) -> None:
    group, home = air_bench_group(manifest), out / "AIR-Bench"
    folder = f"{manifest.info.version}/{manifest.info.name}"
    write_air_bench_data(dataset, home / group / folder)
    for split in manifest.labelled_splits:
        write_air_bench_labels(dataset, split, home / labels_repository(group, split) / folder)


def write_air_bench_data(dataset: Path, folder: Path) -> None:
    """Write the corpus and queries of a dataset to a folder in AIR-Bench's layout."""
    corpus = read_rows(dataset / "corpus.jsonl")
    texts = ({"id": row["_id"], "text": flat_text(row.get("title"), row["text"])} for row in corpus)
    write_text(folder / "corpus.jsonl", (encode_row(row, row["id"]) for row in texts))
    for split, rows in _queries_of_splits(dataset).items():
        lines = (encode_row({"id": row["_id"], "text": row["text"]}, row["_id"]) for row in rows)
        write_text(folder / f"{split}_queries.jsonl", lines)


def write_air_bench_labels(dataset: Path, split: str, folder: Path) -> None:
    """Write the labels of one split to a folder in AIR-Bench's layout."""
    labels = label_rows_of(dataset / "qrels" / f"{split}.jsonl")
    rows = [{"qid": row["query-id"], "docid": row["corpus-id"], "relevance": row["score"]} for row in labels]
    write_text(folder / f"{split}_qrels.jsonl", (encode_row(row, split) for row in rows))


LAYOUTS: dict[str, Callable[[Path, Manifest, Path], None]] = {"trec": _trec_layout, "air-bench": _air_bench}


_BREAKS = re.compile(r"[\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_MARKER = "qrels.trec"

Labels = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, repr=False)
class Converted(Shown):
    """The result of a conversion. `without_text` counts labelled queries that were left out because they have no
    text."""

    out: Path
    queries: int
    labels: int
    without_text: int


@dataclass(frozen=True)
class _Source:
    """The labels of one split and the texts of their queries. `index` and `fields` are for search engines."""

    dataset: BeirDataset
    labels: Labels
    texts: Mapping[str, str]
    name: str
    index: str
    fields: Sequence[str]

    def by_text(self) -> dict[str, dict[str, float]]:
        """Return {query text: {passage id: label}}. For queries with the same text, the higher labels count."""
        labels_of_text: dict[str, dict[str, float]] = {}
        for key, row in self.labels.items():
            if key in self.texts:
                of_text = labels_of_text.setdefault(_one_line(self.texts[key]), {})
                for passage, label in row.items():
                    of_text[passage] = max(of_text.get(passage, label), label)
        return labels_of_text


def convert(
    dataset: BeirDataset,
    split: str,
    kind: str,
    out: Path,
    *,
    variant: str = "",
    index: str = "my-index",
    fields: Sequence[str] = ("title", "text"),
) -> Converted:
    """Write the labels of a split in one of `FORMATS`, `kind`, to the file (or, for ir_datasets, the folder) `out`.

    Raises UsageError for an unknown format, and DatasetError if the dataset cannot be read, the labels do not exist, or
    an id cannot be represented in the format.

    Args:
        variant: Other labels of an airgen dataset: `graded` (0 to 3) or `positives`.
        index, fields: The index and the fields that Elasticsearch searches.
    """
    if kind not in FORMATS:
        raise unknown_name("format", kind, FORMATS)
    if not variant:
        labels = dataset.qrels(split).labels
    elif (path := dataset.path / f"qrels-{variant}" / f"{split}.tsv").is_file():
        labels = read_qrels(path).labels
    else:
        known = sorted(folder.name.removeprefix("qrels-") for folder in dataset.path.glob("qrels-*") if folder.is_dir())
        raise DatasetError(f"{path}: there is no such file; the dataset has {', '.join(known) or 'no other labels'}")
    texts = {key: query.text for key, query in dataset.queries().items() if key in labels}
    source = _Source(dataset, labels, texts, name=f"{dataset.name} {split}", index=index, fields=fields)
    if not texts:
        raise DatasetError(f"{dataset.path}: no query with labels in {split} has a text")
    FORMATS[kind][1](source, out)
    return Converted(out, len(labels), sum(map(len, labels.values())), len(labels) - len(texts))


def _quepid(source: _Source, out: Path) -> None:
    rows = [[query, passage, f"{label:g}"] for query, row in source.by_text().items() for passage, label in row.items()]
    _write(out, csv_lines([["query", "docid", "rating"], *rows]))


def _opensearch(source: _Source, out: Path) -> None:
    ratings = [
        {"query": query, "ratings": [{"docId": passage, "rating": f"{label:g}"} for passage, label in row.items()]}
        for query, row in source.by_text().items()
    ]
    value = {
        "name": source.name,
        "description": f"Relevance labels of {source.name}, written by airgen",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": ratings,
    }
    _write(out, value)


def _elasticsearch(source: _Source, out: Path) -> None:
    only = "_rank_eval accepts only integer ratings: use a different variant of the labels"
    requests = [
        {
            "id": key,
            "template_id": "query",
            "params": {"text": source.texts[key]},
            "ratings": [
                {"_index": source.index, "_id": passage, "rating": max(_whole(key, passage, label, only), 0)}
                for passage, label in row.items()  # it refuses ratings below 0
            ],
        }
        for key, row in source.labels.items()
        if key in source.texts
    ]
    search = {"query": {"multi_match": {"query": "{{text}}", "fields": list(source.fields)}}}
    value = {
        "templates": [{"id": "query", "template": {"source": search}}],
        "requests": requests,
        "metric": {"dcg": {"k": 10, "normalize": True}},
    }
    _write(out, value)


def _whole(key: str, passage: str, label: float, only: str) -> int:
    if label != int(label):
        raise DatasetError(f"query {key!r}, passage {passage!r}: label {label:g} is not an integer, and {only}")
    return int(label)


def _trec_lines(labels: Labels) -> Iterator[str]:
    only = "TREC qrels accept only integer labels: use a different variant of the labels, or the ranx format"
    for key, row in labels.items():
        for passage, label in row.items():
            yield f"{_word(key)} 0 {_word(passage)} {_whole(key, passage, label, only)}\n"


def _ir_datasets(source: _Source, out: Path) -> None:
    with building(out, _MARKER, durable=False) as folder:
        with (folder / "docs.tsv").open("w", encoding="utf-8", errors="replace", newline="\n") as stream:
            for passage in source.dataset.passages():
                stream.write(f"{_word(passage.id)}\t{_one_line(flat_text(passage.title, passage.text))}\n")
        queries = "".join(f"{_word(key)}\t{_one_line(text)}\n" for key, text in source.texts.items())
        (folder / "queries.tsv").write_text(queries, encoding="utf-8", errors="replace", newline="\n")
        (folder / _MARKER).write_text("".join(_trec_lines(source.labels)), encoding="utf-8", newline="\n")


def _one_line(text: str) -> str:
    """Return the text without tabs and line breaks, which would end columns and lines."""
    return _BREAKS.sub(" ", text).strip()


def _word(identifier: str) -> str:
    if not identifier or len(identifier.split()) != 1:
        raise DatasetError(f"the id {identifier!r} contains whitespace, which separates the columns of TREC files")
    return identifier


def _write(out: Path, value: Any) -> None:
    """Write a text, or any other value as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    keep_copy(out, text)  # people edit these files
    with whole_file(out) as fresh:
        fresh.write_text(text, encoding="utf-8", errors="replace", newline="\n")


def _ranx(source: _Source, out: Path) -> None:
    labels = {
        query: {passage: int(label) if label == int(label) else label for passage, label in row.items()}
        for query, row in source.labels.items()
    }
    _write(out, labels)


def _trec_qrels(source: _Source, out: Path) -> None:
    _write(out, "".join(_trec_lines(source.labels)))


FORMATS: Mapping[str, tuple[str, Callable[[_Source, Path], None]]] = {
    "quepid": ("ratings.csv", _quepid),
    "opensearch": ("judgments.json", _opensearch),
    "elasticsearch": ("rank_eval.json", _elasticsearch),
    "ranx": ("qrels.json", _ranx),
    "trec": ("qrels.trec", _trec_qrels),
    "ir_datasets": ("ir_datasets", _ir_datasets),
}
"""{format: (usual name of the file or folder, what writes it)}."""
