"""What a step is: data plus one function. Everything that the rest of airgen asks about a step stands in its `Step`.

    SCENARIO = Step("scenario", (Character,), Scenario, 1, work=work, settings=("scenarios",), prompt=...)
    RECALL = Step("recall", (Query,), Recall, 1, work=work, parts=parts, whole=True, model=...)

`work(parent, tools)` gives the rows that are made from one parent, such as a lineage or a pair to judge. It is pure
apart from its tools: the same parent and the same answers of the model give the same rows. A step with `whole=True`
needs all its parents and the corpus at once: `work(whole, model)` yields its rows in batches. A source, such as the
corpus, is a whole step without parents. No step imports another one, or the job.

A step's fingerprint is a hash of all that its rows depend on besides their parents. `airgen.steps.loops` has the two
loops that run steps: what is pending has no row of this fingerprint yet.
"""

import threading
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, Self, cast

from airgen.errors import AirgenError
from airgen.guard import guarded
from airgen.keys import fingerprint, row_key
from airgen.languages import language_name
from airgen.llms.base import Llm, Request
from airgen.prompts import Prompt, PromptSet
from airgen.records import Passage, Row, Skip
from airgen.retrievers.protocols import Embedder, IndexProgress
from airgen.settings import Pipeline, answer_parts
from airgen.settings.base import answer_settings
from airgen.steps.lineage import Lineage, R
from airgen.steps.progress import Display
from airgen.store import Store

Plan = Mapping[str, str]
"""The fingerprint of every step: rows of other fingerprints belong to other settings and are not read."""

ATTEMPTS = 3
"""How often the LLM may try until an answer passes the checks."""

Cause = Literal["llm", "malformed", "check", "settings", "control"]
"""Why work ended without a row: a failed call, an answer that could not be read, an answer that failed a check, a
setting that asks for none, or quality control."""


Find = Callable[["Lineage", Sequence[str], int], Awaitable[Sequence[float]]]
"""How far the source of one sample is ahead of so many other passages, for each of some texts as queries: -1 to 1, from
0 on it is found (`airgen.generation.round_trip`)."""


@dataclass(frozen=True)
class Tools:
    """What a step may use. Relative paths of the settings start at `folder`. `meaning`, `find` and `apart` may be
    absent: they check that a rewrite keeps its meaning, that queries find their source again, and that a passage has no
    near copy.

    `watch(name, value or Problem)` raises LlmError where one member of a panel gives no usable answers.
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
    """What is wrong with an answer, or why a prompt got none that can be used.

    `reason` is counted, `detail` is this one's; the model is told both, or `told`. `answer` is what it wrote last.
    """

    reason: str
    detail: str = ""
    cause: Cause = "check"
    told: str = ""
    answer: str = ""

    @property
    def text(self) -> str:
        """Return what the model is told for its next attempt."""
        if self.told:
            return self.told
        separator = " " if self.detail.startswith("(") else ": "
        return f"{self.reason}{separator}{self.detail}" if self.detail else self.reason


class Parent(Protocol):
    """What a step makes rows from, one at a time: it holds the rows that were made from it, and the skips by step."""

    @property
    def skips(self) -> Mapping[str, Skip]: ...

    def every(self, kind: type[R]) -> tuple[R, ...]:
        """Return all rows of a type."""
        ...

    def parent_key(self, reads: Sequence[type[Row]]) -> str:
        """Return the key that rows of a step that reads these types have as their parent."""
        ...

    def extended(self, rows: Sequence[Row]) -> Self:
        """Return the same with the rows of one more step."""
        ...


@dataclass(frozen=True, kw_only=True)
class Whole:
    """What a step with `whole=True` works on: all its parents, and what it needs to read and to write.

    Attributes:
        plan: The fingerprints of finished steps.
        stopping: Set when the user stops the job.
        encoding: Is told how many passages a model has encoded.
        fingerprint, pending: Of the step that is running, and the keys of its parents without a row.
    """

    store: Store
    display: Display
    plan: Plan = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)
    encoding: IndexProgress = lambda done, total: None
    fingerprint: str = ""
    pending: Sequence[str] = ()

    @property
    def parents(self) -> Collection[str]:
        """Return the keys of all parents. A source is its own only parent."""
        return ("",)


@dataclass(frozen=True)
class RowBatch:
    """Rows that are on the disk before the next batch begins.

    Attributes:
        done: How many pieces of work they finish; by default their parents.
        note: For the progress bar.
        first: The position of the first row in its corpus.
    """

    rows: Sequence[Any]
    done: int | None = None
    note: str | None = None
    first: int = 0


def put_rows(whole: Whole, batch: RowBatch) -> None:
    """Write a batch in one transaction."""
    whole.store.put(batch.rows)


Told = tuple[str, str]
"""A label and a text of `airgen show`."""

Work = Callable[[Any, Tools], Awaitable[list[Row] | Problem]]
WholeWork = Callable[[Any, Any], Iterator[RowBatch]]


@dataclass(frozen=True)
class Expected:
    """How many things a job is expected to work on: what `Cost.pieces` computes a step's share from."""

    pipeline: Pipeline
    samples: float
    queries: float


