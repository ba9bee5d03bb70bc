"""A small split of which no query has an answer (`generation.unanswerable`) stops nothing that is of other splits."""

import dataclasses
from pathlib import Path

import pytest
from dataset_maker import make_content
from refusals import refused

from airgen.audit.labels import audited_items
from airgen.dataset.beir import BeirDataset
from airgen.dataset.derive import derive
from airgen.dataset.layouts import LAYOUTS
from airgen.dataset.manifest import load_manifest
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.evaluation import EvaluationOptions, evaluate
from airgen.evaluation.systems import SystemSettings
from airgen.publishing.scores import load_labels
from airgen.publishing.withhold import labels_part, public_part
from airgen.report.report import make_report
from airgen.studies.dataset_sizes import statistics_rows


@pytest.fixture
def data(tmp_path: Path) -> Path:
    content = make_content()
    queries = [
        dataclasses.replace(row, metadata={**row.metadata, "answered": row.split == "test"}) for row in content.queries
    ]
    dev = {row.id for row in queries if row.split == "dev"}
    labels = [row for row in content.qrels if row.query not in dev]
    write_dataset(tmp_path / "data", dataclasses.replace(content, queries=queries, qrels=labels))
    assert dev and not (tmp_path / "data" / "qrels" / "dev.jsonl").exists()
    return tmp_path / "data"


def test_other_splits_are_evaluated_shown_and_counted(data: Path, tmp_path: Path) -> None:
    dataset = BeirDataset.open(data)
    assert dataset.qrels("dev").labels == {} and dataset.qrels("all").labels == dataset.qrels("test").labels
    (result,) = evaluate(
        data, [SystemSettings(name="bm25", kind="bm25")], tmp_path / "results", EvaluationOptions("all")
    )
    assert result.queries == len(dataset.qrels("test").labels)
    assert make_report([data, tmp_path / "results"], tmp_path / "page").is_file()
    assert [(row["split"], row["positives"]) for row in statistics_rows(data)] == [("dev", 0), ("test", 8)]
    for work in (
        lambda: evaluate(data, [SystemSettings(name="bm25", kind="bm25")], tmp_path / "dev", EvaluationOptions("dev")),
        lambda: audited_items(data, "dev"),
    ):
        with pytest.raises(DatasetError, match="no query of the split dev has an answer"):
            work()


def test_it_is_published_and_derived(data: Path, tmp_path: Path) -> None:
    for number, withheld in enumerate((["test"], ["dev"], ["dev", "test"])):
        public_part(data, tmp_path / f"public-{number}", withheld)
        labels_part(data, tmp_path / f"labels-{number}", withheld)
        assert not [problem for problem in verify(tmp_path / f"public-{number}") if problem.severity == "error"]
        if "dev" in withheld:
            (labels,) = load_labels([tmp_path / f"labels-{number}"], "dev")
            assert labels.qrels == {} and len(labels.queries or ()) == 2
    LAYOUTS["air-bench"](data, load_manifest(data), tmp_path / "air-bench")
    derive(data, tmp_path / "smaller", max_passages=10)
    assert not [problem for problem in verify(tmp_path / "smaller") if problem.severity == "error"]


def test_missing_labels_are_not_taken_for_it(data: Path, tmp_path: Path) -> None:
    (data / "qrels" / "test.jsonl").unlink()
    with refused(DatasetError, "no_file", where="test.jsonl"):
        public_part(data, tmp_path / "public", ["test"])
