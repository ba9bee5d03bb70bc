"""Estimate the cost of a job before the first paid token: calls, tokens and money by stage.

Prompts are rendered with real passages and their tokens counted. The lengths of answers, the number of tries and the
acceptance rate come from the job's own answers if there are enough, and otherwise from the defaults of each stage.
"""

import contextlib
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import itemgetter

from airgen.control.judgment import CHECKED
from airgen.corpus import CorpusSettings, prepare
from airgen.corpus.settings import Task
from airgen.display.study import Column, Table, columns
from airgen.errors import CorpusError, SettingProblem, StoreError
from airgen.job.job import Job
from airgen.job.try_prompts import stand_ins
from airgen.job.user_queries import answers_of_ids, queries_of
from airgen.llms.base import backend_class
from airgen.llms.chat import count_messages
from airgen.llms.money import unknown_price
from airgen.llms.probe import ModelProfile, read_profiles
from airgen.llms.prompts import Prompt, PromptSet
from airgen.publishing.public import same_ids
from airgen.safety.escaping import dollars
from airgen.settings import Labelling, LlmSettings, Pipeline
from airgen.steps.ask import money
from airgen.steps.judge import judge_kind
from airgen.steps.progress import STATUS, number, read_status
from airgen.steps.step import Expected, stage_prompt
from airgen.storage.records import Passage, Query, Rewrite, table_of

PASSAGES = 50  # prompts rendered to determine their mean length
PAIRS = 8.0  # judgments a query beyond its own document: what a majority of three ranks within 10 or 20
ANSWER_SECONDS = 2.0  # seconds per LLM call, if the model was not probed
FEW = 10  # with fewer passages, every system finds the right one

# Shares of the samples whose query passes its checks, and whose document is judged to answer it, by family of prompts.
# Large models follow instructions, and small ones are asked again. These shares and the stages' costs were measured on
# the quick start with the scripted model (default), and there and on three collections with the embedded model (small).
PASSED = {"default": 1.0, "small": 0.75}
ACCEPTED = {"default": 0.75, "small": 0.6}


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum, or None if any value is unknown."""
    terms = list(values)
    return None if None in terms else math.fsum(term or 0.0 for term in terms)


@dataclass(frozen=True)
class StageEstimate:
    """One stage's calls and tokens. `usd` is None if no price is known, `seconds` if the model was not probed."""

    stage: str
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    seconds: float | None = None


@dataclass(frozen=True)
class Estimate:
    """The whole job. `samples` is the number of documents that will be tried, or of the user's queries that are
    labelled.

    `problems` are the reasons why the job cannot finish with its settings: too few documents or too small a budget.
    `head` names the job and its target, and `concurrency` is how many calls are in flight.
    """

    stages: list[StageEstimate]
    samples: int
    warnings: list[str]
    problems: list[str] = field(default_factory=list)
    head: str = ""
    concurrency: int = 1

    @property
    def usd(self) -> float | None:
        """The total, or None if a price is unknown."""
        return known_sum(stage.usd for stage in self.stages)

    @property
    def seconds(self) -> float | None:
        """The duration of all calls without retrieval and re-ranking, or None if a model was not probed."""
        return known_sum(stage.seconds for stage in self.stages)

    @property
    def assumed_seconds(self) -> float:
        """The duration of all calls if each takes `ANSWER_SECONDS`."""
        return sum(stage.calls for stage in self.stages) * ANSWER_SECONDS / max(1, self.concurrency)


@dataclass(frozen=True)
class _Work:
    """One stage's work: the number of items, the answer tokens and tries per item, the prompt and the model."""

    name: str
    pieces: float
    tokens: float
    tries: float
    prompt: Prompt
    llm: LlmSettings

    def priced(self, mean: float, profile: ModelProfile) -> StageEstimate:
        """Estimate the stage from the mean length of its prompt and the profile of the model."""
        calls = round(self.pieces * self.tries)
        # A second attempt includes the first answer and what was wrong with it.
        again = max(0.0, self.tries - 1) * (self.tokens + 30)
        read = round(self.pieces * (mean * self.tries + again) * profile.tokens)
        wrote = round(calls * (self.tokens + profile.thinking))
        price = backend_class(self.llm).price(self.llm)
        usd = None if price is None else price.usd(read, wrote)
        seconds = _seconds(self.llm, profile, calls=calls, prompt_tokens=read, completion_tokens=wrote)
        return StageEstimate(
            stage=self.name,
            model=self.llm.model,
            calls=calls,
            prompt_tokens=read,
            completion_tokens=wrote,
            usd=usd,
            seconds=seconds,
        )


