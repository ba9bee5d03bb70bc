"""Large arrays lie in files without a name, whose pages the system writes out when memory is short."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAPPED_FROM = 64 << 20  # bytes of an array


def room(size: int, kind: Any, *, least: int | None = None) -> NDArray[Any]:
    """An array of any values: in a file without a name if it has `least` bytes (64 MB) and the disk has room."""
    if size * np.dtype(kind).itemsize < (_MAPPED_FROM if least is None else least):
        return np.empty(size, kind)
    try:
        with tempfile.TemporaryFile(prefix="airgen-") as file:
            if hasattr(os, "posix_fallocate"):  # without the room, writing to the array would end the process
                os.posix_fallocate(file.fileno(), 0, size * np.dtype(kind).itemsize)
            return np.memmap(file, kind, "w+", shape=(size,))
    except OSError:
        return np.empty(size, kind)
