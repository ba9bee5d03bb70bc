"""Measure the value of ten human queries as examples (`generation.examples`) with two runs of `study agree` on a
collection.

    python benchmarks/ten_queries.py COLLECTION --out ten
    cd ten && airgen study agree collection --pipeline plain.yaml --systems SYSTEMS
    cd ten && airgen study agree collection --pipeline like.yaml --systems SYSTEMS

Writes the collection without ten of its queries, drawn by a seed, these ten as `ten.txt`, and the two pipelines, which
differ in `examples` alone. So no query that was an example takes part in the human ranking.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from pathlib import Path

import yaml

from airgen.settings import load_pipeline
from airgen.storage.paths import data_dir

QUERIES, SEED = 10, 10


def without(source: Path, out: Path, held: set[str]) -> None:
    """Copy a BEIR folder without some queries and their labels."""
    (out / "qrels").mkdir(parents=True)
    for path in source.glob("corpus.jsonl*"):
        shutil.copy(path, out / path.name)
    lines = (source / "queries.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["_id"] not in held]
    (out / "queries.jsonl").write_text("".join(kept), encoding="utf-8")
    for path in (source / "qrels").glob("*.tsv"):
        head, *rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
        labels = [row for row in rows if row.split("\t")[0] not in held]
        (out / "qrels" / path.name).write_text("".join([head, *labels]), encoding="utf-8")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", type=int, default=15)
    given = parser.parse_args()
    rows = [json.loads(line) for line in (given.collection / "queries.jsonl").open(encoding="utf-8")]
    ten = random.Random(SEED).sample(rows, QUERIES)
    given.out.mkdir(parents=True)
    without(given.collection, given.out / "collection", {row["_id"] for row in ten})
    (given.out / "ten.txt").write_text("".join(" ".join(row["text"].split()) + "\n" for row in ten), encoding="utf-8")
    settings = load_pipeline(data_dir("pipelines") / "agree.yaml").model_dump(mode="json", exclude_unset=True)
    settings["target"] = given.target
    for name, more in (("plain", {}), ("like", {"examples": "ten.txt"})):
        value = {**settings, "name": name, "generation": {**settings["generation"], **more}}
        (given.out / f"{name}.yaml").write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main()
