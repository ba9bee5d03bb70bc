"""`airgen calibrate`: does a judge agree with human labels?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Budget, Json, Language, Seed, Split, echo, new_app, shipped

app = new_app()


@app.command()
def calibrate(
    judge: Annotated[
        str,
        typer.Argument(
            help="One of: a judge prompt (judge, judge_yes_no, rubric); `pipeline` for the pipeline's own judge; "
            "`votes` for the votes of its re-rankers; a re-ranker."
        ),
    ],
    collections: Annotated[list[Path], typer.Argument(metavar="COLLECTION...", help="Human-labelled datasets.")],
    pipeline: Annotated[
        Path | None, typer.Option(help="Use this pipeline's models (default: quickstart's).", callback=shipped)
    ] = None,
    pairs: Annotated[int, typer.Option(min=2, help="Pairs drawn from each collection; half are relevant.")] = 60,
    every_pair: Annotated[
        bool,
        typer.Option(
            "--every-pair",
            help="Every recalled passage instead of a sample, for judges that ask no LLM: probabilities then hold for "
            "the passages that quality control meets, most of which are not relevant.",
        ),
    ] = False,
    depth: Annotated[int, typer.Option(min=1, help="Draw pairs from the top hits of BM25 and the recall model.")] = 10,
    relevant_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LABEL",
            help="Lowest label that counts as relevant in collection NAME (default: 1; repeatable).",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=LABEL", help="Leave out the pairs of collection NAME with this label (repeatable)."),
    ] = None,
    words: Annotated[int | None, typer.Option(min=1, help="Maximum number of words of a document for an LLM.")] = None,
    split: Split = "test",
    language: Language = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for answers, vectors and reports.")] = Path("runs/calibrate"),
    budget: Budget = None,
    as_json: Json = False,
) -> None:
    """Compare a judge with human labels, on pairs that people judged relevant or not relevant and on unjudged top hits.

    Example: airgen calibrate votes datasets/scifact datasets/nfcorpus --pairs 200
    """
    import json
    from dataclasses import replace

    from airgen.errors import UsageError
    from airgen.pipeline.progress import Display
    from airgen.prompts import PromptSet
    from airgen.quality.judge.calibrate import JudgeTrial, Selection, default_pipeline
    from airgen.quality.judge.calibrate import calibrate as run
    from airgen.settings import load_pipeline

    least, left_out = _labels("--relevant-from", relevant_from), _labels("--ignore", ignore)
    names = {folder.resolve().name for folder in collections}
    if unknown := sorted((least.keys() | left_out.keys()) - names):
        raise UsageError(f"{unknown[0]}=...: no collection given has that directory's name")
    drawn = Selection(split, None if every_pair else pairs, depth, seed=seed, language=language or Selection.language)
    chosen = [
        (folder, replace(drawn, label_from=max(least.get(name, [1.0])), ignore=tuple(left_out.get(name, []))))
        for folder, name in ((folder, folder.resolve().name) for folder in collections)
    ]
    models = load_pipeline(pipeline) if pipeline else default_pipeline()
    prompts = PromptSet.beside(pipeline.parent) if pipeline else PromptSet()
    trial = JudgeTrial(models, prompts, out, words, budget)
    result = run(judge, chosen, trial, Display(out / "status.json"))
    echo(json.dumps(result.as_dict(), ensure_ascii=False) if as_json else result.as_markdown())


def _labels(option: str, given: list[str] | None) -> dict[str, list[float]]:
    """NAME=LABEL words as {name: labels}."""
    from airgen.errors import UsageError

    found: dict[str, list[float]] = {}
    for word in given or []:
        name, _, label = word.rpartition("=")
        try:
            found.setdefault(name, []).append(float(label))
        except ValueError:
            raise UsageError(f"{option} {word}: give NAME=LABEL with a number, such as scifact=1") from None
    return found
