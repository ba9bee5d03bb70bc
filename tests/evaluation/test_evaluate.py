"""Evaluation from end to end on a small dataset: what is kept, what is run again, what is reported."""

from __future__ import annotations

import csv
import json
import math
import shutil
import xml.dom.minidom

import duckdb
import numpy as np
import pytest

from airgen.errors import DatasetError, MissingExtra, ModelError, SettingsError, UsageError
from airgen.evaluation import evaluate, load_systems, read_run, run_from_dict, write_overview, write_run
from airgen.evaluation.measures import score
from airgen.evaluation.result import Paths, read_scores
from airgen.evaluation.systems import SystemSettings

BM25 = {"name": "bm25", "kind": "bm25"}
RUN = {"name": "theirs", "kind": "run", "path": "their.run"}


def systems(*settings):
    return [SystemSettings.model_validate(each) for each in settings]


@pytest.fixture
def their_run(tmp_path):
    path = tmp_path / "their.run"
    write_run(path, run_from_dict({"q1": {"p2": 3.0, "p1": 2.0}, "q2": {"p4": 1.0}, "extra": {"p1": 1.0}}), "t")
    return path


def test_a_run_file_by_hand(dataset, their_run, tmp_path):
    (result,) = evaluate(dataset, systems(RUN), tmp_path / "out", folder=tmp_path)
    at_two = 1 / math.log2(3)
    assert result.means["nDCG@10"] == pytest.approx((at_two + 1 + 0) / 3)
    assert result.means["RR@10"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert (result.queries, result.missing, result.unjudged) == (3, 1, 1)
    assert result.notes == {"unknown_queries": 1}
    # Of the two queries with both kinds of label ... only q1 has a negative, and it stands above the positive.
    assert result.negatives_above == {"queries": 1, "share": 1.0, "mean": 1.0}
    means = {(group.attribute, group.value): (group.queries, group.mean) for group in result.groups}
    assert means["type", "question"] == (1, pytest.approx(at_two))
    assert means["type", "claim"] == (2, pytest.approx(0.5))
    worst = result.worst[0]
    assert (worst["query"], worst["first"], worst["relevant"]["id"]) == ("q3", None, "p5")
    assert worst["relevant_rank"] is None
    assert result.worst[1]["relevant_rank"] == 2
    assert "cats eat fish" in result.worst[1]["relevant"]["text"]


def test_what_is_written_says_what_was_measured(dataset, tmp_path):
    (result,) = evaluate(dataset, systems(BM25), tmp_path / "out", measures="nDCG@10 AP Recall@5")
    assert result.means["nDCG@10"] > 0.8  # each query's words stand in its passage
    kept = json.loads(result.paths.json.read_text())
    assert kept["means"] == dict(result.means)
    assert kept["rules"]["ties"] == "passage id descending"
    assert kept["about"]["passages"] == 5
    assert kept["description"]["k1"] == 0.9
    assert kept["versions"]["numpy"] == np.__version__
    # The run file alone gives the same figures, and so does the Parquet file.
    labels = {"q1": {"p1": 2, "p2": 0}, "q2": {"p4": 1}, "q3": {"p5": 1}}
    assert score(read_run(result.paths.run), labels, "nDCG@10 AP Recall@5").means() == dict(result.means)
    found = duckdb.sql(f"SELECT measure, avg(score) FROM '{result.paths.scores}' GROUP BY ALL").fetchall()
    assert dict(found) == pytest.approx(dict(result.means))
    assert set(read_scores(result.paths.scores, "AP")) == {"q1", "q2", "q3"}
    mteb = json.loads(result.paths.mteb.read_text())
    assert mteb["scores"]["test"][0]["main_score"] == pytest.approx(result.means["nDCG@10"], abs=1e-5)
    assert mteb["scores"]["test"][0]["recall_at_5"] == pytest.approx(result.means["Recall@5"], abs=1e-5)


def test_the_second_time_costs_nothing(dataset, tmp_path):
    first = evaluate(dataset, systems(BM25), tmp_path / "out")[0]
    bytes_before = {path: path.read_bytes() for path in first.paths.json.parent.iterdir()}
    lines = []
    again = evaluate(dataset, systems(BM25), tmp_path / "out", progress=lines.append)[0]
    assert again.cached and not first.cached
    assert lines == [f"little: bm25: nDCG@10 {first.score:.4f} (kept)"]
    assert {path: path.read_bytes() for path in first.paths.json.parent.iterdir()} == bytes_before
    assert again.means == first.means
    assert evaluate(dataset, systems(BM25), tmp_path / "out", fresh=True)[0].cached is False


def test_other_measures_search_nothing_and_other_settings_do(dataset, tmp_path):
    def said(system, **options):
        lines = []
        evaluate(dataset, systems(system), tmp_path / "out", progress=lines.append, **options)
        return lines[0].rpartition(" (")[2].rstrip(")")

    assert said(BM25) == "ran"
    assert said(BM25, measures="RR@3") == "scored again"
    assert said(BM25, measures="RR@3", ignore_identical_ids=True) == "scored again"
    assert said(BM25 | {"k1": 1.2}) == "ran"
    assert said(BM25 | {"k1": 1.2}, top=2) == "ran"
    queries = dataset / "queries.jsonl"
    queries.write_text(queries.read_text().replace("cats eat", "cats drink"))
    assert said(BM25 | {"k1": 1.2}, top=2) == "ran"


def test_a_changed_run_file_is_read_again(dataset, their_run, tmp_path):
    first = evaluate(dataset, systems(RUN), tmp_path / "out", folder=tmp_path)[0]
    write_run(their_run, run_from_dict({"q1": {"p1": 3.0}, "q2": {"p4": 1.0}, "q3": {"p5": 1.0}}), "t")
    again = evaluate(dataset, systems(RUN), tmp_path / "out", folder=tmp_path)[0]
    assert not again.cached
    assert (first.means["nDCG@10"] < 0.9, again.means["nDCG@10"]) == (True, 1.0)


def test_only_settings_that_name_files_are_looked_up(dataset, tmp_path):
    (tmp_path / "kept").mkdir()
    model = {"name": "m", "kind": "rerank", "first": "bm25", "reranker": {"kind": "bm25", "name": "kept"}}
    evaluate(dataset, systems(BM25, model), tmp_path / "out", folder=tmp_path)
    (tmp_path / "kept" / "file").write_text("new")
    again = evaluate(dataset, systems(BM25, model), tmp_path / "out", folder=tmp_path)
    assert [result.cached for result in again] == [True, True]


def test_a_damaged_result_is_made_again(dataset, tmp_path):
    first = evaluate(dataset, systems(BM25), tmp_path / "out")[0]
    first.paths.json.write_text(first.paths.json.read_text()[:300])
    again = evaluate(dataset, systems(BM25), tmp_path / "out")[0]
    assert not again.cached
    assert again.means == first.means


def test_runs_are_the_same_bytes(dataset, tmp_path):
    one = evaluate(dataset, systems(BM25), tmp_path / "one")[0]
    other = evaluate(dataset, systems(BM25), tmp_path / "other")[0]
    assert one.paths.run.read_bytes() == other.paths.run.read_bytes()
    assert one.paths.mteb.read_bytes() == other.paths.mteb.read_bytes()


def test_reranking_and_fusion_use_the_first_stage_once(dataset, tmp_path):
    wanted = systems(
        {"name": "again", "kind": "rerank", "first": "bm25", "reranker": {"kind": "bm25", "k1": 1.5}, "top": 2},
        BM25,
    )
    lines = []
    again, first = evaluate(dataset, wanted, tmp_path / "out", started=lines.append)
    assert lines == ["little: bm25: running", "little: again: running"]
    assert again.costs.includes == ("bm25",)
    assert again.costs.batch_ms > first.costs.batch_ms
    hits, top = (dict(read_run(result.paths.run).items()) for result in (again, first))
    for query, found in top.items():
        before, after = [passage for passage, _ in found], [passage for passage, _ in hits[query]]
        assert sorted(after[:2]) == sorted(before[:2])
        assert after[2:] == before[2:]
    fused = {"name": "fused", "kind": "fuse", "systems": ["bm25", "again"], "method": "rrf", "weights": [1, 1]}
    (joined,) = evaluate(dataset, systems(fused, BM25, wanted[0].model_dump()), tmp_path / "out")[:1]
    for query, found in read_run(joined.paths.run).items():
        ranks = [{p: rank for rank, (p, _) in enumerate(one[query], 1)} for one in (top, hits)]
        for passage, value in found:
            assert value == pytest.approx(sum(1 / (60 + of[passage]) for of in ranks), rel=1e-6)
    # A change below is a change above.
    changed = systems(wanted[0].model_dump(), BM25 | {"b": 0.1})
    lines.clear()
    evaluate(dataset, changed, tmp_path / "out", started=lines.append)
    assert len(lines) == 2


def test_long_doc_is_headed_by_recall(dataset, tmp_path):
    (dataset / "manifest.json").write_text('{"info": {"name": "../sly", "task": "long-doc"}}')
    (result,) = evaluate(dataset, systems(BM25), tmp_path / "out", measures="AP")
    assert (result.headline, list(result.means)) == ("Recall@10", ["Recall@10", "AP"])
    assert (tmp_path / "out" / "_sly" / "test").is_dir()  # a name cannot lead out of the folder


def test_tables_and_plots(dataset, their_run, tmp_path):
    out = tmp_path / "out"
    evil = {"name": "theirs", "kind": "run", "path": "their.run"}
    results = evaluate(dataset, systems(BM25, evil), out, folder=tmp_path)
    write_overview(out, results)
    with (out / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["system"], row["measure"]): float(row["mean"]) for row in rows}["bm25", "nDCG@10"] == pytest.approx(
        results[0].means["nDCG@10"], abs=1e-6
    )
    report = (out / "little" / "test" / "report.md").read_text()
    assert f"**{results[0].score:.4f}**" in report
    assert f"<u>{results[1].score:.4f}</u>" in report
    assert "theirs: 1 queries without a result, 1 queries not judged, 1 unknown queries" in report
    for name in ("little/test/latency.svg", "little/test/correlation.svg", "datasets.svg"):
        xml.dom.minidom.parse(str(out / name))
    comparison = json.loads((out / "little" / "test" / "comparison.json").read_text())
    assert comparison["pairs"][0]["difference"] == pytest.approx(results[0].score - results[1].score)


