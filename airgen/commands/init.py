"""`airgen init`: the YAML files of a first benchmark, from a folder of documents; or one that airgen ships, at once."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from airgen.commands.command import Outcome, command, echo, is_silent, progress_bar, say
from airgen.commands.options import Place, Runs, arg, opt
from airgen.errors import CorpusError, UsageError
from airgen.paths import RUNS
from airgen.study import Shown

if TYPE_CHECKING:
    from airgen.corpus.survey import Survey
    from airgen.pipeline.run import RunResult

DEMO_EXTRAS = {"qa": ("embedded", "corpus"), "long-doc": ("embedded", "corpus", "long-doc")}
"""What the demo of each task needs beside the base."""


@dataclass(frozen=True)
class Started(Shown):
    """What was found and written. run: the result of the demo, which runs at once."""

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
    documents: Annotated[str, arg("DOCUMENTS", "A folder of documents, one file, or the address of a sitemap.")] = "",
    out: Annotated[Place, opt("Folder for corpus.yaml, pipeline.yaml and systems.yaml.")] = Path(),
    name: Annotated[str, opt("Name of the benchmark. Default: the folder's name.")] = "",
    relevance: Annotated[
        Literal["answer", "subject"],
        opt("A passage is relevant if it answers the query, or if it is about the query's subject."),
    ] = "answer",
    llm: Annotated[
        str, opt("Who writes queries and judges: a model of OpenAI, the address of a server, or a model of airgen's.")
    ] = "",
    model: Annotated[str, opt("With --llm ADDRESS: the model, as that server names it.")] = "",
    pages: Annotated[int, opt("Number of pages of a sitemap to fetch at most.", min=1)] = 1000,
    force: Annotated[bool, opt("Replace files that are there.")] = False,
    demo: Annotated[bool, opt("Make a small benchmark of shipped documents at once, without a key.")] = False,
    task: Annotated[Literal["qa", "long-doc"], opt("With --demo: the paper's task to show.")] = "qa",
    target: Annotated[int, opt("With --demo: number of accepted queries.", min=1)] = 8,
    runs: Runs = None,
) -> Outcome[Started]:
    """Look at documents, say what they are, and write a corpus, a pipeline and systems for them and for this machine.

    Nothing is asked of a model. Without --llm a terminal asks for one; where it cannot, the first line says what was
    taken. With --demo a pipeline that airgen ships is run, and four systems are evaluated: what is missing is installed
    (in a virtual environment only) and fetched (1.2 GB, once); run it again to go on.

    Example: airgen init handbook/ --llm gpt-4o-mini        airgen init --demo
    """
    from airgen.corpus.cleaning.personal import what_remains
    from airgen.corpus.settings import load_corpus_settings
    from airgen.corpus.survey import survey
    from airgen.dataset.files import keep_copy
    from airgen.pipeline.starter import Machine, name_of, starter_files, to_install

    if demo:
        return _demo(task, target, Path(runs or RUNS))
    if not documents:
        raise UsageError("give a folder of documents, a file, or the address of a sitemap; or --demo")
    out = Path(out)
    address = documents if re.match(r"https?://", documents) else ""
    if not address and not Path(documents).exists():
        raise CorpusError(f"{documents}: no such file or folder")
    files = ("corpus.yaml", "pipeline.yaml", "systems.yaml")
    there = [out / one for one in files if (out / one).exists()]
    if there and not force:
        raise UsageError(
            f"{', '.join(map(str, there))}: already there; --force replaces them, --out names another folder"
        )
    asked = _llm(llm, model)
    place = _fetched(address, out, pages) if address else Path(documents)
    here = place.resolve()
    if not address and here.is_dir() and out.resolve().is_relative_to(here):
        raise UsageError(
            f"{out.resolve()} is inside the documents, and what airgen writes would become a part of them: run "
            f"`cd {here.parent} && airgen init {here.name}`, or choose a folder beside them with --out"
        )
    found = survey(place)
    machine = Machine.here(found.language)
    name = name or name_of(Path(urlsplit(address).hostname or "" if address else place))
    texts = starter_files(found, machine, name, out, asked.settings, address, relevance)
    pipeline = out / "pipeline.yaml"
    started = Started(
        [str(out / file) for file in texts],
        [*to_install(found, machine, asked.settings), f"airgen check {pipeline}", f"airgen run {pipeline}"],
        [{"kind": one.kind, "files": one.files, "bytes": one.bytes, "left_out": one.left_out} for one in found.formats],
        dict(found.others), len(found.lengths), dict(found.languages),
        {"median": found.words(0.5), "p90": found.words(0.9)}, found.problem,
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    copies = [copy for file, text in texts.items() if (copy := keep_copy(out / file, text)) is not None]
    for file, text in texts.items():
        (out / file).write_text(text, encoding="utf-8")
    lines = [
        *found.lines(out / "corpus.yaml"),
        f"machine: {machine.words}",
        f"LLM: {asked.words}",
        f"wrote {', '.join(started.files)}: read them, they say why each setting is there",
        *[f"what was there is kept as {', '.join(map(str, copies))}"] * bool(copies),
        what_remains(load_corpus_settings(out / "corpus.yaml"), "qa"),
        *_questions(found, place, out),
        *_relevance(found.example, relevance),
        "\nGo on with:",
        *(f"  {one}" for one in started.next),
    ]
    return Outcome(started, lines)


@dataclass(frozen=True)
class _Llm:
    """The LLM of the pipeline, and in words which one it is and how it was chosen."""

    settings: dict[str, Any]
    words: str


def _llm(named: str, model: str) -> _Llm:
    """The LLM that is named; without a name the one that a terminal's user chooses, or an assumption that is told."""
    from airgen.pipeline.starter import KEY, LOCAL_MODEL, chosen_llm
    from airgen.settings.llm import secret
    from airgen.settings.profile import size_of

    if model and not named:
        raise UsageError("--model: is for a server at an address: --llm http://ADDRESS/v1 --model NAME")
    why = "as --llm says"
    if not named:
        if secret(KEY) is not None:
            named, why = "gpt-4o-mini", f"assumed, as {KEY} is set; --llm NAME --force takes another one"
        elif _terminal():
            named, model = _ask_for_llm(KEY, LOCAL_MODEL)
            why = "as you said"
        else:
            named = LOCAL_MODEL
            why = (
                f"assumed, as {KEY} is not set and nobody can be asked; --llm gpt-4o-mini --force, or "
                "--llm http://ADDRESS/v1 --model NAME --force, takes another one"
            )
    settings = chosen_llm(named, model)
    size, told = size_of(settings)
    kind = f"a {size} model" + (f" ({told})" if told else "" if size == "small" else " (as far as its name tells)")
    where = f" at {settings['base_url']}" if "base_url" in settings else ""
    where = " in this process" if settings["backend"] == "embedded" else where
    return _Llm(settings, f"{settings['model']}{where}, {kind}: {why}")


