"""`airgen train expand`: queries for every passage, to index with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def expand(
    dataset: Annotated[Path, typer.Argument(help="A directory in BEIR's layout.")],
    out: Annotated[Path, typer.Option(help="The file of expansions, JSON lines.")],
    model: Annotated[
        str | None, typer.Option(help="A sequence-to-sequence model, such as a docT5query: a folder or a Hub name.")
    ] = None,
    queries_from: Annotated[
        str | None,
        typer.Option("--from", metavar="SPLIT", help="Take the queries of this split of the dataset instead."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Queries a passage.")] = 40,
    seed: Annotated[int, typer.Option(help="Another seed, other queries.")] = 42,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Write queries that each passage might answer, for `kind: expanded`; run again, it goes on where it stopped.

    Example: airgen train expand scifact --model castorini/doc2query-t5-base-msmarco --out scifact-queries.jsonl
    """
    import json

    from airgen.dataset.beir import BeirDataset
    from airgen.errors import UsageError
    from airgen.training.data import RESERVED
    from airgen.training.expansion import Seq2Seq, queries_of
    from airgen.training.expansion import expand as write

    if (model is None) == (queries_from is None):
        raise UsageError("--model or --from, one of them")
    opened = BeirDataset.open(dataset)
    if queries_from is not None:
        if queries_from.lower() in RESERVED:
            raise UsageError(f"--from {queries_from} is for testing: its queries must not be in the index")
        texts = {key: query.text for key, query in opened.queries().items()}
        found = queries_of(opened.qrels(queries_from).labels, texts)
        rows = "".join(json.dumps({"_id": key, "queries": of[:count]}) + "\n" for key, of in found.items())
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(rows, encoding="utf-8")
        done = len(found)
    else:
        from rich.console import Console
        from rich.progress import Progress, TextColumn, TimeElapsedColumn

        words = TextColumn("expanding {task.completed:,.0f} passages")
        with Progress(words, TimeElapsedColumn(), transient=True, console=Console(stderr=True), disable=as_json) as bar:
            job = bar.add_task("", total=None)
            done = write(
                opened.passages(),
                Seq2Seq(str(model), device=device),
                out,
                count=count,
                seed=seed,
                progress=lambda number: bar.update(job, completed=number),
            )
    if as_json:
        typer.echo(json.dumps({"out": str(out), "passages": done}))
        return
    typer.echo(f"{done:,} passages expanded: {out} (use it with {{kind: expanded, expansions: {out}}})")
