"""From settings to an open reader: where the files lie, fetched or local."""

from __future__ import annotations

from airgen.corpus.reading import Place, Reader
from airgen.corpus.settings import CorpusSettings
from airgen.registry import resolve

__all__ = ["open_reader", "place_of"]


def place_of(settings: CorpusSettings) -> Place:
    """The folder of the corpus's files. Raises CorpusError if they must be fetched first."""
    root = settings.base
    if settings.fetch is not None and settings.fetch.kind != "hub":
        from airgen.corpus.fetch import fetched

        root = fetched(settings)
    return Place(root, settings.source, settings.licence, settings.language)


def open_reader(settings: CorpusSettings) -> Reader:
    """The reader that the settings name, on the corpus's files."""
    kind = settings.reader["kind"]
    reader = resolve("reader", kind)
    values = {key: value for key, value in settings.reader.items() if key != "kind"}
    opened: Reader = reader(reader.Settings.model_validate(values), place_of(settings))
    return opened
