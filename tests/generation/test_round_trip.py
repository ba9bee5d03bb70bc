"""Does a query find its source again? Cheap voters are asked first, and the others about what they let through."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from airgen.generation.round_trip import RoundTrip
from airgen.retrievers import Passages
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.rerank import DenseReranker

TEXTS = ["A kiln cracks in frost.", "A kiln is fired with oak.", "Frost makes glass brittle."]
QUERY = "kiln frost"


class Voter:
    """Scores passages by their third word, and counts the pairs that it is asked about."""

    def __init__(self, **scores: float) -> None:
        self.scores, self.pairs, self.alone = scores, 0, False

    def score(self, pairs: Sequence[tuple[str, str]]) -> Any:
        self.pairs += len(pairs)
        return np.array([self.scores.get(passage.split()[2], 0.0) for _, passage in pairs])


class DenseStandIn(Voter, DenseReranker):
    """A model of vectors, as far as the round trip sees."""

    def __init__(self, **scores: float) -> None:
        Voter.__init__(self, **scores)


def round_trip(*voters: Voter, judges: bool = False) -> RoundTrip:
    """A round trip in a corpus of three passages; `judges`: labels are made by an LLM and not by the voters."""
    corpus = Passages(["crack", "oak", "glass"], TEXTS)
    search = BM25()
    search.index(corpus)
    control = SimpleNamespace(recall=SimpleNamespace(top_k=50), judge=SimpleNamespace(members=["one"] * judges))
    unused: Any = None
    trip = RoundTrip(unused, SimpleNamespace(control=control), unused, unused, unused)  # type: ignore[arg-type]
    trip.__dict__.update(_search=(corpus, search), _voters=list(enumerate(voters)))
    return trip


def leads(trip: RoundTrip) -> list[float]:
    source = SimpleNamespace(id="crack", title="", text=TEXTS[0])
    lineage: Any = SimpleNamespace(sources=[source])
    return trip._leads(lineage, [QUERY], 50)


def test_a_voter_is_not_asked_about_what_another_refuses() -> None:
    cheap, dear = Voter(cracks=1.0, **{"is": 3.0}), Voter(cracks=1.0)
    assert leads(round_trip(cheap, dear)) == [pytest.approx(-2 / 3)]  # (1 - 3) of a range of 3
    assert (cheap.pairs, dear.pairs) == (3, 0)


def test_the_least_lead_counts_where_all_voters_find_it() -> None:
    first, second = Voter(cracks=4.0, **{"is": 1.0}), Voter(cracks=2.0)
    assert leads(round_trip(first, second)) == [0.75]
    assert second.pairs == 3


def test_scores_that_depend_on_their_pair_alone_are_kept_for_the_pre_labels() -> None:
    first, second = Voter(cracks=4.0, **{"is": 1.0}), Voter(cracks=2.0)
    first.alone = True
    trip = round_trip(first, second)
    leads(trip)
    assert trip.scores.find(0, QUERY, TEXTS[0]) == 4.0 and trip.scores.find(0, QUERY, TEXTS[1]) == 1.0
    assert trip.scores.find(0, f"{QUERY} ", TEXTS[0]) is None  # another query
    assert trip.scores.find(1, QUERY, TEXTS[0]) is None  # its scores depend on their neighbours


def test_a_voter_that_reads_pair_by_pair_stops_when_another_passage_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airgen.generation.round_trip.PAIRS_AT_ONCE", 2)
    behind, ahead, tied = (
        Voter(cracks=1.0, **{"is": 3.0, "glass": 3.0}),
        Voter(cracks=4.0),
        Voter(cracks=2.0, glass=2.0),
    )
    for voter in (behind, ahead, tied):
        voter.alone = True
    assert leads(round_trip(behind)) == [-1.0] and behind.pairs == 2
    assert leads(round_trip(ahead)) == [1.0] and ahead.pairs == 3
    assert leads(round_trip(tied)) == [0.0] and tied.pairs == 3  # the source is still one of the first
    behind.pairs = 0
    assert leads(round_trip(behind, judges=True)) == [-1.0] and behind.pairs == 3  # drafts are compared by their leads


def test_all_are_asked_where_drafts_are_compared_for_a_judge() -> None:
    first, second = Voter(cracks=1.0, **{"is": 2.0}), Voter(**{"is": 2.0})
    assert leads(round_trip(first, second, judges=True)) == [-1.0]
    assert second.pairs == 3


def test_models_of_vectors_vote_first(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = object.__new__(DenseReranker)
    made = {"reads pairs": Voter(), "vectors": vectors, "reads, too": Voter()}
    monkeypatch.setattr("airgen.generation.round_trip.load_reranker", made.get)
    trip = round_trip()
    del trip.__dict__["_voters"]
    trip.pipeline.control.rerankers = list(made)
    assert trip._voters == [(1, vectors), (0, made["reads pairs"]), (2, made["reads, too"])]


def test_a_passage_with_a_near_copy_is_not_apart() -> None:
    alone = DenseStandIn(cracks=4.0, **{"is": 1.0})
    copied = DenseStandIn(cracks=4.0, **{"is": 3.9})
    reads_pairs = Voter(**{"is": 9.0})
    source = SimpleNamespace(id="crack", title="", text=TEXTS[0])
    lineage: Any = SimpleNamespace(sources=[source])
    assert asyncio.run(round_trip(alone, reads_pairs).apart(lineage)) == 0.75
    assert asyncio.run(round_trip(copied, reads_pairs).apart(lineage)) == pytest.approx(0.1 / 4)
    assert reads_pairs.pairs == 0
    assert asyncio.run(round_trip(reads_pairs).apart(lineage)) == 1.0  # no model of vectors, no word on it
    lineage.sources.append(source)
    assert asyncio.run(round_trip(copied).apart(lineage)) == 1.0
