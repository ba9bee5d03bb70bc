"""Download the pages of a sitemap to a folder, for `airgen init URL`.

    fetched = download("http://127.0.0.1:8000/sitemap.xml", Path("pages"))     # pages/guide/start.html, ...
    fetched.done, fetched.named                                                # 40, 43

A sitemap may be compressed, refer to other sitemaps, or be a list of URLs or a feed. Only pages on the sitemap's own
host are fetched, one by one, and redirects to other hosts are not followed. The size and duration of each response are
limited, and so are the numbers of sitemaps and of pages that do not respond.
"""

import codecs
import hashlib
import html
import http.client
import re
import time
import urllib.error
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from airgen import __version__
from airgen.corpus.readers.files import endings
from airgen.corpus.readers.reader import ReaderSettings
from airgen.errors import CorpusError
from airgen.net.http import retry_after
from airgen.safety.escaping import one_line
from airgen.safety.interruptible import interruptible
from airgen.text.character_encodings import browsers_encoding, decoded, decoded_html

_LOCATION = re.compile(
    r"<(?:(?!image|video|news)\w{1,30}:)?loc\b[^<>]{0,200}>\s*+(?:<!\[CDATA\[([^<>]{1,2000}+)>|([^<>]{1,2000}+))\s*+</",
    re.IGNORECASE,
)
_FEED = re.compile(
    r"""<link\b[^<>]{0,200}>\s*+(?:<!\[CDATA\[)?\s*+([^<>\s\]]{1,2000})\s*+(?:\]\]>)?\s*+</link>"""
    r"""|<link\b[^<>]{0,300}\bhref=["']([^"'<>\s]{1,2000})""",
    re.IGNORECASE,
)
_ROBOTS = re.compile(r"^[ \t]*sitemap[ \t]*:[ \t]*(\S{1,2000})", re.IGNORECASE | re.MULTILINE)
_MAX_SITEMAP_BYTES = 50 << 20  # the limit of the protocol
_MAX_PAGE_BYTES, _MAX_TOTAL_BYTES = 16 << 20, 4 << 30  # the readers' limits
_MAX_SITEMAPS = 1000
_READ_TIMEOUT_SECONDS, _ANSWER_DEADLINE_SECONDS = 20.0, 30.0  # seconds without a byte, and for one answer
_MAX_ATTEMPTS = 4  # requests for a page while the server is busy
_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 5.0, 60.0  # between them: without a word from the server, and at most
_MAX_PAUSED_SECONDS = 600.0  # of all pauses together
_MAX_TIMEOUTS_IN_A_ROW = 5  # consecutive timeouts after which no further page is requested
_READ_BYTES = 1 << 16
_SAFE = re.compile(r"[^\w.-]")
_MAX_STEP_BYTES = 120  # maximum length of a path component
_TYPES = {
    "text/html": ".html", "application/xhtml+xml": ".html", "application/pdf": ".pdf", "application/x-pdf": ".pdf",
    "text/plain": ".txt", "text/markdown": ".md", "text/x-markdown": ".md", "application/epub+zip": ".epub",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx", "text/csv": ".csv",
    "application/json": ".json", "text/x-rst": ".rst",
}  # fmt: skip
_TEXTS = (".html", ".txt", ".md", ".rst")


@dataclass
class FetchedPages:
    """The outcome of fetching the pages of a sitemap.

    Attributes:
        named: Number of pages that the sitemap names.
        done: Number of pages that were saved.
        failed: One line for each page that could not be fetched.
        other: Number of pages without text, such as pictures, by kind.
        repeated: Number of pages that redirect to a page that was saved before, such as a login, by its URL.
        elsewhere: Number of pages on other hosts, by host.
        rest: Number of pages that were not requested.
    """

    named: int = 0
    done: int = 0
    failed: list[str] = field(default_factory=list)
    other: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    elsewhere: Counter[str] = field(default_factory=Counter)
    rest: int = 0
    more: bool = False  # sitemaps were left unread

    def words(self) -> str:
        """Summarise the outcome in one line."""
        parts = [f"{self.done:,} pages fetched"]
        if self.done != self.named or self.more:
            parts[0] += f" of {'at least ' if self.more else ''}{self.named:,} in the sitemap"
        parts += [f"{len(self.failed):,} failed: {self.failed[0]}"] if self.failed else []
        parts += [f"{count:,} left out: {kind} is not text" for kind, count in self.other.most_common(5)]
        parts += [f"{count:,} redirect to {one_line(url, 200)}" for url, count in self.repeated.most_common(3)]
        parts += [f"{count:,} left out: on another host, {host}" for host, count in self.elsewhere.most_common(3)]
        parts += [f"{self.rest:,} not requested (--pages)"] if self.rest else []
        return ", ".join(parts)


