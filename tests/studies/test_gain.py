"""Before and after on several datasets: who gained where, with paired intervals."""

import json
from pathlib import Path

import numpy as np
import pytest
from beir_folder import write_beir
from command_line import call

from airgen.errors import UsageError
from airgen.evaluation import run_from_dict, write_run
from airgen.evaluation.systems import before_and_after

QUERIES = 40
SYSTEMS = """systems:
- {name: old, kind: run, path: "{dataset}.old.run"}
- {name: new, kind: run, path: "{dataset}.new.run"}
- {name: both, kind: fuse, systems: [old, new]}
"""


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three datasets of 40 queries: `new` ranks the right passage higher on one, alike on one, lower on one."""
    random = np.random.default_rng(3)
    for name, better in (("finance", 0.7), ("law", 0.0), ("news", -0.7)):
        corpus = [{"_id": f"p{at}", "title": "", "text": f"passage number {at}"} for at in range(QUERIES)]
        queries = [
            {"_id": f"q{at}", "text": f"which one is {at}", "metadata": {"type": ("question", "claim")[at % 2]}}
            for at in range(QUERIES)
        ]
        write_beir(tmp_path / name, corpus, queries, {"test": [(f"q{at}", f"p{at}", 1) for at in range(QUERIES)]})
        runs: dict[str, dict[str, dict[str, float]]] = {"old": {}, "new": {}}
        for at in range(QUERIES):
            turned = random.random() < abs(better)  # only claims change
            first, second = (1.0, 0.5) if better > 0 else (0.5, 1.0)
            for system, score in (
                ("old", second if turned and at % 2 else 0.75),
                ("new", first if turned and at % 2 else 0.75),
            ):
                runs[system][f"q{at}"] = {f"p{at}": score, f"p{(at + 1) % QUERIES}": 0.75}
        for system, found in runs.items():
            write_run(tmp_path / f"{name}.{system}.run", run_from_dict(found), system)
    (tmp_path / "systems.yaml").write_text(SYSTEMS)
    return tmp_path


def test_who_gains_where(three: Path) -> None:
    names = ("finance", "law", "news")
    arguments = (*(three / name for name in names), "--systems", three / "systems.yaml", "--results", three / "results",
                 "--out", three / "gain")  # fmt: skip
    value = json.loads(
        call("study", "gain", *arguments, "--before", "old", "--after", "new", "--measure", "RR@10", "--json")
    )
    rows = {row["dataset"]: row for row in value["rows"]}
    assert {name: rows[name]["verdict"] for name in names} == {
        "finance": "gains", "law": "no significant difference", "news": "loses",
    }  # fmt: skip
    for row in rows.values():
        assert row["difference"] == pytest.approx(row["after"] - row["before"])
        assert row["low"] <= row["difference"] <= row["high"] and row["p"] <= row["p_holm"]
        assert row["queries"] == QUERIES and row["won"] + row["lost"] <= QUERIES // 2
    assert rows["finance"]["low"] > 0 > rows["news"]["high"]
    assert (rows["law"]["difference"], rows["law"]["won"], rows["law"]["lost"]) == (0, 0, 0)
    # Only claims changed, and the report says so.
    groups = {(group["attribute"], group["value"]): group for group in rows["finance"]["groups"]}
    assert groups["type", "question"]["difference"] == 0 < groups["type", "claim"]["low"]
    assert all(int(key[1:]) % 2 and after > before for key, _, before, after in rows["finance"]["most"])
    mean, low, high = value["means"]["RR@10"]
    assert mean == pytest.approx(np.mean([row["difference"] for row in rows.values()])) and low < mean < high
    # Against the same by hand.
    scores = json.loads(call("evaluate", "measures", three / "finance.new.run", three / "finance/qrels/test.tsv",
                             "--metrics", "RR@10", "--json"))  # fmt: skip
    assert rows["finance"]["after"] == pytest.approx(scores["means"]["RR@10"])
    assert {path.name for path in (three / "gain").iterdir()} == {"gain.md", "gain.json"}
    text = call("study", "gain", *arguments, "--before", "old", "--after", "new", "--measure", "RR@10")
    assert "mean RR@10 over 3 datasets" in text and "no significant difference" in text
    # A system that builds on the other one.
    value = json.loads(call("study", "gain", *arguments, "--before", "old", "--after", "both", "--json"))
    assert (value["before"], value["after"], len(value["rows"])) == ("old", "both", 3)


def test_what_is_compared(three: Path) -> None:
    pair, folder = before_and_after("org/base", "./out/base-tuned", None)
    assert [(one.name, one.kind, one.settings) for one in pair] == [
        ("base", "dense", {"embedder": "org/base"}), ("base-tuned", "dense", {"embedder": "./out/base-tuned"}),
    ]  # fmt: skip
    assert folder == Path.cwd()
    assert [one.name for one in before_and_after("a/model", "b/model", None)[0]] == ["a-model", "b-model"]
    with pytest.raises(UsageError, match="--before and --after are the same"):
        before_and_after("x", "x", None)
    with pytest.raises(UsageError, match=r"no system 'neu' in the file \(did you mean 'new'"):
        before_and_after("old", "neu", three / "systems.yaml")
