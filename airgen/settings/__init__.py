"""The settings of a pipeline: `pipelines/*.yaml` as pydantic models.

Defaults follow the paper where it gives a number; docs/differences.md lists the exceptions. Unknown keys are errors.
The environment is read in one function only (`secret`), and its value never enters a model, a log or a row.
"""

import math
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

import yaml
from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from airgen.errors import SettingsError
from airgen.settings.base import FILE, SPEED, Language, Settings, mapping_in, refuse, validate, yaml_text
from airgen.settings.compute import ComputeSettings
from airgen.settings.control import (
    VOTES,
    ControlSettings,
    JudgeExample,
    JudgeSettings,
    OneJudge,
    RecallSettings,
    Thresholds,
    about_the_subject,
)
from airgen.settings.generation import (
    INFORMATION,
    LENGTHS,
    MINED_RANKS,
    STYLES,
    TYPES,
    GenerationSettings,
    MeaningSettings,
)
from airgen.settings.languages import SUPPORTED
from airgen.settings.llm import LlmSettings, answer_parts, by_model, secret
from airgen.settings.model_size import LONG_DOC, derived
from airgen.settings.suite import holds_suite, pipeline_values

__all__ = [
    "INFORMATION",
    "LENGTHS",
    "RELEVANCE",
    "STYLES",
    "TYPES",
    "ComputeSettings",
    "ControlSettings",
    "EvaluateSettings",
    "ExportSettings",
    "GenerationSettings",
    "JudgeExample",
    "JudgeSettings",
    "LabelFile",
    "Labelling",
    "LlmSettings",
    "MeaningSettings",
    "OneJudge",
    "Pipeline",
    "QueriesSettings",
    "RecallSettings",
    "Thresholds",
    "answer_parts",
    "load_pipeline",
    "read_pipeline",
    "secret",
]


class LabelFile(Settings):
    """Existing labels: qrels, a table of queries, documents and ratings, or a judgment list of OpenSearch.

    Labels of `relevant_from` or more are relevant. Instead, `levels` can map labels to the judge's levels (0 to 3), of
    which `control.judge.relevant_from` or more are relevant.
    """

    file: Annotated[str, FILE]
    relevant_from: float = 1.0  # the lowest label that counts as relevant
    levels: dict[float, int] = {}  # label -> level from 0 to 3
    # What the labels name: passages, or the documents (pages) that they are parts of. A document's label goes to the
    # passage that the re-rankers prefer. auto: documents, if most ids are those of documents.
    level: Literal["auto", "passage", "document"] = "auto"
    unknown: Literal["error", "skip"] = "error"  # what to do with labels of unknown passages or queries
    query_column: str = ""  # columns of a table that have no usual names
    document_column: str = ""
    rating_column: str = ""

    @field_validator("levels")
    @classmethod
    def _known(cls, value: dict[float, int]) -> dict[float, int]:
        if wrong := [level for level in value.values() if not 0 <= level <= 3]:
            raise ValueError(f"{wrong[0]} is not a level: levels are 0 to 3")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = self.levels and "relevant_from" in self.model_fields_set
        refuse((given, "levels: cannot be combined with relevant_from: remove one of them"))
        return self


class QueriesSettings(Settings):
    """Existing queries, in place of `generation`. Columns that are not named are detected by their usual names."""

    file: Annotated[str, FILE]  # text with a query per line, CSV, TSV, JSON Lines, or a folder in BEIR format
    column: str = ""  # the column of the query's text
    id_column: str = ""
    count_column: str = ""  # the column of the number of times that the query was asked
    metadata: list[str] | None = (
        None  # columns to keep, for `--by` and the report; null: those with few different values
    )
    duplicates: Literal["near", "exact", "keep"] = "near"  # which repeated queries are merged; their counts add up
    other_language: Literal["skip", "keep"] = "skip"  # what to do with queries in a language other than `language`
    draw_by: Literal["count", "equal"] = "count"  # draws `target` queries by how often they were asked, or equally
    max_length: int = Field(default=2000, ge=1, le=100_000)  # characters; longer queries are left out
    labels: list[LabelFile] = []  # existing labels; these pairs are not judged again


class ExportSettings(Settings):
    """Settings of the finished dataset (appendix A.4, B.2)."""

    splits: dict[str, int] = {"dev": 1, "test": 4}  # the ratio in which queries are split
    exact: bool = False  # exactly in that ratio; by default, a hash assigns each query, so only the mean ratio is right
    licence: str = "CC-BY-NC-SA-4.0"  # the licence of the queries and labels
    ids: Literal["opaque", "original"] = "opaque"  # opaque ids do not reveal which passages are generated
    version: str = "0.1"  # the version of the dataset, in its manifest and card
    secret: bool = True  # ids, splits and order depend on a secret; with false, anyone can compute them

    @field_validator("splits")
    @classmethod
    def _splits(cls, value: dict[str, int]) -> dict[str, int]:
        if not value or min(value.values()) < 0 or sum(value.values()) == 0:
            raise ValueError("must give each split a ratio, not all 0")
        return value


