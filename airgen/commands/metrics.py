"""`airgen metrics`: compute the measures of one run file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import IgnoreIdenticalIds, Json, echo, new_app

app = new_app()


@app.command()
def metrics(
    run: Annotated[Path, typer.Argument(help="A TREC run file; it may be gzipped.")],
    qrels: Annotated[Path, typer.Argument(help="Relevance labels as TSV, TREC or JSONL.")],
    measures: Annotated[
        str, typer.Option("--metrics", help="Measures, separated by spaces; `air-bench` for all of AIR-Bench's.")
    ] = "nDCG@10 Recall@100 R_cap@100 AP RR@10 Hole@10",
    parents: Annotated[
        Path | None,
        typer.Option(help="A dataset's private/parents.jsonl: score documents, each by the best of its chunks."),
    ] = None,
    by_query: Annotated[bool, typer.Option("--by-query", help="Print the scores of each query as well.")] = False,
    ignore_identical_ids: IgnoreIdenticalIds = False,
    as_json: Json = False,
) -> None:
    """Score a run against relevance labels. The numbers equal trec_eval's; queries without results count as zero.

    Example: airgen metrics bm25.run scifact/qrels/test.tsv --metrics "nDCG@10 R_cap@100"
    """
    import json

    from airgen.dataset.beir import read_qrels
    from airgen.errors import DatasetError
    from airgen.evaluation import AIR_BENCH, parse_measures, read_run, score
    from airgen.evaluation.significance import bootstrap_interval
    from airgen.text.display import terminal_table

    wanted = AIR_BENCH if measures == "air-bench" else parse_measures(measures)
    found, labels = read_run(run), read_qrels(qrels).labels
    if not set(found.query_ids) & set(labels):
        ids = [next(iter(sorted(one)), "none") for one in (found.query_ids, labels)]
        raise DatasetError(
            f"{run} and {qrels} have no query in common (for example {ids[0]!r} and {ids[1]!r}): give the qrels of the "
            "dataset on which the run was made"
        )
    if parents is not None:
        from airgen.evaluation.dataset_split import labels_by_parent, read_parents, run_by_parent

        tree = read_parents(parents)
        found, labels = run_by_parent(found, tree), labels_by_parent(labels, tree)
    scores = score(found, labels, wanted, ignore_identical_ids=ignore_identical_ids)
    names, intervals = [str(measure) for measure in wanted], bootstrap_interval(scores.values).tolist()
    counts = {
        "queries": len(scores.query_ids),
        "missing": scores.missing,
        "not judged": scores.unjudged,
        "without relevant": scores.without_relevant,
        **{name.replace("_", " "): count for name, count in found.notes.items()},
    }
    each = {
        key: dict(zip(names, column, strict=True))
        for key, column in zip(scores.query_ids, scores.values.T.tolist(), strict=True)
    }
    if as_json:
        value = {"means": scores.means(), "intervals": dict(zip(names, intervals, strict=True)), "counts": counts}
        echo(json.dumps({**value, "queries": each} if by_query else value, ensure_ascii=False, indent=1))
        return
    rows = [["measure", "mean", "95 %"]]
    for (name, mean), (low, high) in zip(scores.means().items(), intervals, strict=True):
        rows.append([name, f"{mean:.4f}", f"{low:.4f}-{high:.4f}"])
    echo(terminal_table(rows))
    if by_query:
        table = [[key, *(f"{value:.4f}" for value in row.values())] for key, row in each.items()]
        echo(terminal_table([["query", *names], *table]))
    echo(", ".join(f"{count} {name}" for name, count in counts.items() if count or name in ("queries", "missing")))
