"""The definition of a step: data plus one function. It holds everything that the rest of airgen needs to know about it.

    SCENARIO = Step("scenario", (Character,), Scenario, 1, work=work, settings=("scenarios",), prompt=...)
    RECALL = WholeStep("recall", (Query,), Recall, 1, work=work, parts=parts, label="recall", model=...)

A `Step` asks about one parent, such as a lineage or a pair to judge: `work(parent, tools)` returns the rows made from
it. It is pure apart from its tools: the same parent and the same answers from the model give the same rows. A
`WholeStep` needs all of its parents and the corpus at once, and `work(whole, model)` yields its rows in batches. A
source, such as the corpus, is a whole step without parents. No step imports another step or the job.

A step's fingerprint is a hash of everything on which its rows depend besides their parents. `airgen.steps.loops` has
the two loops that run steps: work without a row of this fingerprint is pending.
"""

import threading
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from airgen.components.keys import fingerprint, row_key
from airgen.errors import AirgenError
from airgen.llms.base import Llm, Request
from airgen.llms.prompts import Prompt, PromptSet
from airgen.retrievers.protocols import Embedder, IndexProgress
from airgen.safety.escaping import one_line
from airgen.safety.guard import guarded
from airgen.settings import Pipeline, answer_parts
from airgen.settings.base import answer_settings
from airgen.settings.languages import language_name
from airgen.steps.lineage import Lineage, R
from airgen.steps.progress import Display
from airgen.storage.records import Passage, Row, Skip
from airgen.storage.store import Store

Plan = Mapping[str, str]
"""The fingerprint of every step. Rows with other fingerprints belong to other settings and are not read."""

ATTEMPTS = 3
"""The maximum number of tries of the LLM until an answer passes the checks."""

Cause = Literal["llm", "malformed", "check", "settings", "control"]
"""Why work ended without a row: a failed call, an unreadable answer, an answer that failed a check, a setting that
disables the step, or quality control.
"""


Find = Callable[["Lineage", Sequence[str], int], Awaitable[Sequence[float]]]
"""The lead of a sample's source over a number of other passages, for each text as a query: -1 to 1, where the source is
retrieved from 0 on (`airgen.generation.round_trip`).
"""


@dataclass(frozen=True)
class Tools:
    """What a step may use. Paths in the settings are relative to `folder`. `meaning`, `find` and `apart` are optional:
    they check that a rewrite keeps its meaning, that queries retrieve their source, and that a passage has no near
    copy.

    `watch(name, value or Problem)` raises LlmError if a member of a panel gives no usable answers.
    """

    pipeline: Pipeline
    prompts: PromptSet
    plan: Plan
    llm: Llm
    meaning: Embedder | None = None
    folder: Path | None = None
    watch: Callable[[str, object], None] = lambda name, found: None
    find: Find | None = None
    apart: Callable[["Lineage"], Awaitable[float]] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with an answer, or why a prompt has no usable answer.

    `reason` is counted, and `detail` is about this case. The model is told both, or `feedback` instead. `answer` is its
    last answer.
    """

    reason: str
    detail: str = ""
    cause: Cause = "check"
    feedback: str = ""
    answer: str = ""

    @property
    def text(self) -> str:
        """Return what to tell the model for its next attempt."""
        if self.feedback:
            return self.feedback
        separator = " " if self.detail.startswith("(") else ": "
        return f"{self.reason}{separator}{self.detail}" if self.detail else self.reason


class Parent(Protocol):
    """A parent from which a step makes rows. It holds the rows made from it so far, and the skips by step."""

    @property
    def skips(self) -> Mapping[str, Skip]: ...

    def every(self, kind: type[R]) -> tuple[R, ...]:
        """Return all rows of a type."""
        ...

    def parent_key(self, reads: Sequence[type[Row]]) -> str:
        """Return the parent key for the rows of a step that reads these types."""
        ...

    def extended(self, rows: Sequence[Row]) -> Self:
        """Return this parent with the rows of one more step."""
        ...


@dataclass(frozen=True, kw_only=True)
class Whole:
    """The input of a `WholeStep`: all of its parents, and what it needs to read and write.

    Attributes:
        plan: The fingerprints of finished steps.
        stopping: Set when the user stops the job.
        encoding: Called with the number of passages that a model has encoded.
        partly: Called with the number of finished pieces of the current batch.
        fingerprint, pending: Fingerprint of the running step, and the keys of its parents without a row.
    """

    store: Store
    display: Display
    plan: Plan = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)
    encoding: IndexProgress = lambda done, total: None
    partly: Callable[[int], None] = lambda done: None
    fingerprint: str = ""
    pending: Sequence[str] = ()

    @property
    def parents(self) -> Collection[str]:
        """Return the keys of all parents. A source is its own only parent."""
        return ("",)


@dataclass(frozen=True)
class RowBatch:
    """Rows that are saved before the next batch begins.

    Attributes:
        done: Number of items that they finish. Default: the number of their parents.
        note: Text for the progress bar.
        first: The position of the first row in its corpus.
    """

    rows: Sequence[Any]
    done: int | None = None
    note: str | None = None
    first: int = 0


def put_rows(whole: Whole, batch: RowBatch) -> None:
    """Write a batch in one transaction."""
    whole.store.put(batch.rows)


ShownLine = tuple[str, str]
"""A label and a text for `airgen show`."""

Work = Callable[[Any, Tools], Awaitable[list[Row] | Problem]]


@dataclass(frozen=True)
class Expected:
    """The expected numbers of items in a job, from which `Cost.pieces` computes a step's share."""

    pipeline: Pipeline
    samples: float
    queries: float


