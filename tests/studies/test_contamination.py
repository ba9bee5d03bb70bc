"""Which texts of a dataset stand in other collections: planted copies, and a comparison of all pairs as the oracle."""

import itertools
import json
import shutil
from pathlib import Path

import pytest
from beir_folder import read_rows, write_beir, write_rows
from command_line import call

from airgen.components.keys import rng
from airgen.corpus.cleaning.duplicates import grams
from airgen.errors import DatasetError
from airgen.studies.contamination import contamination

WORDS = [f"word{number}" for number in range(500)]


def passage(seed: int, changed: int = 0, length: int = 60) -> str:
    """Random words; the last `changed` of them are others."""
    words = rng("passage", seed).choices(WORDS, k=length)
    return " ".join(words[: length - changed] + rng("other", seed).choices(WORDS, k=changed))


def folder(home: Path, passages: dict[str, str], queries: dict[str, str]) -> Path:
    corpus = [{"_id": key, "title": "", "text": text} for key, text in passages.items()]
    rows = [{"_id": key, "text": text} for key, text in queries.items()]
    return write_beir(home, corpus, rows, {"test": [(next(iter(queries)), next(iter(passages)), 1)]})


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    queries = {
        "q1": "How do bees make honey, really?",
        "q2": "Who wrote the first grammar?",
        "q3": "Why is ice slippery?",
    }
    return folder(tmp_path / "ours", {f"d{n}": passage(n) for n in range(40)}, queries)


def test_planted_copies_are_found_and_nothing_else(ours: Path, tmp_path: Path) -> None:
    theirs = folder(
        tmp_path / "theirs",
        {
            "a": passage(1).upper().replace(" ", " ,  ", 3),  # the same words
            "b": passage(2, changed=4),
            "c": passage(3, changed=30),  # half of it
            **{f"z{n}": passage(1000 + n) for n in range(30)},
        },
        {"x1": "HOW do bees make honey really", "x2": "who wrote the very first grammar", "x3": "why is water wet"},
    )
    (found,) = contamination(ours, [theirs])
    assert [(m.id, m.other, m.exact) for m in found.passages.matches] == [("d1", "a", True), ("d2", "b", False)]
    one, other = (set(grams([text], 5)[0].tolist()) for text in (passage(2), passage(2, changed=4)))
    similarity = len(one & other) / len(one | other)
    assert found.passages.matches[1].similarity == pytest.approx(similarity)
    assert similarity > 0.8
    assert [(m.id, m.other, m.exact) for m in found.queries.matches] == [("q1", "x1", True), ("q2", "x2", False)]
    assert found.queries.matches[1].similarity == pytest.approx(5 / 6)
    assert (found.passages.texts, found.passages.others, found.passages.exact, found.passages.near) == (40, 33, 1, 1)


def test_it_finds_what_a_comparison_of_all_pairs_finds_and_names_the_best(ours: Path, tmp_path: Path) -> None:
    others = {f"o{n}": passage(n, changed=n // 2) for n in range(40)}
    theirs = folder(tmp_path / "theirs", {"near": passage(0, changed=2), **others}, {"x": "nothing"})
    (found,) = contamination(ours, [theirs])
    sets = {key: set(grams([text], 5)[0].tolist()) for key, text in others.items()}
    wanted = set()
    for n, (key, other) in itertools.product(range(40), sets.items()):
        own = set(grams([passage(n)], 5)[0].tolist())
        if len(own & other) / len(own | other) >= 0.8:
            wanted.add((f"d{n}", key))
    assert {(m.id, m.other) for m in found.passages.matches} == wanted
    assert 8 < len(wanted) < 20
    # Every copy is counted, and of equally alike ones an exact match is named.
    twice = {"d1": passage(1), "d2": passage(1)}, {"q1": "one two three", "q2": "one two three"}
    theirs = folder(tmp_path / "t", {"exact": passage(1)}, {"x": "three two one", "y": "one two three"})
    (found,) = contamination(folder(tmp_path / "twice", *twice), [theirs])
    assert [(m.id, m.other, m.exact) for m in found.passages.matches] == [("d1", "exact", True), ("d2", "exact", True)]
    assert [(m.id, m.other, m.exact) for m in found.queries.matches] == [("q1", "y", True), ("q2", "y", True)]


def test_collections_without_labels_queries_or_corpus(ours: Path, tmp_path: Path) -> None:
    known = tmp_path / "known"
    for name in ("one", "two"):
        shutil.copytree(ours, known / name)
        shutil.rmtree(known / name / "qrels")
    (known / "one/queries.jsonl").unlink()
    (known / "two/corpus.jsonl").unlink()
    one, two = contamination(ours, [known])
    assert (one.collection, one.passages.exact, one.queries.others, two.passages.others) == ("one", 40, 0, 0)
    assert (two.collection, two.queries.exact) == ("two", 3)
    # AIR-Bench's layout, without labels.
    released = known / "three/qa_web_en/AIR-Bench_24.05/default"
    released.mkdir(parents=True)
    write_rows(
        released / "corpus.jsonl", [{"id": r["_id"], "text": r["text"]} for r in read_rows(ours / "corpus.jsonl")]
    )
    write_rows(released / "dev_queries.jsonl", [{"id": "q", "text": "Why is ice slippery"}])
    (three,) = contamination(ours, [known / "three"])
    assert (three.collection, three.passages.exact, three.queries.exact) == ("qa_web_en_default", 40, 1)
    (tmp_path / "empty").mkdir()
    for home, other, words in (
        (ours, "empty", r"neither it nor its folders have corpus\.jsonl or queries\.jsonl"),
        (ours, "none", "not a directory; a collection has"),
        (tmp_path / "empty", "ours", r"neither it nor its folders have corpus\.jsonl or queries\.jsonl"),
    ):
        with pytest.raises(DatasetError, match=words):
            contamination(home, [tmp_path / other])


def test_the_command(ours: Path) -> None:
    assert "ours: query q1 is q1 of ours, verbatim" in call("study", "contamination", ours, "--against", ours)
    (row,) = json.loads(call("study", "contamination", ours, "--against", ours, "--json"))
    assert len(row["passages"]["matches"]) == 40
