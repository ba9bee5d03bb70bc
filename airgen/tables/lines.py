"""Read the lines of a text file, each with its place for messages."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from airgen.errors import DatasetError
from airgen.storage.compressed_files import opened

_LONGEST_LINE_BYTES = 64 << 20  # bytes after inflation


class LinePlace:
    """The `path:number` of the current line, which is formatted only for errors."""

    __slots__ = ("number", "path")

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, 0

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered non-blank lines, without line endings and byte order mark. Raises DatasetError."""
    try:
        with opened(path, DatasetError) if path.is_file() else path.open("rb") as stream:
            # str.splitlines would also split at U+2028 and others inside a text.
            for number, raw in enumerate(iter(partial(stream.readline, _LONGEST_LINE_BYTES + 1), b""), 1):
                if len(raw) > _LONGEST_LINE_BYTES:  # a gzip of some kilobytes can hold one that fills the memory
                    raise DatasetError(f"{path}:{number}: a line of more than {_LONGEST_LINE_BYTES >> 20} MB; refused")
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if line and not line.isspace():
                    yield number, line
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: no such file", code="no_file", where=path) from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not UTF-8 ({error.reason} at byte {error.start} of a line)") from error
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error})") from error
