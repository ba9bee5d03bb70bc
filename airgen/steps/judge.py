"""The LLM as labeler, which gives each (query, document) pair a level from 0 to 3 (paper, appendix A.3, Table 8).

A kind of judge is a class with a few attributes and a `read` method, and a line in the registry. A third-party kind is
named `kind: module:Class`. The kind `votes` asks no LLM: the re-rankers decide (`airgen.steps.votes`).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, cast

from airgen.components.registry import names, resolve
from airgen.components.user_code import own_code
from airgen.errors import LlmError
from airgen.llms.answers import corrective, parse_answer
from airgen.llms.askers import together
from airgen.llms.base import Request, parse_logprobs
from airgen.llms.prompts import Prompt, PromptSet
from airgen.llms.scripted import overlap
from airgen.safety.escaping import one_line
from airgen.safety.guard import guarded
from airgen.settings import OneJudge, Pipeline, answer_parts
from airgen.settings.base import answer_settings
from airgen.settings.user_function import PYTHON
from airgen.steps.ask import ask_until
from airgen.steps.judge_examples import shown_to
from airgen.steps.step import Problem, Tools
from airgen.steps.votes import round_trip_parts
from airgen.storage.records import Answer

# A number from 0 to 3, also as `2.0`, `2,0`, `2/3` or `2 out of 3`, but not part of a date, a range or a larger number.
_LEVEL = re.compile(
    r"(?<![\d.,/])(?<![\s(:=][-−])(?<!^[-−])([0-3])(?:[.,]0+)?"
    r"(?:\s*\(?(?:/|out of|of)\s*3(?:[.,]0+)?\)?)?(?![.,]?\d|\s*/)"
)
# The scale, which says nothing about the passage; also full-width digits and slashes.
_HIGHEST_LEVEL = 3
_LEVEL_IN_JSON = re.compile(r"""["']level["']\s*:\s*["']?(-?\d+)""")
_SCALE = re.compile(r"(?<!\d)0\s*(?:-|–|to|through|\.\.)\s*3(?!\d)", re.IGNORECASE)
_PLAIN = str.maketrans("０１２３⁄∕／", "0123///")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a judge or panel on a pair: a level from 0 to 3 and, if given, P(relevant) and a reason."""

    level: int
    probability: float | None = None
    reason: str = ""


