"""`export.ids: original` with file names as people have them: blanks, percent signs, bytes that are no UTF-8."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_maker import CORPUS, PIPELINE, make_corpus
from rich.console import Console

from airgen.corpus.readers.reader import Place
from airgen.corpus.readers.records import JsonLinesReader
from airgen.dataset.beir import BeirDataset
from airgen.dataset.content import check_id, fitting_id
from airgen.dataset.verify import verify
from airgen.evaluation.dataset_split import IdLookup
from airgen.pipeline.summary import run_pipeline
from airgen.records import Document


@given(st.text(st.characters(), min_size=1, max_size=30))
def test_any_id_becomes_one_that_a_file_can_carry(own: str) -> None:
    fitting = fitting_id(own)
    check_id(fitting, "document")
    assert fitting_id(fitting) == fitting


@pytest.mark.parametrize(
    ("own", "fitting"),
    [
        ("docs/guide/index", "docs/guide/index"),
        ("docs/100%/a%20b", "docs/100%/a%20b"),  # a URL stays as it is
        ("docs/my file", "docs/my%20file"),
        ("docs/my file%20", "docs/my%20file%2520"),
        ("caf\udce9", "caf%ED%B3%A9"),
        ("Café", "Café"),
    ],
)
def test_what_an_id_becomes(own: str, fitting: str) -> None:
    assert fitting_id(own) == fitting


def test_a_job_with_such_names_is_exported_and_found_by_its_own_ids(tmp_path: Path) -> None:
    make_corpus(tmp_path / "small.jsonl", 20)
    rows = JsonLinesReader(
        JsonLinesReader.Settings.model_validate({"path": "small.jsonl", "fields": {"id": "id"}}), Place(tmp_path)
    ).read()
    (tmp_path / "docs").mkdir()
    for number, row in enumerate(row for row in rows if isinstance(row, Document)):
        name = os.fsencode(f"page {number}%.txt") if number % 2 else b"caf\xe9 %d.txt" % number
        (tmp_path / "docs" / os.fsdecode(name)).write_text(row.text)
    (tmp_path / "small.yaml").write_text(CORPUS.replace("kind: jsonl, path: small.jsonl", "kind: files, path: docs"))
    control = "control:\n  recall: {pools_only: true, top_k: 20}\n  pools: [bm25]\n  rerankers: [bm25]\n"
    job = PIPELINE.replace("target: 12", "target: 3").partition("control:")[0]
    (tmp_path / "job.yaml").write_text(f"{job}{control}export: {{ids: original}}\n")
    result = run_pipeline(tmp_path / "job.yaml", runs=tmp_path / "runs", evaluate=False, console=Console(quiet=True))
    assert result.manifest is not None
    home = tmp_path / "runs" / "job" / "dataset"
    assert [problem for problem in verify(home) if problem.severity == "error"] == []
    dataset = BeirDataset.open(home)
    published = [passage.id for passage in dataset.passages()]
    ids = IdLookup(published, dataset)
    assert {"docs/page%201%25", "docs/caf\ufffd%202"} <= set(published)  # a corpus holds Unicode text alone
    assert ids.find("docs/page 1%") == "docs/page%201%25" and ids.find("docs/caf\ufffd 2") == "docs/caf\ufffd%202"
