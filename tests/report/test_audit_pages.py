"""The audit in the pages of a report: of a file, and of `airgen report --live`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from job_maker import WORDS

from airgen.audit.answers import read_answers
from airgen.audit.sample import load_sample
from airgen.job import RunResult
from airgen.report.find_sources import find_sources
from airgen.report.live import View
from airgen.report.report import audit_folder, audit_part, make_report
from airgen.report.server import serving

Run = Callable[..., RunResult]


def test_answers_from_pages_are_scored(done: Run, folder: Path, tmp_path: Path, browse: Any) -> None:
    job, runs = folder / "job.yaml", folder / "runs"
    with browse.aside():
        done("runs", WORDS)
        index = make_report([job], tmp_path / "first", runs=runs)
    page = browse(Path(f"{index}"))
    page.get_by_role("link", name="Audit").click()
    page.get_by_text(f"airgen audit sample {job} 100").wait_for()  # nothing was drawn

    call("audit", "sample", job, 20, "--runs", runs)
    sample = load_sample(runs / "job" / "audit" / "sample.json")
    index = make_report([job], tmp_path / "second", runs=runs)
    data = (tmp_path / "second" / "data" / "d0" / "audit.js").read_text()
    assert len(data) > 1000

    # From a file: by keyboard, kept over a reload, saved as a download.
    page = browse(f"{index.as_uri()}#/d0/audit")
    page.get_by_text("1 of 20", exact=True).wait_for()
    page.keyboard.press("3")
    page.get_by_text("2 of 20", exact=True).wait_for()
    page.keyboard.press("x")
    page.get_by_text("3 of 20", exact=True).wait_for()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.get_by_text("1 of 20", exact=True).wait_for()
    page.keyboard.press("0")  # changed his mind
    page.get_by_text("2 of 20 pairs of the sample are answered.").wait_for()
    page.goto(f"{index.as_uri()}#/d0/audit?n=9")
    page.reload()
    page.get_by_text("2 of 20 pairs of the sample are answered.").wait_for()
    # A button gives its level in words even if a phone shows only the key, and keeps the focus in the next pair.
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name=re.compile("^x cannot say")).focus()
    page.get_by_role("button", name="Next →").focus()
    page.keyboard.press("Enter")
    page.get_by_text("10 of 20", exact=True).wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Next →"
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save answers").click()
    saved.value.save_as(tmp_path / "answers.json")
    assert read_answers(tmp_path / "answers.json", sample.key, 20).answers == {1: 0, 2: None}

    # Under `airgen report --live` each answer is in the folder at once.
    answers = runs / "job" / "audit" / "audit-answers.json"
    (tmp_path / "view").mkdir()
    with serving(View([job], tmp_path / "view", runs)) as address:
        browse.open_to(address)
        page = browse(address)
        page.wait_for_url("**/#/live")
        page.get_by_role("link", name="Audit").click()
        page.get_by_text("1 of 20", exact=True).wait_for()
        page.keyboard.press("2")
        page.get_by_text("2 of 20", exact=True).wait_for()
        assert json.loads(answers.read_text())["answers"] == {"1": 2}
        # A query's documents without their labels: an answer to a pair of the sample counts.
        others = [item for item in sample.items if item.query != sample.items[0].query]
        blind, shown = others[0], next(item for item in others if item.query != others[0].query)
        assert blind.query != shown.query
        page.goto(f"{page.url.split('#')[0]}#/d0/audit/{blind.query}")
        page.locator("h1.foreign").wait_for()
        article = page.locator(f"article[data-document='{blind.document}']")
        assert not page.get_by_text("Judged").count() and not page.locator("blockquote").count()
        article.focus()
        page.keyboard.press("1")
        article.get_by_role("button", name="1", exact=False).and_(page.locator("[aria-pressed=true]")).wait_for()
        # On the page that shows the labels it is kept apart, and so it is from then on.
        page.goto(f"{page.url.split('#')[0]}#/d0/query/{shown.query}")
        article = page.locator(f"article[data-document='{shown.document}']")
        article.locator(".answer").wait_for(state="attached")
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        article.focus()
        page.keyboard.press("3")
        article.get_by_text("Not counted: you have seen the label.").wait_for()
    number = {(one.query, one.document): place for place, one in enumerate(sample.items, 1)}
    value = json.loads(answers.read_text())
    assert value["answers"] == {"1": 2, str(number[blind.query, blind.document]): 1}
    (other,) = value["others"]
    assert other == {"query": shown.query, "document": shown.document, "level": 3, "seen": True, "why": ""}
    said = call("audit", "score", job, answers, "--runs", runs)
    assert (
        "not in the estimates: 1 answers to pairs that people chose themselves or whose label they had seen; " in said
    )
    assert f"seen; {int(shown.relevant)} confirm the label" in said
    found = json.loads(call("audit", "score", job, answers, "--runs", runs, "--json"))
    assert found["unanswered"] == 18 and found["overall"]["count"] == 2 and found["chosen_by_hand"]["pairs"] == 1


def test_a_sample_that_cannot_be_read_is_a_note(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = find_sources([dataset])[0][0]
    value = audit_part(source)
    assert value is not None and value["key"] is None and source.notes == []
    folder = audit_folder(source)
    folder.mkdir(parents=True)
    for text in ("{", "[]", '{"items": 3}', "[" * 100_000):
        (folder / "sample.json").write_text(text)
        assert audit_part(source) is None
        assert source.notes.pop().startswith("the audit is not shown: ") and source.notes == []
