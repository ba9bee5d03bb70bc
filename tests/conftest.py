"""Shared fixtures: the human-labelled collections where they are, and settings that keep tests quick."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with human-labelled collections; tests that need it skip where it is missing."""
    named = os.environ.get("AIRGEN_SHARED")
    path = Path(named) if named else Path(__file__).resolve().parents[2] / "shared"
    if not (path / "collections").is_dir():
        pytest.skip("no human-labelled collections beside the repository (AIRGEN_SHARED)")
    return path
