"""What a finished dataset consists of, before it is a directory: plain rows and what is known about them.

`DatasetContent` is all that `airgen.dataset.write.write_dataset` needs. The rows are BEIR's (documents, queries,
relevance labels), the rest goes into the manifest and the card.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airgen.errors import DatasetError

__all__ = [
    "TASKS",
    "CorpusRow",
    "DatasetContent",
    "DatasetInfo",
    "FunnelStep",
    "ModelUse",
    "QrelRow",
    "QueryRow",
    "check_info",
]

TASKS = ("qa", "long-doc")
"""The paper's two tasks (section 3.1): nDCG@10 is the head measure of qa, Recall@10 of long-doc."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?")
_SPLIT = re.compile(r"[a-z][a-z0-9_]{0,30}")


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """What the dataset is called and under which terms it may be used.

    `splits` are the ratios that queries were split by. `relevant_from` is the lowest judged level that counts as
    relevant; `levels` says what the judge's levels mean where they are not those of the paper's Table 8.
    `tokenizer` names what counted the tokens of the statistics. `source` and `source_url` say where the corpus
    came from; `source_licence` is the corpus's, `labels_licence` that of queries and labels.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    name: str
    task: str
    domain: str
    language: str
    source_licence: str
    labels_licence: str
    version: str
    seed: int
    splits: Mapping[str, int]
    languages: tuple[str, ...] = ()
    source: str = ""
    source_url: str = ""
    description: str = ""
    citation: str = ""
    relevant_from: int = 2
    levels: Mapping[int, str] = field(default_factory=dict)
    tokenizer: str = "words"

    @property
    def all_languages(self) -> tuple[str, ...]:
        """`languages`, or the one language."""
        return self.languages or (self.language,)


@dataclass(frozen=True, slots=True)
class CorpusRow:
    """One document of the corpus (BEIR's term; the paper's passage)."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class QueryRow:
    """One accepted query. `metadata` is public: scalars only, and nothing that names its positive."""

    id: str
    text: str
    split: str
    metadata: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QrelRow:
    """One label: `score` is 1 or 0; `level` is the judge's 0 to 3, `gain` a soft label in [0, 1], where known."""

    query: str
    document: str
    score: int
    level: int | None = None
    gain: float | None = None


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A model and the prompt that it answered: `role` is what it was used for (judge, recall, reranker, ...)."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    role: str
    model: str
    prompt: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """How many things entered a stage, how many left it, and why the others did not."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    stage: str
    entered: int
    left: int
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetContent:
    """All that a dataset directory is made of.

    `corpus` may be a stream, in any order. `lineage` rows (from which document a query came, and so on) go into a
    file that is never published with the queries. `count_tokens` counts for the statistics; without it, words.
    """

    info: DatasetInfo
    corpus: Iterable[CorpusRow]
    queries: Iterable[QueryRow]
    qrels: Iterable[QrelRow]
    provenance: Sequence[ModelUse] = ()
    funnel: Sequence[FunnelStep] = ()
    pipeline_yaml: str = ""
    calibration: Mapping[str, Any] | None = None
    audit: Mapping[str, Any] | None = None
    lineage: Iterable[Mapping[str, Any]] = ()
    count_tokens: Callable[[str], int] | None = None


def check_info(info: DatasetInfo) -> None:
    """Refuse names that cannot be a file's or a repository's, and unknown tasks. Raises DatasetError."""
    for what in ("name", "domain", "language", "version"):
        value = getattr(info, what)
        if not _NAME.fullmatch(value) or ".." in value:
            raise DatasetError(
                f"dataset {what} {value!r} cannot be used in file and repository names: "
                "use letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
            )
    if info.task not in TASKS:
        raise DatasetError(f"dataset task {info.task!r} is unknown: use one of {', '.join(TASKS)}")
    for split in info.splits:
        if not _SPLIT.fullmatch(split):
            raise DatasetError(f"split name {split!r} cannot be used: use small letters, digits and '_'")