class JudgeKind(Protocol):
    """The interface of a kind of judge.

    Attributes:
        PROMPT: The default prompt.
        SUBJECT: The default prompt and the lowest relevant level with `relevance: subject`.
        FORM: The `output` in its prompts' front matter, or `schema`.
        WISH: What to ask for after an unreadable answer.
        ABOUT: Description for the dataset card, with {threshold} for the threshold.
        GRADED: Whether the answer is a level rather than a probability, which is mapped to levels.
        PARAMS: Parameters of the LLM call.
        TOKENS: Expected length of an answer in tokens.
        QUERY_FIRST: Whether its prompt begins with the query.
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
        """Parse the verdict in an answer, or return a problem."""
        ...


class Levels:
    """Reads a single number, whose levels have criteria: what answers, answers in part, or is about the subject."""

    PROMPT, FORM = "judge_levels", "level"
    SUBJECT = ("judge_levels_subject", 2)
    WISH = "answer with one number, 0, 1, 2 or 3"
    ABOUT, GRADED = "four levels", True
    PARAMS: ClassVar[Mapping[str, Any]] = {"max_tokens": 8}
    TOKENS, QUERY_FIRST = 1, True

    def read(self, answer: Answer, prompt: Prompt, threshold: float) -> Verdict | Problem:
        """Parse the level in an answer such as `2`, `2.0`, `2/3` or `Relevance: 3`. Two levels are a problem."""
        levels = set(_LEVEL.findall(_SCALE.sub("", answer.text.translate(_PLAIN))))
        return Verdict(int(levels.pop())) if len(levels) == 1 else malformed("no level from 0 to 3")


class Paper(Levels):
    """Reads a single number; the prompt is Table 8, word for word."""

    PROMPT = "judge"
    SUBJECT = ("judge", 1)  # level 1 is "superficially relevant"


class YesNo:
    """Reads the probability of "Yes" from the first token, for small models, whose levels are unreliable."""

    PROMPT, FORM = "small/judge_yes_no", "yes_no"
    SUBJECT = ("small/judge_yes_no_subject", 2)
    WISH = "answer Yes or No"
    ABOUT, GRADED = "probability of Yes, relevant from {threshold}", False
    PARAMS: ClassVar[Mapping[str, Any]] = {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}
    TOKENS, QUERY_FIRST = 1, False

    def read(self, answer: Answer, prompt: Prompt, threshold: float) -> Verdict | Problem:
        """Return P(yes) / (P(yes) + P(no)) from the first token's alternatives or, if there are none, 1 or 0 from the
        text."""
        yes = no = 0.0
        for token, logprob in (parse_logprobs(answer) or [[]])[0]:
            word, share = token.strip().casefold(), math.exp(min(0.0, logprob))  # some servers exceed 0
            if word == "yes":
                yes += share
            elif word == "no":
                no += share
        if yes + no > 0:
            probability = yes / (yes + no)
        else:
            word = re.sub(r"\W+.*", "", answer.text.strip()).casefold()
            if word not in ("yes", "no"):
                return malformed("neither Yes nor No")
            probability = float(word == "yes")
        return Verdict(level_of_probability(probability, threshold), probability)


class Rubric:
    """Reads JSON with a reason of a few sentences, followed by the level."""

    PROMPT, FORM = "judge_rubric", "schema"
    SUBJECT = ("judge_rubric", 1)  # level 1 is "the same subject"
    WISH = "answer with the JSON that was asked for"
    ABOUT, GRADED = "a reason and four levels", True
    PARAMS: ClassVar[Mapping[str, Any]] = {"max_tokens": 300}
    TOKENS, QUERY_FIRST = 60, False

    def read(self, answer: Answer, prompt: Prompt, threshold: float) -> Verdict | Problem:
        """Parse the level and its reason. Two verdicts are a problem: a document may have brought one."""
        if len(set(_LEVEL_IN_JSON.findall(answer.text))) > 1:
            return malformed("more than one level")
        try:
            value = parse_answer(answer, prompt.constrained() or {})
            return Verdict(int(value["level"]), None, " ".join(str(value["reason"]).split()))
        except (KeyError, TypeError):
            return malformed("no reason and level")
        except ValueError as error:
            return malformed(str(error))


class OwnJudge:
    """Reads the result of a user's function, called by the backend `python-judge`: a level or a probability as JSON."""

    PROMPT, FORM = "judge_python", "pair"
    SUBJECT = ("judge_python", 2)
    WISH = "answer with a level or a probability"
    ABOUT, GRADED = "a function of the user's own", True
    PARAMS: ClassVar[Mapping[str, Any]] = {}
    TOKENS, QUERY_FIRST = 1, True

    def read(self, answer: Answer, prompt: Prompt, threshold: float) -> Verdict | Problem:
        """Parse the level, or map the probability to a level."""
        try:
            value = json.loads(answer.text)
            if "level" in value:
                return Verdict(int(value["level"]))
            probability = float(value["probability"])
        except (ValueError, KeyError, TypeError, OverflowError):
            return malformed("no level or probability")
        return Verdict(level_of_probability(probability, threshold), probability)


def malformed(detail: str) -> Problem:
    """Return the problem of an unreadable answer."""
    return Problem("malformed", detail, "malformed")


def level_of_probability(probability: float, threshold: float) -> int:
    """Map a probability to a level: 0 below half the threshold, 1 below the threshold, 2 up to halfway from there to 1,
    else 3."""
    if probability < threshold / 2:
        return 0
    if probability < threshold:
        return 1
    return 2 if probability < (1 + threshold) / 2 else 3


def kind_of_prompt(prompt: Prompt) -> str | None:
    """Return the registered kind of judge for a prompt's output format, or None."""
    form = "schema" if prompt.constrained() else str(prompt.output)
    return next((name for name in names("judge") if form == resolve("judge", name).FORM), None)


def judge_kind(judge: OneJudge) -> JudgeKind:
    """Return the kind of a judge. Raises LlmError if a user's kind cannot be created."""
    with guarded(f"judge {judge.kind}", LlmError):
        return resolve("judge", judge.kind)()  # type: ignore[no-any-return]


def judgment_parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    """Return what judgments depend on besides their pairs: those of a query's own document and of quality control."""
    votes = round_trip_parts(pipeline) if pipeline.votes_accept else None
    return {"judge": judge_parts(pipeline, prompts), "votes": votes}


def judge_parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    """Return everything on which a judgment depends besides its pair.

    The cutoff between levels is not included, because the raw level is saved.
    """
    judge = pipeline.control.judge
    members = [_parts(member, pipeline, prompts) for member in judge.members]
    return {"panel": bool(judge.panel), "judges": members}


