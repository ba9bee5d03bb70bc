"""Pre-label recalled documents with every re-ranker's scores, whose ranks decide which pairs are judged (paper 2.4)."""

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import fingerprint, row_key
from airgen.control.query_set import QuerySet
from airgen.control.recall import code_part
from airgen.errors import ModelError
from airgen.retrievers import load_reranker
from airgen.retrievers.component import watch
from airgen.retrievers.encoding_cache import at_once, scored
from airgen.retrievers.model_setup import keep_setups
from airgen.retrievers.protocols import CorpusReranker, show_corpus
from airgen.settings import ControlSettings
from airgen.settings.spec import Spec
from airgen.steps.step import RowBatch, WholeStep
from airgen.storage.records import Prelabel, Recall
from airgen.storage.sequences import batched

PAIRS = 500  # (query, document) pairs per batch: a minute of a cross-encoder on a CPU, which a stop loses


@dataclass(frozen=True)
class Unscored:
    """Some queries' recalled documents, and the `pairs` of texts among them that a re-ranker must score.

    Queries are scored together because many share documents, which some re-rankers then read only once. Scores with the
    same scorer, query and text are reused from earlier rows, so that for a corpus that has grown, only new documents
    are scored.
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
        kept: Callable[[str, str], float | None] = lambda query, text: None,
    ) -> Self:
        """Collect the pairs to score. `queries` are texts by key, `texts` returns a document's text, `earlier` are
        reusable rows, and `kept` returns the known score of a query and a text.
        """
        known = {
            (row.parent, mark): score
            for row in earlier
            if row.scorer == scorer
            for mark, score in zip(row.texts, row.scores, strict=True)
        }
        marks = {id_: _mark(texts(id_)) for id_ in {id_ for recall in recalls for id_ in recall.ids}}
        wanted = []
        for recall in recalls:
            for id_ in recall.ids:
                if (recall.parent, marks[id_]) in known:
                    continue
                if (score := kept(queries[recall.parent], texts(id_))) is None:
                    wanted.append((recall.parent, id_))
                else:
                    known[recall.parent, marks[id_]] = round(score, 6)
        pairs = [(queries[query], texts(id_)) for query, id_ in wanted]
        return cls(recalls=recalls, marks=marks, known=known, wanted=wanted, pairs=pairs)

    @property
    def size(self) -> int:
        """How many recalled documents of queries there are, with a known score or without."""
        return sum(len(recall.ids) for recall in self.recalls)

    def rows(
        self, scores: NDArray[np.float32], reranker: str, ordinal: int, fingerprint: str, scorer: str = ""
    ) -> list[Prelabel]:
        """Return one row per query. Raises ModelError if there are too few scores or if one is not a number."""
        if len(scores) != len(self.pairs):
            raise ModelError(f"re-ranker {reranker}: {len(scores)} scores for {len(self.pairs)} documents")
        if not np.isfinite(scores).all():
            raise ModelError(f"re-ranker {reranker}: returned a score that is not a number")
        new = zip(self.wanted, scores, strict=True)
        known = {**self.known, **{(query, self.marks[id_]): round(float(score), 6) for (query, id_), score in new}}
        rows = []
        for recall in self.recalls:
            key = row_key("prelabel", recall.parent, fingerprint, ordinal)
            marks = [self.marks[id_] for id_ in recall.ids]
            values = [known[recall.parent, mark] for mark in marks]
            rows.append(
                Prelabel(
                    key=key,
                    parent=recall.parent,
                    fingerprint=fingerprint,
                    ordinal=ordinal,
                    model=reranker,
                    ids=list(recall.ids),
                    scores=values,
                    scorer=scorer,
                    texts=marks,
                )
            )
        return rows


def _mark(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def prelabel_steps(settings: ControlSettings) -> list[WholeStep]:
    """Return one step for each of the pipeline's re-rankers, in order; none if only the user's labels count."""
    return [_step(place, spec) for place, spec in enumerate(settings.voters.values())]


def prelabels_of(work: QuerySet) -> dict[str, list[Prelabel]]:
    """Return the re-rankers' rows by query key, in re-ranker order."""
    by_step = [work.rows(step.name, Prelabel) for step in prelabel_steps(work.settings)]
    return {key: [rows[key] for rows in by_step] for key in work.queries}


