"""The LLM as labeler: one (query, document) pair to a level of 0 to 3 (paper, appendix A.3, Table 8).

Two kinds of judge. `levels` reads the single number that Table 8 asks for. `yes-no` reads the probability of "Yes"
from the first token's log-probabilities, for small models, whose numbers mean nothing; the level is then the
probability cut at half the threshold, at the threshold, and half way from there to 1.
"""

from __future__ import annotations

import math
import re
from typing import Any

from airgen.llms.base import Request, parse_logprobs
from airgen.llms.structured import corrective
from airgen.prompts import PromptSet
from airgen.records import Answer
from airgen.settings import JudgeSettings, Pipeline
from airgen.stages.base import Refusal, Tools, llm_parts

__all__ = ["judge_pair", "judge_parts", "level_of_probability", "read_level", "read_yes_probability"]

_LEVEL = re.compile(r"(?<![\d.])([0-3])(?![\d]|\.\d)")


def judge_parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    """What a judgment depends on besides its pair. The cut between levels is not part: the raw level is kept."""
    judge = pipeline.control.judge
    return {
        "prompt": prompts.get(judge.prompt).fingerprint,
        "kind": judge.kind,
        "temperature": judge.temperature,
        "threshold": judge.threshold if judge.kind == "yes-no" else None,
        "llm": {**llm_parts(judge.llm or pipeline.llm), "temperature": judge.temperature},
    }


async def judge_pair(tools: Tools, query: str, document: str) -> tuple[int, float | None] | Refusal:
    """The level 0 to 3, and the probability of relevance where the judge gives one."""
    settings = tools.pipeline.control.judge
    llm = settings.llm or tools.pipeline.llm
    prompt = tools.prompts.get(settings.prompt)
    params: dict[str, Any] = {"temperature": settings.temperature, "max_tokens": 8}
    if settings.kind == "yes-no":
        params |= {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}
    messages = prompt.render(query=query, document=document)
    request = Request(llm.model, messages, params, None, 0, llm.endpoint, "judgment")
    answer = await tools.judge.ask(request)
    found = _read(settings, answer)
    if isinstance(found, Refusal) and not answer.error:
        wish = "answer Yes or No" if settings.kind == "yes-no" else "answer with one number, 0, 1, 2 or 3"
        answer = await tools.judge.ask(corrective(request, answer.text, wish))
        found = _read(settings, answer)
    return found


def _read(settings: JudgeSettings, answer: Answer) -> tuple[int, float | None] | Refusal:
    if answer.error:
        return Refusal(f"llm: {answer.error.partition(':')[0]}", answer.error)
    if settings.kind == "levels":
        level = read_level(answer.text)
        return Refusal("malformed: no level from 0 to 3", answer.text) if level is None else (level, None)
    probability = read_yes_probability(answer)
    if probability is None:
        return Refusal("malformed: neither Yes nor No", answer.text)
    return level_of_probability(probability, settings.threshold), probability


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
