"""Common Crawl and news: (title, passage), and the neighbours on a page, from WARC, WET and JSONL.

    common-crawl:CC-MAIN-...warc.gz      HTML of responses: title and main text
    common-crawl:CC-MAIN-...wet.gz       text of conversions: its first line is the page's title, as in cc_net
    common-crawl:en_head_0000.json.gz    cc_net: title, raw_content, language, perplexity, bucket
    news:articles.jsonl                  title and one of text, maintext, content, article, body

E5 uses cc_net, which refuses other languages and text of high perplexity under a language model of Wikipedia. Where a
dump has cc_net's figures, they decide: pages of its bucket `tail` are refused, or those above `max_perplexity`. Where
it has none, rules stand in for perplexity: those of airgen's cleaning, after Gopher and C4 (few letters, lists of
links, repeated lines, page furniture, repetition), and fastText's language. Such rules find text that is no prose; text
that reads badly passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airgen.corpus.cleaning.filters import Item, Language, judge_text
from airgen.corpus.readers.files import opened
from airgen.records import Document
from airgen.training.mining.dumps.dump_reader import (
    DumpRow,
    DumpSettings,
    first_text,
    heading,
    json_rows,
    passage_id,
    passages_of,
    plain,
)
from airgen.training.mining.dumps.web_archives import archived_pages
from airgen.training.mining.pairs import RefusedRow, SourcePassage

_TEXTS = ("text", "raw_content", "maintext", "content", "article", "body", "plain_text")
_SURE = 0.5  # probability of another language above which a page is refused
# Codes of three letters, which WET files have, of the languages that airgen knows.
_LONG_CODES = {
    "eng": "en", "zho": "zh", "spa": "es", "fra": "fr", "deu": "de", "rus": "ru", "jpn": "ja", "kor": "ko",
    "ara": "ar", "fas": "fa", "hin": "hi", "ben": "bn", "ind": "id", "por": "pt", "ita": "it", "pol": "pl",
    "nld": "nl", "tur": "tr", "vie": "vi", "tha": "th", "ces": "cs", "swe": "sv", "fin": "fi", "dan": "da",
}  # fmt: skip


class _Pages:
    """The passages of pages, after the checks."""

    neighbours = True

    def __init__(self, files: Sequence[Path], settings: DumpSettings) -> None:
        self.files, self.settings = files, settings
        self._language: Language | None = None

    def read(self) -> Iterator[DumpRow]:
        """A SourcePassage for each passage. Those of a page of Common Crawl are neighbours."""
        for path in self.files:
            number = 0
            for row in self._rows(path):
                if isinstance(row, RefusedRow):
                    yield row
                    continue
                number += 1
                yield from self._page(row, f"{path.name}#{number}")

    def _rows(self, path: Path) -> Iterator[dict[str, Any] | RefusedRow]:
        with opened(path) as stream:
            archive = stream.read(5) == b"WARC/"
        yield from archived_pages(path, self.settings.language) if archive else json_rows(path)

    def _page(self, row: dict[str, Any], page: str) -> Iterator[DumpRow]:
        title, text = heading(first_text(row, "title")), plain(first_text(row, *_TEXTS))
        if not text:
            yield RefusedRow("page", "without text")
            return
        if reason := self._refused(row, text):
            yield RefusedRow("page", reason)
            return
        address = first_text(row, "url", "warc_url", "link")
        try:
            host = urlsplit(address).hostname or "page"
        except ValueError:
            host = "page"
        for passage in passages_of(text, self.settings.language):
            found = judge_text(passage)
            if not found.keep:
                yield RefusedRow("passage", found.reason)
                continue
            yield SourcePassage(passage_id(host, passage), passage, title, page if self.neighbours else "")

    def _refused(self, row: dict[str, Any], text: str) -> str:
        """Why a page is refused, or ""."""
        wanted = self.settings.language
        language = first_text(row, "language", "lang").partition(",")[0].lower()
        known = _LONG_CODES.get(language, language)[:2] if language else ""
        if known and known != wanted:
            return f"in another language than {wanted}, as the dump says"
        perplexity, bucket = row.get("perplexity"), row.get("bucket")
        if isinstance(perplexity, int | float) or isinstance(bucket, str):
            most = self.settings.max_perplexity
            if most is None:
                return "high perplexity (cc_net's tail)" if bucket == "tail" else ""
            return f"perplexity above {most:g}" if isinstance(perplexity, int | float) and perplexity > most else ""
        found = judge_text(text)
        if not found.keep:
            return found.reason
        if not known:
            if self._language is None:
                self._language = Language(wanted, _SURE)
            if not self._language.judge([Item(Document("", text))])[0].keep:
                return f"in another language than {wanted}, by fastText"
        return ""


class CommonCrawlDump(_Pages):
    """Web pages."""


class NewsDump(_Pages):
    """News articles. E5 takes title and passage alone."""

    neighbours = False