@dataclass(frozen=True)
class Cost:
    """The expected cost of a step before the job has its own answers: (answer tokens, answers) per item by prompt
    family, the number of items, and how many entries an answer contains and their length in tokens."""

    default: tuple[float, float]
    small: tuple[float, float]
    pieces: Callable[[Expected], float]
    items: Callable[[Pipeline], float] = lambda pipeline: 1.0


@dataclass(frozen=True)
class Step:
    """A step that makes rows from one parent at a time: one arrow in the design.

    Args:
        name: Name in the plan, in skips and in calls.
        reads: Types of the parent row, which is the newest row of the first type that the lineage has.
        writes: Type of its rows. For a third-party type, a table is derived from its fields.
        version: Incremented when the work changes, so that it is done again.
        work: Function that makes the rows; see the module. A Problem becomes the skip of its parent.
        parts: Function that returns what the rows depend on besides their parents. If the step has a prompt, the
            prompt, the LLM, the languages and the number of attempts are added.
        settings: Fields of `generation` on which its rows depend.
        beside: Further types of rows that it may write, which are saved and shown, but not read by other steps.
        ends: Whether a skip in this step ends the lineage.
        belongs: Function that returns whether a row with this parent belongs to the lineage (a judgment belongs to the
            judged pair).
        prompt: Name of its prompt, without the family `small/`, or None if it has no prompt of its own.
        cost, stand_in, scripted: For `estimate`, `airgen check prompts` and the scripted backend. `stand_in` returns,
            for a passage, the inputs that the prompts of this step and later steps need besides the document.
        show: Function that returns what `airgen show` prints about a lineage: JSON values, and rows of a label and a
            text.
        label: Name in the funnel and in the progress display.
        after: For a third-party step, the step that it follows.
    """

    name: str
    reads: tuple[type[Any], ...]
    writes: type[Any]
    version: int
    _: KW_ONLY
    work: Work
    parts: Callable[[Pipeline, PromptSet], dict[str, Any]] = lambda pipeline, prompts: {}
    settings: tuple[str, ...] = ()
    beside: tuple[type[Any], ...] = ()
    ends: bool = True
    belongs: Callable[[Any, Lineage], bool] = lambda row, lineage: True
    prompt: Callable[[Pipeline], str] | None = None
    cost: Cost | None = None
    stand_in: Callable[[Pipeline, Passage], dict[str, Any]] = lambda pipeline, passage: {}
    scripted: Callable[[Request], str] | None = None
    show: Callable[[Lineage], tuple[dict[str, Any], list[ShownLine]]] = lambda lineage: ({}, [])
    label: str = ""
    after: str = ""

    def fingerprint(self, pipeline: Pipeline, prompts: PromptSet) -> str:
        """Return the hash of everything on which this step's rows depend besides their parents."""
        values = answer_settings(pipeline.generation)
        parts = self.parts(pipeline, prompts) | {"settings": {name: values[name] for name in self.settings}}
        if self.prompt is not None:
            name = self.prompt(pipeline)
            parts |= {
                "prompt": stage_prompt(pipeline, prompts, name).fingerprint,
                "llm": answer_parts(pipeline.llm),
                "languages": [pipeline.language, pipeline.query_language if name in QUERY_PROMPTS else None],
                "attempts": ATTEMPTS,
            }
        return fingerprint(stage=self.name, version=self.version, **parts)

    async def run(self, parent: Parent, tools: Tools) -> list[Row]:
        """Return the rows made from one parent.

        Raises AirgenError for any exception, because the step may be third-party code.
        """
        with guarded(f"stage {self.name}", AirgenError):
            rows = await self.work(parent, tools)
        if isinstance(rows, Problem):
            return [skip(self.name, parent.parent_key(self.reads), tools, rows)]
        if not isinstance(rows, list) or not all(isinstance(row, Row) for row in rows):
            raise AirgenError(
                f"stage {self.name}: work returned {_kinds(rows)}, but must return a list of rows or a Problem"
            )
        return rows

    def done(self, parent: Parent) -> bool:
        """Return whether the step has finished a parent, with rows or with a skip."""
        return self.name in parent.skips or bool(parent.every(self.writes))

    def stopped(self, parent: Parent) -> bool:
        """Return whether a lineage ended in this step."""
        return self.ends and self.name in parent.skips

    def asks(self, pipeline: Pipeline) -> bool:
        """Return whether this step asks its prompt at all under the pipeline's settings."""
        return self.cost is not None and self.cost.pieces(Expected(pipeline, 1.0, 1.0)) > 0


