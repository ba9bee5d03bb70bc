"""The plan of a job: its arrows, in the paper's order."""

import re
from typing import Any

import pytest

from airgen.generation.flow import Flow
from airgen.job import plan
from airgen.settings import Pipeline
from airgen.steps.step import Step, WholeStep
from airgen.storage.records import Passage, Sample, table_of

GENERATES: dict[str, Any] = {"target": 1, "generation": {"negatives": "both", "answers": True}}
LABELS: dict[str, Any] = {"queries": {"file": "log.csv", "labels": [{"file": "labels.tsv"}]}}


def steps(**values: Any) -> tuple[Step | WholeStep, ...]:
    pipeline = Pipeline.model_validate(
        {"name": "p", "task": "qa", "corpus": "c", "llm": {"backend": "scripted"}, **values}
    )
    return plan.steps_of(pipeline, Flow.of(pipeline))


@pytest.mark.parametrize("values", [GENERATES, {**GENERATES, "generation": {"method": "needs"}}])
def test_each_arrow_starts_from_rows_of_an_earlier_one(values: dict[str, Any]) -> None:
    made: set[type] = {Passage, Sample}  # samples are drawn in waves, without a step
    for step in steps(**values):
        assert not step.reads or made & set(step.reads), step.name
        made.add(step.writes)


def test_the_listed_arrows_are_those_of_the_steps() -> None:
    listed = re.findall(r"^    \w+ +-> (\w+)", plan.__doc__ or "", re.MULTILINE)
    writes = [table_of(step.writes) for step in steps(**GENERATES) if step.name != "reference_answer"]
    alike = [name for place, name in enumerate(writes) if writes[place - 1] != name]  # one pre-label per re-ranker
    assert listed == [*alike[:1], "sample", *alike[1:]]


def test_labels_alone_need_no_step_that_searches_or_scores() -> None:
    assert [step.name for step in steps(**LABELS, control={"judge": {"kind": "none"}})] == [
        "corpus", "own_query", "judgment", "decision",
    ]  # fmt: skip
