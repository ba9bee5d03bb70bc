"""A job that may be running: whether it is, and its work database, of which a running job needs a copy."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from airgen.dataset.atomic import is_alive
from airgen.errors import AirgenError, StoreError
from airgen.pipeline.job import Job
from airgen.pipeline.progress import read_status
from airgen.store import Store

_SILENT = 600.0  # seconds without a sign of life after which a job does not run any more
_COPIES = 5


def is_running(job: Job) -> bool:
    """Whether another process works at the job now, by its status file."""
    status = read_status(job.directory / "status.json") or {}
    pid, updated = status.get("pid"), status.get("updated")
    if status.get("ended") or not isinstance(pid, int) or not isinstance(updated, int | float):
        return False
    return is_alive(pid) and time.time() - updated < _SILENT and not job.finished()


@contextmanager
def open_store(job: Job) -> Iterator[Store]:
    """The work database for reading; while another process has it open, a copy of it.

    Raises StoreError where there is none, or where it cannot be read.
    """
    try:
        store = job.open_store(read_only=True)
    except StoreError:
        if not is_running(job):
            raise
    else:
        with store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="airgen-report-") as folder, _copied(job, Path(folder)) as store:
        yield store


@contextmanager
def _copied(job: Job, folder: Path) -> Iterator[Store]:
    """A copy of a database that another process writes: the rows up to one of its commits."""
    path, copy = job.directory / "work.duckdb", folder / "work.duckdb"
    error: AirgenError | OSError | None = None
    for _ in range(_COPIES):
        try:
            before = _stamp(path)
            for suffix in (".wal", ""):
                (folder / f"work.duckdb{suffix}").unlink(missing_ok=True)
                with suppress(FileNotFoundError):
                    shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
            if _stamp(path) != before:
                continue  # the log was taken into the database meanwhile, so the two copies may not fit
            store = Store.open(copy, create=False)
        except (StoreError, OSError) as problem:
            error = problem
            continue
        with store:
            yield store
        return
    raise StoreError(f"{path}: cannot be copied while its job runs ({error}): try again when it has ended")


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
