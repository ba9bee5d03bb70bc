"""Unpack wheels, npm and Debian packages, tar and zip files as data, without writing outside the folder.

A member with an absolute path, with a path such as `../../x`, or that is a device makes the whole archive an error,
because no honest source has one. Links are left out: Debian's documentation has links between its files.
"""

from __future__ import annotations

import bz2
import fnmatch
import gzip
import io
import lzma
import shutil
import stat
import struct
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

from airgen.errors import CorpusError

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
                while piece := stream.read(1 << 20):
                    budget -= len(piece)
                    if budget < 0:
                        raise CorpusError(f"{archive.name} unpacks to more than {MAX_UNPACKED >> 30} GB; refused")
                    out.write(piece)
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
