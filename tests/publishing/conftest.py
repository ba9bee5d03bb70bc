"""A finished dataset directory, written without flushing, a folder with a small job, and a Hub of this machine."""

from collections.abc import Iterator

import pytest
from dataset_maker import dataset, no_flush
from fake_hub import FakeHub
from job_maker import folder

__all__ = ["dataset", "folder", "no_flush", "server"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub without accounts. The client's own pauses between attempts take no time."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with FakeHub() as running:
        yield running
