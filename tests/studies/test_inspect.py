"""`airgen study inspect`: each known fault of a benchmark is found by its name, and a sound one has none."""

import json
import math
import random
import re

import numpy as np
import pytest
from beir_folder import write_beir
from command_line import call

from airgen.errors import DatasetError, UsageError
from airgen.evaluation.measures import score
from airgen.evaluation.run import run_from_dict, write_run
from airgen.studies.inspect.checks import CHECKS, finding, verdict
from airgen.studies.inspect.inspect_dataset import inspect_dataset, inspection_study, inspection_text
from airgen.studies.inspect.measures import by_systems, copied, random_floor

WORDS = [a + b + c for a in ("ba", "ko", "mi", "tu") for b in ("ra", "len", "sor", "pin", "dak") for c in "aeiou"]
SYSTEMS = """systems:
  - {name: bm25, kind: bm25}
  - {name: lsa-40, kind: lsa, dim: 40}
  - {name: lsa-5, kind: lsa, dim: 5}
"""


class Bench:
    """A sound benchmark: a query has some words of its passage and some of others."""

    def __init__(self, seed=1, passages=150, queries=60):
        draw = random.Random(seed)
        self.passages = [draw.choices(WORDS, k=draw.randint(15, 45)) for _ in range(passages)]
        self.titles = [""] * passages
        self.relevant = draw.sample(range(passages), queries)
        self.queries = [draw.sample(self.passages[place], 4) + draw.choices(WORDS, k=4) for place in self.relevant]
        self.splits = {"test": range(queries)}

    def write(self, folder, **info):
        corpus = [
            {"_id": f"p{place}", "title": title, "text": " ".join(words)}
            for place, (title, words) in enumerate(zip(self.titles, self.passages, strict=True))
        ]
        queries = [{"_id": f"q{place}", "text": " ".join(words)} for place, words in enumerate(self.queries)]
        labels = {
            split: [(f"q{place}", f"p{self.relevant[place]}", 1) for place in rows]
            for split, rows in self.splits.items()
        }
        return write_beir(folder, corpus, queries, labels, **{"name": "bench", "language": "id", **info})


@pytest.fixture
def systems(tmp_path):
    path = tmp_path / "systems.yaml"
    path.write_text(SYSTEMS)
    return path


@pytest.fixture
def look(tmp_path, systems):
    def found(bench, **more):
        folder = bench.write(tmp_path / "data")
        return inspect_dataset(folder, systems=systems, out=tmp_path / "out", **more)

    return found


def faults(found):
    return {one.name for one in found.findings if one.state == "bad"}


def of(found, name):
    return next(one for one in found.findings if one.name == name)


def test_faults_of_texts_are_found_by_their_names(look, tmp_path):
    other = Bench(seed=5)
    other.queries[:30] = Bench().queries[20:50]
    other.write(tmp_path / "other", name="other")
    bench = Bench()
    for place in range(20):
        bench.queries[place] = bench.passages[bench.relevant[place]][2:10]  # copied, or the title
        if place >= 10:
            bench.queries[place] = bench.queries[place][::-1]
            bench.titles[bench.relevant[place]] = " ".join(bench.queries[place]).upper()
    for place in bench.relevant[20:32]:
        bench.passages.append([word.upper() for word in bench.passages[place]])
        bench.titles.append("")
    for place in range(20, 32):
        bench.queries[place + 20] = bench.queries[place][::-1]
    for place in range(52, 60):
        bench.queries[place] = f"what is the name of this when it is not there{place}".split()  # like each other
    bench.queries += [query[::-1] for query in bench.queries[:18]]
    bench.relevant += bench.relevant[:18]
    bench.splits = {"test": range(60), "train": range(60, 78)}
    found = look(bench, against=[tmp_path / "other"])
    shares = {"copied words": 20, "copies of positives": 12, "duplicate queries": 19, "language": 8, "leaks": 18}
    assert {name: of(found, name).value for name in shares} == {
        name: pytest.approx(count / 60) for name, count in shares.items()
    }
    assert {*shares, "contamination"} <= faults(found)
    assert of(found, "copies of positives").examples[0] == "query q20, passage p150"
    assert of(found, "duplicate queries").examples[0] == "q40 = q20"
    assert of(found, "leaks").examples[0] == "q0 = train q60"
    assert "18 of 60 relevant passages" in of(found, "leaks").detail
    (known,) = found.as_dict()["contamination"]
    assert (known["collection"], known["queries_exact"]) == ("other", 20)


