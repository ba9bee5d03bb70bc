"""A stand-in for GPUs: torch says that there are some, what is sent to one stays on the CPU, and memory can run out.

    with stand_in_gpus(memory=64 << 20, allocation=1 << 20) as gpus:
        ...                             # cuda:0 and cuda:1 are there; a tensor of more than 1 MB is out of memory
    gpus.asked                          # the devices to which something was sent, in their order

It shows which device is chosen, in which dtype, what happens where memory is exhausted, and that memory is given back.
What a GPU computes, and how fast, only a GPU shows (`make gpu`).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode


@dataclass
class StandIn:
    """The recorded use of the GPUs. `emptied` counts releases of cached memory, and `refused` failed allocations."""

    asked: list[str] = field(default_factory=list)
    emptied: int = 0
    refused: int = 0
    current: int = 0


class _Routed(TorchFunctionMode):
    def __init__(self, gpus: StandIn, count: int, allocation: int | None) -> None:
        super().__init__()
        self._gpus, self._count, self._allocation = gpus, count, allocation

    def _device(self, value: Any) -> Any:
        named = isinstance(value, torch.device) and value.type == "cuda"
        if not named and not (isinstance(value, str) and value.partition(":")[0] == "cuda"):
            return value
        number = torch.device(value).index or 0
        if number >= self._count:
            raise RuntimeError(
                f"CUDA error: invalid device ordinal {number}\nCUDA kernel errors might be reported later"
            )
        self._gpus.asked.append(f"cuda:{number}")
        return torch.device("cpu")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:  # only its name
            return func(*args, **(kwargs or {}))
        args = tuple(self._device(one) for one in args)
        kwargs = {name: self._device(one) for name, one in (kwargs or {}).items()}
        result = func(*args, **kwargs)
        numbers = isinstance(result, torch.Tensor) and result.is_floating_point()  # tokens are made on the CPU
        if self._allocation is not None and numbers and result.nbytes > self._allocation:
            self._gpus.refused += 1
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {result.nbytes / 2**20:.2f} MiB. GPU 0 has a total capacity of"
            )
        return result


@contextmanager
def stand_in_gpus(
    count: int = 2, *, memory: int = 8 << 30, bf16: bool = True, allocation: int | None = None
) -> Iterator[StandIn]:
    """Simulate `count` GPUs in the block, each with `memory` bytes, of which a tensor can have `allocation`."""
    gpus = StandIn()

    def set_device(device: Any) -> None:
        gpus.current = torch.device(device).index if isinstance(device, str | torch.device) else int(device)

    def empty() -> None:
        gpus.emptied += 1

    said: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: count,
        "current_device": lambda: gpus.current,
        "set_device": set_device,
        "synchronize": lambda *_: None,
        "empty_cache": empty,
        "is_bf16_supported": lambda *_, **__: bf16,
        "get_device_name": lambda *_: "Stand-in",
        "get_device_properties": lambda *_: SimpleNamespace(total_memory=memory, name="Stand-in", major=8, minor=0),
        "get_device_capability": lambda *_: (8, 0) if bf16 else (7, 0),
        "mem_get_info": lambda *_: (memory, memory),
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 123_456_789,
        "reset_peak_memory_stats": lambda *_: None,
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "get_rng_state_all": lambda: [torch.zeros(16, dtype=torch.uint8)] * count,
        "set_rng_state": lambda *_: None,
        "set_rng_state_all": lambda *_: None,
        "manual_seed_all": lambda *_: None,
        "_lazy_init": lambda: None,
    }
    with ExitStack() as stack:
        for name, answer in said.items():
            for module in (torch.cuda, torch.cuda.random):
                if hasattr(module, name):
                    stack.enter_context(patch.object(module, name, answer))
        stack.enter_context(_Routed(gpus, count, allocation))
        assert threading.current_thread() is threading.main_thread()  # a mode belongs to its thread
        yield gpus
