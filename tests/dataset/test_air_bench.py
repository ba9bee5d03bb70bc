"""AIR-Bench's own layout is read in place: as airgen writes it, and as the Hub's repositories have it."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from command_line import call, invoke

from airgen.dataset.air_bench import air_bench_datasets
from airgen.dataset.beir import BeirDataset
from airgen.dataset.layouts import export_layouts
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.storage.records import flat_text

VERSION = "AIR-Bench_24.05"
TEXTS = {
    "doc-1": "Kettles boil water for tea.",
    "doc-2": "Lanterns glow at night.",
    "doc-3": "A kettle was lost near lanterns.",
}


def lines(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def release(home: Path, group: str, name: str = "default", version: str = VERSION, dev: bool = True) -> Path:
    """One released dataset after the published schema; test labels are not released."""
    folder = home / group / version / name
    lines(folder / "corpus.jsonl", *({"id": key, "text": text} for key, text in TEXTS.items()))
    lines(folder / "test_queries.jsonl", {"id": "q-3", "text": "what does a kettle do"})
    if dev:
        lines(
            folder / "dev_queries.jsonl",
            {"id": "q-1", "text": "what boils water"},
            {"id": "q-2", "text": "which lanterns glow at night"},
        )
        labels = home / f"qrels-{group}-dev" / version / name / "dev_qrels.jsonl"
        rows = (("q-1", "doc-1", 1), ("q-1", "doc-3", 0), ("q-2", "doc-2", 1))
        lines(labels, *({"qid": q, "docid": d, "relevance": r} for q, d, r in rows))
    (home / group / "README.md").write_text("---\nlicense: cc-by-nc-sa-4.0\n---\n", encoding="utf-8")
    return folder


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """The folder AIR-Bench with one repository and its dev labels."""
    release(tmp_path / "AIR-Bench", "qa_finance_en")
    return tmp_path / "AIR-Bench"


@pytest.mark.parametrize("inside", ["", "26.11", "26.11/weather-notes"])
def test_what_airgen_writes_is_read_back(dataset: Path, tmp_path: Path, inside: str) -> None:
    export_layouts({"": dataset}, "air-bench", tmp_path / "out")
    ours, theirs = BeirDataset.open(dataset), BeirDataset.open(tmp_path / "out/AIR-Bench/qa_science_en" / inside)
    assert {(p.id, flat_text(p.title, p.text)) for p in ours.passages()} == {(p.id, p.text) for p in theirs.passages()}
    assert (ours.splits, theirs.splits, theirs.withheld) == (["dev", "test"], ["dev", "test"], [])
    for split in ours.splits:
        assert theirs.qrels(split).labels == ours.qrels(split).labels
        of_split = DatasetSplit(theirs, split, "en").queries
        assert {key: query.text for key, query in of_split.items()} == {
            key: query.text for key, query in DatasetSplit(ours, split, "en").queries.items()
        }
        assert {query.metadata["split"] for query in of_split.values()} == {split}
    assert len(theirs.queries()) == len(ours.queries()) == 6
    assert theirs.info["name"] == "qa_science_en_weather-notes"
    assert [theirs.info[key] for key in ("task", "domain", "language")] == ["qa", "science", "en"]


def test_a_released_set_has_dev_labels_and_private_test_labels(released: Path) -> None:
    found = BeirDataset.open(released / "qa_finance_en")
    assert (found.splits, found.withheld) == (["dev"], ["test"])
    assert found.qrels("dev").labels == {"q-1": {"doc-1": 1.0, "doc-3": 0.0}, "q-2": {"doc-2": 1.0}}
    assert list(DatasetSplit(found, "test", "en").queries) == ["q-3"]
    assert found.digest("dev") != found.digest("test")
    with pytest.raises(DatasetError, match=r"AIR-Bench's private repository qrels-qa_finance_en has them"):
        found.qrels("test")


def test_the_first_version_has_no_splits_in_its_names(tmp_path: Path) -> None:
    home, group, version = tmp_path / "AIR-Bench", "long-doc_arxiv_en", "AIR-Bench_24.04"
    for name in ("gpt3", "llm-survey"):
        lines(home / group / version / name / "corpus.jsonl", {"id": "d", "text": "one"})
        lines(home / group / version / name / "queries.jsonl", {"id": "q", "text": "two"})
        lines(home / f"qrels-{group}" / version / name / "qrels.jsonl", {"qid": "q", "docid": "d", "relevance": 1})
    assert [one.name for one in air_bench_datasets(home)] == ["gpt3", "llm-survey"]
    with pytest.raises(DatasetError, match=r"contains 2 datasets: name the folder of one \(gpt3, llm-survey\)"):
        BeirDataset.open(home / group / version)
    found = BeirDataset.open(home / group / version / "llm-survey")
    assert found.qrels("test").labels == {"q": {"d": 1.0}}
    assert DatasetSplit(found, "test", "en").headline == "Recall@10"


def test_the_commands_work_on_released_sets(released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release(released, "qa_web_en")
    monkeypatch.chdir(tmp_path)
    Path("systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n", encoding="utf-8")
    # The whole folder at once: each dataset has its own name and results.
    rows = json.loads(call("evaluate", released, "--systems", "systems.yaml", "--split", "dev", "--json"))
    assert [(row["dataset"], row["means"]["nDCG@10"]) for row in rows] == [
        ("qa_finance_en_default", 1.0),
        ("qa_web_en_default", 1.0),
    ]
    # Without labels the run is kept, and packed as air-benchmark names it.
    home = released / "qa_finance_en"
    said = call("evaluate", home, "--systems", "systems.yaml", "--split", "test")
    command = next(line for line in said.splitlines() if line.startswith("  airgen publish submit")).split()
    call(*command[1:])
    with ZipFile("bm25.zip") as archive:
        assert archive.namelist() == ["qa/finance/en_default_test.json"]
        entry = json.loads(archive.read("qa/finance/en_default_test.json"))
    assert (entry["benchmark_version"], entry["dataset_name"]) == (VERSION, "default")
    # Holes are counted and judged, diversity is measured.
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("my_judge.py").write_text("def judge(query, passage):\n    return float('lost' in passage)\n")
    run_file = Path("results/qa_finance_en_default/dev/bm25.run.gz")
    value = json.loads(
        call("audit", "holes", home, "--run", run_file, "--split", "dev", "--judge", "my_judge:judge", "--json")
    )
    assert (value["holes"], value["judged"]) == (1, 1)
    assert "qa_finance_en_default" in call("study", "diversity", home)


def test_a_released_set_is_audited(released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = released / "qa_finance_en"
    said = call("audit", "sample", home, "10", "--split", "dev")
    assert "3 pairs of 3" in said
    sample = json.loads(Path("audit/qa_finance_en_default/sample.json").read_text())
    levels = {str(at): 3 if item["document"] == "doc-1" else 0 for at, item in enumerate(sample["items"], 1)}
    Path("audit-answers.json").write_text(json.dumps({"key": sample["key"], "answers": levels}))
    command = next(line for line in said.splitlines() if line.startswith("then: airgen")).split()
    result = json.loads(call("audit", *command[3:], "--json"))
    assert (result["by_kind"]["relevant"]["agreed"], result["by_kind"]["relevant"]["count"]) == (1, 2)
    assert result["by_kind"]["not relevant"]["agreed"] == 1
    assert json.loads(Path("audit/qa_finance_en_default/result.json").read_text()) == result
    labels = released / "qrels-qa_finance_en-dev" / VERSION / "default/dev_qrels.jsonl"
    labels.write_text(labels.read_text().replace('"relevance": 1', '"relevance": 0'))
    again = json.loads(call("audit", *command[3:], "--json"))  # the answers stay answers, and the labels are others
    assert again["by_kind"]["not relevant"]["count"] == 3 and again["gone"] == 0
    rows = labels.read_text().splitlines(keepends=True)
    labels.write_text("".join(rows[1:]))
    assert "1 pairs of the sample are no longer in the dataset" in call("audit", *command[3:])
    labels.write_text(
        rows[0].replace('"docid": "doc-1"', '"docid": "doc-9"').replace('"docid": "doc-2"', '"docid": "doc-9"')
    )
    problem = invoke("audit", *command[3:]).exception
    assert isinstance(problem, DatasetError)


def test_labels_that_are_not_beside_or_of_another_version(released: Path) -> None:
    beside = released / "qrels-qa_finance_en-dev"
    lines(beside / VERSION / "default/dev_qrels.jsonl", {"qid": "old-1", "docid": "doc-1", "relevance": 1})
    with pytest.raises(DatasetError, match="the labels belong to another dataset or version"):
        _ = DatasetSplit(BeirDataset.open(released / "qa_finance_en"), "dev", "en").queries
    (beside / VERSION).rename(beside / "AIR-Bench_24.04")
    found = BeirDataset.open(released / "qa_finance_en")
    assert found.withheld == ["dev", "test"]
    with pytest.raises(DatasetError, match=r"-dev has them \(it has labels of AIR-Bench_24.04"):
        found.qrels("dev")


def test_several_versions_in_one_repository(released: Path, tmp_path: Path) -> None:
    release(released, "qa_finance_en", version="AIR-Bench_24.04")
    (tmp_path / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n", encoding="utf-8")
    arguments = ["--systems", str(tmp_path / "systems.yaml"), "--out", str(tmp_path / "results")]
    problem = invoke("evaluate", released, *arguments).exception
    assert isinstance(problem, DatasetError)
    assert "in several versions (AIR-Bench_24.04, AIR-Bench_24.05): name the folder of one version" in str(problem)
    both = [str(released / "qa_finance_en" / version) for version in ("AIR-Bench_24.04", VERSION)]
    problem = invoke("evaluate", *both, *arguments).exception
    assert isinstance(problem, UsageError) and "both named 'qa_finance_en_default'" in str(problem)


def test_a_beir_folder_without_labels_is_not_taken_for_one(tmp_path: Path) -> None:
    lines(tmp_path / "a/b/notes/corpus.jsonl", {"_id": "d", "text": "one"})
    lines(tmp_path / "a/b/notes/queries.jsonl", {"_id": "q", "text": "two"})
    with pytest.raises(DatasetError, match=r"contains no qrels/\*\.tsv"):
        BeirDataset.open(tmp_path / "a/b/notes")
