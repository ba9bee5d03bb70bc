"""Generate a benchmark from a corpus, label existing queries, and estimate the cost, from Python.

estimate(corpus, n=50, llm="gpt-4o-mini")
bench = generate(corpus, n=50, llm="gpt-4o-mini", relevance="answer", budget=0.50, work="runs/handbook")
bench = label(corpus, ["how do I reset it?"], llm="gpt-4o-mini", work="runs/log")
"""

import json
import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from airgen.dataset.content import FILTER
from airgen.display.notebook import console, said_as_one_bar
from airgen.errors import UsageError
from airgen.evaluation.document_level import NamedDocuments
from airgen.job.check_job import Check, check_job
from airgen.job.run_job import run_pipeline
from airgen.job.user_query_files import Line, OwnLines, read_queries
from airgen.python.benchmark import Benchmark
from airgen.python.corpus import Corpus, corpus_of
from airgen.python.entrance import entrance, words_of
from airgen.python.recipe import AUTO, JobRecipe, make_recipe
from airgen.settings import QueriesSettings
from airgen.storage.paths import RUNS
from airgen.tables.labels import KNOWN_OF_PAIRS, rated_pairs
from airgen.tables.objects import plain_value
from airgen.tables.values import pairs_in

Relevance = Literal["answer", "subject"]


