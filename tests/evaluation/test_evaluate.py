"""Evaluation from end to end on a small dataset: what is kept, what is run again, what is reported."""

import csv
import importlib.util
import json
import math
import re
import shutil
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

import airgen
from airgen import models
from airgen.errors import AirgenError, DatasetError, SettingsError, UsageError
from airgen.evaluation import EvaluationOptions as Options
from airgen.evaluation import evaluate, load_systems, read_run, run_from_dict, write_overview, write_run
from airgen.evaluation import result as result_files
from airgen.evaluation.measures import Scores, parse_measure, score
from airgen.evaluation.result import read_scores, write_scores
from airgen.evaluation.run import read_own_run
from airgen.evaluation.systems import SystemSettings
from airgen.retrievers.encoding_cache import shared_encodings
from airgen.storage.sql_connections import in_memory

BM25 = {"name": "bm25", "kind": "bm25"}
RUN = {"name": "theirs", "kind": "run", "path": "their.run"}


def systems(*settings):
    return [SystemSettings.model_validate(each) for each in settings]


@pytest.fixture
def their_run(tmp_path):
    path = tmp_path / "their.run"
    write_run(path, run_from_dict({"q1": {"p2": 3.0, "p1": 2.0}, "q2": {"p4": 1.0}, "extra": {"p1": 1.0}}), "t")
    return path


