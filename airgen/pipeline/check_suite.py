"""What a suite needs and costs: each of its pipelines checked and priced, and the sum. Nothing is downloaded: a dataset
whose corpus is not on this machine is priced by what is published of it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airgen.corpus import load_corpus_settings
from airgen.corpus.fetch import is_fetched
from airgen.corpus.needs import missing
from airgen.errors import AirgenError
from airgen.pipeline.estimate import Estimate, StageEstimate, estimate, known_sum, token_sums
from airgen.pipeline.job import Job
from airgen.pipeline.preflight import advice, preflight
from airgen.settings import Pipeline, load_pipeline
from airgen.settings.base import validate
from airgen.settings.spec import read_spec
from airgen.settings.suite import Suite, SuiteDataset, in_suite, load_suite


@dataclass(frozen=True)
class DatasetEstimate:
    """One dataset: how many passages are encoded, and their tokens, where they are known; pairs of query and passage,
    over all re-rankers; and the estimate, by published sizes or by its corpus, if one of them is there."""

    name: str
    queries: int
    published: bool
    passages: int | None
    embedded: int | None
    reranked: int
    estimate: Estimate | None


@dataclass(frozen=True)
class SuiteEstimate:
    """All datasets, and what is missing: {line: the number of datasets that it concerns}."""

    suite: Suite
    datasets: list[DatasetEstimate] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)

    @property
    def usd(self) -> float | None:
        """The sum, or None where the price of one is unknown."""
        return known_sum(row.estimate.usd if row.estimate else None for row in self.datasets)


def check_suite(path: Path, runs: Path, *, budget_usd: float | None = None) -> SuiteEstimate:
    """Check and price every dataset. Raises SettingsError for a wrong suite or pipeline."""
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
            suite_estimate.problems.update(
                line for line in str(error).splitlines() if line not in suite_estimate.problems
            )
        suite_estimate.warnings.update([*(priced.warnings if priced else []), *advice(job)])
        top, voters = pipeline.control.recall.top_k, len(pipeline.control.rerankers)
        pairs = pipeline.target * voters * (min(top, known.passages) if known else top)
        passages, tokens = (known.passages, known.passages * known.tokens) if known else (None, None)
        row = DatasetEstimate(
            name=name,
            queries=pipeline.target,
            published=published is not None,
            passages=passages,
            embedded=tokens,
            reranked=pairs,
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


def suite_lines(suite_estimate: SuiteEstimate) -> list[str]:
    """Return the text for a terminal: what each dataset costs, the sum, and what is missing."""
    rows, suite = suite_estimate.datasets, suite_estimate.suite
    queries, width = sum(row.queries for row in rows), max(len(row.name) for row in rows)
    lines = [f"{suite.name} {suite.version}: {len(rows)} datasets, {queries:,} queries"]
    lines.append(f"  {'dataset':<{width}}{'queries':>9}{'calls':>11}{'tokens in':>16}{'tokens out':>14}{'USD':>11}")

    def line(name: str, queries: int, stages: Sequence[StageEstimate], money: str) -> str:
        calls, read, wrote = token_sums(stages)
        return f"  {name:<{width}}{queries:>9,}{calls:>11,}{read:>16,}{wrote:>14,}{money:>11}"

    for row in rows:
        usd = row.estimate.usd if row.estimate else None
        source = "   by its corpus" if row.estimate and not row.published else ""
        stages = row.estimate.stages if row.estimate else []
        lines.append(line(row.name, row.queries, stages, "unknown" if usd is None else f"{usd:,.2f}") + source)
    priced = [row.estimate for row in rows if row.estimate]
    total = sum(estimated.usd or 0.0 for estimated in priced)
    stages = [stage for estimated in priced for stage in estimated.stages]
    lines.append(
        line("in all", queries, stages, f"{total:,.2f}" if suite_estimate.usd is not None else f"> {total:,.2f}")
    )
    known = [row for row in rows if row.passages is not None and row.embedded is not None]
    passages, tokens = sum(row.passages or 0 for row in known), sum(row.embedded or 0 for row in known)
    pairs = sum(row.reranked for row in rows)
    lines.append(
        f"  besides, {passages:,} passages ({tokens:,} tokens) are encoded once, {pairs:,} pairs are re-ranked"
    )
    for problem, count in [*suite_estimate.warnings.items(), *suite_estimate.problems.items()]:
        lines.append(f"  ! {problem}" + (f" ({count} datasets)" if count > 1 else ""))
    return lines if suite_estimate.problems else [*lines, "  nothing is missing"]
