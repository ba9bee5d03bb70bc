"""`airgen train expand`: write queries for every passage, to index with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Budget, Dataset, Device, Json, Seed, echo, new_app, shipped
from airgen.commands.progress_bar import progress_bar

app = new_app()


@app.command()
def expand(
    dataset: Dataset,
    out: Annotated[Path, typer.Option(help="File of expansions to write, as JSON lines.")],
    model: Annotated[str | None, typer.Option(help="A sequence-to-sequence model, such as a docT5query.")] = None,
    queries_from: Annotated[str | None, typer.Option("--from", help="Take the queries of this split.")] = None,
    pipeline: Annotated[
        Path | None, typer.Option(help="Use this pipeline's LLM; --count 10 is enough.", callback=shipped)
    ] = None,
    budget: Budget = None,
    count: Annotated[int, typer.Option(min=1, help="Number of queries for each passage.")] = 40,
    seed: Seed = 42,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Write queries that each passage might answer, for systems of `kind: expanded`.

    Give one of --model, --pipeline and --from. Run a stopped command again to go on.

    Example: airgen train expand scifact --model castorini/doc2query-t5-base-msmarco --out scifact-queries.jsonl
    """
    import json

    from airgen.dataset.beir import BeirDataset
    from airgen.errors import UsageError
    from airgen.training.mining.expansion import Seq2Seq, expand_from_split
    from airgen.training.mining.expansion import expand as expand_with_model

    if sum(source is not None for source in (model, queries_from, pipeline)) != 1:
        raise UsageError("give exactly one of --model, --pipeline and --from")
    opened = BeirDataset.open(dataset)
    failed: dict[str, int] = {}
    with progress_bar("expanding", "{task.completed:,.0f} passages", quiet=as_json) as update:
        if queries_from is not None:
            done = expand_from_split(opened, queries_from, out, count=count)
        elif pipeline is not None:
            from airgen.pipeline.expand_passages import expand_with_llm

            done, failed = expand_with_llm(
                pipeline,
                opened.passages(),
                opened.info.get("language"),
                out,
                count=count,
                budget_usd=budget,
                progress=lambda number: update(completed=number),
            )
        else:
            writer = Seq2Seq(str(model), device=device)
            done = expand_with_model(
                opened.passages(), writer, out, count=count, seed=seed, progress=lambda number: update(completed=number)
            )
    if as_json:
        echo(json.dumps({"out": str(out), "passages": done, "failed": failed}))
        return
    for reason, number in failed.items():
        echo(f"{number} passages have no queries: {reason}", err=True)
    echo(f"{done:,} passages expanded: {out} (use it with {{kind: expanded, expansions: {out}}})")
