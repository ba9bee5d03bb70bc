"""Make a corpus from rows, and the settings of a job that runs without a model."""

import random
from typing import Any

import airgen

TOPICS = ["bridges", "yeast", "glaciers", "violins", "tariffs", "beetles", "harbours", "lanterns", "orchards", "tides"]
FACTS = ["need repair", "attract visitors", "differ in colour", "grow in winter", "carry a heavy load", "were banned"]

LEXICAL: dict[str, Any] = {
    "llm": "scripted", "rerankers": ["bm25", {"kind": "bm25", "k1": 2.0}], "quiet": True,
    "control": {"recall": {"pools_only": True, "top_k": 20}, "pools": ["bm25"]},
}  # fmt: skip
"""A job that asks the scripted model, and finds and votes by words."""

PLAIN: dict[str, Any] = {"language": "en", "clean": {"language": "off", "near_duplicates": None}}
"""Cleaning that keeps what the tests make up."""


def rows(count: int = 60) -> list[dict[str, Any]]:
    """Return documents about a few subjects, each with a product and a version."""
    drawn = random.Random(3)
    return [
        {
            "url": f"p{place}",
            "name": f"{TOPICS[place % 10].title()} {place}",
            "body": " ".join(
                f"Specimen {place * 7 + part} of {TOPICS[place % 10]} shows that {drawn.choice(TOPICS)} "
                f"{drawn.choice(FACTS)} whenever {drawn.choice(TOPICS)} {drawn.choice(FACTS)}."
                for part in range(4)
            ),
            "product": "core" if place % 7 == 0 else ["core", "cloud", "desk"][place % 3],
            "version": 1 + place % 2,
        }
        for place in range(count)
    ]


def corpus(**more: Any) -> airgen.Corpus:
    """Return the rows as a corpus."""
    return airgen.Corpus(rows(), **{"id": "url", "title": "name", "text": "body", **PLAIN, **more})
