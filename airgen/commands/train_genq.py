"""`airgen train genq`: write queries for a corpus, and fine-tune an encoder on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Budget, Device, Json, PassageLimit, Seed, echo, new_app, shipped
from airgen.commands.progress_bar import progress_bar

app = new_app()


@app.command()
def genq(
    source: Annotated[
        str, typer.Argument(help="A name from `airgen corpus list`, a corpus YAML, or a dataset in BEIR format.")
    ],
    base: Annotated[str, typer.Option(help="The encoder: of `airgen models list`, a folder, or the Hub.")],
    out: Annotated[Path, typer.Option(help="Folder of the trained model.")],
    model: Annotated[str | None, typer.Option(help="A sequence-to-sequence model that writes the queries.")] = None,
    pipeline: Annotated[
        Path | None, typer.Option(help="Use this pipeline's LLM to write them.", callback=shipped)
    ] = None,
    queries: Annotated[Path | None, typer.Option(help="Take those of this file of `airgen train expand`.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Queries for each passage (BEIR: 5).")] = 5,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change one setting of `airgen train recipe encoder`."),
    ] = None,
    limit: PassageLimit = None,
    budget: Budget = None,
    seed: Seed = 42,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Adapt an encoder to a corpus without labels: BEIR's GenQ.

    Give one of --model, --pipeline and --queries. OUT.queries.jsonl and OUT.pairs are kept, and a stopped command goes
    on. Queries of a dataset are never trained on.

    Example: airgen train genq python-docs --model models/doct5query --base all-minilm-l6-v2 --out models/genq
    """
    import json
    from dataclasses import asdict

    from airgen.errors import UsageError
    from airgen.training import train
    from airgen.training.mining.expansion import Seq2Seq, expand
    from airgen.training.mining.sources import expansion_pairs, open_source
    from airgen.training.recipe import TrainingRequest

    if sum(one is not None for one in (model, pipeline, queries)) != 1:
        raise UsageError("give exactly one of --model, --pipeline and --queries")
    written = queries or out.with_name(f"{out.name}.queries.jsonl")
    failed: dict[str, int] = {}
    if queries is None and not written.exists():
        opened = open_source(source, limit)
        with progress_bar("writing queries", "{task.completed:,.0f} passages", quiet=as_json) as update:
            if pipeline is not None:
                from airgen.pipeline.expand_passages import expand_with_llm

                _, failed = expand_with_llm(
                    pipeline, opened.passages, opened.language, written, count=count, budget_usd=budget,
                    progress=lambda number: update(completed=number),
                )  # fmt: skip
            else:
                writer = Seq2Seq(str(model), device=device)
                expand(
                    opened.passages, writer, written, count=count, seed=seed,
                    progress=lambda number: update(completed=number),
                )  # fmt: skip
    pairs = out.with_name(f"{out.name}.pairs")
    summary = expansion_pairs(source, written, pairs, per_passage=count, limit=limit)
    request = TrainingRequest(on=pairs, base=base, out=out, changes=tuple(changes or ()), device=device, quiet=as_json)
    trained = train("encoder", request)
    if as_json:
        about = {"pairs": summary["pairs"], "queries": str(written), "failed": failed}
        echo(json.dumps({**asdict(trained), "out": str(trained.out), **about}, ensure_ascii=False))
        return
    for reason, number in failed.items():
        echo(f"{number} passages have no queries: {reason}", err=True)
    figures = ", ".join(f"dev {name} {value:.4f}" for name, value in trained.figures.items()) or "no dev queries"
    echo(f"{summary['pairs']:,} pairs of {summary['passages']:,} passages ({written})")
    echo(f"{figures}; {trained.steps:,} steps in {trained.seconds:.0f} s ({trained.stopped})")
    echo(f"model: {trained.out} (in a systems YAML: {{kind: dense, embedder: {trained.out}}})")
