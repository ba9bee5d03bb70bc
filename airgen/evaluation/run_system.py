"""Run one system: build it, index the corpus, search, and measure the time.

    finished = run_system(system, context)      # finished.run, finished.description, finished.costs

A system that builds on others (`rerank`, `fuse`) receives their finished runs as retrievers that only look up hits.
Systems that do not build on others and use no model can run in parallel on workers, which read the dataset from the
same path.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import content_key
from airgen.components.registry import REGISTRY
from airgen.compute import Work, current
from airgen.dataset.beir import BeirDataset
from airgen.errors import AirgenError, DatasetError
from airgen.evaluation.dataset_split import DatasetSplit, IdLookup, fits
from airgen.evaluation.document_level import Level, PageLookup
from airgen.evaluation.filtered_search import search_within
from airgen.evaluation.measures import check_common
from airgen.evaluation.result import Costs, resident_bytes, single_latencies
from airgen.evaluation.returned_hits import PAGES, Best, ReturnedHits, advice_of, best_first
from airgen.evaluation.run import Run, read_run, run_from_dict, run_from_hits
from airgen.evaluation.search_service import HttpSystem, SearchService
from airgen.evaluation.systems import FunctionSystem, FuseSystem, RerankSystem, RunSystem, SystemSettings
from airgen.evaluation.user_search import OwnSearch, OwnSystem, load_function, takes_corpus
from airgen.retrievers import Component, Hits, Passages, Retriever
from airgen.retrievers.combine import Fused, RerankedRetriever
from airgen.retrievers.component import watch
from airgen.retrievers.encoding_cache import reused
from airgen.retrievers.model_facts import ModelFacts, ModelSetup
from airgen.retrievers.model_setup import model_setups
from airgen.retrievers.protocols import IndexProgress
from airgen.retrievers.user_models import Own, OwnEmbedder, OwnReranker
from airgen.safety.guard import guarded
from airgen.settings.spec import Spec
from airgen.settings.user_function import PYTHON


@dataclass(frozen=True)
class FinishedRun:
    """A system's run, description and costs.

    Attributes:
        notes: Counts of irregularities.
        is_filtered: Whether the search has kept to the queries' filters.
        models: How each model was run, and what it cut.
    """

    run: Run
    description: Mapping[str, Any]
    costs: Costs
    notes: Mapping[str, int] = field(default_factory=dict)
    is_filtered: bool = False
    models: tuple[ModelSetup, ...] = ()


@dataclass(frozen=True)
class RunContext:
    """The context in which a system runs.

    Attributes:
        corpus: The passages.
        queries: {id: text}.
        top: Number of hits per query.
        dataset: Name of the dataset, used in the paths of run files.
        split: Name of the split, used in the paths of run files.
        finished: The runs of finished systems.
        ids: Lookup of passages by their ids, or by their ids in the original corpus.
        pages: Function that returns the pages of the corpus, for systems whose hits are pages.
        indexes: Existing indexes of the same corpus. A run on such an index has no index time.
        timed: Whether to send additional queries to measure time.
        encoding: Called with the number of encoded passages.
        filters: Filters by query id.
    """

    corpus: Passages
    queries: Mapping[str, str]
    top: int
    dataset: str
    split: str
    finished: Mapping[str, FinishedRun]
    ids: IdLookup
    pages: Callable[[], PageLookup]
    indexes: MutableMapping[str, Retriever] | None = None
    timed: bool = True
    encoding: IndexProgress | None = None
    filters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def run_system(system: SystemSettings, context: RunContext) -> FinishedRun:
    """Run one system. Raises AirgenError if it fails, and UsageError for wrong settings."""
    with guarded(system.kind):
        finished = _run(system, context)
        if system.level == "document" and PAGES not in finished.notes:
            finished = _by_page(finished, context)
    return _filtered(finished, context) if context.filters and not finished.is_filtered else finished


def _by_page(finished: FinishedRun, context: RunContext) -> FinishedRun:
    """Take the pages of the found passages as the hits."""
    pages = context.pages()
    run = _to_sections(finished.run, pages, context.queries)
    divided = sum(pages.has_parts(page) for page in map(pages.find, run.passage_ids) if page is not None)
    return replace(finished, run=run, notes={**finished.notes, **({PAGES: divided} if divided else {})})


def _filtered(finished: FinishedRun, context: RunContext) -> FinishedRun:
    """Keep the hits that match their query's filter, of a run file, a function or a service.

    A search that returns only a few hits should filter them itself, since the hits that it did not return are lost.
    """
    places = {key: place for place, key in enumerate(context.corpus.ids)}
    metadata = context.corpus.metadata

    def passes(query: str, passage: str) -> bool:
        place = places.get(passage)
        return place is None or fits(metadata[place] if metadata else {}, context.filters.get(query))

    passing = {query: {key: score for key, score in hits if passes(query, key)} for query, hits in finished.run.items()}
    dropped_hits = len(finished.run.passages) - sum(map(len, passing.values()))
    notes = {**finished.notes, **({"hits_outside_their_filter": dropped_hits} if dropped_hits else {})}
    return replace(finished, run=replace(run_from_dict(passing), notes=finished.run.notes), notes=notes)


def _run(system: SystemSettings, context: RunContext) -> FinishedRun:
    options = system.options
    if isinstance(options, RunSystem):
        return _from_file(options, system, context)
    if isinstance(options, HttpSystem):
        service = SearchService(options, context.ids, context.pages, system.level)
        some_id = next(iter(context.queries), "")

        def ask(queries: Mapping[str, str]) -> tuple[dict[str, dict[str, float]], Counter[str]]:
            return service.search(queries, context.top, context.filters)

        finished = _outside(ask, context, system, single=lambda text: ask({some_id: text}))
        if service.unknown and not len(finished.run.passages):
            raise DatasetError(
                f"{service.unknown}, and neither is any other hit: {service.advice}", code="unknown_passages"
            )
        return finished
    if isinstance(options, FunctionSystem):
        return _own(load_function(system.kind, options.settings, system.folder), context, system)
    if isinstance(options, OwnSystem):
        loaded = options.found(system.folder)
        if isinstance(loaded, Mapping):
            about = {"family": "run"}
            return _existing_run(
                run_from_dict(loaded), about, f"system {system.name}", context, options.best, system.level
            )
        if isinstance(loaded, Component):
            return _searched(loaded, context)  # type: ignore[arg-type]  # a retriever, as `own_systems` sees to
        return _own(loaded, context, system)
    if isinstance(options, RerankSystem):
        first = _Lookup(options.first, context)
        second = RerankedRetriever(first, options.reranker, top=options.top, folder=system.folder)
        try:
            return _searched(second, context, after=[options.first])
        finally:
            second.release()
    if isinstance(options, FuseSystem):
        settings = options.model_dump(exclude={"systems"}, exclude_unset=True)
        fused = Fused([_Lookup(name, context) for name in options.systems], **settings)
        return _searched(fused, context, after=options.systems)
    if context.indexes is None:
        retriever = system.spec.make()
        try:
            return _searched(retriever, context)
        finally:
            if isinstance(retriever, Component):
                retriever.release()  # the models of the next system need the memory
    corpus = context.corpus
    key = content_key([system.spec.written, corpus.language, list(corpus.ids), list(corpus.titles), list(corpus.texts)])
    if key in context.indexes:
        return _searched(context.indexes[key], context, indexed=True)
    finished = _searched(built := system.spec.make(), context)
    context.indexes[key] = built
    return finished


class _Lookup(Component):
    """A finished run as a retriever, so that a first stage is searched once for all systems that build on it.

    A query is found by its text, so two queries with the same text get the hits of the first.
    """

    def __init__(self, name: str, context: RunContext) -> None:
        super().__init__()
        self.name = name
        finished = context.finished[name]
        self._description, self._costs = finished.description, finished.costs
        self.finished_setups = finished.models
        places = {key: place for place, key in enumerate(context.corpus.ids)}
        self._hits: dict[str, list[tuple[int, float]]] = {}
        for query_id, hits in finished.run.ranked().items():
            text = context.queries.get(query_id)
            if text is not None and text not in self._hits:
                retrieved = [(places[key], score) for key, score in hits if key in places]
                # trec_eval orders equal scores by id; a retriever orders them by position.
                self._hits[text] = sorted(retrieved, key=lambda hit: (-hit[1], hit[0]))

    def index(self, corpus: Passages) -> None:
        """Do nothing, because the run is finished."""

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the hits in the run; none for a query that it does not contain."""
        hits = Hits.none(len(queries), k)
        for row, text in enumerate(queries):
            retrieved = self._hits.get(text, [])[:k]
            hits.positions[row, : len(retrieved)] = [place for place, _ in retrieved]
            hits.scores[row, : len(retrieved)] = [score for _, score in retrieved]
        return hits

    @property
    def facts(self) -> ModelFacts:
        """Return the value of the system that made the run."""
        return ModelFacts(self._costs.parameters, self._costs.device, self._costs.threads, self._costs.dtype)

    @property
    def index_bytes(self) -> int | None:
        """Return the value of the system that made the run."""
        return self._costs.index_bytes

    def describe(self) -> Mapping[str, object]:
        """Return the description of the system behind the run."""
        return {"system": self.name, **self._description}


