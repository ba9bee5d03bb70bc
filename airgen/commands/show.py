"""`airgen show`: inspect jobs, queries, corpora, prompts, settings, models and collections."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airgen.commands.command import command
from airgen.commands.options import PassageLimit, Place, Runs, Seed, arg, opt, path_or_none
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo, progress_bar
from airgen.display.study import Column, Plain, Rows, Study, Table, columns
from airgen.errors import CorpusError, SettingsError, UsageError
from airgen.safety.escaping import json_text, md, one_line
from airgen.storage.paths import RUNS, data_dir

if TYPE_CHECKING:
    from airgen.job.job import Job
    from airgen.llms.prompts import Prompt


@command
def show(
    what: Annotated[
        Place, arg("JOB|QUERY_ID", "A job (pipeline, name or work directory), or the start of a query's id.")
    ],
    query: Annotated[str, arg("QUERY_ID", "The start of the id of one of the job's queries.")] = "",
    queries: Annotated[bool, opt("List the job's queries, with the reason if a query was left out.")] = False,
    watch: Annotated[bool, opt("Show the job's progress every two seconds until it ends.")] = False,
    runs: Runs = None,
) -> Outcome[dict[str, Any]]:
    """Show the stages, counts, failures and cost of a job, even while it runs, or the history of a query.

    The history of a query has its document, character, scenario, rewrites, negatives, votes, judgments and decisions.
    A query's id without a job is looked up in all jobs under --runs.

    Example: airgen show pipelines/quickstart.yaml        airgen show q3f2a

    Returns:
        The state of the job, the history of the query or, with --queries, the list of `queries`.

    Raises:
        UsageError: There is no such job or query, or several queries have ids with this start.
        StoreError: The job has not been run yet.
    """
    from airgen.job.show import (
        find_job,
        find_lineage,
        job_with,
        life,
        life_study,
        listed,
        queries_study,
        read_report,
        status_study,
    )

    try:
        job = find_job(what, path_or_none(runs))
    except SettingsError:
        if Path(what).suffix or Path(what).exists():
            raise
        if query or queries or watch:
            raise UsageError(f"{what}: no pipeline, and no job of that name under {runs or 'runs'}") from None
        job, query = job_with(str(what), Path(runs or RUNS)), str(what)
    if not query and not queries:
        report = _watched(job) if watch else read_report(job)
        return Outcome(report, status_study(report))
    if watch:
        raise UsageError("--watch shows a whole job: remove the query and --queries")
    with job.open_store(read_only=True) as store:
        accepted = job.accepted(store)
        if query:
            value = life(store, job, *find_lineage(accepted, query, job.ids))
            study = life_study(value)
            value.pop("lines")
            return Outcome(value, study)
        rows = listed(accepted, job.ids)
    return Outcome({"queries": rows}, queries_study(rows), json=rows)


def _watched(job: Job) -> dict[str, Any]:
    """Print the state of a job until it ends, and return the last state."""
    from airgen.job.show import read_report, status_study

    while (report := read_report(job))["running"]:
        echo(f"{status_study(report).text()}\n", err=True)
        time.sleep(2)
    return report


@command
def show_settings(
    find: Annotated[str, arg("WORD", "Print only settings that mention this word.")] = "",
    schema: Annotated[
        Literal["pipeline", "corpus", "suite"] | None, opt("Print the JSON schema of this kind of file, for editors.")
    ] = None,
) -> Outcome[str]:
    """Print all keys of the YAML files as Markdown, with their types, limits and defaults.

    Example: airgen show settings rerankers

    Returns:
        The text that is printed.
    """
    from airgen.job.settings_reference import json_schema, reference

    if schema is not None:
        shape = json_schema(schema)
        text = json_text(shape, indent=1)
        return Outcome(text, text, json=shape)
    text = reference()
    if find:
        heading, lines = "", []
        for line in text.splitlines():
            if line.startswith("#"):
                heading = line
            elif find.lower() in line.lower() and line.startswith("| `"):
                lines += [heading, line] if heading else [line]
                heading = ""
        text = "\n".join(lines) if lines else f"no setting mentions {find!r}"
    return Outcome(text, text)


def _section(pages: Mapping[str, str], wanted: str) -> str:
    """Return the section of the guide whose heading has these words, if there is exactly one."""
    sections: list[str] = []
    for text in pages.values():
        code, depth = False, 0
        section: list[str] = []
        for line in text.splitlines():
            code ^= line.startswith("```")
            level = len(line) - len(line.lstrip("#")) if line.startswith("#") and not code else 0
            if level and (not depth or level <= depth):
                sections += ["\n".join(section).rstrip()] if depth else []
                depth = level if level > 1 and wanted.casefold() in line.casefold() else 0
                section = []
            if depth:
                section.append(line)
        sections += ["\n".join(section).rstrip()] if depth else []
    return sections[0] if len(sections) == 1 else ""


def _with_all(pages: Mapping[str, str], words: Sequence[str]) -> dict[str, str]:
    """Return {page: section: line} for the sections that have all the words, with the line that has most of them."""
    sought = [word.casefold() for part in words for word in part.split()]
    matches = {}
    for stem, text in pages.items():
        for section in re.split(r"^(?=#)", text, flags=re.MULTILINE):
            if stem != "settings" and all(word in section.casefold() for word in sought):
                heading, *lines = section.strip().splitlines()
                best = max(lines, key=lambda line: sum(word in line.casefold() for word in sought), default=heading)
                matches[f"{stem}: {heading.strip('# ')}"] = f"    {one_line(best, 160)}"
    return matches


@command
def show_guide(
    words: Annotated[
        Sequence[str], arg("WORD", "A page (3, queries, glossary), or words to search for. Default: list the pages.")
    ] = (),
) -> Outcome[str]:
    """Print a page of the guide, or search the guide for words. `airgen help WORD` is short for this command.

    Example: airgen show guide own queries        airgen help ollama

    Returns:
        The text that is printed.

    Raises:
        UsageError: No page mentions these words.
    """
    pages = {path.stem: path.read_text(encoding="utf-8") for path in sorted(data_dir("docs").glob("*.md"))}
    name, wanted = "-".join(words).lower() or "README", " ".join(words)
    named = [stem for stem in pages if f"-{stem}".endswith(f"-{name}") or stem.startswith(f"{name:0>2}-")]
    if named:
        text = pages[min(named, key=len)]  # 07-queries, not 06-your-own-queries
        return Outcome(text, text)
    if section := _section(pages, wanted):
        return Outcome(section, section)
    matches: dict[str, str] = {}
    sought = rf"{'' if not wanted[:1].isalnum() else chr(92) + 'b'}{re.escape(wanted)}"  # a sign begins no word
    for stem, text in pages.items():
        heading, code = "", False
        for line in text.splitlines():
            code ^= line.startswith("```")
            heading = line.strip("# ") if line.startswith("#") and not code else heading
            if re.search(sought, line, re.IGNORECASE) and stem != "settings":
                matches.setdefault(f"{stem}: {heading}", f"    {one_line(line, 160)}")
    matches = matches or _with_all(pages, words)
    if not matches:
        raise UsageError(f"no page of the guide mentions {wanted!r}; list the pages with airgen help")
    text = "\n".join(line for place in matches.items() for line in place)
    return Outcome(text, text)


@command
def show_prompts(
    name: Annotated[
        str, arg("PROMPT", "Name of a prompt, such as query, small/query or judge. Default: list all.")
    ] = "",
    pipeline: Annotated[Place | None, opt("Fill in the prompt for a document of this pipeline's corpus.")] = None,
    document: Annotated[int, opt("With --pipeline: position of the document in the corpus, from 0.", min=0)] = 0,
) -> Outcome[Any]:
    """List the prompts, print a template with the templates it includes, or print a prompt as it would be sent.

    Example: airgen show prompts small/query --pipeline pipelines/quickstart.yaml --document 3

    Returns:
        The list of prompts, the template or, with a pipeline, the messages.

    Raises:
        UsageError: A pipeline is given without a prompt.
        PromptError: There is no such prompt.
    """
    from airgen.job.show import read_job
    from airgen.job.try_prompts import trial_inputs
    from airgen.llms.prompts import PromptSet

    if pipeline is not None and not name:
        raise UsageError("--pipeline needs the name of a prompt to fill in")
    if pipeline is not None:
        own, values, _ = trial_inputs(read_job(pipeline), document)
        messages = own.get(name).render(**values)
        parts = [part for message in messages for part in (f"## === {md(message.role)} ===", Plain(message.content))]
        return Outcome(messages, Study("", parts))
    prompts = PromptSet()
    if name:
        prompt = prompts.get(name)
        included = [Plain(f"# {other}\n{text}") for other, text in prompt.included.items()]
        return Outcome(prompt.source, Study("", [*included, Plain(prompt.source)]))
    every = [prompts.get(prompt) for prompt in prompts.names()]
    shown = ("name", "version", "about", "inputs", "fingerprint")
    return Outcome(Rows({key: getattr(prompt, key) for key in shown} for prompt in every), _prompts_study(every))


def _prompts_study(prompts: Sequence[Prompt]) -> Study:
    """Return the prompts as a table, then the folders of languages with the prompts that each has in its language."""
    by_language = dict[str, list[str]]()
    for prompt in prompts:
        if prompt.translates:
            folder, _, short = prompt.name.rpartition("/")
            by_language.setdefault(f"{folder}/", []).append(short)
    table = Table(
        [prompt for prompt in prompts if not prompt.translates],
        [
            Column("prompt", lambda prompt: prompt.name),
            Column("version", lambda prompt: prompt.version),
            Column("fingerprint", lambda prompt: prompt.fingerprint[:8], left=True),
            Column("what it asks for", lambda prompt: prompt.about, left=True),
        ],
    )
    rows = [(folder, ", ".join(names)) for folder, names in by_language.items()]
    return Study("", [table, "## In other languages", Table(rows, columns("folder", "prompts", left=(1,)))])


@command
def show_models() -> Outcome[Rows[dict[str, Any]]]:
    """List the models that airgen can download, with their purpose, size and licence, and whether they are cached.

    Example: airgen show models

    Returns:
        A row for each model.
    """
    from airgen import models
    from airgen.settings.spec import library_of

    rows = Rows[dict[str, Any]]()
    for model in models.catalogue().values():
        here = models.fetched(model.name)
        known = {key: getattr(model, key) for key in ("name", "kind", "purpose", "licence", "bytes", "download")}
        path = str(models.path(model.name)) if here else None
        rows.append({**known, "fetched": here, "path": path, "library": library_of(model.kind)})
    table = Table(
        rows,
        [
            Column("model", itemgetter("name")),
            Column("purpose", itemgetter("purpose"), left=True),
            Column("MB", lambda row: row["bytes"] / 1e6, ",.0f"),
            Column("licence", itemgetter("licence"), left=True),
            Column("library", itemgetter("library"), left=True),
            Column("cached", lambda row: "yes" if row["fetched"] else "-", left=True),
        ],
    )
    notes = [
        "models of the Hub: BAAI's and the paper's re-rankers run through FlagEmbedding, others through "
        "sentence-transformers (pip install 'airgen-bench[models]' installs both)",
        *(f"{group} = {' + '.join(members)}" for group, members in models.GROUPS.items()),
        f"kept in {models.cache_dir('models')} (AIRGEN_CACHE sets the folder)",
    ]
    return Outcome(rows, Study("", [table, *map(Plain, notes)]))


@command
def show_collections(
    name: Annotated[str, arg("LIST", "A list of collections: a built-in one (beir) or a YAML.")] = "beir",
) -> Outcome[Rows[dict[str, Any]]]:
    """List the collections of a published benchmark, with size, licence and whether they are on this machine.

    Example: airgen show collections beir

    Returns:
        A row for each collection.

    Raises:
        SettingsError: There is no such list.
    """
    from airgen.evaluation.collections import load_collections

    listed = load_collections(name)
    rows = Rows[dict[str, Any]]()
    notes = []
    for collection in listed.collections:
        there, path = listed.is_there(collection), str(listed.place(collection))
        rows.append({**collection.model_dump(), "path": path, "fetched": there})
        notes += [f"{collection.name}: {words}" for words in (collection.get, collection.note) if words]
    table = Table(
        rows,
        [
            Column("set", itemgetter("name")),
            Column("split", itemgetter("split")),
            Column("queries", itemgetter("queries"), ","),
            Column("passages", itemgetter("passages"), ","),
            Column("download", lambda row: "not public" if row["bytes"] is None else f"{row['bytes'] / 1e6:,.0f} MB"),
            Column("here", lambda row: "yes" if row["fetched"] else ""),
            Column("licence", itemgetter("licence")),
        ],
    )
    folder = f"folder: {listed.place(listed.collections[0]).parent}"
    return Outcome(rows, Study("", [table, *map(Plain, [*notes, folder])]))


@command
def show_corpus(
    name: Annotated[str, arg("CORPUS", "A corpus, or NAME#ID for one of its long documents. Default: list all.")] = "",
    sample: Annotated[
        int | None, opt("Print this many passages, drawn uniformly from the whole corpus.", min=1)
    ] = None,
    dropped: Annotated[bool, opt("Print dropped documents: the reason and the start of the text.")] = False,
    reason: Annotated[str, opt("With --dropped: only documents whose cleaner or reason contains this text.")] = "",
    count: Annotated[int, opt("With --dropped: number of documents to print.", "--count", "-n", min=1)] = 20,
    task: Annotated[str | None, opt("Task to prepare the corpus for. Default: its own.", metavar="qa|long-doc")] = None,
    limit: PassageLimit = None,
    languages: Annotated[bool, opt("Identify the language of every passage.")] = False,
    seed: Seed = 0,
) -> Outcome[Any]:
    """Show what is in a corpus: counts, tokens, lengths, and why documents were dropped. Makes no LLM calls.

    Without a name, list all corpora: those in ./corpora and the built-in ones.

    Example: airgen show corpus python-reference        airgen show corpus handbook.yaml --sample 3

    Returns:
        The statistics of the corpus, the sample, the dropped documents, or the list of corpora.

    Raises:
        UsageError: Options contradict each other, or the task is unknown.
        CorpusError: The corpus cannot be read, or no passage is left.
    """
    from airgen.corpus import load_corpus_settings, prepare
    from airgen.corpus.show import corpora, corpora_study, dropped_study, passages_study, summarise
    from airgen.storage.records import MASKED, PARTS, Dropped, Passage

    if not name:
        every = corpora()
        return Outcome(Rows(every), corpora_study(every))
    if sample and dropped:
        raise UsageError("--sample and --dropped: choose one")
    settings = load_corpus_settings(name)
    if task not in (None, "qa", "long-doc"):
        raise UsageError(f"--task {task}: qa or long-doc")
    kind: Any = task or settings.task
    if limit is not None:  # the first passages, for which no sample of all documents is needed
        settings = settings.unlimited
    left_out: dict[str, list[Dropped]] = {"dropped": [], "pieces left out": [], "masked": []}  # in the order shown
    totals = dict.fromkeys(left_out, 0)
    with progress_bar(f"reading {settings.name}", "{task.completed:,.0f} documents") as update:
        rows = prepare(
            settings,
            kind,
            limit=sample or limit,
            seed=seed if sample else None,
            progress=lambda done: update(advance=done),
        )
        if sample:
            drawn = Rows(row for row in rows if isinstance(row, Passage))
            return Outcome(drawn, passages_study(drawn))
        if not dropped:
            summary = summarise(settings, kind, rows, identify_languages=languages)
            return Outcome(summary, summary.study())
        try:
            for row in rows:
                if isinstance(row, Dropped) and reason.lower() in f"{row.cleaner}: {row.reason}".lower():
                    piece = "masked" if row.cleaner == MASKED else "pieces left out"
                    words = piece if row.cleaner in PARTS else "dropped"
                    totals[words] += 1
                    if len(left_out[words]) < count:
                        left_out[words].append(row)
        except CorpusError:
            if not sum(totals.values()):  # the command exists for corpora of which nothing is left
                raise
    shown = [row for listed in left_out.values() for row in listed][:count]
    more = ", ".join(f"{total:,} {words}" for words, total in totals.items() if total or words == "dropped")
    more += f"; {len(shown)} shown" if sum(totals.values()) > len(shown) else ""
    return Outcome(Rows(shown), dropped_study(shown, more))
