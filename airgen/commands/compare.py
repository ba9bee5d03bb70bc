"""`airgen compare`: do runs differ significantly?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Json, echo, finite, new_app

app = new_app()


@app.command()
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="A.run B.run...", help="Two or more TREC run files; with --baseline one or more."),
    ],
    qrels: Annotated[Path, typer.Option(help="Relevance labels as TSV, TREC or JSONL.")],
    metrics: Annotated[str, typer.Option(help="Measures, separated by spaces.")] = "nDCG@10",
    alpha: Annotated[
        float, typer.Option(min=0.0001, max=0.5, callback=finite, help="Significance level, Holm-corrected.")
    ] = 0.05,
    samples: Annotated[int, typer.Option(min=100, help="Random permutations of Fisher's randomisation test.")] = 10_000,
    baseline: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Compare every run with this one only, by intervals.")
    ] = None,
    fail_if_worse: Annotated[
        bool, typer.Option("--fail-if-worse", help="With --baseline: exit code 1 if a run is worse for certain.")
    ] = False,
    fail_if_unsure: Annotated[
        bool, typer.Option("--fail-if-unsure", help="With --baseline: exit code 1, too, if a run may be worse.")
    ] = False,
    margin: Annotated[
        float, typer.Option(min=0, callback=finite, help="With --baseline: how much worse a run may be.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Compare runs with paired tests, and estimate how many queries a test needs to detect each difference.

    With --baseline each run is compared with one: `worse` if the interval of the difference is below minus the margin.

    Example: airgen compare bm25.run dense.run --qrels scifact/qrels/test.tsv --metrics "nDCG@10 Recall@100"
    Example: airgen compare new.run --baseline main.run --qrels qrels.tsv --fail-if-worse --margin 0.01
    """
    import json
    from dataclasses import asdict

    import numpy as np

    from airgen.dataset.beir import read_qrels
    from airgen.errors import UsageError
    from airgen.evaluation import parse_measures, read_run, score
    from airgen.evaluation.significance import against_baseline
    from airgen.evaluation.significance import compare as test
    from airgen.evaluation.tables import pair_text, places_text, rank_text
    from airgen.text.display import terminal_table

    if baseline is None and (fail_if_worse or fail_if_unsure or margin):
        raise UsageError("--fail-if-worse, --fail-if-unsure and --margin need --baseline: worse than which run?")
    if baseline is not None:
        runs = [*runs, baseline]
    elif len(runs) < 2:
        raise UsageError("give two run files or more: one cannot be compared")
    names = [str(path) for path in runs]
    if len(set(names)) < len(names):
        raise UsageError("a run file is given twice")
    labels, wanted = read_qrels(qrels).labels, parse_measures(metrics)
    scored = [score(read_run(path), labels, wanted) for path in runs]
    if baseline is not None:
        level = 1 - alpha / (len(wanted) * (len(runs) - 1))  # all intervals hold together
        gates = [
            against_baseline(name, one.of(m), scored[-1].of(m), measure=str(m), margin=margin, level=level)
            for name, one in zip(names[:-1], scored[:-1], strict=True)
            for m in wanted
        ]
        if as_json:
            gated = {"baseline": str(baseline), "queries": len(labels), "runs": [asdict(gate) for gate in gates]}
            echo(json.dumps(gated, ensure_ascii=False, indent=1))
        else:
            rows = [["run", "measure", "difference", f"{100 * level:.4g} %", ""]]
            for gate in gates:
                interval = f"{gate.low:+.4f} to {gate.high:+.4f}"
                rows.append([gate.run, gate.measure, f"{gate.difference:+.4f}", interval, gate.verdict])
            echo(terminal_table(rows))
        bad = {"worse"} & {gate.verdict for gate in gates} if fail_if_worse or fail_if_unsure else set()
        bad |= {"unsure"} & {gate.verdict for gate in gates} if fail_if_unsure else set()
        if bad:
            raise typer.Exit(1)
        return
    found = {
        str(measure): test(names, np.stack([scores.of(measure) for scores in scored]), alpha=alpha, samples=samples)
        for measure in wanted
    }
    if as_json:
        missing = dict(zip(names, (scores.missing for scores in scored), strict=True))
        value = {"measures": {name: asdict(comparison) for name, comparison in found.items()}, "missing": missing}
        echo(json.dumps(value, ensure_ascii=False, indent=1))
        return
    rows = [["run", *found, "missing"]]
    for name, scores in zip(names, scored, strict=True):
        rows.append([name, *(f"{mean:.4f}" for mean in scores.means().values()), str(scores.missing)])
    echo(terminal_table(rows))
    for measure, comparison in found.items():
        for pair in comparison.pairs:
            echo(pair_text(pair, measure))
        ranks, beside = rank_text(comparison), places_text(comparison)
        rows = [["#", f"by {measure}", "rank", "not told apart from #"]]
        rows += [[str(at), name, ranks[name], beside[name]] for at, name in enumerate(comparison.names, 1)]
        echo("\n" + terminal_table(rows, left=(1,)))