def _terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not is_silent()


def _ask_for_llm(key: str, local: str) -> tuple[str, str]:
    """(--llm, --model) that the user of a terminal chooses."""
    echo("Which LLM shall write the queries and judge?", err=True)
    echo(
        f"  a model of OpenAI, such as gpt-4o-mini: about 15 cents for 100 queries; its key comes from {key}", err=True
    )
    echo("  the address of a server (Ollama, vLLM, llama.cpp, a gateway), such as http://localhost:11434/v1", err=True)
    echo(f"  {local}, on this CPU: free, 1.2 GB to fetch, plainer queries, half a minute or more a query", err=True)
    named = str(typer.prompt("model or address", default=local, err=True)).strip()
    model = ""
    if re.match(r"https?://", named):
        model = str(typer.prompt("its model, as that server names it", err=True)).strip()
    return named, model


def _fetched(address: str, out: Path, pages: int) -> Path:
    """The folder of a sitemap's pages."""
    from airgen.corpus.sitemap import download

    folder = out / "pages"
    with progress_bar("fetching", "{task.completed:,.0f} pages") as update:
        before = sum(one.is_file() for one in folder.rglob("*"))
        fetched = download(address, folder, most=pages, progress=lambda count: update(advance=count))
    there = sum(one.is_file() for one in folder.rglob("*"))
    older = f"; {there - fetched.done:,} older files lie beside them" if before and there > fetched.done else ""
    echo(f"{folder}: {fetched.words()}{older}", err=True)
    return folder


def _questions(found: Survey, place: Path, out: Path) -> list[str]:
    """What to do where a table holds questions beside its texts, as a FAQ does."""
    from airgen.corpus.columns import is_question
    from airgen.pipeline.starter import question_column

    known = "the column {} holds questions with known answers, which can be the queries: {}"
    if name := question_column(found):
        words = [
            "airgen",
            "run",
            out / "pipeline.yaml",
            "--queries",
            place,
            "--labels",
            place,
            "--corpus",
            out / "corpus.yaml",
        ]
        return [known.format(name, "run"), f"  {shlex.join(map(str, words))}"]
    for one in found.formats:
        name = str(one.reader.get("fields", {}).get("title") or "")
        if is_question(name):
            return [known.format(name, f"{shlex.join(['airgen', 'init', str(one.paths[0])])} says how")]
    return []


def _relevance(example: str, relevance: str) -> list[str]:
    """What counts as relevant, on a document of the user's own: the one choice that nobody else can make."""
    about = f' "{example}"' if example else ""
    what = "Both count. If only the first" if relevance == "subject" else "The first counts. If both"
    other = "answer" if relevance == "subject" else "subject"
    return [
        f"relevant ({relevance}): two passages beside your document{about}: one answers the same question, the other "
        "is",
        f"  about the same subject only. {what} should count: --relevance {other} --force",
    ]


def _demo(task: str, target: int, runs: Path) -> Outcome[Started]:
    """Install, fetch and run what airgen ships."""
    from airgen import models
    from airgen.commands.fetch import fetch
    from airgen.commands.run import run_and_report
    from airgen.pipeline.show import find_job, read_report, render_work
    from airgen.pipeline.starter import install_extras

    install_extras(DEMO_EXTRAS[task], say)
    name, needs = ("quickstart", []) if task == "qa" else ("quickstart-long-doc", ["indian-constitution"])
    if missing := [one for one in models.expand(["quickstart"]) if not models.fetched(one)]:
        needs = [*missing, *needs]
    if needs:
        fetch(needs)
    done = run_and_report(name, runs, target=target)
    work = render_work(read_report(find_job(name, runs)))
    where = "" if runs == RUNS else f" --runs {runs}"
    go_on = [f"airgen show {name} --queries{where}", "airgen init FOLDER"]
    lines = [*done.text, "", work, f"\nLook inside:        {go_on[0]}", f"Your own documents: {go_on[1]}"]
    return Outcome(Started(next=go_on, run=done.value), lines, json=done.json, error=done.error)
