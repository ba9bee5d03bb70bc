"""Hits within a query's filter are those of a search over the passages that fit alone."""

from pathlib import Path

import numpy as np
import pytest
from beir_folder import write_beir
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.evaluation.dataset_split import DatasetSplit, fits
from airgen.evaluation.filtered_search import search_within
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.passages import Passages

WORDS = ["pump", "valve", "gasket", "rotor", "flange"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, versions=st.data(), k=st.integers(1, 8), wanted=st.sampled_from([None, 1, [1, 2], 3]))
def test_the_best_k_that_fit_are_found_however_deep_they_are(
    texts: list[str], versions: st.DataObject, k: int, wanted: object
) -> None:
    metadata = [{"version": versions.draw(st.integers(1, 3))} for _ in texts]
    corpus = Passages([f"p{place}" for place in range(len(texts))], texts, language="en", metadata=metadata)
    retriever = BM25()
    retriever.index(corpus)
    queries = ["pump valve", "gasket", "nothing"]
    condition = None if wanted is None else {"version": wanted}
    filters = [condition, None, condition]
    hits = search_within(retriever, queries, filters, corpus, k=k, hits=retriever.search(queries, k))
    whole = retriever.search(queries, len(texts))
    for row, condition_of_query in enumerate(filters):
        ranked = [
            (place, score)
            for place, score in zip(whole.positions[row].tolist(), whole.scores[row].tolist(), strict=True)
            if place >= 0 and fits(metadata[place], condition_of_query)
        ][:k]
        found = hits.positions[row] >= 0
        assert hits.positions[row][found].tolist() == [place for place, _ in ranked]
        assert np.allclose(hits.scores[row][found], [score for _, score in ranked])


def test_a_filter_that_no_passage_can_fit_is_an_error(tmp_path: Path) -> None:
    query = {"_id": "q1", "text": "pump", "metadata": {"filter.version": 2}}
    corpus = [{"_id": "p1", "title": "", "text": "a pump"}, {"_id": "p2", "title": "", "text": "a valve"}]
    write_beir(tmp_path, corpus, [query], {"test": [("q1", "p1", 1)]})
    with pytest.raises(DatasetError, match=r"query 'q1' has the filter 'version', which no passage has.*there is none"):
        _ = DatasetSplit(BeirDataset(tmp_path), "test", "en").filters


@pytest.mark.parametrize("written", ["version 2", 2, True, ["version"]])
def test_a_filter_that_is_no_object_is_an_error(tmp_path: Path, written: object) -> None:
    query = {"_id": "q1", "text": "pump", "metadata": {"filter": written}}
    write_beir(tmp_path, [{"_id": "d1", "text": "pump"}], [query], {"test": [("q1", "d1", 1)]})
    with pytest.raises(DatasetError, match=r"query 'q1': the filter .* is not an object") as error:
        _ = DatasetSplit(BeirDataset(tmp_path), "test", "en").filters
    assert str(tmp_path) in str(error.value)
