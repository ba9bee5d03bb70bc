"""One small dataset with everything that breaks loaders: tabs, quotes, line ends, many scripts, empty titles."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from airgen.dataset.content import (
    CorpusRow,
    DatasetContent,
    DatasetInfo,
    FunnelStep,
    ModelUse,
    QrelRow,
    QueryRow,
)
from airgen.dataset.secret import Secret
from airgen.dataset.write import write_dataset

HOSTILE = '\u201cquoted\u201d "plain" <b>bold</b> \\ back 天気 погода مرحبا \u2028sep\ttab\nnext line 😀'
SECRET = "lineage-only-words"

INFO = DatasetInfo(
    name="weather-notes",
    task="qa",
    domain="science",
    language="en",
    source_licence="CC-BY-4.0",
    labels_licence="CC-BY-NC-SA-4.0",
    version="26.11",
    seed=None,
    splits={"dev": 1, "test": 4},
    source="Weather notes",
    source_url="https://example.org/notes",
)


def make_content(n_documents: int = 12, n_queries: int = 6, **changes: Any) -> DatasetContent:
    """Make `n_queries` queries, the last third in dev; query i has the positives i and i+1 and the negative
    i+2."""
    corpus = [
        CorpusRow(
            id=f"doc{i:03d}",
            title="" if i % 3 else f"Title {i}",
            text=f"Passage {i}: {HOSTILE} {i * 7919}",
        )
        for i in range(n_documents)
    ]
    rows = [
        QueryRow(
            id=f"q-{i:02d}",
            text=f'What is passage {i} about, "really"? 天気 {i}',
            split="dev" if i % 3 == 2 else "test",
            metadata={"type": "question", "length": "lt5" if i % 2 else "10to20", "rewritten": bool(i % 2)},
        )
        for i in range(n_queries)
    ]
    qrels = []
    for i in range(n_queries):
        qrels += [
            QrelRow(f"q-{i:02d}", f"doc{i:03d}", 1, level=3, gain=0.9),
            QrelRow(f"q-{i:02d}", f"doc{i + 1:03d}", 1, level=2, gain=0.6),
            QrelRow(f"q-{i:02d}", f"doc{i + 2:03d}", 0, level=None if i % 2 else 1),
        ]
    content = DatasetContent(
        info=INFO,
        corpus=corpus,
        queries=rows,
        qrels=qrels,
        provenance=[ModelUse("judge", "gpt|4o", "judge", "1"), ModelUse("recall", "BAAI/bge-m3")],
        funnel=[FunnelStep("query", 10, 8, {"too long": 2}), FunnelStep("decision", 8, 6, {"not relevant": 2})],
        pipeline_yaml="name: weather-notes\ntask: qa\n# ```` a fence that would close a block\n",
        secret=Secret(bytes(range(32))),
        lineage=[{"query": f"q-{i:02d}", "document": f"doc{i:03d}", "scenario": SECRET} for i in range(n_queries)],
    )
    return dataclasses.replace(content, **changes)


@pytest.fixture(autouse=True)
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off flushing to disk, which takes most of the time and matters only if the power fails."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Provide a finished dataset directory."""
    write_dataset(tmp_path / "weather-notes", make_content())
    return tmp_path / "weather-notes"
