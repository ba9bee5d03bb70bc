"""Answers one by one: what belongs to the sample, and what is kept apart from it."""

import json
from pathlib import Path
from typing import Any

import pytest

from airgen.errors import AirgenError, DatasetError
from airgen.quality.audit.page import Chosen, add_answer, chosen_pairs, read_chosen, saved_answers
from airgen.quality.audit.sample import AuditItem, AuditSample, read_answers, score

ITEMS = tuple(AuditItem(f"q{n}", f"d{n}", "positive", 3, True) for n in range(1, 5))
SAMPLE = AuditSample("toy", 2, ITEMS[:3], {"positive, level 3": 30})


def test_answers_to_the_sample_are_read_and_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "audit" / "audit-answers.json"
    assert saved_answers(path, SAMPLE) == {"key": SAMPLE.key, "dataset": "toy", "answers": {}, "others": []}
    add_answer(path, SAMPLE, {"number": 1, "level": 3})
    add_answer(path, SAMPLE, {"number": 2, "level": None})
    add_answer(path, SAMPLE, {"number": 3, "level": 0})
    add_answer(path, SAMPLE, {"number": 3, "level": 2})  # changed
    add_answer(path, SAMPLE, {"query": "q4", "document": "d4", "level": 0, "seen": False})
    add_answer(path, SAMPLE, {"query": "q2", "document": "d2", "level": 0, "seen": True})
    found = add_answer(path, SAMPLE, {"query": "q2", "document": "d2", "level": 3, "seen": True})
    assert json.loads(path.read_text()) == found == saved_answers(path, SAMPLE)
    assert read_answers(path, SAMPLE) == {1: 3, 2: None, 3: 2}
    others = read_chosen(path)
    assert others == [Chosen("q4", "d4", 0, False), Chosen("q2", "d2", 3, True)]
    # The estimate is that of the answers to the sample alone.
    assert score(SAMPLE, [read_answers(path, SAMPLE)]) == score(SAMPLE, [{1: 3, 2: None, 3: 2}])
    assert chosen_pairs(ITEMS, [*others, Chosen("q9", "d9", 3, True), Chosen("q1", "d1", None, True)], 2) == {
        "pairs": 4, "confirmed": 1, "unknown": 1, "cannot say": 1,
    }  # fmt: skip
    # An answer can be taken back.
    add_answer(path, SAMPLE, {"number": 1})
    found = add_answer(path, SAMPLE, {"query": "q4", "document": "d4"})
    assert found["answers"] == {"2": None, "3": 2} and [one["query"] for one in found["others"]] == ["q2"]
    assert [one.name for one in path.parent.iterdir()] == ["audit-answers.json"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("a file stands where the folder should be")
    with pytest.raises(AirgenError, match="audit"):
        add_answer(tmp_path / "audit" / "audit-answers.json", SAMPLE, {"number": 1, "level": 3})


def test_without_a_sample_every_pair_is_chosen_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "audit-answers.json"
    assert add_answer(path, None, {"query": "q", "document": "d", "level": 1})["key"] is None
    # A sample that is drawn later does not make them answers to it.
    found = add_answer(path, SAMPLE, {"number": 1, "level": 3})
    assert found["key"] == SAMPLE.key and len(found["others"]) == 1 and found["others"][0]["seen"]


@pytest.mark.parametrize(
    ("value", "words"),
    [({"number": 0, "level": 1}, "items 1 to 3"), ({"number": 4, "level": 1}, "items 1 to 3"),
     ({"number": "1", "level": 1}, "items 1 to 3"), ({"number": True, "level": 1}, "items 1 to 3"),
     ({"number": 1, "level": 4}, "levels are 0 to 3"), ({"number": 1, "level": True}, "levels are 0 to 3"),
     ({"number": 1, "level": "3"}, "levels are 0 to 3"), ({"number": 1, "level": 1.0}, "levels are 0 to 3"),
     ({"level": 1}, "needs the query's"), ({"query": "q", "level": 1}, "needs the query's"),
     ({"query": "q", "document": 3, "level": 1}, "needs the query's"),
     ({"query": "q" * 2000, "document": "d", "level": 1}, "needs the query's")],
)  # fmt: skip
def test_answers_that_are_refused(tmp_path: Path, value: dict[str, Any], words: str) -> None:
    with pytest.raises(DatasetError, match=words):
        add_answer(tmp_path / "a.json", SAMPLE, value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "not answers"), ("[]", "not answers"), ('{"key": "other", "answers": {"1": 1}}', "another sample"),
     ('{"key": "other", "answers": {}, "others": [3]}', "not answers"),
     ('{"key": "other", "answers": {}, "others": [{"query": "q", "document": "d", "level": 9}]}', "levels are 0 to 3")],
)  # fmt: skip
def test_files_that_are_left_alone(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=words):
        add_answer(path, SAMPLE, {"number": 1, "level": 3})
    assert path.read_text() == text