@entrance
def generate(
    corpus: Any,
    n: int = 50,
    *,
    llm: Any = None,
    relevance: Relevance = "answer",
    budget: float | None = None,
    work: str | Path | None = None,
    judge: Any = AUTO,
    rerankers: Sequence[Any] | None = None,
    systems: Any = None,
    retry_failed: bool = False,
    compute: str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Benchmark:
    """Generate a benchmark from a corpus, resume a stopped job, or open a finished one (paper, section 2).

    This runs the same job as `airgen run`, with the same work directory, settings and output bytes. Its pipeline YAML
    is `bench.recipe.to_yaml()`.

    Args:
        corpus: A Corpus, or the data to make one from: rows, a folder, or a corpus YAML.
        n: Number of accepted queries to generate. Raising it later keeps the queries that exist.
        llm: A model's name, a mapping of settings, or a function of messages. Default: the choice of `airgen init`.
        relevance: With "answer", a passage is relevant if it answers the query. With "subject", it is enough that it is
            about the query's subject.
        budget: Maximum cost in US dollars. The job stops at the limit and can continue with a higher one.
        work: Work directory. Its name is also the benchmark's name. Default: runs/NAME.
        judge: "votes", a model's name, a mapping of settings, or a function of messages or of (query, passages).
            Default ("auto"): the choice of `airgen init`.
        rerankers: The re-rankers that vote on relevance: names, mappings, models, or functions of (query, passages).
        systems: Systems to evaluate at the end, as for `evaluate`.
        retry_failed: Retry LLM calls that failed in earlier runs.
        compute: Where heavy work runs: local, local:8, ray, ...
        quiet: Print errors only.
        settings: Other keys of a pipeline YAML: generation, control, export, seed, domain, language, task.

    Returns:
        The finished Benchmark.

    Raises:
        SettingsError: A setting is wrong, something is missing, or a model cannot be used: at most its probe of a few
            calls has been paid for.
        BudgetSpent: The budget is spent; the same call with a higher budget continues.
        Stopped: The user stopped the job; the same call continues.
    """
    recipe = make_recipe(
        corpus,
        n=n,
        llm=llm,
        relevance=relevance,
        judge=judge,
        rerankers=rerankers,
        systems=systems,
        work=work,
        budget=budget,
        settings=settings,
    )
    return _run(recipe, systems is not None, retry_failed=retry_failed, compute=compute, quiet=quiet)


@entrance
def label(
    corpus: Any,
    queries: Any,
    *,
    labels: Any = None,
    label_column: str = "",
    rating_column: str = "",
    relevant_from: float | None = None,
    llm: Any = None,
    relevance: Relevance = "answer",
    budget: float | None = None,
    work: str | Path | None = None,
    judge: Any = AUTO,
    rerankers: Sequence[Any] | None = None,
    systems: Any = None,
    sample: int | None = None,
    column: str = "",
    retry_failed: bool = False,
    compute: str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Benchmark:
    """Retrieve and judge passages for existing queries, such as those from a log, without generating any.

    Args:
        corpus: A Corpus, or the data to make one from.
        queries: A list of texts, {id: text}, rows with a column of texts, or a file. A column `filter.NAME` or an
            object `filter` limits a query to passages with that value in their metadata.
        labels: Known labels, which are not judged again: {query id: {passage id: label}}, {query id: [passage ids]},
            rows, a data frame, a file, or a list of these, of which each can have settings of its own ({"file": ...,
            "relevant_from": 4}).
        label_column: Column of the document in `labels`. Default: detected.
        rating_column: Column of the rating in `labels`. Default: detected.
        relevant_from: The lowest rating that means relevant, such as 4 of 5 stars. Default: 1.
        llm: LLM that judges, unless `judge` is given: a model's name, a mapping of settings, or a function of messages.
        relevance: "answer" or "subject", as in `generate`.
        budget: Maximum cost in US dollars.
        work: Work directory. Its name is also the benchmark's name. Default: runs/queries.
        judge: "votes" (needs labels), a model's name, a mapping, or a function of messages or of (query, passages).
            With None, only your labels count: nothing is retrieved or judged, and no model is needed. Default ("auto"):
            the choice of `airgen init`.
        rerankers: The re-rankers that vote on which passages to judge.
        systems: Systems whose hits are also judged, and which are evaluated at the end.
        sample: Number of queries to sample, weighted by frequency. Default: all queries.
        column: Column of the texts. Default: detected by its name.
        retry_failed: Retry LLM calls that failed in earlier runs.
        compute: Where heavy work runs, as in `generate`.
        quiet: Print errors only.
        settings: Other keys of a pipeline YAML.

    Returns:
        The finished Benchmark.

    Raises:
        UsageError: The queries or labels cannot be read.
        SettingsError: A setting is wrong, something is missing, or a model cannot be used: at most its probe of a few
            calls has been paid for.
        BudgetSpent: The budget is spent; the same call with a higher budget continues.
        Stopped: The user stopped the job; the same call continues.
    """
    folder = Path(work) if work is not None else RUNS / "queries"
    corpus = corpus_of(corpus, settings.get("task", "qa"))
    given = labels is not None and (not hasattr(labels, "__len__") or len(labels) > 0)
    if judge is None and not given:
        raise UsageError("judge: None uses your own labels alone: give them with labels=, or name a judge")
    of_labels = {"document_column": label_column, "rating_column": rating_column, "relevant_from": relevant_from}
    of_labels = {key: value for key, value in of_labels.items() if value not in ("", None)}
    own, files = _queries(queries, labels, of_labels, folder, column, corpus)
    if isinstance(judge, str) and judge == AUTO and not given and llm is None:
        judge = {"kind": "yes-no"}
    recipe = make_recipe(
        corpus,
        n=sample,
        llm=llm,
        relevance=relevance,
        judge=judge,
        rerankers=rerankers,
        systems=systems,
        queries=own,
        files=files,
        work=folder,
        budget=budget,
        settings=settings,
    )
    return _run(recipe, systems is not None, retry_failed=retry_failed, compute=compute, quiet=quiet)


def _run(recipe: JobRecipe, evaluates: bool, retry_failed: bool, compute: str | None, quiet: bool) -> Benchmark:
    with said_as_one_bar(quiet):
        result = run_pipeline(
            recipe.job(),
            retry_failed=retry_failed,
            evaluate=evaluates,
            console=console(quiet),
            compute=compute,
        )
    return Benchmark(recipe.work / "dataset", recipe=recipe, run=result)


def _queries(
    queries: Any, labels: Any, of_labels: Mapping[str, Any], folder: Path, column: str, corpus: Corpus
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the `queries` setting of the pipeline YAML, and the files in the work directory to which it refers.

    `of_labels` are settings of all labels.
    """
    files: dict[str, str] = {}
    settings: dict[str, Any] = {"column": column} if column else {}
    ids: Collection[str] = ()
    if isinstance(queries, str | Path):
        if not Path(queries).exists():
            raise UsageError(f"queries: {queries}: no such file; pass texts as a list")
        settings["file"] = _below(queries, folder)
    else:
        own = read_queries(QueriesSettings(file="queries", column=column), queries, corpus.language)
        rows = [{"id": line.id or f"q{number}", **_query_row(line, own)} for number, line in enumerate(own.lines, 1)]
        ids = {row["id"] for row in rows}
        files["queries.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
        named = {"id_column": "id", **({"count_column": "count"} if own.counted else {})}
        settings |= {"file": "queries.jsonl", "column": "query", "duplicates": "keep", **named}
    given = [] if labels is None else labels if _are_sources(labels) else [labels]
    sources: list[dict[str, Any]] = []
    for number, each in enumerate(given):
        has_settings = isinstance(each, Mapping) and not isinstance(each.get("file", {}), Mapping | list)
        chosen = {**of_labels, **(each if has_settings else {"file": each})}
        source = chosen.pop("file")
        if isinstance(source, str | Path):
            sources.append({"file": _below(source, folder), **chosen})
        else:
            name = f"labels{number or ''}.tsv"
            files[name] = _label_rows(source, ids, corpus, chosen)
            kept = {key: value for key, value in chosen.items() if not key.endswith("_column")}
            sources.append({"file": name, **kept})
    return {**settings, **({"labels": sources} if sources else {})}, files


def _below(path: str | Path, folder: Path) -> str:
    return Path(os.path.relpath(Path(path).resolve(), folder.resolve())).as_posix()


def _query_row(line: Line, own: OwnLines) -> dict[str, Any]:
    """Return the row of a query in JSON Lines, without its id."""
    count = {"count": line.count} if own.counted else {}
    wanted = {f"{FILTER}{name}": value for name, value in line.filter.items()}
    return {"query": line.text, **count, **line.metadata, **wanted}


def _are_sources(labels: Any) -> bool:
    """Return whether labels are several files or tables, rather than the rows of one."""
    if not isinstance(labels, list | tuple):
        return False
    return not labels or not all(map(_is_row, labels))


def _is_row(item: Any) -> bool:
    """Return whether an item of a list is a row, rather than a file, its settings, or a table of labels."""
    if isinstance(item, Mapping):
        return "file" not in item and "" not in pairs_in(plain_value(item), KNOWN_OF_PAIRS)
    return isinstance(item, list | tuple) or hasattr(item, "__dataclass_fields__") or hasattr(item, "model_fields_set")


def _label_rows(labels: Any, queries: Collection[str], corpus: Corpus, of_labels: Mapping[str, Any]) -> str:
    """Return labels as qrels. Raises the errors of `rated_pairs`."""
    documents = NamedDocuments(lambda: (passage["id"] for passage in corpus))
    columns = {role: of_labels.get(f"{role}_column", "") for role in ("query", "document", "rating")}
    found = rated_pairs(labels, language=corpus.language, queries=queries, documents=documents, columns=columns)
    if not of_labels.keys() & {"relevant_from", "levels"}:
        found.check_scale()
    lines = (f"{' '.join(pair.query.split())}\t{pair.document}\t{pair.rating:g}\n" for pair in found.pairs)
    return "query-id\tcorpus-id\tscore\n" + "".join(lines)


@entrance
def estimate(
    corpus: Any,
    n: int = 50,
    *,
    llm: Any = None,
    relevance: Relevance = "answer",
    budget: float | None = None,
    work: str | Path | None = None,
    judge: Any = AUTO,
    rerankers: Sequence[Any] | None = None,
    systems: Any = None,
    measure: bool = True,
    probe: bool = False,
    **settings: Any,
) -> Check:
    """Estimate the calls, tokens, cost and time of `generate` with the same arguments. LLMs are called only to probe.

    Args:
        corpus: As in `generate`.
        n: As in `generate`.
        llm: As in `generate`.
        relevance: As in `generate`.
        budget: As in `generate`. A budget that is too low is reported as a problem.
        work: As in `generate`. Earlier runs in this directory improve the estimate.
        judge: As in `generate`.
        rerankers: As in `generate`.
        systems: As in `generate`.
        measure: Run the models on this machine on a few passages to measure their speed.
        probe: Ask each LLM a few short questions, for a few cents at most, to learn whether it works and how fast.
        settings: As in `generate`.

    Returns:
        The estimate, with the `problems` that would stop the job.

    Raises:
        UsageError: An argument is not valid.
        CorpusError: The corpus cannot be read.
    """
    recipe = make_recipe(
        corpus,
        n=n,
        llm=llm,
        relevance=relevance,
        judge=judge,
        rerankers=rerankers,
        systems=systems,
        work=work,
        budget=budget,
        settings=settings,
    )
    with tempfile.TemporaryDirectory() as folder:
        job = replace(recipe, work=Path(folder) / recipe.work.name).job(recipe.work.parent)
        return check_job(job, budget=budget, measure=measure, probe=probe).worded(words_of(estimate))