def _searched(
    retriever: Retriever, context: RunContext, after: Sequence[str] = (), indexed: bool = False
) -> FinishedRun:
    """Index the corpus unless it is already indexed, search, and measure the time, adding that of the systems in
    `after`."""
    ids, texts = list(context.queries), list(context.queries.values())
    memory = resident_bytes()
    if context.encoding:
        watch(retriever, context.encoding)
    start, reused_before = time.perf_counter(), reused()
    if not indexed:
        retriever.index(context.corpus)
    # The time of an index is unknown if another step of the run made parts of it; the same applies to a search.
    taken = None if indexed or reused() > reused_before else time.perf_counter() - start
    reused_before = reused()
    # The single queries come first, because a re-ranker may keep its encodings and would be faster after the batch.
    alone = texts if context.timed else []
    single = np.array(single_latencies(lambda text: retriever.search([text], context.top), alone))
    start_batch = time.perf_counter()
    hits = retriever.search(texts, context.top)
    if (
        not isinstance(hits, Hits)
        or hits.positions.shape[:1] != (len(texts),)
        or hits.positions.shape != hits.scores.shape
    ):
        raise DatasetError(
            f"{type(retriever).__name__}.search must give Hits with positions and scores of {len(texts)} rows, one for "
            "each query"
        )
    searched = time.perf_counter()
    if warm := reused() > reused_before:
        single = np.zeros(0)
    grown = max(0, resident_bytes() - memory)
    before = [context.finished[name].costs for name in after]
    indexes_known = all(cost.index_bytes is not None for cost in before)
    facts = retriever.facts if isinstance(retriever, Component) else ModelFacts(device=None)
    taken_ms = (searched - start_batch) * 1000 / max(1, len(texts)) if not warm else None
    costs = replace(
        _speed(single, taken_ms, before),
        index_seconds=_sum([taken, *(cost.index_seconds for cost in before)]),
        index_bytes=retriever.index_bytes if isinstance(retriever, Component) and indexes_known else None,
        memory_bytes=grown,
        parameters=facts.parameters,
        device=facts.device,
        threads=facts.threads,
        dtype=facts.dtype,
        hosted_usd_per_1000=_usd_per_1000(retriever),
        ann_recall=retriever.ann_recall(texts, hits) if isinstance(retriever, Component) else None,
    )
    models = model_setups(retriever, context.corpus, texts, hits)
    if context.filters:  # after the costs, which belong to the search above, as does the recall of an index
        filters = [context.filters.get(query) for query in ids]
        hits = search_within(retriever, texts, filters, context.corpus, k=context.top, hits=hits)
    run = run_from_hits(ids, context.corpus.ids, hits)
    return FinishedRun(run, dict(retriever.describe()), costs, _equal_scores(run), is_filtered=True, models=models)


