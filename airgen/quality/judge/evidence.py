"""What a judge is tried on: pairs of a human-labelled collection, with the recall and the re-rankers' scores of their
queries, made the way quality control makes them and kept in the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.evaluation.task import Task
from airgen.keys import fingerprint, row_key
from airgen.pipeline.control.table2 import prelabel_rows
from airgen.pipeline.progress import Display
from airgen.quality.judge.labelled_pairs import LabelledPair, select_pairs
from airgen.records import Prelabel, Recall
from airgen.retrievers import load_embedder, load_reranker, load_retriever
from airgen.retrievers.base import Corpus
from airgen.retrievers.dense.retriever import Dense
from airgen.settings import ControlSettings
from airgen.store import Store

__all__ = ["Evidence", "Selection", "gather"]


@dataclass(frozen=True)
class Selection:
    """How pairs are chosen. `label_from` is the least human label that counts as relevant, `ignore` are labels whose
    pairs are left out."""

    split: str = "test"
    count: int = 60
    depth: int = 10
    label_from: float = 1
    ignore: tuple[float, ...] = ()
    seed: int = 0

    @property
    def rules(self) -> dict[str, Any]:
        """For `select_pairs`."""
        return {"relevant_from": self.label_from, "ignore": self.ignore, "seed": self.seed}


@dataclass(frozen=True)
class Evidence:
    """The pairs of one collection; recall and pre-labels by query id, texts by id."""

    name: str
    pairs: list[LabelledPair]
    queries: Mapping[str, str]
    documents: Mapping[str, str]
    recalls: Mapping[str, Recall]
    prelabels: Mapping[str, list[Prelabel]]


def gather(
    store: Store, folder: Path, selection: Selection, control: ControlSettings, display: Display, embeddings: Path
) -> Evidence:
    """Recall, select and pre-label; what the store has already is not made again.

    The pool of a query is the top `depth` of BM25 and of the recall model, as far as it was recalled: quality control
    never meets anything else. Raises DatasetError where the collection
    has no relevant passage in its pools, or nothing else in them.
    """
    dataset = BeirDataset.open(folder)
    task = Task(dataset, selection.split, str(dataset.info.get("language") or "en"))
    labels, corpus = task.qrels.labels, task.corpus
    queries = {key: query.text for key, query in task.queries.items()}
    recalls, depth = _recall(store, task, queries, control, display, embeddings), selection.depth
    bm25 = load_retriever("bm25")
    bm25.index(corpus)
    hits = bm25.search(list(queries.values()), depth)
    pools = {}
    for place, key in enumerate(queries):
        both = [*recalls[key].ids[:depth], *(corpus.ids[at] for at in hits.positions[place] if at >= 0)]
        recalled = set(recalls[key].ids)
        pools[key] = [id_ for id_ in dict.fromkeys(both) if id_ in recalled]
    pairs = select_pairs(labels, pools, selection.count, **selection.rules)
    if not pairs:
        raise DatasetError(
            f"{folder}: the top {depth} of BM25 and the recall model hold no relevant passage, or nothing but: "
            "a greater --depth, another --split or another --label-from may find some"
        )
    chosen = {pair.query: recalls[pair.query] for pair in pairs}
    places = {id_: place for place, id_ in enumerate(corpus.ids)}
    prelabels = _prelabel(store, corpus, places, queries, chosen, control, display)
    documents = {pair.id: _document(corpus, places[pair.id]) for pair in pairs}
    return Evidence(dataset.name, pairs, queries, documents, chosen, prelabels)


def _document(corpus: Corpus, place: int) -> str:
    """As the judge reads it in quality control."""
    title = corpus.titles[place] if corpus.titles else ""
    return f"{title}\n\n{corpus.texts[place]}" if title else corpus.texts[place]


def _recall(
    store: Store, task: Task, queries: Mapping[str, str], control: ControlSettings, display: Display, embeddings: Path
) -> dict[str, Recall]:
    embedder: Any = load_embedder(control.recall.model)
    fp = fingerprint(
        stage="calibration recall", data=task.digest, model=dict(embedder.describe()), top_k=control.recall.top_k
    )
    known = {row.parent: row for row in store.rows(Recall, where="t.fingerprint = ?", parameters=[fp])}
    pending = [key for key in queries if key not in known]
    if pending:
        with display.stage("embeddings", len(task.corpus), note=task.dataset.name) as bar:
            dense = Dense(embedder, cache=embeddings, progress=lambda done, _: bar.advance(done - bar.done))
            dense.index(task.corpus)
        hits = dense.search([queries[key] for key in pending], min(control.recall.top_k, len(task.corpus)))
        rows = []
        for place, key in enumerate(pending):
            found = hits.positions[place][hits.positions[place] >= 0]
            scores = [round(float(score), 6) for score in hits.scores[place][: len(found)]]
            ids = [task.corpus.ids[at] for at in found]
            rows.append(Recall(row_key("recall", key, fp), key, fp, 0, embedder.name, ids, scores))
        store.put(rows)
        known.update({row.parent: row for row in rows})
    return {key: known[key] for key in queries}


def _prelabel(
    store: Store,
    corpus: Corpus,
    places: Mapping[str, int],
    queries: Mapping[str, str],
    recalls: Mapping[str, Recall],
    control: ControlSettings,
    display: Display,
) -> dict[str, list[Prelabel]]:
    found: dict[str, list[Prelabel]] = {}
    for place, model in enumerate(control.rerankers):
        reranker: Any = load_reranker(model)
        if hasattr(reranker, "fit"):
            reranker.fit(corpus)
        (recalled,) = {recall.fingerprint for recall in recalls.values()}
        fp = fingerprint(stage="calibration prelabel", recall=recalled, model=dict(reranker.describe()))
        known = {row.parent: row for row in store.rows(Prelabel, where="t.fingerprint = ?", parameters=[fp])}
        pending = [recall for key, recall in recalls.items() if key not in known]
        done = len(recalls) - len(pending)
        with display.stage(f"pre-label {place + 1}", len(recalls), done, str(reranker.name)) as bar:
            for recall in pending:
                texts = [recall], queries, lambda id_: corpus.full_text(places[id_])
                rows = prelabel_rows(reranker, *texts, place, fp)
                store.put(rows)
                known[recall.parent] = rows[0]
                bar.advance()
        for key in recalls:
            found.setdefault(key, []).append(known[key])
    return found
