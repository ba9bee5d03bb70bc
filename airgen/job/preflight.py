"""Check everything that a job needs before it starts: keys, models, files, extras, disk space and the systems to
evaluate.

preflight(job)                   # one line per missing requirement; printed by `airgen check`
ensure_ready(job)                # the same as an error, before anything is paid for for
rehearse(job, display)           # every local model is loaded and used once
probe_models(job, display.say)   # each LLM that has not been probed answers a few questions
"""

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from airgen import models
from airgen.components.keys import content_key
from airgen.components.registry import REGISTRY, missing_extras
from airgen.corpus.fetch import still_to_fetch
from airgen.corpus.requirements import missing
from airgen.errors import AirgenError, SettingsError
from airgen.evaluation.search_service import HttpSystem, problem_of
from airgen.evaluation.systems import RerankSystem, SystemSettings, labelling_models, made_labels, missing_needs
from airgen.generation.sample import PARTNERS
from airgen.job.job import Job, owner_of
from airgen.job.starter import MULTILINGUAL
from airgen.llms.base import backend_class
from airgen.llms.probe import ModelProfile, probe, read_profiles, save_profile
from airgen.retrievers import Component, Passages
from airgen.retrievers.protocols import CorpusReranker
from airgen.safety.guard import guarded
from airgen.settings import LlmSettings, Pipeline
from airgen.settings.http import unset_variables
from airgen.settings.languages import language_name
from airgen.settings.model_size import size_of
from airgen.settings.requirements import hub_models, needs
from airgen.settings.spec import Spec
from airgen.steps.ask import make_engine, run_to_end, unpriced
from airgen.steps.judge import YesNo, judge_kind
from airgen.steps.progress import Display

T = TypeVar("T")

_SILENT_SECONDS = 30  # without an answer to a probe, after which a line says so
FREE_BYTES = 1 << 30  # bytes that a small job writes, with a margin
QUERY, PASSAGE = "how do bees find flowers", "Bees find flowers by colour and by scent."
_TEXTS = (PASSAGE, "Lighthouses warn ships of rocks.")


def preflight(
    job: Job, *, until: str | None = None, evaluate: bool = True, budget_usd: float | None = None
) -> list[str]:
    """Return one line for each missing requirement, without loading or calling a model. `until` (corpus, hard_negative
    or judgment) and `evaluate=False` exclude the requirements of later stages."""
    problems: list[str] = []

    def attempt(work: Callable[[], object]) -> None:
        try:
            work()
        except AirgenError as error:
            problems.extend(error.problems)

    pipeline, control = job.pipeline, job.pipeline.control
    problems += missing(job.corpus, pipeline.task)
    attempt(lambda: job.fingerprints)
    if until != "corpus":
        if pipeline.generation.multi_hop and pipeline.task == "qa" and job.corpus.chunk is None:
            problems.append(f"generation.multi_hop: each document of this corpus is one passage: {PARTNERS}")
        for llm in pipeline.llms.values():
            attempt(lambda llm=llm: problems.extend(backend_class(llm).missing(llm)))  # type: ignore[misc]
        if budget_usd is not None or pipeline.llm.budget_usd is not None:
            attempt(lambda: problems.extend(unpriced(pipeline)))
        for judge in control.judge.members:
            attempt(lambda name=judge.prompt: job.prompts.get(name))  # type: ignore[misc]
        for place, spec in used_parts(job, until):
            problems.extend(f"{place}: {line}" for line in needs(spec) or _away(spec))
            if place.startswith("control.") and getattr(spec.settings, "ann", None) is not None:
                problems.append(f"{place}: labels need exact search: remove `index`")
    if control.systems is not None and until not in ("corpus", "hard_negative"):
        attempt(lambda: problems.extend(_missing(str(control.systems), job.recall_systems or ())))
    if evaluate and until is None and pipeline.evaluate.systems is not None:
        attempt(lambda: problems.extend(_missing(str(pipeline.evaluate.systems), job.systems)))
    if evaluate and until is None and pipeline.evaluate.mlflow is not None:
        problems += missing_extras(["mlflow"], "evaluate.mlflow")
    if pipeline.compute.kind == "ray":
        problems += missing_extras(["ray"], "compute: ray")
    problems += _folder_problems(job.directory) or _owner_problems(job)
    return list(dict.fromkeys(problems))


def used_parts(job: Job, until: str | None = None) -> Iterator[tuple[str, Spec]]:
    """(place in the YAML, spec) of every part of the pipeline that a run until a stage uses, each before its own
    parts."""
    for place, spec in _used_models(job, until):
        yield from spec.all_parts(place)


