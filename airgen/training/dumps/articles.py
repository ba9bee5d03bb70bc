"""Readers for Wikipedia, scientific papers and NLI.

For Wikipedia, the pairs are (entity name + section title, passage) from KILT's knowledge source, the version that E5
names (its appendix A): JSON lines with wikipedia_id, wikipedia_title, and text, a list of paragraphs (in an object in
the Hub's copy). The first paragraph is the title. `Section::::History.:Origins.` begins a section, and `BULLET::::- `
a list item.

For papers, pairs are (title, abstract) and citations, from any files in any order. All rows are read once into a
temporary file:

    S2ORC 2020                  paper_id, title, abstract, outbound_citations: [paper_id, ...]
    Semantic Scholar            corpusid, title (papers); corpusid, abstract (abstracts); citingcorpusid, citedcorpusid
    its Graph API               paperId or corpusId, title, abstract, references: [{paperId}, ...]

For SimCSE's NLI data, on which E5 is fine-tuned (its section 5.1), the pair is (sent0, sent1), where sent0 entails
sent1; hard_neg, which contradicts sent0, is a passage labelled 0.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from airgen.corpus.readers.files import opened
from airgen.errors import CorpusError
from airgen.storage.records import flat_text
from airgen.storage.sql_connections import on_disk
from airgen.training.dumps import (
    DumpReader,
    DumpRow,
    first_text,
    heading,
    passage_id,
    passages_of,
    plain,
    plain_line,
)
from airgen.training.mining.pairs import LinkedPassages, MinedPair, RefusedRow, SourcePassage

_SECTION, _BULLET = "Section::::", "BULLET::::"
# Sections that are lists of links and sources.
_LISTS = frozenset({"see also", "references", "external links", "further reading", "notes", "bibliography", "sources"})


class WikipediaDump(DumpReader):
    """Reads the sections of each page, split into passages."""

    def of_row(self, row: dict[str, Any]) -> Iterator[DumpRow]:
        """Yield a SourcePassage per passage, titled `Entity > Section`, or the entity before the first section."""
        entity, paragraphs = heading(first_text(row, "wikipedia_title")), row.get("text")
        if isinstance(paragraphs, dict):
            paragraphs = paragraphs.get("paragraph")
        if not entity or not isinstance(paragraphs, list):
            yield RefusedRow("line", "no page of KILT (wikipedia_title, text)")
            return
        held: list[str] = []
        section = ""
        texts = [text for text in paragraphs if isinstance(text, str)]
        if texts and plain_line(texts[0]) == plain_line(first_text(row, "wikipedia_title")):
            del texts[0]
        for text in [*texts, _SECTION]:
            if text.startswith(_SECTION):
                yield from self._section(entity, section, held, first_text(row, "wikipedia_id", "_id"))
                held = []
                names = [name.strip(" .\n") for name in text.removeprefix(_SECTION).split(".:")]
                section = heading(names[-1])
            else:
                held.append(plain(text.removeprefix(_BULLET)))

    def _section(self, entity: str, section: str, paragraphs: list[str], key: str) -> Iterator[DumpRow]:
        if section.casefold() in _LISTS:
            yield RefusedRow("passage", "of a section of links or sources")
            return
        title = f"{entity} > {section}" if section else entity
        for text in passages_of("\n".join(paragraphs), self.settings.language):
            yield SourcePassage(passage_id(key, text), text, title)


_TABLES = """
CREATE TABLE paper (place INTEGER PRIMARY KEY, id TEXT UNIQUE, title TEXT, abstract TEXT);
CREATE TABLE cites (place INTEGER PRIMARY KEY, citing TEXT, cited TEXT);
"""
_ADD = """
INSERT INTO paper (id, title, abstract) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET
title = coalesce(nullif(title, ''), excluded.title), abstract = coalesce(nullif(abstract, ''), excluded.abstract)
"""
_CITED = """
SELECT citing, one.title, one.abstract, cited, other.title, other.abstract FROM cites
LEFT JOIN paper AS one ON one.id = citing LEFT JOIN paper AS other ON other.id = cited ORDER BY cites.place
"""
_CITES = "INSERT INTO cites (citing, cited) VALUES (?, ?)"
_IDS = ("paper_id", "corpusid", "corpusId", "paperId")


class PaperDump(DumpReader):
    """Reads titles with abstracts, in order of first occurrence, then citations."""

    def read(self) -> Iterator[DumpRow]:
        """Yield a MinedPair per abstract, and LinkedPassages per citation between two papers in the dump."""
        with on_disk(_TABLES, "the papers of a dump") as self._held:
            yield from super().read()
            yield from _abstracts(self._held.execute("SELECT id, title, abstract FROM paper ORDER BY place"))
            yield from _citations(self._held.execute(_CITED))

    def of_row(self, row: dict[str, Any]) -> Iterator[DumpRow]:
        """Store papers and citations, and yield refused rows."""
        citing, cited = _key(row.get("citingcorpusid")), _key(row.get("citedcorpusid"))
        if citing and cited:
            self._held.execute(_CITES, (citing, cited))
            return
        key = next(filter(None, (_key(row.get(name)) for name in _IDS)), "")
        if not key:
            yield RefusedRow("line", "without the id of a paper")
            return
        self._held.execute(_ADD, (key, plain_line(first_text(row, "title")), plain(first_text(row, "abstract"))))
        lists = [row.get(name) for name in ("outbound_citations", "references")]
        for other in (item for citations in lists if isinstance(citations, list) for item in citations):
            target = _key(other.get("paperId") or other.get("corpusId") if isinstance(other, dict) else other)
            if target:
                self._held.execute(_CITES, (key, target))


def _key(value: object) -> str:
    """Return the id in a row, a number or a text, as text, or ""."""
    text = str(value) if type(value) in (int, str) else ""
    return text if text.isprintable() and len(text) <= 100 else ""


def _abstracts(rows: Iterable[tuple[str, str, str]]) -> Iterator[DumpRow]:
    for key, title, abstract in rows:
        if title and abstract:
            yield MinedPair(title, abstract, "title", passage_id(key, abstract))
        else:
            yield RefusedRow("title", "a paper without a title" if abstract else "a paper without an abstract")


def _citations(rows: Iterable[tuple[str, str | None, str | None, str, str | None, str | None]]) -> Iterator[DumpRow]:
    for citing, title, abstract, cited, other_title, other_abstract in rows:
        if citing == cited:
            yield RefusedRow("citation", "cites itself")
        elif not (title and other_title and abstract and other_abstract):
            yield RefusedRow("citation", "a paper without title or abstract here")
        else:
            yield LinkedPassages(
                _paper(citing, title, abstract), _paper(cited, other_title, other_abstract), "citation"
            )


def _paper(key: str, title: str, abstract: str) -> SourcePassage:
    text = flat_text(title, abstract)
    return SourcePassage(passage_id(key, text), text)


_COLUMNS = ("sent0", "sent1", "hard_neg")


class NliDump(DumpReader):
    """Reads the rows of each file."""

    def read(self) -> Iterator[DumpRow]:
        """Yield a MinedPair per row with two sentences, with its hard negative."""
        for path in self.files:
            with opened(path) as stream:
                text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
                try:
                    for row in csv.DictReader(text):
                        premise, hypothesis, negative = (plain_line(row.get(name) or "") for name in _COLUMNS)
                        if premise and hypothesis:
                            against = (SourcePassage(passage_id("nli", negative), negative),) if negative else ()
                            yield MinedPair(
                                premise, hypothesis, "entailment", passage_id("nli", hypothesis), negatives=against
                            )
                        else:
                            yield RefusedRow("row", "without sent0 and sent1")
                except csv.Error as error:
                    raise CorpusError(f"{path}: is damaged: {error}") from error
