"""Learned systems: train one on a BEIR dataset or on pairs mined from a corpus, and use it beside the others.

    airgen train augment --on scifact --base all-minilm-l6-v2 --out models/augment-scifact

A kind of training is one module here and one line in `KINDS`. How they fit together:

    recipe.py     what a recipe says: hyperparameters, each with its source
    data.py       queries with their positives and hard negatives, dev queries, folds; the test split out of reach
    bases.py      the pretrained model that training starts from
    loop.py       the one training loop: `Task` is what a kind gives it, `run` does the rest
    card.py       what is written beside the weights
"""

from __future__ import annotations

from typing import Any

from airgen.registry import closest

__all__ = ["KINDS", "trainer"]

# kind -> (one line for --help, "module:function"); the function takes a `recipe.Request`, gives a `loop.Trained`.
# A module has a `RECIPE` too: its class of recipe, so that `airgen train recipe KIND` can print it.
KINDS: dict[str, tuple[str, str]] = {
    "augment": ("BM25 query augmentation, learned end to end.", "airgen.training.kinds.augment:train"),
    "pretrain": ("An encoder on pairs without labels, as E5 is pre-trained.", "airgen.training.kinds.pretrain:train"),
    "encoder": ("An encoder on labelled data, as E5 is fine-tuned; GenQ.", "airgen.training.kinds.encoder:train"),
    "cross-encoder": (
        "A re-ranker, by distillation or from labels alone.",
        "airgen.training.kinds.cross_encoder:train",
    ),
    "splade": ("A SPLADE: sparse weights over the vocabulary.", "airgen.training.kinds.splade:train"),
    "deepct": ("DeepCT: BM25 over term weights that a model predicts.", "airgen.training.kinds.deepct:train"),
    "sparta": ("SPARTA: impacts of the whole vocabulary.", "airgen.training.kinds.sparta:train"),
    "colbert": ("Late interaction: a vector for each token.", "airgen.training.kinds.late:train"),
}


def trainer(kind: str) -> Any:
    """The function that trains a kind. Raises UsageError for an unknown one, MissingExtra for a missing package."""
    import importlib

    from airgen.errors import UsageError

    if kind not in KINDS:
        raise UsageError(f"unknown kind of training {kind!r}{closest(kind, list(KINDS))}")
    module, _, name = KINDS[kind][1].partition(":")
    return getattr(importlib.import_module(module), name)
