"""What a judge is tried on: pairs of a human-labelled collection, with the recall and the pre-labels of their queries.

Recall and pre-labels are made by the stages of quality control and kept in the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.keys import text_key
from airgen.pipeline.control.prelabels import prelabel_stages, prelabels_of
from airgen.pipeline.control.recall import RECALL
from airgen.pipeline.control.set_stage import SetWork, add_rows
from airgen.pipeline.progress import Display
from airgen.quality.judge.labelled_pairs import CalibrationPair, every_pair, select_pairs
from airgen.records import Prelabel, Recall
from airgen.retrievers import load_retriever
from airgen.settings import ControlSettings
from airgen.store import Store


@dataclass(frozen=True)
class Selection:
    """How pairs are chosen: `count` of them, or all recalled ones where it is None, as quality control meets them.

    `label_from` is the lowest human label that counts as relevant; pairs with a label in `ignore` are left out.
    `language` is that of a collection whose manifest does not say it. With `source`, a relevant passage of each query,
    drawn by the seed, is its source, like the document of a generated query. It is in no pair.
    """

    split: str = "test"
    count: int | None = 60
    depth: int = 10
    label_from: float = 1
    ignore: tuple[float, ...] = ()
    seed: int = 0
    language: str = "en"
    source: bool = False

    @property
    def rules(self) -> dict[str, Any]:
        """For `select_pairs`."""
        return {"relevant_from": self.label_from, "ignore": self.ignore, "seed": self.seed}

    def source_of(self, query: str, labels: Mapping[str, float]) -> list[str]:
        """The source of a query, by these labels of its passages; empty where none is relevant."""
        relevant = [id_ for id_, label in labels.items() if label >= self.label_from and label not in self.ignore]
        return sorted(relevant, key=lambda id_: text_key(f"source\x1f{self.seed}\x1f{query}\x1f{id_}"))[:1]


@dataclass(frozen=True)
class Evidence:
    """The pairs of one collection; recall, pre-labels and sources by query id, texts by id."""

    name: str
    pairs: list[CalibrationPair]
    queries: Mapping[str, str]
    documents: Mapping[str, str]
    recalls: Mapping[str, Recall]
    prelabels: Mapping[str, list[Prelabel]]
    sources: Mapping[str, list[str]] = field(default_factory=dict)


def gather(
    store: Store, folder: Path, selection: Selection, control: ControlSettings, display: Display, embeddings: Path
) -> Evidence:
    """Recall, select and pre-label; what the store has already is not made again.

    The pool of a query is the top `depth` of BM25 and of the recall model. A passage that was not recalled is left out,
    because quality control never judges one. Raises DatasetError if the pools hold no relevant passage, or no other.
    """
    dataset = BeirDataset.open(folder)
    language = str(dataset.info.get("language") or selection.language)
    task = DatasetSplit(dataset, selection.split, language)
    corpus, depth = task.corpus, selection.depth
    digest = task.digest if language == "en" else f"{task.digest}-{language}"  # what is kept of a language is its own
    places = {id_: place for place, id_ in enumerate(corpus.ids)}
    queries = {key: query.text for key, query in task.queries.items()}
    sources: dict[str, list[str]] = {}
    if selection.source:
        sources = {key: selection.source_of(key, task.qrels.labels.get(key, {})) for key in queries}
    work = SetWork(store, control, corpus, digest, places, queries, display, embeddings, scope=digest, sources=sources)
    work = add_rows(RECALL, work)
    recalls: dict[str, Recall] = work.rows("recall", Recall)
    pools = {key: [id_ for id_ in recalls[key].ids if id_ not in sources.get(key, ())] for key in queries}
    if selection.count is None:
        pairs = every_pair(task.qrels.labels, pools, relevant_from=selection.label_from, ignore=selection.ignore)
    else:
        bm25 = load_retriever("bm25")
        bm25.index(corpus)
        hits = bm25.search(list(queries.values()), depth)
        for place, key in enumerate(queries):
            both = [*recalls[key].ids[:depth], *(corpus.ids[at] for at in hits.positions[place] if at >= 0)]
            recalled = set(pools[key])
            pools[key] = [id_ for id_ in dict.fromkeys(both) if id_ in recalled]
        pairs = select_pairs(task.qrels.labels, pools, selection.count, **selection.rules)
    if not pairs:
        raise DatasetError(
            f"{folder}: the top {depth} of BM25 and the recall model hold no relevant passage, or only relevant ones: "
            "try a greater --depth, another --split or another --relevant-from"
        )
    chosen = {pair.query: queries[pair.query] for pair in pairs}
    work = replace(work, queries=chosen)
    for stage in prelabel_stages(work):
        work = add_rows(stage, work)
    documents = work.documents({pair.id for pair in pairs})
    kept = {key: recalls[key] for key in chosen}
    return Evidence(dataset.name, pairs, queries, documents, kept, prelabels_of(work), sources)
