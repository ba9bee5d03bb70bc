"""`airgen init`: write the YAML files for a first benchmark of your documents, or run the demo."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from airgen.commands.command import command
from airgen.commands.options import Place, Runs, arg, opt
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo, is_silent, progress_bar, say
from airgen.display.study import Shown
from airgen.errors import CorpusError, UsageError
from airgen.storage.paths import RUNS

if TYPE_CHECKING:
    from airgen.corpus.survey import Survey
    from airgen.job.run_result import RunResult

DEMO_EXTRAS = {"qa": ("embedded", "corpus"), "long-doc": ("embedded", "corpus", "long-doc")}
"""The extras that the demo of each task needs."""


@dataclass(frozen=True)
class Started(Shown):
    """The files that were written, and what is known about the documents. `run` is the result of the demo."""

    files: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)
    formats: list[dict[str, Any]] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)
    documents: int = 0
    languages: dict[str, int] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)
    problem: str = ""
    run: RunResult | None = None


@command
def init(
    documents: Annotated[str, arg("DOCUMENTS", "A folder of documents, a file, or the URL of a sitemap.")] = "",
    out: Annotated[Place, opt("Folder for corpus.yaml, pipeline.yaml and systems.yaml.")] = Path(),
    name: Annotated[str, opt("Name of the benchmark. Default: the folder's name.")] = "",
    relevance: Annotated[
        Literal["answer", "subject"],
        opt("What counts as relevant: a passage that answers the query, or any passage about the query's subject."),
    ] = "answer",
    llm: Annotated[
        str, opt("LLM that writes queries and judges: an OpenAI model, the URL of a server, or an airgen model.")
    ] = "",
    model: Annotated[str, opt("With --llm URL: the model's name on that server.")] = "",
    pages: Annotated[int, opt("Maximum number of pages to fetch from a sitemap.", min=1)] = 1000,
    force: Annotated[bool, opt("Overwrite existing files.")] = False,
    demo: Annotated[bool, opt("Build a small benchmark from bundled documents, without an API key.")] = False,
    task: Annotated[Literal["qa", "long-doc"], opt("With --demo: the task to demonstrate (paper, section 2).")] = "qa",
    target: Annotated[int, opt("With --demo: number of accepted queries to generate.", min=1)] = 8,
    runs: Runs = None,
) -> Outcome[Started]:
    """Inspect documents, and write a corpus, a pipeline and systems YAML that suit them and this machine.

    No model is called. Without --llm, you are asked to choose an LLM on a terminal; otherwise a default is used and
    reported. With --demo, a bundled pipeline is run and four systems are evaluated. Missing packages are installed (in
    a virtual environment only) and models are downloaded (1.2 GB, once). Run the command again to continue.

    Example: airgen init handbook/ --llm gpt-4o-mini        airgen init --demo

    Returns:
        The files that were written, the next commands, and the formats, languages and lengths of the documents.

    Raises:
        UsageError: Files exist already, or the output folder is inside the documents.
        CorpusError: The documents cannot be found or read.
    """
    from airgen.corpus.cleaning.mask_personal_data import what_remains
    from airgen.corpus.settings import load_corpus_settings
    from airgen.corpus.survey import survey
    from airgen.job.starter import Machine, name_of, starter_files, to_install
    from airgen.settings.model_size import reading_words
    from airgen.storage.whole_files import keep_copy, write_text

    if demo:
        return _demo(task, target, Path(runs or RUNS))
    if not documents:
        raise UsageError("give a folder of documents, a file or the URL of a sitemap; or use --demo")
    out = Path(out)
    address = documents if re.match(r"https?://", documents) else ""
    if not address and not Path(documents).exists():
        raise CorpusError(f"{documents}: no such file or folder", code="no_file", where=documents)
    files = ("corpus.yaml", "pipeline.yaml", "systems.yaml")
    there = [out / file for file in files if (out / file).exists()]
    if there and not force:
        raise UsageError(
            f"{', '.join(map(str, there))}: already exist; overwrite with --force, or choose another folder with --out"
        )
    asked = _llm(llm, model)
    place = _fetched(address, out, pages) if address else Path(documents)
    here = place.resolve()
    if not address and here.is_dir() and out.resolve().is_relative_to(here):
        raise UsageError(
            f"{out.resolve()} is inside the documents, so airgen's files would be read as documents: run "
            f"`cd {here.parent} && airgen init {here.name}`, or choose a folder outside with --out"
        )
    with progress_bar(f"reading a sample of {place.name}", "{task.elapsed:,.0f} s"):
        survey_result = survey(place)
    machine = Machine.here(survey_result.language)
    name = name or name_of(Path(urlsplit(address).hostname or "" if address else place))
    texts = starter_files(
        survey_result, machine, name=name, out=out, llm=asked.settings, pages=address, relevance=relevance
    )
    pipeline = out / "pipeline.yaml"
    own = _run_of_questions(place, out) if survey_result.question_column else ""
    written = shlex.quote(str(pipeline))
    steps = [f"{own} --check", own] if own else [f"airgen check {written}", f"airgen run {written}"]
    started = Started(
        files=[str(out / file) for file in texts],
        next=[*to_install(survey_result, machine, asked.settings), *steps],
        formats=[
            {"kind": format_.kind, "files": format_.files, "bytes": format_.bytes, "left_out": format_.left_out}
            for format_ in survey_result.formats
        ],
        others=dict(survey_result.others),
        documents=len(survey_result.lengths),
        languages=dict(survey_result.languages),
        words={"median": survey_result.words(0.5), "p90": survey_result.words(0.9)},
        problem=survey_result.problem,
    )
    out.mkdir(parents=True, exist_ok=True)
    copies = [copy for file, text in texts.items() if (copy := keep_copy(out / file, text)) is not None]
    for file, text in texts.items():
        write_text(out / file, text)
    lines = [
        *survey_result.lines(out / "corpus.yaml"),
        f"machine: {machine.words}",
        f"LLM: {asked.words}",
        *filter(None, [reading_words(asked.settings, survey_result.language)]),
        f"wrote {', '.join(started.files)}: comments in them explain each setting",
        *[f"the previous versions are kept as {', '.join(map(str, copies))}"] * bool(copies),
        what_remains(load_corpus_settings(out / "corpus.yaml"), "qa"),
        *_questions(survey_result, place, out),
        *_relevance(survey_result.example, relevance),
        "\nNext steps:",
        *(f"  {command}" for command in started.next),
    ]
    return Outcome(started, lines)


@dataclass(frozen=True)
class _Llm:
    """The settings of the pipeline's LLM, and a description of which LLM it is and why."""

    settings: dict[str, Any]
    words: str


