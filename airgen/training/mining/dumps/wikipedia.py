"""Wikipedia: (entity name + section title, passage) from KILT's knowledge source, `wikipedia:kilt.json`.

It is the version that E5 names (its appendix A): JSON lines with wikipedia_id, wikipedia_title, and text, a list of
paragraphs. The first paragraph is the title. `Section::::History.:Origins.` begins a section, and `BULLET::::- ` an
item of a list. The rows of the Hub's copy, where text is `{"paragraph": [...]}`, are read, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from airgen.training.mining.dumps.dump_reader import (
    DumpRow,
    DumpSettings,
    first_text,
    heading,
    json_rows,
    passage_id,
    passages_of,
    plain,
    plain_line,
)
from airgen.training.mining.pairs import RefusedRow, SourcePassage

_SECTION, _BULLET = "Section::::", "BULLET::::"
# Sections that are lists of links and sources.
_LISTS = frozenset({"see also", "references", "external links", "further reading", "notes", "bibliography", "sources"})


class WikipediaDump:
    """The sections of each page, cut into passages."""

    def __init__(self, files: Sequence[Path], settings: DumpSettings) -> None:
        self.files, self.settings = files, settings

    def read(self) -> Iterator[DumpRow]:
        """A SourcePassage for each passage; its title is `Entity > Section`, or the entity before the first section."""
        for path in self.files:
            for row in json_rows(path):
                yield from [row] if isinstance(row, RefusedRow) else self._page(row)

    def _page(self, row: dict[str, Any]) -> Iterator[DumpRow]:
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
