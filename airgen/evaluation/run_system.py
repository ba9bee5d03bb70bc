"""Make one system's run: build it, index, search, and take the time.

    made = produce(system, context)      # made.run, made.description, made.costs

A system that builds on others (`rerank`, `fuse`) is handed their finished runs as retrievers that only look up.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from airgen.errors import DatasetError
from airgen.evaluation.costs import Costs, array_bytes, described, resident_bytes, single_latencies
from airgen.evaluation.run import Run, read_run, run_from_dict, run_from_hits
from airgen.evaluation.services import checked_results, load_class, search_http, search_python
from airgen.evaluation.systems import FuseSystem, HttpSystem, PythonSystem, RerankSystem, RunSystem, SystemSettings
from airgen.keys import content_key
from airgen.registry import resolve
from airgen.retrievers import Corpus, Hits, Retriever, load_reranker, load_retriever

__all__ = ["Context", "Made", "produce"]


@dataclass(frozen=True)
class Made:
    """A finished run. `notes` counts what was odd about it."""

    run: Run
    description: Mapping[str, Any]
    costs: Costs
    notes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What a system is run on: corpus, queries {id: text}, depth, and the systems that are finished already.

    `folder` is where relative paths start; `dataset` and `split` fill in run files' paths. `indexes`, where there is
    one, holds what was indexed before, for other queries on the same corpus; a run on such an index has no index time.
    """

    corpus: Corpus
    queries: Mapping[str, str]
    top: int
    dataset: str
    split: str
    folder: Path
    finished: Mapping[str, Made]
    indexes: MutableMapping[str, Retriever] | None = None


def produce(system: SystemSettings, context: Context) -> Made:
    """Run one system. Raises what its family raises, UsageError for settings that cannot be."""
    where = f"system {system.name}"
    if system.kind == "run":
        return _from_file(system, context)
    if system.kind == "http":
        options = HttpSystem.model_validate(system.settings)
        known = set(context.corpus.ids)

        def ask(queries: Mapping[str, str]) -> tuple[dict[str, dict[str, float]], Counter[str]]:
            return search_http(options, queries, known, context.top)

        first = next(iter(context.queries), "")
        return _foreign(ask, context, system, single=lambda text: ask({first: text}))
    if system.kind == "python":
        wanted = PythonSystem.model_validate(system.settings)
        retriever = load_class(wanted.target, wanted.settings, context.folder)
        made = _foreign(
            lambda queries: search_python(retriever, queries, context.corpus, context.top, where), context, system
        )
        return replace(made, description={**made.description, "calls_itself": str(retriever)})
    if system.kind == "rerank":
        chosen = RerankSystem.model_validate(system.settings)
        if isinstance(chosen.reranker, str) and chosen.reranker.startswith("python:"):
            return _foreign_reranker(chosen, context, system)
        reranker = _ready(load_reranker(chosen.reranker), context.corpus)
        first_stage = _Lookup(chosen.first, context)
        return _searched(
            resolve("retriever", "rerank")(first_stage, reranker, top=chosen.top), context, after=[chosen.first]
        )
    if system.kind == "fuse":
        joined = FuseSystem.model_validate(system.settings)
        return _searched(_fuse(joined, context), context, after=joined.systems)
    spec = {"kind": system.kind, **_found(system.settings, context)}
    if context.indexes is None:
        return _searched(load_retriever(spec), context)
    corpus = context.corpus
    key = content_key([spec, corpus.language, list(corpus.ids), list(corpus.titles), list(corpus.texts)])
    if key in context.indexes:
        return _searched(context.indexes[key], context, indexed=True)
    made = _searched(retriever := load_retriever(spec), context)
    context.indexes[key] = retriever
    return made


