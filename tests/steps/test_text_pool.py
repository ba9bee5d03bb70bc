"""The texts of a job's passages, read from the work database in blocks."""

from typing import Any

import numpy as np

from airgen.retrievers.combine import RerankedRetriever
from airgen.retrievers.hits import Hits
from airgen.steps.text_pool import Pool


class Passages:
    """A store of passages that counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0

    def passages_at(self, places: np.ndarray, columns: str) -> list[tuple[str, str]]:
        self.reads += 1
        return [(f"title {place}", f"text {place}") for place in places.tolist()]


def pool(store: Any, size: int) -> Pool:
    return Pool(store, "corpus", [f"d{place}" for place in range(size)], np.arange(size), {}, "digest")


def test_texts_of_hits_all_over_a_corpus_are_read_once() -> None:
    store = Passages()
    corpus = pool(store, 3000).corpus("en")
    for _ in range(5):
        assert [corpus.full_text(place) for place in (2999, 0, 1500)] == [
            "title 2999 text 2999",
            "title 0 text 0",
            "title 1500 text 1500",
        ]
    assert store.reads == 3


def test_a_reranker_reads_a_large_corpus_from_its_beginning_to_its_end() -> None:
    class First:
        name = "first"

        def index(self, corpus: Any) -> None: ...

        def search(self, queries: Any, k: int) -> Hits:
            rows = [[(at * 1024 + query) % 20_480 for at in range(20)] for query in range(len(queries))]
            return Hits(np.array(rows, np.int32), np.ones((len(rows), 20), np.float32))

        def describe(self) -> dict[str, object]:
            return {}

    class Longest:
        name = "longest"

        def score(self, pairs: Any) -> np.ndarray:
            return np.array([len(text) for _, text in pairs], np.float32)

        def describe(self) -> dict[str, object]:
            return {}

    store = Passages()
    system = RerankedRetriever(First(), Longest(), top=20)
    system.index(pool(store, 20_480).corpus("en"))
    found = system.search(["a", "b", "c"], 20)
    assert store.reads == 20  # each block once, although the hits of each query are in all of them
    assert found.positions[0, -1] == 0 and found.scores[0, 0] == len("title 10240 text 10240")
