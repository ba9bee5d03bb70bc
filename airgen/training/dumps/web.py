"""Readers for Common Crawl and news: (title, passage) and neighbours on a page, from WARC, WET and JSONL.

E5 uses cc_net, which rejects other languages and text with high perplexity under a Wikipedia language model. If a dump
has cc_net's figures, they decide: pages in its `tail` bucket, or above `max_perplexity`, are refused. Otherwise, rules
replace perplexity: those of airgen's cleaning, after Gopher and C4, and fastText's language identification. Such rules
detect text that is not prose, but not badly written text.
"""

import codecs
import io
import zlib
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from airgen.components.registry import load_extra
from airgen.corpus.cleaning.filters import judge_language, judge_text
from airgen.corpus.readers.files import opened
from airgen.corpus.readers.html import html_blocks
from airgen.corpus.readers.reader import Unusable
from airgen.errors import AirgenError, CorpusError
from airgen.text.character_encodings import decoded
from airgen.training.dumps import (
    DumpReader,
    DumpRow,
    first_text,
    heading,
    json_rows,
    passage_id,
    passages_of,
    plain,
)
from airgen.training.mining.pairs import RefusedRow, SourcePassage

_LARGEST_PAGE_BYTES = 4 << 20  # maximum bytes of a page, unpacked
_HEADER_BYTES = 1 << 20  # maximum bytes of the headers of a record
_BLOCK_BYTES = 1 << 16
_HTML = ("text/html", "application/xhtml+xml")
# Python has more encodings under these names: some take quadratic time, and some are not text encodings.
_ENCODINGS = ("utf-8", "utf-16", "cp", "iso8859", "koi8", "gb", "big5", "euc", "shift_jis", "ascii", "mac")


class _Headers:
    """A stream that reads at most `_HEADER_BYTES` bytes of headers, since warcio reads lines of any length."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.tell = stream, stream.tell
        self.left: int | None = None  # bytes left for headers; None outside of headers

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes."""
        if self.left is not None:
            self.left -= size
            if self.left < 0:
                raise ValueError("headers without an end")
        return self._stream.read(size)


def archived_pages(path: Path, language: str) -> Iterator[dict[str, Any] | RefusedRow]:
    """Yield the pages in file order. Raises CorpusError if the file is damaged, and MissingExtra if warcio is
    missing."""
    archives = load_extra("warcio.archiveiterator", "reading WARC files")
    with opened(path) as stream:
        source = _Headers(stream)
        records = archives.ArchiveIterator(source, arc2warc=True)
        while True:
            source.left = _HEADER_BYTES
            try:
                with redirect_stderr(io.StringIO()):  # warcio writes its remarks on wrong lengths to this
                    record = next(records, None)
            except (AirgenError, OSError, EOFError, zlib.error):
                raise
            except Exception as error:  # warcio raises errors of many kinds for damaged headers
                raise CorpusError(f"{path}: a record is damaged; fetch or copy it again") from error
            source.left = None
            if record is None:
                return
            yield from _page(record, language)
            while record.raw_stream.read(_BLOCK_BYTES):
                pass


def _page(record: Any, language: str) -> Iterator[dict[str, Any] | RefusedRow]:
    """Yield the page in a record, if it contains one."""
    if record.rec_type not in ("response", "conversion"):
        return
    address = record.rec_headers.get_header("WARC-Target-URI") or ""
    try:
        content = record.content_stream().read(_LARGEST_PAGE_BYTES + 1)
    except Exception:  # noqa: BLE001  # chunks and packed content that are damaged
        yield RefusedRow("record", "damaged content")
        return
    if len(content) > _LARGEST_PAGE_BYTES:
        yield RefusedRow("page", f"larger than {_LARGEST_PAGE_BYTES >> 20} MB")
    elif record.rec_type == "conversion":
        title, _, text = content.decode("utf-8", "replace").strip().partition("\n")
        language = record.rec_headers.get_header("WARC-Identified-Content-Language") or ""
        yield {"url": address, "title": title, "text": text, "language": language}
    else:
        yield from _of_response(record, address, content, language)


def _of_response(record: Any, address: str, content: bytes, language: str) -> Iterator[dict[str, Any] | RefusedRow]:
    http = record.http_headers
    if http is None:  # such as DNS records
        return
    kind, _, parameters = (http.get_header("Content-Type") or "").lower().partition(";")
    if kind.strip() not in _HTML:
        yield RefusedRow("record", "no HTML")
        return
    if http.get_statuscode() != "200":
        yield RefusedRow("record", "an error or a redirection")
        return
    try:
        title, blocks = html_blocks(_decoded(content, parameters, language), extract="trafilatura")
    except Unusable as error:
        yield RefusedRow("page", error.reason)
        return
    except (UnicodeError, LookupError):
        yield RefusedRow("page", "unknown encoding")
        return
    text = "\n".join(block.text for block in blocks if not block.level)
    yield {"url": address, "title": title, "text": text}


def _decoded(content: bytes, parameters: str, language: str) -> str:
    """Decode a page with the encoding that the server names, or else with the encoding detected from its bytes."""
    _, _, named = parameters.partition("charset=")
    try:
        name = codecs.lookup(named.strip(" \"';")[:40] or "utf-8").name
        if name.startswith(_ENCODINGS):
            return content.decode(name)
    except (UnicodeError, LookupError, ValueError):
        pass  # servers are often wrong
    return decoded(content, "", language).text


_TEXTS = ("text", "raw_content", "maintext", "content", "article", "body", "plain_text")
_OTHER_LANGUAGE = 0.5  # probability of another language above which a page is rejected
# The three-letter codes of WET files for the languages that airgen knows.
_LONG_CODES = {
    "eng": "en", "zho": "zh", "spa": "es", "fra": "fr", "deu": "de", "rus": "ru", "jpn": "ja", "kor": "ko",
    "ara": "ar", "fas": "fa", "hin": "hi", "ben": "bn", "ind": "id", "por": "pt", "ita": "it", "pol": "pl",
    "nld": "nl", "tur": "tr", "vie": "vi", "tha": "th", "ces": "cs", "swe": "sv", "fin": "fi", "dan": "da",
}  # fmt: skip


class _Pages(DumpReader):
    """Base class of readers for the passages of web pages, which are checked first."""

    neighbours = True

    def read(self) -> Iterator[DumpRow]:
        """Yield a SourcePassage per passage. Passages of a Common Crawl page are neighbours."""
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
            verdict = judge_text(passage)
            if not verdict.keep:
                yield RefusedRow("passage", verdict.reason)
                continue
            yield SourcePassage(passage_id(host, passage), passage, title, page if self.neighbours else "")

    def _refused(self, row: dict[str, Any], text: str) -> str:
        """Return why a page is refused, or ""."""
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
        verdict = judge_text(text)
        if not verdict.keep:
            return verdict.reason
        if not known and not judge_language(text, wanted, _OTHER_LANGUAGE).keep:
            return f"in another language than {wanted}, by fastText"
        return ""


class CommonCrawlDump(_Pages):
    """Reads web pages."""


class NewsDump(_Pages):
    """Reads news articles, using only (title, passage) pairs, like E5."""

    neighbours = False
