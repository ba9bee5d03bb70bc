"""Files from the Hugging Face Hub: the first source that is tried, and given up soon where it cannot be reached."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airgen.errors import ModelError
from airgen.models.catalogue import ModelEntry, ModelFile

WAIT = 8.0  # seconds to wait for an answer


class HubUnavailable(ModelError):
    """The Hub did not give this file, but another source may. The message says why."""


def download(entry: ModelEntry, file: ModelFile, staging: Path, tick: Callable[[int], None]) -> Path:
    """Download one file into `staging` and return its path; an interrupted download is continued.

    `tick` is called with the number of bytes that have arrived. Raises HubUnavailable where the Hub does not answer
    within `WAIT` seconds, lacks the file, or has a file of another size.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise HubUnavailable("huggingface_hub is not installed")
    import huggingface_hub as hub

    try:
        size = hub.get_hf_file_metadata(hub.hf_hub_url(entry.hub, file.hub_file), timeout=WAIT).size
        if size in (None, file.bytes):
            return Path(
                hub.hf_hub_download(
                    entry.hub, file.hub_file, local_dir=staging, etag_timeout=WAIT, tqdm_class=_counter(tick)
                )
            )
    except Exception as error:  # the classes of the HTTP library and of the Hub, which change with their versions
        raise HubUnavailable(f"the Hub: {type(error).__name__}") from error
    raise HubUnavailable(f"{entry.hub} has another {file.hub_file}: {size:,} bytes, {file.bytes:,} expected")


def _counter(tick: Callable[[int], None]) -> Any:
    """A class that stands in for huggingface_hub's progress bar, shows nothing, and calls `tick`."""
    bar: Any = importlib.import_module("tqdm").tqdm  # huggingface_hub depends on it

    class Counter(bar):  # type: ignore[misc]
        def __init__(self, *_: object, initial: int = 0, **__: object) -> None:
            super().__init__(disable=True)
            self.arrived = initial

        def update(self, n: float | None = 1) -> None:
            self.arrived += int(n or 0)
            tick(self.arrived)

    return Counter
