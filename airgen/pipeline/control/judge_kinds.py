"""The kinds of judge: how a prompt is asked about one pair, and how its answer is read (appendix A.3, Table 8).

A kind is a class with these facts and two functions, and a line in the registry; a kind from outside airgen is named
`kind: module:Class`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from airgen.llms.answers import parse_answer
from airgen.llms.base import parse_logprobs
from airgen.pipeline.stage import Problem
from airgen.prompts import Prompt
from airgen.records import Answer
from airgen.registry import names, resolve

_LEVEL = re.compile(r"(?<![\d.])([0-3])(?![\d]|\.\d)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge, or a panel, says of one pair: level 0 to 3, P(relevant) and a reason where it gives them."""

    level: int
    probability: float | None = None
    reason: str = ""


class JudgeKind(Protocol):
    """What airgen asks of a kind of judge.

    PROMPT: the prompt that is used where none is named. SUBJECT: the same, and the lowest level that is relevant, with
    `relevance: subject`. FORM: the `output` of its prompts' front matter, or `schema`.
    WISH: what is asked for again after an answer that could not be read. ABOUT: for the dataset card, with the
    threshold as {threshold}. GRADED: the answer is a level; otherwise a probability, which is cut into levels.
    PARAMS: parameters of the call. TOKENS: expected length of an answer. QUERY_FIRST: its prompt begins with the query.
    """

    PROMPT: ClassVar[str]
    SUBJECT: ClassVar[tuple[str, int]]
    FORM: ClassVar[str]
    WISH: ClassVar[str]
    ABOUT: ClassVar[str]
    GRADED: ClassVar[bool]
    PARAMS: ClassVar[Mapping[str, Any]]
    TOKENS: ClassVar[int]
    QUERY_FIRST: ClassVar[bool]

    def read(self, answer: Answer, prompt: Prompt, threshold: float) -> Verdict | Problem:
        """The verdict in an answer, or why there is none."""
        ...


class Levels:
    """The single number that Table 8 asks for."""

    PROMPT, FORM = "judge", "level"
    SUBJECT = ("judge", 1)  # level 1 is "superficially relevant"
    WISH = "answer with one number, 0, 1, 2 or 3"
    ABOUT, GRADED = "four levels", True
    PARAMS: ClassVar[Mapping[str, Any]] = {"max_tokens": 8}
    TOKENS, QUERY_FIRST = 1, True

    def read(self, answer: Answer, prompt: Prompt, threshold: float) -> Verdict | Problem:
        """The level in an answer such as `2`, `2.` or `Relevance: 3`; a problem where there are two different ones."""
        found = set(_LEVEL.findall(answer.text))
        return Verdict(int(found.pop())) if len(found) == 1 else malformed("no level from 0 to 3")


class YesNo:
    """The probability of "Yes" from the first token: for small models, whose levels mean nothing."""

    PROMPT, FORM = "small/judge_yes_no", "yes_no"
    SUBJECT = ("small/judge_yes_no_subject", 2)
    WISH = "answer Yes or No"
    ABOUT, GRADED = "probability of Yes, relevant from {threshold}", False
    PARAMS: ClassVar[Mapping[str, Any]] = {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}
    TOKENS, QUERY_FIRST = 1, False

    def read(self, answer: Answer, prompt: Prompt, threshold: float) -> Verdict | Problem:
        """P(yes) / (P(yes) + P(no)) over the first token's alternatives; without them 1 or 0 by the text."""
        yes = no = 0.0
        for token, logprob in (parse_logprobs(answer) or [[]])[0]:
            word = token.strip().casefold()
            if word == "yes":
                yes += math.exp(logprob)
            elif word == "no":
                no += math.exp(logprob)
        if yes + no > 0:
            probability = yes / (yes + no)
        else:
            word = re.sub(r"\W+.*", "", answer.text.strip()).casefold()
            if word not in ("yes", "no"):
                return malformed("neither Yes nor No")
            probability = float(word == "yes")
        return Verdict(level_of_probability(probability, threshold), probability)


class Rubric:
    """A reason of a few sentences, then the level, as JSON."""

    PROMPT, FORM = "judge_rubric", "schema"
    SUBJECT = ("judge_rubric", 1)  # level 1 is "the same subject"
    WISH = "answer with the JSON that was asked for"
    ABOUT, GRADED = "a reason and four levels", True
    PARAMS: ClassVar[Mapping[str, Any]] = {"max_tokens": 300}
    TOKENS, QUERY_FIRST = 60, False

    def read(self, answer: Answer, prompt: Prompt, threshold: float) -> Verdict | Problem:
        """The level and its reason."""
        try:
            value = parse_answer(answer, prompt.schema or {})
            return Verdict(int(value["level"]), None, " ".join(str(value["reason"]).split()))
        except (KeyError, TypeError):
            return malformed("no reason and level")
        except ValueError as error:
            return malformed(str(error))


def malformed(detail: str) -> Problem:
    """An answer that could not be read."""
    return Problem("malformed", detail, "malformed")


def level_of_probability(probability: float, threshold: float) -> int:
    """0 below half the threshold, 1 below the threshold, 2 up to half way from there to 1, 3 above."""
    if probability < threshold / 2:
        return 0
    if probability < threshold:
        return 1
    return 2 if probability < (1 + threshold) / 2 else 3


def kind_of_prompt(prompt: Prompt) -> str | None:
    """The registered kind of judge that a prompt's output fits, or None."""
    form = "schema" if prompt.schema else str(prompt.output)
    return next((name for name in names("judge") if form == resolve("judge", name).FORM), None)
