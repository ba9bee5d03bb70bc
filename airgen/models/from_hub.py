"""Files from the Hugging Face Hub: first choice where it can be reached, given up quickly where it cannot."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airgen.errors import ModelError
from airgen.models.catalogue import ModelEntry, ModelFile
from airgen.models.files import folder_bytes

__all__ = ["HubUnavailable", "download", "installed"]

WAIT = 8.0  # seconds for the first answer; a machine without the Hub must not hang
_POLL = 0.2  # seconds between looks at the bytes that have arrived


class HubUnavailable(ModelError):
    """The Hub did not give this file; another source may. The message says why."""


def installed() -> bool:
    """Whether huggingface_hub can be imported."""
    return importlib.util.find_spec("huggingface_hub") is not None


def download(entry: ModelEntry, file: ModelFile, staging: Path, tick: Callable[[int], None]) -> Path:
    """Fetch one file into `staging` and return its path; an interrupted download goes on where it stopped.

    `tick` is told how many bytes of it there are. Raises HubUnavailable when the Hub cannot be reached within
    `WAIT` seconds, lacks the file, or announces another size.
    """
    if not installed():
        raise HubUnavailable("huggingface_hub is not installed")
    _within(WAIT, lambda: _probe(entry, file))
    staging.mkdir(parents=True, exist_ok=True)
    work = _Worker(lambda: _download(entry, file, staging))
    while not work.wait(_POLL):
        tick(folder_bytes(staging))
    return Path(str(work.result()))


def _probe(entry: ModelEntry, file: ModelFile) -> None:
    import huggingface_hub as hub

    url = hub.hf_hub_url(entry.hub, file.hub_file)
    size = hub.get_hf_file_metadata(url, timeout=WAIT).size
    if size is not None and size != file.bytes:
        raise HubUnavailable(f"{entry.hub} has another {file.hub_file}: {size:,} bytes, {file.bytes:,} expected")


def _download(entry: ModelEntry, file: ModelFile, staging: Path) -> str:
    import huggingface_hub as hub
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    were_disabled = are_progress_bars_disabled()
    disable_progress_bars()  # ours is the only bar
    try:
        return str(hub.hf_hub_download(entry.hub, file.hub_file, local_dir=str(staging), etag_timeout=WAIT))
    finally:
        if not were_disabled:
            enable_progress_bars()


class _Worker:
    """Runs a function in a daemon thread, so that a name look-up that never answers cannot hold the program."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._value: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._function()
        except Exception as error:  # noqa: BLE001  handed to the caller by result(), as a typed error
            self._error = error

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> Any:
        if isinstance(self._error, ModelError):
            raise self._error
        if self._error is not None:
            # Whatever the HTTP library of the day raises: the Hub is only the first of the sources.
            raise HubUnavailable(f"the Hub: {type(self._error).__name__}") from self._error
        return self._value


def _within(seconds: float, function: Callable[[], Any]) -> None:
    work = _Worker(function)
    if not work.wait(seconds):
        raise HubUnavailable(f"the Hub did not answer within {seconds:.0f} s")
    work.result()
