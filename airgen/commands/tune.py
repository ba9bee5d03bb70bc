"""`airgen tune`: weights of a hybrid from dev labels, with an honest gain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Dataset, Json, Seed, echo, new_app

app = new_app()


@app.command()
def tune(
    dataset: Dataset,
    systems: Annotated[
        list[str], typer.Argument(metavar="A B...", help="Two to four systems of the results, or TREC run files.")
    ],
    results: Annotated[Path, typer.Option(help="Folder that `airgen evaluate --split dev` wrote.")] = Path("results"),
    split: Annotated[str, typer.Option(help="The split whose labels choose the weights; never test.")] = "dev",
    metric: Annotated[str, typer.Option(help="The measure to raise, with a cutoff of at most 10.")] = "nDCG@10",
    folds: Annotated[int, typer.Option(min=2, max=20, help="Folds of the nested validation.")] = 5,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Tune the weights of a hybrid on dev labels, and say what they gain on queries that did not choose them.

    The last line is the system for your systems YAML. No retriever runs: the systems' kept runs are joined.

    Example: airgen tune datasets/handbook bm25 dense --results results
    """
    import json
    from dataclasses import asdict

    from airgen.dataset.beir import BeirDataset
    from airgen.errors import UsageError
    from airgen.evaluation import parse_measures, read_run
    from airgen.evaluation.experiment import results_folder
    from airgen.evaluation.tune import tune as search
    from airgen.quality.audit.systems_of import find_runs
    from airgen.text.display import terminal_table

    if split == "test":
        raise UsageError("weights that test labels chose would make every test score too good: tune on dev labels")
    (measure,) = parse_measures(metric)[:1]
    if measure.cutoff is None or measure.cutoff > 10:
        raise UsageError(f"{measure}: a measure with a cutoff of at most 10 is needed, such as nDCG@10")
    opened = BeirDataset.open(dataset)
    labels = opened.qrels(split).labels
    runs = find_runs(results_folder(results, opened.name, split), systems)
    found = search({name: read_run(path) for name, path in runs.items()}, labels, measure=str(measure), folds=folds,
                   seed=seed)  # fmt: skip
    system = found.chosen.as_system("hybrid", found.systems)
    if as_json:
        echo(json.dumps({**asdict(found), "system": system}, ensure_ascii=False))
        return
    rows = [[f"{found.queries} queries of {split}", found.measure]]
    rows += [[name, f"{value:.4f}"] for name, value in found.singles.items()]
    rows.append(["equal weights (rrf)", f"{found.equal:.4f}"])
    rows.append(["tuned, on queries that did not choose the weights", f"{found.held_out:.4f}"])
    rows.append(["tuned, on the queries that chose them (too good)", f"{found.apparent:.4f}"])
    echo(terminal_table(rows))
    for other, gain in (("equal weights", found.gain), ("the best single system", found.over_best)):
        sure = "better" if gain.low > 0 else "worse" if gain.high < 0 else "cannot be told apart"
        echo(f"over {other}: {gain.value:+.4f} (95 % {gain.low:+.4f} to {gain.high:+.4f}): {sure}")
    echo(f"{found.stable:.0%} of the folds chose the same method")
    echo("  - " + json.dumps(system, ensure_ascii=False))