def test_a_run_file_by_hand_and_its_tables(dataset, their_run, tmp_path):
    out = tmp_path / "out"
    results = evaluate(dataset, systems(BM25, RUN), out, Options(folder=tmp_path))
    result, at_two = results[1], 1 / math.log2(3)
    assert result.means["nDCG@10"] == pytest.approx((at_two + 1 + 0) / 3)
    assert result.means["RR@10"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert (result.queries, result.missing, result.unjudged) == (3, 1, 1)
    assert result.notes == {"unknown_queries": 1}
    # Of the two queries with both kinds of label ... only q1 has a negative, which ranks above the positive.
    assert result.negatives_above == {"queries": 1, "share": 1.0, "mean": 1.0}
    means = {(group.attribute, group.value): (group.queries, group.mean) for group in result.groups}
    assert means["type", "question"] == (1, pytest.approx(at_two))
    assert means["type", "claim"] == (2, pytest.approx(0.5))
    assert list(result.worst) == ["q3", "q1", "q2"] and result.worst["q3"] == "market crash"

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
    assert "| type | claim | 2 | " in report
    comparison = json.loads((out / "little" / "test" / "comparison.json").read_text())
    assert comparison["pairs"][0]["difference"] == pytest.approx(results[0].score - results[1].score)


def test_what_is_written_is_what_was_measured_and_the_second_time_costs_nothing(dataset, tmp_path):
    options = Options(measures="nDCG@10 AP Recall@5")
    (result,) = evaluate(dataset, systems(BM25), tmp_path / "out", options)
    assert result.means["nDCG@10"] > 0.8  # each query's words occur in its passage
    kept = json.loads(result.paths.json.read_text())
    assert kept["means"] == dict(result.means)
    assert kept["rules"]["ties"] == "passage id descending"
    assert (kept["about"]["passages"], kept["description"]["k1"]) == (5, 0.9)
    assert kept["versions"]["numpy"] == np.__version__
    # The run file alone gives the same figures, and so does the Parquet file.
    labels = {"q1": {"p1": 2, "p2": 0}, "q2": {"p4": 1}, "q3": {"p5": 1}}
    assert score(read_run(result.paths.run), labels, options.measures).means() == dict(result.means)
    found = duckdb.sql(f"SELECT measure, avg(score) FROM '{result.paths.scores}' GROUP BY ALL").fetchall()
    assert dict(found) == pytest.approx(dict(result.means))
    assert set(read_scores(result.paths.scores, "AP")) == {"q1", "q2", "q3"}
    mteb = json.loads(result.paths.mteb.read_text())["scores"]["test"][0]
    assert mteb["main_score"] == pytest.approx(result.means["nDCG@10"], abs=1e-5)
    assert mteb["recall_at_5"] == pytest.approx(result.means["Recall@5"], abs=1e-5)

    folder, lines = result.paths.json.parent, []
    bytes_before = {path: path.read_bytes() for path in folder.iterdir()}
    again = evaluate(dataset, systems(BM25), tmp_path / "out", options, progress=lines.append)[0]
    assert again.cached and not result.cached and again.means == result.means
    assert lines == [f"little: bm25: nDCG@10 {result.score:.4f} (kept)"]
    assert {path: path.read_bytes() for path in folder.iterdir()} == bytes_before
    other = evaluate(dataset, systems(BM25), tmp_path / "other", options)[0]
    for name in ("run", "mteb"):
        assert getattr(other.paths, name).read_bytes() == getattr(result.paths, name).read_bytes()
    assert evaluate(dataset, systems(BM25), tmp_path / "out", Options(fresh=True))[0].cached is False


def test_the_versions_of_a_result_do_not_depend_on_what_is_loaded(monkeypatch):
    before = result_files.library_versions()
    for name in ("numba", "torch", "faiss"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert result_files.library_versions() == before and "numba" in before


def test_other_measures_search_nothing_and_other_settings_do(dataset, tmp_path):
    def said(system, **options):
        lines = []
        evaluate(dataset, systems(system), tmp_path / "out", Options(**options), progress=lines.append)
        return lines[0].rpartition(" (")[2].rstrip(")")

    assert said(BM25) == "ran"
    assert said(BM25, measures="RR@3") == "scored again"
    assert said(BM25, measures="RR@3", ignore_identical_ids=True) == "scored again"
    assert said(BM25 | {"k1": 1.2}) == "ran"
    assert said(BM25 | {"datasets": {"little": {"k1": 1.2}, "another": {"k1": 7}}}) == "kept"  # the same on this one
    assert said(BM25 | {"k1": 1.2}, top=2) == "ran"
    queries = dataset / "queries.jsonl"
    queries.write_text(queries.read_text().replace("cats eat", "cats drink"))
    assert said(BM25 | {"k1": 1.2}, top=2) == "ran"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:300],
        lambda text: re.sub(r'"nDCG@10": [0-9.]+', '"nDCG@10": Infinity', text),
        lambda text: re.sub(r'"nDCG@10": [0-9.]+', '"nDCG@10": "high"', text),
        lambda text: re.sub(r'"headline": "[^"]+"', '"headline": "P@77"', text),
        lambda text: re.sub(r'"index_seconds": [0-9.e-]+', '"index_seconds": "long"', text),
    ],
)
def test_a_damaged_result_is_made_again(dataset, tmp_path, damage):
    first = evaluate(dataset, systems(BM25), tmp_path / "out")[0]
    whole = first.paths.json.read_text()
    assert damage(whole) != whole
    first.paths.json.write_text(damage(whole))
    again = evaluate(dataset, systems(BM25), tmp_path / "out")[0]
    assert not again.cached
    assert again.means == first.means


def test_a_result_whose_writing_stopped_is_finished_the_next_time(dataset, tmp_path, monkeypatch):
    (whole,) = evaluate(dataset, systems(BM25), tmp_path / "whole")
    written = []

    def stop_after_the_first(path, value, write=result_files.write_json):
        if written:
            raise KeyboardInterrupt
        written.append(path)
        write(path, value)

    with monkeypatch.context() as patch:
        patch.setattr(result_files, "write_json", stop_after_the_first)
        with pytest.raises(KeyboardInterrupt):
            evaluate(dataset, systems(BM25), tmp_path / "out")
    (again,) = evaluate(dataset, systems(BM25), tmp_path / "out")
    assert {path.name for path in again.paths.json.parent.iterdir()} == {
        path.name for path in whole.paths.json.parent.iterdir()
    }


