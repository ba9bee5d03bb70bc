"""The LLM as labeler: one (query, document) pair to a level of 0 to 3 (paper, appendix A.3, Table 8).

Three kinds of judge. `levels` reads the single number that Table 8 asks for. `yes-no` reads the probability of "Yes"
from the first token's log-probabilities, for small models, whose numbers mean nothing; the level is then the
probability cut at half the threshold, at the threshold, and half way from there to 1. `rubric` reads a reason and
the number after it.

`rerankers` asks nobody: every pair passes here, and a calibration weighs recall and re-rankers later.

Several judges vote: the level is their lower median, so that a pair counts as relevant, wherever the levels are
cut, exactly where more than half of the judges say so. A tie is not relevant.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airgen.llms.answers import corrective, parse_answer
from airgen.llms.base import Request, parse_logprobs
from airgen.pipeline.stage import Refusal, Tools, llm_parts
from airgen.prompts import Prompt, PromptSet
from airgen.records import Answer
from airgen.settings import OneJudge, Pipeline

__all__ = [
    "Verdict",
    "judge_identity",
    "judge_name",
    "judge_pair",
    "judge_parts",
    "level_of_probability",
    "read_level",
    "read_yes_probability",
    "vote",
]

_LEVEL = re.compile(r"(?<![\d.])([0-3])(?![\d]|\.\d)")
_RUBRIC_TOKENS = 300  # a reason of a few sentences and the JSON around it
_WISHES = {
    "levels": "answer with one number, 0, 1, 2 or 3",
    "yes-no": "answer Yes or No",
    "rubric": "answer with the JSON that was asked for",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge, or a panel, says of one pair: level 0 to 3, P(relevant) and a reason where it gives them."""

    level: int
    probability: float | None = None
    reason: str = ""


def judge_parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    """What a judgment depends on besides its pair. The cut between levels is not part: the raw level is kept."""
    judge = pipeline.control.judge
    found = [_parts(member, pipeline, prompts) for member in judge.members]
    return {"panel": found} if len(found) != 1 or judge.panel else found[0]


