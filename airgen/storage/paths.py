"""Locations of the files that airgen ships, and of its cache of models, corpora and embeddings; file locks."""

import glob
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from airgen.errors import ModelError, UsageError

RUNS = Path("runs")
"""The default folder of the jobs' work directories, relative to `beside`."""

EVALUATION = "evaluation"
"""The folder in a work directory with the results of the pipeline's systems."""


def data_dir(name: str) -> Path:
    """Return the `prompts`, `corpora`, `pipelines` or `docs` folder in the wheel, or the one next to the package."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "_data" / name
    return shipped if shipped.is_dir() else package.parent / name


def is_shipped(pipeline: Path) -> bool:
    """Return whether airgen ships this pipeline's file."""
    return pipeline.resolve().parent == data_dir("pipelines").resolve()


def beside(pipeline: Path) -> Path:
    """Return the folder for files made from a pipeline: its own folder, or the working directory for a shipped
    pipeline."""
    return Path() if is_shipped(pipeline) else pipeline.parent


def cache_dir(part: str = "") -> Path:
    """Return airgen's cache folder, or its subfolder `part`: `AIRGEN_CACHE`, or a folder in the platform's cache.

    The folder is not created.
    """
    chosen = os.environ.get("AIRGEN_CACHE")
    if chosen:
        root = Path(chosen).expanduser()
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches" / "airgen"
    elif sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "airgen" / "Cache"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airgen"
    return root / part if part else root


def sibling(path: Path, ending: str) -> Path:
    """Return the path beside `path` with `ending` added to its name. Raises UsageError for the root folder."""
    named = path.resolve() if path.name in ("", "..") else path
    if not named.name:
        raise UsageError(f"{path}: is the root folder: choose a folder inside it")
    return named.with_name(f"{named.name}{ending}")


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[IO[bytes]]:
    """Hold a lock file. If another process holds it, wait or raise ModelError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            import fcntl
        except ModuleNotFoundError:  # Windows has no such locks
            yield file
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            raise ModelError(
                f"another process is writing to {path.parent} (lock file {path.name}): wait for it to finish"
            ) from None
        yield file


COLLECTIONS = "collections"
"""The folder in the cache with the datasets of published benchmarks, as `LIST/SET`."""


def fetched_collection(name: str | Path) -> Path | None:
    """Return the folder of a fetched collection by name (`scifact`, or `cqadupstack-android` for one of several parts),
    or None."""
    word = str(name)
    if not word or Path(word).name != word or word.startswith("."):
        return None
    home = cache_dir(COLLECTIONS)
    places = [home.glob(f"*/{glob.escape(word)}")]
    places += [home.glob(f"*/{glob.escape(word[:at])}/{glob.escape(word[at + 1 :])}") for at in _dashes(word)]
    return next((place for matches in places for place in sorted(matches) if (place / "qrels").is_dir()), None)


def _dashes(word: str) -> list[int]:
    return [at for at, sign in enumerate(word) if sign == "-" and 0 < at < len(word) - 1]


def is_alive(pid: int) -> bool:
    """Return whether a process with this id runs on this machine."""
    if sys.platform == "win32":  # there, os.kill with signal 0 interrupts the process
        import ctypes

        kernel = ctypes.windll.kernel32
        handle = kernel.OpenProcess(0x1000, False, pid)  # PROCESS_QUERY_LIMITED_INFORMATION
        kernel.CloseHandle(handle)
        return bool(handle)
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
