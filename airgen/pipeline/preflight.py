"""Everything that a job needs, checked before it begins: keys, models, files, extras, disk, the systems to evaluate.

preflight(job)                   # one line for each thing that is missing; `airgen check` prints them
ensure_ready(job)                # the same as an error, before anything is paid
rehearse(job, display)           # every local model is loaded and used once
probe_models(job, display.say)   # each LLM that is not known yet is asked a few questions

A model that is missing on the Hub, a wrong key of an endpoint, or too little memory is found in the first minute, not
after the generation that was paid for.

What a suite needs and costs: each of its pipelines checked, and the sum.

    found = check_suite(Path("pipelines/airbench-24.05.yaml"), Path("runs"))
    found.usd, [row.name for row in found.datasets]

A dataset whose corpus is not on this machine is priced by what is published of it, and nothing is downloaded.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from airgen import models
from airgen.corpus import load_corpus_settings
from airgen.corpus.fetch import is_fetched
from airgen.corpus.needs import missing
from airgen.corpus.settings import CorpusSettings
from airgen.errors import AirgenError, ModelError, SettingsError
from airgen.evaluation.systems import labelling_models, load_systems, made_labels, missing_needs
from airgen.keys import content_key
from airgen.languages import language_name
from airgen.llms.base import backend_class
from airgen.llms.probe import ModelProfile, probe, read_profiles, save_profile
from airgen.pipeline.control.judge import YesNo, judge_kind
from airgen.pipeline.engines import make_engine, unpriced
from airgen.pipeline.estimate import Estimate, estimate
from airgen.pipeline.generate import PARTNERS
from airgen.pipeline.job import Job
from airgen.pipeline.progress import Display, read_status
from airgen.pipeline.starter import MULTILINGUAL
from airgen.registry import installed, names
from airgen.retrievers import Component, Corpus, load_embedder, load_reranker, load_retriever
from airgen.retrievers.base import CorpusReranker
from airgen.settings import LlmSettings, Pipeline, load_pipeline
from airgen.settings.base import Spec, find_yaml, validate
from airgen.settings.parts import files_of, located, model_of, needs, parts, walk
from airgen.settings.suite import Suite, SuiteDataset, in_suite, load_suite

FREE_BYTES = 1 << 30  # what a small job writes, with room to spare
QUERY, PASSAGE = "how do bees find flowers", "Bees find flowers by colour and by scent."
_TEXTS = (PASSAGE, "Lighthouses warn ships of rocks.")

Load = Callable[[], Any]


def preflight(
    job: Job, *, until: str | None = None, evaluate: bool = True, budget_usd: float | None = None
) -> list[str]:
    """One line for each thing that is missing; nothing is loaded, and no model is asked.

    `until` (corpus, hard_negative, judgment) and `evaluate=False` leave out what a run that ends earlier does not use.
    `budget_usd`: a budget that replaces the pipeline's.
    """
    problems: list[str] = []

    def attempt(work: Callable[[], object]) -> None:
        try:
            work()
        except AirgenError as error:
            problems.extend(str(error).splitlines())

    pipeline, control = job.pipeline, job.pipeline.control
    problems += missing(job.corpus, pipeline.task)
    if until != "corpus":
        if pipeline.generation.multi_hop and pipeline.task == "qa" and job.corpus.chunk is None:
            problems.append(f"generation.multi_hop: each document of this corpus is one passage: {PARTNERS}")
        for llm in pipeline.llms.values():
            attempt(lambda llm=llm: problems.extend(backend_class(llm).missing(llm)))  # type: ignore[misc]
        if budget_usd is not None or pipeline.llm.budget_usd is not None:
            attempt(lambda: problems.extend(unpriced(pipeline)))
        for judge in control.judge.members:
            attempt(lambda name=judge.prompt: job.prompts.get(name))  # type: ignore[misc]
        for place, _, settings in walk(pipeline, job.folder):
            later = until == "hard_negative" and place.startswith("control.")
            if not later and not (control.recall.pools_only and place.startswith("control.recall.model")):
                lacks = needs(settings, job.folder)
                problems.extend(f"{place}: {line}" for line in lacks)
                if not lacks:
                    problems.extend(_away(place, settings, job.folder))
    if control.systems is not None and until not in ("corpus", "hard_negative"):
        own = control.systems
        attempt(lambda: _systems(find_yaml("pipelines", own, job.path.parent), problems))
    if evaluate and until is None and (systems := job.systems_file) is not None:
        attempt(lambda: _systems(systems, problems))
    if pipeline.compute.kind == "ray":
        problems += installed("ray", "compute: ray")
    problems += _folder_problems(job.directory) or _owner_problems(job)
    return list(dict.fromkeys(problems))


def _hub_models(settings: BaseModel, folder: Path) -> list[str]:
    """The models of the Hub that these settings name themselves."""
    return [
        value
        for _, value, is_model in files_of(settings)
        if is_model and "/" in value and value[:1] not in "./~" and "{" not in value
        and value not in models.catalogue() and not located(value, folder).exists()
    ]  # fmt: skip


def _away(place: str, settings: BaseModel, folder: Path) -> list[str]:
    """A line for each Hub model that is not here and cannot be fetched now."""
    found = {name: models.on_hub(name).problem for name in _hub_models(settings, folder)}
    return [f"{place}: the model {name}: {problem}" for name, problem in found.items() if problem]


def downloads(job: Job) -> list[str]:
    """A line for each Hub model that a run will fetch first, with its size."""
    names = [name for _, _, settings in walk(job.pipeline, job.folder) for name in _hub_models(settings, job.folder)]
    found = {name: models.on_hub(name).bytes for name in dict.fromkeys(names)}
    return [f"{name}: {size / 1e9:.1f} GB will be fetched from the Hub first" for name, size in found.items() if size]


def advice(job: Job) -> list[str]:
    """One line for each setting that works, but not well."""
    found = []
    ours, theirs = job.pipeline.language, job.corpus.language
    if job.pipeline.queries is None and ours != theirs:
        found.append(
            f"language: queries will be written in {language_name(ours)}, and the corpus is in {language_name(theirs)}:"
            f" write language: {theirs} unless you want that"
        )
    for judge in job.pipeline.control.judge.members:
        llm = judge.llm or job.pipeline.llm
        if backend_class(llm).SMALL and judge_kind(judge).GRADED:
            found.append(
                f"control.judge: levels of a small model such as {llm.model} say little (the prompt {judge.prompt!r} "
                f"is for large ones): write judge: {{kind: yes-no, prompt: {YesNo.PROMPT}, threshold: 0.5}}"
            )
    if job.pipeline.cross_lingual or not (job.pipeline.control.judge.members or job.pipeline.language == "en"):
        found += _one_language(job)
    found += _circular(job)
    return list(dict.fromkeys(found))


def _circular(job: Job) -> list[str]:
    """Which of the systems to evaluate will have made their own labels."""
    try:
        systems = load_systems(job.systems_file) if job.systems_file is not None else []
        makers = labelling_models(job.pipeline.control, job.folder)
        found = made_labels(systems, makers, job.systems_file.parent if job.systems_file is not None else None)
    except (AirgenError, ValueError):
        return []  # `preflight` says what is wrong with them
    if not found:
        return []
    names = ", ".join(f"{name} ({', '.join(parts)})" for name, parts in found.items())
    return [
        f"evaluate.systems: {len(found)} of {len(systems)} share a model with recall or votes, so their scores may be "
        f"too high: {names}"
    ]


LEXICAL = frozenset({"bm25", "rm3", "query-likelihood", "lsa", "augment", "expanded", "deepct", "sparta", "sparse"})
"""Retrievers that compare words, and find nothing across languages but names and numbers."""
_ENGLISH = re.compile(
    r"(?:^|[-_/.])en(?:glish)?(?:[-_/.]|$)|all-minilm|all-mpnet|msmarco-(?:minilm|distil|bert)|splade"
)


def _one_language(job: Job) -> list[str]:
    """What in recall and votes does not know both languages of a cross-lingual job."""
    pipeline, found = job.pipeline, []
    asked, corpus = language_name(pipeline.query_language), language_name(pipeline.language)
    for place, kind, settings in walk(pipeline.control, job.folder, "control"):
        if pipeline.control.recall.pools_only and place.startswith("control.recall.model"):
            continue
        model = model_of(settings)
        if kind in LEXICAL or (kind == "maxsim" and model is None):
            found.append(
                f"{place}: {kind} compares words: queries in {asked} share hardly any with passages in {corpus}"
            )
        if model and (_says_english(model) or _ENGLISH.search(model.lower())):
            found.append(
                f"{place}: {model} knows English only, and cannot compare {asked} with {corpus}: choose a multilingual "
                f"model, such as BAAI/bge-m3, BAAI/bge-reranker-v2-m3 or {MULTILINGUAL}"
            )
    generation = pipeline.generation
    if generation.max_overlap or generation.max_title_overlap:
        found.append("generation: max_overlap and max_title_overlap compare words, so they do nothing across languages")
    return found


def _says_english(model: str) -> bool:
    """Whether the catalogue says of a model that it is for English."""
    entry = models.catalogue().get(model)
    return entry is not None and "English" in entry.purpose


def ensure_ready(job: Job, *, until: str | None = None, evaluate: bool = True, budget_usd: float | None = None) -> None:
    """Raise SettingsError with every line of `preflight`, if there is one."""
    if problems := preflight(job, until=until, evaluate=evaluate, budget_usd=budget_usd):
        raise SettingsError(problems)


def _systems(path: Path, problems: list[str]) -> None:
    lines = missing_needs(load_systems(path), path.resolve().parent)
    problems.extend(f"{path.name}: {line}" for line in lines)


def _folder_problems(directory: Path) -> list[str]:
    """Why a job's directory cannot be made or written."""
    nearest = next(folder for folder in [directory, *directory.absolute().parents] if folder.exists())
    if not nearest.is_dir():
        return [f"{nearest}: a file stands where a folder is needed: choose another folder (--runs)"]
    if not os.access(nearest, os.W_OK | os.X_OK):
        return [f"{nearest}: you may not write in this folder: choose another one (--runs)"]
    if shutil.disk_usage(nearest).free < FREE_BYTES:
        return [f"{nearest}: less than 1 GB is free on this disk"]
    return []


