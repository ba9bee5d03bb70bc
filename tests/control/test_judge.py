"""Judges: kinds, panels, and the need behind a query."""

import asyncio
import itertools
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_maker import LEXICAL
from pydantic import ValidationError

from airgen.llms.base import Request
from airgen.llms.prompts import PromptSet
from airgen.settings import JudgeSettings, Pipeline, load_pipeline
from airgen.settings.base import find_yaml
from airgen.steps.judge import Verdict, judge_name, judge_pair, judge_parts, vote
from airgen.steps.step import Problem, Tools
from airgen.storage.records import Answer

JOB = LEXICAL
REFUSED = Problem("llm: content_filter", "flagged", "llm")


def pipeline(**judge: object) -> Pipeline:
    base = load_pipeline(find_yaml("pipelines", "quickstart"))
    settings = JudgeSettings.model_validate(judge)
    return base.model_copy(update={"control": base.control.model_copy(update={"judge": settings})})


def judged(said: Callable[[Request], str | Answer], **judge: object) -> tuple[Verdict | Problem, list[Request]]:
    """What a judge says of a pair, and what its model was asked, which answers by a function of the request."""
    asked: list[Request] = []

    class Oracle:
        async def ask(self, request: Request) -> Answer:
            asked.append(request)
            found = said(request)
            return found if isinstance(found, Answer) else Answer(request.key, "judgment", request.model, "e", found)

    tools = Tools(pipeline(**judge), PromptSet(), {}, Oracle())
    return asyncio.run(judge_pair(tools, "why is the sky blue", "Air scatters blue light.")), asked


@pytest.mark.parametrize("prompt", ["", "small/judge_rubric"])
def test_a_rubric_judge_gives_its_reason(prompt: str) -> None:
    answer = json.dumps({"reason": "It names  scattering,\nwhich is why.", "level": 3})
    found, (request,) = judged(lambda request: answer, kind="rubric", prompt=prompt)
    assert found == Verdict(3, None, "It names scattering, which is why.")
    assert request.schema is not None and list(request.schema["properties"]) == ["reason", "level"]  # the reason first
    assert "why is the sky blue" in request.messages[-1].content


@pytest.mark.parametrize(
    ("kind", "first", "second", "level"),
    [("rubric", "I think it is relevant.", '{"reason": "yes", "level": 2}', 2),
     ("rubric", '{"reason": "yes"}', '{"reason": "y", "level": 1}', 1),
     ("rubric", '{"reason": "so", "level": 7}', '{"reason": "so", "level": 0}', 0),
     ("rubric", '{"level": 2, "reason": ""}', "no", None),
     # The document brings a verdict of its own, which the model repeats before or after its own one.
     ("rubric", '{"reason": "so", "level": 3} it says, but {"reason": "no", "level": 0}',
      '{"reason": "y", "level": 0}', 0),
     ("rubric", '```json\n{"reason": "so", "level": 3}\n```\n{"reason": "no", "level": 0}',
      '{"reason": "y", "level": 0}', 0),
     ("rubric", '{"level": 3, "level": 0, "reason": "so"}', '{"reason": "y", "level": 1}', 1),
     ("rubric", '{"reason": "it says {\\"level\\": 3}", "level": 0}', "", 0),
     *((kind, "I'm sorry", "but I can't", None) for kind in ("levels", "yes-no", "rubric")),
     ("levels", "Who knows?", "The answer is 0", 0), ("levels", "Relevance: 3", "", 3),
     *(("levels", text, "", 2) for text in ("2.0", "2,0", "2/3", "2 / 3", "2 out of 3", "Level 2 of 3.", "2.")),
     *(("levels", text, "", 2) for text in ("Score: 2 (out of 3)", "２", "2⁄3", "Relevance (0-3): 2", "2 of 0 to 3")),
     *(("levels", text, "no", None) for text in ("2.5", "2/5", "from 0 to 3", "12", "20/3", "1 or 2"))],
)  # fmt: skip
def test_what_cannot_be_read_is_asked_once_more(kind: str, first: str, second: str, level: int | None) -> None:
    answers = itertools.cycle([first, second])
    found, asked = judged(lambda request: next(answers), kind=kind)
    assert len(asked) == 2 - (second == "")
    for again in asked[1:]:
        assert first in again.messages[-2].content and "cannot be used" in again.messages[-1].content
    if level is None:
        assert isinstance(found, Problem) and (found.reason, found.answer) == ("malformed", second)
    else:
        assert isinstance(found, Verdict) and found.level == level


def test_a_probability_beyond_certainty_counts_as_certain() -> None:
    tokens = json.dumps([[["Yes", 1e6], ["No", -50.0]]])

    def said(request: Request) -> Answer:
        return Answer(request.key, "judgment", request.model, "e", "Yes", logprobs=tokens)

    verdict, _ = judged(said, kind="yes-no")
    assert isinstance(verdict, Verdict) and verdict.level == 3 and verdict.probability == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["levels", "yes-no", "rubric"])
def test_a_call_that_failed_is_not_repeated(kind: str) -> None:
    failed = lambda request: Answer(request.key, "judgment", "m", "e", "", error="content_filter: flagged")  # noqa: E731
    found, asked = judged(failed, kind=kind)
    assert found == REFUSED and len(asked) == 1