def test_an_empty_query_and_a_huge_passage(dataset, tmp_path):
    with (dataset / "corpus.jsonl").open("a") as stream:
        stream.write(json.dumps({"_id": "huge", "text": "word " * 200_000}) + "\n")
    queries = dataset / "queries.jsonl"
    queries.write_text(queries.read_text().replace("market crash", "  "))
    (result,) = evaluate(dataset, systems(BM25), tmp_path / "out")
    assert result.missing == 1
    assert read_scores(result.paths.scores, "nDCG@10")["q3"] == 0.0


def test_a_run_of_another_dataset_is_refused(dataset, tmp_path):
    write_run(tmp_path / "their.run", run_from_dict({"q1": {"elsewhere": 3.0}}), "t")
    with pytest.raises(DatasetError, match="none of its passages"):
        evaluate(dataset, systems(RUN), tmp_path / "out", folder=tmp_path)


def test_qrels_without_any_query_text_are_refused(dataset, tmp_path):
    (dataset / "qrels" / "test.tsv").write_text("nobody\tp1\t1\n")
    with pytest.raises(DatasetError, match=r"no query of the test qrels is in queries\.jsonl"):
        evaluate(dataset, systems(BM25), tmp_path / "out")


def test_what_finished_is_kept_when_a_later_system_fails(dataset, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(DatasetError, match="no such file"):
        evaluate(dataset, systems(BM25, RUN), out, folder=tmp_path)
    assert evaluate(dataset, systems(BM25), out)[0].cached


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("systems: []", "systems"),
        ("systems: [{name: a, kind: bm52}]", r"unknown kind 'bm52' \(did you mean 'bm25'\?\)"),
        ("systems: [{name: a, kind: bm25, field: multi}]", r"unknown setting 'field' \(did you mean 'fields'\?\)"),
        ("systems: [{name: a, kind: rerank, first: b, reranker: x, topp: 3}]", r"did you mean 'top'"),
        ("systems: [{name: a, kind: rerank, first: b, reranker: x}]", "builds on 'b', which is no system"),
        ("systems: [{name: a, kind: rerank, first: a, reranker: x}]", "cannot build on itself"),
        ("systems: [{name: a, kind: run}]", "'path' is missing"),
        ("systems: [{name: a, kind: bm25}, {name: a, kind: bm25}]", "'a' comes twice"),
        ("systems: [{name: ../a, kind: bm25}]", "name"),
        ("systems: [{name: a, kind: http, url: 'ftp://x'}]", "url"),
        ("systems: [{name: a, kind: fuse, systems: [b, c], weights: [1]}]", "1 weights for 2 systems"),
        ("system: []", "unknown key"),
    ],
)
def test_a_wrong_systems_file_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "systems.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_systems(path)