def _usd_per_1000(retriever: Retriever) -> float | None:
    price = retriever.usd_per_query if isinstance(retriever, Component) else None
    return None if price is None else price * 1000


def _equal_scores(run: Run) -> dict[str, int]:
    """Add a note if all hits of all queries have the same score, as with zero vectors or a useless re-ranker."""
    several = bool((run.lengths > 1).any()) and bool(np.all(run.scores == run.scores[0]))
    return {"queries_with_equal_scores": int((run.lengths > 1).sum())} if several else {}


def _speed(single: NDArray[np.float64], batch_ms: float | None, before: Sequence[Costs] = ()) -> Costs:
    """Return the milliseconds per query, singly and all at once, including the systems that ran before."""
    p50, p95 = np.quantile(single, [0.5, 0.95]).tolist() if len(single) else (None, None)
    batch_ms = _sum([batch_ms, *(cost.batch_ms for cost in before)])
    return Costs(
        latency_p50_ms=_sum([p50, *(cost.latency_p50_ms for cost in before)]),
        latency_p95_ms=_sum([p95, *(cost.latency_p95_ms for cost in before)]),
        batch_ms=batch_ms,
        queries_per_second=1000 / batch_ms if batch_ms else None,
    )


def _sum(parts: Sequence[Any]) -> Any:
    """Sum the parts, or return None if one is unknown."""
    return None if any(part is None for part in parts) else sum(parts)


