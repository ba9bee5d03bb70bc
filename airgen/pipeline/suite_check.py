"""What a suite needs and costs: each of its pipelines checked, and the sum.

    found = check_suite(Path("pipelines/airbench-24.05.yaml"), Path("runs"))
    found.usd, [row.name for row in found.datasets]

A dataset whose corpus is not on this machine is priced by what is published of it, and nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from airgen.corpus import load_corpus_settings
from airgen.corpus.fetch import is_fetched
from airgen.corpus.needs import missing
from airgen.corpus.settings import CorpusSettings
from airgen.errors import AirgenError
from airgen.pipeline.estimate import Estimate, estimate
from airgen.pipeline.job import Job
from airgen.pipeline.preflight import advice, preflight
from airgen.settings import Pipeline, load_pipeline
from airgen.settings.suite import Suite, SuiteDataset, in_suite, load_suite
from airgen.settings.yaml_file import validate


@dataclass(frozen=True)
class DatasetEstimate:
    """One dataset: its pipeline's calls, tokens and money, and the work of embedder and re-rankers.

    passages, embedded: how many passages are encoded, and their tokens; None where they are not known. reranked: pairs
    of query and passage, over all re-rankers. published: priced by published sizes. estimate: None where neither these
    nor the corpus are there.
    """

    name: str
    queries: int
    published: bool
    passages: int | None
    embedded: int | None
    reranked: int
    estimate: Estimate | None


@dataclass(frozen=True)
class SuiteEstimate:
    """All datasets, and what is missing: a line, and how many of the datasets it concerns."""

    suite: Suite
    datasets: list[DatasetEstimate] = field(default_factory=list)
    problems: dict[str, int] = field(default_factory=dict)
    warnings: dict[str, int] = field(default_factory=dict)

    @property
    def usd(self) -> float | None:
        """The sum, or None where the price of one is unknown."""
        costs = [row.estimate.usd if row.estimate else None for row in self.datasets]
        return None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs)


def check_suite(path: Path, runs: Path, *, budget_usd: float | None = None) -> SuiteEstimate:
    """Check and price every dataset. Raises SettingsError for a wrong suite or pipeline."""
    suite = load_suite(path)
    found = SuiteEstimate(suite)
    for name, place, pipeline, dataset in _members(path, suite):
        corpus = load_corpus_settings(pipeline.corpus, place.parent)
        job = Job(place, runs, pipeline=pipeline, corpus=corpus if _can_be_read(corpus) else _stand_in(corpus))
        needs = [] if job.corpus is corpus else missing(corpus, pipeline.task)
        for line in dict.fromkeys([*needs, *preflight(job, evaluate=False, budget_usd=budget_usd)]):
            found.problems[line] = found.problems.get(line, 0) + 1
        row = _row(name, job, corpus, dataset, found)
        for line in [*(row.estimate.warnings if row.estimate else []), *advice(job)]:
            found.warnings[line] = found.warnings.get(line, 0) + 1
        found.datasets.append(row)
    limit = budget_usd if budget_usd is not None else suite.budget_usd
    if limit is not None and found.usd is not None and found.usd > limit:
        found.problems[f"the suite costs about ${found.usd:,.2f}, more than its budget of ${limit:,.2f}"] = 1
    return found


def _members(path: Path, suite: Suite) -> Iterator[tuple[str, Path, Pipeline, SuiteDataset]]:
    files = len(suite.pipelines) - len(suite.datasets)
    for member in suite.pipelines[:files]:
        yield member.path.stem, member.path, load_pipeline(member.path), SuiteDataset()
    for key, dataset in suite.datasets.items():
        place = in_suite(path, key)
        yield key, place, validate(suite.values(key), Pipeline, str(place), folder=path.resolve().parent), dataset


def _can_be_read(corpus: CorpusSettings) -> bool:
    return is_fetched(corpus) or (corpus.fetch is not None and corpus.fetch.kind == "hub")


def _stand_in(corpus: CorpusSettings) -> CorpusSettings:
    """The corpus as if it were a data set of the Hub: a job can be made of it and priced without its files."""
    return corpus.model_copy(update={"fetch": None, "reader": {"kind": "datasets", "path": corpus.name}})


def _row(name: str, job: Job, corpus: CorpusSettings, dataset: SuiteDataset, found: SuiteEstimate) -> DatasetEstimate:
    published = None if is_fetched(corpus) else dataset.published
    control, target = job.pipeline.control, job.pipeline.target
    priced = None
    try:
        if published or _can_be_read(corpus):
            priced = estimate(job, published.tokens if published else None)
    except AirgenError as error:  # it is on the Hub, which cannot be reached, and nothing is published of it
        for line in str(error).splitlines():
            found.problems.setdefault(line, 1)
    known = dataset.published
    depth = min(control.recall.top_k, known.passages) if known else control.recall.top_k
    return DatasetEstimate(
        name, target, published is not None,
        known.passages if known else None,
        known.passages * known.tokens if known else None,
        target * depth * len(control.rerankers),
        priced,
    )  # fmt: skip
