"""The small ONNX encoder computes each text once in a process: the jobs of the tests have the same few passages.

The states of a text depend on nothing but its tokens and the model's file (tests/retrievers and tests/compute show that
on the encoder as it is), so a job gives the same bytes with and without this. Encoding is most of a small job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Run = Callable[[NDArray[np.int64]], NDArray[np.float32]]
LIMIT = 1000  # texts, of 0.1 MB each or less


class Kept:
    """The states of the first texts, by the model's file and the tokens."""

    on = True
    states: dict[tuple[Any, ...], NDArray[np.float32]] = {}  # noqa: RUF012


@pytest.fixture(autouse=True, scope="session")
def encode_once() -> Iterator[None]:
    """Keep what the encoder computes."""
    from airgen.retrievers.dense.onnx_encoder import OnnxEncoder

    plain = OnnxEncoder.__dict__["_run"].func

    def run_of(encoder: OnnxEncoder) -> Run:
        path = encoder._folder / "model.onnx"
        if not Kept.on or not path.exists():
            return plain(encoder)
        file, loaded = path.stat(), list[Run]()

        def run(ids: NDArray[np.int64]) -> NDArray[np.float32]:
            key = (str(path), file.st_mtime_ns, file.st_size, ids.tobytes())
            if key in Kept.states:
                return Kept.states[key].copy()
            if not loaded:
                loaded.append(plain(encoder))
            states = loaded[0](ids)
            if len(Kept.states) < LIMIT:
                Kept.states[key] = states.copy()
            return states

        return run

    patched = cached_property(run_of)
    patched.__set_name__(OnnxEncoder, "_run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnnxEncoder, "_run", patched)
        yield


@pytest.fixture(autouse=True, scope="module")
def encoder_as_it_is() -> Iterator[None]:
    """Compute every time: for tests that are about the encoder itself, in whose conftest.py this is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kept, "on", False)
        yield
