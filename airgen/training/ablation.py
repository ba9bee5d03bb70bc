"""The ablation study of BM25 query augmentation (Table 2 of its paper), on any dataset.

    rows = ablate(TrainingRequest(Path("nq"), "distilbert-base-uncased", Path("ablation"), recipe=Path("augment-nq")))

Each row is a training with one change, in its own subfolder of OUT. A stopped command can be continued. The search uses
the queries that a fold holds out or, without a fold, the dev queries, which also determined the weights. Accuracy is
the share of queries with a relevant passage among the top 5 and 20. Latency is the median for single queries, including
encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from airgen.dataset.beir import BeirDataset
from airgen.display.study import Column, Shown, Study, Table
from airgen.errors import DatasetError
from airgen.evaluation.measures import parse_measures, score
from airgen.evaluation.result import single_latencies
from airgen.evaluation.run import run_from_hits
from airgen.retrievers.lexical.augment import Augmented
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.passages import Passages
from airgen.retrievers.protocols import Retriever
from airgen.training import train
from airgen.training.data import load_training_set
from airgen.training.recipe import TrainingRequest

SETTINGS: dict[str, tuple[str, ...]] = {
    "full setting": (),
    "without weighted L1": ("weighted_l1=false",),
    "without weight": ("weights=false",),
    "without BM25 scoring": ("scoring=bow",),
    "without BM25 scoring and weighted L1": ("scoring=bow", "weighted_l1=false"),
    "without augmentation": ("augmentation=false",),
}
"""The rows of the paper, and one more: without the added terms."""

_MEASURES = "Success@5 Success@20 nDCG@10"


@dataclass(frozen=True)
class AblationRow:
    """One system: accuracy at 5 and 20, nDCG@10, milliseconds per query, and terms added per query (None for BM25)."""

    setting: str
    accuracy_5: float
    accuracy_20: float
    ndcg_10: float
    latency_ms: float
    added: float | None


@dataclass(frozen=True)
class Ablation(Shown):
    """The rows, BM25 first, and the number and kind of queries."""

    rows: tuple[AblationRow, ...]
    queries: int
    which: str

    def study(self) -> Study:
        """Return the table and the data on which it was measured."""
        columns = [
            Column("", lambda row: row.setting, left=True),
            Column("Accuracy@5", lambda row: row.accuracy_5, ".3f"),
            Column("Accuracy@20", lambda row: row.accuracy_20, ".3f"),
            Column("nDCG@10", lambda row: row.ndcg_10, ".3f"),
            Column("ms a query", lambda row: row.latency_ms, ".2f"),
            Column("terms added", lambda row: row.added, ".1f"),
        ]
        about = f"{self.queries:,} {self.which} queries."
        return Study("Ablation of query augmentation", [Table(self.rows, columns), about])


def ablate(request: TrainingRequest, say: Callable[[str], None] = lambda line: None) -> Ablation:
    """Train every setting and search with it. Raises the errors of training, and DatasetError if there are no
    queries."""
    (first, *_) = request.datasets
    data = load_training_set(first.path, split=request.split, fold=request.fold, language=request.language)
    labels = data.held_out or data.dev.labels
    if not labels:
        raise DatasetError(f"{first.path}: no dev queries and no fold, so there is nothing to compare the settings on")
    texts = {key: query.text for key, query in BeirDataset.open(first.path).queries().items() if key in labels}
    rows = [_row("BM25", BM25(), data.corpus, texts=texts, labels=labels)]
    for setting, switches in SETTINGS.items():
        variant = replace(
            request, out=request.out / folder_of(setting), changes=(*request.changes, *switches), resume=True
        )
        say(f"{setting}: {train('augment', variant).out}")
        rows.append(_row(setting, Augmented(variant.out), data.corpus, texts=texts, labels=labels))
    return Ablation(tuple(rows), len(labels), "held-out" if data.held_out else "dev")


def folder_of(setting: str) -> Path:
    """Return the subfolder of OUT for a setting."""
    return Path(setting.replace(" ", "-").lower())


def _row(
    setting: str,
    system: Retriever,
    corpus: Passages,
    *,
    texts: Mapping[str, str],
    labels: Mapping[str, Mapping[str, float]],
) -> AblationRow:
    system.index(corpus)
    queries = list(texts.values())
    run = run_from_hits(list(texts), corpus.ids, system.search(queries, 100))
    means = score(run, {key: dict(row) for key, row in labels.items()}, parse_measures(_MEASURES)).means()
    latencies = single_latencies(lambda text: system.search([text], 100), queries)
    added = _added(system, queries) if isinstance(system, Augmented) else None
    at_5, at_20, ndcg = means.values()
    return AblationRow(
        setting,
        accuracy_5=at_5,
        accuracy_20=at_20,
        ndcg_10=ndcg,
        latency_ms=float(np.median(latencies)),
        added=added,
    )


def _added(system: Augmented, queries: Sequence[str]) -> float:
    return fmean(sum(not term.in_query for term in system.explain(query)) for query in queries)
