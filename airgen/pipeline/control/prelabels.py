"""Pre-labels: every re-ranker's scores of the recalled documents (paper 2.4, step 2)."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from airgen.batches import batched
from airgen.errors import ModelError
from airgen.keys import fingerprint, row_key
from airgen.pipeline.control.set_stage import SetStage, SetWork
from airgen.records import Fitted, Prelabel, Recall
from airgen.retrievers import load_reranker
from airgen.retrievers.base import CorpusReranker, show_corpus, watch
from airgen.retrievers.on_workers import scored

PAIRS = 500  # (query, document) pairs scored at a time: a minute of a cross-encoder on a CPU, which a stop loses


@dataclass(frozen=True)
class Unscored:
    """Some queries' recalled documents, and what a re-ranker has to score of them: `pairs` of texts.

    Queries come together because many share documents, which some re-rankers then read only once. Scores of the same
    scorer, query and text in earlier rows are taken over, so that a corpus that grew costs its new documents only.
    """

    recalls: Sequence[Recall]
    marks: Mapping[str, int]
    known: dict[tuple[str, int], float]
    wanted: list[tuple[str, str]]
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
        marks = {id_: text_mark(texts(id_)) for recall in recalls for id_ in recall.ids}
        wanted = [
            (recall.parent, id_) for recall in recalls for id_ in recall.ids if (recall.parent, marks[id_]) not in known
        ]
        return cls(recalls, marks, known, wanted, [(queries[query], texts(id_)) for query, id_ in wanted])

    def rows(
        self, scores: NDArray[np.float32], reranker: str, ordinal: int, fingerprint: str, scorer: str = ""
    ) -> list[Prelabel]:
        """A row a query. Raises ModelError for too few scores of the pairs, or one that is no number."""
        if len(scores) != len(self.pairs):
            raise ModelError(f"re-ranker {reranker}: {len(scores)} scores for {len(self.pairs)} documents")
        if not np.isfinite(scores).all():
            raise ModelError(f"re-ranker {reranker}: gave a score that is not a number")
        known = self.known | {
            (query, self.marks[id_]): round(float(score), 6)
            for (query, id_), score in zip(self.wanted, scores, strict=True)
        }
        rows = []
        for recall in self.recalls:
            key = row_key("prelabel", recall.parent, fingerprint, ordinal)
            here = [self.marks[id_] for id_ in recall.ids]
            values = [known[recall.parent, mark] for mark in here]
            row = Prelabel(key, recall.parent, fingerprint, ordinal, reranker, list(recall.ids), values, scorer, here)
            rows.append(row)
        return rows


def text_mark(text: str) -> int:
    """A signed 64-bit hash of a text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def prelabel_stages(work: SetWork) -> list[SetStage]:
    """One stage for each re-ranker of the pipeline, in their order."""
    return [_stage(place, spec) for place, spec in enumerate(work.settings.rerankers)]


def prelabels_of(work: SetWork) -> dict[str, list[Prelabel]]:
    """The re-rankers' rows by query key, in the order of the re-rankers."""
    by_stage = [work.rows(stage.name, Prelabel) for stage in prelabel_stages(work)]
    return {key: [rows[key] for rows in by_stage] for key in work.queries}


@dataclass(frozen=True)
class _Voter:
    """A re-ranker, and what it says of itself when it has seen the corpus; `fitted` if it has in this run."""

    reranker: Any
    about: Mapping[str, Any]
    fitted: bool = True

    @classmethod
    def of(cls, spec: Any, work: SetWork) -> Self:
        """Weights of words take a minute for a million passages, so a job that goes on reads what they told before."""
        reranker = load_reranker(spec, work.folder)
        if not isinstance(reranker, CorpusReranker):
            return cls(reranker, dict(reranker.describe()))
        fp = fingerprint(model=dict(reranker.describe()), language=work.corpus.language)
        key = row_key("fitted", work.digest, fp)
        known = work.store.rows(Fitted, "t.key = ?", [key])
        if known:
            return cls(reranker, json.loads(known[0].about), fitted=False)
        show_corpus(reranker, work.corpus)
        about = dict(reranker.describe())
        work.store.put([Fitted(key, work.digest, fp, 0, json.dumps(about))])
        return cls(reranker, about)


def _stage(place: int, spec: Any) -> SetStage:
    def fingerprint_of(work: SetWork, voter: _Voter) -> str:
        return fingerprint(stage="prelabel", version=1, recall=work.plan["recall"], model=dict(voter.about))

    def score(work: SetWork, voter: _Voter, fp: str, pending: Sequence[str]) -> Iterator[list[Prelabel]]:
        reranker = voter.reranker
        if not voter.fitted:
            show_corpus(reranker, work.corpus)
        watch(reranker, work.encoding)
        # Weights of words belong to the whole corpus; any other score belongs to its pair.
        digest = work.digest if isinstance(reranker, CorpusReranker) else ""
        scorer = fingerprint(model=dict(voter.about), corpus=digest, scope=work.scope)
        recalls = work.rows("recall", Recall)
        waiting: deque[Unscored] = deque()  # their pairs are being scored

        def pairs() -> Iterator[list[tuple[str, str]]]:
            for batch in batched([recalls[key] for key in pending], PAIRS, lambda recall: len(recall.ids)):
                keys = [recall.parent for recall in batch]
                earlier = work.store.rows(Prelabel, "t.parent IN (SELECT unnest(?)) AND t.scorer = ?", [keys, scorer])
                texts = work.full_texts({id_ for recall in batch for id_ in recall.ids}).__getitem__
                waiting.append(Unscored.of(batch, work.queries, texts, scorer, earlier))
                yield waiting[-1].pairs

        for scores in scored(reranker, pairs()):
            scores = np.zeros(0, np.float32) if scores is None else scores
            yield waiting.popleft().rows(scores, reranker.name, place, fp, scorer)

    label = f"pre-label {place + 1}"
    name = f"prelabel:{place}"
    return SetStage(
        name, Prelabel, label, fingerprint_of, score,
        model=lambda work: _Voter.of(spec, work), note=lambda voter: str(voter.reranker.name),
    )  # fmt: skip