def _owner_problems(job: Job) -> list[str]:
    """Whether the work directory is that of another pipeline's file of the same name, which is still there."""
    owner = (read_status(job.directory / "status.json") or {}).get("pipeline")
    if not isinstance(owner, str) or Path(owner) == job.path.resolve() or not Path(owner).is_file():
        return []
    return [
        f"{job.directory} belongs to {owner}, which has the same name: give this pipeline another `name` than "
        f"{job.pipeline.name}, or choose another folder with --runs"
    ]


def rehearse(job: Job, display: Display, *, until: str | None = None, evaluate: bool = True) -> None:
    """Load and use each model that the run will use; `until` and `evaluate` as for `preflight`.

    Each model is let go again: the generation may need its memory.

    Raises ModelError, MissingExtra and UsageError with the place in the YAML.
    """
    wanted = {content_key([kind, spec]): (place, load) for place, kind, spec, load in _models(job, until, evaluate)}
    if not wanted:
        return
    with display.stage("models", len(wanted)) as bar:
        for place, load in wanted.values():
            try:
                _use(load(), Corpus(["a", "b"], _TEXTS, language=job.pipeline.language))
            except (OSError, RuntimeError, ValueError, ImportError) as error:
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
                raise ModelError(f"{place}: the model cannot be used: {reason}") from error
            bar.advance(note=place)


