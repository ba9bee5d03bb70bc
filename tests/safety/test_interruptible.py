"""Work in threads that somebody stops."""

import threading
from types import SimpleNamespace

import pytest

from airgen.errors import Stopped
from airgen.retrievers.dense.onnx_encoder import EmbeddedModel


def test_a_stop_leaves_the_texts_of_a_batch_that_have_not_begun() -> None:
    """A batch is a minute of a re-ranker; its progress is told every few texts, which is where a stop is noticed."""
    begun: list[int] = []
    stopping = threading.Event()

    def read(item: int) -> int:
        begun.append(item)
        if len(begun) > 20:
            stopping.wait(20)
        return item

    def tell(done: int, total: int) -> None:
        stopping.set()
        raise Stopped("stopped")

    with pytest.raises(Stopped):
        EmbeddedModel._beside(SimpleNamespace(threads=2), read, range(20_000), tell)  # type: ignore[arg-type]
    assert len(begun) < 20_000
