"""Exact search by shards on workers has the bits of one search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airgen.compute import computing
from airgen.compute.pool import Processes
from airgen.retrievers.base import Hits
from airgen.retrievers.dense import exact_search
from airgen.retrievers.dense.exact_search import merged, search, search_shards
from airgen.settings.compute import ComputeSettings

N, DIM, K = 9000, 16, 40


@pytest.fixture(scope="module")
def two() -> Iterator[Any]:
    with computing(ComputeSettings(workers=2)) as compute:
        yield compute


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows with many ties; small shards, small searches."""
    monkeypatch.setattr(exact_search, "_ROWS", 1024)
    monkeypatch.setattr(exact_search, "_SCORES", 0)
    draw = np.random.default_rng(1)
    rows = draw.integers(-2, 3, (N, DIM)).astype(np.float16)
    rows[5000:] = draw.standard_normal((N - 5000, DIM))
    rows.tofile(tmp_path / "rows.f16")
    return tmp_path / "rows.f16"


def same(found: Hits, wanted: Hits) -> bool:
    return found.positions.tobytes() == wanted.positions.tobytes() and found.scores.tobytes() == wanted.scores.tobytes()


@pytest.mark.parametrize("order", ["file", "part", "mixed"])
def test_shards_give_the_bits_of_one_search(order: str, file: Path, two: Processes) -> None:
    matrix: Any = np.memmap(file, np.float16, "r", shape=(N, DIM))
    queries = np.random.default_rng(2).standard_normal((7, DIM)).astype(np.float32)
    queries[3] = np.round(queries[3])
    first = 300 if order == "part" else 0
    rows = np.random.default_rng(3).permutation(N)[:7000] if order == "mixed" else None
    part = matrix[first : first + 6000] if order == "part" else matrix
    before = two.describe()["batches"]
    found = search_shards(file, part, queries, K, first=first, rows=rows)
    assert two.describe()["batches"] - before >= 2
    assert same(found, search(part, queries, K, rows=rows))


def test_a_worker_without_the_file_leaves_its_shard_to_the_driver(file: Path, two: Processes, tmp_path: Path) -> None:
    matrix: Any = np.memmap(file, np.float16, "r", shape=(N, DIM))
    queries = np.ones((3, DIM), np.float32)
    wanted = search(matrix, queries, K)
    assert same(search_shards(tmp_path / "none.f16", matrix, queries, K), wanted)
    (tmp_path / "other.f16").write_bytes(bytes(N * DIM * 2))
    assert same(search_shards(tmp_path / "other.f16", matrix, queries, K), wanted)


def test_fewer_rows_than_hits(file: Path, two: Processes) -> None:
    matrix: Any = np.memmap(file, np.float16, "r", shape=(N, DIM))[:1500]
    queries = np.ones((2, DIM), np.float32)
    found = search_shards(file, matrix, queries, 2000)
    assert same(found, search(matrix, queries, 2000)) and (found.positions[:, 1500:] == -1).all()


def test_ties_are_merged_in_the_order_of_position() -> None:
    one = Hits(np.array([[4, 1, -1]], np.int32), np.array([[2, 1, -np.inf]], np.float32))
    two = Hits(np.array([[7, 9]], np.int32), np.array([[2, 1]], np.float32))
    found = merged(one, two)
    assert found.positions.tolist() == [[4, 7, 1]] and found.scores.tolist() == [[2.0, 2.0, 1.0]]
