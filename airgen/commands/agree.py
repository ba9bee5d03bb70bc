"""`airgen agree`: does a generated benchmark rank systems as human labels do?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from airgen.commands.options import RUNS, Budget, Json, Runs, Split, Target, echo, new_app, shipped

if TYPE_CHECKING:
    from airgen.evaluation.systems import SystemSettings
    from airgen.pipeline.job import Job


app = new_app()


@app.command()
def agree(
    collection: Annotated[Path, typer.Argument(metavar="COLLECTION", help="A human-labelled dataset in BEIR format.")],
    pipeline: Annotated[
        Path, typer.Option(help="A pipeline; the collection takes the place of its `corpus`.", callback=shipped)
    ],
    systems: Annotated[
        Path, typer.Option(help="A systems YAML; `weakened: true` marks systems made bad on purpose.", callback=shipped)
    ],
    sources: Annotated[
        Literal["positives", "any"],
        typer.Option(
            "--from",
            help="Generate queries from documents with a positive human label (paper, section 4.1), or from any.",
        ),
    ] = "positives",
    split: Split = "test",
    target: Target = None,
    measure: Annotated[str, typer.Option(help="The measure that ranks the systems.")] = "nDCG@10",
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another human-labelled collection; how well its ranking agrees is the baseline (repeatable)."
        ),
    ] = None,
    leave_one_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-out",
            help="For each system whose models take part in quality control, label again without those models.",
        ),
    ] = False,
    draws: Annotated[
        int, typer.Option(min=1, max=10_000, help="How often some of the generated queries are drawn (Figure 3).")
    ] = 30,
    drawn: Annotated[
        int | None, typer.Option(min=1, help="How many at a time; by default the paper's share: 2,000 of 6,319.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Print the estimated cost and what each system needs; make no LLM call.")
    ] = False,
    budget: Budget = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Generate queries from a human-labelled collection, rank systems with both kinds of labels, compare the rankings.

    The command can be stopped at any time; run it again to go on. The report is
    RUNS/NAME-COLLECTION/agreement/agreement.md.

    Example: airgen agree scifact --pipeline pipelines/agree.yaml --systems pipelines/systems-agree.yaml
    """
    import json

    from airgen.evaluation.systems import load_systems
    from airgen.pipeline.progress import Display
    from airgen.quality.agreement.study import AgreementStudy, agree_job

    found = load_systems(systems)
    job = agree_job(collection, pipeline, runs, sources=sources, split=split, target=target)
    if check:
        _print_check(job, found, systems.resolve().parent, as_json=as_json)
        return
    display = Display(job.directory / "status.json")
    study = AgreementStudy(
        job, collection, found, systems.resolve().parent, split=split, sources=sources, measure=measure,
        beside=beside or (), leave_one_out=leave_one_out, budget_usd=budget, draws=draws, drawn=drawn,
    )  # fmt: skip
    report = study.report(display)
    folder = job.directory / "agreement"
    report.write(folder)
    if as_json:
        echo(json.dumps(report.as_dict(), ensure_ascii=False, indent=1))
        return
    echo(report.markdown())
    echo(f"{folder / 'agreement.md'}, agreement.json, ranks.svg, scores.svg, resamplings.svg")


def _print_check(job: Job, systems: list[SystemSettings], folder: Path, *, as_json: bool) -> None:
    """The estimate of the job, and what each system needs; exit code 1 where anything is missing."""
    import json
    from dataclasses import asdict

    from airgen.commands.check import checked, print_checked
    from airgen.evaluation.systems import system_needs
    from airgen.text.display import terminal_table

    found, needed = checked(job), system_needs(systems, folder)
    if as_json:
        echo(json.dumps({**found.as_dict(), "systems": [asdict(one) for one in needed]}, indent=1))
    else:
        print_checked(job, found)
        rows = [["system", "kind", "models", "packages"]]
        rows += [[one.name, one.kind, ", ".join(one.models), ", ".join(one.packages)] for one in needed]
        echo("\n" + terminal_table(rows, left=(0, 1, 2, 3)))
        for line in (line for one in needed for line in one.missing):
            echo(f"  ! {line}")
    if found.problems or any(one.missing for one in needed):
        raise typer.Exit(1)