def _llm(named: str, model: str) -> _Llm:
    """Return the LLM with this name, or the user's choice on a terminal, or the default."""
    from airgen.job.starter import KEY, LOCAL_MODEL, chosen_llm
    from airgen.settings.llm import secret
    from airgen.settings.model_size import size_of

    if model and not named:
        raise UsageError("--model needs the URL of a server: --llm http://ADDRESS/v1 --model NAME")
    why = "chosen with --llm"
    if not named:
        if secret(KEY) is not None:
            named, why = "gpt-4o-mini", f"the default, as {KEY} is set; choose another with --llm NAME --force"
        elif _terminal():
            named, model = _ask_for_llm(KEY, LOCAL_MODEL)
            why = "your choice"
        else:
            named = LOCAL_MODEL
            why = (
                f"the default, as {KEY} is not set and this is not a terminal; choose another with --llm gpt-4o-mini "
                "--force, or --llm http://ADDRESS/v1 --model NAME --force"
            )
    settings = chosen_llm(named, model)
    size, parameters = size_of(settings)
    kind = f"a {size} model" + (
        f" ({parameters})" if parameters else "" if size == "small" else " (its name does not give its size)"
    )
    where = f" at {settings['base_url']}" if "base_url" in settings else ""
    where = " in this process" if settings["backend"] == "embedded" else where
    return _Llm(settings, f"{settings['model']}{where}, {kind}: {why}")


