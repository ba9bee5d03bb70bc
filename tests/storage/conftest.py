"""Every database of these tests is made, and not copied."""

from collections.abc import Callable
from pathlib import Path

import pytest

from airgen.storage import store


@pytest.fixture(autouse=True)
def no_copies(empty_once: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_write_empty", empty_once)
