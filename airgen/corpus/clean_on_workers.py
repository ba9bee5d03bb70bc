"""A QA corpus that is read and cleaned on workers, part by part, with the rows of one process in their order.

    for row in passages_by_workers(settings, reader, reader.read(), current()): ...

A worker reads a part, cleans it, cuts it into chunks, and sends back passages, dropped documents, and what the search
for duplicates sees of each. That search needs all documents in their order: it stays in this process.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice

from airgen.compute import Compute, Here, Work
from airgen.corpus.fetch import fetched
from airgen.corpus.needs import package_versions
from airgen.corpus.parts import CorpusPart, PartReader, ReaderRecipe, Split, documents_in_parts
from airgen.corpus.qa_passages import Looking, Seen, corpus_wide, settled
from airgen.corpus.readers.fields import SeenColumns
from airgen.corpus.readers.files import PathReader
from airgen.corpus.readers.reader import Reader
from airgen.corpus.settings import CorpusSettings
from airgen.corpus.storage import StoreFolder
from airgen.errors import CorpusError
from airgen.records import Document, Dropped, Passage

_FEW = 8  # parts: a corpus with fewer is cleaned sooner than workers start


@dataclass
class _Cleaned:
    """A part after a worker's half; `read` rows came from its reader."""

    rows: list[Seen]
    read: int
    columns: SeenColumns | None
    error: str


@dataclass(frozen=True)
class _Recipe:
    """What a worker needs besides parts."""

    settings: CorpusSettings
    reader: ReaderRecipe | None
    versions: Mapping[str, str]

    def make(self) -> Callable[[list[CorpusPart]], list[_Cleaned | None]]:
        """The function of a worker. Raises MissingExtra, CorpusError; also where its packages clean in another way."""
        here = package_versions()
        if others := [name for name in self.versions if self.versions[name] != here[name]]:
            first = others[0]
            raise CorpusError(
                f"compute: the node {socket.gethostname()} cleans a corpus with other packages ({first} "
                f"{here[first] or 'is missing'}, and here it is {self.versions[first]}): install the same there"
            )
        return _Cleaning(self).clean


class _Cleaning:
    """Reads and cleans parts, wherever it is."""

    def __init__(self, recipe: _Recipe) -> None:
        self._reader, self._looking = PartReader(recipe.reader), Looking(recipe.settings)

    def clean(self, parts: list[CorpusPart], *, own: bool = False) -> list[_Cleaned | None]:
        """One for each part; None where its files are not here. `own`: see `PartReader.read`."""
        found: list[_Cleaned | None] = []
        for part in parts:
            read = self._reader.read(part, own=own)
            if read is None:
                found.append(None)
            else:
                found.append(_Cleaned(self._looking.look(read.rows), len(read.rows), read.columns, read.error))
        return found


def passages_by_workers(
    settings: CorpusSettings,
    reader: Reader,
    documents: Iterable[Document | Dropped],
    compute: Compute,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Passage | Dropped]:
    """The rows of `qa_passages` on `documents`, which are those of the reader, or a sample of them.

    Where the reader's files can be read one by one, `documents` stays unread, and `progress` is called with the number
    of documents of each part. Raises CorpusError, MissingExtra, and AirgenError where workers cannot do it.
    """
    split, recipe_of_reader = _by_file(settings, reader)
    parts: Iterable[CorpusPart] = documents_in_parts(documents) if split is None else split
    recipe = _Recipe(
        settings, recipe_of_reader, {name: version for name, version in package_versions().items() if version}
    )
    here = cache(lambda: _Cleaning(recipe))  # where a worker does not see a file, or nothing is worth a worker
    work: Work[CorpusPart, _Cleaned | None] = Work("cleaning", lambda some: here().clean(some, own=True), recipe.make)
    columns: SeenColumns | None = None
    coming = iter(parts)
    first = list(islice(coming, _FEW))
    if len(first) < _FEW:
        compute = Here()
    with corpus_wide(settings) as wide:
        for part, found in compute.map(work, ((part, part) for part in chain(first, coming))):
            if found is None:
                if split is not None:
                    split.near = False
                (found,) = here().clean([part], own=True)
                assert found is not None
            if progress is not None and split is not None:
                progress(found.read)
            yield from settled(wide, found.rows)
            if found.error:
                raise CorpusError(found.error)
            if found.columns is not None:
                if columns is None:
                    columns = found.columns
                else:
                    columns.join(found.columns)
                if part.last:
                    columns.check(part.path)
                    columns = None


def _by_file(settings: CorpusSettings, reader: Reader) -> tuple[Split | None, ReaderRecipe | None]:
    """The corpus in parts that workers read, and how they do it."""
    by_file: Callable[[], PathReader] | None = getattr(reader, "by_file", None)
    own = ":" in str(settings.reader.get("kind"))  # a class that perhaps is only here
    if by_file is None or own or settings.limit is not None:
        return None, None
    files = by_file()
    store = None
    if settings.fetch is not None and settings.fetch.kind == "storage":
        store = StoreFolder(settings.fetch.url, fetched(settings).resolve())
    place = replace(files.place, root=files.place.root.absolute())
    return Split(files), ReaderRecipe(type(files), files.settings, place, store)
