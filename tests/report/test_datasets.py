"""Reports of datasets and results, without a job."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import call
from report_reader import cells, column, lives, read_report

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, SettingsError, UsageError
from airgen.evaluation import EvaluationOptions, evaluate
from airgen.evaluation.systems import SystemSettings
from airgen.report.report import make_report

TWO = [SystemSettings(name=name, kind="bm25", k1=k1) for name, k1 in (("bm25", 0.9), ("flat", 0.2))]


def results(dataset: Path, out: Path, split: str = "test") -> Path:
    evaluate(dataset, TWO, out, EvaluationOptions(split))
    return out


def test_a_report_of_many_queries_is_kept_small(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = results(dataset, tmp_path / "results")
    monkeypatch.setattr("airgen.report.queries._MOST_HITS", 59)  # six queries, at least ten systems
    monkeypatch.setattr("airgen.report.queries._SHORT", 7)
    data = read_report(make_report([dataset, out], tmp_path / "report"))
    (note,) = data["report"]["datasets"][0]["notes"]
    assert note.startswith("the report has 6 queries, so the texts of documents are cut after 7 characters")
    one = lives(data)["q-00"]
    assert set(one["docs"]) == {"doc000", "doc001", "doc002"} < {id_ for row in one["ranked"] for id_ in row["top"]}
    assert all(len(row["text"]) == 7 and row["more"] > 0 for row in one["docs"].values())


def test_a_dataset_with_lineage_and_results(dataset: Path, tmp_path: Path) -> None:
    out = results(dataset, tmp_path / "results")
    data = read_report(make_report([dataset, out], tmp_path / "report"))
    summary, table, each = data["report"], data["d0/queries"]["table"], lives(data)
    (about,) = summary["datasets"]
    assert (about["name"], about["state"], about["systems"]) == ("weather-notes", "dataset", {"test": ["bm25", "flat"]})
    assert summary["notes"] == about["notes"] == [] and not summary["public"]
    assert column(table, "Pos.")["texts"] == ["2"] * 6 and column(table, "Neg.")["texts"] == ["1"] * 6
    one = each["q-00"]
    assert one["text"].startswith("What is passage 0") and one["scenario"]["chosen"] == "lineage-only-words"
    assert {row["id"]: row["label"] for row in one["labels"]} == {"doc000": 1, "doc001": 1, "doc002": 0}
    assert one["docs"]["doc000"]["title"] == "Title 0"
    assert [system["name"] for system in one["ranked"]] and one["headline"] == "nDCG@10"
    for system in one["ranked"]:
        assert system["top"][:1] and set(system["ranks"]) <= {"doc000", "doc001", "doc002"}
        for id_, rank in system["ranks"].items():
            assert system["top"][rank - 1] == id_
    assert each["q-02"]["split"] == "dev" and not each["q-02"]["ranked"]  # no results of that split
    # The results alone, without their dataset; the dataset alone, without its lineage.
    data = read_report(make_report([out], tmp_path / "results-alone"))
    (about,) = data["report"]["datasets"]
    assert about["state"] == "results" and about["systems"] == {"test": ["bm25", "flat"]} and "d0/queries" not in data
    assert "the dataset is not on this machine" in about["notes"][0]
    shutil.rmtree(dataset / "private")
    one = lives(read_report(make_report([dataset], tmp_path / "alone")))["q-00"]
    assert one["scenario"] is None and one["original"] is None and len(one["labels"]) == 3


def test_a_folder_of_plain_files(tmp_path: Path) -> None:
    """BEIR's three files, without a manifest."""
    folder = tmp_path / "plain"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "bees"}\n', encoding="utf-8")
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "bees?"}\n{"_id": "q2", "text": "x"}\n', "utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n", encoding="utf-8")
    data = read_report(make_report([folder], tmp_path / "report"))
    table = data["d0/queries"]["table"]
    assert cells(table) == [("bees?", "test", "1", "0"), ("x", "–", "0", "0")]
    assert [each["name"] for each in table["filters"]] == ["positives"]  # one split is no choice
    assert data["report"]["datasets"][0]["name"] == "plain"


