"""The same dataset in the layouts of other tools.

trec        docs.tsv, topics.{split}.tsv, qrels.{split}.txt          ir_datasets.create_dataset, trec_eval, pyserini
air-bench   AIR-Bench/{task}_{domain}_{language}/... and its two qrels folders      air-benchmark, which reads
            local folders of these names under the working directory instead of the Hub
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from airgen.dataset.atomic import building
from airgen.dataset.files import FileWriter, encode_row, write_text
from airgen.dataset.manifest import Manifest, load_manifest
from airgen.errors import DatasetError, UsageError
from airgen.registry import closest

__all__ = ["LAYOUTS", "air_bench_repositories", "export_layout", "read_rows"]


def export_layout(dataset: Path, layout: str, out: Path) -> list[Path]:
    """Write the dataset directory `dataset` in another layout to `out`; returns the files, sorted.

    Raises UsageError for an unknown layout, DatasetError for a directory that is no finished dataset. `out`
    appears whole, with its `layout.json` last, or not at all.
    """
    if layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}{closest(layout, list(LAYOUTS))}")
    manifest = load_manifest(dataset)
    with building(out, marker="layout.json") as directory:
        LAYOUTS[layout](dataset, manifest, directory)
        value = {
            "layout": layout,
            "name": manifest.info.name,
            "version": manifest.info.version,
            "digest": manifest.digest,
        }
        write_text(directory / "layout.json", json.dumps(value, indent=1) + "\n")
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
    except ValueError as error:
        raise DatasetError(f"{path}: holds a line that is not JSON: {error}") from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from error


def _flat(row: Mapping[str, Any]) -> str:
    """Title and text in one, as BEIR's flat index has them."""
    return f"{row['title']} {row['text']}" if row.get("title") else str(row["text"])


def _one_line(text: str) -> str:
    """TSV has no escapes: every run of white space (and NUL) becomes one space."""
    return " ".join(text.replace("\0", " ").split())


def _queries_of_splits(dataset: Path) -> dict[str, list[dict[str, Any]]]:
    splits: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(dataset / "queries.jsonl"):
        splits.setdefault(row["metadata"]["split"], []).append(row)
    return splits


def _trec(dataset: Path, manifest: Manifest, out: Path) -> None:
    with FileWriter(out / "docs.tsv") as file:
        for row in read_rows(dataset / "corpus.jsonl"):
            file.write(f"{row['_id']}\t{_one_line(_flat(row))}\n")
    for split, rows in _queries_of_splits(dataset).items():
        write_text(out / f"topics.{split}.tsv", "".join(f"{row['_id']}\t{_one_line(row['text'])}\n" for row in rows))
    for split in manifest.labelled_splits:
        for variant in ("", *(v for v in manifest.variants if v == "graded")):
            folder, suffix = (f"qrels-{variant}", f"-{variant}") if variant else ("qrels", "")
            labels = read_rows(dataset / folder / f"{split}.jsonl")
            lines = (f"{row['query-id']} 0 {row['corpus-id']} {row['score']}\n" for row in labels)
            write_text(out / f"qrels{suffix}.{split}.txt", "".join(lines))


def air_bench_repositories(manifest: Manifest) -> dict[str, str]:
    """The Hub repositories of AIR-Bench's layout: `data`, and for the labels `dev` and `test` (private there)."""
    info = manifest.info
    group = f"{info.task}_{info.domain}_{info.language}"
    return {"data": group, "dev": f"qrels-{group}-dev", "test": f"qrels-{group}"}


def _air_bench(dataset: Path, manifest: Manifest, out: Path) -> None:
    info = manifest.info
    repositories = air_bench_repositories(manifest)
    root = out / "AIR-Bench"
    config = info.name.replace("-", "_")
    folder = f"{info.version}/{info.name}"
    files = {f"corpus_{config}": f"{folder}/corpus.jsonl"}
    with FileWriter(root / repositories["data"] / files[f"corpus_{config}"]) as file:
        for row in read_rows(dataset / "corpus.jsonl"):
            file.write(encode_row({"id": row["_id"], "text": _flat(row)}, row["_id"]))
    for split, rows in sorted(_queries_of_splits(dataset).items()):
        files[f"queries_{config}_{split}"] = f"{folder}/{split}_queries.jsonl"
        lines = (encode_row({"id": row["_id"], "text": row["text"]}, row["_id"]) for row in rows)
        write_text(root / repositories["data"] / f"{folder}/{split}_queries.jsonl", "".join(lines))
    _air_bench_card(root / repositories["data"], manifest, files)
    for split in manifest.labelled_splits:
        home = root / repositories["dev" if split == "dev" else "test"]
        labels = read_rows(dataset / "qrels" / f"{split}.jsonl")
        rows = [{"qid": row["query-id"], "docid": row["corpus-id"], "relevance": row["score"]} for row in labels]
        write_text(home / f"{folder}/{split}_qrels.jsonl", "".join(encode_row(row, split) for row in rows))
        _air_bench_card(home, manifest, {f"qrels_{config}_{split}": f"{folder}/{split}_qrels.jsonl"})


def _air_bench_card(home: Path, manifest: Manifest, files: Mapping[str, str]) -> None:
    import yaml

    data_files = [{"split": split, "path": path} for split, path in files.items()]
    block = {
        "language": list(manifest.info.all_languages),
        "configs": [{"config_name": manifest.info.version, "data_files": data_files}],
    }
    write_text(home / "README.md", f"---\n{yaml.safe_dump(block, allow_unicode=True, sort_keys=False)}---\n")


LAYOUTS: dict[str, Callable[[Path, Manifest, Path], None]] = {"trec": _trec, "air-bench": _air_bench}
