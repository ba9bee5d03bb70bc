"""Recall the embedding model's top k for every query (paper 2.4).

Other retrievers and the user's own systems (search services, run files, any system in a systems YAML) can join the
recall: the first `control.recall.top_k` hits of each are fused. A run file uses the query ids of the finished dataset,
and passage ids of the dataset or the corpus.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from airgen.components.keys import file_sha256, row_key
from airgen.components.user_code import own_code
from airgen.control.query_set import QuerySet
from airgen.evaluation.dataset_split import IdLookup
from airgen.evaluation.document_level import PageLookup
from airgen.evaluation.run import Run
from airgen.evaluation.run_system import FinishedRun, RunContext, run_system
from airgen.evaluation.systems import SystemSettings, stamp_of
from airgen.retrievers import Component, load_embedder
from airgen.retrievers.combine import reciprocal_rank_fusion
from airgen.retrievers.component import watch
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.hits import Hits
from airgen.retrievers.model_setup import keep_setups
from airgen.retrievers.passages import Passages
from airgen.retrievers.protocols import Retriever
from airgen.settings.spec import Spec
from airgen.steps.step import RowBatch, WholeStep
from airgen.storage.records import Query, Recall

_ROWS_AT_ONCE = 64  # queries whose ids are in memory while they are written


def systems_identity(systems: Sequence[SystemSettings], dataset: str) -> list[dict[str, Any]]:
    """Return the identities of systems, with the contents of their files."""
    identities = []
    for system in systems:
        identity = system.identity(dataset, "all", _state)
        code = {"code": identity["code"]} if identity["code"] else {}
        files = [state for *_, state in identity["files"]]
        identities.append({"name": system.name, "kind": system.kind, **identity["settings"], "files": files, **code})
    return identities


def _state(path: Path) -> Any:
    """Return the hash of a file. An index in a folder may be large: of its files, it is names, sizes and times."""
    return file_sha256(path) if path.is_file() else stamp_of(path)


def search_systems(
    systems: Sequence[SystemSettings], corpus: Passages, queries: Mapping[str, str], dataset: str, top: int
) -> list[tuple[str, Hits]]:
    """Return (name, hits) for each system, for the queries {id: text} in order. Raises the systems' errors."""
    done: dict[str, FinishedRun] = {}
    ids, pages = IdLookup(corpus.ids), cache(lambda: PageLookup(corpus, {}, {}))
    context = RunContext(corpus, queries, top, dataset, split="all", finished=done, ids=ids, pages=pages, timed=False)
    for system in systems:
        done[system.name] = run_system(system, context)
    places = {id_: place for place, id_ in enumerate(corpus.ids)}
    return [(system.name, _hits(done[system.name].run, list(queries), places, top)) for system in systems]


def _hits(run: Run, queries: Sequence[str], places: Mapping[str, int], top: int) -> Hits:
    hits = Hits.none(len(queries), top)
    rows = {query: row for row, query in enumerate(queries)}
    for query, ranking in run.ranked().items():
        if query not in rows:
            continue
        known = [(places[id_], score) for id_, score in ranking if id_ in places][:top]
        hits.positions[rows[query], : len(known)] = [place for place, _ in known]
        hits.scores[rows[query], : len(known)] = np.asarray([score for _, score in known], np.float32)
    return hits


def recall_rows(hits: Hits, queries: Sequence[str], ids: Sequence[str], model: str, fingerprint: str) -> list[Recall]:
    """Return one row per query from the hits of a search. `queries` are keys, and `ids` the corpus's ids in order."""
    rows = []
    for place, key in enumerate(queries):
        positions = hits.positions[place]
        count = int((positions >= 0).sum())
        rows.append(
            Recall(
                key=row_key("recall", key, fingerprint),
                parent=key,
                fingerprint=fingerprint,
                ordinal=0,
                model=model,
                ids=[ids[position] for position in positions[:count]],
                scores=[round(float(score), 6) for score in hits.scores[place][:count]],
            )
        )
    return rows


def _model(work: QuerySet) -> Any:
    settings = work.settings.recall
    return None if settings.pools_only else load_embedder(settings.model)


def _parts(work: QuerySet, model: Any) -> dict[str, Any]:
    systems, recall = work.systems, work.settings.recall.model
    return {
        "corpus": work.digest,
        "model": dict(model.describe()) if model else {},
        "top_k": work.settings.recall.top_k,
        "pools": [spec.written for spec in work.settings.pools],
        "systems": None if systems is None else systems_identity(systems, work.name),
        **code_part([spec.written for spec in [*([recall] if model else []), *work.settings.pools]], work.folder),
    }


def code_part(spec: Any, folder: Path | None) -> dict[str, Any]:
    """Return the identity of the code of the user's own components, if any."""
    code = own_code(spec, folder)
    return {"code": code} if code else {}


def _work(work: QuerySet, model: Any) -> Iterator[RowBatch]:
    pending = work.pending
    systems: list[tuple[str, Retriever]] = []
    specs: list[Spec | None] = []
    if model is not None:
        systems.append((model.name, Dense(model, cache=work.embeddings)))
        chosen = work.settings.recall.model
        specs.append(chosen if isinstance(chosen, Spec) else None)
    systems += [(pool.name, pool) for pool in (spec.make() for spec in work.settings.pools)]
    specs += work.settings.pools
    depth = min(work.settings.recall.top_k, len(work.corpus.ids))
    results: list[Hits] = []
    for (_, system), spec in zip(systems, specs, strict=True):
        watch(system, work.encoding)
        system.index(work.corpus)
        results.append(system.search([work.queries[key] for key in pending], depth))
        if spec is not None:
            keep_setups(work.embeddings, spec, system)
        if isinstance(system, Component):
            system.release()  # the next model needs the memory
    names = [name for name, _ in systems]
    if work.systems is not None:
        texts = {work.names.get(key, key): work.queries[key] for key in pending}
        own = search_systems(work.systems, work.corpus, texts, dataset=work.name, top=depth)
        names += [name for name, _ in own]
        results += [hits for _, hits in own]
    fused = len(results) > 1 or work.settings.pools
    hits = reciprocal_rank_fusion(results, depth * len(results)) if fused else results[0]
    model_names = " + ".join(names)
    for first in range(0, len(pending), _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
        of_part = Hits(hits.positions[part], hits.scores[part])
        yield RowBatch(recall_rows(of_part, pending[part], work.corpus.ids, model_names, fingerprint=work.fingerprint))


RECALL = WholeStep("recall", (Query,), Recall, 1, label="recall", work=_work, parts=_parts, model=_model)
