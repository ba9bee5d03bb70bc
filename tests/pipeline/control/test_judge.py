"""Judges: kinds, panels, and the need behind a query."""

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import call
from hypothesis import given
from hypothesis import strategies as st
from job_maker import PIPELINE, Run
from pydantic import ValidationError

from airgen.llms.base import Reply, Request
from airgen.pipeline import Job
from airgen.pipeline.control.judge import Verdict, judge_name, judge_pair, judge_parts, vote, with_need
from airgen.pipeline.estimate import estimate
from airgen.pipeline.stage import Problem, Tools
from airgen.prompts import PromptSet
from airgen.quality.judge.calibrate import default_pipeline
from airgen.records import Answer
from airgen.settings import JudgeSettings, Pipeline

PROMPTS = PromptSet()


def pipeline(**judge: object) -> Pipeline:
    base = default_pipeline()
    settings = JudgeSettings.model_validate(judge)
    return base.model_copy(update={"control": base.control.model_copy(update={"judge": settings})})


class Oracle:
    """An LLM that answers by a function of the request, and remembers what it was asked."""

    def __init__(self, answer: Callable[[Request], str | Answer]) -> None:
        self._answer = answer
        self.asked: list[Request] = []

    async def ask(self, request: Request) -> Answer:
        self.asked.append(request)
        found = self._answer(request)
        return found if isinstance(found, Answer) else Answer(request.key, "judgment", request.model, "e", found)


def judged(said: Callable[[Request], str | Answer], **judge: object) -> tuple[Verdict | Problem, list[Request]]:
    oracle = Oracle(said)
    tools = Tools(pipeline(**judge), PROMPTS, {}, oracle)
    return asyncio.run(judge_pair(tools, "why is the sky blue", "Air scatters blue light.")), oracle.asked


def test_a_rubric_judge_gives_its_reason() -> None:
    answer = json.dumps({"reason": "It names  scattering,\nwhich is why.", "level": 3})
    found, asked = judged(lambda request: answer, kind="rubric")
    assert found == Verdict(3, None, "It names scattering, which is why.")
    (request,) = asked
    assert request.schema is not None and list(request.schema["properties"]) == ["reason", "level"]  # the reason first
    small, asked = judged(lambda request: answer, kind="rubric", prompt="small/judge_rubric")
    assert isinstance(small, Verdict)
    assert "why is the sky blue" in asked[0].messages[-1].content


@pytest.mark.parametrize(
    ("first", "second", "level"),
    [("I think it is relevant.", '{"reason": "yes", "level": 2}', 2),
     ('{"reason": "yes"}', '{"reason": "y", "level": 1}', 1),
     ('{"reason": "so", "level": 7}', '{"reason": "so", "level": 0}', 0), ('{"level": 2, "reason": ""}', "no", None)],
)  # fmt: skip
def test_a_rubric_that_cannot_be_read_is_asked_once_more(first: str, second: str, level: int | None) -> None:
    answers = itertools.cycle([first, second])
    found, asked = judged(lambda request: next(answers), kind="rubric")
    assert len(asked) == 2
    assert first in asked[1].messages[-2].content and "cannot be used" in asked[1].messages[-1].content
    if level is None:
        assert isinstance(found, Problem) and found.reason == "malformed" and found.answer == second
    else:
        assert isinstance(found, Verdict) and found.level == level


@pytest.mark.parametrize(("said", "level"), [("2.", 2), ("Relevance: 3", 3), ("The answer is 0", 0)])
def test_levels_in_other_words_need_no_second_call(said: str, level: int) -> None:
    found, asked = judged(lambda request: said)
    assert found == Verdict(level) and len(asked) == 1


@pytest.mark.parametrize("kind", ["levels", "yes-no", "rubric"])
def test_a_judge_that_refuses_is_a_refusal_with_its_words(kind: str) -> None:
    found, asked = judged(lambda request: "I'm sorry, but I can't help with that.", kind=kind)
    assert isinstance(found, Problem) and found.reason == "malformed"
    assert "can't help" in found.answer and len(asked) == 2
    failed = lambda request: Answer(request.key, "judgment", "m", "e", "", error="content_filter: flagged")  # noqa: E731
    found, asked = judged(failed, kind=kind)
    assert found == Problem("llm: content_filter", "flagged", "llm") and len(asked) == 1


