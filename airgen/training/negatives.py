"""More negatives than a batch has, without the memory of a larger batch (E5, table 8).

    "pre-batch"   the passage vectors of earlier batches, computed with older weights   (Lee and others, 2021)
    "moco"        passages are encoded by a second encoder, a running mean of the first;
                  its vectors of earlier batches are the negatives                      (He and others, 2020)

Both keep a queue of vectors. The queue is part of the model's state, so that a resumed training has the same negatives.
E5 found both worse than a large batch.
"""

from __future__ import annotations

import copy
from typing import Any

from airgen.registry import load_extra


class Queue:
    """The latest `size` vectors and the ids of their texts, kept in buffers of the module `owner`."""

    def __init__(self, owner: Any, size: int, dim: int) -> None:
        torch = load_extra("torch", "training")
        self._owner = owner
        owner.register_buffer("queue", torch.zeros(size, dim))
        owner.register_buffer("queue_texts", torch.full((size,), -1, dtype=torch.long))
        owner.register_buffer("queue_at", torch.zeros(1, dtype=torch.long))

    def read(self) -> tuple[Any, Any]:
        """(vectors, text ids), (n, dim) and (n,)."""
        filled = self._owner.queue_texts >= 0
        return self._owner.queue[filled], self._owner.queue_texts[filled]

    def push(self, vectors: Any, texts: Any) -> None:
        """Replace the oldest vectors by new ones; of more than `size`, only the last are kept."""
        torch = load_extra("torch", "training")
        size = len(self._owner.queue)
        vectors, texts = vectors.detach()[-size:], texts[-size:]
        places = (self._owner.queue_at + torch.arange(len(vectors), device=vectors.device)) % size
        self._owner.queue[places] = vectors.to(self._owner.queue.dtype)
        self._owner.queue_texts[places] = texts
        self._owner.queue_at[0] = (self._owner.queue_at[0] + len(vectors)) % size


def momentum_copy(encoder: Any) -> Any:
    """A copy whose weights have no gradients."""
    twin = copy.deepcopy(encoder)
    for weights in twin.parameters():
        weights.requires_grad_(False)
    return twin


def follow(twin: Any, encoder: Any, momentum: float) -> None:
    """Set each weight of the copy to momentum * weight + (1 - momentum) * the encoder's weight."""
    torch = load_extra("torch", "training")
    with torch.no_grad():
        for own, other in zip(twin.parameters(), encoder.parameters(), strict=True):
            own.lerp_(other.detach(), 1 - momentum)
