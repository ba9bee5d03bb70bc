"""Quality control over the accepted candidates: recall, pre-labels, judgments, decisions (paper 2.4)."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airgen.errors import Stopped
from airgen.keys import fingerprint, row_key
from airgen.pipeline.control.combined_judge import Combination
from airgen.pipeline.control.judge import judge_name, judge_pair
from airgen.pipeline.control.table2 import Pair, decide, pairs_to_judge, prelabel_rows, recall_rows
from airgen.pipeline.generate import Accepted, drive
from airgen.pipeline.progress import Display
from airgen.pipeline.stage import Refusal, Tools, skip
from airgen.records import Decision, Judgment, Passage, Prelabel, Recall
from airgen.retrievers import load_embedder, load_reranker, load_retriever
from airgen.retrievers.base import Corpus, Retriever
from airgen.retrievers.combine.fuse import reciprocal_rank_fusion
from airgen.retrievers.dense.retriever import Dense
from airgen.store import Store

__all__ = ["control"]

PAIRS = 4000  # (query, document) pairs scored at a time: enough to share documents, little enough to resume from


@dataclass(frozen=True)
class Pool:
    """The corpus of quality control: passages in their order, then generated negatives by id."""

    ids: list[str]
    titles: list[str]
    texts: list[str]
    places: Mapping[str, int]
    digest: str

    def full_text(self, id_: str) -> str:
        """What a re-ranker reads."""
        place = self.places[id_]
        return f"{self.titles[place]} {self.texts[place]}" if self.titles[place] else self.texts[place]

    def document(self, id_: str) -> str:
        """What the judge reads: as `Lineage.document`, so that a pair's request is the same whoever asks."""
        place = self.places[id_]
        return f"{self.titles[place]}\n\n{self.texts[place]}" if self.titles[place] else self.texts[place]


def make_pool(store: Store, accepted: Accepted) -> Pool:
    """All passages of the current corpus and the hard negatives of the accepted queries."""
    rows = {
        passage.id: (passage.title, passage.text)
        for passage in store.rows(Passage, "current_passage", order="t.ordinal")
    }
    negatives = {one.id: (one.title, one.text) for lineage in accepted.lineages for one in lineage.hard_negatives}
    rows.update(sorted(negatives.items()))
    digest = hashlib.blake2b(digest_size=16)
    for id_, (title, text) in rows.items():
        digest.update(f"{id_}\x1f{title}\x1f{text}\x1e".encode("utf-8", "surrogatepass"))
    ids = list(rows)
    titles, texts = [title for title, _ in rows.values()], [text for _, text in rows.values()]
    return Pool(ids, titles, texts, {id_: place for place, id_ in enumerate(ids)}, digest.hexdigest())


async def control(
    store: Store,
    tools: Tools,
    accepted: Accepted,
    display: Display,
    embeddings: Path,
    workers: int,
    stopping: threading.Event,
    combination: Combination | None = None,
) -> None:
    """Append recall, prelabel, judgment and decision rows for the accepted queries.

    A `combination` weighs the judge's word together with recall and pre-labels; decisions are then by its levels.
    """
    settings = tools.pipeline.control
    pool = make_pool(store, accepted)
    corpus = Corpus(pool.ids, pool.texts, pool.titles, tools.pipeline.language)
    plan = dict(store.query("SELECT stage, fingerprint FROM current_plan"))
    plan = {stage: fp for stage, fp in plan.items() if not stage.startswith("prelabel")}
    # Set-wise work is numbers without waiting: in a thread, so that Ctrl-C is heard.
    recalls = await asyncio.to_thread(_recall, store, tools, accepted, pool, corpus, display, embeddings, plan)
    prelabels = await asyncio.to_thread(
        _prelabel, store, tools, accepted, pool, corpus, recalls, display, plan, stopping
    )
    pairs = await _judge(store, tools, accepted, pool, prelabels, display, workers)
    plan["decision"] = fingerprint(
        stage="decision", version=1, relevant_from=settings.judge.relevant_from,
        plan={stage: fp for stage, fp in plan.items() if stage.startswith("prelabel") or stage == "judgment"},
        thresholds=settings.thresholds.model_dump(),
        **({"calibration": combination.fingerprint} if combination else {}),
    )  # fmt: skip
    store.register(plan)

    def weighed(row: Judgment) -> Judgment:
        if combination is None:
            return row
        found = combination.judged(row, recalls.get(row.parent), prelabels[row.parent])
        if found is row and not settings.judge.members:  # not recalled, and nobody else was asked
            return replace(row, level=0, reason="not recalled")
        return found

    _decide(store, tools, accepted, pairs, plan["decision"], weighed)


