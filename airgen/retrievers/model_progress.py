"""How far a library's model is within one call, for progress bars."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airgen.retrievers.protocols import IndexProgress


@contextmanager
def counted_rows(module: Any, total: int, tell: IndexProgress | None) -> Iterator[None]:
    """Call `tell` in the block with `total` and the number of rows, at most `total`, that a torch module has read.

    A library runs its batches in one call, so its progress cannot be seen otherwise. Without `tell`, or if the object
    is not a module, nothing happens. Batches may run in several threads.
    """
    hook = getattr(module, "register_forward_hook", None)
    if tell is None or hook is None:
        yield
        return
    lock, done = threading.Lock(), 0

    def read(_: Any, given: tuple[Any, ...], named: dict[str, Any], __: Any) -> None:
        nonlocal done
        ids: Any = named.get("input_ids", given[0] if given else None)
        with lock:
            done = min(total, done + (len(ids) if hasattr(ids, "__len__") else 1))
            tell(done, total)

    handle = hook(read, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
