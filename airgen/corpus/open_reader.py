"""Open the reader of a corpus on its files, and compute the digest of those files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from airgen.corpus.readers.files import files
from airgen.corpus.readers.reader import Place, Reader
from airgen.corpus.settings import CorpusSettings
from airgen.keys import file_sha256
from airgen.registry import resolve
from airgen.settings.base import marked
from airgen.settings.parts import read_part


def place_of(settings: CorpusSettings) -> Place:
    """The folder of the corpus's files. Raises CorpusError if they must be fetched first."""
    root = settings.base
    if settings.fetch is not None and settings.fetch.kind != "hub":
        from airgen.corpus.fetch import fetched

        root = fetched(settings)
    return Place(root, settings.source, settings.licence, settings.language)


def open_reader(settings: CorpusSettings) -> Reader:
    """The corpus's reader, open on its files. Raises CorpusError if they must be fetched first."""
    read = read_part("reader", settings.reader, settings.base)
    opened: Reader = resolve("reader", read.kind, settings.base)(read.settings, place_of(settings))
    return opened


def source_digest(settings: CorpusSettings) -> str:
    """32 hex digits that change when the corpus's text does, whatever its settings are.

    They depend on the archive's SHA-256 of a fetched corpus, on names and bytes of local files, on the version of
    Python for Python's reference, and only on the reader's settings for a data set that is streamed from the Hub. The
    version of the reader counts, too.
    Raises CorpusError if the files are not there.
    """
    digest = hashlib.blake2b(digest_size=16)
    read = read_part("reader", settings.reader, settings.base)
    reader: Any = read.settings
    for one in (read, *reader.inner()):
        if (version := getattr(resolve("reader", one.kind, settings.base), "version", 1)) > 1:
            digest.update(f"reader {one.kind} {version}\x1e".encode())
    paths = [str(getattr(reader, name)) for name, _ in marked(type(reader), "file")]
    if settings.fetch is not None and settings.fetch.kind != "hub":
        from airgen.corpus.fetch import record

        digest.update(json.dumps(record(settings)["sha256"]).encode())
    elif version := reader.text_version():
        digest.update(version.encode())
    elif settings.fetch is None and paths:
        for file in [file for path in paths for file in files(place_of(settings), path, skip=reader.skip)]:
            if isinstance(file, Path):
                digest.update(f"{file.name}\x1f{file_sha256(file)}\x1e".encode("utf-8", "surrogateescape"))
    else:
        digest.update(json.dumps(settings.reader, sort_keys=True, default=str).encode())
    return digest.hexdigest()
