"""The files of models on disk: hashes, copies out of archives, and a lock for one writer."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from airgen.errors import ModelError
from airgen.keys import file_sha256

_BLOCK = 1 << 20  # bytes read at once


def copy_member(archive: zipfile.ZipFile, member: str, target: Path, limit: int) -> None:
    """Copy one member of a zip archive to `target`, whole or not at all (zipfile checks its CRC).

    Raises ModelError where the member is missing, damaged, or longer than `limit` bytes.
    """
    where = archive.filename or "archive"
    try:
        info = archive.getinfo(member)
    except KeyError:
        raise ModelError(f"{Path(where).name} holds no {member}: the package has changed") from None
    if info.file_size > limit:
        raise ModelError(f"{member} of {Path(where).name} has {info.file_size:,} bytes, at most {limit:,} expected")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    try:
        with archive.open(info) as source, partial.open("wb") as sink:
            shutil.copyfileobj(source, sink, _BLOCK)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ModelError(f"{member} of {Path(where).name} is damaged: {error}") from error
    partial.replace(target)


def join(parts: list[Path], target: Path) -> None:
    """Join parts into `target`, whole or not at all; the parts are kept."""
    partial = target.with_name(target.name + ".partial")
    with partial.open("wb") as sink:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, sink, _BLOCK)
    partial.replace(target)


def folder_bytes(folder: Path) -> int:
    """The bytes of all files under a folder; those that disappear meanwhile do not count."""
    total = 0
    for place, _, names in os.walk(folder):  # Path.rglob raises where a folder disappears
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(place) / name).lstat().st_size
    return total


@contextlib.contextmanager
def locked(path: Path) -> Iterator[IO[bytes]]:
    """Hold a lock file. Raises ModelError where another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            import fcntl
        except ModuleNotFoundError:  # Windows has no such locks
            yield file
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ModelError(
                f"another process is writing {path.parent}, as its lock {path.name} shows: wait for it"
            ) from None
        yield file


def weights_hash(place: str) -> str:
    """A hash of a folder's weights and settings, which a retrained model changes; empty if it is not a folder."""
    folder = Path(place)
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".json", ".safetensors", ".bin", ".onnx", ".pt", ".txt", ".model") and path.is_file():
            digest.update(f"{path.relative_to(folder).as_posix()} {file_sha256(path)}\n".encode())
    return digest.hexdigest()[:32]