def _used_models(job: Job, until: str | None) -> Iterator[tuple[str, Spec]]:
    generation, control = job.pipeline.generation, job.pipeline.control
    if generation.meaning is not None and generation.rewrites and until != "corpus":
        yield "generation.meaning.model", generation.meaning.model
    if until not in ("corpus", "hard_negative"):
        yield from ((f"control.{place}", spec) for place, spec in (control.recallers | control.voters).items())


def _away(spec: Spec) -> list[str]:
    """Return a line for each Hub model that is not on this machine and cannot be downloaded."""
    problems = {name: models.on_hub(name).problem for name in hub_models(spec)}
    return [f"the model {name}: {problem}" for name, problem in problems.items() if problem]


def unanswered(job: Job) -> list[str]:
    """Send each search service of a job one query, and return a line for each that cannot be used."""
    lines = list[str]()
    for file in filter(None, (job.pipeline.control.systems, job.pipeline.evaluate.systems)):
        with contextlib.suppress(AirgenError):  # `preflight` says so
            for system in job.systems_in(file):
                options = system.options
                if isinstance(options, HttpSystem) and options.embedder is None and not unset_variables(options):
                    problem = problem_of(options, QUERY)
                    lines += [f"{Path(file).name}: system {system.name}: {problem}"] if problem else []
    return list(dict.fromkeys(lines))


def downloads(job: Job, problems: Iterable[str] = ()) -> list[str]:
    """Return a line for each Hub model that a run will download first, with its size, and a line for the downloads in
    `problems`.
    """
    names = [name for _, spec in used_parts(job) for name in hub_models(spec)]
    sizes = {name: models.on_hub(name).bytes for name in dict.fromkeys(names)}
    lines = [
        f"{name}: {size / 1e9:.1f} GB will be downloaded from the Hub first" for name, size in sizes.items() if size
    ]
    named = dict.fromkeys(re.findall(r"airgen fetch (\S+)$", "\n".join(problems), re.MULTILINE))
    ours = still_to_fetch((name for name in named if name in models.catalogue()), [job.corpus])
    return [*lines, ours] if ours else lines


def advice(job: Job) -> list[str]:
    """Return one line for each setting that works poorly."""
    lines = list(_about_generation(job)) if job.pipeline.generates else []
    for judge in job.pipeline.control.judge.members:
        llm = judge.llm or job.pipeline.llm
        if backend_class(llm).SMALL and judge_kind(judge).GRADED:
            lines.append(
                f"control.judge: levels from a small model such as {llm.model} are unreliable (the prompt "
                f"{judge.prompt!r} "
                f"is for large ones): write judge: {{kind: yes-no, prompt: {YesNo.PROMPT}, threshold: 0.5}}"
            )
    control = job.pipeline.control
    if not control.judge.members and len(control.voters) == 1 and job.pipeline.relevance == "answer":
        lines.append(
            "control.rerankers: one voter is no majority, so each query has one relevant passage, its source: name a "
            "second re-ranker of another kind to find more"
        )
    if job.pipeline.cross_lingual or not (control.judge.members or job.pipeline.language == "en"):
        lines += _one_language(job)
    lines += _circular(job)
    return list(dict.fromkeys(lines))


def profile_words(pipeline: Pipeline) -> str:
    """Return one line about the writing LLM and the judges, whether set by the user or derived from the size of the
    model."""
    generation, judge = pipeline.generation, pipeline.control.judge
    if judge.labels_only:
        return "no model finds or judges passages: only the labels given count"
    size, parameters = size_of(pipeline.llm)
    known = parameters or (
        "as its settings say" if pipeline.llm.size else "" if size == "small" else "its name does not give its size"
    )
    drafts = f", {generation.candidates} drafts of each query" if generation.candidates > 1 else ""
    prompts = "short" if generation.prompts == "small" else "full"
    writes = f"{prompts} prompts{drafts}; " if pipeline.generates else ""
    judges = " and ".join(dict.fromkeys((judge_.llm or pipeline.llm).model for judge_ in judge.members))
    labels = f"{judges} judges ({judge.kind})" if judges else "the re-rankers vote on what is relevant"
    return f"{pipeline.llm.model}, a {size} model{f' ({known})' if known else ''}: {writes}{labels}"


