"""Shared parts of the benchmarks of trained systems: human queries, mined pairs and saved models."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airgen.dataset.beir import BeirDataset
from airgen.evaluation import parse_measures, score
from airgen.evaluation.run import run_from_hits
from airgen.retrievers import Retriever
from airgen.training import train
from airgen.training.data import read_corpus
from airgen.training.recipe import TrainingRequest

MEASURES = parse_measures("nDCG@10 Recall@100 Success@5 Success@20")


class Collection:
    """A directory in BEIR format, the human queries of its test split, and scores of systems on them."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        dataset = BeirDataset.open(path)
        self.corpus = read_corpus(path)
        texts = dataset.queries()
        self.labels = dataset.qrels("test").labels
        self.queries = {key: texts[key].text for key in self.labels if key in texts}

    def scores(self, retriever: Retriever, only: Sequence[str] | None = None) -> np.ndarray[Any, Any]:
        """Return scores, (measures, queries), of a system that has indexed the corpus, for the queries in `only` in
        order."""
        keys = list(self.queries) if only is None else list(only)
        hits = retriever.search([self.queries[key] for key in keys], 1000)
        labels = {key: self.labels[key] for key in keys}
        return score(run_from_hits(keys, self.corpus.ids, hits), labels, MEASURES).values

    def index(self, retriever: Any) -> Any:
        """Index the corpus, and return the retriever."""
        retriever.index(self.corpus)
        return retriever

    def title(self) -> str:
        """Return a heading for the tables of this collection."""
        return f"### {self.name}: {len(self.queries)} queries, {len(self.corpus):,} passages\n"


def trained(kind: str, on: Path, base: str, out: Path, changes: Sequence[str] = (), **settings: Any) -> dict[str, Any]:
    """Return the card of a model in `out`, training it first if it is not finished."""
    request = TrainingRequest(on, base, out, changes=tuple(changes), resume=True, quiet=True, **settings)
    found = train(kind, request)
    if found.trained_now:
        looks = [(entry["step"], round(entry["nDCG@10"], 4)) for entry in found.history if "nDCG@10" in entry]
        print(f"{out.name}: {found.seconds:.0f} s, {found.stopped}, dev nDCG@10 by step {looks}", flush=True)
    card: dict[str, Any] = json.loads((out / "card.json").read_text(encoding="utf-8"))
    return card


def mined_pairs(collection: Path, work: Path) -> Path | None:
    """Return the titles and texts of a collection as pairs, or None if it has no titles."""
    out = work / "pairs" / collection.name
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "airgen", "train", "pairs", str(collection), "--out", str(out)]
        found = subprocess.run(
            [*command, "--kinds", "title,heading,question", "--json"], capture_output=True, text=True
        )
        if found.returncode:
            print(f"{collection.name}: no pairs: {found.stderr.strip()}")
            return None
        print(f"{collection.name}: pairs {found.stdout.strip()}", flush=True)
    return out
