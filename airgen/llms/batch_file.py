"""The state of a batch on disk. Each step is saved before the next one begins.

batch = BatchFile(folder, name, {"url": base_url, "keys": [...]})
batch.note(state="uploaded", file="file-abc")          # then submitted, then done
"""

import json
import os
from pathlib import Path
from typing import Any

from airgen.errors import StoreError, disk_error


class BatchFile:
    """The file `<name>.json`, which exists from the upload on. `keys` are the keys of the batch's requests."""

    def __init__(self, folder: Path, name: str, state: dict[str, Any]) -> None:
        self.folder, self.name, self.state = folder, name, state
        self.keys: frozenset[str] = frozenset(state["keys"])

    @property
    def remedy(self) -> str:
        """Return what to do about a batch that the server no longer knows or does not return."""
        path = self.folder / f"{self.name}.json"
        return f"run the same command to try again, or delete {path} to pay for its requests again"

    @classmethod
    def unfinished(cls, folder: Path) -> "list[BatchFile]":
        """Return the unfinished batches, oldest first. Raises StoreError if a state cannot be read."""
        batches = []
        for path in sorted(folder.glob("airgen-*.json"), key=lambda path: (path.stat().st_mtime, path.name)):
            try:
                state = json.loads(path.read_bytes())
                batch = cls(folder, path.stem, {"state": str(state["state"]), "url": str(state["url"]), **state})
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise StoreError(
                    f"{path}: not the state of a batch ({error}): move it away to continue without it"
                ) from error
            if state["state"] != "done":
                batches.append(batch)
        return batches

    def note(self, **changes: str) -> None:
        """Change the state, and return once it is on disk. Raises StoreError."""
        self.state |= changes
        path = self.folder / f"{self.name}.json"
        beside = path.with_name(path.name + ".part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                file.write(json.dumps(self.state).encode())
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError as error:
            raise disk_error(error, StoreError) from error
