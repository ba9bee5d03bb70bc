"""`airgen evaluate compare --baseline`: the exit code goes by the interval of the difference, not by the mean."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import call

from airgen.errors import UsageError
from airgen.evaluation.significance import against_baseline


def verdict(differences: np.ndarray, margin: float = 0.0) -> str:
    return against_baseline(
        "new", 0.5 + differences, np.full(len(differences), 0.5), measure="x", margin=margin
    ).verdict


def test_verdicts() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 400)
    noise -= noise.mean()  # the interval is +-.0098
    assert verdict(noise - 0.05) == "worse"
    assert verdict(noise - 0.05, margin=0.02) == "worse"
    assert verdict(noise - 0.05, margin=0.1) == "not worse"
    assert verdict(noise - 0.005) == "unsure"  # the mean is lower, the interval holds 0
    assert verdict(noise - 0.005, margin=0.01) == "unsure"
    assert verdict(noise - 0.005, margin=0.02) == "not worse"
    assert verdict(noise + 0.05) == "better"
    assert verdict(np.zeros(5)) == "not worse"
    with pytest.raises(UsageError, match="margin"):
        verdict(noise, margin=-1)
    with pytest.raises(UsageError, match="queries"):
        against_baseline("new", noise, noise[:3], measure="x")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    queries = [f"q{number}" for number in range(40)]
    (tmp_path / "qrels.tsv").write_text("".join(f"{query}\tgood\t1\n" for query in queries))

    def run(name: str, bad: set[str]) -> None:
        lines = (
            f"{query} Q0 {document} {rank} {10 - rank} x\n"
            for query in queries
            for rank, document in enumerate(("other", "good") if query in bad else ("good", "other"), 1)
        )
        (tmp_path / name).write_text("".join(lines))

    run("main.run", set())
    run("same.run", set())
    run("slightly.run", set(queries[:2]))
    run("broken.run", set(queries[:20]))
    return tmp_path


def test_the_exit_code(files: Path) -> None:
    def gate(name: str, *more: str, code: int) -> str:
        words = ("evaluate", "compare", files / name, "--baseline", files / "main.run", "--qrels", files / "qrels.tsv")
        return call(*words, "--metrics", "RR", *more, code=code)

    assert "worse" in gate("broken.run", "--fail-if-worse", code=1)
    assert "worse" in gate("broken.run", code=0)  # only who asks for it fails
    assert "unsure" in gate("slightly.run", "--fail-if-worse", code=0)
    gate("slightly.run", "--fail-if-unsure", code=1)
    assert "not worse" in gate("slightly.run", "--fail-if-unsure", "--margin", "0.2", code=0)
    assert "not worse" in gate("same.run", "--fail-if-unsure", code=0)
    value = json.loads(gate("broken.run", "--json", "--fail-if-worse", code=1))
    (found,) = value["runs"]
    assert found["difference"] == pytest.approx(-0.25) and found["high"] < 0 and value["queries"] == 40
    with pytest.raises(UsageError, match="need --baseline"):
        runs = (files / "same.run", files / "main.run")
        call("evaluate", "compare", *runs, "--qrels", files / "qrels.tsv", "--fail-if-worse")


def test_many_measures_share_the_error(files: Path) -> None:
    words = ("evaluate", "compare", files / "broken.run", "--baseline", files / "main.run", "--qrels",
             files / "qrels.tsv", "--json")  # fmt: skip
    one, many = (json.loads(call(*words, "--metrics", text))["runs"] for text in ("RR", "RR P@1 nDCG@10 AP"))
    assert len(many) == 4
    assert many[0]["high"] - many[0]["low"] > one[0]["high"] - one[0]["low"]