class EvaluateSettings(Settings):
    """Systems to evaluate at the end of a run, from a systems YAML."""

    systems: str | None = None  # a systems YAML file, by path or name
    split: str = "test"  # the queries to evaluate; all: every query
    # A server or a folder; MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD hold its user and password.
    mlflow: str | None = None  # where MLflow logs scores, cost and artefacts (needs the tracking extra)

    @field_validator("mlflow")
    @classmethod
    def _no_password(cls, value: str | None) -> str | None:
        if value and "@" in urlsplit(value).netloc:
            raise PydanticCustomError(
                "secret",  # the value is not printed
                "remove the user and password from the address: MLflow reads MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD",
            )
        return value


RELEVANCE = {
    "answer": "documents that answer the query, but not documents that are only about the same subject",
    "subject": "documents about the query's subject, whether or not they answer the query",
}
"""The definitions of relevance, by the value of `relevance`."""

FEW = 2
"""The default of `control.most_others` for needs: a need that more than two other passages meet is vague."""

ALL_QUERIES = 1_000_000_000  # the `target` of a pipeline with existing queries that sets none


class Pipeline(Settings):
    """Settings of one benchmark: `pipelines/NAME.yaml`. With `queries`, they are read as its subclass `Labelling`."""

    generates: ClassVar[bool] = True
    """Whether an LLM writes the queries; they are your own in `Labelling`."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")  # the name of the dataset, and of its folder in runs/
    task: Literal["qa", "long-doc"]  # passages are documents (or chunks), or the chunks of one long document
    corpus: str  # a corpus YAML file, by path or name
    language: Language = "en"  # the language of the corpus, as a two-letter code
    domain: str = "web"  # the subject area of the documents, for the dataset's card
    target: int = Field(ge=1)  # the number of accepted queries; if you raise it, existing queries are kept
    seed: int | Literal["secret"] = 42  # for all draws, with the secret of export.secret; secret: only that secret
    # This decides what is asked, what the judge calls relevant, and how near to the source votes must put a passage.
    relevance: Literal["answer", "subject"] = "answer"  # passages that answer the query, or all about its subject
    llm: SerializeAsAny[LlmSettings]  # the LLM that generates, and judges unless the judge has its own
    queries: QueriesSettings | None = None  # your own queries: `target` are drawn and labelled, none are generated
    generation: GenerationSettings = GenerationSettings()
    control: ControlSettings = Field(default_factory=ControlSettings)
    export: ExportSettings = ExportSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    compute: Annotated[ComputeSettings, SPEED] = ComputeSettings()

    @property
    def query_language(self) -> str:
        """Return the language of the queries: `generation.query_language`, or else that of the corpus."""
        return self.generation.query_language or self.language

    @property
    def cross_lingual(self) -> bool:
        """Return whether queries are in another language than the corpus."""
        return self.query_language != self.language

    @property
    def brings_labels(self) -> bool:
        """Return whether there are existing labels, which come from people."""
        return False

    @property
    def draws_in_secret(self) -> bool:
        """Return whether a secret determines which documents or queries are drawn.

        The draw of your own queries tells nothing of their labels, so these can be withheld later without another draw.
        """
        return self.export.secret and (self.generates or self.seed == "secret")

    @property
    def least_passages(self) -> int:
        """Return the number of passages that the corpus must have."""
        return math.ceil(self.target / self.generation.queries_per_passage) if self.generates else 1

    @property
    def votes_accept(self) -> bool:
        """Return whether the re-rankers' votes alone decide if its source answers a generated query."""
        return self.generates and self.control.votes_decide

    @property
    def round_trips(self) -> bool:
        """Return whether a generated query must find its own document: if drafts are compared, or if votes label."""
        return self.generates and (self.generation.candidates > 1 or self.control.votes_decide)

    @property
    def asked_for(self) -> int | None:
        """Return the number of queries asked for, or None for all existing ones."""
        return None if self.target == ALL_QUERIES else self.target

    @property
    def mines_negatives(self) -> bool:
        """Return whether hard negatives are drawn from what the recall finds."""
        return self.generates and self.generation.negatives != "generated"

    @property
    def unanswerable(self) -> float:
        """Return the share of queries whose answers are left out of the corpus."""
        return self.generation.unanswerable if self.generates else 0.0

    @property
    def llms(self) -> dict[tuple[str, str], LlmSettings]:
        """Return the LLMs that are asked, by endpoint and model: those of the generator and the judges."""
        judge = self.control.judge
        asks_own = self.generates or any(member.llm is None for member in judge.members)
        paths = [f"control.judge.panel.{place}.llm" for place in range(len(judge.panel))] or ["control.judge.llm"]
        members = zip(paths, judge.members, strict=False)
        judges = {path: member.llm for path, member in members if member.llm is not None}
        return by_model({**({"llm": self.llm} if asks_own else {}), **judges})

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(cls, value: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        """Read settings with `queries` as those of a job that labels them."""
        own = cls is Pipeline and isinstance(value, dict) and value.get("queries")
        return Labelling.model_validate(value, context=info.context) if own else handler(value)  # type: ignore[return-value]

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, value: Any) -> Any:
        """Add the defaults that depend on other settings.

        They follow from the size of the model (`model_size`), from `generation.method` (a need that many passages meet
        is vague), from `relevance` (a subject has its own judge) and from `task` (A.2.1, A.2.2, A.4: Long-Doc has only
        questions and claims, no generated hard negatives, and one split).
        """
        if not isinstance(value, dict):
            return value
        value = derived(value)
        if value.get("task") == "long-doc":
            for part, defaults in (("generation", LONG_DOC), ("export", {"splits": {"test": 1}})):
                if isinstance(given := value.get(part) or {}, dict):
                    value = {**value, part: {**defaults, **given}}
        control, generation = value.get("control") or {}, value.get("generation") or {}
        needs = isinstance(generation, dict) and generation.get("method") == "needs"
        if needs and isinstance(control, dict):
            subject = value.get("relevance") == "subject"
            # Votes give a query about a subject its many labels without a call; a judge reads only a few passages.
            by_votes = {} if not subject or control.get("judge") else {"judge": {"kind": VOTES}}
            control = {**({} if subject else {"most_others": FEW}), **by_votes, **control}
            value = {**value, "control": control}
        if value.get("relevance") == "subject" and isinstance(control, dict):
            judge = control.get("judge") or {}
            if isinstance(judge, dict):
                value = {**value, "control": {**control, "judge": about_the_subject(judge)}}
        return value

    @field_validator("language")
    @classmethod
    def _language(cls, value: str) -> str:
        if value not in SUPPORTED:
            known = next((code for code, name in SUPPORTED.items() if name.lower() == value.lower()), "")
            meant = f" (did you mean {known!r}?)" if known else ""
            raise ValueError(f"must be one of {', '.join(sorted(SUPPORTED))}{meant}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        generation, control = self.generation, self.control
        long = self.task == "long-doc"
        refuse(
            (
                self.seed == "secret" and not self.export.secret,
                "seed: secret needs export.secret: true, or give a number",
            ),
            (
                control.judge.labels_only and not self.brings_labels,
                "control.judge: with {kind: none}, your own labels are the only ones: name your queries and a file of "
                "labels (queries.labels)",
            ),
            (
                not (self.generates or self.brings_labels or control.judge.members),
                "control.judge: votes compare passages with one that is known to be relevant, and your queries have "
                "none: name a file of labels (queries.labels), or let an LLM judge, such as {kind: yes-no}",
            ),
            (
                any(llm.budget_usd is not None for llm in control.judge.llms),
                "control.judge: budget_usd: the whole job has one budget: give it in llm.budget_usd",
            ),
        )
        _ = self.llms  # raises an error if they contradict each other
        refuse(
            (
                long and generation.types.get("problem"),
                "generation.types.problem: the Long-Doc task has questions and claims only (A.2.1)",
            ),
            (
                long and generation.generated_negatives[1] > 0,
                "generation.hard_negatives: the Long-Doc task has none (A.2.2), or mined ones",
            ),
            (
                self.mines_negatives and control.recall.top_k < MINED_RANKS[0],
                f"generation.negatives are mined from rank {MINED_RANKS[0]} of the recall on: control.recall.top_k is "
                "smaller: raise it",
            ),
        )
        return self


class Labelling(Pipeline):
    """Settings of a job that labels your own queries: a pipeline with `queries`. By default, all of them are drawn."""

    generates: ClassVar[bool] = False
    target: int = Field(default=ALL_QUERIES, ge=1)
    queries: QueriesSettings

    @property
    def brings_labels(self) -> bool:
        """Return whether there are existing labels, which come from people."""
        return bool(self.queries.labels)


def load_pipeline(path: Path) -> Pipeline:
    """Read a pipeline YAML or SUITE.yaml#DATASET. Raises SettingsError, which lists every problem with its line."""
    return read_pipeline(path)[0]


def read_pipeline(path: Path) -> tuple[Pipeline, str]:
    """Return the settings of a pipeline as `load_pipeline` does, and its YAML text: that of its file or, for
    SUITE.yaml#DATASET, its settings in the suite."""
    file, mark, key = str(path).rpartition("#")
    node = None
    if mark and not path.is_file():
        values = pipeline_values(Path(file), key)
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    else:
        text = yaml_text(path)
        values, node = mapping_in(text, str(path))
        if holds_suite(values):
            raise SettingsError([f"{path}: is a suite: name one of its datasets, {path.name}#DATASET"])
    return validate(values, Pipeline, str(path), node=node, folder=path.resolve().parent), text
