"""The settings of a pipeline: `pipelines/*.yaml` as pydantic models.

Each number of the paper is a default here, with its section. Unknown keys are errors. The environment is read
in one function only (`secret`), and what it returns never enters a model, so it cannot reach a log or a row.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from airgen.errors import SettingsError
from airgen.yamls import load_yaml

__all__ = [
    "ControlSettings",
    "EvaluateSettings",
    "ExportSettings",
    "GenerationSettings",
    "JudgeSettings",
    "LlmSettings",
    "MeaningSettings",
    "OneJudge",
    "Pipeline",
    "RecallSettings",
    "Thresholds",
    "load_pipeline",
    "secret",
]

LENGTHS = ("lt5", "lt10", "10to20", "ge20")
TYPES = ("question", "problem", "claim")
INFORMATION = ("overall", "partial")
STYLES = ("concise", "casual", "informal", "formal", "professional", "complicated", "academic")
LANGUAGES = ("ar", "bn", "de", "en", "es", "fa", "fr", "hi", "id", "ja", "ko", "ru", "zh")

Ratio = Annotated[float, Field(ge=0)]


class Settings(BaseModel):
    """Base: unknown keys are errors, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class LlmSettings(Settings):
    """Which model answers, and how fast, how often and how dearly it may be asked.

    Only `model`, `endpoint`, `temperature`, `top_p` and `max_tokens` can change an answer; the rest may be changed
    at any time without anything being asked again.
    """

    backend: Literal["openai", "embedded", "scripted"] = "openai"
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    endpoint: str = "default"
    temperature: float = Field(default=1.0, ge=0, le=2)  # secondary source on the paper's generation
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int = Field(default=1024, ge=1)
    mode: Literal["live", "batch"] = "live"
    batch_poll_seconds: float = Field(default=30.0, gt=0)  # mode batch: between two looks at a batch that is out
    concurrency: int = Field(default=64, ge=1, le=4096)
    budget_usd: float | None = Field(default=None, ge=0)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    timeout_seconds: float = Field(default=120.0, gt=0)
    retries: int = Field(default=6, ge=0)
    max_failures: float = Field(default=0.2, ge=0)  # below 1 a fraction of the calls, else a count
    prices: dict[str, dict[str, float]] = Field(default_factory=dict)  # model: {input, output, cached} USD a million
    threads: int | None = Field(default=None, ge=1)  # embedded only
    faults: dict[str, float] = Field(default_factory=dict)  # scripted only: fault -> share of the calls
    latency: float = Field(default=0.0, ge=0)  # scripted only: seconds a call

    @model_validator(mode="before")
    @classmethod
    def _offline_defaults(cls, value: Any) -> Any:
        models = {"embedded": "qwen2.5-coder-1.5b", "scripted": "scripted"}
        if isinstance(value, dict) and value.get("backend") in models:
            # One call at a time, and no hurry: a time-out would count the wait for the call before.
            few = {"concurrency": 1, "timeout_seconds": 3600.0} if value["backend"] == "embedded" else {}
            return {"model": models[str(value["backend"])], **few, **value}
        return value

    @field_validator("api_key_env")
    @classmethod
    def _a_name_not_a_key(cls, value: str | None) -> str | None:
        if value is not None and not value.replace("_", "").isalnum():
            raise ValueError("must be the name of an environment variable, not the key itself")
        return value


def _ratios(known: tuple[str, ...], value: dict[str, float]) -> dict[str, float]:
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise ValueError(f"unknown {', '.join(unknown)} (known: {', '.join(known)})")
    if sum(value.values()) <= 0:
        raise ValueError("at least one ratio must be above 0")
    return value


Model = str | dict[str, Any]  # a name, or {kind: ..., settings of that kind}


class MeaningSettings(Settings):
    """The embedding model that checks that a rewrite keeps the meaning of the original query."""

    model: Model
    min_cosine: float = Field(default=0.6, ge=-1, le=1)