def _from_file(options: RunSystem, system: SystemSettings, context: RunContext) -> FinishedRun:
    name = options.path.replace("{dataset}", context.dataset).replace("{split}", context.split)
    about = {"family": "run file", "file": Path(name).name}
    return _existing_run(read_run(system.folder / name), about, name, context, options.best, system.level)


def _existing_run(
    run: Run, description: Mapping[str, Any], where: str, context: RunContext, best: Best, level: Level
) -> FinishedRun:
    """Return an existing run with the dataset's ids and larger scores for better hits.

    Raises DatasetError if none of its passages is in the dataset.
    """
    run = best_first(run, best)
    known, notes, advice = set(context.corpus.ids), dict(run.notes), context.ids.advice
    if _names_pages(run, level, context):
        pages = context.pages()
        named = map(pages.find, run.passage_ids)
        notes[PAGES] = sum(page is not None and pages.has_parts(page) for page in named)
        run, advice = _to_sections(run, pages, context.queries), pages.advice
    else:
        run = run.renamed(context.ids.find)
        if level == "auto" and known.isdisjoint(run.passage_ids):
            advice = advice_of(context.ids, context.pages())
    # Unknown passages stay in the run, because trec_eval counts them as not relevant, and leaving them out would help
    # the run.
    check_common(where, run, context.queries, least=0)
    notes["unknown_passages"] = sum(key not in known for key in run.passage_ids)
    notes["unknown_queries"] = sum(key not in context.queries for key in run.query_ids)
    if notes["unknown_passages"] == len(run.passage_ids):
        raise DatasetError(
            f"{where}: none of its passages, such as {run.passage_ids[0][:100]!r}, is in the dataset "
            f"{context.dataset}: {advice}"
        )
    notes |= _equal_scores(run)
    return FinishedRun(run, description, Costs(), {k: v for k, v in notes.items() if v})


def _names_pages(run: Run, level: Level, context: RunContext) -> bool:
    """Return whether the hits of an existing run are pages."""
    if level != "auto":
        return level == "document"
    if all(map(context.ids.find, run.passage_ids)):
        return False
    return context.pages().named(run.passage_ids, context.ids.find)


def _own_search(own: Any, context: RunContext, system: SystemSettings) -> OwnSearch:
    options = system.options
    assert isinstance(options, FunctionSystem | OwnSystem)
    returned = ReturnedHits(context.ids, context.pages, options.best, system.level)
    return OwnSearch(own, returned, f"system {system.name}", context.corpus)


def _own(own: Any, context: RunContext, system: SystemSettings) -> FinishedRun:
    if takes_corpus(own):  # it reads the corpus at each call, so no single query is timed
        context = replace(context, timed=False)
    search = _own_search(own, context, system)
    return _outside(lambda queries: search.search(queries, context.top, context.filters), context, system)


def rehearse(system: SystemSettings, context: RunContext) -> None:
    """Try out the user's own components in a system on two queries and two texts. Raises the errors of a real run."""
    options = system.options
    sample = dict(list(context.queries.items())[:2])
    if isinstance(options, OwnSystem):
        search = options.found(system.folder)
        if not isinstance(search, Mapping | Component) and not takes_corpus(search):
            with guarded(f"system {system.name}"):
                _own_search(search, context, system).search(sample, min(10, context.top))
        for part in _own_parts(search):
            _try(part, sample)
    elif isinstance(options, RerankSystem) and isinstance(options.reranker, Spec) and options.reranker.kind == PYTHON:
        _try(options.reranker.make(), sample)