@dataclass(frozen=True)
class Cost:
    """What a step is expected to cost before the job has answers of its own: (answer tokens, answers) of one piece of
    work by family of prompts, how many pieces there are, and how many items an answer holds, each of so many tokens."""

    default: tuple[float, float]
    small: tuple[float, float]
    pieces: Callable[[Expected], float]
    items: Callable[[Pipeline], float] = lambda pipeline: 1.0


@dataclass(frozen=True)
class Step:
    """One arrow of the design.

    Args:
        name: In the plan, and of its skips and calls.
        reads: Types of the parent row: the newest row of the first type that the lineage has. None for a source.
        writes: The type of its rows; a type that airgen does not know gets a table made from its fields.
        version: Raised when the work changes, so that it is done again.
        work: Makes the rows; see the module. A Problem becomes the skip of its parent.
        parts: What the rows depend on besides their parents: `parts(pipeline, prompts)`, or `parts(whole, model)`.
            With a prompt, the prompt, the LLM, the languages and the number of attempts are added.
        whole: All parents are worked on together.

        settings: The fields of `generation` that its rows depend on.
        beside: Further types of rows that it may write; they are kept and shown, and no step reads them.
        ends: A skip here ends the lineage.
        belongs: Whether a row of this parent is the lineage's (a judgment belongs to the pair that it judges).
        prompt: The name of its prompt, without the family `small/`; None for a step that asks no prompt of its own.
        cost, stand_in, scripted: See `estimate`, `airgen check prompts` and the scripted backend. `stand_in` gives, for
            a passage, what the prompts of this step and of later ones take besides the document.
        show: What `airgen show` prints of a lineage: JSON values, and rows of a label and a text.
        label: Its name in the funnel and in the progress display.
        after, code: For a step from outside airgen, the step that it follows, and the digest of its module.

        model: Makes the model of a whole step, once; `work` and `parts` get it. note: what the progress bar says of it.
        always: All parents of a whole step are pending each time: what it reads may have grown.
        complete: Whether a source is read to its end.
        write: Writes a batch of a whole step.
    """

    name: str
    reads: tuple[type[Any], ...]
    writes: type[Any]
    version: int
    _: KW_ONLY
    work: Work | WholeWork
    parts: Callable[..., dict[str, Any]] = lambda *given, **named: {}
    whole: bool = False
    settings: tuple[str, ...] = ()
    beside: tuple[type[Any], ...] = ()
    ends: bool = True
    belongs: Callable[[Any, Lineage], bool] = lambda row, lineage: True
    prompt: Callable[[Pipeline], str] | None = None
    cost: Cost | None = None
    stand_in: Callable[[Pipeline, Passage], dict[str, Any]] = lambda pipeline, passage: {}
    scripted: Callable[[Request], str] | None = None
    show: Callable[[Lineage], tuple[dict[str, Any], list[Told]]] = lambda lineage: ({}, [])
    label: str = ""
    after: str = ""
    code: Mapping[str, str] = field(default_factory=dict)
    model: Callable[[Any], Any] = lambda whole: None
    note: Callable[[Any], str] = lambda model: ""
    always: bool = False
    complete: Callable[[Store, str], bool] | None = None
    write: Callable[[Any, RowBatch], None] = put_rows

    def fingerprint(self, *given: Any, **named: Any) -> str:
        """Return the hash of all that this step's rows depend on besides their parents. It takes what `parts` takes."""
        parts = self.parts(*given, **named)
        if self.whole:  # what stands behind the colon is the place of one of several equal steps: prelabel:0
            return fingerprint(stage=self.name.partition(":")[0], version=self.version, **parts)
        return fingerprint(stage=self.name, version=self.version, **{**parts, **self._asked(*given)})

    def _asked(self, pipeline: Pipeline, prompts: PromptSet) -> dict[str, Any]:
        """Return what the rows of a step for one parent depend on: its settings, prompt, LLM, languages and code."""
        values = answer_settings(pipeline.generation)
        asked: dict[str, Any] = {"settings": {name: values[name] for name in self.settings}}
        if self.prompt is not None:
            name = self.prompt(pipeline)
            asked |= {
                "prompt": stage_prompt(pipeline, prompts, name).fingerprint,
                "llm": answer_parts(pipeline.llm),
                "languages": [pipeline.language, pipeline.query_language if name in QUERY_PROMPTS else None],
                "attempts": ATTEMPTS,
            }
        if self.code:
            asked["code"] = dict(self.code)
        return asked

    async def run(self, parent: Parent, tools: Tools) -> list[Row]:
        """Return the rows of one piece of work.

        Raises AirgenError for whatever it raises: a step may be the user's own.
        """
        with guarded(f"stage {self.name}", AirgenError):
            rows = await cast(Work, self.work)(parent, tools)
        if isinstance(rows, list):
            return rows
        return [skip(self.name, parent.parent_key(self.reads), tools, rows)]

    def batches(self, whole: Whole, model: Any) -> Iterator[RowBatch]:
        """Return the rows of a whole step, batch by batch."""
        return cast(WholeWork, self.work)(whole, model)

    def done(self, parent: Parent) -> bool:
        """Return whether the step was through with a parent: it made rows, or said why not."""
        return self.name in parent.skips or bool(parent.every(self.writes))

    def stopped(self, parent: Parent) -> bool:
        """Return whether a lineage ended here."""
        return self.ends and self.name in parent.skips

    def pending(self, whole: Whole, fingerprint: str) -> list[str]:
        """Return the keys of the parents of a whole step that have no row of this fingerprint."""
        if self.complete is not None:
            return [] if self.complete(whole.store, fingerprint) else list(whole.parents)
        rows = () if self.always else whole.store.made(self.writes, fingerprint, whole.parents)
        known = {row.parent for row in rows}
        return [key for key in whole.parents if key not in known]

    def asks(self, pipeline: Pipeline) -> bool:
        """Return whether the pipeline's settings let this step ask its prompt at all."""
        return self.cost is not None and self.cost.pieces(Expected(pipeline, 1.0, 1.0)) > 0