@dataclass(frozen=True)
class _Answer:
    content: bytes
    kind: str  # the media type
    charset: str
    url: str = ""  # where redirects led


class _BusyError(CorpusError):
    """The server asks to come back later, in `seconds`."""

    def __init__(self, words: str, seconds: float) -> None:
        super().__init__(words)
        self.seconds = seconds


class _SlowError(CorpusError):
    """The server did not respond in time."""


def download(
    url: str, folder: Path, *, most: int = 1000, progress: Callable[[int], None] | None = None
) -> FetchedPages:
    """Save the sitemap's pages to `folder`, each with the extension of its type.

    Args:
        url: The URL of a sitemap, a feed, or a list of URLs.
        folder: Folder for the files.
        most: Maximum number of pages.
        progress: Called with 1 for each saved page.

    Raises:
        CorpusError: The sitemap cannot be read or names no page, or no page could be fetched.
    """
    site = _Site(url)
    result = FetchedPages()
    pages = site.pages(url, most, result)
    if not pages:
        others = ", ".join(f"{count:,} of {host}" for host, count in result.elsewhere.most_common(3))
        if result.failed and not others:
            raise CorpusError(f"{one_line(url, 200)}: none of its sitemaps could be read: {result.failed[0]}")
        advice = f"it lists {others}: use the sitemap at that address" if others else "check that it is a sitemap"
        raise CorpusError(f"{one_line(url, 200)}: it lists no page of {site.host}; {advice} (sitemap.xml)")
    result.named = len(pages)
    used_paths, landed, in_vain, size = set[str](), set[str](), 0, 0
    for number, page in enumerate(pages):
        if result.done == most or in_vain == _MAX_TIMEOUTS_IN_A_ROW or size > _MAX_TOTAL_BYTES:
            result.rest = len(pages) - number
            break
        try:
            answer = site.get_page(page)
        except CorpusError as error:
            in_vain = in_vain + 1 if isinstance(error, _SlowError | _BusyError) else 0
            result.failed.append(str(error))
            continue
        in_vain, size = 0, size + len(answer.content)
        if answer.url in landed:
            result.repeated[answer.url] += 1
            continue
        landed.add(answer.url)
        ending = _ending(page, answer)
        if not ending:
            result.other[one_line(answer.kind or "an unknown kind", 60)] += 1
            continue
        target = folder / _file_of(page, ending, used_paths)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.write_bytes(_with_charset(answer, ending))
        except OSError:  # half a page would be read as a whole one
            target.unlink(missing_ok=True)
            raise
        result.done += 1
        if progress is not None:
            progress(1)
    if not result.done:
        reason = result.failed[0] if result.failed else f"they are {', '.join(result.other)}"
        raise CorpusError(f"none of {len(pages)} pages could be fetched: {reason}")
    return result


