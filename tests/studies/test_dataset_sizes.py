"""`airgen study stats` of folders in BEIR's layout, of lists, and of what has no labels."""

import json
from pathlib import Path

import pytest
from beir_folder import write_beir
from command_line import call
from dataset_maker import make_content

from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.storage.paths import COLLECTIONS, cache_dir
from airgen.studies.dataset_sizes import statistics_rows

CORPUS = [
    {"_id": "p1", "title": "On tyres", "text": "Wide tyres roll well."},
    {"_id": "p2", "title": "", "text": "Pumps."},
    {"_id": "p3", "title": "", "text": "A third passage here."},
]
QUERIES = [
    {"_id": "q1", "text": "which tyres"},
    {"_id": "q2", "text": "what is a good pump"},
    {"_id": "q3", "text": "x"},
]
LABELS = {
    "test": [("q1", "p1", 2), ("q1", "p2", 1), ("q1", "p3", 0), ("q2", "p2", 1)],
    "dev": [("q3", "p3", 1), ("q3", "gone", 1)],
}


def test_a_folder_has_the_row_of_table_1(tmp_path: Path) -> None:
    home = write_beir(tmp_path / "bikes", CORPUS, QUERIES, LABELS)
    dev, test = statistics_rows(home)
    assert test == {
        "dataset": "bikes", "language": "en", "split": "test", "queries": 2, "passages": 3, "D/Q": 1.5,
        "words of queries": 3.5, "words of passages": 3.7, "positives": 3, "judged not relevant": 1,
    }  # fmt: skip
    assert (dev["split"], dev["queries"], dev["D/Q"], dev["words of queries"]) == ("dev", 1, 2.0, 1.0)
    assert json.loads(call("study", "stats", home, "--json")) == [dev, test]
    assert call("study", "stats", home, "--csv").splitlines()[2] == "bikes,en,test,2,3,1.5,3.5,3.7,3,1"
    pairs = write_beir(tmp_path / "pairs", CORPUS, QUERIES, LABELS, language="de")  # with a manifest, as mined pairs
    assert statistics_rows(pairs)[0]["language"] == "de"


def test_a_list_has_a_row_for_each_fetched_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("scifact", "nfcorpus"):
        write_beir(cache_dir(COLLECTIONS) / "beir" / name, CORPUS, QUERIES, {"test": LABELS["test"]})
    assert [row["dataset"] for row in statistics_rows(Path("beir"))] == ["nfcorpus", "scifact"]
    assert "| scifact | en | test | 2 |" in call("study", "stats", "scifact")


def test_several_datasets_are_in_one_table(tmp_path: Path) -> None:
    """AIR-Bench's Table 4: a collection of people's queries, a generated dataset, and its variant."""
    human = write_beir(tmp_path / "bikes", CORPUS, QUERIES, {"test": LABELS["test"]})
    for name in ("dataset", "without-control"):
        write_dataset(tmp_path / name, make_content())
    rows = statistics_rows(human, tmp_path / "dataset", tmp_path / "without-control")
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    assert [row["dataset"] for row in rows if row["split"] == "test"] == [
        "bikes", "weather-notes (dataset)", "weather-notes (without-control)",
    ]  # fmt: skip
    assert rows[0]["hard negatives"] == "" and rows[0]["D/Q"] == 1.5
    said = call("study", "stats", human, tmp_path / "dataset", tmp_path / "without-control")
    assert said.count("| test |") == 3


def test_without_labels_there_is_nothing_to_count(tmp_path: Path) -> None:
    home = write_beir(tmp_path / "bikes", CORPUS, QUERIES, {})
    with pytest.raises(DatasetError, match="no qrels"):
        call("study", "stats", home)