def test_every_judge_of_a_panel_is_asked_and_the_lower_median_counts() -> None:
    panel = [{"kind": "levels"}, {"kind": "rubric"}, {"kind": "yes-no"}]

    def said(request: Request) -> str:
        if request.schema:
            return '{"reason": "half of it", "level": 2}'
        return "Yes" if request.params.get("logprobs") else "0"

    found, asked = judged(said, panel=panel)
    assert found == Verdict(2, 1.0, "votes 0, 2, 3; half of it")
    assert len(asked) == 3
    assert judge_name(pipeline(panel=panel)) == "judge + judge_rubric + small/judge_yes_no"


LEVELS = st.lists(st.integers(0, 3), min_size=1, max_size=7)


@given(LEVELS, st.integers(1, 3))
def test_a_vote_is_a_strict_majority_at_every_cut(levels: list[int], cut: int) -> None:
    found = vote([Verdict(level) for level in levels])
    assert isinstance(found, Verdict)
    assert (found.level >= cut) == (sum(level >= cut for level in levels) * 2 > len(levels))


@given(LEVELS)
def test_the_order_of_the_panel_does_not_matter(levels: list[int]) -> None:
    forward, backward = (vote([Verdict(level, level / 3) for level in some]) for some in (levels, levels[::-1]))
    assert isinstance(forward, Verdict) and isinstance(backward, Verdict)
    assert (forward.level, forward.probability) == (backward.level, backward.probability)


def test_a_tie_is_not_relevant() -> None:
    assert vote([Verdict(3), Verdict(1)]) == Verdict(1, None, "votes 3, 1")
    assert vote([Verdict(2), Verdict(3)]) == Verdict(2, None, "votes 2, 3")


def test_probabilities_are_averaged_over_those_that_give_one() -> None:
    found = vote([Verdict(1, 0.3), Verdict(3, 0.8), Verdict(2)])
    assert isinstance(found, Verdict) and found.probability == pytest.approx(0.55)


def test_judges_that_refuse_are_left_out_and_named() -> None:
    refused = Problem("llm: content_filter", "flagged", "llm")
    found = vote([Verdict(3), refused, Verdict(2)])
    assert found == Verdict(2, None, "votes 3, refused (llm: content_filter), 2")
    # Half of them is too many; the cause still says that a call failed, so --retry-failed finds it.
    both = vote([Verdict(3), refused])
    assert isinstance(both, Problem) and (both.cause, both.reason) == ("llm", "llm: content_filter")
    assert both.detail == "(1 of 2 judges) flagged"


def test_what_a_judgment_depends_on() -> None:
    def parts(**judge: object) -> object:
        return judge_parts(pipeline(**judge), PROMPTS)

    assert parts() != parts(kind="rubric") != parts(kind="yes-no")
    assert parts(relevant_from=1) == parts(relevant_from=3)  # the raw level is kept
    assert parts(kind="yes-no", threshold=0.4) != parts(kind="yes-no")
    one, other = {"kind": "levels"}, {"kind": "rubric"}
    assert parts(panel=[one, other]) != parts(panel=[one]) != parts()
    fast = {"llm": {"backend": "openai", "model": "m", "base_url": "http://a", "concurrency": 1}}
    slow = {"llm": {"backend": "openai", "model": "m", "base_url": "http://b", "concurrency": 9}}
    assert parts(panel=[fast]) == parts(panel=[slow])


def test_a_panel_says_everything_in_its_judges() -> None:
    for own in ({"kind": "rubric"}, {"prompt": "judge"}, {"llm": {"model": "m"}}):
        with pytest.raises(ValidationError, match="cannot be given beside a panel: give it in each judge"):
            JudgeSettings.model_validate({"panel": [{"kind": "levels"}], **own})
    found = JudgeSettings.model_validate({"panel": [{"kind": "yes-no"}, {"llm": {"model": "m"}}], "relevant_from": 3})
    assert [one.prompt for one in found.members] == ["small/judge_yes_no", "judge"]
    assert [llm.model for llm in found.llms] == ["m"]


