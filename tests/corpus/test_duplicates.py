"""Duplicates: against brute force, whatever the batches; the disk table against a dict; MinHash against Jaccard."""

from __future__ import annotations

import random
import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from corpus_maker import prose
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.corpus.cleaning.disk_hash_table import WAYS, DiskTable, IdLog
from airgen.corpus.cleaning.duplicates import (
    DuplicateIds,
    ExactDuplicates,
    NearDuplicates,
    band_keys,
    shingles,
    signatures,
)
from airgen.corpus.cleaning.filters import Item
from airgen.corpus.settings import NearDuplicateSettings
from airgen.records import Document


def items(texts: list[str]) -> list[Item]:
    return [Item(Document(f"d{number}", text)) for number, text in enumerate(texts)]


def judge(step: NearDuplicates | ExactDuplicates, texts: list[str], size: int) -> list[bool]:
    rows = items(texts)
    with closing(step):
        return [verdict.keep for at in range(0, len(rows), size) for verdict in step.judge(rows[at : at + size])]


def jaccard(first: str, second: str, n: int) -> float:
    def grams(text: str) -> set[tuple[str, ...]]:
        words = re.findall(r"\w+", text.lower())
        return {tuple(words[at : at + n]) for at in range(max(len(words) - n + 1, 1))}

    one, two = grams(first), grams(second)
    return len(one & two) / len(one | two)


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2**32 - 2)), max_size=60), max_size=8),
    colliding=st.booleans(),
)
def test_the_table_answers_as_a_dictionary_would(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, int]]], colliding: bool
) -> None:
    table = DiskTable(tmp_path_factory.mktemp("table"), slots=16)
    expected: dict[int, list[int]] = {}
    factor = 1 << 40 if colliding else 0x9E3779B97F4A7C15  # with 1 << 40, all keys want the same slot
    for batch in batches:
        keys = np.array([key * factor % 2**64 for key, _ in batch], np.uint64)
        table.add(keys, np.array([place for _, place in batch], np.int64))
        for key, place in batch:
            expected.setdefault(key, []).append(place)
    probes = np.array([key * factor % 2**64 for key in range(45)], np.uint64)
    for key, row in enumerate(table.find(probes).tolist()):
        assert [place for place in row if place >= 0] == expected.get(key, [])[:WAYS]


def test_the_log_returns_ids_and_rows(tmp_path: Path) -> None:
    log = IdLog(tmp_path, "log", width=3)
    names = ["a", "", "日本語", "x" * 1000, "\ud800"]
    for number, name in enumerate(names):
        assert log.append(name, bytes([number, 0, 255])) == number
    log.flush()
    assert [log.id(number) for number in range(5)] == names
    assert log.rows(np.array([4, 0])).tolist() == [[4, 0, 255], [0, 0, 255]]
    log.close()


def test_signatures_estimate_jaccard_without_bias() -> None:
    draw = random.Random(5)
    errors, variances = [], []
    for _ in range(400):
        words = prose(draw.randrange(10**6), 120).split()
        other = list(words)
        for _ in range(draw.randrange(1, 12)):
            other[draw.randrange(len(other))] = f"new{draw.random()}"
        first, second = " ".join(words), " ".join(other)
        rows = signatures(shingles([first, second], 5), 112)
        true = jaccard(first, second, 5)
        errors.append(float((rows[0] == rows[1]).mean()) - true)
        variances.append(true * (1 - true) / 112)
    assert abs(np.mean(errors)) < 4 * np.sqrt(np.mean(variances) / 400)
    assert 0.85 < np.std(errors) / np.sqrt(np.mean(variances)) < 1.15


@given(st.lists(st.text(max_size=60), min_size=1, max_size=12))
def test_a_signature_depends_on_its_text_alone(texts: list[str]) -> None:
    together = signatures(shingles(texts, 3), 16)
    alone = np.concatenate([signatures(shingles([text], 3), 16) for text in texts])
    assert (together == alone).all()


@pytest.mark.parametrize(
    "one, two, same",
    [
        ("The cat, sat on the mat!", "the CAT sat -- on the mat", True),  # case and punctuation
        ("the cat sat on the mat", "the cat sat on a mat", False),
        ("今天天气很好，我们去公园。", "今天天气很好 我们去公园", True),
        ("今天天气很好我们去公园", "今天天气很好我们去学校", False),
        ("", "...", True),  # nothing to compare
    ],
)
def test_what_counts_as_the_same_words(one: str, two: str, same: bool) -> None:
    rows = signatures(shingles([one, two], 3), 64)
    assert bool((rows[0] == rows[1]).all()) is same
    keys = band_keys(rows, 8)
    assert bool((keys[0] == keys[1]).all()) is same


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_near_duplicates_go_and_the_first_one_stays_whatever_the_batches(tmp_path: Path, size: int) -> None:
    draw = random.Random(11)
    texts, expected = [], []
    for number in range(120):
        words = prose(number, 100).split()
        texts.append(" ".join(words))
        expected.append(True)
        if number % 3 == 0:  # one changed word of 100 leaves 91 of 101 five-word runs: similarity 0.90
            words[draw.randrange(20, 80)] = "changed"
            texts.append(" ".join(words))
            expected.append(False)
        if number % 5 == 0:  # every fifth word changed: similarity near 0
            texts.append(" ".join(word if place % 5 else f"n{number}x{place}" for place, word in enumerate(words)))
            expected.append(True)
    assert judge(NearDuplicates(NearDuplicateSettings(), tmp_path), texts, size) == expected


def test_a_near_duplicate_names_what_it_repeats(tmp_path: Path) -> None:
    with closing(NearDuplicates(NearDuplicateSettings(), tmp_path)) as step:
        (first,) = step.judge(items([prose(1)]))
        assert first.keep
        again = step.judge([Item(Document("later", prose(1) + " more")), Item(Document("other", prose(1) + " more"))])
    assert [verdict.reason for verdict in again] == ["near duplicate"] * 2
    assert again[0].detail.startswith("of 'd0', similarity 0.9") or again[0].detail.startswith(
        "of 'd0', similarity 1.0"
    )


def test_recall_and_precision_of_near_duplicates_at_the_threshold(tmp_path: Path) -> None:
    """Pairs well above the threshold are nearly all found, pairs well below never."""
    draw = random.Random(2)
    found = {True: 0, False: 0}
    for high in (True, False):
        folder = tmp_path / str(high)
        folder.mkdir()
        with closing(NearDuplicates(NearDuplicateSettings(threshold=0.8), folder)) as step:
            for number in range(200):
                words = prose(number + 500 * high, 200).split()
                step.judge(items([" ".join(words)]))
                for _ in range(2 if high else 16):  # similarity about 0.90 and about 0.50
                    words[draw.randrange(200)] = f"n{draw.random()}"
                found[high] += not step.judge(items([" ".join(words)]))[0].keep
    assert found[True] >= 190
    assert found[False] <= 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from("abcdefgh"), max_size=60), st.integers(1, 20))
def test_the_first_of_equal_texts_stays(tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int) -> None:
    expected = [text not in texts[:place] for place, text in enumerate(texts)]
    assert judge(ExactDuplicates(tmp_path_factory.mktemp("exact")), texts, size) == expected


def test_a_repeated_id_is_named(tmp_path: Path) -> None:
    with closing(DuplicateIds(tmp_path)) as step:
        verdicts = step.judge([Item(Document("x", "1")), Item(Document("y", "2")), Item(Document("x", "3"))])
    assert [verdict.keep for verdict in verdicts] == [True, True, False]
    assert verdicts[2].detail == "'x' came before"
