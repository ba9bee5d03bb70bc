"""The state of a local model after the constant beginning of a prompt, on disk for the next process.

    saved = SavedPrefixes(cache_dir("prefixes"))
    saved.find(key)                # the name of its file, or None
    saved.keep(key, "state.tmp")   # takes over a file that was written into the folder

A prompt's instructions and worked examples are the same for all documents, and a CPU takes ten seconds or more to read
them. The key covers the model, the build of llama.cpp and the tokens, so a state is what the same computation would
give. A file's name also contains a hash of its contents, so a damaged file is not used.
"""

import os
from contextlib import suppress
from pathlib import Path

from airgen.components.keys import file_sha256

KEPT = 8
"""Number of states that are kept, the latest ones. Each takes 28 kB per token of the default model: 20 to 60 MB."""

_HASH_DIGITS = 16


class SavedPrefixes:
    """The states in a folder. If the folder cannot be written to, none are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> str | None:
        """Return the name of the file with this state, or None. Damaged files are removed."""
        with suppress(OSError):
            for path in self.folder.glob(f"{key}-*.state"):
                if path.stem.removeprefix(f"{key}-") == file_sha256(path)[:_HASH_DIGITS]:
                    os.utime(path)  # it is now the latest
                    return path.name
                path.unlink()
        return None

    def keep(self, key: str, written: str) -> None:
        """Keep a file of the folder as this state, and remove the oldest states, with what killed processes left."""
        with suppress(OSError):
            path = self.folder / written
            path.replace(self.folder / f"{key}-{file_sha256(path)[:_HASH_DIGITS]}.state")
            latest = sorted(self.folder.iterdir(), key=lambda state: state.stat().st_mtime, reverse=True)
            for state in latest[KEPT:]:
                state.unlink(missing_ok=True)
