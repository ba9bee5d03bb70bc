"""The public form has no private label, in no byte of it."""

import json
from pathlib import Path

import pytest
from command_line import call
from dataset_maker import SECRET
from report_reader import lives, read_report

from airgen.errors import UsageError
from airgen.evaluation import EvaluationOptions, evaluate
from airgen.evaluation.systems import SystemSettings
from airgen.publishing.withhold import public_part
from airgen.report.find_sources import find_sources
from airgen.report.report import make_report

SYSTEMS = [SystemSettings(name="bm25", kind="bm25")]


@pytest.fixture
def results(dataset: Path, tmp_path: Path) -> Path:
    for split in ("dev", "test"):
        evaluate(dataset, SYSTEMS, tmp_path / "results", EvaluationOptions(split))
    return tmp_path / "results"


def hidden(data: dict[str, object]) -> None:
    """No document stands beside a withheld query, and nothing tells how queries were made."""
    text = json.dumps(data)
    assert SECRET not in text and "lineage" not in text
    for life in lives(data).values():
        if life["split"] == "test":
            told = json.dumps({name: value for name, value in life.items() if name != "text"})
            assert "doc0" not in told and life["labels"] == life["ranked"] == [] and life["docs"] == {}
            assert life["positives"] is life["negatives"] is life["score"] is None


def test_private_labels_are_left_out(dataset: Path, results: Path, tmp_path: Path) -> None:
    whole = read_report(make_report([dataset, results], tmp_path / "whole"))
    assert SECRET in json.dumps(whole) and lives(whole)["q-00"]["labels"] and not whole["report"]["public"]
    data = read_report(make_report([dataset, results], tmp_path / "public", public=True))
    hidden(data)
    assert data["report"]["public"] and data["report"]["datasets"][0]["withheld"] == ["test"]
    dev = lives(data)["q-02"]
    assert dev["split"] == "dev" and dev["positives"] == 2 and dev["ranked"] and dev["scenario"] is None


def test_that_nothing_answers_a_query_is_a_private_label(dataset: Path, tmp_path: Path) -> None:
    path = dataset / "queries.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for row in rows:
        row["metadata"]["answered"] = row["_id"] not in ("q-00", "q-02")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    every = lives(read_report(make_report([dataset], tmp_path / "whole")))
    assert [every[key]["attributes"]["answered"] for key in ("q-00", "q-01", "q-02")] == ["no", "yes", "no"]
    public = lives(read_report(make_report([dataset], tmp_path / "public", public=True)))
    assert public["q-02"]["attributes"]["answered"] == "no"  # dev
    assert not any("answered" in life["attributes"] for life in public.values() if life["split"] == "test")


def test_other_splits_can_be_private(dataset: Path, results: Path, tmp_path: Path) -> None:
    data = read_report(make_report([dataset, results], tmp_path / "p", public=True, private=["dev"]))
    every = lives(data)
    assert every["q-00"]["labels"] and not every["q-02"]["labels"] and not every["q-02"]["ranked"]
    with pytest.raises(UsageError, match="no split 'tset'"):
        make_report([dataset], tmp_path / "p", public=True, private=["tset"])


def test_the_public_part_of_a_dataset_needs_no_option(dataset: Path, tmp_path: Path) -> None:
    part = tmp_path / "part" / "weather-notes"
    public_part(dataset, part, ["test"])
    hidden(read_report(make_report([part], tmp_path / "report")))


def test_a_part_of_a_public_report_cannot_read_what_is_private(dataset: Path, results: Path) -> None:
    """Whoever asks the source gets no labels, no hits and no scores by query."""
    (source,), _ = find_sources([dataset, results], public=True)
    (result,) = source.results["test"]
    assert source.job is None and source.labels("test") == source.rankings("test") == {}
    assert not result.paths.run.exists() and not result.paths.scores.exists()
    assert (result.worst, result.groups) == ({}, ()) and result.means  # only the mean is shown
    assert source.labels("dev") and source.rankings("dev")["bm25"]


@pytest.mark.parametrize("layout", ["airgen", "air-bench"])
def test_publish_writes_the_report_of_what_is_public(dataset: Path, tmp_path: Path, layout: str) -> None:
    """It is made of the public part alone, and is not among the files that are sent."""
    words = ("publish", dataset, "--repo", "my-org/page", "--layout", layout, "--report")
    said = call(*words, tmp_path / "site", "--private-qrels", "test")
    assert "index.html" not in said and "Nothing was uploaded" in said
    hidden(data := read_report(tmp_path / "site" / "index.html"))
    assert data["report"]["public"] and data["report"]["datasets"][0]["withheld"] == ["test"]
    call(*words, tmp_path / "site")  # all labels are public
    assert lives(read_report(tmp_path / "site" / "index.html"))["q-00"]["labels"]