class _Site:
    """The host of a sitemap; no other host is contacted."""

    def __init__(self, url: str) -> None:
        self.host = _host(urlsplit(url).netloc)
        self._opener = urllib.request.build_opener(_SameHost(self))
        self._paused = 0.0

    def owns(self, url: str) -> bool:
        """Return whether a URL belongs to this host."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and _host(parts.netloc) == self.host

    def pages(self, url: str, most: int, result: FetchedPages) -> dict[str, None]:
        """Return the URLs of pages in order, and record other hosts, sitemaps that fail, and whether sitemaps were left
        unread because there are enough pages."""
        waiting, seen, addresses = [url], {url}, dict[str, None]()
        read = in_vain = 0
        while waiting and len(addresses) <= most and read < _MAX_SITEMAPS and in_vain < _MAX_TIMEOUTS_IN_A_ROW:
            place = waiting.pop(0)
            read += 1
            try:
                answer = self.get(place, _MAX_SITEMAP_BYTES)
            except CorpusError as error:
                if place == url:
                    raise
                in_vain = in_vain + 1 if isinstance(error, _SlowError | _BusyError) else 0
                result.failed.append(str(error))  # one of several sitemaps
                continue
            in_vain = 0
            text = _without_comments(_unpacked(place, answer, _MAX_SITEMAP_BYTES))
            is_index = bool(_INDEX.search(text[:5000])) or ("<" not in text[:5000] and bool(_ROBOTS.search(text)))
            for address in [_resolved(place, link) for link in _addresses(text)]:
                if not self.owns(address):
                    result.elsewhere[one_line(_host(_netloc(address)) or "none", 80)] += 1
                    continue
                if is_index:
                    if address not in seen:
                        seen.add(address)
                        waiting.append(address)
                elif address != place:
                    addresses[address] = None
        result.more = bool(waiting or result.failed)
        return addresses

    def get_page(self, url: str) -> _Answer:
        """Fetch a page, or the page of this host to which it refers readers at once (`<meta http-equiv=refresh>`)."""
        answer = self.get(url, _MAX_PAGE_BYTES)
        target = _refresh_target(answer)
        return self.get(target, _MAX_PAGE_BYTES) if target and target != answer.url and self.owns(target) else answer

    def get(self, url: str, most: int) -> _Answer:
        """Fetch a URL, and again if the server says that it is busy.

        Raises CorpusError if it fails or is not complete in time, whichever part is slow.
        """
        for _ in range(_MAX_ATTEMPTS - 1):
            try:
                return self._get_in_time(url, most)
            except _BusyError as error:
                seconds = min(error.seconds, _MAX_PAUSE_SECONDS)
                if self._paused + seconds > _MAX_PAUSED_SECONDS:
                    raise
                self._paused += seconds
                _wait(seconds)
        return self._get_in_time(url, most)

    def _get_in_time(self, url: str, most: int) -> _Answer:
        try:
            return interruptible(lambda: self._get(url, most), seconds=_ANSWER_DEADLINE_SECONDS + 1)
        except TimeoutError as error:
            reason = f"{one_line(url, 200)}: not complete after {_ANSWER_DEADLINE_SECONDS:.0f} s"
            raise _SlowError(reason) from error

    def _get(self, url: str, most: int) -> _Answer:
        named, end = one_line(url, 200), time.monotonic() + _ANSWER_DEADLINE_SECONDS
        try:
            request = urllib.request.Request(_canonical(url), headers={"User-Agent": f"airgen/{__version__}"})
            with self._opener.open(request, timeout=_READ_TIMEOUT_SECONDS) as answer:
                content = bytearray()
                while piece := answer.read1(_READ_BYTES):
                    content += piece
                    if len(content) > most:
                        raise CorpusError(f"{named}: more than {most >> 20} MB")
                    if time.monotonic() > end:
                        raise _SlowError(f"{named}: not complete after {_ANSWER_DEADLINE_SECONDS:.0f} s")
                headers, landed = answer.headers, answer.geturl()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in (429, 503):
                seconds = retry_after(dict(error.headers.items()))
                raise _BusyError(
                    f"{named}: status {error.code}", _PAUSE_SECONDS if seconds is None else seconds
                ) from error
            raise CorpusError(f"{named}: status {error.code}") from error
        except TimeoutError as error:
            raise _SlowError(f"{named}: no answer in {_READ_TIMEOUT_SECONDS:.0f} s") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            slow = _SlowError if isinstance(reason, TimeoutError) else CorpusError
            raise slow(f"{named}: cannot be fetched: {one_line(reason, 200)}") from error
        kind = (headers.get_content_type() if headers.get("Content-Type") else "").lower()
        body = bytes(content)
        for coding in reversed((headers.get("Content-Encoding") or "").lower().split(",")):
            body = _uncoded(named, body, coding.strip(), most)
        return _Answer(body, kind, str(headers.get_content_charset() or ""), _canonical(landed))


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _host(netloc: str) -> str:
    """Return a host in one form: ASCII, in lower case, without a usual port."""
    host = re.sub(r":(?:80|443)?\Z", "", netloc.lower()).removesuffix(".")
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


def _resolved(place: str, link: str) -> str:
    """Return the canonical URL of a link in a sitemap, which may be relative, or lack its scheme."""
    host = urlsplit(place).netloc
    if link.lower().startswith(host.lower() + "/"):
        link = f"{urlsplit(place).scheme}://{link}"
    try:
        return _canonical(urljoin(place, link))
    except ValueError:
        return link


def _canonical(url: str) -> str:
    """Return a URL in the form in which it is requested: without a fragment, percent-encoded in one way."""
    parts = urlsplit(url)
    path, query = (
        _ENCODED.sub(_plain, quote(_PERCENT.sub("%25", text), safe="%/:=&?~+!$,;'@()*[]"))
        for text in (parts.path, parts.query)
    )
    return urlunsplit((parts.scheme, _host(parts.netloc), path or "/", query, ""))


def _plain(escape: re.Match[str]) -> str:
    """Return a letter, digit or mark that needs no escape, or an escape in capitals."""
    letter = chr(int(escape[0][1:], 16))
    return letter if letter.isascii() and (letter.isalnum() or letter in "-._~") else escape[0].upper()


_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_ENCODED = re.compile("%[0-9A-Fa-f]{2}")
_REFRESH = re.compile(
    r"""<meta\b[^<>]{0,200}http-equiv\s*+=\s*+["']?refresh["']?[^<>]{0,200}"""
    r"""content\s*+=\s*+["']?\s*+[0-5](?:\.\d)?\s*+[;,]\s*+url\s*+=\s*+["']?([^"'<>\s]{1,2000})""",
    re.IGNORECASE,
)
_MAX_REFRESH_WORDS = 40  # words of a page that only refers to another one


