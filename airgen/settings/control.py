"""Quality control: recall, re-rankers, thresholds, judges."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from airgen.components.registry import resolve, target_of
from airgen.errors import AirgenError
from airgen.settings.base import Settings
from airgen.settings.llm import LlmSettings
from airgen.settings.spec import Part, Spec

VOTES, NONE = "votes", "none"
"""The kinds of judge that call no LLM: re-rankers vote, or the user's own labels are the only ones."""

DEFAULT_KIND = "paper"  # agreed with people in 77% of 300 pairs, `levels` in 74% (docs/notes/control.md)


def about_the_subject(judge: dict[str, Any]) -> dict[str, Any]:
    """Return the judge with the default prompt and cutoff for `relevance: subject`, unless it sets its own.

    A panel whose judges have different cutoffs keeps the cutoff for answers.
    """
    judges = [_about_the_subject(member) for member in judge.get("panel") or [judge]]
    cuts = {cut for _, cut in judges}
    own = {"panel": [member for member, _ in judges]} if judge.get("panel") else judges[0][0]
    return {**({"relevant_from": cuts.pop()} if len(cuts) == 1 else {}), **judge, **own}


def _about_the_subject(judge: Any) -> tuple[Any, int]:
    kind = judge.get("kind", DEFAULT_KIND) if isinstance(judge, dict) else VOTES
    if kind in (VOTES, NONE):
        return judge, JudgeSettings.model_fields["relevant_from"].default
    try:
        prompt, cut = resolve("judge", str(kind)).SUBJECT
    except (AirgenError, AttributeError):  # `OneJudge` reports what is wrong; the user's own kind may lack it
        return judge, JudgeSettings.model_fields["relevant_from"].default
    return {**judge, "prompt": judge.get("prompt") or prompt}, cut


class RecallSettings(Settings):
    """Settings of recall with an embedding model (paper 2.4, step 1)."""

    model: Annotated[Spec, Part("embedder")] = "BAAI/bge-m3"  # type: ignore[assignment]  # it is read as one
    top_k: int = Field(default=1000, ge=1)  # passages per retriever and query
    pools_only: bool = False  # recall with only `control.pools`, so that the model can be tested


class Thresholds(Settings):
    """Ranks within which a re-ranker votes positive (appendix A.3)."""

    hard_negative: int = Field(default=20, ge=1)  # the rank down to which re-rankers vote for generated hard negatives
    other: int = Field(default=10, ge=1)  # the rank down to which re-rankers vote for passages of the corpus


AUDIT = "audit"  # the examples that `airgen audit examples` has chosen


class JudgeExample(Settings):
    """A pair that a person has judged, with the level and a reason in one sentence."""

    query: str
    passage: str
    level: int = Field(ge=0, le=3)
    why: str = ""


