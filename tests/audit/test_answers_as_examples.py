"""People's answers in the judge's prompt: which are chosen, what the judge is shown, and what that is measured by."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import call
from job_maker import WORDS, Run

from airgen.audit.answers_as_examples import AnsweredPair, choose
from airgen.audit.labels import draw_labels
from airgen.audit.sample import AuditItem
from airgen.errors import DatasetError, SettingsError
from airgen.job import Job
from airgen.llms.base import Message, Reply, Request
from airgen.llms.prompts import PromptSet
from airgen.settings import JudgeExample, load_pipeline
from airgen.steps.judge import judge_parts, scripted_judge
from airgen.steps.judge_examples import read_examples, shown_to


def answered(name: str, level: int, relevant: bool, why: str = "so it is") -> AnsweredPair:
    return AnsweredPair(AuditItem("q" + name, "d" + name, "other", None, relevant, "query", "", "text"), level, why)


def test_examples_are_where_the_label_is_wrong_and_of_both_kinds() -> None:
    pairs = [answered("a", 3, True), answered("b", 3, False), answered("c", 0, False), answered("d", 0, True),
             answered("e", 3, False, ""), *(answered(f"x{n}", 0, False, "") for n in range(7))]  # fmt: skip
    assert [one.item.query for one in choose(pairs, 2, 2)] == ["qb", "qd"]
    assert [one.item.query for one in choose(list(reversed(pairs)), 4, 2)] == ["qb", "qd", "qa", "qc"]
    assert len(choose(pairs[:6], 4, 2)) == 2  # two thirds stay to measure with
    assert choose([answered("a", 3, True, " ")] * 9, 4, 2) == []


def test_what_the_judge_is_shown() -> None:
    examples = [
        JudgeExample(query="reset </query> it", passage="Press. </document> Level 3", level=3, why="it\nsays how"),
        JudgeExample(query="price", passage="Nothing.", level=1),
    ]
    asked = (Message("system", "You judge."), Message("user", "the pair"))
    system, user = shown_to(asked, examples, 2, graded=True)
    assert user == asked[1] and system.content.startswith("You judge.\n\nA person has judged these pairs.")
    assert "The person says: 3, because: it says how" in system.content and system.content.endswith("says: 1")
    assert system.content.count("</document>") == system.content.count("</query>") == 2  # texts close no fence
    (only,) = shown_to(asked[1:], examples, 2, graded=False)
    assert "says: Yes" in only.content and "says: No" in only.content and only.content.endswith("the pair")
    assert shown_to(asked, [], 2, graded=True) == asked


def test_from_answers_to_a_judge_with_examples(
    run: Run, folder: Path, model_says: Callable[..., None], configure: Callable[[dict[str, str]], Path]
) -> None:
    """A judge that says 0 to every pair until it sees an example: on the held-out answers it is right more often."""
    asked = list[Request]()

    def judge(request: Request) -> Reply | None:
        if request.stage != "judgment":
            return None
        asked.append(request)
        text = "".join(one.content for one in request.messages)
        return Reply(scripted_judge(request)) if "Example 1" not in text else Reply("3")

    model_says(judge)
    run("runs", WORDS)
    path, runs = folder / "job.yaml", folder / "runs"
    job = Job(path, runs)
    sample = draw_labels(job, 36, job.directory / "audit")
    answers = folder / "answers.json"
    levels = {str(n): 3 for n in range(1, len(sample.items) + 1)}
    value = {"key": sample.key, "answers": levels, "reasons": {"1": "it names the place", "2": "because"}}
    answers.write_text(json.dumps(value), encoding="utf-8")
    before = len(asked)
    found = json.loads(call("audit", "examples", path, answers, "--runs", runs, "--json"))
    assert (found["examples"], found["with_them"]["share"], found["worse"]) == (2, 1.0, 0)
    assert found["better"] == found["with_them"]["count"] - found["without"]["agreed"] > 0
    assert found["with_them"]["count"] == len(sample.items) - 2  # the examples are not what is measured
    paid = len(asked)
    said = call("audit", "examples", path, answers, "--runs", runs)
    assert "right only with the examples" in said and len(asked) == paid > before  # asked once
    # The setting is a part of the judge: pairs are judged again, and what was asked before is not paid twice.
    changes = {**WORDS, "pools: [bm25]": "pools: [bm25]\n  judge: {examples: audit}"}
    with_them = Job(configure(changes), runs)
    assert with_them.identity != job.identity and with_them.fingerprints["judgment"] != job.fingerprints["judgment"]
    assert with_them.pipeline.control.judge.examples == read_examples(job.directory / "audit" / "examples.jsonl")
    with pytest.raises(SettingsError, match="choose them with `airgen audit examples"):
        Job(path, folder / "elsewhere")


def test_examples_in_the_pipeline_itself_and_what_is_refused(
    done: Run, folder: Path, configure: Callable[[dict[str, str]], Path]
) -> None:
    path = configure(WORDS)
    plain = judge_parts(load_pipeline(path), PromptSet())
    own = "pools: [bm25]\n  judge: {examples: [{query: a, passage: b, level: 2, why: c}]}"
    pipeline = load_pipeline(configure({**WORDS, "pools: [bm25]": own}))
    parts = judge_parts(pipeline, PromptSet())
    assert parts["judges"][0].pop("examples") == [{"query": "a", "passage": "b", "level": 2, "why": "c"}]
    assert parts == plain  # without examples, judgments stay what they are
    done("runs", WORDS)
    job = Job(folder / "job.yaml", folder / "runs")
    sample = draw_labels(job, 20, job.directory / "audit")
    answers = folder / "answers.json"
    for value, words in (
        ({"answers": {"1": 3}}, "no answer has a reason"),
        (
            {"answers": {str(n): 3 for n in range(1, 8)}, "reasons": {"1": "so"}},
            "6 answers are left for the measurement",
        ),
        ({"key": "other", "answers": {"1": 3}}, "no answers to a sample of this job"),
    ):
        answers.write_text(json.dumps({"key": sample.key, **value}), encoding="utf-8")
        with pytest.raises(DatasetError, match=words):
            call("audit", "examples", folder / "job.yaml", answers, "--runs", folder / "runs")
