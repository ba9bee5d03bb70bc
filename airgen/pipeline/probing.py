"""The probe of each LLM of a job, before its first real call.

    profiles = probe_models(job, display.say, budget_usd=0.05)      # asks only models that are not known yet

What it finds is kept in the job's folder: a run that goes on later asks nothing, and the estimate reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from airgen.llms.base import backend_class
from airgen.llms.probe import ModelProfile, probe
from airgen.pipeline.control.judge import judge_kind
from airgen.pipeline.engines import make_engine
from airgen.pipeline.job import Job
from airgen.pipeline.profiles import read_profiles, save_profile
from airgen.settings import LlmSettings, Pipeline

__all__ = ["probe_models", "unprobed"]


def unprobed(job: Job, *, every: bool = False) -> dict[tuple[str, str], LlmSettings]:
    """The LLMs that nobody has asked yet: those whose backend wants to be probed, or `every` one."""
    llms = job.pipeline.llms
    known = read_profiles(job.directory, llms.values())
    return {where: llm for where, llm in llms.items() if where not in known and (every or backend_class(llm).PROBED)}


def probe_models(
    job: Job, say: Callable[[str], None], *, budget_usd: float | None = None, every: bool = False
) -> dict[tuple[str, str], ModelProfile]:
    """Ask each LLM of `unprobed` a few questions; returns the profiles of all LLMs that are known now.

    The cost is part of the job's budget. Raises what the engine raises: LlmError with the server's words, BudgetSpent,
    Stopped.
    """
    new = unprobed(job, every=every)

    async def main() -> None:
        with job.open_store() as store:
            engine = make_engine(
                job.pipeline, store, budget_usd=budget_usd, retry_failed=True, rules=job.flow.scripted, say=say,
                live=True,
            )  # fmt: skip
            async with engine:
                for where, llm in new.items():
                    profile = await probe(engine, llm, logprobs=_wants_logprobs(job.pipeline, llm))
                    profile = replace(profile, known=engine.backend(where).known())
                    save_profile(job.directory, llm, profile)
                    say(f"{llm.model}: {profile.about()}")

    if new:
        asyncio.run(main())
    return read_profiles(job.directory, job.pipeline.llms.values())


def _wants_logprobs(pipeline: Pipeline, llm: LlmSettings) -> bool:
    """Whether a judge that this LLM answers reads log-probabilities."""
    where = (llm.endpoint, llm.model)
    for judge in pipeline.control.judge.members:
        own = judge.llm or pipeline.llm
        if (own.endpoint, own.model) == where and judge_kind(judge).PARAMS.get("logprobs"):
            return True
    return False
