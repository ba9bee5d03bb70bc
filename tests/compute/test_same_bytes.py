"""Encoding, re-ranking, recall, exact search by shards and whole jobs give the same bytes here and on workers."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import job_maker
import numpy as np
import pytest
from compute_work import HashEmbedder
from encode_once import Kept
from little_dataset import dataset as dataset
from rich.console import Console

from airgen import models
from airgen.compute import Compute, computing, current
from airgen.compute.processes import Processes
from airgen.evaluation import EvaluationOptions, evaluate, load_systems
from airgen.job import Job
from airgen.job.run_job import run_pipeline
from airgen.job.show import read_report, status_study
from airgen.retrievers import load_reranker, load_retriever
from airgen.retrievers.dense import exact_search
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.encoding_cache import scored, travels
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical.bm25 import BM25Reranker
from airgen.retrievers.passages import Passages
from airgen.settings.compute import ComputeSettings
from airgen.storage.records import Prelabel, Recall

WORDS = ["bees", "visit", "clover", "the", "river", "froze", "old", "bridges", "of", "stone", "and", "weather"]
TEXTS = [
    f"{place} " + " ".join(WORDS[(place * step) % len(WORDS)] for step in range(3 + place % 9)) for place in range(400)
]
CORPUS = Passages([str(place) for place in range(len(TEXTS))], TEXTS)
QUERIES = ["when did the river freeze", "bees on clover", "stone bridges"]
PAIRS = [(query, text) for query in QUERIES for text in TEXTS[:70]]

pytestmark = pytest.mark.models
LATER = pytest.mark.nightly


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    with computing(ComputeSettings(workers=2)) as compute:
        assert isinstance(compute, Processes) and current() is compute
        yield compute
    assert type(current()) is Compute


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
        pytest.param({"kind": "sparse"}, 7, marks=LATER),
        pytest.param({"kind": "late"}, 7, marks=LATER),
        ({"kind": "rerank", "first": "bm25", "reranker": "maxsim", "top": 20}, 1),
        ("bm25", 0),
    ],
    ids=str,
)
def test_retrievers(spec: Any, batches: int, two: Processes) -> None:
    found, sent = batches_of(two, lambda: hits(spec))
    assert found == hits(spec)
    assert sent >= batches if batches else not sent


@pytest.mark.parametrize("spec", ["dense", pytest.param("maxsim", marks=LATER), pytest.param("splade", marks=LATER)])
def test_rerankers(spec: str, two: Processes) -> None:
    found, sent = batches_of(two, lambda: load_reranker(spec).score(PAIRS).tobytes())
    assert sent and found == load_reranker(spec).score(PAIRS).tobytes()


def test_the_cache_has_the_same_bytes(two: Processes, tmp_path: Path) -> None:
    def rows(name: str) -> str:
        Dense(HashEmbedder(), cache=tmp_path / name).index(Passages(TEXTS, TEXTS))
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


# -- exact search by shards -------------------------------------------------------------------------------------------


N, DIM, K = 9000, 16, 40


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows with many ties; small shards, small searches."""
    monkeypatch.setattr(exact_search, "_SHARD_ROWS", 1024)
    monkeypatch.setattr(exact_search, "_LOCAL_SCORES", 0)
    draw = np.random.default_rng(1)
    rows = draw.integers(-2, 3, (N, DIM)).astype(np.float32)
    rows[5000:] = draw.standard_normal((N - 5000, DIM))
    rows.tofile(tmp_path / "rows.f32")
    return tmp_path / "rows.f32"


def same(found: Hits, wanted: Hits) -> bool:
    return found.positions.tobytes() == wanted.positions.tobytes() and found.scores.tobytes() == wanted.scores.tobytes()


