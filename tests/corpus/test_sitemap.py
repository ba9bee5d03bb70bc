"""Sitemaps of every form that the protocol allows, and servers that would hold or lead astray who fetches them."""

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest
from http_double import Asked, answering

from airgen.corpus import sitemap
from airgen.corpus.readers.html import HtmlReader
from airgen.corpus.readers.reader import Place
from airgen.corpus.sitemap import download
from airgen.errors import CorpusError
from airgen.storage.records import Document

TEXT = "The ferry leaves the northern quay at seven, and comes back when the last passenger is ashore."
PAGE = f"<title>Ferry</title><p>{TEXT}</p>"


def urls(base: str, *paths: str, wrap: str = "{}") -> str:
    return "<urlset>" + "".join(f"<url><loc>{wrap.format(base + path)}</loc></url>" for path in paths) + "</urlset>"


def saved(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


FORMS: dict[str, Any] = {
    "packed": lambda base: (200, gzip.compress(urls(base, "/a", "/b").encode())),
    "two parts": lambda base: (200, b"".join(gzip.compress(urls(base, one).encode()) for one in ("/a", "/b"))),
    "sent packed": lambda base: (200, gzip.compress(urls(base, "/a", "/b").encode()), {"Content-Encoding": "gzip"}),
    "deflated": lambda base: (200, zlib.compress(urls(base, "/a", "/b").encode()), {"Content-Encoding": "deflate"}),
    "CDATA": lambda base: (200, urls(base, "/a", "/b", wrap="<![CDATA[ {} ]]>")),
    "prefixes": lambda base: (200, urls(base, "/a", "/b").replace("loc>", "s:loc>") + "<image:loc>x</image:loc>"),
    "UTF-16": lambda base: (200, urls(base, "/a", "/b").encode("utf-16")),
    "lines": lambda base: (200, f"{base}/a\n{base}/b\n"),
    "feed": lambda base: (200, f"<rss><item><link>{base}/a</link></item><item><link>{base}/b</link></item></rss>"),
    "Atom": lambda base: (200, f"<feed><entry><link href='{base}/a'/></entry><link rel=x href='{base}/b'/></feed>"),
    "relative": lambda base: (200, urls("", "/a", "/b")),
    "capitals": lambda base: (200, f"<URLSET><URL><LOC>{base}/a</LOC></URL><URL><LOC>{base}/b</LOC></URL></URLSET>"),
    "old pages in a comment": lambda base: (200, f"<!-- <loc>{base}/old</loc> -->{urls(base, '/a', '/b')}"),
    "RDF": lambda base: (200, f"<rdf:RDF><link>{base}/a</link><item><link>{base}/b</link></item></rdf:RDF>"),
    "RSS with CDATA": lambda base: (200, f"<rss><link><![CDATA[{base}/a]]></link><link>{base}/b</link></rss>"),
    "spaces around": lambda base: (200, urls(base, "/a", "/b", wrap="\n   {}\n  ")),
    "CDATA over lines": lambda base: (200, urls(base, "/a", "/b", wrap="\n<![CDATA[\n{}\n]]>\n")),
    "without a scheme": lambda base: (200, urls(base.removeprefix("http://"), "/a", "/b")),
    "fragments": lambda base: (200, urls(base, "/a", "/a#part", "/b#x", "/b#y")),
    "escapes in two forms": lambda base: (200, urls(base, "/%61", "/b", "/a", "/%62").replace("%6", "&#x25;6")),
    "white space before XML": lambda base: (200, f"\n\n <?xml version='1.0'?>{urls(base, '/a', '/b')}"),
    "said to be packed": lambda base: (200, urls(base, "/a", "/b"), {"Content-Encoding": "gzip"}),
    "alternates": lambda base: (200, urls(base, "/a", "/b").replace("</url>", f"<x:link href='{base}/c'/></url>")),
    "lines with dates": lambda base: (200, f"\ufeff{base}/a\t2026-01-02\n{base}/b\t2026-01-03\n"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("indexed", [False, True])
def test_forms(form: str, indexed: bool, tmp_path: Path) -> None:
    def answer(asked: Asked) -> tuple[Any, ...]:
        base = f"http://{asked.headers['Host']}"
        if asked.path == "/index.xml":
            return 200, f"<sitemapindex><sitemap><loc>{base}/map.xml</loc></sitemap></sitemapindex>"
        return FORMS[form](base) if asked.path == "/map.xml" else (200, PAGE)  # type: ignore[no-any-return]

    with answering(answer) as site:
        found = download(f"{site}/{'index' if indexed else 'map'}.xml", tmp_path)
    assert saved(tmp_path) == ["a.html", "b.html"]
    assert found.words() == "2 pages fetched"


def test_the_sitemaps_that_robots_txt_names(tmp_path: Path) -> None:
    def answer(asked: Asked) -> tuple[Any, ...]:
        base = f"http://{asked.headers['Host']}"
        if asked.path == "/robots.txt":
            return 200, f"User-agent: *\nDisallow: /private\n\nsitemap: {base}/map.xml\n"
        return (200, urls(base, "/a", "/b")) if asked.path == "/map.xml" else (200, PAGE)

    with answering(answer) as site:
        download(f"{site}/robots.txt", tmp_path)
    assert saved(tmp_path) == ["a.html", "b.html"]


def test_each_page_is_a_file_of_its_own_of_its_kind_and_all_add_up(tmp_path: Path) -> None:
    long = "/" + "%E0%B8%81" * 200
    pages: dict[str, tuple[Any, ...]] = {
        "/a": (200, PAGE), "/A": (200, PAGE), "/a?x=1": (200, PAGE), "/a_x_1": (200, PAGE), "/a.html/b": (200, PAGE),
        "/node_modules/x": (200, PAGE), "/.well/y": (200, PAGE), f"{long}1": (200, PAGE), f"{long}2": (200, PAGE),
        "/m.pdf": (200, b"%PDF-1.4 x"), "/get?id=7": (200, b"%PDF-1.4 x", {"Content-Type": "application/octet-stream"}),
        "/n.md": (200, "# Note", {"Content-Type": "text/plain"}),
        "/p.png": (200, b"\x89PNG", {"Content-Type": "image/png"}),
        "/fake.pdf": (200, "<html>log in", {"Content-Type": "text/html"}), "/gone": (404, ""),
    }  # fmt: skip

    def answer(asked: Asked) -> tuple[Any, ...]:
        if asked.path == "/sitemap.xml":
            return 200, urls(f"http://{asked.headers['Host']}", *pages)
        return pages[asked.path]

    with answering(answer) as site:
        found = download(f"{site}/sitemap.xml", tmp_path)
    names = saved(tmp_path)
    assert len(names) == found.done == 13 == len({name.casefold() for name in names})
    assert [name for name in names if name.endswith((".pdf", ".md"))] == ["get_id_7.pdf", "m.pdf", "n.md"]
    assert "fake.pdf.html" in names and "node_modules_/x.html" in names
    assert all(len(part.encode()) < 255 for name in names for part in name.split("/"))
    assert "13 pages fetched of 15 in the sitemap, 1 failed: " in found.words()
    assert "1 left out: image/png is not text" in found.words()


@pytest.mark.parametrize("charset", ["windows-1251", "utf-8", "none-such"])
def test_the_charset_of_the_header_is_kept(charset: str, tmp_path: Path) -> None:
    text = "Паром уходит от северной пристани в семь часов и возвращается вечером."
    body = f"<title>x</title><p>{text}".encode("cp1251" if charset == "windows-1251" else "utf-8")

    def answer(asked: Asked) -> tuple[Any, ...]:
        if asked.path == "/sitemap.xml":
            return 200, urls(f"http://{asked.headers['Host']}", "/a")
        return 200, body, {"Content-Type": f"text/html; charset={charset}"}

    with answering(answer) as site:
        download(f"{site}/sitemap.xml", tmp_path / "pages")
    rows = list(HtmlReader(HtmlReader.Settings(path="pages"), Place(tmp_path, language="en")).read())
    assert [row.text for row in rows if isinstance(row, Document)] == [text]


def test_no_other_host_is_asked(tmp_path: Path) -> None:
    asked_there: list[str] = []

    def other(asked: Asked) -> tuple[Any, ...]:
        asked_there.append(asked.path)
        return 200, PAGE

    with answering(other) as elsewhere:

        def answer(asked: Asked) -> tuple[Any, ...]:
            if asked.path == "/sitemap.xml":
                return 200, urls(f"http://{asked.headers['Host']}", "/here", "/away", "/file")
            targets = {"/here": "/there", "/away": f"{elsewhere}/latest", "/file": "file:///etc/passwd"}
            return (302, "", {"Location": targets[asked.path]}) if asked.path in targets else (200, PAGE)

        with answering(answer) as site:
            found = download(f"{site}/sitemap.xml", tmp_path)
    assert found.done == 1 and asked_there == [] and len(found.failed) == 2
    assert "redirects to another host" in found.failed[0]


def test_endless_sitemaps_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sitemap, "_MAX_SITEMAPS", 20)
    asked_for: list[str] = []

    def answer(asked: Asked) -> tuple[Any, ...]:
        asked_for.append(asked.path)
        base = f"http://{asked.headers['Host']}"
        return 200, f"<sitemapindex><sitemap><loc>{base}/{len(asked_for)}.xml</loc></sitemap></sitemapindex>"

    with answering(answer) as site, pytest.raises(CorpusError, match="no page of "):
        download(f"{site}/0.xml", tmp_path)
    assert len(asked_for) == 20


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sitemap, "_MAX_SITEMAP_BYTES", 1 << 16)
    with (
        answering(lambda _: (200, gzip.compress(bytes(1 << 20)))) as site,
        pytest.raises(CorpusError, match="unpacks to"),
    ):
        download(f"{site}/sitemap.xml", tmp_path)


def test_slow_pages_are_given_up_after_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sitemap._Site._get

    def get(site: Any, url: str, most: int) -> Any:
        if "/slow" in url:
            raise sitemap._SlowError(f"{url}: not complete after 30 s")
        return real(site, url, most)

    monkeypatch.setattr(sitemap._Site, "_get", get)

    def answer(asked: Asked) -> tuple[Any, ...]:
        paths = ["/a", *(f"/slow{number}" for number in range(40))]
        return (200, urls(f"http://{asked.headers['Host']}", *paths)) if asked.path == "/s.xml" else (200, PAGE)

    with answering(answer) as site:
        found = download(f"{site}/s.xml", tmp_path)
    assert (found.done, len(found.failed), found.rest) == (1, 5, 35)


def test_what_is_left_out_of_a_sitemap_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(sitemap, "_wait", waited.append)
    busy = iter([429, 503, 200])
    pages: dict[str, tuple[Any, ...]] = {
        "/a": (200, PAGE), "/members": (302, "", {"Location": "/login?next=members"}), "/login": (200, "<html>Log in"),
        "/account": (302, "", {"Location": "/login?next=members"}), "/login?next=members": (200, "<html>Log in"),
        "/stub": (200, '<meta http-equiv="refresh" content="0; url=/new/page"><p>This page has moved.'),
        "/new/page": (200, PAGE.replace("seven", "eight")), "/br": (200, b"\x0b\x02\x80x", {"Content-Encoding": "br"}),
        "/caf%C3%A9%20noir": (200, PAGE.replace("seven", "nine")),
        "/xhtml": (200, "<?xml version='1.0'?><!-- x --><html>a", {"Content-Type": "application/xml"}),
        "/marked": (200, b"\xef\xbb\xbf<!DOCTYPE html><p>a"),
    }  # fmt: skip

    def answer(asked: Asked) -> tuple[Any, ...]:
        base = f"http://{asked.headers['Host']}"
        if asked.path == "/sitemap.xml":
            maps = urls(base, "/map.xml", "/dead.xml").replace("url>", "sitemap>").replace("urlset", "sitemapindex")
            return 200, maps
        if asked.path == "/map.xml":
            names = ["/a", "/members", "/account", "/stub", "/br", "/café noir", "/xhtml", "/marked", "/later"]
            return 200, urls(base, *names) + urls("https://blog.example.com", "/1", "/2")
        if asked.path == "/later":
            return next(busy), PAGE.replace("seven", "ten"), {"Retry-After": "7"}
        return pages.get(asked.path, (404, ""))

    with answering(answer) as site:
        result = download(f"{site}/sitemap.xml", tmp_path)
    assert waited == [7.0, 7.0]
    assert saved(tmp_path) == [
        "a.html", "café_noir.html", "later.html", "marked.html", "members.html", "stub.html", "xhtml.html",
    ]  # fmt: skip
    assert "eight" in (tmp_path / "stub.html").read_text()
    words = result.words()
    assert "7 pages fetched of at least 9 in the sitemap, 2 failed: " in words and "dead.xml: status 404" in words
    assert any("is sent compressed with br" in line for line in result.failed)
    assert (
        f"1 redirect to {site}/login?next=members" in words and "2 left out: on another host, blog.example.com" in words
    )


def test_a_server_that_is_always_busy_is_waited_for_ten_minutes_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(sitemap, "_wait", waited.append)
    asked_for: list[str] = []

    def answer(asked: Asked) -> tuple[Any, ...]:
        if asked.path == "/s.xml":
            return 200, urls(f"http://{asked.headers['Host']}", *(f"/{number}" for number in range(100)))
        asked_for.append(asked.path)
        later = len(asked_for) % 2  # every page comes at the second request
        return (429, "", {"Retry-After": "86400"}) if later else (200, PAGE.replace("seven", asked.path))

    with answering(answer) as site:
        result = download(f"{site}/s.xml", tmp_path)
    assert waited == [60.0] * 10
    assert result.done + len(result.failed) + result.rest == 100 and result.done >= 10


def test_sitemaps_that_are_all_slow_are_given_up_after_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, tried = sitemap._Site._get, list[str]()

    def get(site: Any, url: str, most: int) -> Any:
        tried.append(url)
        if "/slow" in url:
            raise sitemap._SlowError(f"{url}: not complete after 30 s")
        return real(site, url, most)

    monkeypatch.setattr(sitemap._Site, "_get", get)

    def answer(asked: Asked) -> tuple[Any, ...]:
        maps = urls(f"http://{asked.headers['Host']}", *(f"/slow{number}.xml" for number in range(900)))
        return 200, maps.replace("url>", "sitemap>").replace("urlset", "sitemapindex")

    with answering(answer) as site, pytest.raises(CorpusError, match=r"none of its sitemaps could be read: .*slow0"):
        download(f"{site}/s.xml", tmp_path)
    assert len(tried) == 6


def test_a_sitemap_of_another_host_names_it(tmp_path: Path) -> None:
    with (
        answering(lambda asked: (200, urls("https://www.example.com", "/a", "/b"))) as site,
        pytest.raises(CorpusError, match=r"it lists 2 of www\.example\.com: use the sitemap at that address"),
    ):
        download(f"{site}/sitemap.xml", tmp_path)


@pytest.mark.parametrize(
    ("one", "other"),
    [("bücher.example", "xn--bcher-kva.example"), ("Example.COM", "example.com"), ("example.com:443", "example.com."),
     ("example.com:80", "example.com")],
)  # fmt: skip
def test_a_host_in_two_forms_is_one(one: str, other: str) -> None:
    assert sitemap._host(one) == sitemap._host(other)
