"""The commands of evaluation, as a user calls them."""

import json

import pytest
from beir_folder import write_beir
from command_line import call, invoke
from refusals import refused

from airgen.errors import DatasetError, UsageError
from airgen.evaluation import run_from_dict, write_run


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / name for name in ("a.run", "b.run", "test.tsv")]
    write_run(paths[0], run_from_dict({"q1": {"x": 2.0, "y": 1.0}, "q2": {"x": 1.0}}), "a")
    write_run(paths[1], run_from_dict({"q1": {"y": 2.0}, "other": {"y": 2.0}}), "b")
    paths[2].write_text("q1\ty\t1\nq2\tx\t1\n")
    return paths


def test_metrics_prints_means_and_counts(files):
    first, second, labels = files
    value = json.loads(call("evaluate", "measures", first, labels, "--metrics", "RR P@1", "--json", "--by-query"))
    assert value["means"] == {"RR": 0.75, "P@1": 0.5}
    assert value["queries"] == {"q1": {"RR": 0.5, "P@1": 0.0}, "q2": {"RR": 1.0, "P@1": 1.0}}
    text = call("evaluate", "measures", second, labels, "--metrics", "RR")
    assert "0.5000" in text and "1 missing, 1 not judged" in text
    assert "nDCG@1000" in call("evaluate", "measures", first, labels, "--metrics", "air-bench")


def test_compare_prints_pairs(files):
    first, second, labels = files
    with pytest.raises(DatasetError, match=r"b\.run: has 1 of the 2 queries"):
        call("evaluate", "compare", first, second, "--qrels", labels, "--metrics", "RR")
    more = [f"r{number}" for number in range(9)]  # found by both, so that one missing query is less than a tenth
    for path, line in ((labels, "{}\ty\t1\n"), (first, "{} Q0 y 1 2 a\n"), (second, "{} Q0 y 1 2 b\n")):
        path.write_text(path.read_text() + "".join(line.format(query) for query in more))
    value = json.loads(call("evaluate", "compare", first, second, "--qrels", labels, "--metrics", "RR", "--json"))
    (pair,) = value["measures"]["RR"]["pairs"]
    assert pair["difference"] == pytest.approx(0.5 / 11)
    assert value["missing"] == {str(first): 0, str(second): 1}
    text = call("evaluate", "compare", first, second, "--qrels", labels, "--metrics", "RR")
    assert "not significantly different from #" in text and "1–2" in text
    with pytest.raises(UsageError, match="two run files"):
        call("evaluate", "compare", first, "--qrels", labels)
    with pytest.raises(UsageError, match="given twice"):
        call("evaluate", "compare", first, first, "--qrels", labels)


def test_a_check_says_what_systems_need_and_runs_none(dataset, tmp_path):
    systems, out = tmp_path / "systems.yaml", tmp_path / "out"
    systems.write_text("systems:\n- {name: bm25, kind: bm25}\n- {name: theirs, kind: run, path: none.run}\n")
    words = ("evaluate", dataset, "--systems", systems, "--out", out, "--check")
    found = invoke(*words)
    assert found.exit_code == 1 and "! system theirs: " in found.output and "none.run" in found.output
    assert call(*words, "--only", "bm25").split()[-2:] == ["bm25", "bm25"]
    (need,) = json.loads(call(*words, "--only", "bm25", "--json"))
    assert need["name"] == "bm25" and need["missing"] == [] and not out.exists()


def test_evaluate_writes_tables_for_all_datasets(dataset, tmp_path):
    systems, out = tmp_path / "systems.yaml", tmp_path / "out"
    systems.write_text(
        "systems:\n- {name: bm25, kind: bm25}\n- {name: twice, kind: fuse, systems: [bm25, raw]}\n"
        "- {name: raw, kind: bm25, analyser: {stem: false}}\n"
    )
    value = json.loads(call("evaluate", dataset, "--systems", systems, "--out", out, "--json"))
    assert [result["name"] for result in value] == ["bm25", "raw", "twice"]
    text = call("evaluate", dataset, "--systems", systems, "--out", out, "--only", "twice")
    assert text.index("twice") < text.index("tables:")
    assert "| bm25 |" in (out / "results.md").read_text()
    with refused(UsageError, "unknown_name", "bm25"):
        call("evaluate", dataset, "--systems", systems, "--out", out, "--only", "bm52")


def test_scores_by_kind_are_aligned_columns(tmp_path):
    texts = ("a lamp burns", "a wharf floats", "a keeper sleeps")
    corpus = [{"_id": f"p{n}", "text": text} for n, text in enumerate(texts)]
    kinds = ("claim", "question", "question")
    queries = [{"_id": f"q{n}", "text": one["text"], "metadata": {"type": kinds[n]}} for n, one in enumerate(corpus)]
    labels = [("q0", "p0", 1), ("q1", "p1", 1), ("q2", "p2", 1)]
    dataset = write_beir(tmp_path / "kinds", corpus, queries, {"test": labels}, name="kinds", task="qa", language="en")
    (tmp_path / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n")
    words = ("evaluate", dataset, "--systems", tmp_path / "systems.yaml", "--out", tmp_path / "out", "--by", "type")
    lines = call(*words).splitlines()
    at = lines.index("nDCG@10 by type")
    assert lines[at + 1].split() == ["type", "queries", "bm25", "bm25", "95", "%"]
    rows = [line.split() for line in lines[at + 2 : at + 4]]
    assert [row[:3] for row in rows] == [["claim", "1", "1.0000"], ["question", "2", "1.0000"]]
    assert all(0 < float(row[3].split("–")[0]) < 1 for row in rows)  # few perfect scores do not prove a perfect system
