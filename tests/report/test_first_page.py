"""What the first page says to somebody who has to choose, and that its commands run."""

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import call
from job_maker import CORPUS, PIPELINE, WORDS, make_corpus
from report_reader import read_report

from airgen.audit.sample import load_sample
from airgen.display.study import Table, columns
from airgen.evaluation import verdict
from airgen.evaluation.verdict import Advice, advise
from airgen.report.first_page import answers
from airgen.report.report import make_report

TODO = Table([("Check 40 labels", "no person has checked the labels yet", "airgen audit sample x 40")], columns(*"abc"))


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two systems on 80 queries, of which the second is better by `gain` on average."""

    def of(gain: float, **systems: float) -> Any:
        draw = np.random.default_rng(3)
        base = draw.random(80) * 0.5
        rows = {
            name: base + extra + draw.normal(0, 0.05, 80)
            for name, extra in {"current": 0.0, "hybrid": gain, **systems}.items()
        }
        monkeypatch.setattr(verdict, "as_matrix", lambda chosen, _: ([], np.array([rows[one.name] for one in chosen])))
        results: list[Any] = [
            SimpleNamespace(
                name=name, headline="nDCG@10", queries=80, score=float(row.mean()), made_labels=(), notes={}, means={}
            )
            for name, row in rows.items()
        ]
        return SimpleNamespace(results=results, headline="nDCG@10", advice=advise(results, more="label more"))

    return of


def said(rows: list[list[str]]) -> dict[str, str]:
    return {question: f"{answer} {why}".strip() for question, answer, why in rows}


def test_the_answer_names_the_better_system_before_any_statistic(board: Any) -> None:
    rows = answers(board(0.1), ("", False), TODO)
    assert rows[0] == ["Which is better?", "hybrid.", ""]
    words = said(rows)
    assert words["By how much?"].startswith("nDCG@10 +0.") and "for hybrid, 0." in words["By how much?"]
    assert "1 means that the relevant passages come first" in words["By how much?"]
    assert words["How sure is that?"].startswith("Sure enough to choose.")
    assert "80 queries would differ as much by chance less than once in 1,000 times" in words["How sure is that?"]
    assert words["What to do?"] == "Check 40 labels. No person has checked the labels yet."
    agreed = "the judge agrees with 46 of 50 of your labels: 92%"
    assert said(answers(board(0.1), ("", False), TODO, agreed))["How sure is that?"].endswith(f". T{agreed[1:]}.")


def test_the_answer_says_if_nothing_can_be_said(board: Any) -> None:
    words = said(answers(board(0.001), ("", False), TODO))
    assert words["Which is better?"].startswith("It is unclear whether ")
    assert words["How sure is that?"].startswith("Not sure enough to choose.")
    bad = ("people confirm 20 of 41 labels, so 21% to 59% of all are right: correct the labels", True)
    words = said(answers(board(0.1), bad, TODO))
    assert words["Which is better?"] == "hybrid." and "Not sure enough to choose" in words["How sure is that?"]
    assert "people confirm 20 of 41 labels" in words["How sure is that?"]
    three = said(answers(board(0.1, other=0.05), ("", False), None))
    assert three["Which is the best?"] == "hybrid. The second is other." and three["What to do?"] == "Use hybrid."
    alone = board(0.1)
    alone.advice = Advice("hybrid is the only one of 2 systems that can be chosen by these 80 queries")
    first, todo = answers(alone, ("", False), TODO)
    assert first[1:] == ["These scores cannot tell.", f"{alone.advice.sentence}."] and todo[1] == "Check 40 labels."
    assert answers(None, ("", False), None) == []


# -- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job, whose folder of jobs is not the usual one and has a blank in its name."""
    folder = tmp_path_factory.mktemp("commands")
    make_corpus(folder / "small.jsonl", 24)
    (folder / "small.yaml").write_text(CORPUS, encoding="utf-8")
    systems = "systems: [{name: flat, kind: bm25, k1: 0.2}, {name: ql, kind: query-likelihood}]\n"
    (folder / "systems.yaml").write_text(systems, encoding="utf-8")
    text = PIPELINE + "evaluate: {systems: systems.yaml}\n"
    for old, new in WORDS.items():
        text = text.replace(old, new)
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    call("run", folder / "job.yaml", "--runs", folder / "my jobs")
    return folder


def commands_in(value: Any) -> set[str]:
    """Every command in a part of a report."""
    if isinstance(value, str):
        return {value} if re.match(r"airgen [a-z]", value) else set()
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(commands_in, parts))


def pasted(command: str) -> str:
    return call(*shlex.split(command)[1:])


def answered(folder: Path, right: bool) -> Path:
    """People's answers to the sample, as the page saves them."""
    sample = load_sample(folder / "sample.json")
    given = {str(at): 3 * (item.relevant == right) for at, item in enumerate(sample.items, 1)}
    path = Path("audit-answers.json")
    path.write_text(json.dumps({"key": sample.key, "answers": given}), encoding="utf-8")
    return path


def test_every_command_of_a_page_runs_when_it_is_pasted(
    home: Path, monkeypatch: pytest.MonkeyPatch, browse: Any
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setattr(verdict, "ENOUGH", 2)
    monkeypatch.setattr(verdict, "FEWEST", 1)
    job, ran = home / "my jobs" / "job", set[str]()

    def run_all() -> set[str]:
        page = make_report([job])
        found = commands_in(read_report(page))
        for place in ("#/", "#/d0/systems", "#/d0/audit"):
            seen = browse(f"{page.resolve().as_uri()}{place}")
            seen.wait_for_selector("h1")
            found |= {text for text in seen.locator("code, pre").all_inner_texts() if text.startswith("airgen ")}
        new = {command for command in found if "audit score" not in command}
        for command in sorted(new - ran):
            pasted(command)
        ran.update(new)
        return found

    first = run_all()
    assert any(command.startswith("airgen audit sample") and "'" in command for command in first)
    answered(job / "audit", right=False)  # people disagree with most labels
    second = run_all()
    for command in sorted(second):
        if "audit score" in command and command.endswith(" audit-answers.json"):
            pasted(command)
    third = run_all()
    apply = next(command for command in third if command.endswith("--apply"))
    assert "now relevant" in pasted(apply)
    call("evaluate", job / "dataset", "--systems", "systems.yaml", "--out", "results")
    dataset = commands_in(read_report(make_report([job / "dataset", Path("results")], home / "page")))
    for command in sorted(dataset - ran):
        if "audit score" not in command:
            pasted(command)
    assert len(ran | dataset) >= 6
