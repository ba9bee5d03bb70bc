"""A batch on the disk: its requests and its state. Each step is written down before the next one begins.

batch = BatchFile.write(folder, {key: line, ...}, base_url)      # prepared
batch.note(state="uploaded", file="file-abc")          # then submitted, then done
"""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airgen.errors import StoreError


class BatchFile:
    """`<name>.jsonl` holds the requests, `<name>.json` the state; `keys` are the keys of the requests."""

    def __init__(self, folder: Path, name: str, state: dict[str, Any]) -> None:
        self.folder, self.name, self.state = folder, name, state
        self.keys: frozenset[str] = frozenset(state["keys"])

    @classmethod
    def write(cls, folder: Path, lines: Mapping[str, bytes], url: str) -> "BatchFile":
        """Write requests to the disk as a new batch for the server at `url`. Raises StoreError where that fails."""
        name = f"airgen-{secrets.token_hex(8)}"
        batch = cls(folder, name, {"state": "prepared", "url": url, "keys": sorted(lines)})
        batch._replace(f"{name}.jsonl", b"".join(lines[key] for key in sorted(lines)))
        batch.note()
        return batch

    @classmethod
    def unfinished(cls, folder: Path) -> "list[BatchFile]":
        """The batches that are not done, oldest first. Raises StoreError for a state that cannot be read."""
        found = []
        for path in sorted(folder.glob("airgen-*.json"), key=lambda path: (path.stat().st_mtime, path.name)):
            try:
                state = json.loads(path.read_bytes())
                batch = cls(folder, path.stem, {"state": str(state["state"]), "url": str(state["url"]), **state})
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise StoreError(
                    f"{path}: not the state of a batch ({error}): move it away to go on without it"
                ) from error
            if state.get("state") != "done":
                found.append(batch)
        return found

    def requests(self) -> bytes:
        """The requests as JSON lines."""
        try:
            return (self.folder / f"{self.name}.jsonl").read_bytes()
        except OSError as error:
            raise StoreError(f"{self.folder / self.name}.jsonl: {error.strerror}") from error

    def note(self, **changes: str) -> None:
        """Change the state; it is on the disk when this returns."""
        self.state |= changes
        self._replace(f"{self.name}.json", json.dumps(self.state).encode())

    def _replace(self, name: str, content: bytes) -> None:
        path = self.folder / name
        beside = path.with_name(name + ".part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
