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


def bits(folder: Path, environment: dict[str, str]) -> str:
    """What `makers/bits.py` prints for a new job in this folder."""
    folder.mkdir()
    make_corpus(folder / "small.jsonl", 24)
    (folder / "small.yaml").write_text(CORPUS, encoding="utf-8")
    (folder / "systems.yaml").write_text(SYSTEMS, encoding="utf-8")
    job = PIPELINE.replace("target: 4", "target: 3") + "evaluate: {systems: systems.yaml, split: all}\n"
    (folder / "job.yaml").write_text(job, encoding="utf-8")
    call = [sys.executable, str(SCRIPT), str(folder)]
    done = subprocess.run(call, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_searches_and_a_job_with_its_evaluation(every: bool, tmp_path: Path) -> None:
    if len(kernels := usable()) < 2:
        pytest.skip("fewer than two kernels of OpenBLAS run on this processor")
    pytest.importorskip("numba")
    pairs = [*product(kernels, "12")] if every else [(kernels[0], "2"), (kernels[-1], "1")]
    machines = [{"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": threads} for kernel, threads in pairs]
    machines += [{}] if every else []
    machines[-1]["NPY_DISABLE_CPU_FEATURES"] = "X86_V4 X86_V3"  # numpy without AVX
    first, *others = (bits(tmp_path / str(number), machine) for number, machine in enumerate(machines))
    for found, machine in zip(others, machines[1:], strict=True):
        assert found == first, machine
    for name in ("evaluation/job/all/lsa.json", "dataset/manifest.json"):
        assert (name in first) == models.fetched("all-minilm-l6-v2-int8")
    # A query alone, among some and among all, and on two shards: one line a search, and they are equal.
    by_name: dict[str, set[str]] = {}
    for line in first.splitlines():
        name, _, bits_of = line.rpartition(" ")
        by_name.setdefault(name, set()).add(bits_of)
    assert len(by_name) > 15 and {name for name, found in by_name.items() if len(found) > 1} == set()
