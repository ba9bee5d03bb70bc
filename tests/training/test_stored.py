"""Sequences on disk behave as lists do; labels as columns give what dicts gave."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from beir_folder import write_beir

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.keys import content_key, key_of_pieces
from airgen.training.columns import DatasetColumns, Example, Examples
from airgen.training.data import load_training_set
from airgen.training.stored import Joined, KeyPlaces, StoredTexts, key_of


@pytest.mark.parametrize("texts", [[], [""], ["a", "", "ü\ud800", "b" * 3_000_000, "c"]])
def test_texts_are_those_of_the_list(texts: list[str]) -> None:
    stored = StoredTexts(texts)
    assert list(stored) == texts and len(stored) == len(texts) and stored[1:3] == texts[1:3] and stored[:] == texts
    for place in range(-len(texts), len(texts)):
        assert stored[place] == texts[place]
    stored.append("later")
    assert stored[-1] == "later" and stored[len(texts)] == "later"
    for wrong in (len(texts) + 1, -len(texts) - 2):
        with pytest.raises(IndexError):
            stored[wrong]


def test_sequences_are_joined() -> None:
    parts: list[Sequence[str]] = [["a", "b"], [], StoredTexts(["c"])]
    joined = Joined(parts, lambda number, text: f"{number}{text}")
    assert list(joined) == [joined[at] for at in range(3)] == ["0a", "0b", "2c"] == joined[:]
    assert joined[-1] == "2c"
    with pytest.raises(IndexError):
        joined[3]


def test_another_process_gets_a_list() -> None:
    stored = StoredTexts(["a", "ü"])
    assert pickle.loads(pickle.dumps(stored)) == ["a", "ü"]
    assert pickle.loads(pickle.dumps(Joined([stored, ["b"]]))) == ["a", "ü", "b"]


def test_keys_are_found_at_their_first_place() -> None:
    places = KeyPlaces([key_of(text) for text in "abcab"])
    assert places.find([key_of(text) for text in "cabz"]).tolist() == [2, 0, 1, -1]
    assert KeyPlaces([]).find([1]).tolist() == [-1]


def test_examples_are_chosen_and_changed() -> None:
    examples = Examples(["q0", "q1", "q2"], ["a", "b", "c"])
    examples.append(2, [5], [])
    examples.append(0, [1, 2], [3])
    examples.append(1, [4], [9])
    kept = examples.where(np.array([False, True, True]))
    assert list(kept) == [Example("q0", "a", (1, 2), (3,)), Example("q1", "b", (4,), (9,))] == kept[:]
    assert kept[-1].id == "q1" and len(kept) == 2
    changed = kept.where(np.array([False, True])).with_negatives([[7, 8]])
    assert list(changed) == [Example("q1", "b", (4,), (7, 8))]
    assert list(changed.rows()) == [(1, (4,), (7, 8))]
    with pytest.raises(IndexError):
        kept[2]


def test_labels_are_grouped_in_the_order_of_their_queries(tmp_path: Path) -> None:
    rows = [{"_id": f"p{n}", "title": "T" if n == 2 else "", "text": f"text {n}"} for n in range(3)]
    path = write_beir(tmp_path / "d", rows, [{"_id": f"q{n}", "text": f"query {n}"} for n in range(2)], {"train": []})
    columns = DatasetColumns(BeirDataset.open(path), "en")
    assert list(columns.corpus.titles) == ["", "", "T"] and columns.corpus.full_text(2) == "T text 2"
    labels = [("q1", "p2", 1.0), ("q0", "p0", 2.0), ("q1", "p0", 0.0), ("x", "p0", 1.0), ("q1", "y", 1.0)]
    found = list(columns.groups([*labels, labels[0]]) or ())
    assert found == [(1, [2, 0, -1], [1.0, 0.0, 1.0]), (0, [0], [2.0]), (-1, [0], [1.0])]
    assert columns.groups([*labels, ("q1", "p2", 2.0)]) is None
    assert list(columns.groups([]) or ()) == []
    assert columns.text("q1") == "query 1" and columns.text("none") == ""
    assert columns.ordered([(0.0, 2), (0.0, 1), (-1.0, 2)]) == [2, 1, 2]


def test_a_pair_with_two_labels_is_an_error_with_its_line(tmp_path: Path) -> None:
    rows = [{"_id": "p", "title": "", "text": "a"}]
    queries = [{"_id": "q", "text": "a"}]
    path = write_beir(tmp_path / "d", rows, queries, {"train": [("q", "p", 1), ("q", "p", 2)]})
    with pytest.raises(DatasetError, match=r"train.tsv:3: query 'q' and passage 'p' have two labels, 1 and 2"):
        load_training_set(path, split="train")


def test_the_key_of_the_data_is_that_of_the_whole_list(tmp_path: Path) -> None:
    rows = [{"_id": f"p{n}", "title": "", "text": f"ü {n}"} for n in range(9)]
    queries = [{"_id": f"q{n}", "text": f"query {n}"} for n in range(9)]
    labels = [(f"q{n}", f"p{n}", 1) for n in range(9)] + [("q1", "p2", 0)]
    data = load_training_set(write_beir(tmp_path / "d", rows, queries, {"train": labels}), split="train", dev_share=0.3)
    lists = [[e.id, list(e.positives), list(e.negatives)] for e in data.examples]
    assert data.digest == content_key([data.about["digest"], lists, sorted(data.dev.labels)])
    assert key_of_pieces(["a", "", "b\ud800"]) == key_of_pieces(["ab\ud800"])
