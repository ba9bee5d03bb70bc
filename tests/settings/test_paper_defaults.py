"""Each number that the AIR-Bench paper gives is the default; docs/differences.md lists what is not."""

from collections.abc import Callable

import pytest

from airgen.corpus.settings import LongDocSettings
from airgen.generation.attributes import WORDS, query_attributes
from airgen.settings import Pipeline


def pipeline(task: str) -> Pipeline:
    values = {"name": "p", "task": task, "corpus": "c", "target": 1, "llm": {"backend": "scripted"}}
    return Pipeline.model_validate(values)


QA, LONG = pipeline("qa"), pipeline("long-doc")
CHUNKS = LongDocSettings()
NUMBERS: dict[str, tuple[Callable[[], object], object]] = {
    "A.1, note 14: chunk_size=200, chunk_overlap=50": (lambda: (CHUNKS.chunk_size, CHUNKS.chunk_overlap), (200, 50)),
    "A.2.1: four lengths, 1:4:2:1": (
        lambda: QA.generation.lengths, {"lt5": 1, "lt10": 4, "10to20": 2, "ge20": 1},
    ),
    "A.2.1: less than 5, less than 10, 10 to 20, at least 20 words": (
        lambda: WORDS, {"lt5": (1, 4), "lt10": (1, 9), "10to20": (10, 20), "ge20": (20, None)},
    ),
    "A.2.1: question, problem, claim, 3:1:1": (
        lambda: QA.generation.types, {"question": 3, "problem": 1, "claim": 1},
    ),
    "A.2.1: Long-Doc has questions and claims only": (lambda: set(LONG.generation.types), {"question", "claim"}),
    "A.2.1: overall and partial, 1:1": (lambda: QA.generation.information, {"overall": 1, "partial": 1}),
    "A.2.1: seven styles, 5:3:3:1:1:1:1": (
        lambda: list(QA.generation.styles.items()),
        [("concise", 5), ("casual", 3), ("informal", 3), ("formal", 1), ("professional", 1), ("complicated", 1),
         ("academic", 1)],
    ),
    "A.2.1: length is an attribute of step 4 only": (lambda: QA.generation.free_rewrites, True),
    "A.2.2: 3 to 7 hard negatives": (lambda: QA.generation.hard_negatives, (3, 7)),
    "A.2.2: none for Long-Doc": (lambda: LONG.generation.hard_negatives, (0, 0)),
    "A.3: bge-m3, top 1,000": (
        lambda: (QA.control.recall.model.written, QA.control.recall.top_k), ("BAAI/bge-m3", 1000),
    ),
    "A.3, authors' repository: three re-rankers": (
        lambda: [spec.written for spec in QA.control.rerankers],
        ["BAAI/bge-reranker-large", "maidalun1020/bce-reranker-base_v1", "nreimers/mmarco-mMiniLMv2-L12-H384-v1"],
    ),
    "A.3: thresholds of 20 and 10": (
        lambda: (QA.control.thresholds.hard_negative, QA.control.thresholds.other), (20, 10),
    ),
    "A.3: four levels": (lambda: QA.control.judge.kind, "paper"),
    "A.4: dev and test, 1:4": (lambda: QA.export.splits, {"dev": 1, "test": 4}),
    "A.4: a Long-Doc dataset is one split": (lambda: LONG.export.splits, {"test": 1}),
    "B.2: the licence of the generated data": (lambda: QA.export.licence, "CC-BY-NC-SA-4.0"),
}  # fmt: skip


@pytest.mark.parametrize("place", NUMBERS)
def test_the_papers_number_is_the_default(place: str) -> None:
    found, expected = NUMBERS[place]
    assert found() == expected


def test_claims_are_long() -> None:
    """A.2.1: the length of a claim is sampled from the two longer classes only."""
    drawn = [query_attributes(QA.generation, f"k{number}") for number in range(500)]
    assert {length for length, kind, _ in drawn if kind == "claim"} == {"10to20", "ge20"}
