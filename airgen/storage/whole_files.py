"""Write files with the same bytes on every machine, hashing them while writing, and directories atomically."""

import glob
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airgen.errors import DatasetError, disk_error
from airgen.safety.escaping import json_text
from airgen.storage.paths import is_alive
from airgen.storage.sql_connections import on_disk

_LABELS = re.compile(r"(?:qrels(?:-[a-z]+)?|answers)/([^/]+)\.(?:tsv|jsonl)")


def labelled_split(name: str) -> str | None:
    """Return the split whose labels or reference answers a dataset's file contains, or None for other files.

    >>> labelled_split("qrels-graded/test.tsv"), labelled_split("answers/dev.jsonl"), labelled_split("corpus.jsonl")
    ('test', 'dev', None)
    """
    match = _LABELS.fullmatch(name)
    return match[1] if match else None


def encode_row(row: dict[str, Any], where: str) -> str:
    """Encode a row as one line of JSON, with control characters escaped.

    Raises DatasetError for lone surrogates and NaN, which loaders cannot read.
    """
    try:
        text = json_text(row, allow_nan=False)
        text.encode("utf-8")
    except ValueError as error:  # UnicodeEncodeError is one
        raise DatasetError(f"{where} cannot be written as JSON in UTF-8: {error}") from error
    return text + "\n"


def write_text(path: Path, text: str | Iterable[str]) -> tuple[int, str]:
    """Write a text, or its parts, as UTF-8, and return the size in bytes and the SHA-256.

    If the disk becomes full, an existing file stays as it is, and no half of a new one is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with whole_file(path) as fresh, fresh.open("wb") as file:
        for part in [text] if isinstance(text, str) else text:
            size += file.write(data := part.encode("utf-8"))
            digest.update(data)
    return size, digest.hexdigest()


def sort_by_id(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Sort (id, line) pairs by id, on disk if there are many. Equal ids are adjacent."""
    with on_disk("CREATE TABLE row (id TEXT, line TEXT)", "sorting") as base:
        base.executemany("INSERT INTO row VALUES (?, ?)", lines)
        yield from base.execute("SELECT id, line FROM row ORDER BY id, line")


def fsync(path: Path) -> None:
    """Flush a file or directory to disk. Windows can flush only files that are open for writing."""
    windows = sys.platform == "win32"
    if windows and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def git_blob_id(path: Path) -> str:
    """Return git's id of a file's content, the SHA-1 of its length and bytes."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


_FILE_TIME = 315_532_800  # 1980-01-01: every file has this time, so that times tell nothing


@contextmanager
def building(out: Path, marker: str = "manifest.json", *, durable: bool = True) -> Iterator[Path]:
    """Yield an empty directory to fill, which becomes `out` if the block ends without an error.

    An existing `out` is replaced only if it is empty or contains `marker`, the file that is written last. After an
    error the new directory is deleted and the existing one is unchanged. Raises DatasetError if `out` contains other
    files, or writing fails. `durable=False` does not flush to disk, for copies.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise DatasetError(f"{out} is not a directory: choose another folder for the dataset")
    if out.is_dir() and any(out.iterdir()) and not (out / marker).is_file():
        raise DatasetError(f"{out} contains files but no {marker}, so it is not replaced: choose another folder")
    partial = out.parent / f".{out.name}.partial-{os.getpid()}"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(out)
        partial.mkdir()
        yield partial
        if not (partial / marker).is_file():
            raise DatasetError(f"{out}: is incomplete: {marker} was not written")
        for path in partial.rglob("*"):
            os.utime(path, (_FILE_TIME, _FILE_TIME))
        if durable:  # a later rename must not be on the disk before them
            for path in [*sorted(partial.rglob("*")), partial]:
                fsync(path)
        old = out.parent / f".{out.name}.old-{os.getpid()}"  # it is there after a crash between the two renames
        if out.exists():
            out.rename(old)
        try:
            partial.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise
        fsync(out.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        written = OSError(error.errno, f"cannot be written: {error.strerror or error}", str(out))
        raise disk_error(written, DatasetError) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield another name to write to, which becomes `path` if the block ends without an error.

    Files left by killed processes are deleted. A link, or what is no file (/dev/stdout), is written to directly.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        yield path
        return
    for place in path.parent.iterdir():
        name, _, pid = place.name.rpartition(".")
        if name == f".{path.name}" and pid.isdigit() and not is_alive(int(pid)):
            place.unlink(missing_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield fresh
        fresh.replace(path)
    except OSError as error:
        if error.filename in (None, str(fresh)):  # a full disk is noticed while writing, which knows no name
            error.filename = str(path)
        raise
    finally:
        fresh.unlink(missing_ok=True)


def keep_copy(path: Path, text: str | None = None, *, folder: Path | None = None) -> Path | None:
    """Copy a file that a person may have edited before it is replaced: `audit.csv` is copied to `audit.1.csv`.

    Args:
        path: The file.
        text: Its new content. Nothing is copied if the file already has this content.
        folder: Folder for the copy. Default: the file's folder.

    Returns:
        The copy, or None if there was nothing to copy.
    """
    if not path.is_file() or (text is not None and path.read_bytes() == text.encode("utf-8", "surrogatepass")):
        return None
    place, number = folder or path.parent, 1
    while True:
        copy = place / f"{path.stem}.{number}{path.suffix}"
        if copy.is_file() and copy.read_bytes() == path.read_bytes():
            return copy
        if not copy.exists():
            shutil.copy2(path, copy)
            return copy
        number += 1


def _clear_leftovers(out: Path) -> None:
    """Delete what a killed process left behind, and restore the old directory if the process died between the two
    renames."""
    for kind in ("old", "partial"):
        for path in sorted(out.parent.glob(f".{glob.escape(out.name)}.{kind}-*")):
            pid = path.name.rpartition("-")[2]
            if pid.isdigit() and int(pid) != os.getpid() and is_alive(int(pid)):
                continue
            if kind == "old" and not out.exists():
                path.rename(out)
            else:
                shutil.rmtree(path, ignore_errors=True)


def safe_name(name: str) -> str:
    """Return the name if it can be part of a path: not empty, not `..`, and without separators. Raises DatasetError."""
    if not name or name in (".", "..") or any(char in name for char in "/\\\0:"):
        raise DatasetError(f"the name {name!r} cannot be a part of a path: use letters, digits, '-', '_' and '.'")
    return name