def test_systems_stand_after_what_they_build_on(tmp_path):
    path = tmp_path / "systems.yaml"
    path.write_text(
        "systems:\n- {name: c, kind: fuse, systems: [b, a]}\n"
        "- {name: b, kind: rerank, first: a, reranker: x}\n- {name: a, kind: bm25}\n"
    )
    assert [system.name for system in load_systems(path)] == ["a", "b", "c"]


def test_air_benchmarks_classes_run_by_name(dataset, tmp_path):
    (tmp_path / "my_systems.py").write_text(
        """
class First:
    def __init__(self, boost=1.0):
        self.boost = boost
    def __str__(self):
        return "first"
    def __call__(self, corpus, queries, **kwargs):
        return {
            q: {d: self.boost * sum(w in doc["text"].lower() for w in text.split()) for d, doc in corpus.items()}
            | {"nowhere": 9.0}
            for q, text in queries.items()
        } | {"not-asked": {}}

class Second:
    def __call__(self, corpus, queries, search_results, **kwargs):
        return {q: {d: -s for d, s in hits.items()} for q, hits in search_results.items()}

class Broken:
    def __call__(self, corpus, queries, **kwargs):
        return [1, 2]
"""
    )
    first = {"name": "first", "kind": "python", "class": "my_systems:First", "settings": {"boost": 2.0}}
    second = {"name": "second", "kind": "rerank", "first": "first", "reranker": "python:my_systems:Second", "top": 3}
    found = evaluate(dataset, systems(first, second), tmp_path / "out", folder=tmp_path)
    assert found[0].means["Recall@10"] == 1.0
    assert found[0].notes == {"unknown_passages": 3, "unknown_queries": 1}
    assert found[0].description["calls_itself"] == "first"
    before, after = (dict(read_run(result.paths.run).items()) for result in found)
    for query, hits in before.items():
        order, turned = [p for p, _ in hits], [p for p, _ in after[query]]
        assert set(turned[:3]) == set(order[:3]) and turned[3:] == order[3:]
    for wrong, message in (
        ("my_systems:Frist", "Frist"),
        ("my_system:First", "my_system"),
        ("my_systems:Broken", "list"),
    ):
        with pytest.raises((UsageError, DatasetError), match=message):
            evaluate(dataset, systems(first | {"class": wrong, "settings": {}}), tmp_path / "o", folder=tmp_path)
    with pytest.raises(UsageError, match="boots"):
        evaluate(dataset, systems(first | {"settings": {"boots": 2}}), tmp_path / "o", folder=tmp_path)


