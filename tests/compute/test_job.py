"""A whole job on workers: the dataset, the rows of control and the vectors have the bytes of one process."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from job_maker import CORPUS, PIPELINE, make_corpus
from rich.console import Console

from airgen import models
from airgen.pipeline import Job
from airgen.pipeline.run import run_pipeline
from airgen.pipeline.show import read_report, render_report
from airgen.records import Prelabel, Recall

pytestmark = pytest.mark.models


def test_a_job_has_the_bytes_of_one_process(tmp_path: Path) -> None:
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen fetch tests")
    make_corpus(tmp_path / "small.jsonl", 40)
    (tmp_path / "small.yaml").write_text(CORPUS)
    text = PIPELINE.replace("[bm25, dense,", "[bm25, maxsim,").replace("target: 12", "target: 4")
    path = tmp_path / "job.yaml"
    path.write_text(text + "compute: {workers: 2}\n")

    def found(name: str, compute: str | None) -> tuple[dict[str, bytes], dict[str, Any], str]:
        runs = tmp_path / name
        quiet = Console(quiet=True)
        run_pipeline(path, runs=runs, evaluate=False, console=quiet, compute=compute, until="corpus")
        if name == "here":  # what is drawn may depend on the secret: both jobs have one
            shutil.copy(tmp_path / "there" / "job" / "secret.key", runs / "job" / "secret.key")
        run_pipeline(path, runs=runs, evaluate=False, console=quiet, compute=compute)
        job = Job(path, runs)
        files = {
            place.relative_to(job.directory).as_posix(): place.read_bytes()
            for folder in ("dataset", "embeddings")
            for place in sorted((job.directory / folder).rglob("*"))
            if place.is_file() and place.name not in ("manifest.json", "lock")
        }
        with job.open_store(read_only=True) as store:
            rows = {kind.__name__: store.rows(kind, order="key") for kind in (Recall, Prelabel)}
        assert job.finished()
        digests = {name: hashlib.sha256(data).digest() for name, data in files.items()}
        return digests, rows, render_report(read_report(job))

    there, here = found("there", None), found("here", "local")
    assert there[1] == here[1] and there[1]["Prelabel"]
    assert there[0] == here[0] and any(name.startswith("embeddings") for name in there[0])
    assert "compute local: 2 workers, " in there[2] and "compute local" not in here[2]