def _refresh_target(answer: _Answer) -> str:
    """Return the URL to which a page of a few words refers readers within five seconds, or ""."""
    text = answer.content[:_READ_BYTES].decode("utf-8", "replace")
    match = _REFRESH.search(text[:4096])
    if match is None or len(re.sub(r"<[^<>]*>", " ", text).split()) > _MAX_REFRESH_WORDS:
        return ""
    return _resolved(answer.url, html.unescape(match[1]))


def _wait(seconds: float) -> None:
    time.sleep(seconds)


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects only on the same host, without contacting any other."""

    def __init__(self, site: _Site) -> None:
        self._site = site

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not self._site.owns(newurl):
            fp.close()
            elsewhere = one_line(urlsplit(newurl).netloc or newurl, 80)
            raise CorpusError(f"{one_line(req.full_url, 200)}: redirects to another host, {elsewhere}")
        return super().redirect_request(req, fp, code, msg, headers=headers, newurl=newurl)


_INDEX = re.compile(r"<(?:\w{1,30}:)?sitemapindex\b", re.IGNORECASE)


def _without_comments(text: str) -> str:
    """Return XML without comments, which may contain outdated URLs."""
    pieces, at = [], 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        pieces.append(text[at:start])
        at = end + 3
    return "".join([*pieces, text[at:]])


def _addresses(text: str) -> list[str]:
    """Return the URLs in a sitemap, a feed, a robots.txt (its sitemaps), or a text with one URL per line."""
    text = _without_comments(text.removeprefix("\ufeff"))
    head = text[:5000].lower()
    if any(start in head for start in ("<rss", "<feed", "<rdf:rdf")):
        return [html.unescape(match[1] or match[2]) for match in _FEED.finditer(text)]
    if "<" not in head:
        if sitemaps := _ROBOTS.findall(text):
            return list(sitemaps)
        lines = (line.split("\t")[0].strip() for line in text.splitlines())
        return [line for line in lines if line.startswith(("http://", "https://")) and len(line) <= 2000]
    named = (match[1].rstrip("]") if match[1] else match[2] for match in _LOCATION.finditer(text))
    return [html.unescape(" ".join(name.split())) for name in named if name.strip()]


def _unpacked(url: str, answer: _Answer, most: int) -> str:
    raw = answer.content
    if raw.startswith(b"\x1f\x8b"):
        raw = _inflated(one_line(url, 200), raw, most)
    try:
        return decoded(raw, "", "").text
    except UnicodeError:
        return raw.decode("utf-8", "replace")


def _uncoded(named: str, raw: bytes, coding: str, most: int) -> bytes:
    """Undo a content coding; other words in that header mean nothing. Raises CorpusError for one that cannot be undone.

    Some servers name a coding and send the page as it is.
    """
    if coding in ("gzip", "x-gzip", "deflate"):
        return raw if raw.lstrip()[:1] == b"<" else _inflated(named, raw, most)
    if coding in ("br", "zstd", "compress", "x-compress", "dcb", "dcz") and raw.lstrip()[:1] != b"<":
        raise CorpusError(f"{named}: is sent compressed with {coding}, which was not asked for")
    return raw


def _inflated(named: str, raw: bytes, most: int) -> bytes:
    """Decompress gzip or deflate data, which may have several parts. Raises CorpusError."""
    content = bytearray()
    try:
        while raw:
            inflater = zlib.decompressobj(zlib.MAX_WBITS | 32 if raw[:1] in (b"\x1f", b"\x78") else -zlib.MAX_WBITS)
            content += inflater.decompress(raw, most + 1 - len(content))
            if len(content) > most:
                raise CorpusError(f"{named}: unpacks to more than {most >> 20} MB")
            raw = inflater.unused_data if inflater.unused_data.startswith(b"\x1f\x8b") else b""
    except zlib.error as error:
        raise CorpusError(f"{named}: is compressed and damaged: {error}") from error
    return bytes(content)


_HTML = re.compile(
    rb"(?:<\?xml[^<>]{0,200}>\s{0,99}+|<!--[^>]{0,500}>\s{0,99}+){0,5}+<(?:!doctype html|html)\b", re.IGNORECASE
)


def _ending(url: str, answer: _Answer) -> str:
    """Return the file extension for a response from its first bytes, media type or URL, or "" if it is not text."""
    known = [suffix for suffixes in endings().values() for suffix in suffixes]
    written = PurePosixPath(unquote(urlsplit(url).path)).suffix.lower()
    start = answer.content[:1024].removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"%PDF-"):
        return ".pdf"
    if _HTML.match(start):
        return written if written in (".htm", ".xhtml") else ".html"
    if answer.kind == "text/plain" and written in known:
        return written
    if answer.kind in _TYPES:
        ending = _TYPES[answer.kind]
        return "" if ending == ".pdf" else ending  # whatever is sent, it is not a PDF
    if answer.kind in ("", "application/octet-stream", "binary/octet-stream") and written in known:
        return written
    return ".html" if not answer.kind and start.startswith(b"<") else ""


def _with_charset(answer: _Answer, ending: str) -> bytes:
    """Return the bytes to write, converted to UTF-8 with a byte order mark if the HTTP header names another charset."""
    if ending not in _TEXTS or not answer.charset or answer.content.startswith(codecs.BOM_UTF8):
        return answer.content
    if browsers_encoding(answer.charset) == "utf-8":
        return answer.content
    return codecs.BOM_UTF8 + decoded_html(answer.content, "", "", header=answer.charset).text.encode("utf-8", "replace")


_SKIPPED = frozenset(ReaderSettings().skip)  # names of files that readers leave out


def _file_of(url: str, ending: str, used_paths: set[str]) -> Path:
    """Return a unique path in the folder, made from the page's own path with every component made safe."""
    parts = urlsplit(url)
    steps = [_step(unquote(step)) for step in parts.path.split("/")]
    steps = [step for step in steps if step] or ["index"]
    if parts.path.endswith("/") and parts.path != "/":
        steps.append("index")
    if parts.query:
        steps[-1] += "_" + _SAFE.sub("_", parts.query)[:60]
    if not steps[-1].lower().endswith(ending) or parts.query:
        steps[-1] += ending
    path = PurePosixPath(*steps)
    folders = [str(folder).casefold() + "/" for folder in path.parents if folder.name]
    name = str(path).casefold()
    # On some disks, names that differ only in case or odd characters are the same, and a file cannot be a folder.
    if name in used_paths or name + "/" in used_paths or any(folder[:-1] in used_paths for folder in folders):
        mark = hashlib.blake2b(url.encode("utf-8", "replace"), digest_size=5).hexdigest()
        path = PurePosixPath(f"{path.name.removesuffix(ending)}-{mark}{ending}")
        folders, name = [], str(path).casefold()
    used_paths.update([name, *folders])
    return Path(path)


def _step(text: str) -> str:
    """Make one component of a path safe: no invalid characters, no name that readers skip, and not too long."""
    step = _SAFE.sub("_", text).strip(".")
    if step in _SKIPPED:
        step += "_"
    raw = step.encode("utf-8", "replace")
    if len(raw) <= _MAX_STEP_BYTES:
        return step
    mark = hashlib.blake2b(raw, digest_size=5).hexdigest()
    return f"{raw[:_MAX_STEP_BYTES].decode('utf-8', 'ignore')}-{mark}"