def _parts(judge: OneJudge, pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return {
        "prompt": prompts.get(judge.prompt).fingerprint,
        "kind": judge.kind,
        "temperature": judge.temperature,
        "threshold": None if judge_kind(judge).GRADED and judge.kind != PYTHON else judge.threshold,
        "llm": {**answer_parts(judge.llm or pipeline.llm), "temperature": judge.temperature},
        **({"code": code} if (code := own_code(judge.kind)) else {}),
        **({"examples": answer_settings(judge)["examples"]} if judge.examples else {}),
    }


def judge_name(pipeline: Pipeline) -> str:
    """Return the name of the judge in rows: its prompt, or the panel's prompts."""
    judge = pipeline.control.judge
    return " + ".join(member.prompt for member in judge.members) or judge.kind


async def judge_pair(tools: Tools, query: str, document: str) -> Verdict | Problem:
    """Return the verdict of the pipeline's judge or panel. Each judge is asked once per pair, whichever stage asks."""
    members = tools.pipeline.control.judge.members
    verdicts = await together(*(_ask(tools, member, query, document) for member in members))
    return verdicts[0] if len(members) == 1 else vote(verdicts)


def vote(answers: Sequence[Verdict | Problem]) -> Verdict | Problem:
    """Return a panel's verdict: the mean probability, and the lower median of the levels, so that, for any cutoff, a
    pair is relevant if and only if more than half of the judges say so.

    Judges that refuse are ignored, and named in the reason. If at least half refuse, the panel refuses.
    """
    verdicts = [answer for answer in answers if isinstance(answer, Verdict)]
    refusals = [answer for answer in answers if isinstance(answer, Problem)]
    if len(refusals) * 2 >= len(answers):
        first = refusals[0]
        return replace(first, detail=f"({len(refusals)} of {len(answers)} judges) {first.detail}")
    levels = sorted(verdict.level for verdict in verdicts)
    given = [verdict.probability for verdict in verdicts if verdict.probability is not None]
    votes = [str(answer.level) if isinstance(answer, Verdict) else f"refused ({answer.reason})" for answer in answers]
    reasons = [verdict.reason for verdict in verdicts if verdict.reason]
    return Verdict(
        levels[(len(levels) - 1) // 2],
        math.fsum(given) / len(given) if given else None,
        "; ".join([f"votes {', '.join(votes)}", *reasons]),
    )


async def _ask(tools: Tools, judge: OneJudge, query: str, document: str) -> Verdict | Problem:
    llm, kind = judge.llm or tools.pipeline.llm, judge_kind(judge)
    prompt = tools.prompts.get(judge.prompt)
    params = {"temperature": judge.temperature, **kind.PARAMS}
    schema = prompt.constrained() if kind.FORM == "schema" else None
    messages = prompt.render(query=query, document=document)
    if isinstance(judge.examples, str):
        raise LlmError("control.judge.examples: `audit` needs a job: name the pairs here")
    cut = tools.pipeline.control.judge.relevant_from
    messages = shown_to(messages, judge.examples, cut, graded=kind.GRADED)
    request = Request(llm.model, messages, params, schema=schema, endpoint=llm.endpoint, stage="judgment")

    def again(first: Request, answer: Answer, problem: str, attempt: int) -> Request:
        return corrective(first, answer.text, kind.WISH)

    def read(answer: Answer) -> Verdict | Problem:
        with guarded(f"judge {judge.kind}", LlmError):
            verdict = kind.read(answer, prompt, judge.threshold)
        return _checked(verdict, judge.kind)

    result = await ask_until(tools.llm, request, read, again, attempts=2)
    verdict = result if isinstance(result, Problem) else result[0]
    if len(tools.pipeline.control.judge.members) > 1:
        tools.watch(f"judgment by {judge.prompt} of {llm.model}", verdict)
    return verdict


def _checked(verdict: Any, kind: str) -> Verdict | Problem:
    """Return the result of a judge's `read`, which may be a user's.

    A level or probability outside its range is a problem of the answer. Raises LlmError for anything of another type.
    """
    if isinstance(verdict, Problem):
        return verdict
    if not issubclass(type(verdict), Verdict):
        raise LlmError(
            f"judge {kind}: read returned {one_line(type(verdict).__name__, 80)}, but must return a Verdict or Problem"
        )
    level, probability = verdict.level, verdict.probability
    is_number = isinstance(probability, int | float | None)
    if type(level) is not int or not is_number or not isinstance(verdict.reason, str):
        raise LlmError(
            f"judge {kind}: a Verdict needs an int as its level, a float as its probability, a str as its reason"
        )
    if not 0 <= level <= _HIGHEST_LEVEL:
        return malformed(f"no level from 0 to {_HIGHEST_LEVEL}")
    if probability is not None and not 0 <= probability <= 1:
        return malformed("no probability from 0 to 1")
    return cast(Verdict, verdict)


def scripted_judge(request: Request) -> str:
    """Return the scripted backend's judgment, based on the share of the query's words that occur in the document."""
    if request.params.get("logprobs"):
        return "Yes" if overlap(request) >= 0.5 else "No"
    return str(min(3, int(overlap(request) * 4)))
