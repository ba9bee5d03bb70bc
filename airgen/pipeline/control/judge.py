"""The LLM as labeler: one (query, document) pair to a level of 0 to 3 (paper, appendix A.3, Table 8).

`airgen.pipeline.control.judge_kinds` has the kinds. The kind `votes` asks nobody: the re-rankers decide
(`airgen.pipeline.control.votes`).

Several judges vote: the level is their lower median, so that a pair counts as relevant, wherever the levels are cut,
exactly where more than half of the judges say so. A tie is not relevant.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from airgen.llms.answers import corrective
from airgen.llms.base import Request
from airgen.llms.scripted import overlap
from airgen.pipeline.ask import ask_until
from airgen.pipeline.control.judge_kinds import JudgeKind, Verdict
from airgen.pipeline.control.need import Asker, need_of, need_parts, with_need
from airgen.pipeline.stage import Refusal, Tools
from airgen.prompts import PromptSet
from airgen.records import Answer
from airgen.registry import resolve
from airgen.settings import OneJudge, Pipeline, answer_parts


def judge_kind(judge: OneJudge) -> JudgeKind:
    """The kind of a judge."""
    return resolve("judge", judge.kind)()  # type: ignore[no-any-return]


def judge_parts(pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    """What a judgment depends on besides its pair. The cut between levels is no part of it: the raw level is kept."""
    judge = pipeline.control.judge
    found = [_parts(member, pipeline, prompts) for member in judge.members]
    need = need_parts(pipeline, prompts)
    return {"panel": found, **need} if len(found) != 1 or judge.panel else {**found[0], **need}


def _parts(judge: OneJudge, pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
    return {
        "prompt": prompts.get(judge.prompt).fingerprint,
        "kind": judge.kind,
        "temperature": judge.temperature,
        "threshold": None if judge_kind(judge).GRADED else judge.threshold,
        "llm": {**answer_parts(judge.llm or pipeline.llm), "temperature": judge.temperature},
    }


def judge_name(pipeline: Pipeline) -> str:
    """How rows name the judge: its prompt, or the panel's prompts."""
    return " + ".join(member.prompt for member in pipeline.control.judge.members) or "votes"


async def judge_pair(tools: Tools, query: str, document: str, asker: Asker | None = None) -> Verdict | Refusal:
    """The verdict of the pipeline's judge or panel. Each judge is asked once a pair, whichever stage asks.

    `asker`: who asks and when, where that is known; only `judge.need` reads it.
    """
    members = tools.pipeline.control.judge.members
    if tools.pipeline.control.judge.need:
        query = with_need(query, await need_of(tools, query, asker or Asker()))
    found = await asyncio.gather(*(_ask(tools, member, query, document) for member in members))
    return found[0] if len(members) == 1 else vote(found)


def vote(found: Sequence[Verdict | Refusal]) -> Verdict | Refusal:
    """A panel's verdict: the lower median of the levels, the mean of the probabilities that were given.

    Judges that refuse are left out, and named in the reason. Where half or more refuse, the panel refuses.
    """
    verdicts = [one for one in found if isinstance(one, Verdict)]
    refusals = [one for one in found if isinstance(one, Refusal)]
    if len(refusals) * 2 >= len(found):
        first = refusals[0]
        detail = f"({len(refusals)} of {len(found)} judges) {first.problem.detail}"
        return Refusal(replace(first.problem, detail=detail), first.answer)
    levels = sorted(one.level for one in verdicts)
    given = [one.probability for one in verdicts if one.probability is not None]
    votes = [str(one.level) if isinstance(one, Verdict) else f"refused ({one.reason})" for one in found]
    reasons = [one.reason for one in verdicts if one.reason]
    return Verdict(
        levels[(len(levels) - 1) // 2],
        math.fsum(given) / len(given) if given else None,
        "; ".join([f"votes {', '.join(votes)}", *reasons]),
    )


async def _ask(tools: Tools, judge: OneJudge, query: str, document: str) -> Verdict | Refusal:
    llm, kind = judge.llm or tools.pipeline.llm, judge_kind(judge)
    prompt = tools.prompts.get(judge.prompt)
    params = {"temperature": judge.temperature, **kind.PARAMS}
    schema = prompt.schema if kind.FORM == "schema" else None
    messages = prompt.render(query=query, document=document)
    request = Request(llm.model, messages, params, schema, 0, llm.endpoint, "judgment")

    def again(first: Request, answer: Answer, problem: str, attempt: int) -> Request:
        return corrective(first, answer.text, kind.WISH)

    found = await ask_until(
        tools.llm, request, lambda answer: kind.read(answer, prompt, judge.threshold), again, attempts=2
    )
    verdict = found if isinstance(found, Refusal) else found[0]
    if len(tools.pipeline.control.judge.members) > 1:
        tools.watch(f"judgment by {judge.prompt} of {llm.model}", verdict)
    return verdict


def scripted_judge(request: Request) -> str:
    """The scripted backend's judgment: by the share of the query's words that stand in the document."""
    if request.params.get("logprobs"):
        return "Yes" if overlap(request) >= 0.5 else "No"
    return str(min(3, int(overlap(request) * 4)))
