"""A stage and a judge that no module of airgen knows, named in a pipeline's YAML."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import invoke
from job_maker import LEXICAL, Run

from airgen.dataset.verify import verify
from airgen.errors import SettingsError
from airgen.job import Job
from airgen.job.show import find_lineage, life, life_study

JOB = LEXICAL
# What a user writes: a record, a prompt, a stage. The stage drops queries whose subject is too common.
MODULE = '''
from dataclasses import dataclass
import json

from airgen.steps.ask import ask
from airgen.steps.judge import Verdict
from airgen.steps.step import Cost, Problem, Step, make_row
from airgen.storage.records import Query, Row


@dataclass(frozen=True, slots=True)
class Subject(Row):
    """What a query is about, in one word."""

    word: str


async def work(lineage, tools):
    query = lineage.one(Query)
    check = lambda value: Problem("no word", value["subject"]) if " " in value["subject"] else None
    found = await ask(tools, STAGE, {"query": query.text}, check)
    if isinstance(found, Problem):
        return found
    word = found[0]["subject"]
    if len(word) < 8:
        return Problem("subject too common", word)
    return [make_row(Subject, "subject", query.key, tools, 0, word)]


def longest_word(request):
    words = request.messages[-1].content.replace("<", " ").replace(">", " ").split()
    return json.dumps({"subject": max(words, key=len)})


STAGE = Step(
    "subject", (Query,), Subject, 1, work=work, after="query",
    prompt=lambda pipeline: "subject", cost=Cost((5, 1.0), (5, 1.0), lambda expected: expected.samples),
    scripted=longest_word, label="queries with a rare subject",
    show=lambda lineage: ({"subject": lineage.one(Subject).word}, [("subject", lineage.one(Subject).word)])
    if lineage.every(Subject) else ({}, []),
)


class Generous:
    """A judge that finds everything relevant."""

    PROMPT, FORM, WISH, ABOUT = "judge", "level", "answer with a number", "a generous judge"
    GRADED, PARAMS, TOKENS, QUERY_FIRST = True, {"max_tokens": 8}, 1, True

    def read(self, answer, prompt, threshold):
        return Verdict(3)
'''
PROMPT = """---
version: 1
about: The subject of a query
inputs: [query]
output: {type: object, required: [subject], properties: {subject: {type: string}}}
---
=== user ===
{{ query | fenced("query") }}
"""
STAGES = {"control:": 'generation: {stages: ["outside_stage:STAGE"]}\ncontrol:'}


@pytest.fixture
def outside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "outside_stage.py").write_text(MODULE, encoding="utf-8")
    (folder / "prompts").mkdir()
    (folder / "prompts" / "subject.j2").write_text(PROMPT, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_a_stage_from_outside_runs_resumes_drops_and_is_shown(run: Run, done: Run, outside: Path) -> None:
    plain = done("plain")
    result = run("runs", STAGES)
    assert result.manifest is not None and verify(result.directory / "dataset") == []
    steps = {step.stage: step for step in result.manifest.funnel}
    step = steps["queries with a rare subject"]
    assert step.entered - step.left == step.reasons["subject too common"] > 0
    assert [one.stage for one in result.manifest.funnel].index(step.stage) == 4  # after the query
    assert any(use.role == "subject" for use in result.manifest.provenance)
    assert plain.manifest is not None and plain.manifest.digest != result.manifest.digest
    job = Job(outside / "job.yaml", outside / "runs")
    with job.open_store(read_only=True) as store:
        # Samples are drawn in waves, so a few queries are accepted beyond the target; the funnel leaves them out.
        assert result.usage["subject"]["calls"] == step.entered + job.accepted(store).surplus
        accepted = job.accepted(store)
        one = accepted.lineages[0]
        value = life(store, job, *find_lineage(accepted, job.ids.query(one), job.ids))
    assert len(value["subject"]) >= 8 and f"subject    {value['subject']}" in life_study(value).text()
    assert run("runs", STAGES).already_done
    # Adding the stage to a finished job asks only what it drops queries for: the subjects, and more samples.
    grown = run("plain", STAGES)
    assert grown.manifest is not None and grown.manifest.digest == result.manifest.digest


def test_its_cost_is_estimated_and_its_prompt_can_be_tried(configure: Callable[..., Path], outside: Path) -> None:
    result = invoke("check", configure({**STAGES, "target: 4": "target: 12"}), "--runs", outside / "new", "--json")
    stages = {stage["stage"]: stage for stage in json.loads(result.stdout)["stages"]}
    assert stages["subject"]["calls"] == stages["character"]["calls"] == 16  # 12 queries at .75
    assert stages["subject"]["completion_tokens"] == 16 * 5


def test_a_judge_from_outside_decides(run: Run, outside: Path) -> None:
    judge = {"control:": 'control:\n  judge: {kind: "outside_stage:Generous"}'}
    result = run("runs", judge)
    assert result.manifest is not None
    assert any("a generous judge" in use.role for use in result.manifest.provenance)
    steps = {step.stage: step for step in result.manifest.funnel}
    assert not any("does not answer" in reason for reason in steps["judgment of the own document"].reasons)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('generation: {stages: ["outside_stage:Subject"]}', "it is not a Step"),
        ('generation: {stages: ["outside_stage:STAGE", "outside_stage:STAGE"]}', "another stage is called 'subject'"),
        ('generation: {stages: ["no_such_module:STAGE"]}', "cannot be imported"),
        ('generation: {stages: ["outside_stage"]}', "stages"),
        ('control: {judge: {kind: "level"}}', r"unknown judge 'level' \(did you mean 'levels'\?\)"),
        (
            "generation: {variants: {hard_negatives: small/hard_negative}}",
            "no stage asks a prompt 'hard_negatives' .did you mean 'hard_negative'",
        ),
    ],
)
def test_what_is_not_a_stage_or_a_judge_is_refused(outside: Path, text: str, words: str) -> None:
    lines = (outside / "job.yaml").read_text(encoding="utf-8").split("control:")[0]
    (outside / "job.yaml").write_text(f"{lines}\n{text}\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=words):
        Job(outside / "job.yaml", outside / "runs")
