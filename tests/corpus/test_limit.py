"""`limit:` of a corpus: a larger limit only adds, the order of the source changes nothing, memory stays flat."""

import json
import random
import tracemalloc
from importlib.util import find_spec
from pathlib import Path

import pytest
from corpus_maker import corpus, prose
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.corpus import prepare
from airgen.corpus.preparation import limited
from airgen.storage.records import Document, Dropped, Passage

CLEAN = {"near_duplicates": {}, "min_tokens": 10}


def documents(count: int) -> list[Document]:
    return [Document(f"d{number}", f"text {number}") for number in range(count)]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)), max_size=60),
    st.integers(1, 40), st.integers(1, 40), st.integers(0, 2), st.randoms(use_true_random=False),
)  # fmt: skip
def test_a_larger_limit_only_adds_in_any_order(
    pairs: list[tuple[str, int]], small: int, large: int, seed: int, chance: random.Random
) -> None:
    """Also where ids and texts come twice."""
    rows = [Document(name, f"text {number}") for name, number in pairs]
    small, large = sorted((small, large))
    less, more = list(limited(rows, small, seed)), list(limited(rows, large, seed))
    assert more[: len(less)] == less
    assert (len(less), len(more)) == (min(small, len(rows)), min(large, len(rows)))
    chance.shuffle(rows)
    assert list(limited(rows, large, seed)) == more


@pytest.mark.parametrize("limit", [1, 500, 1999, 2000, 2001])
def test_the_sample_is_the_same_however_often_the_candidates_were_sorted(limit: int) -> None:
    """5,000 documents pass a sample of 500 several times its size; the whole sorted list says the same."""
    rows = documents(5000 if limit < 1600 else 2000)
    bad = Dropped("", "x", "reader", "missing text", "", "", "", "")  # is reported, and is none of them
    everything = list(limited(rows, len(rows)))
    assert sorted(row.id for row in everything) == sorted(row.id for row in rows)
    assert list(limited([*rows, bad], limit)) == [bad, *everything[:limit]]


def test_a_seed_is_another_sample_and_each_document_has_an_equal_chance() -> None:
    rows = documents(1000)
    taken = [{row.id for row in limited(rows, 250, seed) if isinstance(row, Document)} for seed in range(20)]
    assert len({frozenset(one) for one in taken}) == 20
    halves = [sum(int(name[1:]) < 500 for name in one) for one in taken]
    assert abs(sum(halves) / 20 - 125) < 8  # five standard errors of the mean


def test_memory_does_not_hold_the_texts() -> None:
    """4 MB of texts are in a sample of 200 documents; 64 MB pass by."""

    def long(number: int) -> Document:
        return Document(f"d{number}", f"{number} " + "x" * 20_000)

    tracemalloc.start()
    count = sum(1 for _ in limited((long(number) for number in range(3200)), 200))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200 and peak < 1_000_000


def write(path: Path, count: int) -> None:
    """A third of the texts nearly repeats an earlier one, and every tenth id comes twice."""
    rows = [
        {"_id": f"d{n}", "text": prose(n - 1, 59) + " indeed." if n % 3 == 2 else prose(n, 60)} for n in range(count)
    ]
    rows += [{"_id": f"d{n}", "text": prose(n + 5000)} for n in range(0, count, 10)]
    path.write_text("\n".join(json.dumps(row) for row in rows))


def test_cleaning_decides_the_same_for_the_documents_of_a_smaller_limit(tmp_path: Path) -> None:
    """Of two near duplicates the first is kept, so a document of the larger sample must not come before."""
    write(tmp_path / "c.jsonl", 150)

    def passages(limit: int | None) -> list[Passage]:
        made = corpus(tmp_path, {"kind": "jsonl", "path": "c.jsonl"}, clean=CLEAN, limit=limit)
        return [row for row in prepare(made, "qa") if isinstance(row, Passage)]

    previous: list[Passage] = []
    for limit in (20, 60, 120, 165):
        found = passages(limit)
        assert found[: len(previous)] == previous and len(found) > len(previous)
        assert len(found) <= limit
        previous = found
    assert len(passages(1000)) == len(previous) < 120  # it counts documents before cleaning
    assert [row.ordinal for row in previous] == list(range(len(previous)))


@pytest.mark.skipif(find_spec("llama_index") is None, reason="airgen[long-doc]")
def test_long_documents_are_drawn(tmp_path: Path) -> None:
    write(tmp_path / "c.jsonl", 30)

    def drawn(**more: object) -> set[str]:
        made = corpus(tmp_path, {"kind": "jsonl", "path": "c.jsonl", "fields": {"id": "_id", "title": "_id"}}, **more)
        rows = [row for row in prepare(made, "long-doc") if isinstance(row, Passage)]
        assert len({row.document for row in rows}) == 1
        text = " ".join(row.text for row in rows)
        return {f"d{n}" for n in range(30) if f"d{n}\n" in text} or {rows[0].document}

    one, five = drawn(limit=1), drawn(limit=5, long_doc={"merge": True})
    assert len(one) == 1 and len(five) == 5 and one < five
    assert drawn(limit=1, limit_seed=1) != one
    assert drawn(limit=1, long_doc={"document": "d7"}) == {"d7"}  # a document that is named is not drawn