def _models(job: Job, until: str | None, evaluate: bool) -> Iterator[tuple[str, str, Any, Load]]:
    """(place in the YAML, kind of part, spec, how to load it)"""
    pipeline, folder = job.pipeline, job.folder
    generation, control = pipeline.generation, pipeline.control
    if until == "corpus":
        return
    if generation.meaning is not None and generation.rewrites:
        yield _one("generation.meaning.model", "embedder", generation.meaning.model, folder)
    if until == "hard_negative":
        return
    if not control.recall.pools_only:
        yield _one("control.recall.model", "embedder", control.recall.model, folder)
    for number, spec in enumerate(control.pools):
        yield _one(f"control.pools.{number}", "retriever", spec, folder)
    for number, spec in enumerate(control.rerankers):
        yield _one(f"control.rerankers.{number}", "reranker", spec, folder)
    path = job.systems_file
    if until is None and evaluate and path is not None:
        own = path.resolve().parent
        for system in load_systems(path):
            where = f"{path.name}: system {system.name}"
            if system.kind == "rerank":
                options = system.options(own)
                for name, part in parts(type(options)):
                    value = getattr(options, name)
                    if isinstance(value, str | dict):
                        yield _one(where, part.kind, value, own)
            elif system.kind != "fuse" and (":" in system.kind or system.kind in names("retriever")):
                yield _one(where, "retriever", {"kind": system.kind, **system.settings}, own)


def _one(place: str, kind: str, spec: Spec, folder: Path) -> tuple[str, str, Any, Load]:
    loaders: dict[str, Callable[[Spec, Path], Any]] = {
        "embedder": load_embedder,
        "reranker": load_reranker,
        "retriever": load_retriever,
    }
    return place, kind, [spec, str(folder)], lambda: loaders[kind](spec, folder)


def _use(part: Any, corpus: Corpus) -> None:
    """Use a component once; one that only joins others is used through its parts."""
    if isinstance(part, CorpusReranker):
        part.fit(corpus)
    if hasattr(part, "score"):
        part.score([(QUERY, PASSAGE)])
    elif hasattr(part, "encode"):
        part.encode([QUERY], "query")
    elif hasattr(part, "token_vectors"):
        part.token_vectors([QUERY], "query")
    elif isinstance(part, Component):
        for held in part.components():
            _use(held, corpus)


