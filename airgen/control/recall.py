"""Recall, the embedding model's top k for every query, and pre-labels, every re-ranker's scores of it (paper 2.4).

Other retrievers and the user's own systems (search services, run files, any system of a systems YAML) join the recall:
the first `control.recall.top_k` hits of each are fused. A run file names queries by the ids of the finished dataset,
and passages by their ids there or in the corpus.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from airgen.control.set_stage import SetStage, SetWork
from airgen.errors import ModelError
from airgen.evaluation.dataset_split import IdLookup
from airgen.evaluation.run import Run
from airgen.evaluation.run_system import FinishedRun, RunContext, run_system
from airgen.evaluation.systems import load_systems
from airgen.keys import file_sha256, fingerprint, row_key
from airgen.own_code import own_code
from airgen.records import Prelabel, Recall
from airgen.retrievers import Component, load_embedder, load_reranker
from airgen.retrievers.combine import reciprocal_rank_fusion
from airgen.retrievers.component import watch
from airgen.retrievers.corpus import Corpus
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.encodings import at_once, scored
from airgen.retrievers.hits import Hits
from airgen.retrievers.protocols import CorpusReranker, Retriever, show_corpus
from airgen.sequences import batched
from airgen.settings.base import find_yaml
from airgen.settings.needs import files_of, located
from airgen.settings.spec import Spec, identity_of


def systems_identity(name: str, folder: Path | None) -> list[dict[str, Any]]:
    """All that the hits depend on: the systems' settings, and the content of the files that they name."""
    path = find_yaml("pipelines", name, folder)
    identities = []
    for system in load_systems(path):
        files = [
            file_sha256(place)
            for _, spec in system.parts()
            for _, value, _ in files_of(spec.settings)
            if (place := located(value, spec.folder)).is_file()
        ]
        identities.append(
            {
                "name": system.name,
                "kind": system.kind,
                **identity_of(system.options),
                "files": files,
                **_code(system.spec.written, system.folder),
            }
        )
    return identities


def search_systems(
    name: str, folder: Path | None, corpus: Corpus, queries: Mapping[str, str], dataset: str, top: int
) -> list[tuple[str, Hits]]:
    """(name, hits) of each system for the queries {id: text}, in their order. Raises what the systems raise."""
    path = find_yaml("pipelines", name, folder)
    done: dict[str, FinishedRun] = {}
    context = RunContext(corpus, queries, top, dataset, "all", done, IdLookup(corpus.ids), timed=False)
    systems = load_systems(path)
    for system in systems:
        done[system.name] = run_system(system, context)
    places = {id_: place for place, id_ in enumerate(corpus.ids)}
    return [(system.name, _hits(done[system.name].run, list(queries), places, top)) for system in systems]


def _hits(run: Run, queries: Sequence[str], places: Mapping[str, int], top: int) -> Hits:
    hits = Hits.none(len(queries), top)
    rows = {query: row for row, query in enumerate(queries)}
    for query, found in run.ranked().items():
        if query not in rows:
            continue
        known = [(places[id_], score) for id_, score in found if id_ in places][:top]
        hits.positions[rows[query], : len(known)] = [place for place, _ in known]
        hits.scores[rows[query], : len(known)] = np.asarray([score for _, score in known], np.float32)
    return hits


def recall_rows(hits: Hits, queries: Sequence[str], ids: Sequence[str], model: str, fingerprint: str) -> list[Recall]:
    """One row a query from a search's hits; `queries` are keys, `ids` the corpus's ids in its order."""
    rows = []
    for place, key in enumerate(queries):
        positions = hits.positions[place]
        found = int((positions >= 0).sum())
        rows.append(
            Recall(
                row_key("recall", key, fingerprint), key, fingerprint, 0, model,
                [ids[position] for position in positions[:found]],
                [round(float(score), 6) for score in hits.scores[place][:found]],
            )
        )  # fmt: skip
    return rows


def _model(work: SetWork) -> Any:
    settings = work.settings.recall
    return None if settings.pools_only else load_embedder(settings.model)


def _fingerprint(work: SetWork, model: Any) -> str:
    systems, recall = work.settings.systems, work.settings.recall.model
    return fingerprint(
        stage="recall", version=1, corpus=work.digest, model=dict(model.describe()) if model else {},
        top_k=work.settings.recall.top_k, pools=[spec.written for spec in work.settings.pools],
        systems=None if systems is None else systems_identity(systems, work.folder),
        **_code([spec.written for spec in [*([recall] if model else []), *work.settings.pools]], work.folder),
    )  # fmt: skip


def _code(spec: Any, folder: Path | None) -> dict[str, Any]:
    """The code of the user's own components, where there are some."""
    code = own_code(spec, folder)
    return {"code": code} if code else {}


def _work(work: SetWork, model: Any, fp: str, pending: Sequence[str]) -> Iterator[list[Recall]]:
    systems: list[tuple[str, Retriever]] = []
    if model is not None:
        systems.append((model.name, Dense(model, cache=work.embeddings)))
    systems += [(pool.name, pool) for pool in (spec.make() for spec in work.settings.pools)]
    depth = min(work.settings.recall.top_k, len(work.corpus.ids))
    found: list[Hits] = []
    for _, system in systems:
        watch(system, work.encoding)
        system.index(work.corpus)
        found.append(system.search([work.queries[key] for key in pending], depth))
        if isinstance(system, Component):
            system.release()  # the models of the next one need the memory
    names = [name for name, _ in systems]
    if work.settings.systems is not None:
        texts = {work.names.get(key, key): work.queries[key] for key in pending}
        own = search_systems(work.settings.systems, work.folder, work.corpus, texts, work.name, depth)
        names += [name for name, _ in own]
        found += [hits for _, hits in own]
    fused = len(found) > 1 or work.settings.pools
    hits = reciprocal_rank_fusion(found, depth * len(found)) if fused else found[0]
    yield recall_rows(hits, pending, work.corpus.ids, " + ".join(names), fp)


