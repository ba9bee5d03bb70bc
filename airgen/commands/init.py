"""`airgen init`: from a folder of documents to the YAML files of a first benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from airgen.commands.options import Json, echo, new_app

if TYPE_CHECKING:
    from airgen.corpus.survey import Survey


app = new_app()


@app.command()
def init(
    documents: Annotated[
        str,
        typer.Argument(metavar="DOCUMENTS", help="A folder of documents, one file, or the address of a sitemap."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for corpus.yaml, pipeline.yaml and systems.yaml.")] = Path(),
    name: Annotated[str, typer.Option(help="Name of the benchmark. Default: the folder's name.")] = "",
    relevance: Annotated[
        Literal["answer", "subject"],
        typer.Option(help="A passage is relevant if it answers the query, or if it is about the query's subject."),
    ] = "answer",
    pages: Annotated[int, typer.Option(min=1, help="Number of pages of a sitemap to fetch at most.")] = 1000,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    as_json: Json = False,
) -> None:
    """Look at documents, say what they are, and write a corpus, a pipeline and systems for them and for this machine.

    Nothing is asked of a model. Example: airgen init handbook/
    """
    import json
    import re
    from urllib.parse import urlsplit

    from airgen.corpus.survey import survey
    from airgen.errors import CorpusError, UsageError
    from airgen.pipeline.starter import Machine, name_of, starter_files, to_install

    address = documents if re.match(r"https?://", documents) else ""
    if not address and not Path(documents).exists():
        raise CorpusError(f"{documents}: no such file or folder")
    files = ("corpus.yaml", "pipeline.yaml", "systems.yaml")
    there = [out / one for one in files if (out / one).exists()]
    if there and not force:
        raise UsageError(
            f"{', '.join(map(str, there))}: already there; --force replaces them, --out names another folder"
        )
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
    texts = starter_files(found, machine, name, out, address, relevance)
    first = to_install(found, machine)
    out.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (out / file).write_text(text, encoding="utf-8")
    pipeline = out / "pipeline.yaml"
    next_ = [*first, f"airgen check {pipeline}", f"airgen run {pipeline}"]
    if as_json:
        value = {
            "formats": [
                {"kind": one.kind, "files": one.files, "bytes": one.bytes, "left_out": one.left_out}
                for one in found.formats
            ],
            "others": dict(found.others), "documents": len(found.lengths), "languages": dict(found.languages),
            "words": {"median": found.words(0.5), "p90": found.words(0.9)}, "problem": found.problem,
            "files": [str(out / file) for file in texts], "next": next_,
        }  # fmt: skip
        echo(json.dumps(value, ensure_ascii=False, indent=1))
        return
    _print_survey(found, out / "corpus.yaml")
    echo(f"machine: {machine.words}")
    echo(f"wrote {', '.join(str(out / file) for file in texts)}: read them, they say why each setting is there")
    _print_relevance(found, relevance)
    echo("\nGo on with:")
    for command in next_:
        echo(f"  {command}")


def _fetched(address: str, out: Path, pages: int) -> Path:
    """The folder of a sitemap's pages."""
    from airgen.commands.progress_bar import progress_bar
    from airgen.corpus.sitemap import download

    folder = out / "pages"
    with progress_bar("fetching", "{task.completed:,.0f} pages") as update:
        done, failed = download(address, folder, most=pages, progress=lambda count: update(advance=count))
    echo(f"{folder}: {done:,} pages fetched" + (f", {len(failed):,} failed: {failed[0]}" if failed else ""), err=True)
    return folder


def _print_relevance(found: Survey, relevance: str) -> None:
    """What counts as relevant, on a document of the user's own: the one choice that nobody else can make."""
    about = f' "{found.example}"' if found.example else ""
    echo(
        f"relevant ({relevance}): two passages beside your document{about}: one answers the same question, the other is"
    )
    if relevance == "answer":
        echo("  about the same subject only. The first counts. If both should count: --relevance subject --force")
    else:
        echo("  about the same subject only. Both count. If only the first should count: --relevance answer --force")


def _print_survey(found: Survey, corpus: Path) -> None:
    from airgen.languages import language_name
    from airgen.text.display import terminal_table

    total = sum(one.files for one in found.formats) + found.others.total()
    echo(f"{found.path}: {total:,} file{'s' if total != 1 else ''}")
    rows = [
        [f"  {one.kind}", f"{one.files:,}", _size(one.bytes), f"left out: {one.left_out}" if one.left_out else ""]
        for one in found.formats
    ]
    if found.others:
        endings = ", ".join(f"{count} {ending}" for ending, count in found.others.most_common(4))
        rows.append(["  others", f"{found.others.total():,}", "", f"not read: {endings}"])
    echo("\n".join(line.rstrip() for line in terminal_table(rows, left=(0, 3)).splitlines()))
    if found.problem:
        echo(f"  ! {found.problem}")
    if not found.lengths:
        return
    count = len(found.lengths)
    sample = f"{'all' if found.complete else 'the first'} {count:,} documents" if count > 1 else "1 document"
    known = found.languages.total() or 1
    shares = [(code, n / known) for code, n in found.languages.most_common(3)]
    languages = ", ".join(f"{language_name(code)} {share:.0%}" for code, share in shares if share >= 0.005)
    split = ", ".join(
        f"{one['kind']} by {one['split']}" for one in found.reader.get("readers", [found.reader]) if "split" in one
    )
    split = f" (cut: {split})" if split else ""
    spread = f"{found.words(0):,} to {found.words(1):,} words, half of them up to {found.words(0.5):,}, 90 % up to"
    lengths = f"{spread} {found.words(0.9):,}" if count > 1 else f"{found.words(1):,} words"
    echo(f"{sample}{split}: {languages}; {lengths}")
    for reason, times in found.dropped.most_common(3):
        echo(f"  ! {times:,} not readable: {reason}")
    if found.dropped:
        echo(f"    which ones: airgen corpus dropped {corpus} --reason reader")
    for one in found.reader.get("readers", [found.reader]):
        if "fields" in one:
            echo("columns: " + ", ".join(f"{name} = {column}" for name, column in one["fields"].items()))


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.1f} kB"
