"""`airgen train KIND`: learned systems, trained on a dataset in BEIR format; and what goes with them.

Every kind of `airgen.training.KINDS` becomes a command with the options below. Commands that are no training (pairs
to mine, terms to explain) are functions of the modules in `_OTHERS`, each with a typer `app` of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from airgen.commands import train_expand, train_explain, train_pairs
from airgen.training import KINDS

__all__ = ["app"]

_OTHERS: tuple[Any, ...] = (train_explain, train_pairs, train_expand)

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Train retrievers on a dataset, and look into them.")


def _train(
    context: typer.Context,
    on: Annotated[Path, typer.Option("--on", help="A dataset in BEIR's layout, or mined pairs (airgen train pairs).")],
    base: Annotated[str, typer.Option(help="The model to start from: of `airgen models list`, a folder, a Hub name.")],
    out: Annotated[Path, typer.Option(help="The folder of the trained model.")],
    recipe: Annotated[Path | None, typer.Option(help="A YAML recipe; see `airgen train recipe`.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change one setting (repeatable).")
    ] = None,
    split: Annotated[str, typer.Option(help="The qrels to train on; test only with --fold.")] = "train",
    fold: Annotated[
        str | None, typer.Option(metavar="I/N", help="Cross-validation: hold the queries of part I out.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in OUT.training.")] = False,
    language: Annotated[str | None, typer.Option(help="The corpus's language where no manifest says it.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps; a GPU if there is one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train one kind of retriever; `airgen train` lists them.

    Example: airgen train augment --on scifact --base all-minilm-l6-v2 --out models/augment-scifact
    """
    import json
    from dataclasses import asdict

    from airgen.training import trainer
    from airgen.training.card import read_card, system_line
    from airgen.training.recipe import Fold, Request

    request = Request(
        on=on,
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
    trained = trainer(str(context.command.name))(request)
    if as_json:
        typer.echo(json.dumps({**asdict(trained), "out": str(trained.out)}, ensure_ascii=False))
        return
    if not trained.trained_now:
        typer.echo(f"{trained.out} was trained before, with the same recipe on the same data: nothing to do")
    figures = ", ".join(f"dev {name} {value:.4f}" for name, value in trained.figures.items()) or "no dev queries"
    typer.echo(f"{figures}; {trained.steps:,} steps in {trained.seconds:.0f} s ({trained.stopped})")
    typer.echo(f"model: {trained.out} (README.md says how it was made)")
    card = read_card(trained.out)
    if card and card.get("system"):
        typer.echo(f"in a systems YAML: {system_line(card)}")


for _kind, (_line, _) in KINDS.items():
    _example = f"Example: airgen train {_kind} --on DATASET --base all-minilm-l6-v2 --out models/{_kind}"
    app.command(_kind, help=f"{_line}\n\n{_example}")(_train)


@app.command()
def recipe(
    kind: Annotated[str, typer.Argument(help="A kind of training.")],
) -> None:
    """Print a kind's recipe as YAML: every setting, its default, and where that comes from.

    Example: airgen train recipe augment > my-recipe.yaml
    """
    import importlib

    from airgen.training import trainer
    from airgen.training.recipe import commented_yaml

    module = importlib.import_module(trainer(kind).__module__)
    typer.echo(commented_yaml(module.RECIPE()), nl=False)


for _module in _OTHERS:
    app.registered_commands.extend(_module.app.registered_commands)