RECALL = SetStage("recall", Recall, "recall", _fingerprint, _work, _model)


PAIRS = 500  # (query, document) pairs scored at a time: a minute of a cross-encoder on a CPU, which a stop loses


@dataclass(frozen=True)
class Unscored:
    """Some queries' recalled documents, and what a re-ranker has to score of them: `pairs` of texts.

    Queries come together because many share documents, which some re-rankers then read only once. Scores of the same
    scorer, query and text in earlier rows are taken over, so that a corpus that grew costs its new documents only.
    """

    recalls: Sequence[Recall]
    marks: Mapping[str, int]
    known: Mapping[tuple[str, int], float]
    wanted: Sequence[tuple[str, str]]
    pairs: list[tuple[str, str]]

    @classmethod
    def of(
        cls,
        recalls: Sequence[Recall],
        queries: Mapping[str, str],
        texts: Callable[[str], str],
        scorer: str = "",
        earlier: Sequence[Prelabel] = (),
    ) -> Self:
        """`queries` are texts by key, `texts` gives a document's text, `earlier` are rows that may be used again."""
        known = {
            (row.parent, mark): score
            for row in earlier
            if row.scorer == scorer
            for mark, score in zip(row.texts, row.scores, strict=True)
        }
        marks = {id_: _mark(texts(id_)) for id_ in {id_ for recall in recalls for id_ in recall.ids}}
        wanted = [
            (recall.parent, id_) for recall in recalls for id_ in recall.ids if (recall.parent, marks[id_]) not in known
        ]
        return cls(recalls, marks, known, wanted, [(queries[query], texts(id_)) for query, id_ in wanted])

    def rows(
        self, scores: NDArray[np.float32], reranker: str, ordinal: int, fingerprint: str, scorer: str = ""
    ) -> list[Prelabel]:
        """A row a query. Raises ModelError for too few scores of the pairs, or one that is not a number."""
        if len(scores) != len(self.pairs):
            raise ModelError(f"re-ranker {reranker}: {len(scores)} scores for {len(self.pairs)} documents")
        if not np.isfinite(scores).all():
            raise ModelError(f"re-ranker {reranker}: gave a score that is not a number")
        new = zip(self.wanted, scores, strict=True)
        known = {**self.known, **{(query, self.marks[id_]): round(float(score), 6) for (query, id_), score in new}}
        rows = []
        for recall in self.recalls:
            key = row_key("prelabel", recall.parent, fingerprint, ordinal)
            marks = [self.marks[id_] for id_ in recall.ids]
            values = [known[recall.parent, mark] for mark in marks]
            row = Prelabel(key, recall.parent, fingerprint, ordinal, reranker, list(recall.ids), values, scorer, marks)
            rows.append(row)
        return rows


def _mark(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def prelabel_stages(work: SetWork) -> list[SetStage]:
    """One stage for each re-ranker of the pipeline, in their order."""
    return [_stage(place, spec) for place, spec in enumerate(work.settings.rerankers)]


def prelabels_of(work: SetWork) -> dict[str, list[Prelabel]]:
    """The re-rankers' rows by query key, in the order of the re-rankers."""
    by_stage = [work.rows(stage.name, Prelabel) for stage in prelabel_stages(work)]
    return {key: [rows[key] for rows in by_stage] for key in work.queries}


def _stage(place: int, spec: Spec) -> SetStage:
    def identity(work: SetWork, reranker: Any) -> dict[str, Any]:
        return {
            "model": dict(reranker.describe()),
            "language": work.corpus.language,
            **_code(spec.written, spec.folder),
        }

    def fingerprint_of(work: SetWork, reranker: Any) -> str:
        return fingerprint(stage="prelabel", version=2, recall=work.plan["recall"], **identity(work, reranker))

    def score(work: SetWork, reranker: Any, fp: str, pending: Sequence[str]) -> Iterator[list[Prelabel]]:
        # Weights of words belong to the whole corpus; any other score belongs to its pair.
        digest = work.digest if isinstance(reranker, CorpusReranker) else ""
        scorer = fingerprint(**identity(work, reranker), corpus=digest, scope=work.scope)
        show_corpus(reranker, work.corpus)
        watch(reranker, work.encoding)
        recalls = work.rows("recall", Recall)
        waiting: deque[Unscored] = deque()  # their pairs are being scored

        def pairs() -> Iterator[list[tuple[str, str]]]:
            for batch in batched(
                [recalls[key] for key in pending], at_once(reranker, PAIRS), lambda recall: len(recall.ids)
            ):
                keys = [recall.parent for recall in batch]
                earlier = work.store.rows(Prelabel, "t.parent IN (SELECT unnest(?)) AND t.scorer = ?", [keys, scorer])
                texts = work.full_texts({id_ for recall in batch for id_ in recall.ids}).__getitem__
                waiting.append(Unscored.of(batch, work.queries, texts, scorer, earlier))
                yield waiting[-1].pairs

        for scores in scored(reranker, pairs()):
            scores = np.zeros(0, np.float32) if scores is None else scores
            yield waiting.popleft().rows(scores, reranker.name, place, fp, scorer)

    return SetStage(
        f"prelabel:{place}", Prelabel, f"pre-label {place + 1}", fingerprint_of, score,
        model=lambda work: load_reranker(spec), note=lambda reranker: str(reranker.name),
    )  # fmt: skip
