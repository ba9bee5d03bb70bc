"""Accuracy by answer strings: DPR's own matcher as the oracle, a table by hand, and where answers come from."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import regex
from beir_folder import write_beir
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.evaluation import EvaluationOptions, evaluate, load_systems
from airgen.evaluation.breakdown import answer_accuracy, has_answer, token_line
from airgen.evaluation.dataset_split import DatasetSplit, answers_of
from airgen.evaluation.run import run_from_dict
from airgen.retrievers import Passages


def dpr(answer: str, passage: str) -> bool:
    """Whether DPR finds the answer, as its paper's code does it: `SimpleTokenizer`, then windows of the passage."""

    def words(text: str) -> list[str]:
        found = regex.findall(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", unicodedata.normalize("NFD", text))
        return [(one or other).lower() for one, other in found]

    wanted, every = words(answer), words(passage)
    return bool(wanted) and any(
        every[place : place + len(wanted)] == wanted for place in range(len(every) - len(wanted) + 1)
    )


TEXTS = st.text(st.sampled_from("aA1bé-'. \t\n\u0301\u00a0_\u2028жЖ\u200d"), max_size=12)


@given(TEXTS, TEXTS, TEXTS)
@settings(max_examples=200, deadline=None)
def test_an_answer_is_found_where_dpr_finds_it(before: str, answer: str, after: str) -> None:
    for passage in (before + answer + after, before + after, f"{before} {answer} {after}"):
        assert has_answer(token_line(passage), [token_line(answer)]) == dpr(answer, passage)


@pytest.mark.parametrize(
    ("answer", "passage", "found"),
    [
        ("Noël", "They met at NOE\u0308L, in 1999.", True),  # NFC and NFD, capitals
        ("北京", "他们在北京大学见面。", True),  # a script without spaces: each character is a token
        ("北大", "他们在北京大学见面。", False),
        ("กรุงเทพ", "ฉันอยู่กรุงเทพมหานคร", True),
    ],
)
def test_cases(answer: str, passage: str, found: bool) -> None:
    assert has_answer(token_line(passage), [token_line(answer)]) == found


FOUND = {f"d{place:03}": float(-place) for place in range(120)}


def corpus_with(**texts: str) -> Passages:
    return Passages(list(FOUND), [texts.get(key, "nothing here") for key in FOUND], ["Paris" for _ in FOUND])


def test_a_table_worked_out_by_hand() -> None:
    """First ranks with an answer: 5, 6, 100, 101, never, no result. So 1, 2, 3 of 6 at 5, 20, 100."""
    corpus = corpus_with(d004="in Oslo", d005="Bergen!", d099="(Bodø)", d100="Narvik", d101="Oslo")
    answers = {"a": ["Nowhere", "Oslo"], "b": ["bergen"], "c": ["Bodø"], "d": ["Narvik"], "e": ["Paris"], "f": ["Oslo"]}
    run = run_from_dict(dict.fromkeys("abcdex", FOUND))
    found = answer_accuracy(run, {**answers, "g": [" "]}, corpus)  # an answer without a token is none
    assert {name: three[0] for name, three in found.items()} == {
        "Answer@5": pytest.approx(1 / 6), "Answer@20": pytest.approx(2 / 6), "Answer@100": pytest.approx(3 / 6)
    }  # fmt: skip
    assert all(low <= mean <= high for mean, low, high in found.values())
    assert list(answer_accuracy(run, answers, corpus, depth=20)) == ["Answer@5", "Answer@20"]
    assert answer_accuracy(run, {}, corpus) == {} == answer_accuracy(run, {"a": [""]}, corpus)
    lines: dict[int, str] = {}
    assert answer_accuracy(run, {"a": ["Oslo"]}, corpus, lines=lines)["Answer@5"] == pytest.approx(
        (1.0, 1 / (1 + 1.959964**2), 1.0)
    )
    assert sorted(lines) == [0, 1, 2, 3, 4]  # no passage behind the first with an answer is read


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (["a", "b"], ["a", "b"]),
        ("a", ["a"]),
        ({"text": ["a"], "answer_start": [3]}, ["a"]),
        ([1, None, "a"], ["a"]),
        (None, []),
        ({"text": {}}, []),
    ],
)
def test_answers_of_metadata(value: Any, found: list[str]) -> None:
    assert answers_of({"answers": value}) == found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three passages and queries; of the third query no answer is known."""
    corpus = [
        {"_id": "d1", "title": "Bees", "text": "Workers fan the honey until most of the water is gone."},
        {"_id": "d2", "title": "", "text": "A queen lays the eggs of the colony."},
        {"_id": "d3", "title": "", "text": "In winter the bees eat what they have stored: honey."},
    ]
    queries = [
        {"_id": "q1", "text": "who lays eggs in the colony", "metadata": {"answers": ["the queen", "A queen"]}},
        {"_id": "q2", "text": "what do bees eat in winter", "metadata": {"answers": {"text": ["nectar"]}}},
        {"_id": "q3", "text": "why fan the honey"},
    ]
    return Path(
        write_beir(tmp_path / "bees", corpus, queries, {"test": [("q1", "d2", 1), ("q2", "d3", 1), ("q3", "d1", 1)]})
    )


SYSTEMS = "systems:\n  - {name: bm25, kind: bm25}\n  - {name: grams, kind: bm25, analyser: {ngram: 3}}\n"


def test_evaluate_reports_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "systems.yaml").write_text(SYSTEMS)
    systems = load_systems(tmp_path / "systems.yaml")
    first, _ = evaluate(folder, systems, tmp_path / "out")
    assert {name: three[0] for name, three in first.answers.items()} == dict.fromkeys(
        ("Answer@5", "Answer@20", "Answer@100"), 0.5
    )
    report = (first.paths.json.parent / "report.md").read_text()
    assert "Share of the 2 queries with known answers" in report and "0.500 (0.000–1.000)" in report
    assert ",Answer@5,0.500000," in (first.paths.json.parent / "results.csv").read_text()
    kept, _ = evaluate(folder, systems, tmp_path / "out")
    assert kept.cached and kept.answers == first.answers
    # The reference answers of a job count with their quotes, and others make the scores anew.
    (folder / "answers").mkdir()
    row = {"query-id": "q2", "corpus-id": "d3", "answer": "Their honey.", "quote": "they have stored"}
    (folder / "answers" / "test.jsonl").write_text(json.dumps({**row, "start": 0, "end": 1}) + "\n")
    again, _ = evaluate(folder, systems, tmp_path / "out")
    assert again.cached and again.answers["Answer@5"][0] == 1.0
    short, _ = evaluate(folder, systems, tmp_path / "short", EvaluationOptions(top=5))
    assert list(short.answers) == ["Answer@5"]


def test_a_damaged_file_and_a_withheld_split(folder: Path) -> None:
    (folder / "answers").mkdir()
    (folder / "answers" / "test.jsonl").write_text('{"query-id": "q1", "answer": 7, "quote": ""}\n')
    with pytest.raises(DatasetError, match=r"test\.jsonl:1: a line needs the text fields `query-id`, `answer` and"):
        _ = DatasetSplit(BeirDataset.open(folder), "test", "en").answers
    (folder / "manifest.json").write_text(json.dumps({"withheld": ["hidden"]}))
    task = DatasetSplit(BeirDataset.open(folder), "hidden", "en")
    assert task.answers == {}
