"""Fixtures of the dataset tests; the rows are in `dataset_maker`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dataset_maker import make_content

from airgen.dataset.write import write_dataset


@pytest.fixture(autouse=True)
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushing to the disk matters when the power fails, which no test does; it is most of the time otherwise."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A finished dataset directory."""
    write_dataset(tmp_path / "weather-notes", make_content())
    return tmp_path / "weather-notes"
