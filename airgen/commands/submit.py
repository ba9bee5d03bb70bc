"""`airgen submit`: search results, packed for whoever holds the private labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def submit(
    out: Annotated[Path, typer.Option(metavar="ZIP", help="The submission to write.")],
    results: Annotated[
        Path | None, typer.Argument(metavar="RESULTS", help="air-benchmark's folder {retriever}/{reranker}.")
    ] = None,
    dataset: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A dataset; with --run, repeatable.")
    ] = None,
    run: Annotated[list[Path] | None, typer.Option(metavar="RUN", help="The TREC run of that dataset.")] = None,
    model: Annotated[str, typer.Option(help="The retriever's name, with --run.")] = "",
    reranker: Annotated[str, typer.Option(help="The re-ranker's name, with --run.")] = "NoReranker",
    split: Annotated[str, typer.Option(help="The split to submit, with --run.")] = "test",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was packed as JSON.")] = False,
) -> None:
    """Pack search results as a submission: TREC runs with their datasets, or air-benchmark's own folder.

    Example: airgen submit --dataset data/python-reference --run bm25.run --model BM25 --out bm25.zip
    """
    import json

    from airgen.dataset.layouts import read_rows
    from airgen.dataset.manifest import load_manifest
    from airgen.errors import DatasetError, UsageError
    from airgen.evaluation.run import read_run
    from airgen.publishing.submission import Limits, Results, pack, read_results_tree

    datasets, runs = dataset or [], run or []
    if bool(results) == bool(runs) or len(datasets) != len(runs):
        raise UsageError("give either RESULTS, or as many --run as --dataset")
    found: list[Results] = []
    notes: list[str] = []
    if results:
        found = read_results_tree(results)
    elif not model:
        raise UsageError("--run needs --model, the system's name on the leaderboard")
    for home, path in zip(datasets, runs, strict=True):
        info = load_manifest(home).info
        splits = {row["_id"]: row["metadata"]["split"] for row in read_rows(home / "queries.jsonl")}
        hits: dict[str, dict[str, float]] = {}
        for query, ranked in read_run(path).ranked().items():
            if query not in splits:
                raise DatasetError(f"{path}: query {query!r} is not in {home}")
            if splits[query] == split:
                hits[query] = dict(ranked[: Limits().hits])
        missing = sum(1 for query, where in splits.items() if where == split and query not in hits)
        if missing:
            notes.append(f"{path}: {missing} queries of {split} have no hits and will count as zero")
        fields = (model, reranker, info.version, info.task, info.domain, info.language, info.name, split)
        found.append(Results(*fields, hits))
    pack(found, out)
    if as_json:
        rows = [{"entry": one.entry, "queries": len(one.hits)} for one in found]
        typer.echo(json.dumps({"file": str(out), "results": rows, "notes": notes}, indent=1))
        return
    for note in notes:
        typer.echo(note, err=True)
    for one in found:
        typer.echo(f"{one.entry}: {len(one.hits):,} queries")
    typer.echo(str(out))
