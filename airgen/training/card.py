"""The files beside trained weights: card.json for programs, README.md for people, and the held-out labels of a fold.

MODEL/card.json        kind, base, data, recipe, figures, costs; written last, so a folder with it is complete
MODEL/README.md        the same in words
MODEL/held-out.tsv     qrels of the queries that a fold held out: `airgen evaluate measures RUN MODEL/held-out.tsv`
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airgen.dataset.files import building
from airgen.errors import TrainingError
from airgen.evaluation.result import library_versions
from airgen.text.display import markdown_table, md
from airgen.training.data import TrainingSet
from airgen.training.recipe import Recipe
from airgen.training.task import Trained, TrainingTask

CARD = "card.json"


def read_card(folder: Path) -> dict[str, Any] | None:
    """The card of a trained model, or None without one. Raises TrainingError for a damaged card."""
    path = folder / CARD
    if not path.is_file():
        return None
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"{path}: cannot be read ({error}): train into another folder") from error
    if not isinstance(card, dict) or "kind" not in card:
        raise TrainingError(f"{path}: is not the card of a trained model")
    return card


def system_line(card: Mapping[str, Any]) -> str:
    """The trained model as a line of a systems YAML: `- {name: mine, kind: dense, embedder: models/e5}`."""
    return f"- {{name: mine, {', '.join(f'{key}: {value}' for key, value in card['system'].items())}}}"


def write_card(
    kind: str,
    task: TrainingTask,
    trained: Trained,
    recipe: Recipe,
    data: TrainingSet,
    parts: Mapping[str, Any],
    device: str,
) -> None:
    """Write the folder of a trained model, which appears by one rename: the task's files, then the cards."""
    card = {
        "kind": kind,
        "fingerprint": trained.fingerprint,
        "parts": dict(parts),
        "base": parts["base"],
        "data": dict(data.about),
        "recipe": recipe.model_dump(mode="json"),
        "system": dict(task.system(trained.out)),
        "steps": trained.steps,
        "stopped": trained.stopped,
        "figures": dict(trained.figures),
        "history": [dict(entry) for entry in trained.history],
        "costs": {"seconds": round(trained.seconds, 3), "memory_bytes": trained.memory_bytes, "device": device},
        "versions": library_versions(),
    }
    with building(trained.out, CARD) as folder:
        task.save(folder)
        if data.held_out:
            rows = [
                f"{query}\t{passage}\t{label:g}\n"
                for query, labels in data.held_out.items()
                for passage, label in labels.items()
            ]
            (folder / "held-out.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")
        (folder / "README.md").write_text(_words(card), encoding="utf-8")
        (folder / CARD).write_text(json.dumps(card, ensure_ascii=False, indent=1, sort_keys=True), encoding="utf-8")


def _words(card: Mapping[str, Any]) -> str:
    data, costs = card["data"], card["costs"]
    fold = f", fold {data['fold']} held out ({data['held_out_queries']} queries)" if data.get("fold") else ""
    figures = ", ".join(f"{name} {value:.4f}" for name, value in card["figures"].items()) or "no dev queries"
    history = [
        [str(entry["step"]), *(f"{entry[name]:.4f}" if name in entry else "" for name in ("loss", "nDCG@10"))]
        for entry in card["history"]
    ]
    return "\n".join(
        [
            f"# {card['kind']} trained on {md(data['dataset'])}",
            "",
            f"Base: {md(card['base']['model'])}. Data: {md(data['dataset'])}, split {md(data['split'])}{fold}: "
            f"{data['training_queries']} training and {data['dev_queries']} dev queries over "
            f"{data['passages']} passages; content hash {data['digest']}.",
            *(
                f"- {md(one['name'])}, weight {one['weight']:g}: {one['training_queries']} training and "
                f"{one['dev_queries']} dev queries, split {md(one['split'])}; content hash {one['digest']}."
                for one in data.get("datasets", ())
            ),
            "",
            f"Dev figures of these weights: {figures}. {card['steps']} steps ({card['stopped']}), "
            f"{costs['seconds']:.0f} s on {costs['device']}, {costs['memory_bytes'] / 1e6:.0f} MB at most. "
            f"Fingerprint {card['fingerprint']}.",
            "",
            f"In a systems YAML: `{system_line(card)}`",
            "",
            markdown_table(["step", "loss", "dev nDCG@10"], history),
            "## Recipe",
            "",
            *(f"- {name}: {value}" for name, value in card["recipe"].items()),
            "",
        ]
    )
