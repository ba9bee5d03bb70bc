"""What a stage is: data plus one function. Everything that the rest of airgen asks about a stage stands in its `Stage`.

    STAGE = Stage("scenario", (Character,), Scenario, 1, work, settings=("scenarios",), prompt=...)

`work(lineage, tools)` is pure apart from its tools: the same lineage and the same answers of the model give the same
rows. It never imports another stage, the store or the job. The stage's fingerprint is a hash of all that the rows
depend on besides their parent: its prompt, the LLM, the languages, the `settings` that it names, and its `parts`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from airgen.errors import AirgenError
from airgen.guard import guarded
from airgen.keys import fingerprint, row_key
from airgen.languages import language_name
from airgen.llms.base import Llm, Request
from airgen.prompts import Prompt, PromptSet
from airgen.records import Passage, Row, Skip
from airgen.retrievers.protocols import Embedder
from airgen.settings import Pipeline, answer_parts
from airgen.settings.base import answer_settings
from airgen.steps.lineage import Lineage, R

Plan = Mapping[str, str]
"""The fingerprint of every stage: rows of other fingerprints belong to other settings and are not read."""

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
    """What a stage may use. Relative paths of the settings start at `folder`. `meaning`, `find` and `apart` may be
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
        """What the model is told for its next attempt."""
        if self.told:
            return self.told
        separator = " " if self.detail.startswith("(") else ": "
        return f"{self.reason}{separator}{self.detail}" if self.detail else self.reason


Work = Callable[[Lineage, Tools], Awaitable[list[Row] | Problem]]
Parts = Callable[[Pipeline, PromptSet], dict[str, Any]]


@dataclass(frozen=True)
class Expected:
    """How many things a job is expected to work on: what `Cost.pieces` computes a stage's share from."""

    pipeline: Pipeline
    samples: float
    queries: float


@dataclass(frozen=True)
class Cost:
    """What a stage is expected to cost before the job has answers of its own: (answer tokens, answers) of one piece of
    work by family of prompts, how many pieces there are, and how many items an answer holds, each of so many tokens."""

    default: tuple[float, float]
    small: tuple[float, float]
    pieces: Callable[[Expected], float]
    items: Callable[[Pipeline], float] = lambda pipeline: 1.0


