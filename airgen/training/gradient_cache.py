"""Gradients of a loss over a large batch, with the memory of a small one (Gao and others, 2021, RepL4NLP).

    cached_backward(encode, chunks, loss)      # equals loss(torch.cat([encode(chunk) for chunk in chunks])).backward()

With in-batch negatives the loss depends on all pairs of a batch together, so gradient accumulation over parts of the
batch would change it. But the loss depends on the encoder only through its vectors: (1) all chunks are encoded without
gradients, (2) the loss gives the gradient of every vector, (3) each chunk is encoded again and passes its gradient on.
The random state of each chunk is restored, so that dropout uses the same mask both times. The result equals that of the
full batch up to rounding. E5 needs this for batches of 32,768 pairs (section 5.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from airgen.registry import load_extra
from airgen.training.checkpoint import random_state, set_random_state

__all__ = ["cached_backward"]

T = TypeVar("T")


def cached_backward(
    encode: Callable[[T], Any], chunks: Sequence[T], loss: Callable[[Any], dict[str, Any]]
) -> dict[str, float]:
    """Add the gradient of `loss(vectors)["loss"]` to the parameters of `encode`; returns the numbers of the loss.

    `encode(chunk)` returns (rows, dim). `loss` takes the concatenated rows of all chunks and may have parameters of its
    own. A single chunk is a plain backward pass.
    """
    torch = load_extra("torch", "training")
    if len(chunks) == 1:
        parts = loss(encode(chunks[0]))
        parts["loss"].backward()
        return _numbers(parts)
    states, pieces = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(random_state())
            pieces.append(encode(chunk))
    vectors = torch.cat(pieces).detach().requires_grad_()
    parts = loss(vectors)
    parts["loss"].backward()
    after = random_state()
    rows = torch.split(vectors.grad, [len(piece) for piece in pieces])
    del pieces
    for chunk, state, gradient in zip(chunks, states, rows, strict=True):
        set_random_state(state)
        encode(chunk).backward(gradient)
    set_random_state(after)
    return _numbers(parts)


def _numbers(parts: dict[str, Any]) -> dict[str, float]:
    return {name: float(value.detach()) if hasattr(value, "detach") else float(value) for name, value in parts.items()}
