"""Results of chunks, read per document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from airgen.commands.metrics import app
from airgen.errors import DatasetError
from airgen.evaluation import run_from_dict
from airgen.evaluation.by_parent import labels_by_parent, read_parents, run_by_parent

PARENTS = {"a1": "A", "a2": "A", "b1": "B", "c1": "C"}


def test_a_document_is_as_good_as_its_best_chunk() -> None:
    run = run_by_parent(run_from_dict({"q": {"b1": 3.0, "a2": 2.0, "a1": 1.0, "generated": 0.5}}), PARENTS)
    assert list(run.items()) == [("q", [("B", 3.0), ("A", 2.0), ("generated", 0.5)])]
    assert labels_by_parent({"q": {"a1": 1, "a2": 0, "b1": 0}}, PARENTS) == {"q": {"A": 1, "B": 0}}


@given(st.dictionaries(st.sampled_from(sorted(PARENTS)), st.integers(0, 9).map(float), min_size=1))
def test_no_document_is_lost_and_none_comes_twice(hits: dict[str, float]) -> None:
    run = run_by_parent(run_from_dict({"q": hits}), PARENTS)
    found = dict(next(iter(run.items()))[1])
    assert found == {
        parent: max(score for passage, score in hits.items() if PARENTS[passage] == parent)
        for parent in {PARENTS[passage] for passage in hits}
    }


def test_a_run_of_other_ids_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no passage of the run has a parent: the run has 'x', the parents 'a1'"):
        run_by_parent(run_from_dict({"q": {"x": 1.0}}), PARENTS)
    path = tmp_path / "p.jsonl"
    for text, problem in (("", "no parents"), ("{}", "p.jsonl:1: a line needs"), ("{", "p.jsonl:1: not JSON")):
        path.write_text(text)
        with pytest.raises(DatasetError, match=problem):
            read_parents(path)


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps({"_id": key, "parent": PARENTS[key]}) for key in PARENTS))
    (tmp_path / "r.run").write_text("q Q0 a2 1 2 x\nq Q0 b1 2 1 x\n")
    (tmp_path / "q.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta1\t1\n")
    files = [str(tmp_path / "r.run"), str(tmp_path / "q.tsv"), "--metrics", "RR@10", "--json"]
    means = [
        json.loads(CliRunner().invoke(app, [*files, *more]).stdout)["means"]["RR@10"]
        for more in ([], ["--parents", str(tmp_path / "p.jsonl")])
    ]
    assert means == [0.0, 1.0]
