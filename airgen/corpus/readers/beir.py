"""The corpus of a BEIR folder, without its queries and qrels: `reader: {kind: beir, path: scifact}`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from airgen.corpus.readers.fields import RowSettings
from airgen.corpus.readers.files import files
from airgen.corpus.readers.reader import Place
from airgen.corpus.readers.records import JsonLinesReader
from airgen.errors import CorpusError
from airgen.records import Document, Dropped
from airgen.settings.base import FILE

_NAMES = ("corpus.jsonl", "corpus.jsonl.gz")


class BeirReader:
    """`corpus.jsonl` or `corpus.jsonl.gz` with `_id`, `title` and `text`."""

    class Settings(RowSettings):
        """`path`: the folder that holds the corpus file."""

        path: Annotated[str, FILE] = "."

    def __init__(self, settings: Settings, place: Place) -> None:
        self.settings, self.place = settings, place

    def read(self) -> Iterator[Document | Dropped]:
        """Documents in the file's order."""
        yield from self.by_file().read()

    def by_file(self) -> JsonLinesReader:
        """The reader of its one file. Raises CorpusError where there is another number of them."""
        found = files(self.place, self.settings.path, _NAMES, self.settings.skip)
        wanted = [path for path in found if not isinstance(path, Dropped) and path.name in _NAMES]
        if len(wanted) != 1:
            raise CorpusError(
                f"{self.place.root / self.settings.path}: {len(wanted)} files named corpus.jsonl, but one is needed"
            )
        exact = replace(self.place, root=wanted[0].parent)
        inner = JsonLinesReader.Settings(
            path=wanted[0].name, fields=self.settings.fields, max_bytes=self.settings.max_bytes
        )
        return JsonLinesReader(inner, exact)