@dataclass(frozen=True)
class Stage:
    """One arrow of the design.

    reads: types of the parent row: the newest row of the first type that the lineage has.
    writes: the type of its rows; a type that airgen does not know gets a table made from its fields.
    work: makes the rows; a Problem becomes the skip of its parent.
    settings: the fields of `generation` that its rows depend on. parts: what else they depend on, besides the prompt,
    the LLM, the languages and the number of attempts, which count for every stage that has a prompt.
    beside: further types of rows that it may write; they are kept and shown, and no stage reads them.
    ends: a skip here ends the lineage.
    belongs: whether a row of this parent is the lineage's (a judgment belongs to the pair that it judges).
    prompt: the name of its prompt, without the family `small/`; None for a stage that asks no prompt of its own.
    cost, stand_in, scripted: see `estimate`, `airgen check prompts` and the scripted backend. `stand_in` gives, for a
    passage, what the prompts of this stage and of later ones take besides the document.
    show: what `airgen show` prints of a lineage: JSON values, and lines for the terminal.
    label: its name in the funnel. after, code: for a stage from outside airgen, the stage that it follows, and the
    digest of its module.
    """

    name: str
    reads: tuple[type[Row], ...]
    writes: type[Row]
    version: int
    work: Work
    parts: Parts = lambda pipeline, prompts: {}
    settings: tuple[str, ...] = ()
    beside: tuple[type[Row], ...] = ()
    ends: bool = True
    belongs: Callable[[Any, Lineage], bool] = lambda row, lineage: True
    prompt: Callable[[Pipeline], str] | None = None
    cost: Cost | None = None
    stand_in: Callable[[Pipeline, Passage], dict[str, Any]] = lambda pipeline, passage: {}
    scripted: Callable[[Request], str] | None = None
    show: Callable[[Lineage], tuple[dict[str, Any], list[str]]] = lambda lineage: ({}, [])
    label: str = ""
    after: str = ""
    code: Mapping[str, str] = field(default_factory=dict)

    def fingerprint(self, pipeline: Pipeline, prompts: PromptSet) -> str:
        """The hash of all that this stage's rows depend on besides their parents."""
        values = answer_settings(pipeline.generation)
        found = {"settings": {name: values[name] for name in self.settings}, **self.parts(pipeline, prompts)}
        if self.prompt is not None:
            name = self.prompt(pipeline)
            found |= {
                "prompt": stage_prompt(pipeline, prompts, name).fingerprint,
                "llm": answer_parts(pipeline.llm),
                "languages": [pipeline.language, pipeline.query_language if name in QUERY_PROMPTS else None],
                "attempts": ATTEMPTS,
            }
        if self.code:
            found["code"] = dict(self.code)
        return fingerprint(stage=self.name, version=self.version, **found)

    async def run(self, lineage: Lineage, tools: Tools) -> list[Row]:
        """The rows of one piece of work. Raises AirgenError for whatever it raises: a stage may be the user's own."""
        with guarded(f"stage {self.name}", AirgenError):
            made = await self.work(lineage, tools)
        if isinstance(made, list):
            return made
        parent = lineage.parent(self.reads)
        assert parent is not None
        return [skip(self.name, parent.key, tools, made)]

    def done(self, lineage: Lineage) -> bool:
        """Whether the stage was through with a lineage: it made rows, or said why not."""
        return self.name in lineage.skips or bool(lineage.every(self.writes))

    def stopped(self, lineage: Lineage) -> bool:
        """Whether a lineage ended here."""
        return self.ends and self.name in lineage.skips

    def asks(self, pipeline: Pipeline) -> bool:
        """Whether the pipeline's settings let this stage ask its prompt at all."""
        return self.cost is not None and self.cost.pieces(Expected(pipeline, 1.0, 1.0)) > 0


QUERY_PROMPTS = frozenset({"query", "searches", "query_like", "query_two_passages", "rewrite"})
"""The prompts whose answers are in the language of the queries; all others answer in that of the corpus."""


def asked_language(pipeline: Pipeline) -> str:
    """The language that a query's prompt asks for, in words; it names the document's, too, where it is another one."""
    if not pipeline.cross_lingual:
        return language_name(pipeline.language)
    source = language_name(pipeline.language)
    return f"{language_name(pipeline.query_language)}, not in {source} (the language of the document)"


def stage_prompt(pipeline: Pipeline, prompts: PromptSet, name: str) -> Prompt:
    """The prompt that a stage asks: the variant that the pipeline names, else the one of its family.

    Its instructions are in the language of the answer where there is a translation, shipped or beside the pipeline.
    Elsewhere they are in English and name that language, as in the paper.
    """
    generation = pipeline.generation
    language = pipeline.query_language if name in QUERY_PROMPTS else pipeline.language
    family = f"small/{name}" if generation.prompts == "small" else name
    return prompts.get(prompts.in_language(generation.variants.get(name, family), language))


def made(kind: type[R], stage: str, parent: str, tools: Tools, ordinal: int, *values: Any) -> R:
    """A row of a stage: the number `ordinal` of those that it makes of one parent."""
    fp = tools.plan[stage]
    return kind(row_key(stage, parent, fp, ordinal), parent, fp, ordinal, *values)


def skip(stage: str, parent: str, tools: Tools, why: Problem) -> Skip:
    """The row that says why a piece of work ended without one."""
    fp = tools.plan[stage]
    detail = "\n".join(part for part in (why.detail, why.answer) if part)[:2000]
    return Skip(row_key(f"skip/{stage}", parent, fp), parent, fp, 0, stage, why.reason, detail, why.cause)