class FirstPassages:
    """The first passages of a corpus, each of which is read and cleaned once, and only if it is needed.

    Names of persons are not masked: a recogniser takes longer than all else, and masks change no estimate.
    """

    def __init__(self, settings: CorpusSettings, task: Task) -> None:
        self._rows = _passages(settings, task)
        self._first: list[Passage] = []
        self._count = 0

    def first(self, most: int = PASSAGES) -> list[Passage]:
        """Return the first passages, at most `PASSAGES`. Raises CorpusError if the corpus cannot be read."""
        self.count(most)
        return self._first[:most]

    def count(self, most: int) -> int:
        """Return how many passages there are, or at least `most` if there are more. Raises CorpusError."""
        for passage in islice(self._rows, max(0, most - self._count)):
            self._count += 1
            if self._count <= PASSAGES:
                self._first.append(passage)
        return self._count


def _passages(settings: CorpusSettings, task: Task) -> Iterator[Passage]:
    if settings.clean.personal_data == "mask":
        settings = settings.model_copy(update={"clean": settings.clean.model_copy(update={"names": "keep"})})
    yield from (row for row in prepare(settings, task) if isinstance(row, Passage))


def estimate(
    job: Job, tokens: int | None = None, budget_usd: float | None = None, passages: FirstPassages | None = None
) -> Estimate:
    """Estimate the calls, tokens and money of a whole job.

    Args:
        job: The job.
        tokens: The mean length of a passage; if given, the corpus is not read.
        budget_usd: A budget that replaces the pipeline's.
        passages: The passages of `job.corpus.unlimited`, if others read them too.

    Raises:
        CorpusError: The corpus cannot be read.
    """
    pipeline = job.pipeline
    if tokens is not None:  # the word ` the` is one token
        first, few = [Passage("", "", 0, " the" * tokens, tokens=tokens)], None
    else:
        passages = passages or FirstPassages(job.corpus.unlimited, pipeline.task)
        first, few = _first_passages(job, passages, pipeline.least_passages)
    inputs = [{"character": "", "scenario": "", **stand_ins(job, passage)} for passage in first]
    seen, family = _observed(job), pipeline.generation.prompts
    if isinstance(pipeline, Labelling):
        own = queries_of(pipeline, job.corpus, job.folder)
        inputs = [{**values, "query": own[place % len(own)]} for place, values in enumerate(inputs)]
        expected = Expected(pipeline, len(own), len(own))
    else:
        passed = PASSED[family]
        accepted = seen.get("accepted", ACCEPTED[family] if pipeline.control.judge.members else passed)
        samples = round(pipeline.target / accepted)
        # A rewrite and a judgment follow each query that passed its checks.
        expected = Expected(pipeline, samples, samples * max(passed, accepted))
    profiles = read_profiles(job.directory, pipeline.llms.values())
    stages: list[StageEstimate] = []
    warnings = []
    if tokens is None and (count := len(first)) < FEW:
        warnings.append(
            f"the corpus has only {count} passage{'s' if count > 1 else ''}, so every system will find the right one: "
            "add documents, or cut them (`chunk` in the corpus YAML)"
        )
    if isinstance(pipeline, Labelling) and pipeline.export.ids == "original":
        answers = answers_of_ids(pipeline, job.folder)
        known = {passage.id for passage in first}
        known |= {document for documents in answers.values() for document in documents}
        if telling := same_ids(answers, known):
            warnings.append(
                f"export.ids: {len(telling):,} of {len(answers):,} queries have the id of a passage, such as "
                f"{telling[0]!r}: their labels cannot be private when the dataset is published; ids: opaque helps"
            )
    for work in _work(job, expected, seen):
        mean = statistics.fmean(count_messages(work.prompt.render(**values)) for values in inputs)
        profile = profiles.get((work.llm.endpoint, work.llm.model), ModelProfile())
        if f"{work.name} tokens" in seen:
            profile = replace(profile, thinking=0.0)  # the observed answers include reasoning
        stages.append(work.priced(mean, profile))
    warnings += unpriced_models(stages)
    samples, concurrency = round(expected.samples), pipeline.llm.concurrency
    head = estimate_head(pipeline, samples)
    estimated = Estimate(stages, samples, warnings, head=head, concurrency=concurrency)
    if few is not None:
        estimated.problems.append(
            SettingProblem(
                f"{pipeline.target:,} queries are requested, but the corpus has only {few:,} passages: add documents, "
                "lower the target, or raise generation.queries_per_passage",
                code="few_passages",
                setting="target",
            )
        )
    budget = pipeline.llm.budget_usd if budget_usd is None else budget_usd
    if budget is not None and estimated.usd is not None and estimated.usd > budget:
        estimated.problems.append(
            SettingProblem(
                f"the job will cost about {dollars(estimated.usd)}, more than its budget of {dollars(budget)}: raise "
                "the budget, or lower the target",
                code="low_budget",
                setting="llm.budget_usd",
            )
        )
    return estimated


