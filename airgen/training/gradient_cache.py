"""Gradients of a loss over a large batch, with the memory of a small one (Gao and others, 2021, RepL4NLP).

    cached_backward(encode, chunks, loss)      # equals loss(torch.cat([encode(chunk) for chunk in chunks])).backward()

With in-batch negatives the loss depends on all pairs of a batch together, so gradient accumulation over parts of the
batch would change it. But the loss depends on the encoder only through its vectors: (1) all chunks are encoded without
gradients, (2) the loss gives the gradient of every vector, (3) each chunk is encoded again and passes its gradient on.
The random state of each chunk is restored, so that dropout uses the same mask both times. The result equals that of the
full batch up to rounding. E5 needs this for batches of 32,768 pairs (section 5.1).

With several processes (`processes.py`) each encodes every n-th chunk, and its parameters get the part of the gradient
that its chunks give: the sum over the processes is the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import Any, TypeVar

from airgen.registry import load_extra
from airgen.training.checkpoint import random_state, set_random_state
from airgen.training.processes import gathered, processes, rank

T = TypeVar("T", bound=Sized)


def cached_backward(
    encode: Callable[[T], Any], chunks: Sequence[T], loss: Callable[[Any], dict[str, Any]]
) -> dict[str, float]:
    """Add the gradient of `loss(vectors)["loss"]` to the parameters of `encode`; returns the numbers of the loss.

    `encode(chunk)` returns (rows, dim). `loss` takes the concatenated rows of all chunks and may have parameters of its
    own. A single chunk is a plain backward pass.
    """
    torch = load_extra("torch", "training")
    if len(chunks) == 1 and processes() == 1:
        parts = loss(encode(chunks[0]))
        parts["loss"].backward()
        return _numbers(parts)
    states, pieces = [], []
    own = chunks[rank() :: processes()]
    with torch.no_grad():
        for chunk in own:
            states.append(random_state())
            pieces.append(encode(chunk))
    if processes() > 1:
        pieces = _of_all(pieces, chunks)
    vectors = torch.cat(pieces).detach().requires_grad_()
    parts = loss(vectors)
    parts["loss"].backward()
    after = random_state()
    rows = torch.split(vectors.grad, [len(piece) for piece in pieces])[rank() :: processes()]
    del pieces
    for chunk, state, gradient in zip(own, states, rows, strict=True):
        set_random_state(state)
        encode(chunk).backward(gradient)
    set_random_state(after)
    return _numbers(parts)


def _of_all(own: list[Any], chunks: Sequence[Any]) -> list[Any]:
    """The vectors of every chunk, of which each process has encoded its own."""
    torch = load_extra("torch", "training")
    count = processes()
    sizes = [list(map(len, chunks[number::count])) for number in range(count)]
    rows = gathered(torch.cat(own), list(map(sum, sizes)))
    found: list[Any] = [None] * len(chunks)
    for number in range(count):
        found[number::count] = torch.split(rows[number], sizes[number])
    return found


def _numbers(parts: dict[str, Any]) -> dict[str, float]:
    return {name: float(value.detach()) if hasattr(value, "detach") else float(value) for name, value in parts.items()}
