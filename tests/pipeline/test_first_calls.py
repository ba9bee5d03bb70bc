"""A model that takes no call, or gives nothing usable, stops the run within a few calls, with its server's words."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from job_maker import PIPELINE
from rich.console import Console

from airgen.errors import LlmError
from airgen.llms.probe import ModelProfile, save_profile
from airgen.pipeline import Job, RunResult
from airgen.pipeline.generate import accepted_so_far
from airgen.pipeline.show import life, read_report, render_life, render_report
from airgen.pipeline.summary import run_pipeline

Run = Callable[..., RunResult]
WORDS = "Unsupported value: 'thinking' is not supported"


def write(folder: Path, llm: str, judge: str = "") -> Path:
    text = PIPELINE.replace("{backend: scripted, concurrency: 8}", llm).replace("target: 12", "target: 40")
    (folder / "job.yaml").write_text(text + (f"  judge: {judge}\n" if judge else ""), encoding="utf-8")
    return folder / "job.yaml"


def stopped(path: Path, words: str) -> tuple[Job, str]:
    """The job after a run that ended in an error of these words, and what it printed. The models answered the probe."""
    job = Job(path, path.parent / "runs")
    job.directory.mkdir(parents=True)
    for llm in job.pipeline.llms.values():
        save_profile(job.directory, llm, ModelProfile())
    printed = Console(file=StringIO(), width=200)
    with pytest.raises(LlmError, match=words):
        run_pipeline(path, runs=path.parent / "runs", console=printed, evaluate=False)
    return job, printed.file.getvalue()  # type: ignore[attr-defined]


def test_a_model_that_takes_no_call(folder: Path, loopback: Callable[..., Any]) -> None:
    server = loopback(always="bad_parameter")
    path = write(folder, f"{{model: m, base_url: '{server.base_url}', concurrency: 3}}")
    stopped(path, rf"character: m at endpoint 'default' refused the first 4 calls \(http_400: {WORDS}")
    assert server.stats()["requests"] <= 4 + 3


def test_a_judge_that_takes_no_call_leaves_a_funnel_and_words_in_status_and_show(
    folder: Path, loopback: Callable[..., Any]
) -> None:
    good, bad = loopback(scripted=True), loopback(always="bad_parameter")
    judge = f"{{llm: {{model: j, base_url: '{bad.base_url}', concurrency: 3}}}}"
    path = write(folder, f"{{model: m, base_url: '{good.base_url}', concurrency: 3}}", judge)
    job, printed = stopped(path, rf"judgment: j at endpoint 'default' refused .*{WORDS}")
    assert bad.stats()["requests"] <= 4 + 3
    assert "Funnel" in printed and "judgment of the own document" in printed and " llm: http_400" in printed
    status = render_report(read_report(job))
    assert f"x http_400: {WORDS}" in status and f"x llm: http_400: {WORDS}" in status
    assert "http_400: http_400" not in status and status.count("x http_400") == 1  # grouped
    with job.open_store(read_only=True) as store:
        (one, *_) = accepted_so_far(store, job.flow, job.fingerprints, job.pipeline).rejected
        assert f"llm: http_400: {WORDS}" in render_life(life(store, job, one.lineage, one.words))


@pytest.mark.parametrize("answer", [{"text": "hard to say"}, {"always": "bad_parameter"}])
def test_a_member_of_a_panel_that_gives_no_levels_is_not_outvoted(
    answer: dict[str, Any], folder: Path, loopback: Callable[..., Any]
) -> None:
    """The two others agree, so the panel's verdicts look well: before, nothing stopped, and a third of the votes was
    missing."""
    good, bad = loopback(scripted=True), loopback(**answer)
    member = "{{prompt: judge, llm: {{model: {0}, endpoint: {0}, base_url: '{1}', concurrency: 3}}}}"
    panel = ", ".join(member.format(name, server.base_url) for name, server in [("a", good), ("b", good), ("c", bad)])
    path = write(folder, f"{{model: m, base_url: '{good.base_url}', concurrency: 3}}", f"{{panel: [{panel}]}}")
    stopped(path, rf"judgment.* c.*({WORDS}|9 malformed.*hard to say)")
    assert bad.stats()["requests"] <= 2 * (9 + 3)


def test_some_refused_calls_among_others_stop_nothing(folder: Path, loopback: Callable[..., Any]) -> None:
    server = loopback(scripted=True, faults={"bad_parameter": 0.1}, fault_attempts=9)
    path = write(folder, f"{{model: m, base_url: '{server.base_url}', concurrency: 3}}")
    path.write_text(path.read_text().replace("target: 40", "target: 5"))
    result = run_pipeline(path, runs=folder / "runs", console=Console(quiet=True), evaluate=False)
    assert result.manifest is not None