def test_paths_of_a_system(tmp_path):
    assert Paths.of(tmp_path, "bm25").run == tmp_path / "bm25.run.gz"


def test_a_model_that_is_not_there_says_what_to_fetch(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "nothing"))
    dense = {"name": "dense", "kind": "dense", "embedder": "all-minilm-l6-v2-int8"}
    with pytest.raises((ModelError, MissingExtra), match=r"models fetch all-minilm-l6-v2-int8|pip install"):
        evaluate(dataset, systems(dense), tmp_path / "out")


def test_an_index_serves_other_queries_on_the_same_corpus(dataset, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(dataset, other)
    lines = (other / "queries.jsonl").read_text().splitlines()
    (other / "queries.jsonl").write_text("\n".join(lines[::-1][:-1]) + "\n")
    wanted = systems(BM25, {"name": "lsa", "kind": "lsa", "dim": 2})
    alone = evaluate(other, wanted, tmp_path / "alone")
    indexes = {}
    first = evaluate(dataset, wanted, tmp_path / "first", indexes=indexes)
    assert len(indexes) == 2 and all(result.costs.index_seconds is not None for result in first)
    shared = evaluate(other, wanted, tmp_path / "second", indexes=indexes)
    assert len(indexes) == 2 and all(result.costs.index_seconds is None for result in shared)
    for one, two in zip(alone, shared, strict=True):
        assert one.paths.run.read_bytes() == two.paths.run.read_bytes()
