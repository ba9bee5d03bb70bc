"""`airgen show` on a real job: the list, one life, an id alone, and ids that are nobody's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airgen.cli import main
from airgen.pipeline import RunResult
from airgen.pipeline.show import find_job, find_place, render_life


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["show", *words])
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err


@pytest.mark.parametrize(("published", "shown"), [("doc-1", "keep  doc-1  Bees"), ("d7", "keep  d7  doc-1  Bees")])
def test_a_label_has_its_id_once_unless_it_is_published_under_another(published: str, shown: str) -> None:
    label = {"id": "doc-1", "published": published, "kind": "other", "title": "Bees", "votes": "2/3", "level": 3,
             "probability": None, "decision": "keep", "reason": ""}  # fmt: skip
    document = {"id": "doc-1", "title": "", "text": "Bees fly."}
    value = {"id": "q1", "outcome": "accepted", "document": document, "lines": [], "skips": {}, "labels": [label]}
    assert render_life(value).splitlines()[-1].endswith(shown)


def test_show(run: Callable[..., RunResult], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run()
    pipeline, runs = str(folder / "job.yaml"), ("--runs", str(folder / "runs"))
    code, listed, _ = shown(capsys, pipeline, "--queries", *runs)
    ids = [line.split()[0] for line in listed.splitlines()]
    assert code == 0 and len(ids) >= 12
    code, by_pipeline, _ = shown(capsys, pipeline, ids[0], *runs)
    assert code == 0
    for part in ("document", "character", "scenario", "query", "votes", "level"):
        assert part in by_pipeline
    assert shown(capsys, ids[0], *runs)[:2] == (0, by_pipeline)  # an id is enough where only one job has it
    for job in ("job", str(folder / "runs" / "job")):  # the job's name, and its directory
        assert shown(capsys, job, "--queries", *runs)[:2] == (0, listed)
        assert shown(capsys, job, ids[0], *runs)[:2] == (0, by_pipeline)
    code, _, said = shown(capsys, "nothing", ids[0], *runs)
    assert code == 2 and "nothing: no pipeline, and no job of that name under" in said
    life = json.loads(shown(capsys, ids[0], "--json", *runs)[1])
    assert life["id"] == ids[0] and life["outcome"] == "accepted"
    code, _, said = shown(capsys, "qnobody", *runs)
    assert code == 2 and "no job has a query 'qnobody'" in said and "(job)" in said
    code, _, said = shown(capsys, "q", *runs)  # every query begins so
    assert code == 2 and "queries begin with 'q'" in said


def test_a_job_lies_beside_its_pipeline_from_wherever_it_is_named(
    run: Callable[..., RunResult], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(until="corpus")
    work = folder / "runs" / "job"
    names: dict[Path, list[str | Path]] = {
        folder: ["job.yaml", "job", "runs/job"],
        folder.parent: [folder / "job.yaml", work],
    }
    for place, known in names.items():
        monkeypatch.chdir(place)
        for name in known:
            assert find_job(name).directory.resolve() == work.resolve()
    assert find_place("quickstart")[1] == Path("runs")  # a shipped one belongs to nobody's folder
    assert find_place(folder / "job.yaml", Path("other"))[1] == Path("other")
