"""The commands of docs/papers.md for E5's Tables 1, 2, 5, 6 and 12, at their smallest size."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import call

pytest.importorskip("sentence_transformers")

from airgen.paths import COLLECTIONS, cache_dir, data_dir
from airgen.training.task import read_card

PAPERS = data_dir("docs") / "papers.md"
SAID = (
    "airgen evaluate beir --systems systems-e5",
    "python benchmarks/e5.py --table 5 --steps 100",
    "airgen train encoder --on msmarco --on nq --on nli=1,teacher=none --base models/e5 --out models/e5-ft "
    "--set teacher=BAAI/bge-reranker-base",
    'airgen evaluate msmarco --systems systems-e5 --split dev --metrics "RR@10 Recall@1000"',
)
SMALL = "--set batch_size=8 --set max_length=16 --set chunk=4 --set max_steps=2 --set dev_passages=20"


@pytest.mark.nightly
def test_the_commands_of_e5_run(
    new_dataset: Callable[..., Path], bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAPERS.read_text("utf-8")
    assert [one for one in SAID if f"`{one}`" not in page] == []
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for place, name in enumerate(("nq", "nli")):
        new_dataset(name, seed=place)
    home = cache_dir(COLLECTIONS) / "beir"
    home.mkdir(parents=True)
    new_dataset("made", seed=3).rename(home / "msmarco")
    train = f"train encoder --on msmarco --on nq --on nli=1,teacher=none --base {bert} --out models/e5-ft {SMALL}"
    call(*shlex.split(train), "--set", "teacher={kind: bm25}")
    card = read_card(tmp_path / "models" / "e5-ft") or {}
    assert [one.get("teacher") for one in card["data"]["datasets"]] == [None, None, "none"]
    (tmp_path / "systems-e5.yaml").write_text(
        "systems: [{name: bm25, kind: bm25}, {name: e5, kind: dense, embedder: models/e5-ft}]"
    )
    assert "| msmarco (in-domain) |" in call(*shlex.split("evaluate beir --systems systems-e5 --out results"))
    words = 'evaluate msmarco --systems systems-e5 --split dev --metrics "RR@10 Recall@1000" --out results'
    call(*shlex.split(words))
    assert "RR@10" in Path("results/msmarco/dev/report.md").read_text("utf-8")
    script = data_dir("docs").parent / "benchmarks" / "e5.py"
    words = f"--table 5 --steps 2 --sizes 8 4 --pairs nq --on nli --base {bert} --work e5 --set max_length=16"
    ran = subprocess.run([sys.executable, script, *shlex.split(words)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "| batch 8, 2 steps |" in ran.stdout and "| batch 4, 2 steps |" in ran.stdout