def _parts(judge: OneJudge, pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return {
        "prompt": prompts.get(judge.prompt).fingerprint,
        "kind": judge.kind,
        "temperature": judge.temperature,
        "threshold": judge.threshold if judge.kind == "yes-no" else None,
        "llm": {**llm_parts(judge.llm or pipeline.llm), "temperature": judge.temperature},
    }


def judge_name(pipeline: Pipeline) -> str:
    """How rows name the judge: its prompt, or the panel's prompts."""
    return " + ".join(member.prompt for member in pipeline.control.judge.members) or "rerankers"


def judge_identity(pipeline: Pipeline, prompts: PromptSet) -> dict[str, str]:
    """Whose "Yes" a combined judge weighs: model, prompt and its fingerprint; empty for any other kind of judge."""
    judge = pipeline.control.judge
    if judge.panel or judge.kind != "yes-no":
        return {}
    llm = judge.llm or pipeline.llm
    return {"model": llm.model, "prompt": judge.prompt, "fingerprint": prompts.get(judge.prompt).fingerprint}


async def judge_pair(tools: Tools, query: str, document: str) -> Verdict | Refusal:
    """The verdict of the pipeline's judge or panel. Each judge is asked once a pair, whichever stage asks."""
    members = tools.pipeline.control.judge.members
    if not members:
        return Verdict(tools.pipeline.control.judge.relevant_from, None, "nobody was asked")
    found = await asyncio.gather(*(_ask(tools, member, query, document) for member in members))
    return found[0] if len(members) == 1 else vote(found)


def vote(found: Sequence[Verdict | Refusal]) -> Verdict | Refusal:
    """A panel's verdict: the lower median of the levels, the mean of the probabilities that were given.

    Judges that refuse are left out, and named in the reason; where half or more refuse, so does the panel.
    """
    verdicts = [one for one in found if isinstance(one, Verdict)]
    refusals = [one for one in found if isinstance(one, Refusal)]
    if len(refusals) * 2 >= len(found):
        return Refusal(f"{refusals[0].reason} ({len(refusals)} of {len(found)} judges)", refusals[0].detail)
    levels = sorted(one.level for one in verdicts)
    given = [one.probability for one in verdicts if one.probability is not None]
    said = [str(one.level) if isinstance(one, Verdict) else f"refused ({one.reason})" for one in found]
    reasons = [one.reason for one in verdicts if one.reason]
    return Verdict(
        levels[(len(levels) - 1) // 2],
        math.fsum(given) / len(given) if given else None,
        "; ".join([f"votes {', '.join(said)}", *reasons]),
    )


async def _ask(tools: Tools, judge: OneJudge, query: str, document: str) -> Verdict | Refusal:
    llm = judge.llm or tools.pipeline.llm
    prompt = tools.prompts.get(judge.prompt)
    params: dict[str, Any] = {"temperature": judge.temperature, "max_tokens": 8}
    if judge.kind == "yes-no":
        params |= {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}
    elif judge.kind == "rubric":
        params["max_tokens"] = _RUBRIC_TOKENS
    messages = prompt.render(query=query, document=document)
    schema = prompt.schema if judge.kind == "rubric" else None
    request = Request(llm.model, messages, params, schema, 0, llm.endpoint, "judgment")
    answer = await tools.judge.ask(request)
    found = _read(judge, prompt, answer)
    if isinstance(found, Refusal) and not answer.error:
        answer = await tools.judge.ask(corrective(request, answer.text, _WISHES[judge.kind]))
        found = _read(judge, prompt, answer)
    return found


def _read(judge: OneJudge, prompt: Prompt, answer: Answer) -> Verdict | Refusal:
    if answer.error:
        return Refusal(f"llm: {answer.error.partition(':')[0]}", answer.error)
    if judge.kind == "levels":
        level = read_level(answer.text)
        return Refusal("malformed: no level from 0 to 3", answer.text) if level is None else Verdict(level)
    if judge.kind == "rubric":
        return _read_rubric(prompt, answer)
    probability = read_yes_probability(answer)
    if probability is None:
        return Refusal("malformed: neither Yes nor No", answer.text)
    return Verdict(level_of_probability(probability, judge.threshold), probability)


def _read_rubric(prompt: Prompt, answer: Answer) -> Verdict | Refusal:
    try:
        value = parse_answer(answer, prompt.schema or {})
        return Verdict(int(value["level"]), None, " ".join(str(value["reason"]).split()))
    except (KeyError, TypeError):
        return Refusal("malformed: no reason and level", answer.text)
    except ValueError as error:
        return Refusal(f"malformed: {error}", answer.text)


def read_level(text: str) -> int | None:
    """The level in an answer such as `2`, `2.`, `Relevance: 3`; None where there is none, or two different ones."""
    found = set(_LEVEL.findall(text))
    return int(found.pop()) if len(found) == 1 else None


def read_yes_probability(answer: Answer) -> float | None:
    """P(yes) / (P(yes) + P(no)) from the first token's alternatives; by the text alone (1 or 0) without them."""
    yes = no = 0.0
    for token, logprob in (parse_logprobs(answer) or [[]])[0]:
        word = token.strip().casefold()
        if word == "yes":
            yes += math.exp(logprob)
        elif word == "no":
            no += math.exp(logprob)
    if yes + no > 0:
        return yes / (yes + no)
    word = re.sub(r"\W+.*", "", answer.text.strip()).casefold()
    return {"yes": 1.0, "no": 0.0}.get(word)


def level_of_probability(probability: float, threshold: float) -> int:
    """0 below half the threshold, 1 below it, 2 up to half way to 1, 3 from there."""
    if probability < threshold / 2:
        return 0
    if probability < threshold:
        return 1
    return 2 if probability < (1 + threshold) / 2 else 3
