"""What becomes of returned hits: which end of the scores is best, ties, and FAISS's pairs of arrays."""

import numpy as np
import pytest

from airgen.evaluation.dataset_split import IdLookup
from airgen.evaluation.returned_hits import ReturnedHits, best_first, hits_of, paired_arrays, scores_rise
from airgen.evaluation.run import run_from_dict

IDS = IdLookup(f"p{number}" for number in range(6))
QUERIES = {"q1": "one", "q2": "two", "q3": "three"}


def returned(*scores: float) -> list[tuple[list[str], float]]:
    return [([f"p{number}"], score) for number, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("scores", "lengths", "rise"),
    [
        ([0.1, 0.2, 0.9, 0.1, 0.3, 0.3, 0.4], [3, 4], True),  # 0.9 to 0.1 lies between two queries
        ([0.1, 0.2, 0.9, 0.1, 0.3], [3, 2], False),  # three rises prove nothing
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.4], [6], False),
        ([1.0] * 9, [5, 0, 4], False),
        ([], [], False),
    ],
)
def test_rising_scores_are_distances(scores: list[float], lengths: list[int], rise: bool) -> None:
    assert scores_rise(scores, lengths) is rise


def test_distances_are_turned_round_for_all_queries_together() -> None:
    search = ReturnedHits(IDS)
    results, counts = search.results(QUERIES, {"q1": returned(0.1, 0.4, 0.5), "q2": returned(0.2, 0.2, 0.3, 0.9)}, k=3)
    assert list(results["q1"]) == list(results["q2"]) == ["p0", "p1", "p2"] and results["q3"] == {}
    assert results["q1"]["p0"] > results["q1"]["p1"] and counts == {"scores_taken_as_distances": 2}
    alone, _ = search.results({"q1": "one"}, {"q1": returned(0.1, 0.4)}, k=3)  # too few by themselves
    assert alone["q1"]["p0"] > alone["q1"]["p1"]


def test_best_overrides_the_guess() -> None:
    largest, counts = ReturnedHits(IDS, best="largest").results(QUERIES, {"q1": returned(1, 2, 3, 4, 5)}, k=5)
    assert list(largest["q1"]) == ["p4", "p3", "p2", "p1", "p0"] and not counts
    smallest, counts = ReturnedHits(IDS, best="smallest").results(QUERIES, {"q1": returned(3, 1)}, k=5)
    assert list(smallest["q1"]) == ["p1", "p0"] and not counts


def test_equal_scores_are_cut_in_the_order_in_which_they_came() -> None:
    hits = [([key], 1.0) for key in ("p4", "p1", "p4", "elsewhere", "p0")]
    search = ReturnedHits(IDS)
    results, counts = search.results(QUERIES, {"q1": hits}, k=2)
    assert set(results["q1"]) == {"p4", "p1"} and search.unknown == ("query 'one' (q1)", "elsewhere")
    assert counts == {"repeated_hits": 1, "unknown_passages": 1}


def test_a_run_of_distances_is_turned_round_once() -> None:
    run = run_from_dict({"q1": {"p0": 0.1, "p1": 0.2, "p2": 0.3}, "q2": {"p4": 0.3, "p1": 0.5, "p0": 0.6}})
    turned = best_first(run, "auto")
    assert [hits[0][0] for _, hits in turned.ranked().items()] == ["p0", "p4"]
    assert turned.notes == {"scores_taken_as_distances": 2}
    assert best_first(turned, "auto") is turned and best_first(run, "largest") is run
    assert dict(best_first(run, "smallest").items()) == dict(turned.items())


DISTANCES = np.array([[0.1, 0.2, 3.4e38], [0.3, 0.4, 0.5]], np.float32)
POSITIONS = np.array([[4, 2, -1], [0, 1, 5]])


@pytest.mark.parametrize(
    "pair", [(DISTANCES, POSITIONS), (POSITIONS, DISTANCES), [*map(np.ndarray.tolist, (DISTANCES, POSITIONS))]]
)
def test_the_arrays_of_faiss_are_told_apart_by_their_types(pair: tuple[np.ndarray, np.ndarray]) -> None:
    scores, ids = paired_arrays(pair, ndim=2)
    lists = [hits_of(*row) for row in zip(scores, ids, strict=True)]
    assert [[id_ for id_, _ in hits] for hits in lists] == [["4", "2"], ["0", "1", "5"]]
    assert [score for _, score in lists[0]] == pytest.approx([0.1, 0.2])
    single = tuple(part[:1] for part in map(np.asarray, pair))
    assert hits_of(*paired_arrays(single, ndim=1)) == lists[0]
    assert hits_of(*paired_arrays(tuple(part[0] for part in single), ndim=1)) == lists[0]


@pytest.mark.parametrize(
    "value",
    [
        (["p1", "p2"], ["p3", "p4"]),  # the ids of two queries
        ([("p1", 0.5)], [("p2", 0.4)]),
        [["p1"], ["p2", "p3"]],
        (POSITIONS, POSITIONS),
        (DISTANCES, POSITIONS[:, :2]),
        (DISTANCES,),
        "p1",
    ],
)
def test_other_hits_are_no_pair_of_arrays(value: object) -> None:
    assert paired_arrays(value, ndim=2) is None