def test_a_saturated_benchmark_is_found(look):
    bench = Bench()
    bench.queries = [sorted(set(bench.passages[place])) for place in bench.relevant]
    found = faults(look(bench))
    assert {"saturation", "solved by all"} <= found and "copied words" not in found


def test_labels_without_texts_and_queries_without_a_positive_are_found(look, tmp_path, systems):
    bench = Bench()
    folder = bench.write(tmp_path / "data")
    lines = "".join(f"q{place}\tlost{place}\t1\nq{place}\tp1\t0\n" for place in range(6))
    lines += "".join(f"q{place}\tp{bench.relevant[place]}\t{int(place > 11)}\n" for place in range(6, 60))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    found = inspect_dataset(folder, systems=systems, out=tmp_path / "out")
    assert {"dangling", "no positive"} <= faults(found)
    assert (of(found, "dangling").value, of(found, "no positive").value) == pytest.approx((6 / 66, 6 / 60))
    assert of(found, "no positive").examples == ("q6", "q7", "q8", "q9", "q10")


def test_the_random_floor_is_the_mean_of_random_orders():
    labels = {"a": {"p1": 2.0, "p2": 1.0, "p3": 0.0}, "b": {"p4": 1.0}}
    draw = np.random.default_rng(0)
    ids = [f"p{place}" for place in range(1, 31)]
    for measure in ("nDCG@10", "Recall@10"):
        means = []
        for _ in range(1000):
            run = run_from_dict({key: dict(zip(ids, draw.random(30).tolist(), strict=True)) for key in labels})
            means.append(score(run, labels, measure).means()[measure])
        assert random_floor(labels, measure, 30) == pytest.approx(np.mean(means), abs=3 * np.std(means) / 1000**0.5)


def test_ten_systems_have_a_stable_top_five_only_if_they_differ():
    draw = np.random.default_rng(3)
    labels = {f"q{place}": {"p0": 1.0} for place in range(80)}

    def runs(gap):
        return {
            f"s{system}": run_from_dict(
                {key: {"p0": float(draw.random() + gap * system), "p1": 0.5 + 0.05 * gap, "p2": 0.4} for key in labels}
            )
            for system in range(10)
        }

    found = []
    for gap in (0.0, 0.08):
        made = runs(gap)
        scores = {name: score(run, labels, "nDCG@10").values[0] for name, run in made.items()}
        found.append({one.name: one for one in by_systems(made, scores, labels, "nDCG@10", 50)})
    same, apart = found
    assert same["top five"].value < apart["top five"].value
    assert same["reliability"].state == "bad" and apart["reliability"].value > same["reliability"].value
    assert same["significant pairs"].value == 0 < apart["significant pairs"].value


@pytest.mark.parametrize(
    ("query", "title", "text", "expected"),
    [
        ("The wing bends under heavy load", "", "We saw that the wing bends under heavy loads and breaks.", True),
        ("The wing bends under load", "Wings", "The wing, under load, bends.", False),
        ("Wing load", "wing LOAD", "Something else.", True),
        ("wing load", "", "wing load", False),  # a run of two words is not copied
        ("机翼在重载下弯曲吗", "", "机翼在重载下弯曲吗？是的。", True),
    ],
)
def test_copied(query, title, text, expected):
    assert copied(query, title, text, "zh" if "机" in query else "en") is expected


def test_limits_go_both_ways_and_nan_says_nothing():
    assert [CHECKS["saturation"].state(value) for value in (0.89, 0.9, 0.95)] == ["good", "look", "bad"]
    assert [CHECKS["reliability"].state(value) for value in (0.91, 0.9, 0.7)] == ["good", "look", "bad"]
    assert [CHECKS["leaks"].state(value) for value in (0.0, 0.001, 0.05)] == ["good", "look", "bad"]
    assert CHECKS["saturation"].state(math.nan) == "unknown"
    assert verdict([finding("saturation", 0.5, "")]) == "No problems were found."
    assert all(check.source and check.advice and check.meaning for check in CHECKS.values())


