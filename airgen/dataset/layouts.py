"""Export a dataset in the layouts of other tools.

trec        docs.tsv, topics.{split}.tsv, qrels.{split}.txt          ir_datasets.create_dataset, trec_eval, pyserini
air-bench   AIR-Bench/{task}_{domain}_{language}/... and its two qrels folders      air-benchmark, which reads
            local folders of these names under the working directory instead of the Hub
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from airgen.dataset.air_bench import labels_repository
from airgen.dataset.air_bench_card import air_bench_cards, air_bench_group
from airgen.dataset.atomic import building
from airgen.dataset.files import FileWriter, encode_row, write_text
from airgen.dataset.manifest import Manifest, load_manifest
from airgen.errors import DatasetError, UsageError
from airgen.records import flat_text
from airgen.registry import closest


def export_layout(dataset: Path, layout: str, out: Path) -> list[Path]:
    """Write the dataset directory `dataset` in another layout to `out`; returns the files, sorted.

    Raises UsageError for an unknown layout, DatasetError for a directory that is not a finished dataset. `out` is
    written whole or not at all, with `layout.json` last.
    """
    return _export({"": dataset}, layout, out)


def export_layouts(datasets: Mapping[str, Path], layout: str, out: Path) -> list[Path]:
    """The same for several datasets by name: one folder for each (trec), or one tree of repositories."""
    return _export(datasets, layout, out)


def _export(datasets: Mapping[str, Path], layout: str, out: Path) -> list[Path]:
    if layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}{closest(layout, list(LAYOUTS))}")
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
    """The rows of a JSONL file of a dataset. Raises DatasetError naming file and line."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise DatasetError(f"{path}:{number}: is not a JSON object")
                yield row
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: holds a line that is not JSON: {error}") from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from error


def _one_line(text: str) -> str:
    """The text for TSV, which has no escapes: each run of white space and NUL becomes one space."""
    return " ".join(text.replace("\0", " ").split())


def _queries_of_splits(dataset: Path) -> dict[str, list[dict[str, Any]]]:
    splits: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(dataset / "queries.jsonl"):
        splits.setdefault(row["metadata"]["split"], []).append(row)
    return splits


def _trec(dataset: Path, manifest: Manifest, out: Path) -> None:
    with FileWriter(out / "docs.tsv") as file:
        for row in read_rows(dataset / "corpus.jsonl"):
            file.write(f"{row['_id']}\t{_one_line(flat_text(row.get('title'), row['text']))}\n")
    for split, rows in _queries_of_splits(dataset).items():
        write_text(out / f"topics.{split}.tsv", "".join(f"{row['_id']}\t{_one_line(row['text'])}\n" for row in rows))
    for split in manifest.labelled_splits:
        for variant in ("", *(v for v in manifest.variants if v == "graded")):
            folder, suffix = (f"qrels-{variant}", f"-{variant}") if variant else ("qrels", "")
            labels = read_rows(dataset / folder / f"{split}.jsonl")
            lines = (f"{row['query-id']} 0 {row['corpus-id']} {row['score']}\n" for row in labels)
            write_text(out / f"qrels{suffix}.{split}.txt", "".join(lines))


def _air_bench(dataset: Path, manifest: Manifest, out: Path) -> None:
    group, home = air_bench_group(manifest), out / "AIR-Bench"
    folder = f"{manifest.info.version}/{manifest.info.name}"
    write_air_bench_data(dataset, home / group / folder)
    for split in manifest.labelled_splits:
        write_air_bench_labels(dataset, split, home / labels_repository(group, split) / folder)


def write_air_bench_data(dataset: Path, folder: Path) -> None:
    """Write corpus and queries of a dataset to the folder of AIR-Bench's layout."""
    with FileWriter(folder / "corpus.jsonl") as file:
        for row in read_rows(dataset / "corpus.jsonl"):
            file.write(encode_row({"id": row["_id"], "text": flat_text(row.get("title"), row["text"])}, row["_id"]))
    for split, rows in _queries_of_splits(dataset).items():
        lines = (encode_row({"id": row["_id"], "text": row["text"]}, row["_id"]) for row in rows)
        write_text(folder / f"{split}_queries.jsonl", "".join(lines))


def write_air_bench_labels(dataset: Path, split: str, folder: Path) -> None:
    """Write the labels of one split to the folder of AIR-Bench's layout."""
    labels = read_rows(dataset / "qrels" / f"{split}.jsonl")
    rows = [{"qid": row["query-id"], "docid": row["corpus-id"], "relevance": row["score"]} for row in labels]
    write_text(folder / f"{split}_qrels.jsonl", "".join(encode_row(row, split) for row in rows))


LAYOUTS: dict[str, Callable[[Path, Manifest, Path], None]] = {"trec": _trec, "air-bench": _air_bench}