def _terminal() -> bool:
    """Return whether the user can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not is_silent()


def _ask_for_llm(key: str, local: str) -> tuple[str, str]:
    """Ask the user to choose an LLM, and return the values for --llm and --model."""
    echo("Which LLM should write the queries and judge passages?", err=True)
    echo(f"  an OpenAI model, such as gpt-4o-mini: about 15 cents per 100 queries; set the API key in {key}", err=True)
    echo("  the URL of a server (Ollama, vLLM, llama.cpp, a gateway), such as http://localhost:11434/v1", err=True)
    echo(
        f"  {local}, on this CPU: free, 1.2 GB to download, simpler queries, half a minute or more per query", err=True
    )
    named = str(typer.prompt("model or URL", default=local, err=True)).strip()
    model = ""
    if re.match(r"https?://", named):
        model = str(typer.prompt("name of the model on that server", err=True)).strip()
    return named, model


def _fetched(address: str, out: Path, pages: int) -> Path:
    """Download the pages of a sitemap; return their folder."""
    from airgen.corpus.sitemap import download

    folder = out / "pages"
    with progress_bar("fetching", "{task.completed:,.0f} pages") as update:
        before = sum(path.is_file() for path in folder.rglob("*"))
        fetched = download(address, folder, most=pages, progress=lambda count: update(advance=count))
    there = sum(path.is_file() for path in folder.rglob("*"))
    older = f"; the folder also has {there - fetched.done:,} older files" if before and there > fetched.done else ""
    echo(f"{folder}: {fetched.words()}{older}", err=True)
    return folder


def _questions(survey: Survey, place: Path, out: Path) -> list[str]:
    """Return advice for tables that have a column of questions, such as a FAQ."""
    from airgen.tables.documents import is_question

    known = "the column {} holds questions with known answers, which can serve as queries: {}"
    if name := survey.question_column:
        return [known.format(name, "run"), f"  {_run_of_questions(place, out)}"]
    for format_ in survey.formats:
        name = str(format_.reader.get("fields", {}).get("title") or "")
        if is_question(name):
            return [known.format(name, f"{shlex.join(['airgen', 'init', str(format_.paths[0])])} says how")]
    return []


def _run_of_questions(place: Path, out: Path) -> str:
    """Return the command that uses a table's questions as queries and its answers as relevant passages."""
    files = {"--labels": place, "--corpus": out / "corpus.yaml", "--pipeline": out / "pipeline.yaml"}
    words = ["airgen", "label", place, *(word for pair in files.items() for word in pair)]
    return shlex.join(map(str, words))


def _relevance(example: str, relevance: str) -> list[str]:
    """Explain the choice of relevance with one of the user's documents."""
    beside = f' besides your document "{example}"' if example else ""
    condition = "Both count. If only the first" if relevance == "subject" else "Only the first counts. If both"
    other = "answer" if relevance == "subject" else "subject"
    return [
        f"relevance: {relevance}. Take two passages{beside}: the first answers the same question, the second is",
        f"  only about the same subject. {condition} should count: --relevance {other} --force",
    ]


def _demo(task: str, target: int, runs: Path) -> Outcome[Started]:
    """Install and download what the demo needs, and run it."""
    from airgen import models
    from airgen.commands.fetch import fetch
    from airgen.commands.run import run_and_report
    from airgen.job.job import Job
    from airgen.job.show import read_report, work_table
    from airgen.job.starter import install_extras

    install_extras(DEMO_EXTRAS[task], say)
    name, needs = ("quickstart", []) if task == "qa" else ("quickstart-long-doc", ["indian-constitution"])
    if missing := [model for model in models.expand(["quickstart"]) if not models.fetched(model)]:
        needs = [*missing, *needs]
    if needs:
        fetch(needs)
    job = Job(Path(name), runs, target=target)
    done = run_and_report(job)
    work = work_table(read_report(job)).text()
    where = "" if runs == RUNS else f" --runs {runs}"
    go_on = [f"airgen show {name} --queries{where}", "airgen init FOLDER"]
    lines = [done.printed, "", work, f"\nLook inside:        {go_on[0]}", f"Your own documents: {go_on[1]}"]
    return Outcome(Started(next=go_on, run=done.value), lines, json=done.json, error=done.error)
