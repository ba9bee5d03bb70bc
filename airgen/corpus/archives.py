"""Unpack wheels, npm and Debian packages, tar and zip files as data, without writing outside the folder.

A member with an absolute path, with a path such as `../../x`, or that is a device makes the whole archive an error,
because no honest source has one. Links are left out: Debian's documentation has links between its files.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import lzma
import shutil
import stat
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

from airgen.errors import CorpusError

__all__ = ["MAX_UNPACKED", "unpack"]

_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError, RuntimeError)
MAX_UNPACKED = 8 * 1024**3  # bytes; stops an archive that unpacks without end


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
            for info in file.infolist():
                if info.is_dir() or stat.S_ISLNK(info.external_attr >> 16):
                    continue
                with file.open(info) as stream:
                    yield info.filename, stream
    elif archive.suffix == ".deb":
        yield from _deb(archive)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as tar:
            yield from _tar(tar)
    else:
        with archive.open("rb") as stream:
            yield archive.name, stream


def _tar(tar: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    for member in tar:
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
            name, size = header[:16].rstrip(b" /").decode("latin-1"), int(header[48:58])
            if name.startswith("data.tar"):
                data = raw.read(size)
                if name.endswith(".zst"):
                    data = _unzstd(data, archive.name)
                with tarfile.open(fileobj=cast(IO[bytes], io.BytesIO(data))) as tar:
                    yield from _tar(tar)
                return
            raw.seek(size + size % 2, 1)
    raise CorpusError(f"{archive.name}: it holds no data.tar; fetch it again")


def _unzstd(data: bytes, name: str) -> bytes:
    if shutil.which("zstd") is None:
        raise CorpusError(f"{name} is packed with zstd, which is not installed on this machine: apt-get install zstd")
    return subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=True).stdout