Pending = Callable[[Any, type[Any], str], Sequence[str]]
"""The keys of the parents of a whole step that it must still process, given `whole`, the type of its rows and its
fingerprint."""


def without_rows(whole: Whole, kind: type[Any], fingerprint: str) -> Sequence[str]:
    """Return the parents that have no row of this type and fingerprint."""
    return whole.store.pending(kind, fingerprint, whole.parents)


def all_parents(whole: Whole, kind: type[Any], fingerprint: str) -> Sequence[str]:
    """Return all parents, for a step that reads what may have grown."""
    return list(whole.parents)


def unless_read(complete: Callable[[Store, str], bool]) -> Pending:
    """Return the pending work of a source, which is all or nothing: `complete` says whether it was read to its end."""
    return lambda whole, kind, fingerprint: [] if complete(whole.store, fingerprint) else list(whole.parents)


@dataclass(frozen=True)
class WholeStep:
    """A step that needs all of its parents and the corpus at once.

    Args:
        name, reads, writes, version: As of a `Step`. `reads` is empty for a source.
        label: Name in the progress display.
        work: Function that yields the rows in batches, given `whole` and the model.
        parts: Function that returns what the rows depend on besides their parents, given `whole` and the model.
        model: Function that loads the model, once, for `work` and `parts`.
        note: Function that returns the text for the progress bar, given the model.
        pending: Function that returns the parents that must still be processed. Default: those without a row.
        pieces: Function that returns how many pieces of work some parents are, by default one each: the unit of the
            progress bar.
        write: Function that writes a batch.
    """

    name: str
    reads: tuple[type[Any], ...]
    writes: type[Any]
    version: int
    _: KW_ONLY
    label: str
    work: Callable[[Any, Any], Iterator[RowBatch]]
    parts: Callable[..., dict[str, Any]] = lambda *given, **named: {}
    model: Callable[[Any], Any] = lambda whole: None
    note: Callable[[Any], str] = lambda model: ""
    pending: Pending = without_rows
    pieces: Callable[[Any, Collection[str]], int] = lambda whole, keys: len(keys)
    write: Callable[[Any, RowBatch], None] = put_rows

    def fingerprint(self, *given: Any, **named: Any) -> str:
        """Return the hash of everything on which this step's rows depend besides their parents. Takes the arguments of
        `parts`: `whole` and the model, or those of a source."""
        # The part after the colon is the position among several equal steps: prelabel:0.
        return fingerprint(stage=self.name.partition(":")[0], version=self.version, **self.parts(*given, **named))


QUERY_PROMPTS = frozenset(
    {
        *("query", "searches", "query_like", "query_two_passages", "rewrite"),
        *("needs/one_call", "needs/need", "needs/wordings"),
    }
)
"""The prompts whose answers are in the language of the queries instead of the corpus."""


def asked_language(pipeline: Pipeline) -> str:
    """Describe the language that a query's prompt asks for, including the document's language if it differs."""
    if not pipeline.cross_lingual:
        return language_name(pipeline.language)
    source = language_name(pipeline.language)
    return f"{language_name(pipeline.query_language)}, not in {source} (the language of the document)"


def stage_prompt(pipeline: Pipeline, prompts: PromptSet, name: str) -> Prompt:
    """Return the prompt of a step: the variant that the pipeline names, or else the prompt of its family.

    Its instructions are in the language of the answer if there is a translation, built in or next to the pipeline.
    Otherwise, they are in English and name that language, as in the paper.
    """
    generation = pipeline.generation
    language = pipeline.query_language if name in QUERY_PROMPTS else pipeline.language
    family = f"small/{name}" if generation.prompts == "small" else name
    return prompts.get(prompts.in_language(generation.variants.get(name, family), language))


def make_row(
    kind: type[R], stage: str, parent: str, tools: Tools, /, ordinal: int = 0, *values: Any, **fields: Any
) -> R:
    """Make a row of a step.

    Args:
        kind: Type of the row.
        stage: Name of the step.
        parent: Key of the parent row.
        tools: Tools of the step, whose plan has its fingerprint.
        ordinal: Position of the row among those made from the same parent.
        *values: Further fields of the row, by position.
        **fields: Further fields of the row, by name.
    """
    fp = tools.plan[stage]
    return kind(row_key(stage, parent, fp, ordinal), parent, fp, ordinal, *values, **fields)


def _kinds(value: object) -> str:
    """Return the class of a value and, for a list, of its elements."""
    inside = ", ".join(dict.fromkeys(type(item).__name__ for item in value)) if isinstance(value, list) else ""
    return one_line(f"{type(value).__name__}{f' of {inside}' if inside else ''}", 80)


def skip(stage: str, parent: str, tools: Tools, problem: Problem) -> Skip:
    """Return the row that says why work ended without a result."""
    fp = tools.plan[stage]
    detail = "\n".join(part for part in (problem.detail, problem.answer) if part)[:2000]
    return Skip(
        key=row_key(f"skip/{stage}", parent, fp),
        parent=parent,
        fingerprint=fp,
        ordinal=0,
        stage=stage,
        reason=problem.reason,
        detail=detail,
        cause=problem.cause,
    )
