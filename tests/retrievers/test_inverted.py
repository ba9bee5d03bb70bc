"""The inverted index: compiled against numpy, ties, limits, damaged files."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packages import package

from airgen.errors import UsageError
from airgen.retrievers.lexical import postings
from airgen.retrievers.lexical.index import InvertedIndex
from airgen.retrievers.lexical.postings import PostingsBuilder

from .conftest import assert_same

_postings_compiled = package("airgen.retrievers.lexical._postings_compiled")
"""Imported by the first test that uses it, because other tests compile loops, too, once numba is loaded."""


def make(rows: list[list[float]]) -> InvertedIndex:
    """An index from a dense matrix (terms, passages); 0 is no posting."""
    dense = np.array(rows, np.float32)
    starts = np.concatenate(([0], np.cumsum((dense > 0).sum(axis=1))))
    return InvertedIndex(starts, np.nonzero(dense)[1].astype(np.int32), dense[dense > 0], dense.shape[1])


def test_worked_example() -> None:
    index = make([[1, 0, 2, 0], [0, 3, 0.5, 0]])
    for compiled in (False, True):
        hits = index.search([{0: 1.0, 1: 2.0}, {1: 1.0}, {}], 3, compiled=compiled)
        assert hits.positions.tolist() == [[1, 2, 0], [1, 2, -1], [-1, -1, -1]]
        assert hits.scores.tolist() == [[6, 3, 1], [3, 0.5, -np.inf], [-np.inf] * 3]
        assert hits.positions.dtype == np.int32
        assert hits.scores.dtype == np.float32


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 1500), st.integers(1, 4) | st.integers(1, 60), st.booleans())
def test_compiled_equals_numpy_and_a_plain_sort(seed: int, size: int, k: int, ties: bool) -> None:
    random = np.random.default_rng(seed)
    dense = random.random((5, size)) * (random.random((5, size)) < 0.4)
    if ties:
        dense = np.ceil(dense * 3)
    index = make(dense.tolist())
    queries = [
        dict(zip(random.permutation(5)[:n].tolist(), random.choice([0.0, 0.5, 1.0, 3.3], n).tolist(), strict=True))
        for n in random.integers(0, 6, 20)
    ]
    fast, slow = (index.search(queries, k, compiled=compiled, threads=2) for compiled in (True, False))
    assert_same(fast, slow)
    for row, query in enumerate(queries):
        scores = np.zeros(size, np.float32)
        for term, weight in query.items():
            scores += np.float32(weight) * dense[term].astype(np.float32)
        order = sorted(np.flatnonzero(scores > 0).tolist(), key=lambda place: (-scores[place], place))[:k]
        assert [place for place in fast.positions[row].tolist() if place >= 0] == order
        np.testing.assert_array_equal(fast.scores[row, : len(order)], scores[order])


def test_extreme_scores() -> None:
    """Denormal and huge scores break a histogram that divides by the best; many ties stand at the edge of the last."""
    worlds = [([factor, 3 * factor, 2 * factor, 3 * factor], [1, 3, 2]) for factor in (1e-44, 1e-38, 1e38)]
    for impacts, best in [*worlds, ([1.0] * 5000, [0, 1, 2])]:
        for compiled in (False, True):
            assert make([impacts]).search([{0: 1.0}], 3, compiled=compiled).positions.tolist() == [best]


def test_postings_that_add_nothing_are_no_hits_and_count_once() -> None:
    """Dirichlet smoothing gives such impacts; a later term may still add to the same passage."""
    starts, positions = np.array([0, 4, 8]), np.array([0, 1, 2, 3] * 2, np.int32)
    index = InvertedIndex(starts, positions, np.array([0, 2, 0, 0, 0, 1, 3, 0], np.float32), 4)
    for compiled in (False, True):
        hits = index.search([{0: 1.0, 1: 1.0}, {0: 0.0, 1: 1.0}], 4, compiled=compiled)
        assert hits.positions.tolist() == [[1, 2, -1, -1], [2, 1, -1, -1]]


@pytest.mark.parametrize("k", [3, 300])  # all scores are read, and only those that a posting touches
def test_more_scores_in_one_bucket_than_insertion_sorts(k: int) -> None:
    random = np.random.default_rng(0)
    dense = 1 + random.integers(0, 50, (3, 4000)) * np.float32(1e-6)
    dense[1] *= random.random(4000) < 0.5
    dense[2, 17] = 1e9  # so far above the others that one bucket holds all of them
    index = make(dense.tolist())
    queries = [{1: 1.0, 0: 2.0}, {0: 1.0}, {0: 1.0, 2: 1.0}]
    assert_same(*(index.search(queries, k, compiled=compiled) for compiled in (False, True)))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=9))
def test_counting_postings(texts: list[list[int]]) -> None:
    terms = np.array([term for text in texts for term in text], np.int32)
    lengths = np.array([len(text) for text in texts], np.int64)
    for count in (postings.count_postings, _postings_compiled.count_postings):
        starts, positions, frequencies = count(terms, lengths, 6)
        found = {
            (term, int(positions[place])): int(frequencies[place])
            for term in range(6)
            for place in range(starts[term], starts[term + 1])
        }
        assert found == {(term, row): text.count(term) for row, text in enumerate(texts) for term in set(text)}
        for term in range(6):
            assert (np.diff(positions[starts[term] : starts[term + 1]]) > 0).all()


def test_bad_queries() -> None:
    for query in {9: 1.0}, {-1: 1.0}, {0: -1.0}, {0: float("nan")}, {0: float("inf")}:
        with pytest.raises(UsageError):
            make([[1, 2]]).search([query], 1)
    with pytest.raises(UsageError, match="at least 1"):
        make([[1, 2]]).search([{0: 1.0}], 0)


@given(
    st.lists(st.lists(st.integers(0, 6), max_size=9), max_size=12),
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.booleans(),
)
def test_postings_counted_by_parts_equal_those_counted_at_once(
    texts: list[list[int]], cuts: list[int], compiled: bool
) -> None:
    def lists(part: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        return np.array([term for text in part for term in text], np.int32), np.array([*map(len, part)], np.int64)

    count = (_postings_compiled if compiled else postings).count_postings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "_PART_TERMS", 5)
        patch.setattr(postings, "_MOVED_POSTINGS", 3)
        patch.setattr(postings, "_MAPPED_FROM_BYTES", 8)
        builder, first = PostingsBuilder(count), 0
        for size in [*cuts, len(texts)]:
            builder.add(*lists(texts[first : first + size]))
            first += size
        field = builder.field(8)
    starts, positions, frequencies = count(*lists(texts), 8)
    np.testing.assert_array_equal(field.starts, starts)
    np.testing.assert_array_equal(field.positions, positions)
    np.testing.assert_array_equal(field.frequencies, frequencies)
    np.testing.assert_array_equal(field.lengths, [*map(len, texts)])


def test_a_large_array_is_a_file_without_a_name_where_the_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(postings, "_MAPPED_FROM_BYTES", 4096)
    large = postings.room(1024, np.int32)
    large[:] = np.arange(1024)
    assert isinstance(large, np.memmap) and large[-1] == 1023 and not list(tmp_path.iterdir())
    assert not isinstance(postings.room(1023, np.int32), np.memmap)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert not isinstance(postings.room(1024, np.int32), np.memmap)