def _recall(
    store: Store,
    tools: Tools,
    accepted: Accepted,
    pool: Pool,
    corpus: Corpus,
    display: Display,
    embeddings: Path,
    plan: dict[str, str],
) -> dict[str, Recall]:
    """The embedding model's top k; with `control.pools`, joined by the top k of other retrievers."""
    settings, pools = tools.pipeline.control.recall, tools.pipeline.control.pools
    embedder = None if settings.pools_only else load_embedder(settings.model)
    model = dict(embedder.describe()) if embedder else {}
    fp = fingerprint(
        stage="recall", version=1, corpus=pool.digest, model=model, top_k=settings.top_k,
        **({"pools": pools} if pools else {}),
    )  # fmt: skip
    plan["recall"] = fp
    store.register({**plan})
    known = {row.parent: row for row in store.rows(Recall, where="t.fingerprint = ?", parameters=[fp])}
    pending = [lineage.final for lineage in accepted.lineages if lineage.final.key not in known]
    if pending:
        with display.stage("recall", len(pending), note=f"{len(pool.ids):,} passages") as bar:
            systems: list[tuple[str, Retriever]] = []
            if embedder:
                systems.append((embedder.name, Dense(embedder, cache=embeddings)))
            systems += [(one.name, one) for one in map(load_retriever, pools)]
            depth = min(settings.top_k, len(pool.ids))
            found = []
            for _, system in systems:
                system.index(corpus)
                found.append(system.search([final.text for final in pending], depth))
            hits = reciprocal_rank_fusion(found, depth * len(found)) if pools else found[0]
            name = " + ".join(name for name, _ in systems)
            rows = recall_rows(hits, [final.key for final in pending], pool.ids, name, fp)
            store.put(rows)
            known.update({row.parent: row for row in rows})
            bar.advance(len(pending))
    return known


def _prelabel(
    store: Store,
    tools: Tools,
    accepted: Accepted,
    pool: Pool,
    corpus: Corpus,
    recalls: Mapping[str, Recall],
    display: Display,
    plan: dict[str, str],
    stopping: threading.Event,
) -> dict[str, list[Prelabel]]:
    found: dict[str, list[Prelabel]] = {}
    queries = {lineage.final.key: lineage.final.text for lineage in accepted.lineages}
    for place, spec in enumerate(tools.pipeline.control.rerankers):
        reranker: Any = load_reranker(spec)
        # A re-ranker that weighs words needs the corpus before it can say what its settings are.
        if hasattr(reranker, "fit"):
            reranker.fit(corpus)
        model = dict(reranker.describe())
        fp = fingerprint(stage="prelabel", version=1, recall=plan["recall"], model=model)
        # Weights of words belong to the whole corpus; any other score belongs to its pair.
        scorer = fingerprint(model=model, corpus=pool.digest if hasattr(reranker, "fit") else "")
        plan[f"prelabel:{place}"] = fp
        store.register({**plan})
        known = {row.parent: row for row in store.rows(Prelabel, where="t.fingerprint = ?", parameters=[fp])}
        pending = [recalls[one.final.key] for one in accepted.lineages if one.final.key not in known]
        done = len(accepted.lineages) - len(pending)
        with display.stage(f"pre-label {place + 1}", len(accepted.lineages), done, str(reranker.name)) as bar:
            for batch in _batches(pending, PAIRS):
                if stopping.is_set():
                    raise Stopped("stopped by the user: run the same command to go on")
                asked = [[recall.parent for recall in batch], scorer]
                of_them = "t.parent IN (SELECT unnest(?)) AND t.scorer = ?"
                earlier = store.rows(Prelabel, where=of_them, parameters=asked)
                rows = prelabel_rows(reranker, batch, queries, pool.full_text, place, fp, scorer, earlier)
                store.put(rows)
                known.update({row.parent: row for row in rows})
                bar.advance(len(batch), str(reranker.name))
        for one in accepted.lineages:
            found.setdefault(one.final.key, []).append(known[one.final.key])
    return found


