"""The content of a dataset before it is written: rows and their checks, facts and licences.

`DatasetContent` is all that `airgen.dataset.write.write_dataset` needs. As in BEIR, the rows are documents, queries and
relevance labels. The first invalid row raises a DatasetError.

An airgen dataset is an adaptation of its source: it contains passages from the source and generated hard negatives.
Publishing therefore requires a licence that allows adaptations to be redistributed.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from airgen.errors import DatasetError

if TYPE_CHECKING:
    from airgen.dataset.secret import Secret


# The Hub's identifiers, without those for models.
_HUB_NAMES = """
apache-2.0 mit afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda
cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0
cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0
cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0
wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 lgpl-lr
isc lppl-1.3c ms-pl mpl-2.0 odc-by odbl osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl unknown other
"""
_HUB = frozenset(_HUB_NAMES.split())
_ALIASES = {
    "public-domain": "cc0-1.0",
    "odc-by-1.0": "odc-by",
    "odbl-1.0": "odbl",
    "pddl-1.0": "pddl",
    "gpl-3.0-only": "gpl-3.0",
    "gpl-3.0-or-later": "gpl-3.0",
    "gpl-2.0-only": "gpl-2.0",
    "gpl-2.0-or-later": "gpl-2.0",
}

_FORBIDDING = (
    (re.compile(r"\bnd\b|no[- ]?derivat", re.I), "it allows no derivatives, and this dataset is one"),
    (re.compile(r"all rights reserved|proprietary|confidential|closed", re.I), "it keeps all rights"),
    (re.compile(r"no[nt]?[- ]?(re)?distribut|not be (re)?distributed|internal use", re.I), "it forbids redistribution"),
    (re.compile(r"arxiv.{0,200}?(non-?exclusive|perpetual)", re.I), "it lets only arXiv distribute the text"),
)
_UNKNOWN = re.compile(r"^\W*+(?:(?:unknown|none|n/?a|unspecified|other)\W*+)?$", re.I)


def hub_licence(licence: str) -> str:
    """Return the Hub's identifier for a licence, or `other`.

    >>> hub_licence("CC BY-NC-SA 4.0"), hub_licence("GPL-3.0-or-later"), hub_licence("Python-2.0")
    ('cc-by-nc-sa-4.0', 'gpl-3.0', 'other')
    """
    name = re.sub(r"[\s_]+", "-", licence.strip().lower())
    name = _ALIASES.get(name, name)
    return name if name in _HUB else "other"


def check_redistribution(licence: str, *, permission: str = "") -> None:
    """Raise DatasetError, which quotes the licence, if it forbids redistribution or is unknown.

    `permission` quotes the rights holder's permission, if any, which is recorded in the card's notes.
    """
    if permission.strip():
        return
    for pattern, reason in _FORBIDDING:
        if pattern.search(licence):
            raise DatasetError(
                f"the source's licence is {licence!r}: {reason}. It is not published; "
                "if the rights holder allows it, quote the permission with --permission"
            )
    if _UNKNOWN.match(licence):
        raise DatasetError(
            f"the source's licence is {licence!r}: without one, nothing can be redistributed. Name the licence in the "
            "corpus's YAML, or quote the rights holder's permission with --permission"
        )


# In the metadata of queries: false if nothing answers a query, which tells its labels.
ANSWERED = "answered"
# In the metadata of queries: `filter.version: 2` means that only passages with this value of `version` are sought.
FILTER = "filter."

# In the metadata of queries: the share of its content words in the passage, of those that answer it, that has most of
# them; the parts of that share that are names or numbers, and that are in the title; and the mean over these passages
# (`airgen.text.overlap`). They tell something of the labels.
OVERLAP, NAMED_OVERLAP, TITLE_OVERLAP, MEAN_OVERLAP = "overlap", "overlap_names", "overlap_title", "overlap_mean"
# In the metadata of queries: the name of the wording of its need that was chosen.
WORDING = "wording"

RESERVED = frozenset(
    {"split", "count", "judged", "words", ANSWERED, OVERLAP, NAMED_OVERLAP, TITLE_OVERLAP, MEAN_OVERLAP, WORDING}
)
"""Names in the metadata of a query that airgen writes, and the user's own may not have."""

WORDINGS_FILE = "wordings.jsonl"
"""The wordings of each query's need, which share its labels."""

