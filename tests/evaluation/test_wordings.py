"""Systems on every wording of a dataset's needs, against those on a dataset with these wordings as queries."""

import json
from pathlib import Path

import numpy as np
import pytest
from beir_folder import write_beir

from airgen.evaluation import EvaluationOptions, evaluate, load_systems
from airgen.evaluation.breakdown import overlap_class
from airgen.evaluation.result import all_scores
from airgen.evaluation.result_tables import fairness_lines
from airgen.evaluation.wordings import ByWording, by_wording, wordings_of
from airgen.python.results import Results

WORDS = ["wing", "load", "bend", "skin", "rivet", "fuel", "engine", "sound", "heat", "wake"]
SYSTEMS = """
systems:
  - {name: bm25, kind: bm25}
  - {name: grams, kind: bm25, analyser: {ngram: 4}}
  - {name: both, kind: fuse, systems: [bm25, grams]}
"""


def passages() -> list[dict[str, str]]:
    pairs = [(left, right) for left in WORDS for right in WORDS if left < right]
    return [
        {"_id": f"d{at}", "title": "", "text": f"the {left} and the {right}"} for at, (left, right) in enumerate(pairs)
    ]


def folder(tmp_path: Path, count: int = 30) -> tuple[Path, list[dict[str, object]]]:
    corpus = passages()[:count]
    queries = [{"_id": f"q{at}", "text": row["text"], "metadata": {"wording": "plain", "split": "test"}}
               for at, row in enumerate(corpus)]  # fmt: skip
    dataset = write_beir(
        tmp_path / "needs", corpus, queries, {"test": [(f"q{at}", f"d{at}", 1) for at in range(count)]}
    )
    wordings = []
    for at, row in enumerate(corpus):
        first, second = row["text"].split()[1], row["text"].split()[-1]
        for name, text, share in (("plain", row["text"], 1.0), ("terms", f"{second} {first}", 1.0),
                                  ("lay", f"{first}s somewhere", 0.5)):  # fmt: skip
            about = {"split": "test", "wording": name, "overlap": share}
            wordings.append({"_id": f"q{at}.{name}", "query-id": f"q{at}", "text": text, "metadata": about})
    (dataset / "wordings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in wordings), encoding="utf-8")
    return dataset, wordings


@pytest.fixture
def systems(tmp_path: Path) -> Path:
    path = tmp_path / "systems.yaml"
    path.write_text(SYSTEMS, encoding="utf-8")
    return path


def test_scores_on_wordings_are_those_of_a_dataset_with_these_queries(tmp_path: Path, systems: Path) -> None:
    dataset, wordings = folder(tmp_path)
    results = evaluate(dataset, load_systems(systems), tmp_path / "results", EvaluationOptions())
    queries = [{"_id": row["_id"], "text": row["text"]} for row in wordings]
    labels = [(str(row["_id"]), "d" + str(row["query-id"])[1:], 1) for row in wordings]
    oracle = write_beir(tmp_path / "oracle", passages()[:30], queries, {"test": labels})
    expected = evaluate(oracle, load_systems(systems), tmp_path / "other", EvaluationOptions())
    for result, wanted in zip(results, expected, strict=True):
        beside = wordings_of(result)
        assert beside is not None and beside.queries == 90
        (got,), (best,) = (all_scores([each.paths.scores], "nDCG@10") for each in (beside, wanted))
        assert got == best
    table = by_wording(results)
    assert table is not None and list(table.scores) == ["terms", "plain", "lay"]
    assert [(label, count) for label, count, _ in table.classes()] == [("0.4-0.6", 30), ("0.8-1.0", 60)]
    assert fairness_lines(results)[-1] == table.sentence
    chart = (tmp_path / "results" / "needs" / "test" / "overlap.svg").read_text(encoding="utf-8")
    assert all(name in chart for name in ("bm25", "grams", "both", "0.4-0.6 (30)", "0.8-1.0 (60)"))
    assert "<svg" in Results(results).plot("overlap").svg


def test_what_was_run_is_kept_and_a_changed_wording_runs_again(tmp_path: Path, systems: Path) -> None:
    dataset, _ = folder(tmp_path)
    first = evaluate(dataset, load_systems(systems), tmp_path / "results", EvaluationOptions())
    run = wordings_of(first[0]).paths.run  # type: ignore[union-attr]
    before = run.stat().st_mtime_ns
    evaluate(dataset, load_systems(systems), tmp_path / "results", EvaluationOptions())
    assert run.stat().st_mtime_ns == before
    text = (dataset / "wordings.jsonl").read_text(encoding="utf-8").replace("somewhere", "elsewhere")
    (dataset / "wordings.jsonl").write_text(text, encoding="utf-8")
    evaluate(dataset, load_systems(systems), tmp_path / "results", EvaluationOptions())
    assert run.stat().st_mtime_ns != before


def test_a_run_file_has_no_hits_for_wordings(tmp_path: Path) -> None:
    dataset, _ = folder(tmp_path)
    (tmp_path / "own.run").write_text("".join(f"q{at} Q0 d{at} 1 1.0 own\n" for at in range(30)), encoding="utf-8")
    path = tmp_path / "systems.yaml"
    path.write_text(SYSTEMS + "  - {name: own, kind: run, path: own.run}\n", encoding="utf-8")
    results = evaluate(dataset, load_systems(path), tmp_path / "results", EvaluationOptions())
    assert {result.name for result in results if wordings_of(result) is None} == {"own"}
    assert by_wording(results) is not None


def made(**of: list[list[float]]) -> ByWording:
    """Two systems, a and b, with a score for each query of each wording."""
    scores = {name: np.array(rows, np.float64) for name, rows in of.items()}
    overlaps = {name: [0.5] * rows.shape[1] for name, rows in scores.items()}
    return ByWording(("a", "b"), scores, overlaps, "nDCG@10")


def test_the_sentence_says_which_system_leads_for_whom() -> None:
    good, bad = [0.9, 0.8] * 20, [0.1, 0.3] * 20
    depends = made(terms=[good, bad], lay=[bad, good])
    assert depends.depends
    assert depends.sentence == (
        "the order depends on how users word their queries: a leads if users type the documents' terms, b leads if "
        "users use everyday words; ten real queries would decide (airgen run --like LOG)"
    )
    holds = made(terms=[good, bad], lay=[good, bad])
    assert not holds.depends and holds.sentence.startswith(
        "the order of the leading systems holds for every wording: a"
    )
    few = made(terms=[good[:9], bad[:9]], lay=[bad[:9], good[:9]])
    assert "too few to tell" in few.sentence


@pytest.mark.parametrize(("share", "label"), [(0.0, "0.0-0.2"), (0.2, "0.0-0.2"), (0.21, "0.2-0.4"), (1.0, "0.8-1.0")])
def test_classes_of_overlap(share: float, label: str) -> None:
    assert overlap_class(share) == label
