"""Quality control in a whole job when corpus, re-rankers or the judge misbehave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airgen.dataset.verify import verify
from airgen.errors import CorpusError, ModelError
from airgen.llms.base import Refused, Reply, Request
from airgen.llms.scripted import ScriptedBackend
from airgen.pipeline import Job, RunResult
from airgen.pipeline.progress import Display
from airgen.records import Prelabel
from airgen.retrievers.lexical.bm25 import BM25Reranker

Run = Callable[..., RunResult]


def test_an_empty_corpus_is_one_clear_line(run: Run, folder: Path) -> None:
    (folder / "small.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"empty|no passage"):
        run()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [(lambda scores: scores * np.nan, "not a number"), (lambda scores: scores[:-1], "359 scores for 360 documents")],
)
def test_a_broken_reranker_is_named_and_a_mended_one_goes_on(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Any], Any], words: str
) -> None:
    score = BM25Reranker.score
    monkeypatch.setattr(BM25Reranker, "score", lambda self, pairs: wrong(score(self, pairs)))
    with pytest.raises(ModelError, match=f"re-ranker bm25-reranker: .*{words}"):
        run()
    monkeypatch.undo()
    result = run()
    assert verify(result.directory / "dataset") == []
    # Candidates were not generated anew.
    assert result.usage.get("query", {}).get("calls", 0) == 0
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store(read_only=True) as store:
        rows = store.made(Prelabel, job.plan(store)["prelabel:0"])
    assert {row.model for row in rows} == {"bm25-reranker"} and len({row.parent for row in rows}) == 12


def test_a_job_that_goes_on_does_not_read_the_corpus_again_for_what_is_scored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, fit = list[int](), BM25Reranker.fit

    def counted(self: BM25Reranker, corpus: Any) -> BM25Reranker:
        fitted.append(len(corpus.ids))
        return fit(self, corpus)

    monkeypatch.setattr(BM25Reranker, "fit", counted)
    job = Job(folder / "job.yaml", folder / "runs")
    job.run(Display(folder / "status.json"), until="judgment")
    assert len(fitted) == 1
    result = job.run(Display(folder / "status.json"))
    assert len(fitted) == 1 and verify(result.directory / "dataset") == []


def test_a_judge_that_cannot_read_long_documents_skips_them_and_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = ScriptedBackend.send

    async def short_sighted(self: ScriptedBackend, request: Request) -> Reply:
        # A document of the second half of the corpus is too long for this judge.
        if request.stage == "judgment" and "Specimen 3" in request.messages[-1].content:
            raise Refused("context_length", "9000 tokens, the context holds 8192")
        return await send(self, request)

    monkeypatch.setattr(ScriptedBackend, "send", short_sighted)
    result = run("runs", {"concurrency: 8": "concurrency: 8"})
    assert result.manifest is not None
    (step,) = [step for step in result.manifest.funnel if step.stage == "judgment of the own document"]
    assert step.reasons.get("llm: context_length", 0) > 0
    assert sum(split.queries for split in result.manifest.statistics.splits.values()) == 12
    assert verify(result.directory / "dataset") == []