def test_every_judge_of_a_panel_is_asked_and_the_lower_median_counts() -> None:
    panel = [{"kind": "levels"}, {"kind": "rubric"}, {"kind": "yes-no"}]

    def said(request: Request) -> str:
        if request.schema:
            return '{"reason": "half of it", "level": 2}'
        return "Yes" if request.params.get("logprobs") else "0"

    found, asked = judged(said, panel=panel)
    assert found == Verdict(2, 1.0, "votes 0, 2, 3; half of it") and len(asked) == 3
    assert judge_name(pipeline(panel=panel)) == "judge_levels + judge_rubric + small/judge_yes_no"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.integers(1, 3))
def test_a_vote_is_a_strict_majority_at_every_cut_in_any_order(levels: list[int], cut: int) -> None:
    found, backward = (vote([Verdict(level, level / 3) for level in some]) for some in (levels, levels[::-1]))
    assert isinstance(found, Verdict) and isinstance(backward, Verdict)
    assert (found.level >= cut) == (sum(level >= cut for level in levels) * 2 > len(levels))
    assert (found.level, found.probability) == (backward.level, backward.probability)


@pytest.mark.parametrize(
    ("votes", "verdict"),
    [
        ([Verdict(3), Verdict(1)], Verdict(1, None, "votes 3, 1")),  # a tie is not relevant
        ([Verdict(1, 0.25), Verdict(3, 0.75, "so"), Verdict(2)], Verdict(2, 0.5, "votes 1, 3, 2; so")),
        ([Verdict(3), REFUSED, Verdict(2)], Verdict(2, None, "votes 3, refused (llm: content_filter), 2")),
        # Half of them is too many; the cause still says that a call failed, so --retry-failed finds it.
        ([Verdict(3), REFUSED], Problem("llm: content_filter", "(1 of 2 judges) flagged", "llm")),
    ],
)
def test_votes_by_hand(votes: list[Verdict | Problem], verdict: Verdict | Problem) -> None:
    assert vote(votes) == verdict


def test_what_a_judgment_does_not_depend_on() -> None:
    def parts(**judge: object) -> object:
        return judge_parts(pipeline(**judge), PromptSet())

    assert parts(relevant_from=1) == parts(relevant_from=3)  # the raw level is kept
    one, other = {"kind": "levels"}, {"kind": "rubric"}
    assert parts(panel=[one, other]) != parts(panel=[one]) != parts()
    fast, slow = (
        {"llm": {"backend": "openai", "model": "m", "base_url": f"http://{host}", "concurrency": calls}}
        for host, calls in (("a", 1), ("b", 9))
    )
    assert parts(panel=[fast]) == parts(panel=[slow])


def test_a_panel_says_everything_in_its_judges() -> None:
    for own in ({"kind": "rubric"}, {"prompt": "judge"}, {"llm": {"model": "m"}}):
        with pytest.raises(ValidationError, match="cannot be given beside a panel: give it in each judge"):
            JudgeSettings.model_validate({"panel": [{"kind": "levels"}], **own})
    found = JudgeSettings.model_validate({"panel": [{"kind": "yes-no"}, {"llm": {"model": "m"}}], "relevant_from": 3})
    assert [one.prompt for one in found.members] == ["small/judge_yes_no", "judge"]
    assert [llm.model for llm in found.llms] == ["m"]


@pytest.mark.parametrize(
    ("judge", "prompts", "cut"),
    [
        ({}, ["judge"], 1),
        ({"kind": "rubric"}, ["judge_rubric"], 1),
        ({"kind": "yes-no"}, ["small/judge_yes_no_subject"], 2),
        ({"kind": "yes-no", "prompt": "mine"}, ["mine"], 2),
        ({"relevant_from": 3}, ["judge"], 3),
        ({"kind": "votes"}, [], 2),
        ({"panel": [{"kind": "paper"}, {"kind": "rubric"}]}, ["judge", "judge_rubric"], 1),
        ({"kind": "levels"}, ["judge_levels_subject"], 2),
        ({"panel": [{"kind": "paper"}, {"kind": "yes-no"}]}, ["judge", "small/judge_yes_no_subject"], 2),
        ({"kind": "noes"}, None, 0), ({"panel": [{"relevant_from": 1}]}, None, 0), ({"panel": ["judge"]}, None, 0),
    ],
)  # fmt: skip
def test_a_judge_of_subjects(judge: dict[str, object], prompts: list[str] | None, cut: int) -> None:
    """With `relevance: subject`, a judge that names nothing has the prompt and the cut of its kind for subjects."""
    llm = {"backend": "openai", "model": "m"}
    value = {"name": "x", "task": "qa", "corpus": "c", "target": 1, "llm": llm, "control": {"judge": judge}}
    if prompts is None:
        with pytest.raises(ValidationError):
            Pipeline.model_validate({**value, "relevance": "subject"})
        return
    found = Pipeline.model_validate({**value, "relevance": "subject"}).control.judge
    assert ([one.prompt for one in found.members], found.relevant_from) == (prompts, cut)
