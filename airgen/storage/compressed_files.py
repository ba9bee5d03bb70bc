"""Open files that may be compressed with gzip, bzip2 or zstd, and name the formats of binary files.

    with opened(Path("qrels.tsv.gz"), DatasetError) as stream: ...
    binary_format(b"PAR1...")       # "a Parquet file"

The first bytes of a file decide, not its name.
"""

import bz2
import gzip
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from airgen.components.registry import load_extra
from airgen.errors import AirgenError

# The first bytes of packed files. A text that begins with "BZh" is not followed by a block of bzip2.
_PACKINGS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
PARQUET = b"PAR1"
_BINARY = (
    (PARQUET, "a Parquet file"),
    (b"\x04\x22\x4d\x18", "compressed with LZ4"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"PK\x03\x04", "a ZIP archive (as .xlsx and .npz are)"),
    (b"ARROW1", "an Arrow file"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xd0\xcf\x11\xe0", "an old Office file"),
    (b"%PDF-", "a PDF"),
    (b"\x1f\x9d", "compressed with compress"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05](?:\x95|[}\](cX])")


@contextmanager
def opened(path: Path, error: type[AirgenError]) -> Iterator[IO[bytes]]:
    """Open a file, decompressing it if it begins like gzip, bzip2 or zstd.

    Raises `error` for a damaged file, and MissingExtra if the package for zstd is missing.
    """
    packing = ""
    try:
        with path.open("rb") as raw:
            head = raw.read(10)
            raw.seek(0)
            packing = next((name for name, signature in _PACKINGS.items() if signature.match(head)), "")
            if not packing:
                yield raw
            elif packing == "zstd":
                with _unpacked_zstd(raw, path, error) as unpacked:
                    yield unpacked
            else:
                with gzip.open(raw) if packing == "gzip" else bz2.open(raw) as unpacked:
                    yield cast(IO[bytes], unpacked)
    except EOFError as reason:
        raise error(f"{path}: the {packing} ends early; fetch or copy it again") from reason
    except (gzip.BadGzipFile, zlib.error) as reason:
        raise error(f"{path}: damaged gzip ({reason}); fetch or copy it again") from reason
    except OSError as reason:
        if packing == "bzip2" and reason.errno is None:
            raise error(f"{path}: damaged bzip2 ({reason}); fetch or copy it again") from reason
        raise error(f"{path}: cannot be read: {reason.strerror or reason}") from reason


@contextmanager
def _unpacked_zstd(raw: IO[bytes], path: Path, error: type[AirgenError]) -> Iterator[IO[bytes]]:
    library = load_extra(
        "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", f"reading {path.name}"
    )
    # Pushshift's dumps are packed with windows of 2 GB, which the library refuses by default.
    options = {library.DecompressionParameter.window_log_max: 31}
    try:
        with library.ZstdFile(raw, options=options) as unpacked:
            yield cast(IO[bytes], unpacked)
    except library.ZstdError as reason:
        raise error(f"{path}: damaged zstd ({reason}); fetch or copy it again") from reason


def binary_format(head: bytes) -> str:
    """Name the binary format of a file with these first bytes; "" for text or an unknown format."""
    if _PICKLE.match(head):
        return "a pickle"
    return next((name for signature, name in _BINARY if head.startswith(signature)), "")