QUERY_PROMPTS = frozenset({"query", "searches", "query_like", "query_two_passages", "rewrite"})
"""The prompts whose answers are in the language of the queries; all others answer in that of the corpus."""


def asked_language(pipeline: Pipeline) -> str:
    """Return the language that a query's prompt asks for, in words; it names the document's, too, where it is another
    one."""
    if not pipeline.cross_lingual:
        return language_name(pipeline.language)
    source = language_name(pipeline.language)
    return f"{language_name(pipeline.query_language)}, not in {source} (the language of the document)"


def stage_prompt(pipeline: Pipeline, prompts: PromptSet, name: str) -> Prompt:
    """Return the prompt that a step asks: the variant that the pipeline names, else the one of its family.

    Its instructions are in the language of the answer where there is a translation, shipped or beside the pipeline.
    Elsewhere they are in English and name that language, as in the paper.
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
        kind: The type of the row.
        stage: The name of the step.
        parent: The key of the parent row.
        tools: The tools of the step, whose plan has its fingerprint.
        ordinal: The row's number among those that the step makes from one parent.
        *values: Further fields of the row, by position or by name.
        **fields: The same.
    """
    fp = tools.plan[stage]
    return kind(row_key(stage, parent, fp, ordinal), parent, fp, ordinal, *values, **fields)


def skip(stage: str, parent: str, tools: Tools, problem: Problem) -> Skip:
    """Return the row that says why a piece of work ended without one."""
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
