"""`airgen score`: score a submission."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Json, Split, echo, new_app

app = new_app()


@app.command()
def score(
    submission: Annotated[Path, typer.Argument(metavar="ZIP", help="A submission, of airgen or air-benchmark.")],
    qrels: Annotated[
        list[Path],
        typer.Option(metavar="DIR", help="A dataset, private labels, or a folder with such directories (repeatable)."),
    ],
    split: Split = "test",
    bm25: Annotated[Path | None, typer.Option(metavar="ZIP", help="BM25's submission; checks Reranking Only.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="DIR", help="Save the score for `airgen leaderboard`.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the saved score of this name.")] = False,
    as_json: Json = False,
) -> None:
    """Validate a submission and score it with the labels of the split. Queries without results count as zero.

    A submission that is refused ends in all reasons at once.

    Example: airgen score bm25.zip --qrels private/ --save scores/
    """
    import json
    from dataclasses import asdict

    from airgen.publishing.scores import HEAD, load_labels, save_score, score_results
    from airgen.publishing.submission import Submission

    official = Submission(bm25) if bm25 else None
    scored = score_results(Submission(submission), load_labels(qrels, split), bm25=official)
    path = save_score(scored, save, replace=replace) if save else None
    if as_json:
        echo(json.dumps({"class": scored.system_class, **asdict(scored)}, ensure_ascii=False, indent=1))
        return
    echo(f"{scored.model} + {scored.reranker}, version {scored.version}: {scored.system_class}")
    for one in scored.datasets:
        head = HEAD[one.task]
        line = f"{one.key} {one.split}: {head} {one.measures[head]:.5f}"
        if one.missing_count:
            line += f"; {one.missing_count} of {one.queries} queries missing: {', '.join(one.missing[:5])}"
        if one.unknown_queries:
            line += f"; {one.unknown_queries} unknown queries left out"
        if one.unknown_documents:
            line += f"; {one.unknown_documents} hits of unknown documents"
        echo(line)
    for name in scored.absent:
        echo(f"no results for {name}")
    if path:
        echo(str(path))