class GenerationSettings(Settings):
    """Candidate generation (paper 2.3 and appendix A.2)."""

    lengths: dict[str, Ratio] = {"lt5": 1, "lt10": 4, "10to20": 2, "ge20": 1}
    types: dict[str, Ratio] = {"question": 3, "problem": 1, "claim": 1}
    information: dict[str, Ratio] = {"overall": 1, "partial": 1}
    styles: dict[str, Ratio] = {
        "concise": 5, "casual": 3, "informal": 3, "formal": 1, "professional": 1, "complicated": 1, "academic": 1,
    }  # fmt: skip
    characters: int = Field(default=3, ge=1, le=10)
    scenarios: int = Field(default=3, ge=1, le=10)
    rewrites: int = Field(default=2, ge=0, le=5)
    hard_negatives: tuple[int, int] = (3, 7)
    negatives: Literal["generated", "mined", "both"] = "generated"  # both: as many again, out of the corpus
    mined_ranks: tuple[int, int] = (10, 100)  # of the recall, where unjudged passages are taken from
    attempts: int = Field(default=3, ge=1, le=10)  # tries at one answer that passes the checks
    max_copied_words: int = Field(default=6, ge=2)  # longest run of words a query may share with its document
    max_overlap: float | None = Field(default=None, gt=0, le=1)  # share of the query's stems that its document holds
    max_title_overlap: float | None = Field(default=None, gt=0, le=1)  # share of the title's stems in the query
    query_from: Literal["document", "need"] = "document"  # need: the query's prompt shows the scenario alone
    meaning: MeaningSettings | None = None  # without it, a rewrite's meaning is left to the judge
    prompts: Literal["default", "small"] = "default"
    queries_per_passage: int = Field(default=1, ge=1, le=20)

    @field_validator("lengths")
    @classmethod
    def _lengths(cls, value: dict[str, float]) -> dict[str, float]:
        return _ratios(LENGTHS, value)

    @field_validator("types")
    @classmethod
    def _types(cls, value: dict[str, float]) -> dict[str, float]:
        return _ratios(TYPES, value)

    @field_validator("information")
    @classmethod
    def _information(cls, value: dict[str, float]) -> dict[str, float]:
        return _ratios(INFORMATION, value)

    @field_validator("styles")
    @classmethod
    def _styles(cls, value: dict[str, float]) -> dict[str, float]:
        return _ratios(STYLES, value)

    @field_validator("hard_negatives")
    @classmethod
    def _range(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 0 <= value[0] <= value[1] <= 20:
            raise ValueError("must be [least, most] with 0 <= least <= most <= 20")
        return value

    @field_validator("mined_ranks")
    @classmethod
    def _window(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= value[0] <= value[1]:
            raise ValueError("must be [first, last] with 1 <= first <= last")
        return value

    @property
    def generated_negatives(self) -> tuple[int, int]:
        """How many hard negatives the LLM is asked for: least and most."""
        return (0, 0) if self.negatives == "mined" else self.hard_negatives

    @model_validator(mode="after")
    def _claims_need_length(self) -> GenerationSettings:
        if self.types.get("claim") and not (self.lengths.get("10to20") or self.lengths.get("ge20")):
            raise ValueError(
                "types.claim needs lengths.10to20 or lengths.ge20 above 0: a short claim is ambiguous (A.2.1)"
            )
        return self


class RecallSettings(Settings):
    """Recall with an embedding model (paper 2.4, step 1)."""

    model: Model = "BAAI/bge-m3"
    top_k: int = Field(default=1000, ge=1)
    pools_only: bool = False  # leave the model out and recall with `control.pools` alone: to test the model itself


class Thresholds(Settings):
    """Ranks within which a re-ranker votes positive (appendix A.3)."""

    hard_negative: int = Field(default=20, ge=1)
    other: int = Field(default=10, ge=1)


_JUDGE_PROMPTS = {"levels": "judge", "yes-no": "small/judge_yes_no", "rubric": "judge_rubric"}


class OneJudge(Settings):
    """A prompt, how its answers are read, and who is asked (appendix A.3, Table 8).

    `levels`: the answer is one number. `yes-no`: the probability of Yes is read from the first token, for small
    models. `rubric`: a reason, then the number.
    """

    kind: Literal["levels", "yes-no", "rubric"] = "levels"
    prompt: str = ""  # the kind's own, where none is named
    threshold: float = Field(default=0.5, gt=0, lt=1)  # yes-no: probability from which a pair is relevant
    temperature: float = Field(default=0.0, ge=0, le=2)
    llm: LlmSettings | None = None  # another model than the generator

    @model_validator(mode="before")
    @classmethod
    def _prompt_of_the_kind(cls, value: Any) -> Any:
        if isinstance(value, dict) and not value.get("prompt"):
            return {**value, "prompt": _JUDGE_PROMPTS.get(str(value.get("kind", "levels")), "judge")}
        return value


class JudgeSettings(OneJudge):
    """The LLM as labeler: one judge, or a panel of several with a vote.

    `relevant_from` cuts the levels. `calibration` names the coefficients of a combined judge: a shipped name, or a
    JSON file that `airgen calibrate combined --save` wrote, beside the pipeline. `kind: rerankers` asks no LLM: those
    coefficients decide alone.
    """

    kind: Literal["levels", "yes-no", "rubric", "rerankers"] = "levels"  # type: ignore[assignment]  # one more
    relevant_from: int = Field(default=2, ge=1, le=3)
    panel: list[OneJudge] = []
    calibration: str | None = None

    @property
    def members(self) -> list[OneJudge]:
        """The judges that are asked: the panel, this one, or nobody."""
        return list(self.panel) or ([self] if self.kind != "rerankers" else [])

    @property
    def llms(self) -> list[LlmSettings]:
        """The models that judges bring along, besides the generator."""
        return [member.llm for member in self.members if member.llm is not None]

    @model_validator(mode="before")
    @classmethod
    def _a_panel_judges_alone(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("panel"):
            own = sorted({"kind", "prompt", "threshold", "temperature", "llm", "calibration"} & set(value))
            if own:
                raise ValueError(f"{own[0]}: with a panel, this stands in each of its judges")
        return value

    @model_validator(mode="after")
    def _someone_decides(self) -> JudgeSettings:
        if self.kind == "rerankers" and self.calibration is None:
            raise ValueError("kind rerankers asks no LLM, so it needs a calibration: `small`, or a file of yours")
        return self


class ControlSettings(Settings):
    """Quality control (paper 2.4)."""

    recall: RecallSettings = RecallSettings()
    pools: list[Model] = []  # retrievers whose top `recall.top_k` join the recall's: bm25, rm3, lsa, ...
    rerankers: list[Model] = [
        "BAAI/bge-reranker-large",
        "maidalun1020/bce-reranker-base_v1",
        "nreimers/mmarco-mMiniLMv2-L12-H384-v1",
    ]
    thresholds: Thresholds = Thresholds()
    judge: JudgeSettings = JudgeSettings()

    @model_validator(mode="after")
    def _recalls(self) -> ControlSettings:
        if self.recall.pools_only and not self.pools:
            raise ValueError("recall.pools_only needs control.pools: nothing would be recalled")
        return self

    @field_validator("rerankers")
    @classmethod
    def _some(cls, value: list[Model]) -> list[Model]:
        if not value:
            raise ValueError("at least one re-ranker is needed for a majority")
        return value


class ExportSettings(Settings):
    """The finished dataset (appendix A.4, B.2)."""

    splits: dict[str, int] = {"dev": 1, "test": 4}
    licence: str = "CC-BY-NC-SA-4.0"
    ids: Literal["opaque", "original"] = "opaque"  # opaque ids do not tell generated negatives from passages
    version: str = "0.1"
    drop_saturated: float | None = Field(default=None, gt=0, le=1)  # share of control's systems with a positive on top

    @field_validator("splits")
    @classmethod
    def _splits(cls, value: dict[str, int]) -> dict[str, int]:
        if not value or min(value.values()) < 0 or sum(value.values()) == 0:
            raise ValueError("must give each split a ratio, not all 0")
        return value


class EvaluateSettings(Settings):
    """Systems to evaluate at the end of a run: a systems YAML, or none."""

    systems: str | None = None
    split: str = "test"


class Pipeline(Settings):
    """One benchmark to build: `pipelines/NAME.yaml`."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")
    task: Literal["qa", "long-doc"]
    corpus: str
    language: str = "en"
    domain: str = "web"
    target: int = Field(ge=1)
    seed: int = 42
    llm: LlmSettings
    generation: GenerationSettings = GenerationSettings()
    control: ControlSettings = ControlSettings()
    export: ExportSettings = ExportSettings()
    evaluate: EvaluateSettings = EvaluateSettings()

    @field_validator("language")
    @classmethod
    def _language(cls, value: str) -> str:
        if value not in LANGUAGES:
            raise ValueError(f"must be one of {', '.join(LANGUAGES)}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _long_doc_defaults(cls, value: Any) -> Any:
        """Long-Doc: questions and claims only, no generated hard negatives (appendix A.2.1 and A.2.2)."""
        if not isinstance(value, dict) or value.get("task") != "long-doc":
            return value
        generation = value.get("generation") or {}
        if not isinstance(generation, dict):
            return value
        defaults = {"types": {"question": 3, "claim": 1}, "hard_negatives": [0, 0]}
        return {**value, "generation": {**defaults, **generation}}

    @model_validator(mode="after")
    def _long_doc_rules(self) -> Pipeline:
        if self.task == "long-doc" and self.generation.types.get("problem"):
            raise ValueError("generation.types.problem: the Long-Doc task has questions and claims only (A.2.1)")
        if self.task == "long-doc" and self.generation.generated_negatives[1] > 0:
            raise ValueError("generation.hard_negatives: the Long-Doc task has none (A.2.2), or mined ones")
        if self.generation.negatives != "generated" and self.generation.mined_ranks[0] > self.control.recall.top_k:
            raise ValueError("generation.mined_ranks begin below control.recall.top_k: nothing could be mined")
        return self


def load_pipeline(path: Path) -> Pipeline:
    """Read a pipeline YAML. Raises SettingsError naming every problem with its line."""
    return load_yaml(path, Pipeline)


def secret(name: str | None) -> str | None:
    """The key in an environment variable, stripped, or None where it is not set. The only reader of keys.

    Raises SettingsError, which never shows the value, where it is not one line of ASCII and could not be a header.
    """
    key = os.environ.get(name, "").strip() if name else ""
    if key and not (key.isascii() and key.isprintable()):
        raise SettingsError([f"the value of the environment variable {name} is not one line of ASCII"])
    return key or None
