"""`airgen agree`: does a generated benchmark rank systems as human labels do?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def agree(
    collection: Annotated[Path, typer.Argument(metavar="COLLECTION", help="A human-labelled folder in BEIR's layout.")],
    pipeline: Annotated[Path, typer.Option(help="A pipeline YAML; the collection replaces its `corpus`.")],
    systems: Annotated[Path, typer.Option(help="A systems YAML; `weakened: true` marks deliberately bad systems.")],
    sources: Annotated[
        Literal["positives", "any"], typer.Option("--from", help="Documents with a human positive (paper 4.1), or any.")
    ] = "positives",
    split: Annotated[str, typer.Option(help="The split of the human labels.")] = "test",
    target: Annotated[int | None, typer.Option(min=1, help="Accepted queries to make, instead of the YAML's.")] = None,
    measure: Annotated[str, typer.Option(help="The measure that ranks the systems.")] = "nDCG@10",
    beside: Annotated[
        list[Path] | None, typer.Option(help="Another collection: its ranking is the trivial competitor (repeatable).")
    ] = None,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Label again without the models that a system and control share.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Print the estimated cost; no LLM is asked.")] = False,
    budget: Annotated[float | None, typer.Option(help="The most that the job may cost in all, in US dollars.")] = None,
    runs: Annotated[Path, typer.Option(help="Where work directories are.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Generate from a human-labelled collection, run systems on both sides, and compare the two rankings.

    The command can be stopped at any point, and goes on when it is run again. The report is written to
    RUNS/NAME-COLLECTION/agreement/agreement.md.

    Example: airgen agree scifact --pipeline pipelines/agree.yaml --systems pipelines/systems-agree.yaml
    """
    import json

    from airgen.commands.check import print_check
    from airgen.evaluation.systems import load_systems
    from airgen.pipeline.progress import Display
    from airgen.quality.agreement.agreement_study import AgreementStudy
    from airgen.quality.agreement.scored_sides import agree_job

    found = load_systems(systems)
    job = agree_job(collection, pipeline, runs, sources=sources, split=split, target=target)
    if check:
        print_check(job, as_json=as_json)
        return
    display = Display(job.directory / "status.json")
    study = AgreementStudy(
        job, collection, found, systems.resolve().parent, split=split, sources=sources, measure=measure,
        beside=beside or (), leave_one_out=leave_one_out, budget_usd=budget,
    )  # fmt: skip
    report = study.report(display)
    folder = job.directory / "agreement"
    report.write(folder)
    if as_json:
        typer.echo(json.dumps(report.as_dict(), ensure_ascii=False, indent=1))
        return
    typer.echo(report.markdown())
    typer.echo(f"{folder / 'agreement.md'}, agreement.json, ranks.svg, scores.svg, resamplings.svg")
