"""`airgen train expand`: queries for every passage, to index with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    pipeline: Annotated[
        Path | None,
        typer.Option(metavar="PIPELINE.yaml", help="Ask this pipeline's LLM instead; 10 queries a passage do."),
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Most US dollars to spend on the LLM.")] = None,
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
    from airgen.training.mining.expansion import Seq2Seq, queries_of
    from airgen.training.mining.expansion import expand as write

    if sum(one is not None for one in (model, queries_from, pipeline)) != 1:
        raise UsageError("--model, --pipeline or --from, one of them")
    opened = BeirDataset.open(dataset)
    failed: dict[str, int] = {}
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
        with _bar(quiet=as_json) as progress:
            if pipeline is not None:
                from airgen.pipeline.expand_passages import expand_with_llm

                done, failed = expand_with_llm(pipeline, opened, out, count=count, budget_usd=budget, progress=progress)
            else:
                asked = Seq2Seq(str(model), device=device)
                done = write(opened.passages(), asked, out, count=count, seed=seed, progress=progress)
    if as_json:
        typer.echo(json.dumps({"out": str(out), "passages": done, "failed": failed}))
        return
    for reason, number in failed.items():
        typer.echo(f"{number} passages have no queries: {reason}", err=True)
    typer.echo(f"{done:,} passages expanded: {out} (use it with {{kind: expanded, expansions: {out}}})")


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A count of passages on the terminal."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    words = TextColumn("expanding: {task.completed:,.0f} passages")
    with Progress(words, TimeElapsedColumn(), transient=True, console=Console(stderr=True), disable=quiet) as bar:
        job = bar.add_task("", total=None)
        yield lambda number: bar.update(job, completed=number)
