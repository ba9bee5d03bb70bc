"""`airgen show`: everything that is known about one query."""

from __future__ import annotations

from typing import Annotated

import typer

from airgen.commands.options import RUNS, Json, Runs, echo, new_app

app = new_app()


@app.command()
def show(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[PIPELINE] QUERY_ID",
            help="A pipeline or a job's name, the query's id (or how it begins), or both.",
        ),
    ],
    query: Annotated[str | None, typer.Argument(hidden=True)] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Show the document, character, scenario, rewrites, negatives, votes, judgments and decisions of one query.

    A pipeline, or the name of a job, without an id lists its queries. An id alone is looked up in all jobs
    below --runs.

    Example: airgen show pipelines/quickstart.yaml        airgen show q3f2a
    """
    import json

    from airgen.errors import UsageError
    from airgen.pipeline.show import find_job, find_lineage, job_with, life, render_life

    job = find_job(what, runs)
    if job is None and query is not None:
        raise UsageError(f"{what}: no pipeline, and no job of that name under {runs}")
    if job is None:
        job, query = job_with(what, runs), what
    with job.open_store(read_only=True) as store:
        accepted = job.accepted(store)
        if query is None:
            ids = job.ids
            rows = [{"id": ids.query(one), "query": one.final.text, "outcome": "accepted"} for one in accepted.lineages]
            rows += [
                {"id": ids.query(one.lineage), "query": one.lineage.final.text, "outcome": one.words}
                for one in accepted.rejected
                if one.lineage.query is not None
            ]
            if as_json:
                echo(json.dumps(rows, ensure_ascii=False, indent=1))
            else:
                for row in rows:
                    outcome = "" if row["outcome"] == "accepted" else f"  ({row['outcome']})"
                    echo(f"{row['id']}  {row['query']}{outcome}")
            return
        value = life(store, job, *find_lineage(accepted, query, job.ids))
    if as_json:
        value.pop("lines")
    echo(json.dumps(value, ensure_ascii=False, indent=1) if as_json else render_life(value))