def test_a_judge_of_subjects() -> None:
    """With `relevance: subject`, a judge that names nothing has the prompt and the cut of its kind for subjects."""

    def of(**judge: object) -> JudgeSettings:
        llm = {"backend": "openai", "model": "m"}
        value = {"name": "x", "task": "qa", "corpus": "c", "target": 1, "llm": llm, "control": {"judge": judge}}
        return Pipeline.model_validate({**value, "relevance": "subject"}).control.judge

    assert (of().prompt, of().relevant_from) == ("judge", 1)
    assert (of(kind="rubric").prompt, of(kind="rubric").relevant_from) == ("judge_rubric", 1)
    assert (of(kind="yes-no").prompt, of(kind="yes-no").relevant_from) == ("small/judge_yes_no_subject", 2)
    assert (of(kind="yes-no", prompt="mine").prompt, of(relevant_from=3).relevant_from) == ("mine", 3)
    assert of(kind="votes").relevant_from == 2
    panel = of(panel=[{"kind": "levels"}, {"kind": "rubric"}])
    assert panel.relevant_from == 1 and [one.prompt for one in panel.panel] == ["judge", "judge_rubric"]
    assert of(panel=[{"kind": "levels"}, {"kind": "yes-no"}]).relevant_from == 2
    for wrong in ({"kind": "noes"}, {"panel": [{"relevant_from": 1}]}, {"panel": ["judge"]}):
        with pytest.raises(ValidationError):
            of(**wrong)


# -- need -------------------------------------------------------------------------------------------------------------


JUDGE = "recall: {model: all-minilm-l6-v2-int8, top_k: 30}"


NEED = {JUDGE: f"{JUDGE}\n  judge: {{need: true}}", "target: 12": "target: 4"}


def test_every_judgment_knows_the_need_and_no_need_knows_a_document(
    run: Run, folder: Path, asked: list[Request]
) -> None:
    result = run(changes=NEED)
    needs = [request for request in asked if request.stage == "need"]
    judged = [request for request in asked if request.stage == "judgment"]
    assert needs and judged and len({request.key for request in needs}) == len(needs)  # once a query
    for request in needs:
        text = request.messages[-1].content
        assert "<character>" in text and "<scenario>" in text and "<document>" not in text and "Specimen" not in text
    assert all("What is sought: Facts about" in request.messages[0].content for request in judged)
    uses = json.loads((result.directory / "dataset" / "manifest.json").read_text())["provenance"]
    assert [use["prompt"] for use in uses if use["role"].startswith("need")] == ["need"]
    query = json.loads((result.directory / "dataset" / "queries.jsonl").read_text().splitlines()[0])["_id"]
    words = ("show", folder / "job.yaml", query, "--runs", folder / "runs")
    assert "need       Facts about" in call(*words) and json.loads(call(*words, "--json"))["need"]
    stages = {stage.stage: stage.calls for stage in estimate(Job(folder / "job.yaml", folder / "fresh")).stages}
    assert 4 <= stages["need"] < stages["judgment"]


def test_own_queries_have_a_need_without_anybody_who_asks(run: Run, folder: Path, asked: list[Request]) -> None:
    (folder / "own.txt").write_text("why do bridges need repair in winter\n")
    result = run(changes={**NEED, "target: 12": "queries: {file: own.txt}"})
    (need,) = [request for request in asked if request.stage == "need"]
    assert "<character>" not in need.messages[-1].content and "<scenario>" not in need.messages[-1].content
    assert "winter" in need.messages[-1].content and result.manifest is not None


def test_a_need_that_nobody_gives_leaves_the_query_alone(
    run: Run, model_says: Callable[..., None], asked: list[Request]
) -> None:
    none = Reply("I cannot say", prompt_tokens=1, completion_tokens=1)
    model_says(lambda request: none if request.stage == "need" else None)
    result = run(changes=NEED)
    assert result.manifest is not None and result.manifest.statistics.splits
    assert not any("What is sought" in request.messages[0].content for request in asked if request.stage == "judgment")


def test_the_need_is_part_of_what_a_judgment_depends_on(folder: Path) -> None:
    def job(judge: str) -> Job:
        (folder / "job.yaml").write_text(PIPELINE.replace(JUDGE, f"{JUDGE}\n  judge: {judge}"))
        return Job(folder / "job.yaml", folder / "runs")

    plain, default, need = job("{kind: yes-no}"), job("{kind: yes-no, need: false}"), job("{kind: yes-no, need: true}")
    assert plain.fingerprints == default.fingerprints and plain.identity == default.identity
    changed = {stage for stage, fp in plain.fingerprints.items() if need.fingerprints[stage] != fp}
    assert changed == {"judgment"} and plain.identity != need.identity
    assert with_need("q", "") == "q"