def test_times_are_unknown_where_another_step_had_encoded_the_passages(dataset, tmp_path):
    pytest.importorskip("onnxruntime")
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen fetch tests")
    every = systems(
        {"name": "minilm", "kind": "dense"}, {"name": "late", "kind": "rerank", "first": "minilm", "reranker": "maxsim"}
    )
    told = []
    with shared_encodings(tmp_path / "embeddings"):
        first, again = (
            evaluate(dataset, every, tmp_path / out, encoding=lambda *what: told.append(what)) for out in "ab"
        )
    assert [what for what in told if what[0] == "minilm"] == [("minilm", 0, 5), ("minilm", 5, 5)]
    assert first[0].costs.index_seconds is not None and first[1].costs.latency_p50_ms is not None
    assert again[0].costs.index_seconds is None and again[0].costs.latency_p50_ms is not None
    assert again[1].costs.latency_p50_ms is None and again[1].costs.batch_ms is None
    assert [one.means for one in again] == [one.means for one in first]


def test_reranking_and_fusion_use_the_first_stage_once(dataset, tmp_path):
    wanted = systems(
        {"name": "again", "kind": "rerank", "first": "bm25", "reranker": {"kind": "bm25", "k1": 1.5}, "top": 2}, BM25
    )
    lines = []
    again, first = evaluate(dataset, wanted, tmp_path / "out", started=lines.append)
    assert lines == ["little: bm25: running", "little: again: running"]
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
    (result,) = evaluate(dataset, systems(BM25), tmp_path / "out", Options(measures="AP"))
    assert (result.headline, list(result.means)) == ("Recall@10", ["Recall@10", "AP"])
    assert (tmp_path / "out" / "_sly" / "test").is_dir()  # a name cannot lead out of the folder


def test_runs_and_labels_of_another_dataset_are_refused(dataset, tmp_path):
    write_run(tmp_path / "their.run", run_from_dict({"q1": {"elsewhere": 3.0}}), "t")
    with pytest.raises(DatasetError, match="none of its passages"):
        evaluate(dataset, systems(RUN), tmp_path / "out", Options(folder=tmp_path))
    (dataset / "qrels" / "test.tsv").write_text("nobody\tp1\t1\n")
    with pytest.raises(DatasetError, match=r"no query of the test qrels is among its queries"):
        evaluate(dataset, systems(BM25), tmp_path / "out")


def test_an_empty_query_scores_zero(dataset, tmp_path):
    queries = dataset / "queries.jsonl"
    queries.write_text(queries.read_text().replace("market crash", "  "))
    (result,) = evaluate(dataset, systems(BM25), tmp_path / "out")
    assert result.missing == 1 and read_scores(result.paths.scores, "nDCG@10")["q3"] == 0.0


def test_a_system_that_made_the_labels_is_marked(dataset, tmp_path):
    (plain,) = evaluate(dataset, systems(BM25), tmp_path / "out")
    manifest = {"info": {"name": dataset.name}, "provenance": [{"role": "recall", "model": "bm25"}, "odd"]}
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    both = systems(BM25, {"name": "rm3", "kind": "rm3"})
    marked, other = evaluate(dataset, both, tmp_path / "out")
    assert (plain.made_labels, marked.made_labels, other.made_labels) == ((), ("bm25",), ())
    (table,) = (tmp_path / "out").rglob("*.md")
    text = table.read_text()
    assert "| bm25 † |" in text and "| rm3 |" in text
    assert "† helped to make the labels, so its score may be too high: bm25 (bm25)" in text
    (named,) = evaluate(dataset, systems({**BM25, "family": "lexical"}), tmp_path / "out")  # a new family runs nothing
    assert (marked.family, named.family, named.cached, named.made_labels) == ("bm25", "lexical", True, ("bm25",))
    assert json.loads(named.paths.json.read_text())["family"] == "lexical"


def test_what_finished_is_kept_and_reported_when_a_later_system_fails(dataset, tmp_path):
    out = tmp_path / "out"
    (tmp_path / "their.run").write_text("not a run\n")
    with pytest.raises(DatasetError, match=r"their\.run"):
        evaluate(dataset, systems(BM25, RUN), out, Options(folder=tmp_path))
    assert "bm25" in (out / "little" / "test" / "report.md").read_text()
    assert evaluate(dataset, systems(BM25), out)[0].cached