def _found(settings: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Settings whose `path`, the folder of a trained model, starts at the systems file as a run's does."""
    path = settings.get("path")
    return {**settings, "path": str(context.folder / path)} if isinstance(path, str) else dict(settings)


class _Lookup:
    """A finished run as a retriever, so that a first stage is searched once however many systems build on it.

    Queries are told apart by their text: two with the same text get the first one's hits.
    """

    def __init__(self, name: str, context: Context) -> None:
        self.name = name
        made = context.finished[name]
        self._description = made.description
        places = {key: place for place, key in enumerate(context.corpus.ids)}
        self._hits: dict[str, list[tuple[int, float]]] = {}
        for query_id, hits in made.run.ranked().items():
            text = context.queries.get(query_id)
            if text is not None and text not in self._hits:
                found = [(places[key], score) for key, score in hits if key in places]
                # trec_eval's order of equal scores is by id; a retriever's is by position.
                self._hits[text] = sorted(found, key=lambda hit: (-hit[1], hit[0]))

    def index(self, corpus: Corpus) -> None:
        """Nothing to do: the run is finished."""

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The finished hits; a query that the run does not have gets none."""
        positions = np.full((len(queries), k), -1, np.int32)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        for row, text in enumerate(queries):
            found = self._hits.get(text, [])[:k]
            positions[row, : len(found)] = [place for place, _ in found]
            scores[row, : len(found)] = [score for _, score in found]
        return Hits(positions, scores)

    def describe(self) -> Mapping[str, object]:
        """What the system behind the run said of itself."""
        return {"system": self.name, **self._description}


def _ready(reranker: Any, corpus: Corpus) -> Any:
    """Some re-rankers (BM25's) need the corpus's statistics first."""
    if hasattr(reranker, "fit"):
        reranker.fit(corpus)
    return reranker


def _fuse(options: FuseSystem, context: Context) -> Retriever:
    settings = options.model_dump(exclude={"systems"})
    fused: Retriever = resolve("retriever", "fuse")([_Lookup(name, context) for name in options.systems], **settings)
    return fused


def _searched(retriever: Retriever, context: Context, after: Sequence[str] = (), indexed: bool = False) -> Made:
    """Index, unless that was done, and search, timed. `after` are the systems whose time has to be counted in."""
    ids, texts = list(context.queries), list(context.queries.values())
    memory = resident_bytes()
    start = time.perf_counter()
    if not indexed:
        retriever.index(context.corpus)
    taken = None if indexed else time.perf_counter() - start
    # One by one first: a re-ranker may keep what it encoded, and would look faster after the batch.
    single = np.array(single_latencies(lambda text: retriever.search([text], context.top), texts))
    start_batch = time.perf_counter()
    hits = retriever.search(texts, context.top)
    searched = time.perf_counter()
    grown = max(0, resident_bytes() - memory)
    before = [context.finished[name].costs for name in after]
    description = dict(retriever.describe())
    batch_ms = _sum([(searched - start_batch) * 1000 / max(1, len(texts)), *(cost.batch_ms for cost in before)])
    costs = Costs(
        index_seconds=_sum([taken, *(cost.index_seconds for cost in before)]),
        index_bytes=_sum([array_bytes(retriever) or 0, *(cost.index_bytes for cost in before)]) or None,
        latency_p50_ms=_sum([float(np.quantile(single, 0.5)), *(c.latency_p50_ms for c in before)]) if texts else None,
        latency_p95_ms=_sum([float(np.quantile(single, 0.95)), *(c.latency_p95_ms for c in before)]) if texts else None,
        latency_queries=len(single),
        batch_ms=batch_ms,
        queries_per_second=1000 / batch_ms if batch_ms else None,
        memory_bytes=grown,
        parameters=described(description, "parameters"),
        device=described(description, "device") or "cpu",
        threads=described(description, "threads"),
        includes=tuple(after),
    )
    return Made(run_from_hits(ids, context.corpus.ids, hits), description, costs)


def _sum(parts: Sequence[Any]) -> Any:
    """The sum, or None where a part is unknown."""
    return None if any(part is None for part in parts) else sum(parts)


def _from_file(system: SystemSettings, context: Context) -> Made:
    options = RunSystem.model_validate(system.settings)
    name = options.path.replace("{dataset}", context.dataset).replace("{split}", context.split)
    run = read_run(context.folder / name)
    known = set(context.corpus.ids)
    notes = dict(run.notes)
    # Left in: trec_eval counts them as hits that are not relevant, and leaving them out would flatter the run.
    notes["unknown_passages"] = sum(key not in known for key in run.passage_ids)
    notes["unknown_queries"] = sum(key not in context.queries for key in run.query_ids)
    if notes["unknown_passages"] == len(run.passage_ids):
        raise DatasetError(
            f"{name}: none of its passages is in the dataset {context.dataset}; is it another one's run?"
        )
    return Made(run, {"family": "run file", "file": Path(name).name}, Costs(), {k: v for k, v in notes.items() if v})


def _foreign(ask: Any, context: Context, system: SystemSettings, single: Any = None) -> Made:
    start = time.perf_counter()
    results, notes = ask(context.queries)
    batch_ms = (time.perf_counter() - start) * 1000 / max(1, len(context.queries))
    texts = [text for text in context.queries.values() if text.strip()]
    taken = np.array(single_latencies(single, texts, most=20)) if single is not None else np.zeros(0)
    costs = Costs(
        latency_p50_ms=float(np.quantile(taken, 0.5)) if len(taken) else None,
        latency_p95_ms=float(np.quantile(taken, 0.95)) if len(taken) else None,
        latency_queries=len(taken),
        batch_ms=batch_ms,
        queries_per_second=1000 / batch_ms if batch_ms else None,
    )
    return Made(run_from_dict(results), {"family": system.kind, **system.settings}, costs, dict(notes))


def _foreign_reranker(options: RerankSystem, context: Context, system: SystemSettings) -> Made:
    """air-benchmark's Reranker: called with the first stage's top hits, the rest below in its own order."""
    target = str(options.reranker).removeprefix("python:")
    reranker = load_class(target, {}, context.folder)
    first = {key: hits for key, hits in context.finished[options.first].run.ranked().items() if key in context.queries}
    documents = {key: {"text": context.corpus.full_text(place)} for place, key in enumerate(context.corpus.ids)}
    best = {key: {p: s for p, s in hits[: options.top] if p in documents} for key, hits in first.items()}

    def ask(queries: Mapping[str, str]) -> tuple[dict[str, dict[str, float]], Counter[str]]:
        answer = reranker(corpus=documents, queries=dict(queries), search_results=best)
        results, odd = checked_results(answer, queries, documents, options.top, f"system {system.name}")
        for key, hits in first.items():
            given = results.get(key, {})
            order = sorted(given, key=lambda passage: (-given[passage], passage))
            order += [passage for passage, _ in hits if passage not in given]
            results[key] = {passage: float(-rank) for rank, passage in enumerate(order)}
        return results, odd

    return _foreign(ask, context, system)
