"""`airgen evaluate compare --baseline`: the exit code goes by the interval of the difference, not by the mean."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_line import call

import airgen
from airgen.errors import DatasetError, UsageError
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
    assert verdict(noise - 0.005) == "cannot tell"  # the mean is lower, the interval holds 0
    assert verdict(noise - 0.005, margin=0.01) == "cannot tell"
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

    assert "worse" in gate("broken.run", "--fail-if-worse", code=4)
    assert "worse" in gate("broken.run", code=0)  # only who asks for it fails
    assert "cannot tell" in gate("slightly.run", "--fail-if-worse", code=0)
    gate("slightly.run", "--fail-if-unsure", code=5)
    gate("broken.run", "--fail-if-unsure", code=4)
    assert "not worse" in gate("slightly.run", "--fail-if-unsure", "--margin", "0.2", code=0)
    assert "not worse" in gate("same.run", "--fail-if-unsure", code=0)
    value = json.loads(gate("broken.run", "--json", "--fail-if-worse", code=4))
    (found,) = value["runs"]
    assert found["difference"] == pytest.approx(-0.25) and found["high"] < 0 and value["queries"] == 40
    with pytest.raises(UsageError, match="need --baseline"):
        runs = (files / "same.run", files / "main.run")
        call("evaluate", "compare", *runs, "--qrels", files / "qrels.tsv", "--fail-if-worse")


def test_a_score_that_is_too_low(files: Path) -> None:
    """Of a run alone, of runs beside each other, and of one beside a baseline, which may be lower itself."""
    labels = ("--qrels", files / "qrels.tsv", "--metrics", "RR")
    low, good = files / "broken.run", files / "main.run"
    measured = ("evaluate", "measures", low, files / "qrels.tsv", "--metrics", "RR", "--fail-below")
    assert "RR 0.7500 is below the minimum of 0.8" in call(*measured, "0.8", code=4)
    call(*measured, "0.75", code=0)
    call("evaluate", "compare", low, good, *labels, "--fail-below", "0.8", code=4)
    call("evaluate", "compare", good, "--baseline", low, *labels, "--fail-below", "0.8", code=0)
    call("evaluate", "compare", low, "--baseline", good, *labels, "--fail-below", "0.8", "--fail-if-unsure", code=4)


def test_labels_of_other_passages_are_no_score(files: Path) -> None:
    (files / "other.tsv").write_text((files / "qrels.tsv").read_text().replace("good", "doc-good"))
    for words in (("measures", files / "main.run", files / "other.tsv"),
                  ("compare", files / "main.run", files / "same.run", "--qrels", files / "other.tsv")):  # fmt: skip
        with pytest.raises(DatasetError, match=r"none of its passages, such as 'good', has a label .*'doc-g"):
            call("evaluate", *words)


def test_runs_of_other_queries_are_never_compared(files: Path) -> None:
    """Two runs without a query of the labels have equal scores: 0 for each query. That is no "not worse"."""
    text = (files / "main.run").read_text()
    (files / "foreign.run").write_text(text.replace("q", "x"))
    (files / "part.run").write_text("".join(line for line in text.splitlines(True) if not line.startswith("q1")))
    (files / "nearly.run").write_text("".join(line for line in text.splitlines(True) if line[:3] != "q1 "))
    labels = ("--qrels", files / "qrels.tsv")
    for runs, words in (
        (
            ("foreign.run", "--baseline", files / "foreign2.run"),
            "foreign.run: .*no query in common .*'x0' and 'q0'",
        ),
        (
            ("main.run", "--baseline", files / "foreign.run"),
            "foreign.run: .*no query in common",
        ),
        (
            ("foreign.run", "--baseline", files / "main.run"),
            "foreign.run: .*no query in common",
        ),
        (("main.run", files / "foreign.run"), "foreign.run: .*no query in common"),
        (("part.run", "--baseline", files / "main.run"), "part.run: has 29 of the 40 queries, and lacks 'q1' .* 90%"),
    ):
        shutil.copy(files / "foreign.run", files / "foreign2.run")
        with pytest.raises(DatasetError, match=words):
            call("evaluate", "compare", files / runs[0], *runs[1:], *labels)
    said = call("evaluate", "compare", files / "nearly.run", "--baseline", files / "main.run", *labels, "--json")
    assert json.loads(said)["runs"][0]["differing"] == 1
    table = call("evaluate", "compare", files / "nearly.run", "--baseline", files / "main.run", *labels)
    assert table.split()[-5:] == ["40", "1", "1", "cannot", "tell"]  # queries, of which differ, of which are missing


def test_one_query_decides_nothing(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("q1 0 d1 1\n")
    (tmp_path / "main.run").write_text("q1 Q0 d1 1 2.0 a\n")
    (tmp_path / "new.run").write_text("q1 Q0 d2 1 2.0 b\nq1 Q0 d1 2 1.0 b\n")
    words = ("evaluate", "compare", tmp_path / "new.run", "--baseline", tmp_path / "main.run", "--qrels",
             tmp_path / "q.txt", "--fail-if-worse")  # fmt: skip
    assert "cannot tell" in call(*words, code=0)
    call(*words, "--fail-if-unsure", code=5)


@pytest.mark.nightly
def test_the_workflow_of_the_guide_runs(tmp_path: Path, files: Path) -> None:
    """Its own steps, in a repository whose base has the better run, the same one, or a broken system."""
    home, bench = tmp_path / "repository", tmp_path / "repository" / "benchmark"
    (bench / "dataset" / "qrels").mkdir(parents=True)
    labels = (files / "qrels.tsv").read_text()
    queries = [line.split("\t")[0] for line in labels.splitlines()]
    (bench / "dataset" / "qrels" / "test.tsv").write_text(labels)
    (bench / "dataset" / "queries.jsonl").write_text("".join(f'{{"_id": "{q}", "text": "x"}}\n' for q in queries))
    rows = "".join(f'{{"_id": "{one}", "text": "{one}"}}\n' for one in ("good", "other"))
    (bench / "dataset" / "corpus.jsonl").write_text(rows)
    (bench / "systems.yaml").write_text("systems: [{name: search, kind: run, path: search.run}]")
    workflow = yaml.safe_load((Path(airgen.__file__).parents[1] / "docs" / "workflows" / "search-gate.yml").read_text())
    job = workflow["jobs"]["gate"]
    script = "\n".join(["set -e", *(step["run"] for step in job["steps"] if "name" in step)])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    who = {f"GIT_{role}_{what}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**os.environ, **who, "PATH": path, **job["env"], "BASE": "base-of-it"}
    for name, code in (("broken.run", 4), ("slightly.run", 0), ("same.run", 0), ("empty.run", 1)):
        shutil.rmtree(home / ".git", ignore_errors=True)
        for left in ("results", "base"):
            shutil.rmtree(home / left, ignore_errors=True)
        (bench / "search.run").write_text((files / "main.run").read_text())
        setup = "git init -q -b main . && git add -A && git commit -qm base && git branch base-of-it"
        subprocess.run(["bash", "-c", setup], cwd=home, env=env, check=True)
        (files / "empty.run").write_text("")
        (bench / "search.run").write_text((files / name).read_text())
        done = subprocess.run(["bash", "-c", script], cwd=home, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, (name, done.stdout, done.stderr)
        assert ("::warning::too few queries" in done.stdout) == (name == "slightly.run")


def test_many_measures_share_the_error(files: Path) -> None:
    words = ("evaluate", "compare", files / "broken.run", "--baseline", files / "main.run", "--qrels",
             files / "qrels.tsv", "--json")  # fmt: skip
    one, many = (json.loads(call(*words, "--metrics", text))["runs"] for text in ("RR", "RR P@1 nDCG@10 AP"))
    assert len(many) == 4
    assert many[0]["high"] - many[0]["low"] > one[0]["high"] - one[0]["low"]