TASKS = ("qa", "long-doc")
"""The paper's two tasks (section 3.1): nDCG@10 is the head measure of qa, Recall@10 of long-doc."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?")

SHORT_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
"""Valid names of splits and variants, which are parts of file names."""


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """A dataset's name, task, languages, source and licences.

    Attributes:
        seed: The seed, or None if it is secret.
        splits: Ratios of the splits.
        relevant_from: The lowest level of the judge that counts as relevant.
        levels: The judge's levels, if they differ from the paper's Table 8.
        tokenizer: Tokenizer used for the statistics.
        source_licence: Licence of the corpus.
        labels_licence: Licence of the queries and labels.
        personal_data: A sentence about which personal data is masked and which remains.
        unmasked: Whether personal data that the paper removes (A.1) remains, such as names of persons.
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
    personal_data: str = ""
    unmasked: bool = False

    @property
    def all_languages(self) -> tuple[str, ...]:
        """Return `languages`, or the single language."""
        return self.languages or (self.language,)


@dataclass(frozen=True, slots=True)
class CorpusRow:
    """A document of the corpus (BEIR's term for a passage)."""

    id: str
    title: str
    text: str
    metadata: Mapping[str, Any] | None = None  # None: the corpus has none


@dataclass(frozen=True, slots=True)
class QueryRow:
    """An accepted query. `metadata` is public: it contains only scalars, and must not name the positive."""

    id: str
    text: str
    split: str
    metadata: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WordingRow:
    """One wording of a query's need, which has the labels of the query. `overlap` is that with the passage that the
    need was written from, or None if the wording has no content word."""

    query: str
    wording: str
    text: str
    overlap: float | None = None


@dataclass(frozen=True, slots=True)
class QrelRow:
    """A label. `score` is 0 (hard negative), 1 (relevant) or 2 (relevant, with more certainty).

    `level` is the judge's 0 to 3, `gain` a soft label in [0, 1], if known. `by` says whose label it is if a person's
    has replaced a model's (`airgen.dataset.human_labels`).
    """

    query: str
    document: str
    score: int
    level: int | None = None
    gain: float | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A reference answer to a query: `text`, and the supporting `quote` at [start, end) in a document's text."""

    query: str
    document: str
    text: str
    quote: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ParentRow:
    """The document of which a passage is a chunk, and the chunk's character offsets [start, end) in its text."""

    passage: str
    document: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A model, its `role` (judge, recall, reranker, ...), and its prompt, if any."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    role: str
    model: str
    prompt: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """The numbers of items that entered and passed a stage, and why the others did not pass."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    stage: str
    entered: int
    left: int
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetContent:
    """The content of a dataset directory.

    Attributes:
        corpus: The passages, possibly as a stream in any order.
        lineage: Rows that name the document from which each query was generated. Never published with the queries.
        count_tokens: Function that counts tokens for the statistics. Default: `count_words_and_characters`.
        secret: The secret on which ids and splits depend, if any.
        wordings: The wordings of each query's need, that of the query among them; none if queries have one wording.
        parents: The position of each passage in its document, if passages are chunks. It is saved with the lineage,
            because a generated document has none.
        notes: Notes for the manifest.
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
    wordings: Iterable[WordingRow] = ()
    parents: Iterable[ParentRow] = ()
    count_tokens: Callable[[str], int] | None = None
    secret: "Secret | None" = None
    notes: Mapping[str, Any] = field(default_factory=dict)


def check_info(info: DatasetInfo) -> None:
    """Check the task, and that names can be parts of file and repository names. Raises DatasetError."""
    for name in ("name", "domain", "language", "version"):
        value = getattr(info, name)
        if not _NAME.fullmatch(value) or ".." in value:
            raise DatasetError(
                f"dataset {name} {value!r} cannot be used in file and repository names: "
                "use letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
            )
    if info.task not in TASKS:
        raise DatasetError(f"dataset task {info.task!r} is unknown: use one of {', '.join(TASKS)}")
    for split in info.splits:
        if not SHORT_NAME.fullmatch(split):
            raise DatasetError(f"split name {split!r} cannot be used: use small letters, digits and '_'")


_BAD_ID = re.compile(r"[\s\x00-\x1f\x7f\u2028\u2029\ufeff]")
_UNFIT = re.compile(r"[\s\x00-\x1f\x7f\u2028\u2029\ufeff\ud800-\udfff%]")


