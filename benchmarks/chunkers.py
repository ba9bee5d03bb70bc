"""Measure which chunks retrieve the answering paragraph: `python benchmarks/chunkers.py COLLECTION`

Makes documents of five consecutive passages of a collection in BEIR format, keeps the labels (they point at characters
of the passages), and compares the chunkers of pipelines/chunkers.yaml with BM25 and LSA.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from airgen.dataset.beir import BeirDataset
from airgen.evaluation.experiment import EvaluationOptions
from airgen.evaluation.systems import SystemSettings
from airgen.settings.base import find_yaml
from airgen.studies.chunkers.chunkers import load_chunkers
from airgen.studies.chunkers.compare_chunkers import chunkers_study, compare_chunkers

TOGETHER = 5
SYSTEMS = [SystemSettings(name="bm25", kind="bm25", k1=0.9, b=0.4), SystemSettings(name="lsa", kind="lsa", dim=200)]


def joined(collection: BeirDataset, folder: Path) -> BeirDataset:
    """Write the collection as chunks of longer documents."""
    (folder / "qrels").mkdir(parents=True)
    (folder / "private").mkdir()
    corpus, parents, at = [], [], 0
    for number, passage in enumerate(collection.passages()):
        text = passage.text.strip()
        at = 0 if number % TOGETHER == 0 else at
        corpus.append({"_id": passage.id, "title": "", "text": text})
        parents.append({"_id": passage.id, "parent": f"document-{number // TOGETHER}", "start": at})
        at += len(text) + 2
    queries = [{"_id": one.id, "text": one.text} for one in collection.queries().values()]
    labels = [
        {"query-id": query, "corpus-id": passage, "score": label}
        for query, row in collection.qrels("test").labels.items()
        for passage, label in row.items()
    ]
    for name, rows in (("corpus", corpus), ("private/parents", parents), ("queries", queries), ("qrels/test", labels)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    info = {"name": collection.name, "language": "en", "tokenizer": "cl100k_base"}
    (folder / "manifest.json").write_text(json.dumps({"info": info}), encoding="utf-8")
    return BeirDataset.open(folder)


with TemporaryDirectory() as scratch:
    dataset = joined(BeirDataset.open(sys.argv[1]), Path(scratch) / "dataset")
    chunkers = load_chunkers(find_yaml("pipelines", "chunkers"))
    found = compare_chunkers(dataset, chunkers, SYSTEMS, Path(scratch), EvaluationOptions("test"))
    print(chunkers_study(found).markdown())
