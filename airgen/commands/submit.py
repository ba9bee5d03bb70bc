"""`airgen submit`: pack search results for whoever has the labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Json, echo, new_app

app = new_app()


@app.command()
def submit(
    out: Annotated[Path, typer.Option(metavar="ZIP", help="The submission to write.")],
    results: Annotated[Path | None, typer.Argument(help="air-benchmark's folder {retriever}/{reranker}.")] = None,
    dataset: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="The dataset of the --run in the same place (repeatable).")
    ] = None,
    run: Annotated[list[Path] | None, typer.Option(metavar="RUN", help="A TREC run file (repeatable).")] = None,
    model: Annotated[str, typer.Option(help="Name of the retriever; needed with --run.")] = "",
    reranker: Annotated[str, typer.Option(help="Name of the re-ranker, with --run.")] = "NoReranker",
    split: Annotated[str, typer.Option(help="The split to submit, with --run.")] = "test",
    as_json: Json = False,
) -> None:
    """Pack search results as a submission: TREC runs with their datasets, or air-benchmark's folder of results.

    Example: airgen submit --dataset data/python-reference --run bm25.run --model BM25 --out bm25.zip
    """
    import json

    from airgen.errors import UsageError
    from airgen.publishing.submission import pack, read_results_tree, results_of_run

    datasets, runs = dataset or [], run or []
    if bool(results) == bool(runs) or len(datasets) != len(runs):
        raise UsageError("give either RESULTS, or a --dataset for each --run")
    if runs and not model:
        raise UsageError("--run needs --model, the system's name on the leaderboard")
    packed = read_results_tree(results) if results else []
    notes: list[str] = []
    for home, path in zip(datasets, runs, strict=True):
        of_run, missing = results_of_run(home, path, model=model, reranker=reranker, split=split)
        packed.append(of_run)
        if missing:
            notes.append(f"{path}: {missing} queries of {split} have no hits and will count as zero")
    pack(packed, out)
    if as_json:
        rows = [{"entry": one.entry, "queries": len(one.hits)} for one in packed]
        echo(json.dumps({"file": str(out), "results": rows, "notes": notes}, indent=1))
        return
    for note in notes:
        echo(note, err=True)
    for one in packed:
        echo(f"{one.entry}: {len(one.hits):,} queries")
    echo(str(out))