def check_id(identifier: str, kind: str) -> None:
    """Check that an id is suitable for TSV and TREC files: not empty, and without white space. Raises DatasetError."""
    if not isinstance(identifier, str) or not identifier or _BAD_ID.search(identifier):
        raise DatasetError(f"{kind} id {identifier!r} is empty or contains whitespace: TREC files cannot contain it")
    try:
        identifier.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DatasetError(f"{kind} id {identifier!r} is not Unicode text") from error


def fitting_id(id_: str) -> str:
    """Escape an id so that TSV and TREC files can contain it: `my file` becomes `my%20file`; most ids are unchanged.

    White space, control characters and lone surrogates are percent-encoded, and so is `%` in such an id.
    """
    try:
        id_.encode("utf-8")
        if not _BAD_ID.search(id_):
            return id_
    except UnicodeEncodeError:
        pass
    return _UNFIT.sub(lambda match: quote(match[0], safe="", errors="surrogatepass"), id_)


def check_document(row: CorpusRow) -> None:
    """Check that a document has a valid id and text. Raises DatasetError."""
    check_id(row.id, "document")
    if not row.text.strip():
        raise DatasetError(f"document {row.id!r} has no text: drop it before the export")


def check_queries(rows: Iterable[QueryRow]) -> list[QueryRow]:
    """Return the queries sorted by id, with valid unique ids, texts, splits and metadata. Raises DatasetError."""
    queries = sorted(rows, key=lambda row: row.id)
    if not queries:
        raise DatasetError("no query was accepted: there is nothing to export (see the funnel for why)")
    types: dict[str, type] = {}
    for before, row in zip([None, *queries], queries, strict=False):
        check_id(row.id, "query")
        if before is not None and before.id == row.id:
            raise DatasetError(f"query id {row.id!r} appears twice: ids must be unique")
        if not row.text.strip():
            raise DatasetError(f"query {row.id!r} has no text")
        if not SHORT_NAME.fullmatch(row.split):
            raise DatasetError(f"query {row.id!r} has the split {row.split!r}: use small letters, digits and '_'")
        for key, value in row.metadata.items():
            if not isinstance(value, str | int | float | bool | None):
                raise DatasetError(f"query {row.id!r}: metadata {key!r} is a {type(value).__name__}, not a scalar")
            if value is not None and types.setdefault(key, type(value)) is not type(value):
                type_name, other_name = type(value).__name__, types[key].__name__
                raise DatasetError(f"query {row.id!r}: metadata {key!r} is a {type_name}, elsewhere a {other_name}")
        if row.metadata.get("split", row.split) != row.split:
            raise DatasetError(f"query {row.id!r}: metadata 'split' differs from its split {row.split!r}")
    return queries


def check_qrels(rows: Iterable[QrelRow], queries: Iterable[QueryRow]) -> list[QrelRow]:
    """Return the labels sorted by query and document. Raises DatasetError.

    Pairs must be unique and their queries known. Scores must be 0 to 2, levels 0 to 3, and gains in [0, 1]. Each query
    must have a positive, or be marked as `answered: false` and have no labels.
    """
    queries = list(queries)
    marked = {row.id for row in queries if row.metadata.get(ANSWERED) is False}
    qrels = sorted(rows, key=lambda row: (row.query, row.document))
    without: Mapping[str, None] = dict.fromkeys(row.id for row in queries)
    positives: set[str] = set()
    last = ("", "")
    for row in qrels:
        pair = (row.query, row.document)
        where = f"label of query {row.query!r} and document {row.document!r}"
        if row.query not in without:
            raise DatasetError(f"{where}: there is no such query")
        if pair == last:
            raise DatasetError(f"{where} appears twice")
        if row.query in marked:
            raise DatasetError(f"{where}: the query is marked as unanswerable")
        if row.score not in (0, 1, 2):
            raise DatasetError(f"{where}: score {row.score!r} is neither 1 or 2 (relevant) nor 0 (hard negative)")
        if row.level is not None and row.level not in (0, 1, 2, 3):
            raise DatasetError(f"{where}: level {row.level!r} is not one of 0 to 3")
        if row.gain is not None and not (math.isfinite(row.gain) and 0 <= row.gain <= 1):
            raise DatasetError(f"{where}: gain {row.gain!r} is not in [0, 1]")
        if row.score:
            positives.add(row.query)
        last = pair
    for identifier in without:
        if identifier not in positives and identifier not in marked:
            raise DatasetError(f"query {identifier!r} has no relevant document: drop it before the export")
    return qrels
