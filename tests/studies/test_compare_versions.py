"""`airgen study compare`: anchors on two versions, with runs whose scores are known, and what was carried over."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from beir_folder import write_beir
from command_line import call
from dataset_maker import make_content

from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.systems import load_systems
from airgen.publishing.withhold import public_part
from airgen.studies.compare_versions import Anchors, VersionComparison, compare_versions

SYSTEMS = ("good", "fair", "poor")


def write_hits(path: Path, hits: dict[str, list[str]]) -> None:
    """A TREC run with the passages of each query in this order."""
    rows = [f"{q} Q0 {d} {at} {100 - at} x\n" for q, order in hits.items() for at, d in enumerate(order, 1)]
    path.write_text("".join(rows), encoding="utf-8")


def write_version(home: Path, name: str, first: int, *ranks: list[int]) -> Path:
    """A dataset with 40 queries from number `first` on, and a run of each system: at which rank the positives are."""
    numbers = range(first, first + 40)
    corpus = [{"_id": f"d{n}", "title": "", "text": f"passage number {n}"} for n in numbers]
    corpus += [{"_id": f"x{n}", "title": "", "text": f"other passage {n}"} for n in range(10)]
    queries = [{"_id": f"q{n}", "text": f"query number {n}"} for n in numbers]
    write_beir(home / name, corpus, queries, {"test": [(f"q{n}", f"d{n}", 1) for n in numbers]})
    for system, places in zip(SYSTEMS, ranks, strict=True):
        hits = {f"q{n}": [*(f"x{at}" for at in range(places[n % len(places)] - 1)), f"d{n}"] for n in numbers}
        write_hits(home / "runs" / f"{name}-{system}.run", hits)
    return home / name


def compared(old: Path, new: Path, systems: tuple[str, ...] = (), **options: str) -> VersionComparison:
    home, anchors = old.parent, None
    if systems:
        path = write_anchors(home, systems)
        anchors = Anchors(load_systems(path), path.parent, path.parent / "out", "RR@10")
    return compare_versions(old, new, anchors, **options)


def write_anchors(home: Path, systems: tuple[str, ...] = SYSTEMS) -> Path:
    rows = "".join(f"  - {{name: {one}, kind: run, path: '{home}/runs/{{dataset}}-{one}.run'}}\n" for one in systems)
    (home / "anchors.yaml").write_text("systems:\n" + rows, encoding="utf-8")
    return home / "anchors.yaml"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path


def test_a_version_agrees_with_itself_in_every_resampling(home: Path) -> None:
    for name in ("a", "b"):
        write_version(home, name, 0, [1, 2], [2, 1], [3, 2])
    found = compared(home / "a", home / "b", SYSTEMS)
    (ranking,) = found.rankings
    # good and fair are equal, and change places from draw to draw: in both versions together.
    assert ranking.old_means == ranking.new_means == (0.75, 0.75, pytest.approx(5 / 12))
    assert (ranking.spearman.value, ranking.spearman.low, ranking.spearman.high) == (1.0, 1.0, 1.0)
    assert (ranking.kendall.low, ranking.kendall.high, ranking.turned, ranking.pairs) == (1.0, 1.0, (), 3)
    rows = [(row.kind, row.same, row.added, row.gone) for row in found.carried]
    assert rows == [("queries", 40, 0, 0), ("passages", 50, 0, 0), ("labels", 40, 0, 0)]


def test_pairs_that_turned_and_for_certain(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_version(home, "a", 0, [1], [2], [4])
    write_version(home, "b", 30, [2], [1], [4])
    write_version(home, "c", 100, [2], [2] * 39 + [1], [4])
    (certain,) = compared(home / "a", home / "b", SYSTEMS).rankings
    assert (certain.spearman.value, round(certain.kendall.value, 4), certain.pairs) == (0.5, 0.3333, 3)
    (pair,) = certain.turned
    assert (pair.first, pair.second, pair.old_difference, pair.new_difference) == ("good", "fair", 0.5, -0.5)
    assert pair.significant == "both"
    (perhaps,) = compared(home / "a", home / "c", SYSTEMS).rankings
    (pair,) = perhaps.turned
    assert pair.significant == "old"
    assert perhaps.spearman.low == 0.5 and perhaps.spearman.high > 0.8  # in some draws good and fair are equal
    assert (perhaps.old_queries, perhaps.new_queries) == (40, 40)

    monkeypatch.chdir(home)
    arguments = ("study", "compare", "a", "b", "--systems", write_anchors(home), "--measure", "RR@10")
    said = call(*arguments)
    assert "b: good > fair turned: +0.5000 (<.0001) -> -0.5000 (<.0001), significant in both versions" in said
    value = json.loads(call(*arguments, "--json"))
    assert value == json.loads(Path("compare/comparison.json").read_text())
    assert value["rankings"][0]["spearman"]["value"] == 0.5


def test_the_mean_over_datasets_counts_each_dataset_once(home: Path) -> None:
    for side, names in (("old", ["one", "two"]), ("new", ["one", "two", "three"])):
        digests = {}
        for name in names:
            info = dataclasses.replace(make_content().info, name=name)
            key = f"qa_science_en/{name}"
            content = make_content(n_queries=9 if name == "two" else 6, info=info)
            digests[key] = write_dataset(home / "suites" / side / key, content).digest
        (home / "suites" / side / "suite.json").write_text(json.dumps({"name": "s", "datasets": digests}))
    for place, system in enumerate(SYSTEMS):
        for name, share in (("one", 6), ("two", 9), ("three", 6)):
            order = [f"doc{9 + at:03d}" for at in range(place)]
            hits = {f"q-{n:02d}": [*order, f"doc{n:03d}"] for n in range(share - 2 * place)}
            write_hits(home / "runs" / f"{name}-{system}.run", hits)
    systems = write_anchors(home)
    anchors = Anchors(load_systems(systems), home, home / "out", "RR@10")
    found = compare_versions(home / "suites/old", home / "suites/new", anchors, split="all")
    assert (found.only_old, found.only_new) == ((), ("qa_science_en/three",))
    assert [one.name for one in found.rankings] == ["qa_science_en/one", "qa_science_en/two", "all datasets (RR@10)"]
    whole = found.rankings[-1]
    assert (whole.old_queries, whole.new_queries) == (15, 21)
    np.testing.assert_allclose(whole.old_means, np.mean([one.old_means for one in found.rankings[:2]], axis=0))
    assert whole.spearman.value == 1.0


def test_what_was_carried_over(home: Path) -> None:
    old = [("q1", "same"), ("q2", "moves"), ("q3", "is changed"), ("q4", "goes"), ("q5", "twin"), ("q6", "twin")]
    new = [("q1", "same"), ("n2", "moves"), ("q3", "was changed"), ("n5", "twin"), ("n7", "comes")]
    texts = {"d1": "one", "d2": "two", "d3": "three"}
    later = {"d1": "one", "e2": "two", "d3": "three, changed", "d4": "four"}
    for name, queries, passages, labels in (
        ("a", old, texts, [("q1", "d1", 1), ("q2", "d2", 1), ("q2", "d1", 0), ("q1", "d3", 1), ("q4", "d1", 1)]),
        ("b", new, later, [("q1", "d1", 1), ("n2", "e2", 0), ("q1", "d4", 1), ("n7", "d1", 1), ("n2", "d1", 0)]),
    ):
        known = {query for query, _, _ in labels}
        labels += [(query, "d1", 1) for query, _ in queries if query not in known]
        corpus = [{"_id": key, "title": "", "text": text} for key, text in passages.items()]
        write_beir(home / name, corpus, [{"_id": key, "text": text} for key, text in queries], {"test": labels})
    queries, passages, labels = compared(home / "a", home / "b").carried
    counts = ("old", "new", "same", "renamed", "changed", "added", "gone")
    assert [getattr(queries, one) for one in counts] == [6, 5, 1, 2, 1, 1, 2]
    assert [getattr(passages, one) for one in counts] == [3, 4, 1, 1, 1, 1, 0]
    # q1: d1 same, d3 gone, d4 added; q2: d2 changed to 0, d1 same; one twin: same.
    assert [getattr(labels, one) for one in counts] == [5, 5, 3, 0, 1, 1, 1]


def test_what_cannot_be_compared(home: Path) -> None:
    for name in ("a", "b"):
        write_version(home, name, 0, [1], [2], [3])
    with pytest.raises(UsageError, match=r"2 system\(s\): the rankings of 3 or more"):
        compared(home / "a", home / "b", ("good", "poor"))
    with pytest.raises(DatasetError, match="no split 'tset'"):
        compared(home / "a", home / "b", split="tset")
    (home / "b/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nz1\td1\t1\n")
    with pytest.raises(DatasetError, match="labels belong to another dataset or version"):
        compared(home / "a", home / "b")
    dataset = home / "whole"
    write_dataset(dataset, make_content())
    public_part(dataset, home / "public", ["test"])
    assert [row.kind for row in compared(dataset, home / "public").carried] == ["queries", "passages"]
    with pytest.raises(DatasetError, match="the labels of test are private"):
        compared(dataset, home / "public", SYSTEMS)
    corpus = (home / "public/corpus.jsonl").read_bytes()
    (home / "public/corpus.jsonl").unlink()
    (home / "public/corpus.jsonl").write_bytes(corpus + b"\n")
    with pytest.raises(DatasetError, match=r"public/corpus\.jsonl was edited after the dataset was made"):
        compared(dataset, home / "public")