def _first_passages(job: Job, passages: FirstPassages, wanted: int) -> tuple[list[Passage], int | None]:
    """Return some passages, and their total number if it is below `wanted`."""
    first = passages.first()
    if not first:
        raise CorpusError(f"corpus {job.pipeline.corpus}: no passage is left after cleaning")
    count = passages.count(wanted)
    count = min(count, job.corpus.limit or count)
    return first, count if count < wanted else None


def unpriced_models(stages: Iterable[StageEstimate]) -> list[str]:
    """Return a line for each model without a known price."""
    return [unknown_price(model) for model in dict.fromkeys(stage.model for stage in stages if stage.usd is None)]


def estimate_judgments(pipeline: Pipeline, prompts: PromptSet, pairs: Sequence[tuple[str, str]]) -> Estimate:
    """Estimate the cost of judging (query text, document) pairs, by judge. The length of the prompt is measured on 50
    pairs.
    """
    stages, sample = [], pairs[:: max(1, len(pairs) // PASSAGES)]
    for work in _judging(pipeline, prompts, len(pairs)) if pairs else ():
        mean = statistics.fmean(
            count_messages(work.prompt.render(query=query, document=text)) for query, text in sample
        )
        stages.append(work.priced(mean, ModelProfile()))
    return Estimate(stages, 0, unpriced_models(stages))


def _judging(
    pipeline: Pipeline, prompts: PromptSet, pairs: float, seen: Mapping[str, float] | None = None
) -> Iterator[_Work]:
    """Yield the estimate of each judge."""
    for place, judge in enumerate(pipeline.control.judge.members):
        name = "judgment" if place == 0 else f"judgment {place + 1}"
        tokens = (seen or {}).get(f"{name} tokens", judge_kind(judge).TOKENS)
        yield _Work(
            name=name,
            pieces=pairs,
            tokens=tokens,
            tries=1.0,
            prompt=prompts.get(judge.prompt),
            llm=judge.llm or pipeline.llm,
        )


def _work(job: Job, expected: Expected, seen: Mapping[str, float]) -> Iterator[_Work]:
    """Yield every stage that has its own prompt, and then every judge."""
    pipeline = job.pipeline
    for stage in job.flow.every:
        if stage.prompt is not None and stage.cost is not None:
            cost = stage.cost
            tokens, tries = cost.small if pipeline.generation.prompts == "small" else cost.default
            tokens = seen.get(f"{stage.name} tokens", tokens * cost.items(pipeline))
            tries = seen.get(f"{stage.name} tries", tries)
            prompt = stage_prompt(pipeline, job.prompts, stage.prompt(pipeline))
            yield _Work(
                name=stage.name,
                pieces=cost.pieces(expected),
                tokens=tokens,
                tries=tries,
                prompt=prompt,
                llm=pipeline.llm,
            )
    checked = CHECKED if pipeline.brings_labels else 0
    pairs = expected.queries + min(pipeline.target, expected.samples) * PAIRS + checked
    yield from _judging(pipeline, job.prompts, pairs, seen)


def _seconds(
    llm: LlmSettings, profile: ModelProfile, calls: int, prompt_tokens: int, completion_tokens: int
) -> float | None:
    """Return the duration of a stage's calls from the probe and the limits in the settings, or None without a probe."""
    if not (profile.latency or profile.write):
        return None
    bounds = [profile.seconds(calls, prompt_tokens, completion_tokens, llm.concurrency)]
    bounds += [60 * calls / llm.requests_per_minute] if llm.requests_per_minute else []
    bounds += [60 * (prompt_tokens + completion_tokens) / llm.tokens_per_minute] if llm.tokens_per_minute else []
    return max(bounds)


def _observed(job: Job) -> dict[str, float]:
    """Return the figures from the job's own answers: answer tokens and tries by stage, and the acceptance rate."""
    if not (job.directory / "work.duckdb").exists():
        return {}
    observed: dict[str, float] = {}
    with suppress_while_running(job), job.open_store(read_only=True) as store:
        for stage, calls, tokens in store.query(
            "SELECT stage, count(*), avg(completion_tokens) FROM answer WHERE error = '' GROUP BY stage"
        ):
            if calls >= 5:
                observed[f"{stage} tokens"] = float(tokens)
        kinds: tuple[type[Query] | type[Rewrite], ...] = (Query, Rewrite)
        for kind in kinds:
            attempts = [row.attempts for row in store.rows_of(kind, job.fingerprints.get(table_of(kind), ""))]
            if len(attempts) >= 5:
                observed[f"{table_of(kind)} tries"] = statistics.fmean(attempts)
        accepted = job.accepted(store)
        done = len(accepted.lineages) + accepted.surplus + len(accepted.rejected)
        if done >= 5 and accepted.lineages:
            observed["accepted"] = (len(accepted.lineages) + accepted.surplus) / done
    return observed


@contextlib.contextmanager
def suppress_while_running(job: Job) -> Iterator[None]:
    """Continue without the work database while the job's own process has it open. Raises StoreError if no process
    does."""
    try:
        yield
    except StoreError:
        if not job.running:
            raise


@dataclass(frozen=True)
class Standing:
    """The progress of a started job: accepted queries, their cost, and the approximate remaining cost.

    `left_usd` is None if a price is unknown.
    """

    accepted: int
    calls: int
    paid_usd: float
    left_calls: int
    left_usd: float | None
    target: int

    @property
    def line(self) -> str:
        """The cost so far and the remaining cost."""
        queries = f"{self.accepted:,} of {self.target:,} queries"
        left = "an unknown price" if self.left_usd is None else dollars(self.left_usd)
        paid = f"{dollars(self.paid_usd)} for {queries} ({self.calls:,} calls)"
        return f"paid so far: {paid}; left: about {left} ({self.left_calls:,} calls)"


def standing(job: Job, estimated: Estimate) -> Standing | None:
    """Return the cost so far and the remaining cost of a job, or None if it has not started. While it runs, the figures
    come from its status file.
    """
    if not (job.directory / "work.duckdb").exists():
        return None
    status = read_status(job.directory / STATUS) or {}
    usage = status.get("usage")
    answered = (
        {stage: int(number(counts.get("calls")) or 0) for stage, counts in usage.items()}
        if isinstance(usage, dict)
        else {}
    )
    accepted = int((status.get("stages") or {}).get("queries", {}).get("done") or 0)
    paid = float(number(status.get("spent_usd")) or 0.0)
    with suppress_while_running(job), job.open_store(read_only=True) as store:
        answered = dict(store.query("SELECT stage, count(*) FROM answer GROUP BY stage"))
        accepted, paid = len(job.accepted(store).lineages), money(store).spent
    left = [max(0, stage.calls - answered.get(stage.stage, 0)) * (not job.finished()) for stage in estimated.stages]
    prices = [
        None if stage.usd is None else stage.usd * calls / max(1, stage.calls)
        for stage, calls in zip(estimated.stages, left, strict=True)
    ]
    return Standing(
        accepted=min(accepted, job.pipeline.target),
        calls=sum(answered.values()),
        paid_usd=paid,
        left_calls=sum(left),
        left_usd=known_sum(prices),
        target=min(job.pipeline.target, estimated.samples),
    )


def token_sums(stages: Sequence[StageEstimate]) -> tuple[int, int, int]:
    """Sum the calls, prompt tokens and completion tokens of several stages."""
    rows = [(stage.calls, stage.prompt_tokens, stage.completion_tokens) for stage in stages]
    calls, read, wrote = (sum(column) for column in zip((0, 0, 0), *rows, strict=True))
    return calls, read, wrote


def estimate_head(pipeline: Pipeline, samples: int) -> str:
    """Return the job's name and its target."""
    if pipeline.generates:
        return f"{pipeline.name}: {pipeline.target:,} queries from about {samples:,} documents"
    if pipeline.control.judge.labels_only:
        return f"{pipeline.name}: up to {samples:,} queries of your own; only your own labels count"
    return f"{pipeline.name}: {samples:,} queries of your own; pairs with your own labels are not judged again"


def estimate_table(estimated: Estimate) -> Table:
    """Make a table of the calls, tokens and money of each stage and in total."""
    rows = [(stage.stage, *token_sums([stage]), stage.usd) for stage in estimated.stages if stage.calls]
    figures = columns("stage", "calls", "tokens in", "tokens out", form=",")
    money = Column("USD", itemgetter(4), ".4f", missing="unknown")
    return Table([*rows, ("in all", *token_sums(estimated.stages), estimated.usd)], [*figures, money])


def calls_time(estimated: Estimate) -> str:
    """Describe the duration of all calls; empty if a model was not probed."""
    if estimated.seconds is None:
        return ""
    time = f"{estimated.seconds / 60:,.0f} minutes" if estimated.seconds >= 90 else f"{estimated.seconds:.0f} seconds"
    return f"about {time} of calls to models, in addition to retrieval and re-ranking"
