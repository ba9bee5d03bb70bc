"""Measure whether a threshold on the best score can refuse unanswerable queries: `python benchmarks/refusal.py
COLLECTION...`

For a fifth of the queries of a collection in BEIR format, all relevant passages are removed from the corpus, as in
`generation.unanswerable`, and four systems of different kinds are run.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from airgen.dataset.beir import BeirDataset
from airgen.display.study import Table
from airgen.evaluation.experiment import EvaluationOptions, evaluate
from airgen.evaluation.result_tables import REFUSALS
from airgen.evaluation.systems import SystemSettings

SHARE = 0.2
SYSTEMS = [
    SystemSettings(name="bm25", kind="bm25", k1=0.9, b=0.4),
    SystemSettings(name="dirichlet", kind="query-likelihood", mu=1000),
    SystemSettings(name="lsa", kind="lsa", dim=200),
    SystemSettings(name="bm25+lsa", kind="fuse", systems=["bm25", "lsa"]),
]


def held_out(collection: BeirDataset, folder: Path) -> BeirDataset:
    """Copy the collection without the answers to some queries that have no answers in common."""
    labels = collection.qrels("test").labels
    answers = {query: {one for one, label in row.items() if label > 0} for query, row in labels.items()}
    used = Counter(one for found in answers.values() for one in found)
    alone = [query for query, found in answers.items() if found and all(used[one] == 1 for one in found)]
    chosen = set(alone[:: max(1, round(len(alone) / (SHARE * len(labels))))])
    gone = {one for query in chosen for one in answers[query]}
    (folder / "qrels").mkdir(parents=True)
    queries = [
        {"_id": one.id, "text": one.text, "metadata": {"split": "test", "answered": one.id not in chosen}}
        for one in collection.queries().values()
        if one.id in labels
    ]
    corpus = [{"_id": one.id, "title": one.title, "text": one.text} for one in collection.passages()]
    kept = [
        {"query-id": query, "corpus-id": one, "score": label}
        for query, row in labels.items()
        for one, label in row.items()
        if query not in chosen and one not in gone
    ]
    rows = (("corpus", [row for row in corpus if row["_id"] not in gone]), ("queries", queries), ("qrels/test", kept))
    for name, lines in rows:
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines), encoding="utf-8")
    return BeirDataset.open(folder)


for name in sys.argv[1:]:
    with TemporaryDirectory() as scratch:
        dataset = held_out(BeirDataset.open(name), Path(scratch) / Path(name).name)
        results = evaluate(dataset, SYSTEMS, Path(scratch) / "results", EvaluationOptions(top=100, report=False))
        print(f"{Path(name).name}: {results[0].refusal['queries']:.0f} queries without an answer, "
              f"{results[0].queries} with one\n\n{Table(results, REFUSALS).markdown()}")  # fmt: skip
