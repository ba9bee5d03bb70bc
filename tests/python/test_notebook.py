"""What a notebook shows while something runs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rows_maker import corpus

import airgen
from airgen.display import notebook


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int | None]]:
    """Every state of the bar: its name, what is done, and the total."""
    states: list[tuple[str, int, int | None]] = []

    def update(name: str, done: int, total: int | None, note: str = "", *, force: bool = False) -> None:
        states.append((name, done, total))

    bar = SimpleNamespace(update=update, close=lambda: None, stopping=lambda: None)
    monkeypatch.setattr(notebook, "in_notebook", lambda: True)
    monkeypatch.setattr(notebook, "NotebookBar", lambda: bar)
    return states


def embed(texts: list[str]) -> Any:
    return np.eye(len(texts), 8) + 1


def test_the_bar_of_an_evaluation_names_each_system_and_counts(
    made: airgen.Benchmark, here: Path, shown: list[tuple[str, int, int | None]]
) -> None:
    airgen.evaluate(made, {"bm25": "bm25", "mine": airgen.Dense(embed)})
    names = [name for name, _, _ in shown]
    assert "handbook: bm25: running" in names and "handbook: mine: running" in names
    assert ("handbook: mine: encoding passages", 60, 60) in shown
    shown.clear()
    airgen.evaluate(made, {"bm25": "bm25"}, quiet=True, fresh=True)
    assert shown == []


def test_the_bar_of_a_corpus_counts_passages(shown: list[tuple[str, int, int | None]]) -> None:
    assert len(repr(corpus())) > 20
    assert shown[-1] == ("corpus corpus: preparing", 60, None)
