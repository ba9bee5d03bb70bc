"""Encoding, re-ranking and recall give the same bytes here and on workers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from little_dataset import dataset as dataset

from airgen.compute import Here, computing, current
from airgen.compute.pool import Processes
from airgen.evaluation import EvaluationOptions, evaluate, load_systems
from airgen.retrievers import load_embedder, load_reranker, load_retriever
from airgen.retrievers.base import Corpus
from airgen.retrievers.dense.exact_search import Dense
from airgen.retrievers.encodings import scored, travels
from airgen.retrievers.lexical.bm25 import BM25Reranker
from airgen.settings.compute import ComputeSettings

WORDS = ["bees", "visit", "clover", "the", "river", "froze", "old", "bridges", "of", "stone", "and", "weather"]
TEXTS = [
    f"{place} " + " ".join(WORDS[(place * step) % len(WORDS)] for step in range(3 + place % 9)) for place in range(400)
]
CORPUS = Corpus([str(place) for place in range(len(TEXTS))], TEXTS)
QUERIES = ["when did the river freeze", "bees on clover", "stone bridges"]
PAIRS = [(query, text) for query in QUERIES for text in TEXTS[:70]]

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    with computing(ComputeSettings(workers=2)) as compute:
        assert isinstance(compute, Processes) and current() is compute
        yield compute
    assert isinstance(current(), Here)


def batches_of(compute: Processes, work: Callable[[], Any]) -> tuple[Any, int]:
    """What `work` gives on the workers, and how many batches went there."""
    from airgen.compute import _CURRENT

    before = compute.describe()["batches"]
    token = _CURRENT.set(compute)
    try:
        return work(), compute.describe()["batches"] - before
    finally:
        _CURRENT.reset(token)


def hits(spec: Any) -> bytes:
    system = load_retriever(spec)
    system.index(CORPUS)
    found = system.search(QUERIES, 50)
    return found.positions.tobytes() + found.scores.tobytes()


@pytest.mark.parametrize(
    ("spec", "batches"),
    [
        ({"kind": "dense"}, 2),
        ({"kind": "sparse"}, 7),
        ({"kind": "late"}, 7),
        ({"kind": "rerank", "first": "bm25", "reranker": "maxsim", "top": 20}, 1),
        ("bm25", 0),
    ],
    ids=str,
)
def test_retrievers(spec: Any, batches: int, two: Processes) -> None:
    found, sent = batches_of(two, lambda: hits(spec))
    assert found == hits(spec)
    assert sent >= batches if batches else not sent


@pytest.mark.parametrize("spec", ["maxsim", "dense", "splade"])
def test_rerankers(spec: str, two: Processes) -> None:
    found, sent = batches_of(two, lambda: load_reranker(spec).score(PAIRS).tobytes())
    assert sent and found == load_reranker(spec).score(PAIRS).tobytes()


def test_the_cache_has_the_same_bytes(two: Processes, tmp_path: Path) -> None:
    def rows(name: str) -> str:
        Dense(load_embedder({"kind": "onnx", "max_length": 32}), cache=tmp_path / name).index(Corpus(TEXTS, TEXTS))
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.suffix in (".bin", ".json"))
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    found, sent = batches_of(two, lambda: rows("there"))
    assert sent == 2 and found == rows("here")


def test_what_is_not_made_of_settings_stays_here(two: Processes) -> None:
    class Mine:
        name = "mine"

        def score(self, pairs: Any) -> Any:
            return np.zeros(len(pairs), np.float32)

        def describe(self) -> Any:
            return {}

    assert not travels(Mine())
    assert not travels(BM25Reranker())  # what it has seen of a corpus is no setting
    found, sent = batches_of(two, lambda: list(scored(Mine(), [PAIRS, PAIRS])))
    assert len(found) == 2 and not sent


SYSTEMS = """
systems:
  - {name: bm25, kind: bm25}
  - {name: rm3, kind: rm3}
  - {name: minilm, kind: dense}
  - {name: hybrid, kind: fuse, systems: [bm25, minilm]}
"""


def test_runs_and_scores_of_systems(two: Processes, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "systems.yaml").write_text(SYSTEMS)
    systems = load_systems(tmp_path / "systems.yaml")
    said: list[str] = []

    def results(out: str) -> dict[str, bytes]:
        evaluate(dataset, systems, tmp_path / out, EvaluationOptions(report=False), started=said.append)
        return {path.name: path.read_bytes() for path in (tmp_path / out).rglob("*") if path.suffix in (".run", ".gz")}

    found, sent = batches_of(two, lambda: results("there"))
    assert sent == 2 + 1 and len(said) == len(set(said)) == len(systems)
    assert found == results("here") and len(found) >= len(systems)
    said.clear()
    assert batches_of(two, lambda: results("there")) == (found, 0) and not said


def test_a_system_that_fails_on_a_worker_fails_as_it_does_here(two: Processes, dataset: Path, tmp_path: Path) -> None:
    (dataset / "corpus.jsonl").write_text('{"_id": "a", "title": "", "text": ""}\n')
    (tmp_path / "systems.yaml").write_text(SYSTEMS.partition("  - {name: minilm")[0])
    lost: list[str] = []

    def run(out: str) -> None:
        evaluate(
            dataset, load_systems(tmp_path / "systems.yaml"), tmp_path / out, EvaluationOptions(report=False),
            failed=lambda name, error: lost.append(f"{name}: {error}"),
        )  # fmt: skip

    batches_of(two, lambda: run("there"))
    there = list(lost)
    lost.clear()
    run("here")
    assert there == lost
