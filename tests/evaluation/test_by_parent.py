"""Results of chunks, read per document."""

import json
from pathlib import Path

import pytest
from beir_folder import write_beir

from airgen.errors import DatasetError
from airgen.evaluation import evaluate, parse_measures, read_run, run_from_dict, score
from airgen.evaluation.dataset_split import labels_by_parent, read_parents, run_by_parent
from airgen.evaluation.systems import SystemSettings

PARENTS = {"a1": "A", "a2": "A", "b1": "B", "c1": "C"}


def test_a_document_is_as_good_as_its_best_chunk() -> None:
    run = run_by_parent(run_from_dict({"q": {"b1": 3.0, "a2": 2.0, "a1": 1.0, "generated": 0.5}}), PARENTS)
    assert list(run.items()) == [("q", [("B", 3.0), ("A", 2.0), ("generated", 0.5)])]
    assert labels_by_parent({"q": {"a1": 1, "a2": 0, "b1": 0}}, PARENTS) == {"q": {"A": 1, "B": 0}}


def test_a_run_of_other_ids_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no passage of the run has a parent: the run has 'x', the parents 'a1'"):
        run_by_parent(run_from_dict({"q": {"x": 1.0}}), PARENTS)
    path = tmp_path / "p.jsonl"
    for text, problem in (("", "no parents"), ("{}", "p.jsonl:1: a line needs"), ("{", "p.jsonl:1: not JSON")):
        path.write_text(text)
        with pytest.raises(DatasetError, match=problem):
            read_parents(path)


def test_evaluate_reads_a_dataset_of_chunks_per_document_too(tmp_path: Path) -> None:
    """The report has a second table; a dataset without parents has none."""
    passages = [
        {"_id": "a1", "text": "bees dance in the hive"},
        {"_id": "a2", "text": "the queen of the bees"},
        {"_id": "b1", "text": "bees bees bees and boats"},
        {"_id": "c1", "text": "boats in the harbour"},
    ]
    queries = [{"_id": "q1", "text": "bees"}, {"_id": "q2", "text": "boats"}]
    home = write_beir(tmp_path / "d", passages, queries, {"test": [("q1", "a1", 1), ("q2", "c1", 1)]})
    systems = [SystemSettings.model_validate({"name": "bm25", "kind": "bm25"})]
    (plain,) = evaluate(home, systems, tmp_path / "out")
    report = tmp_path / "out" / "d" / "test" / "report.md"
    assert plain.by_document == {} and "By document" not in report.read_text()
    (home / "private").mkdir()
    lines = [json.dumps({"_id": key, "parent": parent}) for key, parent in PARENTS.items()]
    (home / "private" / "parents.jsonl").write_text("\n".join(lines))
    (found,) = evaluate(home, systems, tmp_path / "out")  # the run is kept, and scored again
    assert found.cached and found.means == plain.means
    run, labels = (run_by_parent(read_run(found.paths.run), PARENTS), {"q1": {"A": 1}, "q2": {"C": 1}})
    means = score(run, labels, parse_measures(" ".join(found.means))).means()
    assert {name: row[0] for name, row in found.by_document.items()} == pytest.approx(means)
    assert means["RR@10"] != found.means["RR@10"]
    table = report.read_text().partition("## By document")[2]
    assert "each document has the best score" in table and f"{means['nDCG@10']:.4f}" in table
    (kept,) = evaluate(home, systems, tmp_path / "out")
    assert kept.cached and kept.by_document == found.by_document