def unprobed(job: Job, *, every: bool = False) -> dict[tuple[str, str], LlmSettings]:
    """The LLMs that have not yet given an answer to use: those whose backend wants to be probed, or `every` one."""
    llms = job.pipeline.llms
    known = read_profiles(job.directory, llms.values())
    usable = {where for where, profile in known.items() if not profile.unusable}
    return {where: llm for where, llm in llms.items() if where not in usable and (every or backend_class(llm).PROBED)}


def probe_models(
    job: Job, say: Callable[[str], None], *, budget_usd: float | None = None, every: bool = False
) -> dict[tuple[str, str], ModelProfile]:
    """Ask each LLM of `unprobed` a few questions; returns the profiles of all LLMs that are known now.

    What it finds is kept in the job's folder: a run that goes on later asks nothing, and the estimate reads it. The
    cost is part of the job's budget. Raises what the engine raises: LlmError with the server's words, BudgetSpent,
    Stopped.
    """
    new, known = unprobed(job, every=every), read_profiles(job.directory, job.pipeline.llms.values())

    async def main() -> None:
        with job.open_store() as store:
            engine = make_engine(
                job.pipeline, store, budget_usd=budget_usd, retry_failed=True, rules=job.flow.scripted, say=say,
                live=True,
            )  # fmt: skip
            async with engine:
                for where, llm in new.items():
                    tried = known[where].tried + 1 if where in known else 0
                    profile = await probe(engine, llm, logprobs=_wants_logprobs(job.pipeline, llm), tried=tried)
                    profile = replace(profile, known=engine.backend(where).known())
                    save_profile(job.directory, llm, profile)
                    say(f"{llm.model}: {profile.about()}")

    if new:
        asyncio.run(main())
    return read_profiles(job.directory, job.pipeline.llms.values())


def _wants_logprobs(pipeline: Pipeline, llm: LlmSettings) -> bool:
    """Whether a judge that this LLM answers reads log-probabilities."""
    where = (llm.endpoint, llm.model)
    for judge in pipeline.control.judge.members:
        own = judge.llm or pipeline.llm
        if (own.endpoint, own.model) == where and judge_kind(judge).PARAMS.get("logprobs"):
            return True
    return False


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


def suite_lines(found: SuiteEstimate) -> list[str]:
    """For a terminal: what each dataset costs, the sum, and what is missing."""
    rows, suite = found.datasets, found.suite
    queries, width = sum(row.queries for row in rows), max(len(row.name) for row in rows)
    lines = [f"{suite.name} {suite.version}: {len(rows)} datasets, {queries:,} queries"]
    lines.append(f"  {'dataset':<{width}}{'queries':>9}{'calls':>11}{'tokens in':>16}{'tokens out':>14}{'USD':>11}")

    def line(name: str, queries: int, figures: list[int], money: str) -> str:
        calls, read, wrote = figures
        return f"  {name:<{width}}{queries:>9,}{calls:>11,}{read:>16,}{wrote:>14,}{money:>11}"

    sums = [0, 0, 0]
    for row in rows:
        stages = row.estimate.stages if row.estimate else []
        figures = [
            sum(getattr(one, name) for one in stages) for name in ("calls", "prompt_tokens", "completion_tokens")
        ]
        sums = [one + other for one, other in zip(sums, figures, strict=True)]
        usd = row.estimate.usd if row.estimate else None
        source = "   by its corpus" if row.estimate and not row.published else ""
        lines.append(line(row.name, row.queries, figures, "unknown" if usd is None else f"{usd:,.2f}") + source)
    total = sum(row.estimate.usd or 0.0 for row in rows if row.estimate)
    lines.append(line("in all", queries, sums, f"{total:,.2f}" if found.usd is not None else f"> {total:,.2f}"))
    known = [row for row in rows if row.passages is not None and row.embedded is not None]
    passages, tokens = sum(row.passages or 0 for row in known), sum(row.embedded or 0 for row in known)
    pairs = sum(row.reranked for row in rows)
    lines.append(
        f"  besides, {passages:,} passages ({tokens:,} tokens) are encoded once, {pairs:,} pairs are re-ranked"
    )
    for problem, count in [*found.warnings.items(), *found.problems.items()]:
        lines.append(f"  ! {problem}" + (f" ({count} datasets)" if count > 1 else ""))
    return lines if found.problems else [*lines, "  everything that it needs is there"]
