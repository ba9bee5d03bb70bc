"""The content of a dataset before it is written: rows, and facts about them for the manifest and the card.

`DatasetContent` is all that `airgen.dataset.write.write_dataset` needs. The rows are BEIR's: documents, queries and
relevance labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from airgen.errors import DatasetError

if TYPE_CHECKING:
    from airgen.dataset.secret import Secret


# In the metadata of queries: false where nothing answers a query, which tells its labels.
ANSWERED = "answered"

TASKS = ("qa", "long-doc")
"""The paper's two tasks (section 3.1): nDCG@10 is the head measure of qa, Recall@10 of long-doc."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?")
# In the manifest's notes: the probabilities from and below which pairs have no label but their soft gain.
UNSURE = "unsure"

SHORT_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
"""The names of splits and variants, which are parts of file names."""


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """Name, task, languages, source and licences of a dataset.

    `seed` is None where it is secret. `splits` are the ratios of the splits. `relevant_from` is the lowest level of the
    judge that counts as relevant. `levels` describes the judge's levels where they differ from the paper's Table 8.
    `tokenizer` is the name of what counted the tokens of the statistics. `source_licence` is the licence of the corpus,
    `labels_licence` that of queries and labels.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    name: str
    task: str
    domain: str
    language: str
    source_licence: str
    labels_licence: str
    version: str
    seed: int | None
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
    """One accepted query. `metadata` is public: it has scalars only, and must not name the positive."""

    id: str
    text: str
    split: str
    metadata: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QrelRow:
    """One label: `score` is 1 or 0; `level` is the judge's 0 to 3, `gain` a soft label in [0, 1], where known.

    A pair that is `unsure` has no label but its gain.
    """

    query: str
    document: str
    score: int
    level: int | None = None
    gain: float | None = None
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A reference answer to a query: `text`, and its words in a document, `quote`, at [start, end) of its text."""

    query: str
    document: str
    text: str
    quote: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ParentRow:
    """The document that a passage is a chunk of, and its place [start, end) in that document's text, in characters."""

    passage: str
    document: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A model, what it was used for (`role`: judge, recall, reranker, ...), and its prompt, if it has one."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    role: str
    model: str
    prompt: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """How many items entered a stage, how many passed it, and why the others did not."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    stage: str
    entered: int
    left: int
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetContent:
    """All that a dataset directory is made of.

    `corpus` can be a stream in any order. The rows of `lineage` (from which document a query was made, and so on) are
    written to a file that is never published with the queries. `count_tokens` counts tokens for the statistics, by
    default with `count_words_and_characters`. `secret` is what ids and splits depend on, if they do. `parents`: where
    each passage stands in its document, where passages are chunks; written beside the lineage, because a generated
    document has none. `notes` are the manifest's.
    """

    info: DatasetInfo
    corpus: Iterable[CorpusRow]
    queries: Iterable[QueryRow]
    qrels: Iterable[QrelRow]
    provenance: Sequence[ModelUse] = ()
    funnel: Sequence[FunnelStep] = ()
    pipeline_yaml: str = ""
    audit: Mapping[str, Any] | None = None
    lineage: Iterable[Mapping[str, Any]] = ()
    answers: Iterable[AnswerRow] = ()
    parents: Iterable[ParentRow] = ()
    count_tokens: Callable[[str], int] | None = None
    secret: Secret | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


def check_info(info: DatasetInfo) -> None:
    """Check that names can be parts of file and repository names, and the task. Raises DatasetError."""
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
        if not SHORT_NAME.fullmatch(split):
            raise DatasetError(f"split name {split!r} cannot be used: use small letters, digits and '_'")