def _about_generation(job: Job) -> Iterator[str]:
    """Yield a line if queries are in another language than the corpus, one about limits that do nothing then, and one
    about prompts that were written for models of a different size."""
    pipeline, theirs = job.pipeline, job.corpus.language
    if pipeline.cross_lingual and (pipeline.generation.max_overlap or pipeline.generation.max_title_overlap):
        yield "generation: max_overlap and max_title_overlap compare words, so they do nothing across languages"
    if pipeline.language != theirs:
        yield (
            f"language: queries will be written in {language_name(pipeline.language)}, and the corpus is in "
            f"{language_name(theirs)}: write language: {theirs} unless you want that"
        )
    size, parameters = size_of(pipeline.llm)
    prompts, model = pipeline.generation.prompts, f"{pipeline.llm.model}{f' ({parameters})' if parameters else ''}"
    if (prompts == "small") == (size == "small"):
        return
    if size == "large":
        yield (
            f"generation.prompts: the small ones, made for models below 5 billion parameters, and {model} is larger: "
            "remove prompts, lengths, candidates and variants from `generation`, and `judge` from `control`: what a "
            "large model needs is taken (or write size: small into `llm`, if it is small)"
        )
    else:
        yield (
            f"generation.prompts: {prompts}, made for large models; {model} is small, and rambles and copies with "
            "them: remove `prompts`, and the small ones are taken (or write size: large into `llm`, if it is large)"
        )


def _circular(job: Job) -> list[str]:
    """Return a line about the systems to evaluate that also contribute to the labels."""
    try:
        systems = job.systems
        circular = made_labels(systems, labelling_models(job.pipeline.control))
    except (AirgenError, ValueError):
        return []  # `preflight` reports what is wrong with them
    if not circular:
        return []
    names = ", ".join(f"{name} ({', '.join(parts)})" for name, parts in circular.items())
    return [
        f"evaluate.systems: {len(circular)} of {len(systems)} share a model with recall or votes, so their scores may "
        f"be too high: {names}"
    ]


LEXICAL = frozenset({"bm25", "rm3", "query-likelihood", "lsa", "augment", "expanded", "deepct", "sparta", "sparse"})
"""Retrievers that compare words, and so find only names and numbers across languages."""
_ENGLISH = re.compile(
    r"(?:^|[-_/.])en(?:glish)?(?:[-_/.]|$)|all-minilm|all-mpnet|msmarco-(?:minilm|distil|bert)|splade"
)


def _one_language(job: Job) -> list[str]:
    """Return the models in the recall and the votes that do not support the language of the queries or of the
    corpus."""
    pipeline, lines = job.pipeline, []
    asked, corpus = language_name(pipeline.query_language), language_name(pipeline.language)
    for place, spec in used_parts(job):
        if not place.startswith("control."):
            continue
        kind, model = spec.kind, spec.model
        if pipeline.cross_lingual and (kind in LEXICAL or (kind == "maxsim" and model is None)):
            lines.append(
                f"{place}: {kind} compares words, but queries in {asked} share hardly any words with passages in "
                f"{corpus}"
            )
        entry = models.catalogue().get(model or "")
        if model and (_ENGLISH.search(model.lower()) or (entry is not None and "English" in entry.purpose)):
            lines.append(
                f"{place}: {model} knows English only, and cannot compare {asked} with {corpus}: choose a multilingual "
                f"model, such as BAAI/bge-m3, BAAI/bge-reranker-v2-m3 or {MULTILINGUAL}"
            )
    return lines


def ensure_ready(job: Job, *, until: str | None = None, evaluate: bool = True, budget_usd: float | None = None) -> None:
    """Raise SettingsError with all lines of `preflight`, if there are any."""
    if problems := preflight(job, until=until, evaluate=evaluate, budget_usd=budget_usd):
        raise SettingsError(problems)


def _missing(file: str, systems: Sequence[SystemSettings]) -> list[str]:
    return [f"{Path(file).name}: {line}" for line in missing_needs(systems)]


def _folder_problems(directory: Path) -> list[str]:
    """Return the reasons why a job's directory cannot be created or written to."""
    nearest = next(folder for folder in [directory, *directory.absolute().parents] if folder.exists())
    if not nearest.is_dir():
        return [f"{nearest}: a file is in the way of the folder: choose another folder (--runs)"]
    if not os.access(nearest, os.W_OK | os.X_OK):
        return [f"{nearest}: you may not write to this folder: choose another folder (--runs)"]
    if shutil.disk_usage(nearest).free < FREE_BYTES:
        return [f"{nearest}: less than 1 GB is free on this disk"]
    return []


def _owner_problems(job: Job) -> list[str]:
    """Return a line if the work directory belongs to another existing pipeline file of the same name."""
    owner = owner_of(job.directory)
    if owner is None or owner == job.path.resolve() or not owner.is_file():
        return []
    return [
        f"{job.directory} belongs to {owner}, which has the same name: give this pipeline another `name` than "
        f"{job.pipeline.name}, or choose another folder with --runs"
    ]


