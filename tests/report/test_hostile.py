"""Texts of other people in every field: they reach the page as text, and nothing of them is run or loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
from report_reader import lives, read_report

from airgen.evaluation import EvaluationOptions, evaluate
from airgen.evaluation.systems import SystemSettings
from airgen.report.report import make_report
from airgen.report.report_files import chunk, index_page, web_files

EVIL = (
    "<script>window.hurt = 1</script><img src=http://example.com/x.png onerror='window.hurt = 2'>"
    "</script></style></textarea><!--{{ 7 * 7 }}{% include '/etc/passwd' %}${window.hurt = 3}javascript:hurt()"
    "\x1b[31mred\x1b]0;title\x07 \u2028\u2029\u202eturned\u2066 \\u003cscript> \"');window.hurt=4;('\" "
    "&lt;b&gt; \x00\x7f"
)
SURROGATE = "half a pair \ud83d of an emoji"


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A dataset of BEIR's files whose every field is hostile; such files come from anyone."""
    folder = tmp_path / "evil"
    (folder / "qrels").mkdir(parents=True)
    (folder / "private").mkdir()
    documents = [{"_id": f"d{n}{EVIL}".replace("\t", ""), "title": EVIL, "text": EVIL + SURROGATE} for n in range(3)]
    query = {"_id": f"q{EVIL}", "text": EVIL + SURROGATE, "metadata": {EVIL: EVIL, "type": EVIL, "style": "__proto__"}}
    other = {"_id": "__proto__", "text": "constructor", "metadata": {"type": "toString"}}
    lineage = {
        "query": query["_id"], "positive": documents[0]["_id"], "character": EVIL, "scenario": EVIL, "original": EVIL,
        "rewrites": [EVIL + "more", EVIL + SURROGATE], "negatives": [documents[1]["_id"]], "mined": [],
    }  # fmt: skip
    info = {"name": EVIL[:80], "task": EVIL, "language": EVIL, "domain": EVIL}
    (folder / "manifest.json").write_text(json.dumps(info))
    (folder / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents))
    (folder / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (query, other)))
    (folder / "private" / "lineage.jsonl").write_text(json.dumps(lineage) + "\n")
    labels = [(query["_id"], one["_id"], 1 - place) for place, one in enumerate(documents[:2])]
    rows = [{"query-id": a, "corpus-id": b, "score": c} for a, b, c in [*labels, ("__proto__", documents[2]["_id"], 1)]]
    (folder / "qrels" / "test.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return folder


def test_no_byte_of_a_text_stands_in_a_page(evil: Path, tmp_path: Path) -> None:
    """Texts are in base64; only the title is in the HTML, escaped and on one line."""
    for page in (make_report([evil], tmp_path / "r"), make_report([evil], tmp_path / "r.html", single_file=True)):
        text = page.read_text("utf-8")
        assert "hurt = " not in text.partition("<title>")[2].partition("</title>")[2].replace("window.hurt = ", "", 3)
        assert "<script>" not in text and "onerror='" not in text and "\x1b" not in text and "\u2028" not in text
        assert text.count("</script>") == text.count("<script ")
    data = read_report(tmp_path / "r" / "index.html")
    life = next(iter(lives(data).values()))
    assert life["text"] == EVIL + SURROGATE.replace("\ud83d", "\ufffd")  # U+FFFD, as UTF-8 has no half of a pair
    assert life["rewrites"][0]["text"] == EVIL + "more"


def test_the_pages_own_files_can_stand_in_one_html_file() -> None:
    for path in web_files():
        text = path.read_text("utf-8")
        assert "</script" not in text and "</style" not in text and "<!--" not in text, path
        for banned in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert banned not in text, (path, banned)
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text, path


def test_the_policy_allows_only_what_has_the_nonce() -> None:
    page = index_page('"><script>', "abc", {"d0/x": chunk({"a": "</script>"})})
    policy = page.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith("default-src 'none'; script-src 'nonce-abc'; style-src 'nonce-abc';")
    assert "unsafe" not in policy and "base-uri 'none'" in policy and "form-action 'none'" in policy
    assert '"><script>' not in page


def test_in_a_browser(evil: Path, tmp_path: Path, browse: Any) -> None:
    with browse.aside():
        systems = [SystemSettings(name=kind, kind=kind) for kind in ("bm25", "query-likelihood")]
        evaluate(evil, systems, tmp_path / "results", EvaluationOptions("test"))
        pages = [
            make_report([evil, tmp_path / "results"], tmp_path / "r"),
            make_report([evil, tmp_path / "results"], tmp_path / "r.html", single_file=True),
        ]
    for path in pages:
        page = browse(path)
        page.get_by_role("link", name="Queries", exact=True).click()
        page.locator("table.virtual").get_by_role("link", name="<script>window.hurt = 1").click()
        heading = page.locator("header.query h1")
        assert heading.inner_text().startswith("<script>window.hurt = 1</script><img src=http")
        assert "␛[31mred" in heading.inner_text() and "\u202e" not in heading.inner_text()
        assert page.locator("article.doc").count() == 2 and page.locator("ol.made ins").count() > 0
        for summary in page.locator("summary").all():
            summary.click()
        page.goto(page.url.partition("#")[0] + "#/d0/query/__proto__")
        page.get_by_role("heading", name="constructor").wait_for()
        assert page.evaluate("window.hurt") is None and page.locator("main img").count() == 0
        for route in ("/", "/d0/systems", "/d0/system/bm25", "/d0/compare/bm25/query-likelihood"):
            page.goto(f"{page.url.partition('#')[0]}#{route}")
            page.wait_for_function(
                "place => airgen.at === place && !document.querySelector('main[aria-busy]')", arg=f"#{route}"
            )
            assert page.inner_text("main h1") != "This page cannot be shown"
            assert page.evaluate("window.hurt") is None and page.locator("main img[onerror]").count() == 0
        page.locator("main td.main a").first.click()
        page.wait_for_selector(".beside")
        assert "<img src=" in page.inner_text(".beside")
