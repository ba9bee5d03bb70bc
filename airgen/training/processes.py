"""Several processes, each with a GPU or a part of the cores, that train one model: torch's own launcher starts them.

    torchrun --nproc-per-node 4 -m airgen train pretrain --on data/pairs --base BASE --out models/e5

Each process reads the data and encodes its part of every batch. The vectors of all are gathered, so that in-batch
negatives are those of the whole batch, and gradients are summed: they equal those of one process up to rounding. The
first process evaluates, saves and prints. If one fails, the launcher ends the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from airgen.keys import rng
from airgen.registry import load_extra

T = TypeVar("T")


def processes() -> int:
    """How many processes train together; 1 without the launcher."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def rank() -> int:
    """The number of this process, from 0."""
    return int(os.environ.get("RANK") or 0) if processes() > 1 else 0


@contextmanager
def joined_processes(device: str) -> Iterator[str]:
    """Meet the other processes; yields the device of this one: of several GPUs, the one of its number."""
    if processes() == 1:
        yield device
        return
    torch = load_extra("torch", "training")
    if device.startswith("cuda"):
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield device
    finally:
        torch.distributed.destroy_process_group()


def wait_for_all() -> None:
    """Return when every process is here."""
    if processes() > 1:
        load_extra("torch", "training").distributed.barrier()


def shared(value: T) -> T:
    """The value that the first process gives."""
    if processes() == 1:
        return value
    held: list[Any] = [value]
    load_extra("torch", "training").distributed.broadcast_object_list(held, 0)
    found: T = held[0]
    return found


def gathered(own: Any, counts: Sequence[int]) -> list[Any]:
    """The rows of every process, (counts[r], dim) of process r; `own` are those of this one, in the order of ranks."""
    torch = load_extra("torch", "training")
    room = own.new_zeros(max(counts), own.shape[1])
    room[: len(own)] = own
    every = [torch.empty_like(room) for _ in counts]
    torch.distributed.all_gather(every, room)
    return [rows[:count] for rows, count in zip(every, counts, strict=True)]


def sum_gradients(weights: Iterable[Any]) -> None:
    """Give every process the sum of all processes' gradients."""
    if processes() == 1:
        return
    torch = load_extra("torch", "training")
    for tensor in weights:
        if tensor.grad is not None:  # a head that is not used has none, in any process
            torch.distributed.all_reduce(tensor.grad)


def seed_step(seed: int, step: int) -> None:
    """With several processes, set the random state of a step: it depends on nothing before, so resuming is exact."""
    if processes() > 1:
        load_extra("torch", "training").manual_seed(rng("step", seed, step, rank()).getrandbits(63))