def rehearse(job: Job, display: Display, *, until: str | None = None, evaluate: bool = True) -> None:
    """Load and use each model of the run, and release it, as generation may need the memory. Raises ModelError,
    MissingExtra and UsageError with the place in the YAML."""
    wanted = {
        content_key([spec.part, spec.written, str(spec.folder)]): (place, spec)
        for place, spec in _models(job, until, evaluate)
    }
    if not wanted:
        return
    with display.stage("models", len(wanted)) as bar:
        for place, spec in wanted.values():
            with guarded(f"{place}: the model cannot be used"):
                part = spec.make()
                try:
                    _use(part, Passages(["a", "b"], _TEXTS, language=job.pipeline.language))
                finally:
                    if isinstance(part, Component):
                        part.release()
            bar.advance(note=place)


def _models(job: Job, until: str | None, evaluate: bool) -> Iterator[tuple[str, Spec]]:
    """(place in the YAML, spec) of what a run loads."""
    yield from _used_models(job, until)
    if until is None and evaluate:
        for system in job.systems:
            where = f"{Path(str(job.pipeline.evaluate.systems)).name}: system {system.name}"
            if isinstance(system.options, RerankSystem):
                if isinstance(system.options.reranker, Spec):
                    yield where, system.options.reranker
            elif system.kind != "fuse" and (":" in system.kind or system.kind in REGISTRY["retriever"]):
                yield where, system.spec


def _use(part: Any, corpus: Passages) -> None:
    """Use a component once. A component that only combines others is used through its parts."""
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
    """Return the LLMs without a usable answer so far: those whose backend requires a probe, or all with `every`."""
    llms = job.pipeline.llms
    known = read_profiles(job.directory, llms.values())
    usable = {where for where, profile in known.items() if not profile.unusable}
    return {where: llm for where, llm in llms.items() if where not in usable and (every or backend_class(llm).PROBED)}


def probe_models(
    job: Job, say: Callable[[str], None], *, budget_usd: float | None = None, every: bool = False
) -> dict[tuple[str, str], ModelProfile]:
    """Ask each LLM of `unprobed` a few questions, within the job's budget, and return the profiles of all probed LLMs,
    which are saved in the job's folder. Raises LlmError with the server's message, BudgetSpent and Stopped."""
    new, known = unprobed(job, every=every), read_profiles(job.directory, job.pipeline.llms.values())

    async def main() -> None:
        with job.open_store() as store:
            engine = make_engine(
                job.pipeline,
                store,
                budget_usd=budget_usd,
                retry_failed=True,
                rules=job.flow.scripted,
                say=say,
                live=True,
            )
            async with engine:
                for where, llm in new.items():
                    batch = ", live, before the first batch" if getattr(llm, "mode", "") == "batch" else ""
                    say(f"{llm.model}: a few short questions first{batch}, to learn what it accepts and how fast it is")
                    tried = known[where].tried + 1 if where in known else 0
                    asked = probe(engine, llm, logprobs=_wants_logprobs(job.pipeline, llm), tried=tried)
                    profile = await _with_signs_of_life(asked, f"{llm.model}: still no answer after", say)
                    profile = replace(profile, known=engine.backend(where).known())
                    save_profile(job.directory, llm, profile)
                    say(f"{llm.model}: {profile.about()}")

    if new:
        run_to_end(main())
    return read_profiles(job.directory, job.pipeline.llms.values())


def unusable(job: Job) -> list[str]:
    """Return a line for each probed LLM whose answers no stage can use: one that writes queries, but never the JSON
    that it was asked for. A judge may still answer with a word."""
    known = read_profiles(job.directory, job.pipeline.llms.values())
    writer = job.pipeline.llm
    return [
        f"{model}: {profile.unusable}: choose another model, or fix its server and probe again"
        for (endpoint, model), profile in known.items()
        if profile.unusable and job.pipeline.generates and (endpoint, model) == (writer.endpoint, writer.model)
    ]


async def _with_signs_of_life(work: Coroutine[Any, Any, T], words: str, say: Callable[[str], object]) -> T:
    """Return what the work returns, and say every half minute how many seconds it has taken so far."""
    task, waited = asyncio.ensure_future(work), 0
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_SILENT_SECONDS)
            waited += _SILENT_SECONDS
            if not task.done():
                say(f"{words} {waited} s")
        return task.result()
    finally:
        task.cancel()


def _wants_logprobs(pipeline: Pipeline, llm: LlmSettings) -> bool:
    """Return whether a judge with this LLM reads log-probabilities."""
    asked = [(judge.llm or pipeline.llm, judge_kind(judge)) for judge in pipeline.control.judge.members]
    where = (llm.endpoint, llm.model)
    return any((own.endpoint, own.model) == where and kind.PARAMS.get("logprobs") for own, kind in asked)