def _own_parts(value: Any) -> Iterator[Own]:
    """Yield the user's functions and models in a component, at any depth."""
    if isinstance(value, Own):
        yield value
    elif isinstance(value, Component):
        for part in value.components():
            yield from _own_parts(part)


def _try(part: Own, queries: Mapping[str, str]) -> None:
    texts = list(queries.values())
    if isinstance(part, OwnEmbedder):
        assert part.dim
        part.encode(texts, "query")
    elif isinstance(part, OwnReranker):
        part.score([(text, "a passage") for text in texts])


def _to_sections(run: Run, pages: PageLookup, queries: Mapping[str, str]) -> Run:
    """Convert a run of pages to a run of sections. The better of two hits on a page counts, and other hits are kept."""
    results: dict[str, dict[str, float]] = {}
    for query, hits in run.items():
        sections = results.setdefault(query, {})
        for id_, score in hits:
            page = pages.find(id_)
            passage = pages.best(page, query, queries.get(query, "")) if page else id_
            sections[passage] = max(score, sections.get(passage, score))
    return run_from_dict(results)


def _outside(ask: Any, context: RunContext, system: SystemSettings, single: Any = None) -> FinishedRun:
    start = time.perf_counter()
    results, notes = ask(context.queries)
    batch_ms = (time.perf_counter() - start) * 1000 / max(1, len(context.queries))
    texts = [text for text in context.queries.values() if text.strip()]
    wanted = single is not None and context.timed
    taken = np.array(single_latencies(single, texts, most=20)) if wanted else np.zeros(0)
    description = {"family": system.kind, **system.settings}
    run = run_from_dict(results)
    return FinishedRun(run, description, _speed(taken, batch_ms), {**notes, **_equal_scores(run)})


def _worker(
    *, place: Path, called: str, split: str, language: str, digest: str, top: int
) -> Callable[[SystemSettings], FinishedRun | None]:
    """Return a worker's function, which holds the corpus, and returns None for a failing system."""
    try:
        dataset = replace(BeirDataset.open(place), called=called)
    except AirgenError as error:
        raise AirgenError(f"a worker cannot read the dataset: {error}: put it where all workers can read it") from error
    task = DatasetSplit(dataset, split, language)
    if task.digest != digest:
        raise AirgenError(
            f"{place}: on a worker's machine, this folder contains a different dataset: use a shared folder"
        )
    context = context_of(task, top)

    def run(system: SystemSettings) -> FinishedRun | None:
        try:
            return run_system(system, context)
        except AirgenError:
            return None  # it runs again in a process that can report its error

    return run


def context_of(task: DatasetSplit, top: int) -> RunContext:
    """Return the context for systems that do not build on others."""
    texts = {key: query.text for key, query in (task.queries | task.unanswered).items()}
    return RunContext(
        corpus=task.corpus,
        queries=texts,
        top=top,
        dataset=task.dataset.name,
        split=task.split,
        finished={},
        ids=task.ids,
        pages=lambda: task.pages,
        filters=task.filters,
    )


def run_beside(
    task: DatasetSplit, systems: Iterable[SystemSettings], top: int, started: Callable[[str], None]
) -> Iterator[tuple[str, FinishedRun]]:
    """Yield (name, run) of the systems that need no model, as they finish. With a single worker there are none."""
    chosen = [
        system
        for system in systems
        if system.kind in REGISTRY["retriever"] and all(spec.model is None for _, spec in system.parts())
    ]
    if current().workers < 2 or len(chosen) < 2:
        return
    make_worker = partial(
        _worker,
        place=task.dataset.path.absolute(),
        called=task.dataset.called,
        split=task.split,
        language=task.language,
        digest=task.digest,
        top=top,
    )

    def items() -> Iterator[tuple[str, SystemSettings]]:
        for system in chosen:
            started(f"{task.dataset.name}: {system.name}: running")
            yield system.name, system

    context = context_of(task, top)
    work: Work[SystemSettings, FinishedRun | None] = Work(
        f"systems of {task.dataset.name}", lambda system: run_system(system, context), make_worker
    )
    for name, finished in current().map(work, items(), ordered=False):
        if finished is not None:
            yield name, finished
