"""How long local models take: what each of them reads, and one line that says it."""

from pathlib import Path

import pytest
import yaml

from airgen.corpus import prepare
from airgen.job import Job, local_model_time
from airgen.job.check_job import check_job
from airgen.job.estimate import Estimate, StageEstimate
from airgen.job.local_model_time import ENCODING, RERANKERS, SYSTEMS, LocalWork, local_work, price_and_time

CROSS, BI, OTHER = "ms-marco-minilm-l12-int8", "bge-small-en-int8", "all-minilm-l6-v2-int8"


def write(folder: Path, *, judge: str, documents: int = 40) -> Job:
    (folder / "docs").mkdir()
    for number in range(documents):
        words = " ".join(f"lamp{number} wharf{number * 3 + at} keeper{at}" for at in range(12))
        (folder / "docs" / f"{number}.txt").write_text(f"The harbour has a lamp. {words}.")
    corpus = {"name": "c", "language": "en", "domain": "d", "licence": "own", "source": "s"}
    reader = {"kind": "text", "path": "docs/*.txt"}
    cleaning = {"language": "off", "offensive_share": "off"}
    (folder / "c.yaml").write_text(yaml.safe_dump({**corpus, "reader": reader, "clean": cleaning}))
    systems = [
        {"name": "dense", "kind": "dense", "embedder": OTHER},
        {"name": "again", "kind": "rerank", "first": "dense", "reranker": CROSS, "top": 30},
    ]
    (folder / "s.yaml").write_text(yaml.safe_dump({"systems": systems}))
    value = {
        "name": "j", "task": "qa", "corpus": "c.yaml", "target": 10, "llm": {"backend": "scripted"},
        "generation": {"hard_negatives": [0, 0]},
        "control": {"recall": {"model": BI, "top_k": 20}, "pools": ["rm3"], "rerankers": [CROSS, BI, "bm25"],
                    "judge": {"kind": judge}},
        "evaluate": {"systems": "s.yaml"},
    }  # fmt: skip
    (folder / "j.yaml").write_text(yaml.safe_dump(value))
    return Job(folder / "j.yaml", folder / "runs")


@pytest.mark.parametrize(("judge", "drafts"), [("levels", 0), ("votes", 15 * 40)])
def test_what_each_model_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge: str, drafts: int) -> None:
    """A cross-encoder reads each pair, an encoder each passage once, and bm25 nothing that takes time."""
    job = write(tmp_path, judge=judge)
    monkeypatch.setattr(local_model_time, "_seconds_a_text", lambda spec, texts: (0.1, ()))
    found = {(one.what, one.model): one.texts for one in local_work(job, samples=15, queries=10)}
    assert found == {
        (ENCODING, BI): 40,  # and its votes read the same encodings
        (RERANKERS, CROSS): 10 * 35 + drafts,  # 20 hits of each of two retrievers, a quarter of them shared
        (ENCODING, OTHER): 40,
        (SYSTEMS, CROSS): 10 * 30,
    }


def test_a_check_reads_the_corpus_once_and_recognises_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = write(tmp_path, judge="votes")
    settings = yaml.safe_load((tmp_path / "c.yaml").read_text())
    settings["clean"]["names"] = "ner"
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings))
    read: list[str] = []
    monkeypatch.setattr(local_model_time, "_seconds_a_text", lambda spec, texts: (0.1, ()))
    monkeypatch.setattr(
        "airgen.job.estimate.prepare", lambda corpus, task: read.append(corpus.names) or prepare(corpus, task)
    )
    checked = check_job(Job(job.path, tmp_path / "runs"))
    assert {one.texts for one in checked.local if one.what == ENCODING} == {40}
    assert read == ["keep"]


def costs(usd: float | None, seconds: float | None) -> Estimate:
    stage = StageEstimate("query", "m", 60, 1000, 100, usd, seconds)
    return Estimate([stage], 1, [], concurrency=2)


def test_the_line() -> None:
    work = [LocalWork(RERANKERS, CROSS, 4000, 2280.0), LocalWork(ENCODING, BI, 400, 60.0)]
    assert (
        price_and_time(costs(0.15, 60.0), work)
        == "about $0.15 and 40 minutes, of which 38 for the re-rankers on this machine"
    )
    slow = [LocalWork(RERANKERS, CROSS, 4000, 18_000.0), LocalWork(ENCODING, BI, 400, 60.0)]
    assert price_and_time(costs(0.15, 3540.0), slow, load=12.4) == (
        "about $0.15 and 6.0 hours, of which 5.0 for the re-rankers on this machine, which is busy now (12 processes "
        "per core)"
    )
    assert price_and_time(costs(0.15, 60.0), work, load=1.5) == price_and_time(costs(0.15, 60.0), work)
    assert price_and_time(costs(None, None), []) == (
        "about an unknown price, plus the LLM's own time: 1 minute if a call takes 2 s (`airgen check --probe` "
        "measures it)"
    )
    away = [LocalWork(RERANKERS, "BAAI/bge-reranker-large", 4000, None)]
    line = price_and_time(costs(0.0, 30.0), away)
    assert line.startswith("about no money and less than a minute") and line.endswith("BAAI/bge-reranker-large")