def _batches(recalls: list[Recall], pairs: int) -> Iterator[list[Recall]]:
    """Some queries at a time, with about `pairs` documents together."""
    batch: list[Recall] = []
    for recall in recalls:
        batch.append(recall)
        if sum(len(one.ids) for one in batch) >= pairs:
            yield batch
            batch = []
    if batch:
        yield batch


async def _judge(
    store: Store,
    tools: Tools,
    accepted: Accepted,
    pool: Pool,
    prelabels: Mapping[str, list[Prelabel]],
    display: Display,
    workers: int,
) -> list[Pair]:
    settings, fp = tools.pipeline.control, tools.fingerprints["judgment"]
    texts = {lineage.final.key: lineage.final.text for lineage in accepted.lineages}
    pairs: list[Pair] = []
    for lineage in accepted.lineages:
        negatives = [negative.id for negative in lineage.hard_negatives]
        key = lineage.final.key
        pairs += pairs_to_judge(key, lineage.passage.id, negatives, prelabels[key], settings.thresholds)
    # A prompt's first part decides which calls stand next to each other, so that a prefix cache serves them.
    query_first = [member.kind for member in settings.judge.members][:1] == ["levels"]
    pairs.sort(key=lambda pair: (pair.query, pair.id) if query_first else (pair.id, pair.query))
    done = {key for (key,) in store.query("SELECT key FROM judgment WHERE fingerprint = ?", [fp])}
    failed = {
        key for (key,) in store.query("SELECT parent FROM skip WHERE stage = 'judgment' AND fingerprint = ?", [fp])
    }

    def key_of(pair: Pair) -> str:
        return row_key("judgment", f"{pair.query}/{pair.id}", fp)

    pending = [pair for pair in pairs if key_of(pair) not in done and f"{pair.query}/{pair.id}" not in failed]
    with display.stage("judgments", len(pairs), len(pairs) - len(pending)) as bar:

        async def one(pair: Pair) -> None:
            found = await judge_pair(tools, texts[pair.query], pool.document(pair.id))
            if isinstance(found, Refusal):
                parent = f"{pair.query}/{pair.id}"
                await store.commit([skip("judgment", parent, tools, found.reason, found.detail)])
            else:
                key, said = key_of(pair), (found.level, found.probability, judge_name(tools.pipeline), found.reason)
                await store.commit([Judgment(key, pair.query, fp, 0, pair.id, *said)])
            bar.advance()

        await drive(pending, one, workers)
    return pairs


def _decide(
    store: Store,
    tools: Tools,
    accepted: Accepted,
    pairs: list[Pair],
    fp: str,
    weighed: Callable[[Judgment], Judgment],
) -> None:
    relevant_from = tools.pipeline.control.judge.relevant_from
    # Judgments that an earlier threshold or re-ranker asked for stay on the disk, and are not read here.
    asked = {(pair.query, pair.id) for pair in pairs}
    asked |= {(lineage.final.key, lineage.passage.id) for lineage in accepted.lineages}
    judged: dict[str, dict[str, Judgment]] = {}
    for row in store.rows(Judgment, "current_judgment"):
        if (row.parent, row.id) in asked:
            judged.setdefault(row.parent, {})[row.id] = weighed(row)
    dropped = {
        negative.id
        for lineage in accepted.lineages
        for negative in lineage.hard_negatives
        if (found := judged.get(lineage.final.key, {}).get(negative.id)) and found.level >= relevant_from
    }
    rows: list[Decision] = []
    for lineage in accepted.lineages:
        rows += decide(
            lineage.final.key, lineage.passage.id, [one.id for one in lineage.hard_negatives],
            judged.get(lineage.final.key, {}), dropped, relevant_from, fp,
        )  # fmt: skip
    store.put(rows)