def test_what_any_system_lacks_is_said_before_the_first_one_runs(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "nothing"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    wanted = systems(
        BM25,
        RUN,
        {"name": "dense", "kind": "dense", "embedder": "all-minilm-l6-v2-int8"},
        {"name": "cross", "kind": "rerank", "first": "bm25", "reranker": "some/cross-encoder"},
        {"name": "typo", "kind": "dense", "embedder": "all-minilm-l6-v3-int8"},
        {"name": "expanded", "kind": "expanded", "expansions": "queries.jsonl"},
        {"name": "service", "kind": "http", "url": "http://127.0.0.1:9", "api_key_env": "NOBODY_SET_THIS"},
    )
    started = []
    with pytest.raises(SettingsError) as caught:
        evaluate(dataset, wanted, tmp_path / "out", Options(folder=tmp_path), started=started.append)
    assert started == [] and not (tmp_path / "out").exists()
    text = "\n".join(caught.value.problems)
    for words in (
        "system theirs: path: ",
        "system dense: embedder: the model all-minilm-l6-v2-int8 is not on this machine: airgen fetch",
        "system cross: reranker: the model some/cross-encoder needs the package sentence-transformers: pip install",
        "the model all-minilm-l6-v3-int8 (did you mean 'all-minilm-l6-v2-int8'?) needs the package",
        "system expanded: expansions: ",
        "system service: api_key_env: the environment variable NOBODY_SET_THIS is not set",
    ):
        assert words in text, words
    assert "bm25" not in text


def test_a_system_whose_files_changed_is_run_again(dataset, tmp_path):
    """Also where the file belongs to a part of a part. Relative paths start at the folder of the systems file."""
    queries = tmp_path / "sub" / "queries.jsonl"
    queries.parent.mkdir()
    queries.write_text('{"_id": "p2", "queries": ["market crash"]}\n')
    expanded = {"kind": "expanded", "expansions": "sub/queries.jsonl"}
    nested = {"kind": "fuse", "systems": ["alone", "again"]}
    wanted = systems({"name": "alone", **expanded}, {"name": "again", **expanded, "k1": 1.2}, {"name": "all", **nested})
    scores = []
    for text in ("p2", "p5"):
        queries.write_text(f'{{"_id": "{text}", "queries": ["market crash"]}}\n')
        found = evaluate(dataset, wanted, tmp_path / "out", Options(folder=tmp_path))
        assert not any(result.cached for result in found)
        scores.append([result.means["nDCG@10"] for result in found])
    assert scores[0] != scores[1]
    again = evaluate(dataset, wanted, tmp_path / "out", Options(folder=tmp_path))
    assert all(result.cached for result in again)


OUTSIDE = '''
from pathlib import Path
from typing import Annotated

import numpy as np

from airgen.retrievers import Component
from airgen.retrievers.model_facts import ModelFacts
from airgen.settings.base import FILE, SPEED


class Letters(Component):
    """An embedder: which letters a text holds."""

    class Settings(Component.Settings):
        letters: str = "abcdefghijklmnopqrstuvwxyz"
        batch_size: Annotated[int, SPEED] = 8

    name = "letters"

    @property
    def dim(self):
        return len(self.settings.letters)

    def encode(self, texts, kind):
        rows = np.array([[text.count(letter) for letter in self.settings.letters] for text in texts], np.float32)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    def describe(self):
        return {"letters": self.settings.letters}


class Known(Letters):
    facts = ModelFacts(parameters=26, device="abacus", threads=3)


class Wanted(Component):
    """A re-ranker: texts with a word of a file come first."""

    class Settings(Component.Settings):
        path: Annotated[Path, FILE]

    name = "wanted"

    def set_up(self):
        self.words = (self.folder / self.settings.path).read_text().split()

    def score(self, pairs):
        return np.array([any(word in text for word in self.words) for _, text in pairs], np.float32)

    def describe(self):
        return {"words": self.words}
'''


def test_components_from_outside_the_package(dataset, tmp_path):
    """0 files inside airgen: `module:Class` beside the systems file, as a part of a system."""
    (tmp_path / "words.txt").write_text("market")
    letters = {"kind": "mine:Letters", "letters": "aeiou", "batch_size": 2}
    wanted = {"kind": "mine:Wanted", "path": "words.txt"}
    best = {"name": "best", "kind": "rerank", "first": "dense", "reranker": wanted}
    loaded = named(tmp_path, {"name": "dense", "kind": "dense", "embedder": letters}, best, mine=OUTSIDE)
    dense, best = evaluate(dataset, loaded, tmp_path / "out", Options(folder=tmp_path))
    assert dense.description["embedder"] == {"letters": "aeiou"}
    assert dict(read_run(best.paths.run).items())["q3"][0][0] == "p5"
    (tmp_path / "words.txt").write_text("cats")
    path = tmp_path / "systems.yaml"
    text = path.read_text()
    path.write_text(text.replace('"batch_size": 2', '"batch_size": 9'))  # speed is not part of a run's identity
    again = evaluate(dataset, load_systems(path), tmp_path / "out", Options(folder=tmp_path))
    assert [result.cached for result in again] == [True, False]
    path.write_text(text.replace('"letters":', '"leters":').replace('"path":', '"pat":'))
    with pytest.raises(SettingsError) as caught:
        load_systems(path)
    assert "systems.0.embedder.leters: unknown key (did you mean 'letters'?)" in str(caught.value)
    assert "systems.1.reranker.path: is missing" in str(caught.value)


AIR_BENCH = '''
from air_benchmark.evaluation_utils.searcher import Retriever

class Shared(Retriever):
    """As somebody wrote it for air-benchmark: nothing of airgen is in it."""

    def __str__(self):
        return "shared-words"

    def __call__(self, corpus, queries, **kwargs):
        found = {}
        for query_id, query in queries.items():
            words = set(query.lower().split())
            scores = {id_: len(words & set(row["text"].lower().split())) for id_, row in corpus.items()}
            found[query_id] = dict(sorted(scores.items(), key=lambda pair: -pair[1])[: self.search_top_k])
        return found
'''


def test_a_retriever_of_air_benchmark_runs_unchanged(dataset, tmp_path):
    """Its class in a systems file, with and without arguments, and an object of it in Python."""
    pytest.importorskip("air_benchmark")
    one = {"name": "shared", "kind": "mine:Shared"}
    top = {"name": "top", "kind": "mine:Shared", "settings": {"search_top_k": 1}}
    loaded = named(tmp_path, one, top, mine=AIR_BENCH)
    shared, top = evaluate(dataset, loaded, tmp_path / "out", Options(folder=tmp_path))
    rankings = dict(read_run(shared.paths.run).items())
    assert len(rankings) == 3 and all(len(hits) == 5 for hits in rankings.values()) and shared.score > 0
    assert all(len(hits) == 1 for _, hits in read_run(top.paths.run).items())
    rows = [json.loads(line) for line in (dataset / "corpus.jsonl").read_text("utf-8").splitlines()]
    passages = {row["_id"]: set(f"{row.get('title', '')} {row['text']}".lower().split()) for row in rows}
    rows = [json.loads(line) for line in (dataset / "queries.jsonl").read_text("utf-8").splitlines()]
    asked = {row["_id"]: set(row["text"].lower().split()) for row in rows}
    assert all(score == len(asked[query] & passages[id_]) for query, hits in rankings.items() for id_, score in hits)


@pytest.mark.parametrize(
    ("answer", "message"),
    [("[1]", "is needed, not"), ("{'nobody': {}}", "unknown query 'nobody'"), ("1 / 0", "ZeroDivisionError")],
)
def test_a_wrong_answer_of_such_a_retriever_is_one_line(dataset, tmp_path, answer, message):
    code = f"class Bad:\n    def __call__(self, corpus, queries):\n        return {answer}\n"
    loaded = named(tmp_path, {"name": "bad", "kind": "bad:Bad"}, bad=code)
    with pytest.raises(AirgenError, match=message):
        evaluate(dataset, loaded, tmp_path / "out", Options(folder=tmp_path))


def test_costs_are_what_the_model_says(dataset, tmp_path):
    dense = {"name": "dense", "kind": "dense", "embedder": {"kind": "mine:Known"}}
    wanted = named(tmp_path, dense, BM25, {"name": "all", "kind": "fuse", "systems": ["dense", "bm25"]}, mine=OUTSIDE)
    costs = [result.costs for result in evaluate(dataset, wanted, tmp_path / "out", Options(folder=tmp_path))]
    assert [cost.parameters for cost in costs] == [26, None, 26]
    assert [cost.device for cost in costs] == ["abacus", "cpu", "abacus + cpu"]
    assert [cost.threads for cost in costs] == [3, None, 3]
    assert costs[0].index_bytes == 5 * 26 * 4 and costs[2].index_bytes == costs[0].index_bytes + costs[1].index_bytes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("systems: []", "systems"),
        ("systems: [{name: a, kind: bm52}]", r"unknown kind 'bm52' \(did you mean 'bm25'\?\)"),
        (
            "systems: [{name: a, kind: bm25, field: multi}]",
            r"yaml:1: systems.0.field: unknown key \(did you mean 'fields'\?\)",
        ),
        ("systems: [{name: a, kind: rerank, first: b, reranker: x, topp: 3}]", r"did you mean 'top'"),
        ("systems: [{name: a, kind: rerank, first: b, reranker: x}]", "builds on 'b', which is not a system"),
        ("systems: [{name: a, kind: rerank, first: a, reranker: x}]", "cannot build on itself"),
        ("systems: [{name: a, kind: run}]", "systems.0.path: is missing"),
        ("systems: [{name: a, kind: bm25}, {name: a, kind: bm25}]", "'a' appears twice"),
        ("systems: [{name: ../a, kind: bm25}]", "name"),
        ("systems: [{name: a, kind: http, url: 'ftp://x'}]", "url"),
        ("systems: [{name: a, kind: fuse, systems: [b, c], weights: [1]}]", "1 weights for 2 systems"),
        ("system: []", "unknown key"),
        ("systems: [{name: a, kind: bm25, datasets: {quora: {k2: 1}}}]", "systems.0.k2: unknown key"),
    ],
)
def test_a_wrong_systems_file_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "systems.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_systems(path)