def test_results_of_another_version_are_said_and_not_mixed(dataset: Path, tmp_path: Path) -> None:
    out = results(dataset, tmp_path / "results")
    changed = tmp_path / "changed"
    shutil.copytree(dataset, changed)
    path = changed / "qrels" / "test.tsv"
    path.write_text(path.read_text("utf-8").replace("doc002\t0", "doc002\t1"), encoding="utf-8")
    data = read_report(make_report([changed, out], tmp_path / "report"))
    assert data["report"]["datasets"][0]["systems"] == {}
    (note,) = data["report"]["notes"]
    assert note.startswith("2 results on weather-notes (test) are of another version of the dataset")
    assert not any(life["ranked"] for life in lives(data).values())
    both = read_report(make_report([changed, dataset, out], tmp_path / "report"))  # the right one gets them
    assert [one["systems"] for one in both["report"]["datasets"]] == [{}, {"test": ["bm25", "flat"]}]
    assert both["report"]["notes"] == []


def test_a_run_file_that_is_gone_is_said(dataset: Path, tmp_path: Path) -> None:
    out = results(dataset, tmp_path / "results")
    (out / "weather-notes" / "test" / "flat.run.gz").unlink()
    data = read_report(make_report([dataset, out], tmp_path / "report"))
    (note,) = data["report"]["datasets"][0]["notes"]
    assert note.startswith("flat: its hits are not shown") and "flat.run.gz" in note
    ranked = {one["name"]: one["top"] for one in lives(data)["q-00"]["ranked"]}
    assert ranked["bm25"] and not ranked["flat"]


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda folder: (folder / "corpus.jsonl").unlink(), "corpus.jsonl (or corpus.jsonl.gz) is missing"),
        (lambda folder: (folder / "queries.jsonl").unlink(), "queries.jsonl (or queries.jsonl.gz) is missing"),
        (lambda folder: (folder / "queries.jsonl").write_text("{" * 9999), "queries.jsonl:1: not JSON"),
        (lambda folder: (folder / "queries.jsonl").write_text("{"), "queries.jsonl: has 1 of the 970 bytes"),
    ],
)
def test_a_missing_or_damaged_file_is_a_clear_error(dataset: Path, tmp_path: Path, break_it, words) -> None:  # type: ignore[no-untyped-def]
    break_it(dataset)
    with pytest.raises(DatasetError) as error:
        make_report([dataset], tmp_path / "report")
    assert words in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "report").exists()


def test_words_that_name_nothing(tmp_path: Path, dataset: Path) -> None:
    for word in (tmp_path / "nothing.yaml", "nothing-at-all", dataset / "queries.jsonl"):
        with pytest.raises(UsageError, match=f"{word}: is neither a pipeline .* nor the folder of a job"):
            make_report([word], tmp_path / "report")
    (tmp_path / "bad.yaml").write_text("name: x\n")  # a pipeline: what it lacks is said
    with pytest.raises(SettingsError, match="corpus"):
        make_report([tmp_path / "bad.yaml"], tmp_path / "report")
    with pytest.raises(UsageError, match=r"folder of results; give one of its subfolders: weather-notes$"):
        make_report([tmp_path], tmp_path / "report")


def test_other_files_are_never_replaced(dataset: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "index.html").write_text("my own page", encoding="utf-8")
    with pytest.raises(DatasetError, match="not replaced"):
        make_report([dataset], mine)
    assert (mine / "index.html").read_text("utf-8") == "my own page"
    report = tmp_path / "report"
    make_report([dataset], report)
    make_report([dataset], report)  # an older report is


def test_equal_data_give_equal_bytes_and_one_file_has_the_same_data(dataset: Path, tmp_path: Path) -> None:
    said = call("report", dataset, "--out", tmp_path / "a")
    assert said == f"{tmp_path / 'a' / 'index.html'}\n"
    make_report([dataset], tmp_path / "b")
    names = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(names) > 5
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    page = tmp_path / "one.html"
    said = call("report", dataset, "--single-file", "--out", page, "--json")
    assert json.loads(said) == {"page": str(page)}
    assert read_report(page) == read_report(tmp_path / "a" / "index.html")
    text = page.read_text("utf-8")
    assert BeirDataset.open(dataset).name in text and 'rel="stylesheet"' not in text
    assert "src=" not in text.partition("<body>")[2].replace(".src=", "")