@pytest.mark.parametrize("order", ["file", "part", "mixed"])
def test_shards_give_the_bits_of_one_search(order: str, file: Path, two: Processes) -> None:
    matrix: Any = np.memmap(file, np.float32, "r", shape=(N, DIM))
    queries = np.random.default_rng(2).standard_normal((7, DIM)).astype(np.float32)
    queries[3] = np.round(queries[3])
    first = 300 if order == "part" else 0
    rows = np.random.default_rng(3).permutation(N)[:7000] if order == "mixed" else None
    part = matrix[first : first + 6000] if order == "part" else matrix
    found, sent = batches_of(two, lambda: exact_search.search_shards(file, part, queries, K, first=first, rows=rows))
    assert sent >= 2
    assert same(found, exact_search.search(part, queries, K, rows=rows))


def test_a_worker_without_the_file_leaves_its_shard_to_the_driver(file: Path, two: Processes, tmp_path: Path) -> None:
    matrix: Any = np.memmap(file, np.float32, "r", shape=(N, DIM))
    queries = np.ones((3, DIM), np.float32)
    wanted = exact_search.search(matrix, queries, K)
    with_workers = lambda path: batches_of(two, lambda: exact_search.search_shards(path, matrix, queries, K))[0]  # noqa: E731
    assert same(with_workers(tmp_path / "none.f32"), wanted)
    (tmp_path / "other.f32").write_bytes(bytes(N * DIM * 4))
    assert same(with_workers(tmp_path / "other.f32"), wanted)


def test_fewer_rows_than_hits(file: Path, two: Processes) -> None:
    matrix: Any = np.memmap(file, np.float32, "r", shape=(N, DIM))[:1500]
    queries = np.ones((2, DIM), np.float32)
    found, _ = batches_of(two, lambda: exact_search.search_shards(file, matrix, queries, 2000))
    assert same(found, exact_search.search(matrix, queries, 2000)) and (found.positions[:, 1500:] == -1).all()


def test_ties_are_merged_in_the_order_of_position() -> None:
    one = Hits(np.array([[4, 1, -1]], np.int32), np.array([[2, 1, -np.inf]], np.float32))
    two = Hits(np.array([[7, 9]], np.int32), np.array([[2, 1]], np.float32))
    found = exact_search.merged(one, two)
    assert found.positions.tolist() == [[4, 7, 1]] and found.scores.tolist() == [[2.0, 2.0, 1.0]]


# -- a whole job ------------------------------------------------------------------------------------------------------


def test_a_job_has_the_bytes_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen fetch tests")
    job_maker.make_corpus(tmp_path / "small.jsonl", 24)
    (tmp_path / "small.yaml").write_text(job_maker.CORPUS)
    text = job_maker.PIPELINE.replace("[bm25, dense, ", "[bm25, ").replace("target: 4", "target: 2")
    path = tmp_path / "job.yaml"
    path.write_text(text + "compute: {workers: 2}\n")

    def found(name: str, compute: str | None) -> tuple[dict[str, bytes], dict[str, Any], str]:
        job = Job(path, tmp_path / name)
        run_pipeline(job, evaluate=False, console=Console(quiet=True), compute=compute)
        files = {
            place.relative_to(tmp_path / name).as_posix(): place.read_bytes()
            for folder in (job.directory / "dataset", tmp_path / name / ".embeddings")
            for place in sorted(folder.rglob("*"))
            if place.is_file() and place.name not in ("manifest.json", "lock")
        }
        with job.open_store(read_only=True) as store:
            rows = {kind.__name__: store.rows(kind, order="key") for kind in (Recall, Prelabel)}
        assert job.finished()
        digests = {name: hashlib.sha256(data).digest() for name, data in files.items()}
        return digests, rows, status_study(read_report(job)).text()

    there = found("there", None)
    monkeypatch.setattr(Kept, "on", True)  # here each model is loaded once
    here = found("here", "local")
    assert there[1] == here[1] and there[1]["Prelabel"]
    assert there[0] == here[0] and any(name.startswith(".embeddings") for name in there[0])
    assert "compute local: 2 workers, " in there[2] and "compute local" not in here[2]
