"""Check the pipelines of a suite and estimate the cost of each and of all. Nothing is downloaded: if a corpus is not on
this machine, the estimate uses its published figures."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airgen.corpus import load_corpus_settings
from airgen.corpus.fetch import is_fetched
from airgen.corpus.requirements import missing
from airgen.display.study import Column, Plain, Shown, Study, Table
from airgen.errors import AirgenError
from airgen.job.estimate import Estimate, StageEstimate, estimate, known_sum, token_sums
from airgen.job.job import Job
from airgen.job.local_model_time import pairs_per_voter
from airgen.job.preflight import advice, preflight
from airgen.settings import Pipeline, load_pipeline
from airgen.settings.base import validate
from airgen.settings.spec import read_spec
from airgen.settings.suite import Suite, SuiteDataset, in_suite, load_suite


@dataclass(frozen=True)
class DatasetEstimate:
    """One dataset: its numbers of encoded passages and tokens if known, its query-passage pairs over all re-rankers,
    and the estimate from published sizes or from its corpus, if available."""

    name: str
    queries: int
    published: bool
    passages: int | None
    embedded: int | None
    reranked: int
    estimate: Estimate | None


@dataclass(frozen=True)
class SuiteEstimate(Shown):
    """All datasets, and the missing requirements as {line: number of affected datasets}."""

    suite: Suite
    datasets: list[DatasetEstimate] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)

    @property
    def usd(self) -> float | None:
        """The total, or None if the price of any dataset is unknown."""
        return known_sum(row.estimate.usd if row.estimate else None for row in self.datasets)

    def study(self) -> Study:
        """Return tables of the cost of each dataset, the total, the input of the local models, and missing
        requirements."""
        queries = sum(row.queries for row in self.datasets)
        rows = [_Priced.of(row) for row in self.datasets]
        stages = [stage for row in rows for stage in row.stages]
        priced = sum(row.estimate.usd or 0.0 for row in self.datasets if row.estimate)
        money = f"{priced:,.2f}" if self.usd is not None else f"> {priced:,.2f}"
        known = [row for row in self.datasets if row.passages is not None and row.embedded is not None]
        passages, tokens = sum(row.passages or 0 for row in known), sum(row.embedded or 0 for row in known)
        pairs = sum(row.reranked for row in self.datasets)
        notes = [f"also, {passages:,} passages ({tokens:,} tokens) are encoded once and {pairs:,} pairs re-ranked"]
        for problem, count in [*self.warnings.items(), *self.problems.items()]:
            notes.append(f"! {problem}" + (f" ({count} datasets)" if count > 1 else ""))
        if not self.problems:
            notes.append("nothing is missing")
        return Study(
            f"{self.suite.name} {self.suite.version}: {len(self.datasets)} datasets, {queries:,} queries",
            [
                Table([*rows, _Priced("in all", queries, stages, money)], _PRICES),
                *(Plain(f"  {note}") for note in notes),
            ],
        )


@dataclass(frozen=True)
class _Priced:
    """A line of the price table. `source` is the source of its size if it is not published."""

    name: str
    queries: int
    stages: Sequence[StageEstimate]
    usd: str
    source: str = ""

    @classmethod
    def of(cls, row: DatasetEstimate) -> "_Priced":
        """Make the line for a dataset."""
        if row.estimate is None:
            return cls(row.name, row.queries, [], "unknown")
        usd = "unknown" if row.estimate.usd is None else f"{row.estimate.usd:,.2f}"
        return cls(row.name, row.queries, row.estimate.stages, usd, "" if row.published else "by its corpus")


_PRICES = (
    Column("dataset", lambda row: row.name),
    Column("queries", lambda row: row.queries, ","),
    Column("calls", lambda row: token_sums(row.stages)[0], ","),
    Column("tokens in", lambda row: token_sums(row.stages)[1], ","),
    Column("tokens out", lambda row: token_sums(row.stages)[2], ","),
    Column("USD", lambda row: row.usd),
    Column("", lambda row: row.source, left=True),
)


def check_suite(path: Path, runs: Path, *, budget_usd: float | None = None) -> SuiteEstimate:
    """Check every dataset and estimate its cost. Raises SettingsError if the suite or a pipeline is invalid."""
    suite = load_suite(path)
    suite_estimate = SuiteEstimate(suite)
    for name, place, pipeline, dataset in _members(path, suite):
        corpus, known = load_corpus_settings(pipeline.corpus, place.parent), dataset.published
        here = is_fetched(corpus)
        readable = here or (corpus.fetch is not None and corpus.fetch.kind == "hub")
        # A job can be made and priced without its files, as if they were a dataset on the Hub.
        stream = read_spec("reader", {"kind": "datasets", "path": corpus.name}, corpus.base)
        stand_in = corpus.model_copy(update={"fetch": None, "reader": stream})
        job = Job(place, runs, pipeline=pipeline, corpus=corpus if readable else stand_in)
        needs = [] if readable else missing(corpus, pipeline.task)
        suite_estimate.problems.update(
            dict.fromkeys([*needs, *preflight(job, evaluate=False, budget_usd=budget_usd)], 1)
        )
        published, priced = None if here else known, None
        try:
            if published or readable:
                priced = estimate(job, published.tokens if published else None)
        except AirgenError as error:  # it is on the Hub, which cannot be reached, and nothing is published from it
            suite_estimate.problems.update(line for line in error.problems if line not in suite_estimate.problems)
        suite_estimate.warnings.update([*(priced.warnings if priced else []), *advice(job)])
        pairs = pairs_per_voter(
            pipeline,
            known.passages if known else math.inf,
            samples=priced.samples if priced else pipeline.target,
            queries=pipeline.target,
        )
        passages, tokens = (known.passages, known.passages * known.tokens) if known else (None, None)
        row = DatasetEstimate(
            name=name,
            queries=pipeline.target,
            published=published is not None,
            passages=passages,
            embedded=tokens,
            reranked=round(pairs * len(pipeline.control.voters)),
            estimate=priced,
        )
        suite_estimate.datasets.append(row)
    limit = budget_usd if budget_usd is not None else suite.budget_usd
    if limit is not None and suite_estimate.usd is not None and suite_estimate.usd > limit:
        suite_estimate.problems[
            f"the suite costs about ${suite_estimate.usd:,.2f}, more than its budget of ${limit:,.2f}"
        ] = 1
    return suite_estimate


def _members(path: Path, suite: Suite) -> Iterator[tuple[str, Path, Pipeline, SuiteDataset]]:
    files = len(suite.pipelines) - len(suite.datasets)
    for member in suite.pipelines[:files]:
        yield member.path.stem, member.path, load_pipeline(member.path), SuiteDataset()
    for key, dataset in suite.datasets.items():
        place = in_suite(path, key)
        yield key, place, validate(suite.values(key), Pipeline, str(place), folder=path.resolve().parent), dataset
