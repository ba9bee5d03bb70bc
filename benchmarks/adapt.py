"""Measure whether training an encoder on airgen's queries for a corpus improves it on people's queries for that corpus.

    python benchmarks/adapt.py write WORK COLLECTION... --target 100      takes hours with a small LLM; can be resumed
    python benchmarks/adapt.py train WORK COLLECTION... --base all-minilm-l6-v2

`write` makes a benchmark from each collection's passages with `generation.candidates: 5`, without using human labels.
`train` fine-tunes the base model on it in several ways (`airgen train encoder`) and searches with the human queries.
Training pairs with the wording of a human query are left out and counted.

drafts              every usable draft with its source passage; the other passages of the batch are the negatives
mined negatives     the same, and BM25's best passages
filtered            drafts whose source is in the base's top two among all passages (`airgen train filter`)
filtered, mined     the same, with BM25's best passages
accepted            the queries that quality control accepted, with all their positives
accepted, judged    the same, with the passages that were judged not relevant, where the dataset names any

Prints nDCG@10 with 95% intervals over queries, and the difference from the base model with Fisher's p. Models are kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from trained import Collection, trained

from airgen.components.keys import text_key
from airgen.corpus.readers.files import opened
from airgen.dataset.beir import BeirDataset
from airgen.evaluation.intervals import bootstrap_interval
from airgen.evaluation.significance import fisher_test
from airgen.job import Job
from airgen.job.run_job import run_job
from airgen.retrievers import load_embedder
from airgen.retrievers.dense.retriever import Dense
from airgen.safety.escaping import markdown_table
from airgen.settings.base import find_yaml
from airgen.steps.progress import Display
from airgen.storage.records import Candidate, Character, Passage, Sample, Scenario
from airgen.studies.agree.study import agree_job
from airgen.training.mining.consistency import filter_pairs

CHANGES = (
    "query_prefix=", "passage_prefix=", "temperature=0.05", "batch_size=32", "learning_rate=2e-5", "keep=last",
    "patience=0", "max_length=128", "evaluate_every=1000000", "dev_passages=100",
)  # fmt: skip
"""MiniLM's own temperature, no prefixes, and E5's rate. Nothing was searched."""
MINED = 3  # of BM25's best passages, for each query

Pairs = dict[str, tuple[str, dict[str, int]]]
"""{query id: (text, {passage id: label})}"""


def wording(text: str) -> str:
    return " ".join(text.lower().split())


def job_of(work: Path, collection: Path, target: int | None = None) -> Job:
    """Return the job of pipelines/agree.yaml on all passages of the collection."""
    settings = yaml.safe_load(find_yaml("pipelines", Path("agree.yaml")).read_text(encoding="utf-8"))
    settings["name"] = "adapt"
    settings["llm"]["threads"] = 1
    path = work / "adapt.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return agree_job(collection, Job(path, work / "runs"), sources="any", target=target)


def drafts_of(job: Job) -> Pairs:
    """Return every usable draft, with its source as the only positive."""
    found: Pairs = {}
    with job.open_store() as store:
        chain = (Sample, Character, Scenario)
        passages = {row.key: row.id for row in store.rows(Passage)}
        parents = {row.key: row.parent for kind in chain for row in store.rows(kind)}
        for row in store.rows(Candidate):
            if not row.problem:
                key = row.parent
                while key not in passages:
                    key = parents[key]
                found[text_key(row.key)[:16]] = (" ".join(row.text.split()), {passages[key]: 1})
    return dict(sorted(found.items()))


def accepted_of(job: Job, judged: bool) -> Pairs:
    """Return the queries and labels of the job's dataset, including labels of 0 only if `judged`."""
    dataset = BeirDataset.open(job.dataset)
    texts, labels = dataset.queries(), dataset.qrels("test").labels
    return {
        key: (texts[key].text, {passage: label for passage, label in found.items() if label > 0 or judged})
        for key, found in labels.items()
    }