class OneJudge(Settings):
    """One judge: a prompt, how its answers are read, and which model is asked (appendix A.3, Table 8).

    With `paper`, the answer is a number, and the prompt is Table 8, word for word; with `levels`, the prompt says what
    each level means. With `yes-no`, for small models, the probability of Yes is read from the first token.
    With `rubric`, the answer is a reason, then a number. A third-party kind is named `module:Class`.
    """

    kind: str = DEFAULT_KIND  # paper, levels, yes-no, rubric or module:Class; the whole judge can also be votes or none
    prompt: str = ""  # by default, the kind's own prompt
    threshold: float = Field(default=0.5, gt=0, lt=1)  # yes-no: the probability from which a pair is relevant
    temperature: float = Field(default=0.0, ge=0, le=2)  # the temperature of the judge
    examples: Literal["audit"] | list[JudgeExample] = []  # pairs that people judged, which the judge sees as examples
    llm: SerializeAsAny[LlmSettings] | None = None  # a model other than the generator

    @model_validator(mode="before")
    @classmethod
    def _kind_is_known(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.get("kind") in (VOTES, NONE):
            return value
        try:
            kind = target_of("judge", str(value.get("kind", DEFAULT_KIND)))
            own = resolve("judge", kind).PROMPT
        except AirgenError as error:
            raise ValueError(f"kind: {error}") from error
        named = {"kind": kind} if kind != value.get("kind", DEFAULT_KIND) else {}
        return {**value, "prompt": value.get("prompt") or own, **named}


class JudgeSettings(OneJudge):
    """The LLM as labeler: one judge, or a panel of judges that vote.

    `relevant_from` is the lowest level that counts as relevant; it is 1 by default if `relevance` is subject and the
    judge gives levels. With `kind: votes`, no LLM is asked: a passage is relevant if every re-ranker scores it close to
    the query's source (`airgen.steps.votes`). With `kind: none`, only the labels of your own queries count, and no
    model is needed.
    """

    relevant_from: int = Field(default=2, ge=1, le=3)  # the lowest level that counts as relevant
    panel: list[OneJudge] = []  # several judges, whose majority decides

    @property
    def members(self) -> list[OneJudge]:
        """Return the judges to ask: the panel, this judge, or none."""
        return list(self.panel) or ([] if self.kind in (VOTES, NONE) else [self])

    @property
    def labels_only(self) -> bool:
        """Return whether nothing is retrieved or judged, and the user's own labels are the only ones."""
        return self.kind == NONE

    @property
    def llms(self) -> list[LlmSettings]:
        """Return the judges' own LLMs, besides the generator."""
        return [member.llm for member in self.members if member.llm is not None]

    @model_validator(mode="before")
    @classmethod
    def _a_panel_judges_alone(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("panel"):
            kinds = [member.get("kind") for member in value["panel"] if isinstance(member, dict)]
            if silent := [kind for kind in kinds if kind in (VOTES, NONE)]:
                raise ValueError(f"panel: the kind `{silent[0]}` calls no LLM and cannot be part of a panel: remove it")
            own = sorted({"kind", "prompt", "threshold", "temperature", "llm", "examples"} & set(value))
            if own:
                raise ValueError(f"{own[0]}: cannot be given beside a panel: give it in each judge of the panel")
        return value


class ControlSettings(Settings):
    """Settings of quality control (paper 2.4)."""

    recall: RecallSettings = Field(default_factory=RecallSettings)
    pools: list[Annotated[Spec, Part("retriever")]] = []  # bm25, rm3, ...: retrievers that add hits to the recall
    rerankers: list[Annotated[Spec, Part("reranker")]] = [  # the models that vote on which passages are relevant
        "BAAI/bge-reranker-large",  # type: ignore[list-item]  # they are read as such
        "maidalun1020/bce-reranker-base_v1",  # type: ignore[list-item]
        "nreimers/mmarco-mMiniLMv2-L12-H384-v1",  # type: ignore[list-item]
    ]
    thresholds: Thresholds = Thresholds()
    # A query that more passages than this answer, besides its source, is vague: only its source counts. Votes always
    # have this limit. None: all count, as in Table 2.
    most_others: Annotated[int, Field(ge=0)] | None = None
    systems: str | None = None  # a systems YAML file, whose systems (services, run files, ...) add hits to the recall
    judge: JudgeSettings = Field(default_factory=JudgeSettings)

    @property
    def recallers(self) -> dict[str, Spec]:
        """Return the components that recall passages, by their place below `control`; none if only the user's own
        labels count."""
        if self.judge.labels_only:
            return {}
        own = {} if self.recall.pools_only else {"recall.model": self.recall.model}
        return own | {f"pools.{number}": spec for number, spec in enumerate(self.pools)}

    @property
    def voters(self) -> dict[str, Spec]:
        """Return the re-rankers that vote, by their place below `control`; none if only the user's own labels count."""
        if self.judge.labels_only:
            return {}
        return {f"rerankers.{number}": spec for number, spec in enumerate(self.rerankers)}

    @property
    def votes_decide(self) -> bool:
        """Return whether the re-rankers' votes are the labels, without an LLM."""
        return not self.judge.members and bool(self.voters)

    @model_validator(mode="after")
    def _recalls(self) -> Self:
        if self.recall.pools_only and not self.pools:
            raise ValueError("recall.pools_only needs at least one of control.pools, as otherwise nothing is recalled")
        return self

    @field_validator("rerankers")
    @classmethod
    def _some(cls, value: list[Spec]) -> list[Spec]:
        if not value:
            raise ValueError("at least one re-ranker is needed for a majority")
        return value
