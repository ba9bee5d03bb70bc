"""Let the small ONNX encoder compute each text once per process, since the tests' jobs have the same few passages.

The states of a text depend only on its tokens and the model file (as tests/retrievers and tests/compute show with the
unmodified encoder), so a job gives the same bytes with and without this. Loading the model and encoding take three
quarters of the time of a small job.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

LIMIT = 1000  # texts, of 0.1 MB each or less


class Kept:
    """Loaded models by file identity, and the states of the latest texts by model and tokens."""

    on = True
    loaded: dict[tuple[Any, ...], Any] = {}  # noqa: RUF012
    states: dict[tuple[Any, ...], NDArray[np.float32]] = {}  # noqa: RUF012


def _identity(path: Path) -> tuple[Any, ...]:
    file = path.stat()
    return str(path), file.st_mtime_ns, file.st_size


@contextmanager
def encoding_once() -> Iterator[None]:
    """Cache the encoder's models and results."""
    from airgen.retrievers.dense import onnx_encoder

    kind, plain_tokenizer = onnx_encoder.OnnxModel, onnx_encoder.load_tokenizer
    plain_run = kind.__dict__["_run"].func

    def run_of(encoder: onnx_encoder.OnnxModel) -> Any:
        path = encoder._folder / "model.onnx"
        if not path.exists():
            return plain_run(encoder)
        # By its name a model may run by another graph than by its folder.
        file = (encoder.name, encoder.output, *_identity(path))

        def run(ids: NDArray[np.int64], types: NDArray[np.int64]) -> NDArray[np.float32]:
            if file not in Kept.loaded:
                Kept.loaded[file] = plain_run(encoder)
            if not Kept.on:
                return Kept.loaded[file](ids, types)
            key = (*file, ids.tobytes(), types.tobytes())
            if key in Kept.states:
                Kept.states[key] = Kept.states.pop(key)  # the latest ones are kept
                return Kept.states[key].copy()
            states = Kept.loaded[file](ids, types)
            if len(Kept.states) == LIMIT:
                del Kept.states[next(iter(Kept.states))]
            Kept.states[key] = states.copy()
            return states

        return run

    def tokenizer(path: Path, max_length: int) -> Any:
        if not path.exists():
            return plain_tokenizer(path, max_length)
        key = (*_identity(path), max_length)
        if key not in Kept.loaded:
            Kept.loaded[key] = plain_tokenizer(path, max_length)
        return Kept.loaded[key]

    patched = cached_property(run_of)
    patched.__set_name__(kind, "_run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "_run", patched)
        patch.setattr(onnx_encoder, "load_tokenizer", tokenizer)
        yield


@pytest.fixture(autouse=True, scope="session")
def encode_once() -> Iterator[None]:
    with encoding_once():
        yield


@pytest.fixture(autouse=True, scope="module")
def encoder_as_it_is() -> Iterator[None]:
    """Turn the cache off, for tests of the encoder itself, whose conftest.py imports this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kept, "on", False)
        yield