def test_given_runs_are_scored_and_foreign_ones_refused(tmp_path, systems):
    bench, runs = Bench(queries=20), tmp_path / "runs"
    folder = bench.write(tmp_path / "data")
    runs.mkdir()
    perfect = {f"q{place}": {f"p{one}": 1.0} for place, one in enumerate(bench.relevant)}
    write_run(runs / "perfect.run.gz", run_from_dict(perfect), "x")
    found = inspect_dataset(folder, out=tmp_path / "out", results=runs)
    assert {name: one.value for name, one in found.systems.items()} == {"perfect": 1.0}
    assert {"saturation", "queries"} <= faults(found)
    assert of(found, "reliability").state == "unknown" and "3 are needed" in of(found, "reliability").detail
    write_run(runs / "b.run", run_from_dict({"other": {"p1": 1.0}}), "x")
    # Results of another version of the dataset.
    call("evaluate", folder, "--systems", systems, "--out", tmp_path / "res")
    assert len(inspect_dataset(folder, out=tmp_path / "o", results=tmp_path / "res").systems) == 3
    bench.passages[0] = ["other"]
    bench.write(folder)
    for results, words in (
        (runs, r"b\.run: the run and the labels have no query in common"),
        (tmp_path, "leave out --results"),
        (tmp_path / "res", "another version of bench"),
    ):
        with pytest.raises(DatasetError, match=words):
            inspect_dataset(folder, out=tmp_path / "o", results=results)


def test_systems_that_cannot_run_are_left_out_and_said(tmp_path, systems):
    lost = "  - {name: lost, kind: dense, embedder: all-mpnet-base-v2}\n"
    systems.write_text(SYSTEMS + lost + "  - {name: both, kind: fuse, systems: [bm25, lost]}\n")
    folder = Bench().write(tmp_path / "data")
    found = inspect_dataset(folder, systems=systems, out=tmp_path / "out")
    assert len(found.systems) in (3, 5)  # a machine can have fetched the model
    assert len(found.left_out) == 5 - len(found.systems)
    systems.write_text("systems: [{name: far, kind: http, url: 'http://127.0.0.1:9/x'}]")
    with pytest.raises(UsageError, match=r"systems\.yaml"):
        inspect_dataset(folder, systems=systems, out=tmp_path / "out2")


def test_the_page_is_safe_and_whole_and_random_labels_are_found(tmp_path, systems):
    bench = Bench()
    random.Random(2).shuffle(bench.relevant)
    folder = bench.write(tmp_path / "data", name="<script>alert(1)</script>\u202e\x1b[31m")
    found = inspect_dataset(folder, systems=systems, out=tmp_path / "out")
    assert {"random labels", "unsolved"} <= faults(found)
    assert "Do not rank systems" in found.verdict and "random labels" in found.verdict
    text = inspection_study(found).html()
    assert not {"script", "img", "link"} & set(re.findall(r"<(\w+)", text))
    assert not re.search(r"<[^>]*\s(on\w+|src|style)=", text)
    assert "default-src 'none'" in text and "\x1b" not in text and "\u202e" not in text
    assert "<code>airgen audit sample</code>" in text and "`" not in text
    assert "\x1b" not in inspection_text(found) and "Random labels" in inspection_text(found)


def test_a_sound_benchmark_has_no_fault_and_the_command_writes_a_page_and_json(look, tmp_path, systems):
    found, folder = look(Bench()), tmp_path / "data"
    assert faults(found) == set()
    assert {one.name for one in found.findings} == set(CHECKS)
    assert 0.2 < of(found, "saturation").value < 0.9
    assert next(iter(found.systems.values())).value == of(found, "saturation").value
    assert "until these problems are fixed" not in found.verdict
    text = call("study", "inspect", folder, "--systems", systems, "--out", tmp_path / "out")
    assert "Split-half reliability" in text and "inspect.html" in text
    value = json.loads(call("study", "inspect", folder, "--systems", systems, "--out", tmp_path / "out", "--json"))
    assert value == json.loads((tmp_path / "out" / "inspect.json").read_text())
    assert value == json.loads(json.dumps(found.as_dict())) and value["verdict"] in text
    with pytest.raises(UsageError, match="give either --results"):
        call("study", "inspect", folder, "--systems", systems, "--results", tmp_path)
