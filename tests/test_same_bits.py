"""The same bits under two kernels of OpenBLAS, on one thread and on two; each night under all of this processor."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from job_maker import CORPUS, PIPELINE, make_corpus

from airgen import models

SCRIPT = Path(__file__).parent / "makers" / "bits.py"
SYSTEMS = """
systems:
  - {name: bm25, kind: bm25}
  - {name: minilm, kind: dense, embedder: all-minilm-l6-v2-int8}
  - {name: lsa, kind: lsa, dim: 20}
  - {name: late, kind: late}
  - {name: dense-again, kind: rerank, first: bm25, reranker: {kind: dense}, top: 20}
"""
# A kernel's processor needs these flags of Linux; Prescott has SSE3, which every one of 64 bits has.
KERNELS = {"Haswell": {"avx2", "fma"}, "Zen": {"avx2", "fma"}, "SkylakeX": {"avx512f", "avx512vl"}, "Prescott": set()}


def usable() -> list[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split()}
    return [name for name, needed in KERNELS.items() if flags and needed <= flags]


def bits(*args: str, **environment: str) -> str:
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *args], env=env, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module", params=["two", pytest.param("all", marks=pytest.mark.nightly)])
def kernels(request: pytest.FixtureRequest) -> list[str]:
    if len(found := usable()) < 2:
        pytest.skip("fewer than two kernels of OpenBLAS run on this processor")
    pytest.importorskip("numba")
    return found if request.param == "all" else [found[0], found[-1]]


def test_searches(kernels: list[str]) -> None:
    pairs = product(kernels, "12") if len(kernels) > 2 else zip(kernels, "21", strict=True)
    runs = {
        (kernel, threads): bits("searches", OPENBLAS_CORETYPE=kernel, OPENBLAS_NUM_THREADS=threads)
        for kernel, threads in pairs
    }
    runs["numpy", "no AVX"] = bits("searches", NPY_DISABLE_CPU_FEATURES="X86_V4 X86_V3")
    first = next(iter(runs.values()))
    assert len(first.splitlines()) > 15
    assert {name: found for name, found in runs.items() if found != first} == {}
    # A query alone, among some and among all, and on two shards: one line a search, and they are equal.
    by_name: dict[str, set[str]] = {}
    for line in first.splitlines():
        name, _, found = line.rpartition(" ")
        by_name.setdefault(name, set()).add(found)
    assert {name for name, found in by_name.items() if len(found) > 1} == set()


def test_a_job_and_its_evaluation(kernels: list[str], tmp_path: Path) -> None:
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen fetch tests")
    found = {}
    for place, kernel in enumerate(kernels):
        folder = tmp_path / kernel
        folder.mkdir()
        make_corpus(folder / "small.jsonl", 24)
        (folder / "small.yaml").write_text(CORPUS, encoding="utf-8")
        (folder / "systems.yaml").write_text(SYSTEMS, encoding="utf-8")
        job = PIPELINE.replace("target: 12", "target: 3") + "evaluate: {systems: systems.yaml, split: all}\n"
        (folder / "job.yaml").write_text(job, encoding="utf-8")
        threads = str(1 + place % 2)
        found[kernel] = bits("job", str(folder), OPENBLAS_CORETYPE=kernel, OPENBLAS_NUM_THREADS=threads)
    first = next(iter(found.values()))
    assert "evaluation/job/all/lsa.json" in first and "dataset/manifest.json" in first
    for kernel, lines in found.items():
        assert lines == first, kernel