def _earlier(work: QuerySet, keys: Sequence[str], scorer: str) -> list[Prelabel]:
    """Return the rows of a scorer for some queries, and those for earlier queries with the same texts: with other
    settings of generation, a query has another key, but a re-ranker reads only its text."""
    by_text: dict[str, list[str]] = {}
    for key in keys:
        by_text.setdefault(work.queries[key], []).append(key)
    same_text = "SELECT key, text FROM {} WHERE text IN (SELECT unnest($1))"
    queries = " UNION ALL ".join(same_text.format(table) for table in ("query", "rewrite"))
    texts = dict(work.store.query(queries, [list(by_text)])) | {key: work.queries[key] for key in keys}
    rows = work.store.rows(Prelabel, "t.parent IN (SELECT unnest(?)) AND t.scorer = ?", [list(texts), scorer])
    return [replace(row, parent=key) for row in rows for key in by_text[texts[row.parent]]]


def _sizes(work: QuerySet) -> dict[str, int]:
    """Return how many documents were recalled for each query, without reading their ids."""
    sizes = work.store.query("SELECT parent, len(ids) FROM recall WHERE fingerprint = ?", [work.plan["recall"]])
    return dict(sizes)


def _step(place: int, spec: Spec) -> WholeStep:
    def identity(work: QuerySet, reranker: Any) -> dict[str, Any]:
        return {
            "model": dict(reranker.describe()),
            "language": work.corpus.language,
            **code_part(spec.written, spec.folder),
        }

    def parts(work: QuerySet, reranker: Any) -> dict[str, Any]:
        return {"recall": work.plan["recall"], **identity(work, reranker), **work.unread_parts}

    def pieces(work: QuerySet, keys: Collection[str]) -> int:
        sizes = _sizes(work)
        return sum(sizes[key] for key in keys if key not in work.unread)

    def score(work: QuerySet, reranker: Any) -> Iterator[RowBatch]:
        # Weights of words depend on the whole corpus; any other score depends only on its pair.
        digest = work.digest if isinstance(reranker, CorpusReranker) else ""
        scorer = fingerprint(**identity(work, reranker), corpus=digest, scope=work.scope)
        show_corpus(reranker, work.corpus)
        if unread := [key for key in work.pending if key in work.unread]:
            nothing = [replace(row, ids=[], scores=[]) for row in work.rows("recall", Recall, unread).values()]
            empty = Unscored.of(nothing, work.queries, str)
            yield RowBatch(empty.rows(np.zeros(0, np.float32), reranker.name, place, work.fingerprint, scorer), done=0)
        read_keys = [key for key in work.pending if key not in work.unread]
        sizes = _sizes(work)
        waiting: deque[Unscored] = deque()  # their pairs are being scored
        read = False

        def tell(done: int, total: int) -> None:
            """Of the first that wait, `done` of `total` pairs have a score, or of their texts a vector."""
            if waiting and total:
                work.partly(waiting[0].size * min(done, total) // total)

        watch(reranker, tell)

        def pairs() -> Iterator[list[tuple[str, str]]]:
            for keys in batched(read_keys, at_once(reranker, PAIRS), sizes.__getitem__):
                recalls = work.rows("recall", Recall, keys)
                batch = [recalls[key] for key in keys]
                earlier = _earlier(work, keys, scorer)
                texts = work.full_texts({id_ for recall in batch for id_ in recall.ids}).__getitem__
                kept = partial(work.kept.find, place)
                waiting.append(Unscored.of(batch, work.queries, texts, scorer=scorer, earlier=earlier, kept=kept))
                yield waiting[-1].pairs

        for scores in scored(reranker, pairs()):
            scores = np.zeros(0, np.float32) if scores is None else scores
            unscored = waiting.popleft()
            rows = unscored.rows(scores, reranker.name, place, work.fingerprint, scorer=scorer)
            yield RowBatch(rows, done=unscored.size)
            read = read or bool(unscored.pairs)
        if read:
            keep_setups(work.embeddings, spec, reranker)

    return WholeStep(
        f"prelabel:{place}",
        (Recall,),
        Prelabel,
        2,
        label=f"pre-label {place + 1}",
        work=score,
        parts=parts,
        model=lambda work: load_reranker(spec),
        note=lambda reranker: f"texts read by {reranker.name}",
        pieces=pieces,
    )
