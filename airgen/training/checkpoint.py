"""Files of tensors that are complete or absent: written under another name, flushed, renamed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airgen.dataset.files import whole_file
from airgen.errors import TrainingError
from airgen.registry import load_extra


def write(path: Path, value: object) -> None:
    """Replace `path` by one rename. Raises TrainingError if the disk refuses."""
    try:
        with whole_file(path) as fresh, fresh.open("wb") as file:
            load_extra("torch", "training").save(value, file)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:  # torch's own writer raises RuntimeError on a full disk
        raise TrainingError(f"{path} cannot be written: {error}: free disk space, then go on with --resume") from error


def read(path: Path) -> Any:
    """Tensors on the CPU; nothing in the file is executed. Raises TrainingError for a damaged file."""
    try:
        return load_extra("torch", "training").load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and torch raise errors of their own
        raise TrainingError(
            f"{path} is damaged ({type(error).__name__}): delete {path.parent} to start from the beginning"
        ) from error


def random_state() -> dict[str, Any]:
    """The state of torch's random generators, on which dropout depends; all other random choices use keys."""
    torch = load_extra("torch", "training")
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}


def set_random_state(state: dict[str, Any]) -> None:
    """Restore what `random_state` returned."""
    torch = load_extra("torch", "training")
    torch.set_rng_state(state["cpu"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
