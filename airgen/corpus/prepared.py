"""Prepared corpora are kept in the cache, so that a second job on the same corpus does not clean it again.

    for row in prepared(settings, "qa", fingerprint):    # as `prepare`, from the cache where it is there
        ...

An entry is two files: the rows, and a checksum that is written after them. What a crash left is no entry, and a damaged
entry is made again. The key covers the fingerprint of settings and files, airgen's code, and the packages that clean.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import Any

from airgen.corpus.needs import package_versions
from airgen.corpus.preparation import prepare
from airgen.corpus.settings import CorpusSettings, Task
from airgen.keys import file_sha256, fingerprint
from airgen.paths import cache_dir
from airgen.records import Dropped, Passage

_KEPT = 20  # entries; older ones are deleted
_WORTH = 2.0  # seconds of preparation, below which an entry is not worth its place
_DAY = 86400.0  # seconds


def prepared(
    settings: CorpusSettings, task: Task, corpus: str, *, worth: float = _WORTH
) -> Iterator[Passage | Dropped]:
    """The rows of `prepare`. `corpus` is a hash of the corpus's settings and files; `worth`: seconds of preparation
    from which an entry is kept. Raises CorpusError."""
    kind = str(settings.reader.get("kind"))
    if ":" in kind or kind == "datasets":  # code from outside, and what the Hub may change, are not in the key
        yield from prepare(settings, task)
        return
    rows = cache_dir("prepared") / f"{settings.name}-{_key(corpus, task)}.jsonl.gz"
    if _is_whole(rows):
        with suppress(OSError):
            os.utime(rows)
        yield from _read(rows)
    else:
        yield from _kept(rows, prepare(settings, task), worth)


@cache
def _key(corpus: str, task: Task) -> str:
    code = hashlib.blake2b(digest_size=16)
    package = Path(__file__).resolve().parents[1]
    for path in sorted([*package.glob("corpus/**/*.py"), *package.glob("text/**/*.py"), package / "languages.py"]):
        code.update(path.read_bytes())
    versions = package_versions() | {"python": platform.python_version()}
    return fingerprint(corpus=corpus, task=task, code=code.hexdigest(), versions=versions)


def _sum_of(rows: Path) -> Path:
    return rows.with_suffix(".sha256")


def _is_whole(rows: Path) -> bool:
    """Whether an entry is there and undamaged."""
    try:
        return _sum_of(rows).read_text() == file_sha256(rows)
    except (OSError, UnicodeDecodeError):
        return False


def _read(rows: Path) -> Iterator[Passage | Dropped]:
    with gzip.open(rows, "rt", encoding="ascii") as lines:
        for line in lines:
            kind, *values = json.loads(line)
            yield Passage(*values) if kind == "passage" else Dropped(*values)


def _kept(rows: Path, found: Iterator[Passage | Dropped], worth: float) -> Iterator[Passage | Dropped]:
    """The rows, which become an entry when the last one was taken. A full disk costs the entry only."""
    started, partial, out = time.monotonic(), None, None
    try:
        with suppress(OSError):
            rows.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".partial-", dir=rows.parent)
            partial, out = (
                Path(name),
                gzip.GzipFile(fileobj=os.fdopen(handle, "wb"), mode="wb", compresslevel=1, mtime=0),
            )
        for row in found:
            out = _written(out, row)
            yield row
        if partial is not None and out is not None and time.monotonic() - started >= worth:
            with suppress(OSError):
                _finish(rows, partial, out)
    finally:
        if out is not None:
            with suppress(OSError):
                _close(out)
        if partial is not None:
            partial.unlink(missing_ok=True)


def _written(out: Any, row: Passage | Dropped) -> Any:
    """The file that the row was written to, or None after a failure."""
    if out is not None:
        try:
            line = json.dumps(["passage" if isinstance(row, Passage) else "dropped", *astuple(row)])
            out.write(f"{line}\n".encode("ascii"))
        except OSError:
            return None
    return out


def _close(out: gzip.GzipFile) -> None:
    raw: Any = None if out.closed else out.fileobj
    out.close()
    if raw is not None:
        raw.close()


def _finish(rows: Path, partial: Path, out: gzip.GzipFile) -> None:
    _close(out)
    _sum_of(rows).unlink(missing_ok=True)  # of a damaged entry, which the new one replaces
    digest = file_sha256(partial)
    partial.replace(rows)
    # Written under another name first: a checksum is whole or not there.
    fresh = rows.with_suffix(f".{os.getpid()}")
    fresh.write_text(digest)
    fresh.replace(_sum_of(rows))
    for old in sorted(rows.parent.glob("*.jsonl.gz"), key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT:]:
        _sum_of(old).unlink(missing_ok=True)
        old.unlink(missing_ok=True)
    for left in rows.parent.glob(".partial-*"):  # of killed processes
        if time.time() - left.stat().st_mtime > _DAY:
            left.unlink(missing_ok=True)
