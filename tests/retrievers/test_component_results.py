"""What a user's `score` and `encode` return: numbers in any container, or one line that names the part."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from airgen.errors import ModelError
from airgen.retrievers.component import Component

PAIRS = [("a query", "a passage"), ("a query", "another")]


async def later() -> list[float]:
    return [0.0, 1.0]


def part(result: Any) -> Component:
    class Mine(Component):
        name, dim = "mine", 2

        def score(self, pairs: Sequence[tuple[str, str]]) -> Any:
            return result() if callable(result) else result

        def encode(self, texts: Sequence[str], kind: str) -> Any:
            return result() if callable(result) else result

    return Mine()


@pytest.mark.parametrize(
    "scores",
    [[0.5, 2], (0.5, 2), np.array([0.5, 2.0]), np.array([[0.5], [2.0]], np.float16), iter([0.5, 2.0]), ["0.5", "2"]],
    ids=["list", "tuple", "array", "column", "iterator", "texts of numbers"],
)
def test_scores_in_any_container(scores: Any) -> None:
    given = part(scores).score(PAIRS)  # type: ignore[attr-defined]
    assert given.dtype == np.float32 and given.tolist() == [0.5, 2.0]


def test_vectors_in_lists() -> None:
    given = part([[1, 0], [0.5, 0.25]]).encode(["a", "b"], "query")  # type: ignore[attr-defined]
    assert given.dtype == np.float32 and given.tolist() == [[1.0, 0.0], [0.5, 0.25]]


@pytest.mark.parametrize(
    ("result", "score", "encode"),
    [
        (lambda: None, "mine returned None instead of scores", "mine returned None instead of vectors"),
        ("text", "scores that are not numbers", "vectors that are not numbers"),
        ([object(), object()], "scores that are not numbers", "vectors that are not numbers"),
        ([10**400, 1], "scores that are not numbers", "vectors that are not numbers"),
        ([1j, 1], "scores that are not numbers", "vectors that are not numbers"),
        ([[1, 2], [1]], "scores that are not numbers", "vectors that are not numbers"),
        ([{"score": 1}, 2], "scores that are not numbers", "vectors that are not numbers"),
        (later, "score is an async function", "encode is an async function"),
        ([1.0, float("nan")], "returned nan as the score of pair 1", None),
        ([1.0], "1 scores for 2 pairs", None),
    ],
    ids=["nothing", "text", "objects", "huge", "complex", "ragged", "dicts", "async", "nan", "few"],
)
def test_anything_else_is_one_line_that_names_the_part(result: Any, score: str, encode: str | None) -> None:
    with pytest.raises(ModelError, match=score) as refused:
        part(result).score(PAIRS)  # type: ignore[attr-defined]
    assert "\n" not in str(refused.value) and "airgen/" not in str(refused.value)
    if encode is not None:
        with pytest.raises(ModelError, match=encode):
            part(result).encode(["a", "b"], "query")  # type: ignore[attr-defined]


def test_an_iterator_that_raises_halfway_is_the_parts_error() -> None:
    def half() -> Any:
        yield 1.0
        raise KeyError("half")

    with pytest.raises(ModelError, match=r"mine: .*test_component_results\.py:\d+: KeyError: 'half'"):
        part(half).score(PAIRS)  # type: ignore[attr-defined]
