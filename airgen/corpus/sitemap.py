"""The pages of a sitemap as a folder of HTML files, for `airgen init URL`.

    download("http://127.0.0.1:8000/sitemap.xml", Path("pages"))     # pages/guide/start.html, ...

Only pages of the sitemap's own host are fetched, one after another. Every answer is bounded in bytes.
"""

import html
import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from airgen import __version__
from airgen.errors import CorpusError
from airgen.text.display import one_line

_LOCATION = re.compile(r"<loc>\s*+([^<>\s]{1,2000})\s*+</loc>")
_MAP_BYTES, _PAGE_BYTES = 50 << 20, 16 << 20  # the protocol's own limit, and that of the readers
_WAIT = 30.0  # seconds
_SAFE = re.compile(r"[^\w.-]")


def download(
    url: str, folder: Path, *, most: int = 1000, progress: Callable[[int], None] | None = None
) -> tuple[int, list[str]]:
    """Save the sitemap's pages as HTML files below `folder`; returns their number and a line for each that failed.

    A sitemap may name others, of which each is read once. Raises CorpusError where it cannot be read or names no page.
    """
    host = urlsplit(url).netloc
    pages, failed, done = _pages(url, host), [], 0
    if not pages:
        raise CorpusError(f"{one_line(url, 200)}: no page of {host} is named in it; is it a sitemap (sitemap.xml)?")
    for page in list(pages)[:most]:
        try:
            content = _get(page, host, _PAGE_BYTES)
        except CorpusError as error:
            failed.append(str(error))
            continue
        target = folder / _file_of(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        done += 1
        if progress is not None:
            progress(1)
    if not done:
        raise CorpusError(f"none of {len(failed)} pages could be fetched: {failed[0]}")
    return done, failed


def _pages(url: str, host: str) -> dict[str, None]:
    waiting, seen, found = [url], {url}, dict[str, None]()
    while waiting:
        text = _get(waiting.pop(0), host, _MAP_BYTES).decode("utf-8", "replace")
        for match in _LOCATION.finditer(text):
            place = html.unescape(match[1])
            if not _is_of(place, host):
                continue
            if "<sitemapindex" in text[:2000]:
                if place not in seen:
                    seen.add(place)
                    waiting.append(place)
            else:
                found[place] = None
    return found


def _is_of(url: str, host: str) -> bool:
    try:
        return urlsplit(url).netloc == host and urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def _get(url: str, host: str, most: int) -> bytes:
    """The body of an answer. Raises CorpusError."""
    named = one_line(url, 200)
    try:
        request = urllib.request.Request(url, headers={"User-Agent": f"airgen/{__version__}"})
        with urllib.request.urlopen(request, timeout=_WAIT) as answer:
            if urlsplit(answer.url).netloc != host:
                raise CorpusError(f"{named}: leads to another host, {one_line(urlsplit(answer.url).netloc, 80)}")
            content: bytes = answer.read(most + 1)
    except urllib.error.HTTPError as error:
        raise CorpusError(f"{named}: status {error.code}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise CorpusError(f"{named}: cannot be fetched: {one_line(error, 200)}") from error
    if len(content) > most:
        raise CorpusError(f"{named}: more than {most >> 20} MB")
    return content


def _file_of(url: str) -> Path:
    """A path below the folder: the page's own, with every step made harmless."""
    parts = urlsplit(url)
    steps = [_SAFE.sub("_", unquote(step)).strip(".")[:100] for step in parts.path.split("/")]
    steps = [step for step in steps if step] or ["index"]
    if parts.path.endswith("/") and parts.path != "/":
        steps.append("index")
    if parts.query:
        steps[-1] += "_" + _SAFE.sub("_", parts.query)[:60]
    name = steps[-1] if steps[-1].lower().endswith((".html", ".htm", ".xhtml")) else f"{steps[-1]}.html"
    return Path(*steps[:-1], name)
