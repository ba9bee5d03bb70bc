"""`airgen train KIND`: train a system on a dataset in BEIR format; and the commands that prepare or explain it.

Every kind of `airgen.training.KINDS` is a subcommand with the options below. The modules of `_OTHERS` define the other
subcommands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands import train_expand, train_explain, train_export, train_genq, train_pairs
from airgen.commands.options import Device, Json, Language, echo, new_app
from airgen.training import KINDS

_OTHERS = (train_explain, train_export, train_pairs, train_expand, train_genq)

app = new_app("train")


def _train(
    context: typer.Context,
    on: Annotated[
        list[str],
        typer.Option(
            "--on",
            metavar="DATASET[=WEIGHT]",
            help="A dataset in BEIR format, or pairs of `airgen train pairs`. Repeatable: an epoch has each query of a "
            "dataset WEIGHT times (1), or that share of them.",
        ),
    ],
    base: Annotated[str, typer.Option(help="The base model: of `airgen models list`, a folder, or the Hub.")],
    out: Annotated[Path, typer.Option(help="Folder of the trained model.")],
    recipe: Annotated[Path | None, typer.Option(help="A YAML recipe, as `airgen train recipe KIND` prints it.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change one setting of the recipe (repeatable)."),
    ] = None,
    split: Annotated[str, typer.Option(help="The split to train on; test only with --fold.")] = "train",
    fold: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Cross-validation: divide the queries into N parts and hold out part I."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in OUT.training.")] = False,
    language: Language = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Train one kind of system; `airgen train` lists the kinds.

    Example: airgen train augment --on scifact --base all-minilm-l6-v2 --out models/augment-scifact
    """
    import json
    from dataclasses import asdict

    from airgen.training import train
    from airgen.training.card import read_card, system_line
    from airgen.training.mixture import weighted_dataset
    from airgen.training.recipe import Fold, TrainingRequest
    from airgen.training.task import rank

    request = TrainingRequest(
        on=tuple(map(weighted_dataset, on)),
        base=base,
        out=out,
        recipe=recipe,
        changes=tuple(changes or ()),
        split=split,
        fold=Fold.parse(fold) if fold else None,
        resume=resume,
        language=language,
        device=device,
        quiet=as_json,
    )
    trained = train(str(context.command.name), request)
    if rank() > 0:  # one process prints
        return
    if as_json:
        echo(json.dumps({**asdict(trained), "out": str(trained.out)}, ensure_ascii=False))
        return
    if not trained.trained_now:
        echo(f"{trained.out} was trained before, with the same recipe on the same data: nothing to do")
    figures = ", ".join(f"dev {name} {value:.4f}" for name, value in trained.figures.items()) or "no dev queries"
    echo(f"{figures}; {trained.steps:,} steps in {trained.seconds:.0f} s ({trained.stopped})")
    echo(f"model: {trained.out} (its README.md describes the training)")
    card = read_card(trained.out)
    if card and card.get("system"):
        echo(f"in a systems YAML: {system_line(card)}")


for _kind, (_line, _) in KINDS.items():
    _example = f"Example: airgen train {_kind} --on DATASET --base all-minilm-l6-v2 --out models/{_kind}"
    app.command(_kind, help=f"{_line}\n\n{_example}")(_train)


@app.command()
def recipe(
    kind: Annotated[str, typer.Argument(help="A kind of training.")],
) -> None:
    """Print the default recipe of a kind as YAML: every setting with its value and where the value comes from.

    Example: airgen train recipe augment > my-recipe.yaml
    """
    from airgen.training import task_class
    from airgen.training.recipe import commented_yaml

    echo(commented_yaml(task_class(kind).RECIPE()), nl=False)


for _module in _OTHERS:
    app.registered_commands.extend(_module.app.registered_commands)
