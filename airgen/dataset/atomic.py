"""Write a directory whole or not at all: it is built under another name and renamed at the end."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airgen.dataset.files import fsync, fsync_tree
from airgen.errors import DatasetError

_TIME = 315_532_800  # 1980-01-01: every file has this time, so that times tell nothing


@contextmanager
def building(out: Path, marker: str = "manifest.json", *, durable: bool = True) -> Iterator[Path]:
    """Yields an empty directory to fill; when the block ends without an error, it becomes `out`.

    An existing `out` is replaced only if it is empty or holds `marker`, the file that is written last. After an error
    the new directory is deleted and the existing one is unchanged. Raises DatasetError where `out` holds other files,
    or writing fails. `durable=False` does not flush to the disk, for copies.
    """
    _check_replaceable(out, marker)
    partial = out.parent / f".{out.name}.partial-{os.getpid()}"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(out)
        partial.mkdir()
        yield partial
        if not (partial / marker).is_file():
            raise DatasetError(f"{out}: is incomplete: {marker} was not written")
        for path in partial.rglob("*"):
            os.utime(path, (_TIME, _TIME))
        if durable:
            fsync_tree(partial)
        _swap(partial, out)
    except OSError as error:
        raise DatasetError(f"{out}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields another name to write to; when the block ends without an error, that file becomes `path`.

    What killed processes left of the same file is deleted.
    """
    for place in path.parent.iterdir():
        name, _, pid = place.name.rpartition(".")
        if name == f".{path.name}" and pid.isdigit() and not is_alive(int(pid)):
            place.unlink(missing_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield fresh
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _check_replaceable(out: Path, marker: str) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise DatasetError(f"{out} is not a directory: choose another place for the dataset")
    if out.is_dir() and any(out.iterdir()) and not (out / marker).is_file():
        raise DatasetError(f"{out} holds files but no {marker}, so it is not replaced: choose another place")


def _swap(partial: Path, out: Path) -> None:
    """Rename. After a crash between the two renames the older directory is `.NAME.old-PID` beside it."""
    old = out.parent / f".{out.name}.old-{os.getpid()}"
    if out.exists():
        out.rename(old)
    partial.rename(out)
    fsync(out.parent)
    shutil.rmtree(old, ignore_errors=True)


def _clear_leftovers(out: Path) -> None:
    """Delete what a killed process left, and restore the older directory if it died between the two renames."""
    for kind in ("old", "partial"):
        for path in sorted(out.parent.glob(f".{_literal(out.name)}.{kind}-*")):
            pid = path.name.rpartition("-")[2]
            if pid.isdigit() and int(pid) != os.getpid() and is_alive(int(pid)):
                continue
            if kind == "old" and not out.exists():
                path.rename(out)
            else:
                shutil.rmtree(path, ignore_errors=True)


def _literal(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def is_alive(pid: int) -> bool:
    """Whether a process of this id runs on this machine."""
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


def safe_name(name: str) -> str:
    """The name, if it can be a part of a path: not empty, not `..`, without separators. Raises DatasetError."""
    if not name or name in (".", "..") or any(char in name for char in "/\\\0:"):
        raise DatasetError(f"the name {name!r} cannot be a part of a path: use letters, digits, '-', '_' and '.'")
    return name