def named(folder, *own, **modules):
    """The systems of a file beside modules of the user's; Python must not know their names from another test."""
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code)
        sys.modules.pop(name, None)
    (folder / "systems.yaml").write_text(json.dumps({"systems": own}))
    return load_systems(folder / "systems.yaml")


def test_the_retrievers_of_the_guide_run_as_they_stand_there(dataset, tmp_path):
    guide = (Path(__file__).parents[2] / "docs" / "14-extending.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in guide.split("```python\n")[1:]]
    function = next(block for block in blocks if "def search(queries, k" in block)
    class_ = next(block for block in blocks if "class Words" in block)
    mine = {"name": "mine", "kind": "mine:search", "settings": {"corpus": str(dataset / "corpus.jsonl")}}
    words = {"name": "words", "kind": "words:Words"}
    found = evaluate(
        dataset, named(tmp_path, mine, words, mine=function, words=class_), tmp_path / "o", Options(folder=tmp_path)
    )
    assert [one.name for one in found] == ["mine", "words"] and found[0].score == found[1].score > 0
    assert found[0].costs.batch_ms is not None and found[1].costs.index_seconds is not None


@pytest.mark.parametrize(
    "answer", ['[["p1", "p2"]] * n', '[{"p1": 2.0, "p2": 1.0}] * n', '[[("p1", 2), ("p2", 1)]] * n']
)
def test_a_function_gives_hits_in_any_usual_form(dataset, tmp_path, answer):
    code = f"def search(queries, k):\n    n = len(queries)\n    return {answer}\n"
    loaded = named(tmp_path, {"name": "f", "kind": "form:search"}, form=code)
    (found,) = evaluate(dataset, loaded, tmp_path / "out", Options(folder=tmp_path))
    ranked = dict(read_run(found.paths.run).ranked().items())
    assert [[passage for passage, _ in hits] for hits in ranked.values()] == [["p1", "p2"]] * 3


def test_a_system_that_finds_nothing_scores_zero_and_its_run_is_read_again(dataset, tmp_path):
    code = "def search(queries, k):\n    return [[]] * len(queries)\n"
    loaded = named(tmp_path, {"name": "nothing", "kind": "nothing_found:search"}, BM25, nothing_found=code)
    for _ in range(2):
        first, _ = evaluate(dataset, loaded, tmp_path / "out", Options(folder=tmp_path))
        assert first.means["nDCG@10"] == 0 and first.missing == 3
    assert len(read_own_run(first.paths.run)) == 0
    with pytest.raises(DatasetError, match="the run is empty"):
        read_run(first.paths.run)  # as one that somebody else has sent


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def search(queries, k): return [[]]", "the answer is a list of 1, but a list with the hits of each of the 3"),
        ("def search(queries, k): return {}", "the answer is a dict, but"),
        ("def search(queries, k): return [5] * len(queries)", "cats eat. .q1.: a list of passage ids, .* not 5"),
        ("def search(queries, k): return [[('p1', 'high')]] * len(queries)", "score 'high' is not a finite number"),
        ("def search(queries): return []", r"too many positional arguments: it must take \(queries, k\)"),
        ("class search:\n    pass", "has no nested class Settings"),
        ("", "retriever 'wrong:search' cannot be imported"),
        (
            "from airgen.retrievers import Component\nclass search(Component):\n    name = 's'\n"
            "    def index(self, corpus): pass\n    def search(self, queries, k): return [[1]]\n"
            "    def describe(self): return {}",
            "search.search must give Hits with positions and scores of 3 rows",
        ),
    ],
)
def test_a_retriever_of_the_users_that_gives_something_else_is_one_line(dataset, tmp_path, code, message):
    with pytest.raises((DatasetError, SettingsError, UsageError), match=message) as caught:
        loaded = named(tmp_path, {"name": "s", "kind": "wrong:search"}, wrong=code)
        evaluate(dataset, loaded, tmp_path / "out", Options(folder=tmp_path))
    assert "\n" not in str(caught.value)


def test_an_index_serves_other_queries_on_the_same_corpus(dataset, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(dataset, other)
    lines = (other / "queries.jsonl").read_text().splitlines()
    (other / "queries.jsonl").write_text("\n".join(lines[::-1][:-1]) + "\n")
    wanted = systems(BM25, {"name": "flat", "kind": "query-likelihood"})
    alone = evaluate(other, wanted, tmp_path / "alone")
    indexes = {}
    first = evaluate(dataset, wanted, tmp_path / "first", indexes=indexes)
    assert len(indexes) == 2 and all(result.costs.index_seconds is not None for result in first)
    shared = evaluate(other, wanted, tmp_path / "second", indexes=indexes)
    assert len(indexes) == 2 and all(result.costs.index_seconds is None for result in shared)
    for one, two in zip(alone, shared, strict=True):
        assert one.paths.run.read_bytes() == two.paths.run.read_bytes()


def test_scores_of_a_folder_with_any_name(tmp_path):
    folder = tmp_path / "it's [1] *?"
    folder.mkdir()
    path = folder / "a.parquet"
    scores = Scores(["q1", "q2"], (parse_measure("nDCG@10"),), np.array([[0.5, 1.0]]), 0, 0, 0)
    for _ in range(2):  # the second time the file is replaced
        write_scores(path, {"dataset": "d", "split": "test", "system": "s"}, scores)
    assert [one.name for one in folder.iterdir()] == ["a.parquet"]
    assert read_scores(path, "nDCG@10") == {"q1": 0.5, "q2": 1.0}
    path.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(DatasetError, match="cannot be read"):
        read_scores(path, "nDCG@10")


def test_no_connection_of_duckdb_can_reach_the_network_or_another_file():
    found = [path for path in Path(airgen.__file__).parent.rglob("*.py") if "duckdb.connect(" in path.read_text()]
    assert sorted(path.name for path in found) == ["sql_connections.py"]
    with in_memory() as base:
        for statement in ("SELECT * FROM read_csv('/etc/hosts')", "INSTALL httpfs", "COPY (SELECT 1) TO 'here.csv'"):
            with pytest.raises(duckdb.PermissionException):
                base.execute(statement)
        with pytest.raises(duckdb.Error):
            base.execute("SET enable_external_access = true")
