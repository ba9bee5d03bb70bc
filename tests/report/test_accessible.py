"""Everybody can use the report: by axe-core's rules, by keyboard alone, on paper, and on a phone."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_rules import AXE, violations
from beir_folder import write_beir
from command_line import call

from airgen.job import RunResult
from airgen.report.report import make_report

Run = Callable[..., RunResult]

ARABIC = [{"_id": "d1", "title": "الجسور", "text": "تُقاس الجسور كل عام قبل موسم الأمطار."}]
ASKED = [{"_id": "q1", "text": "متى تُقاس الجسور؟", "metadata": {"split": "test"}}]
FOCUSED = "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent).trim()"
OUTLINE = "getComputedStyle(document.activeElement).outlineStyle"


def test_the_rules_are_the_ones_that_were_released() -> None:
    text = (AXE / "README.md").read_text()
    assert hashlib.sha256((AXE / "axe.min.js").read_bytes()).hexdigest() in text


@pytest.mark.nightly
def test_everybody_can_use_the_report(done: Run, folder: Path, browse: Any) -> None:
    job, runs = folder / "job.yaml", folder / "runs"
    (folder / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}, {name: ql, kind: query-likelihood}]\n")
    with browse.aside():
        result = done()
    call("audit", "sample", job, 10, "--runs", runs)
    call("evaluate", result.directory / "dataset", "--systems", folder / "systems.yaml", "--split", "test",
         "--out", result.directory / "evaluation")  # fmt: skip
    arabic = write_beir(folder / "ar", ARABIC, ASKED, {"test": [("q1", "d1", 1)]}, name="ar", task="qa", language="ar")
    index = make_report([job, arabic], folder / "report", runs=runs).resolve().as_uri()
    page = browse(f"{index}#/d0/queries")
    query = page.locator("td.main a").first.get_attribute("href")
    places = ["#/", "#/d0/queries", query, "#/d0/systems", "#/d0/compare/bm25/ql", "#/d0/audit",
              query.replace("/query/", "/audit/"), "#/d1/query/q1", "#/nothing"]  # fmt: skip
    for colours, width in (("light", 1440), ("dark", 390)):
        page = browse(f"{index}{places[0]}", color_scheme=colours, viewport={"width": width, "height": 844})
        for place in places:
            page.evaluate("place => { location.hash = place; }", place)
            page.wait_for_function(
                "place => airgen.at === place && !document.querySelector('main[aria-busy]')", arg=place
            )
            page.locator("main h1").wait_for()
            assert violations(page) == [], (place, colours, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (place, width)
            assert page.locator("main h1").count() == 1, place
    # The rules see what is wrong.
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    page.evaluate("document.querySelector('main h1').style.color = '#555'")
    assert [one.split(":")[0] for one in violations(page)] == ["button-name", "color-contrast"]
    # Texts have their own direction.
    page.goto(f"{index}#/d1/query/q1")
    heading = page.locator("main h1")
    heading.wait_for()
    assert heading.evaluate("one => [one.dir, getComputedStyle(one).direction]") == ["auto", "rtl"]
    by_keyboard(browse(index), query)
    on_paper(browse(index + query))


def by_keyboard(page: Any, query: str) -> None:
    """From the first page to a query, to its neighbour, and back; the focus is always to be seen."""
    page.locator("main h1").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Shift+Tab")
    for _ in range(20):
        assert page.evaluate(OUTLINE) != "none", page.evaluate(FOCUSED)
        if page.evaluate(FOCUSED) == "Queries":
            break
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.locator("td.main a").first.wait_for()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    for _ in range(40):
        page.keyboard.press("Tab")
        assert page.evaluate(OUTLINE) != "none", page.evaluate(FOCUSED)
        if page.evaluate("document.activeElement.closest('td.main') !== null"):
            break
    assert page.evaluate("document.activeElement.getAttribute('href')") == query
    page.keyboard.press("ArrowDown")
    second = page.evaluate("document.activeElement.getAttribute('href')")
    assert second != query
    page.keyboard.press("Enter")
    page.locator("header.query").wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1" and page.evaluate("location.hash") == second
    page.go_back()
    page.locator("td.main a").first.wait_for()


def on_paper(page: Any) -> None:
    """Black on white, without controls, and nothing folded away."""
    page.locator("header.query").wait_for()
    page.emulate_media(media="print", color_scheme="dark")
    colours = page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
    assert colours == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
    assert not page.locator("#top").is_visible() and not page.locator("button:not(th button):visible").count()
    assert len(page.pdf()) > 10_000
