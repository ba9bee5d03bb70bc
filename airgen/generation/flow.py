"""The stages in the paper's order, including third-party stages that a pipeline names.

flow = Flow.of(pipeline)
flow.candidates           from the character to the judgment of the query's own document
flow.every                and the hard negatives, which only accepted queries get
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airgen.components.registry import closest, resolve
from airgen.components.user_code import own_code
from airgen.errors import AirgenError, SettingsError
from airgen.generation import needs, own_judgment, query, rewrite, small_needs
from airgen.generation.character import CHARACTER
from airgen.generation.hard_negative import HARD_NEGATIVE
from airgen.generation.reference_answer import REFERENCE_ANSWER
from airgen.generation.scenario import SCENARIO
from airgen.llms.base import Request
from airgen.llms.prompts import PromptSet
from airgen.settings import Pipeline
from airgen.steps.step import Step

CANDIDATES: tuple[Step, ...] = (CHARACTER, SCENARIO, query.STAGE, rewrite.STAGE, own_judgment.STAGE)
"""The paper's steps."""

NEEDS: tuple[Step, ...] = (
    needs.CHARACTER,
    needs.SCENARIO,
    needs.NEED,
    needs.QUERY,
    needs.WORDINGS_STEP,
    own_judgment.STAGE,
)
"""The steps of `generation.method: needs`. A need is judged once, by its query, whatever its wordings are."""

SMALL_NEEDS: tuple[Step, ...] = (
    CHARACTER,
    SCENARIO,
    small_needs.NEED,
    query.STAGE,
    small_needs.WORDINGS,
    own_judgment.STAGE,
)
"""The same for a small model."""


@dataclass(frozen=True)
class Flow:
    """The stages of a pipeline. `accepted` are the stages for accepted queries only."""

    candidates: tuple[Step, ...] = CANDIDATES
    accepted: tuple[Step, ...] = (HARD_NEGATIVE,)

    @classmethod
    def of(cls, pipeline: Pipeline) -> "Flow":
        """Assemble the stages of a pipeline.

        They are airgen's own stages, with reference answers on request, and each stage in `generation.stages` after the
        stage it names.

        A pipeline with `queries` generates nothing. Raises SettingsError if a stage cannot be imported, has a name that
        is already used, or follows an unknown stage, or if no stage uses the prompt of a variant.
        """
        if not pipeline.generates:
            return cls((), ())
        generation = pipeline.generation
        candidates = list(CANDIDATES)
        if generation.method == "needs":
            candidates = list(SMALL_NEEDS if generation.prompts == "small" else NEEDS)
        accepted = [HARD_NEGATIVE]
        if pipeline.generation.answers:
            accepted.append(REFERENCE_ANSWER)
        for target in pipeline.generation.stages:
            where = f"generation.stages: {target}"
            try:
                stage = resolve("stage", target)
            except AirgenError as error:
                raise SettingsError([f"{where}: {error}"]) from error
            if not isinstance(stage, Step):
                raise SettingsError([f"{where}: it is not a Step of airgen.steps.step"])
            names = [step.name for step in [*candidates, *accepted]]
            if stage.name in names:
                raise SettingsError([f"{where}: another stage is called {stage.name!r}: give it another name"])
            if stage.after not in names:
                raise SettingsError([f"{where}: it follows {stage.after!r}{closest(stage.after, names)}"])
            part = candidates if any(step.name == stage.after for step in candidates) else accepted
            stage = replace(stage, parts=_with_code(stage, target))
            part.insert([step.name for step in part].index(stage.after) + 1, stage)
        asked = [step.prompt(pipeline) for step in [*candidates, *accepted] if step.prompt is not None]
        asked += [query.TWO_PASSAGES] if pipeline.generation.multi_hop else []
        for name in sorted(set(pipeline.generation.variants) - set(asked)):
            raise SettingsError([f"generation.variants: no stage asks a prompt {name!r}{closest(name, asked)}"])
        return cls(tuple(candidates), tuple(accepted))

    @property
    def every(self) -> Sequence[Step]:
        """Return all stages in order."""
        return (*self.candidates, *self.accepted)

    @property
    def scripted(self) -> dict[str, Callable[[Request], str]]:
        """Return the scripted backend's rules by stage, which answer the prompts of both methods."""
        stages = (own_judgment.STAGE, *self.every)  # quality control judges all queries, however they were generated
        rules = {stage.name: stage.scripted for stage in stages if stage.scripted is not None}
        return {needs.NEED.name: needs.scripted, **{name: _of_either(rule) for name, rule in rules.items()}}


def _with_code(stage: Step, target: str) -> Callable[[Pipeline, PromptSet], dict[str, Any]]:
    """Return the parts of a third-party stage with the digest of its module."""
    if not (code := own_code(target)):
        return stage.parts
    return lambda pipeline, prompts: stage.parts(pipeline, prompts) | {"code": dict(code)}


def _of_either(rule: Callable[[Request], str]) -> Callable[[Request], str]:
    """Return a rule that also answers the prompts of needs, whose stages have the names of the paper's."""

    def answer(request: Request) -> str:
        return needs.scripted(request) if needs.is_of_needs(request) else rule(request)

    return answer
