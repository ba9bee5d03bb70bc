"""`airgen train KIND`: a system trained on a dataset in BEIR format; and what a trained one does and exports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airgen.commands.command import Outcome, command, is_silent
from airgen.commands.options import Device, Language, Place, Quiet, Split, arg, opt
from airgen.training import KINDS

if TYPE_CHECKING:
    from airgen.training.kinds.augment import LuceneExport
    from airgen.training.task import Trained

_KINDS = "; ".join(f"{name}: {about.removesuffix('.')}" for name, (about, _) in KINDS.items())


@command
def train(
    kind: Annotated[str, arg("KIND", _KINDS)],
    on: Annotated[
        Sequence[str],
        opt("A dataset in BEIR format, or pairs of `airgen train pairs`. An epoch has each query of a "
            "dataset WEIGHT times (1), or that share of them.", "--on", metavar="DATASET[=WEIGHT]"),
    ],
    base: Annotated[str, opt("The base model: of `airgen show models`, a folder, or the Hub.")],
    out: Annotated[Place, opt("Folder of the trained model.")],
    recipe: Annotated[Place | None, opt("A YAML recipe, as `airgen train recipe KIND` prints it.")] = None,
    changes: Annotated[Sequence[str], opt("Change one setting of the recipe.", "--set", metavar="NAME=VALUE")] = (),
    split: Annotated[str, opt("The split to train on; test only with --fold.")] = "train",
    fold: Annotated[str | None, opt("Cross-validation: hold out part I of N of the queries.", metavar="I/N")] = None,
    resume: Annotated[bool, opt("Go on from the checkpoint in OUT.training.")] = False,
    language: Language = None,
    device: Device = None,
    quiet: Quiet = False,
) -> Outcome[Trained]:  # fmt: skip
    """Train one kind of system.

    Example: airgen train augment --on scifact --base all-minilm-l6-v2 --out models/augment-scifact
    """
    from airgen.training import train as train_system
    from airgen.training.data import weighted_dataset
    from airgen.training.recipe import Fold, TrainingRequest
    from airgen.training.task import rank, read_card, system_line

    request = TrainingRequest(
        on=tuple(map(weighted_dataset, on)),
        base=base,
        out=Path(out),
        recipe=None if recipe is None else Path(recipe),
        changes=tuple(changes),
        split=split,
        fold=Fold.parse(fold) if fold else None,
        resume=resume,
        language=language,
        device=device,
        quiet=is_silent(),
    )
    trained = train_system(kind, request)
    card = read_card(trained.out)
    lines = [] if trained.trained_now else [f"{trained.out} was trained before, with the same recipe on the same data: "
                                            "nothing to do"]  # fmt: skip
    lines += [trained_line(trained), f"model: {trained.out} (its README.md describes the training)"]
    lines += [f"in a systems YAML: {system_line(card)}"] if card and card.get("system") else []
    return Outcome(trained, lines, hidden=rank() > 0)  # one process prints


def trained_line(trained: Trained) -> str:
    """The figures of a training in one line."""
    figures = ", ".join(f"dev {name} {value:.4f}" for name, value in trained.figures.items()) or "no dev queries"
    return f"{figures}; {trained.steps:,} steps in {trained.seconds:.0f} s ({trained.stopped})"


@command
def train_recipe(
    kind: Annotated[str, arg("KIND", "A kind of training.")],
) -> Outcome[str]:
    """Print the default recipe of a kind as YAML: every setting with its value and where the value comes from.

    Example: airgen train recipe augment > my-recipe.yaml
    """
    from airgen.training import task_class
    from airgen.training.recipe import commented_yaml

    text = commented_yaml(task_class(kind).RECIPE())
    return Outcome(text, text)


@command
def train_explain(
    model: Annotated[Place, arg("MODEL", "A folder that `airgen train augment` wrote.")],
    queries: Annotated[Sequence[str], arg("QUERY", "One or more queries.")],
    on: Annotated[Place | None, opt("A dataset; its document frequencies enter weights.", "--on")] = None,
    top: Annotated[int, opt("Maximum number of added terms to show.", min=1)] = 15,
) -> Outcome[list[dict[str, Any]]]:
    """Show the terms that a trained augmentation adds to a query, and the query terms that it drops or weakens.

    Weights are divided by the mean weight of the query's own terms: only their ratios affect the ranking.

    Example: airgen train explain models/augment-scifact "statins lower the risk of stroke"
    """
    from dataclasses import asdict

    from airgen.retrievers.lexical.augment import Augmented
    from airgen.text.display import terminal_table, terminal_text
    from airgen.training.data import read_corpus

    system = Augmented(Path(model))
    if on is not None:
        system.index(read_corpus(Path(on)))
    rows, lines = [], []
    for query in queries:
        terms = system.explain(query)
        own = [term for term in terms if term.in_query]
        shown = [*own, *terms[len(own) : len(own) + top]]
        listed = [{**asdict(term), "change": term.change} for term in shown]
        rows.append({"query": query, "terms": listed, "added": len(terms) - len(own)})
        table = [["term", "what", "weight", *(["passages"] if on else [])]]
        table += [[t.term, t.change, f"{t.relative:.2f}", *([str(t.passages)] if on else [])] for t in shown]
        lines += [terminal_text(query), terminal_table(table)]
        lines += [f"and {len(terms) - len(shown)} more"] if len(shown) < len(terms) else []
    return Outcome(rows, lines)


@command
def train_export(
    model: Annotated[Place, arg("MODEL", "A folder that `airgen train augment` wrote.")],
    on: Annotated[Place, opt("The dataset whose corpus and queries are written.", "--on")],
    out: Annotated[Place, opt("Folder for the files; it must be empty.")],
    to: Annotated[Literal["lucene"], opt("The form of the queries.", "--to")] = "lucene",
    split: Split = "test",
) -> Outcome[LuceneExport]:
    """Write corpus and weighted queries for Lucene, Pyserini and other engines that take boosts of terms.

    The engine indexes the terms as they are, so its own stemmer must be off (Pyserini: --pretokenized).

    Example: airgen train export models/augment-scifact --on scifact --out lucene
    """
    from airgen.training.kinds.augment import export_lucene

    found = export_lucene(Path(model), Path(on), Path(out), split)
    lines = [
        f"{found.passages:,} passages: {found.corpus}",
        f"{found.asked:,} queries of {found.terms:.1f} terms: {found.queries}",
        f"BM25 of the engine: k1 {found.k1}, b {found.b}, terms divided by spaces",
    ]
    return Outcome(found, lines)