def write_pairs(collection: Path, out: Path, pairs: Pairs) -> int:
    """Write a BEIR folder with the collection's passages and these queries as `train`; return the number left out."""
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    (packed,) = collection.glob("corpus.jsonl*")
    with opened(packed) as source, (out / "corpus.jsonl").open("wb") as target:
        shutil.copyfileobj(source, target)  # unpacked, because the filter reads its rows in any order
    tested = {wording(query.text) for query in BeirDataset.open(collection).queries().values()}
    kept = {key: pair for key, pair in pairs.items() if wording(pair[0]) not in tested}
    rows = [json.dumps({"_id": key, "text": text}, ensure_ascii=False) + "\n" for key, (text, _) in kept.items()]
    (out / "queries.jsonl").write_text("".join(rows), encoding="utf-8")
    labels = [f"{key}\t{passage}\t{label}\n" for key, (_, of) in kept.items() for passage, label in of.items()]
    (out / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(labels), encoding="utf-8")
    return len(pairs) - len(kept)


def arms(work: Path, collection: Path, base: str) -> dict[str, tuple[Path, tuple[str, ...]]]:
    """Return {arm: (training pairs, settings)}."""
    home, job = work / collection.name, job_of(work, collection)
    judged = accepted_of(job, True)
    for name, pairs in (("drafts", drafts_of(job)), ("accepted", accepted_of(job, False)), ("judged", judged)):
        if not (home / name).exists():
            left = write_pairs(collection, home / name, pairs)
            print(f"{collection.name}: {name}: {len(pairs) - left} queries; {left} were left out", flush=True)
    if not (home / "filtered").exists():
        kept = filter_pairs(home / "drafts", home / "filtered", load_embedder(base))
        print(f"{collection.name}: the filter keeps {kept.kept} of {kept.pairs}", flush=True)
    none, mined = ("hard_negatives=0",), (f"hard_negatives={MINED}", "negatives=bm25")
    found = {
        "drafts": (home / "drafts", none),
        "mined negatives": (home / "drafts", mined),
        "filtered": (home / "filtered", none),
        "filtered, mined": (home / "filtered", mined),
        "accepted": (home / "accepted", none),
    }
    if any(label == 0 for _, labels in judged.values() for label in labels.values()):
        found["accepted, judged"] = (home / "judged", (f"hard_negatives={MINED}", "negatives=dataset"))
    return found


def scores(model: str, collection: Collection, kept: Path) -> np.ndarray[Any, Any]:
    """Return nDCG@10 for each human query."""
    if not kept.exists():
        embedder = {"kind": "sentence-transformers", "model": model, "max_length": 256}
        found = collection.scores(collection.index(Dense(load_embedder(embedder))))[0]
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.save(kept, found)
    return np.asarray(np.load(kept))


def row(label: str, queries: int | str, found: np.ndarray[Any, Any], base: np.ndarray[Any, Any] | None) -> list[str]:
    low, high = bootstrap_interval(found[None, :])[0]
    cells = [label, str(queries), f"{found.mean():.3f} [{low:.3f}, {high:.3f}]"]
    if base is None:
        return [*cells, "", ""]
    gap = found - base
    low, high = bootstrap_interval(gap[None, :])[0]
    return [*cells, f"{gap.mean():+.3f} [{low:+.3f}, {high:+.3f}]", f"{fisher_test(gap)[0]:.4f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("write", "train"))
    parser.add_argument("work", type=Path)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--target", type=int, default=100, help="accepted queries of a collection")
    parser.add_argument("--base", default="all-minilm-l6-v2")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--arms", nargs="+", help="only these")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    for path in given.collections:
        if given.step == "write":
            job = job_of(given.work, path, given.target)
            run_job(job, Display(job.directory / "status.json"))
            continue
        collection = Collection(path)
        home = given.work / path.name
        before = scores(given.base, collection, home / "scores" / "base.npy")
        rows = [row("before training", "", before, None)]
        for arm, (pairs, settings) in arms(given.work, path, given.base).items():
            if given.arms and arm not in given.arms:
                continue
            model = home / "models" / arm.replace(", ", "-").replace(" ", "-")
            trained("encoder", pairs, given.base, model, (*CHANGES, f"epochs={given.epochs}", *settings))
            after = scores(str(model), collection, home / "scores" / f"{model.name}.npy")
            queries = len(BeirDataset.open(pairs).queries())
            rows.append(row(arm, queries, after, before))
            print(rows[-1], flush=True)
        print(collection.title())
        print(markdown_table(["trained on", "queries", "nDCG@10", "less the base", "p"], rows), flush=True)


if __name__ == "__main__":
    main()
