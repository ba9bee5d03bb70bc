"""Pieces that readers leave out of documents have a step of their own in the funnel."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from job_maker import CORPUS, LEXICAL
from rich.console import Console

from airgen.dataset.content import FunnelStep
from airgen.display.study import Study
from airgen.job import Job
from airgen.job.funnel import funnel_table
from airgen.job.run_job import run_job
from airgen.steps.progress import Display

JOB = LEXICAL


def test_pieces_are_counted_beside_the_documents(configure: Callable[..., Path], folder: Path) -> None:
    pytest.importorskip("selectolax")
    rows = [json.loads(line) for line in (folder / "small.jsonl").read_text("utf-8").splitlines()]
    rows[3]["text"] = ""
    pages = [{**row, "text": row["text"] and f"<p>{row['text']}</p><nav>Home</nav><svg>A</svg>"} for row in rows]
    (folder / "small.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pages), encoding="utf-8")
    html = CORPUS.replace("path: small.jsonl", "path: small.jsonl, fields: {id: id, text: text, markup: html}")
    (folder / "small.yaml").write_text(html, encoding="utf-8")
    job, screen = Job(configure({}), folder / "pieces"), StringIO()
    result = run_job(job, Display(job.directory / "status.json", Console(file=screen, width=200)))
    assert "59 passages, 1 dropped" in screen.getvalue()
    assert result.manifest is not None
    corpus, pieces, *_ = result.manifest.funnel
    assert (corpus.stage, corpus.entered, corpus.left) == ("corpus", 60, 59)
    assert dict(corpus.reasons) == {"reader: missing text": 1}
    assert (pieces.stage, pieces.entered, pieces.left) == ("pieces of documents left out", 118, 0)
    assert dict(pieces.reasons) == {"navigation": 59, "words of a drawing": 59}
    unsorted = FunnelStep("labels", 9, 2, {"a": 1, "b": 4, "c": 2})
    assert "4 b; 2 c; 1 a" in Study("", [funnel_table([unsorted])]).text()  # as read from a manifest
    assert "\npieces of documents left out " in result.study().text()
