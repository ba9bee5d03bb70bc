"""A corpus in parts of about a megabyte that can be read anywhere: whole files, pieces of files of lines, or documents.

    for part in Split(reader):                     # where the files are listed
        found = PartReader(recipe).read(part)      # where the part is to be cleaned

A part names its files, and says by a hash which bytes they must have, so that no text travels where a worker sees the
same folder or the same store (`fetch: {kind: storage}`). Documents travel where only the first process can read them:
those of readers that do not read files, of very large files that cannot be cut, and of a sample (`limit`).
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any

from airgen.corpus.readers.files import PathReader, lines_of, opened
from airgen.corpus.readers.reader import Place
from airgen.corpus.readers.records import JsonLinesReader
from airgen.corpus.readers.tabular import SeenColumns
from airgen.corpus.readers.texts import FileReader
from airgen.corpus.storage import StoreFolder
from airgen.errors import CorpusError
from airgen.records import Document, Dropped
from airgen.sequences import batched

PART = 1 << 20  # bytes of files, or characters of documents
_FILES = 1024  # of a part at most; documents, too
_WHOLE = {True: 64 << 20, False: 8 << 20}  # bytes of a file that is not cut: of one with text, of one with rows


@dataclass(frozen=True, slots=True)
class FileBytes:
    """Bytes of a file, from `begin` on, and their hash; `data` are the bytes themselves, where they must travel."""

    path: Path
    size: int
    digest: bytes
    begin: int = 0
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """`rows` that were read already, or whole files, or (where `lines` is set) lines of one file.

    lines: how many lines of the file come before. last: whether these are its last ones. twice: see `PathReader`.
    """

    rows: Sequence[Document | Dropped] = ()
    sources: Sequence[FileBytes | Dropped] = ()
    lines: int | None = None
    last: bool = False
    twice: frozenset[str] = frozenset()

    @property
    def path(self) -> Path | None:
        """The first file."""
        return next((source.path for source in self.sources if isinstance(source, FileBytes)), None)

    def __str__(self) -> str:
        if self.lines is not None:
            return f"{self.path} from line {self.lines + 1}"
        names = [self.path] if self.path is not None else [row.id or row.source for row in self.rows]
        return f"the part of {names[0] if names else 'the corpus'}"


@dataclass
class PartRows:
    """What was read: documents and dropped ones, the columns of a file of lines, and the error that ended it."""

    rows: list[Document | Dropped] = field(default_factory=list)
    columns: SeenColumns | None = None
    error: str = ""


def documents_in_parts(rows: Iterable[Document | Dropped]) -> Iterator[CorpusPart]:
    """Documents that this process reads."""
    for batch in batched(rows, PART, lambda row: max(len(row.text), PART // _FILES)):
        yield CorpusPart(batch)


class Split:
    """The parts of all files of a reader, in order. Raises CorpusError where there are none.

    `near`: while it is set, the bytes of files stay where they are.
    """

    def __init__(self, reader: PathReader) -> None:
        self._reader, self.near = reader, True

    def __iter__(self) -> Iterator[CorpusPart]:
        reader = self._reader
        found = reader.found()
        if isinstance(reader, JsonLinesReader):
            for path in found:
                yield from [CorpusPart([path])] if isinstance(path, Dropped) else self._pieces(path)
            return
        held: list[FileBytes | Dropped] = []
        weight = 0
        for number, path in enumerate(found):
            size = 0 if isinstance(path, Dropped) else path.stat().st_size
            large = size > _WHOLE[isinstance(reader, FileReader)]
            if held and (large or not self.near or weight >= PART or len(held) >= _FILES):
                yield CorpusPart(sources=held, twice=reader.twice)
                held, weight = [], 0
            if not self.near:
                yield from documents_in_parts(chain.from_iterable(map(self._rows, found[number:])))
                return
            if large:
                yield from documents_in_parts(self._rows(path))
            else:
                held.append(path if isinstance(path, Dropped) else FileBytes(path, size, _digest(_bytes(path))))
                weight += size
        if held:
            yield CorpusPart(sources=held, twice=reader.twice)

    def _rows(self, path: Path | Dropped) -> Iterable[Document | Dropped]:
        return [path] if isinstance(path, Dropped) else self._reader.read_file(path)

    def _pieces(self, path: Path) -> Iterator[CorpusPart]:
        """A file of lines, in pieces that end with a line."""
        limit = self._reader.settings.max_bytes
        waiting: CorpusPart | None = None
        begin = number = 0
        packed = _bytes(path, size=2) == b"\x1f\x8b"
        with opened(path) as stream:
            while data := stream.read(PART):
                data, size = _to_line_end(data, stream, limit)
                if waiting is not None:
                    yield waiting
                stays = self.near and not packed and len(data) == size
                source = FileBytes(path, size, _digest(data), begin, None if stays else data)
                waiting = CorpusPart(sources=[source], lines=number)
                begin, number = begin + size, number + data.count(b"\n")
        if waiting is not None:
            yield replace(waiting, last=True)


def _to_line_end(data: bytes, stream: IO[bytes], limit: int) -> tuple[bytes, int]:
    """The data with the rest of their last line, and how many bytes of the file these are. Of a line of more than
    `limit` bytes, which no reader takes, so many bytes stay that it is known as one."""
    size = len(data)
    if data.endswith(b"\n"):
        return data, size
    tail = stream.readline(limit + 1)
    data, size = data + tail, size + len(tail)
    if len(tail) <= limit or tail.endswith(b"\n"):
        return data, size
    while rest := stream.readline(PART):
        size += len(rest)
        if rest.endswith(b"\n"):
            break
    return data + b"\n", size


def _bytes(path: Path, begin: int = 0, size: int = -1) -> bytes:
    """Bytes of a file; none where it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(begin)
        return file.read(size)
    return b""


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


