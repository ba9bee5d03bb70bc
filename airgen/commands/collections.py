"""`airgen collections list|fetch`: the sets of a published benchmark, such as BEIR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from airgen.commands.options import Json, echo, new_app
from airgen.commands.progress_bar import progress_bar

app = new_app("collections")

ListName = Annotated[
    str, typer.Argument(metavar="LIST", help="A list of collections that airgen ships (beir), or a YAML.")
]
Only = Annotated[list[str] | None, typer.Option(help="Only this set (repeatable).")]


@app.command("list")
def list_sets(name: ListName = "beir", json: Json = False) -> None:
    """List the sets: size, download, licence, and whether they are on this machine.

    Example: airgen collections list beir
    """
    import json as json_module

    from airgen.evaluation.collections import load_collections
    from airgen.text.display import terminal_table

    listed = load_collections(name)
    if json:
        rows = [{**one.model_dump(), "path": str(listed.place(one)), "fetched": listed.is_there(one)}
                for one in listed.collections]  # fmt: skip
        echo(json_module.dumps(rows, ensure_ascii=False, indent=1))
        return
    table = [["set", "split", "queries", "passages", "download", "here", "licence"]]
    for one in listed.collections:
        size = "not public" if one.bytes is None else f"{one.bytes / 1e6:,.0f} MB"
        here = "yes" if listed.is_there(one) else ""
        table.append([one.name, one.split, f"{one.queries:,}", f"{one.passages:,}", size, here, one.licence])
    echo(terminal_table(table))
    for one in listed.collections:
        for words in (one.get, one.note):
            if words:
                echo(f"{one.name}: {words}")
    echo(f"folder: {listed.place(listed.collections[0]).parent}")


@app.command()
def fetch(name: ListName, only: Only = None, json: Json = False) -> None:
    """Download public sets into the cache and check them. A stopped download goes on where it stopped.

    What will be downloaded is printed first. A set that is not public is named, with how to come by it.

    Example: airgen collections fetch beir --only nfcorpus --only scifact
    """
    import json as json_module
    from functools import partial

    from airgen.evaluation.collections import fetch_collection, load_collections, space_needed

    listed = load_collections(name)
    wanted = [listed.named(one) for one in only or ()] or [one for one in listed.collections if one.md5 is not None]
    missing = [one for one in wanted if not listed.is_there(one)]
    size, space = sum(one.bytes or 0 for one in missing), sum(space_needed(one) for one in missing)
    cost = f"{size / 1e6:,.0f} MB to download, up to {space / 1e9:,.1f} GB of disk"
    echo(f"{len(missing)} of {len(wanted)} sets to fetch: {cost}", err=True)
    places = {}
    for one in wanted:
        with progress_bar(f"fetching {one.name}", "{task.completed:,.0f} bytes") as update:
            places[one.name] = str(fetch_collection(listed, one, partial(_tick, update)))
        if not json:
            echo(f"{one.name}: {places[one.name]}")
    if json:
        echo(json_module.dumps(places, indent=1))


def _tick(update: Callable[..., None], done: int) -> None:
    update(completed=done)