@dataclass(frozen=True)
class ReaderRecipe:
    """How a worker makes a reader; `store` is where the files came from."""

    kind: type[PathReader]
    settings: Any
    place: Place
    store: StoreFolder | None = None

    def make(self, root: Path | None = None) -> PathReader:
        """The reader, of the files below `root` in place of its own."""
        return self.kind(self.settings, self.place if root is None else replace(self.place, root=root))


class PartReader:
    """Reads parts where they are to be cleaned; `recipe` is None where all parts hold documents."""

    def __init__(self, recipe: ReaderRecipe | None) -> None:
        self._recipe = recipe
        self._made = cache(recipe.make) if recipe is not None else None

    def read(self, part: CorpusPart, *, own: bool = False) -> PartRows | None:
        """The documents of a part; None where its files are not to be found here as they were.

        own: this process has split the corpus, so its files are right. Raises CorpusError where they have changed.
        """
        if self._recipe is None or self._made is None or not part.sources:
            return PartRows(list(part.rows))
        if part.lines is not None:
            (source,) = part.sources
            assert isinstance(source, FileBytes)
            return self._lines(source, part.lines, own)
        with tempfile.TemporaryDirectory(prefix="airgen-part-") as folder:
            return self._files(part, Path(folder), own)

    def _lines(self, source: FileBytes, before: int, own: bool) -> PartRows | None:
        assert self._recipe is not None and self._made is not None
        data = source.data
        if data is None:
            data = self._content(source)
        if data is None:
            if own:
                raise CorpusError(f"{source.path}: has changed while it was read; run it again")
            return None
        reader = self._made()
        assert isinstance(reader, JsonLinesReader)
        found = PartRows(columns=SeenColumns(reader.settings.fields))
        assert found.columns is not None
        numbered = lines_of(io.BytesIO(data), reader.settings.max_bytes, before)
        _take(found, reader.read_lines(source.path, numbered, found.columns))
        return found

    def _files(self, part: CorpusPart, folder: Path, own: bool) -> PartRows | None:
        """Whole files: where they stand, or all of them from the store."""
        assert self._recipe is not None and self._made is not None
        root = self._recipe.place.root.resolve()
        sources = [source for source in part.sources if isinstance(source, FileBytes)]
        moved: dict[Path, Path] = {}
        reader = self._made()
        if not own and any(_digest(_bytes(source.path)) != source.digest for source in sources):
            for source in sources:
                data = self._content(source)
                if data is None or not source.path.is_relative_to(root):
                    return None
                moved[source.path] = folder / source.path.relative_to(root)
                moved[source.path].parent.mkdir(parents=True, exist_ok=True)
                moved[source.path].write_bytes(data)
            reader = self._recipe.make(folder)
        reader.twice = part.twice
        found = PartRows()
        for one in part.sources:
            rows = [one] if isinstance(one, Dropped) else reader.read_file(moved.get(one.path, one.path))
            if not _take(found, rows):
                break
        return found

    def _content(self, source: FileBytes) -> bytes | None:
        """The bytes of a source, from its file or from the store; None where neither has them."""
        assert self._recipe is not None
        data = _bytes(source.path, source.begin, source.size)
        if _digest(data) == source.digest:
            return data
        store = self._recipe.store
        data = b"" if store is None else store.read(source.path, source.begin, source.size)
        return data if _digest(data) == source.digest else None


def _take(found: PartRows, rows: Iterable[Document | Dropped]) -> bool:
    """Add rows up to an error, which is noted; whether there was none."""
    try:
        found.rows.extend(rows)
    except CorpusError as error:
        found.error = str(error)
    return not found.error
