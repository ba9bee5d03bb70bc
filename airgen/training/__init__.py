"""Train systems on a BEIR dataset or on pairs mined from a corpus, and use them alongside others.

    airgen train augment --on scifact --base all-minilm-l6-v2 --out models/augment-scifact

A kind of training is a module in `kinds`, with a recipe and a task, and a line in `KINDS`:

    recipe.py           hyperparameters, each with its source, and what the command line asked for
    data.py             queries with positives and hard negatives, dev queries, folds, batches; several datasets as one
    dataset_columns.py  the files of a dataset, with texts on disk and labels as numbers
    base_models.py      the pretrained model that training starts from
    teachers.py         re-rankers to distil from, or their scores from a file
    task.py             what a kind gives the trainer: batches, a loss, dev figures, a folder to write; the model's card
    trainer.py          the Trainer of transformers, for every kind
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from airgen.components.registry import unknown_name
from airgen.errors import TrainingError, UsageError
from airgen.safety.guard import guarded

if TYPE_CHECKING:
    from airgen.training.recipe import TrainingRequest
    from airgen.training.task import Trained, TrainingTask


# kind -> (one line for --help, "module:class" of its `TrainingTask`)
KINDS: dict[str, tuple[str, str]] = {
    "augment": ("Query augmentation for BM25, learned end to end.", "augment:AugmentTask"),
    "pretrain": ("An encoder on pairs without labels, as E5 is pre-trained.", "encoder:PretrainTask"),
    "encoder": ("An encoder on labelled data, as E5 is fine-tuned; GenQ.", "encoder:EncoderTask"),
    "flag-embedding": ("An encoder, by FlagEmbedding's own fine-tuning (BGE).", "flag_embedding:FlagEmbeddingTask"),
    "cross-encoder": ("A re-ranker, by distillation or from labels alone.", "rankers:CrossEncoderTask"),
    "splade": ("A SPLADE: sparse weights over the vocabulary.", "rankers:SpladeTask"),
    "doct5query": ("docT5query: a writer of queries, to expand passages.", "sparse_family:QueryWriterTask"),
    "deepct": ("DeepCT: BM25 over term weights that a model predicts.", "sparse_family:DeepCTTask"),
    "sparta": ("SPARTA: impacts of the whole vocabulary.", "sparse_family:SpartaTask"),
    "colbert": ("Late interaction: a vector for each token.", "rankers:LateTask"),
}


def task_class(kind: str) -> type[TrainingTask]:
    """Return the task of a kind. Raises UsageError for an unknown kind, and MissingExtra for a missing package."""
    if kind not in KINDS:
        raise unknown_name("kind of training", kind, KINDS)
    module, _, name = KINDS[kind][1].partition(":")
    task: type[TrainingTask] = getattr(importlib.import_module(f"airgen.training.kinds.{module}"), name)
    return task


def with_usual_recipe(kind: str, request: TrainingRequest) -> tuple[TrainingRequest, int]:
    """Add the kind's recipe for the number of training queries to a request without a recipe.

    Returns:
        The request, and the number of queries, which is 0 if the request names a recipe or the kind has only one
        recipe.

    Raises:
        DatasetError: A dataset cannot be read.
    """
    from airgen.dataset.beir import BeirDataset

    usual = task_class(kind).usual_recipe
    if request.recipe is not None or usual(0) is None:
        return request, 0
    queries = 0
    for entry in request.datasets:
        dataset = BeirDataset.open(entry.path)
        if request.split in dataset.splits:  # otherwise, reading it reports what is wrong
            queries += len({query for query, _, _ in dataset.label_rows(request.split)})
    name = usual(queries)
    return (request, 0) if name is None else (replace(request, recipe=Path(name)), queries)


def train(kind: str, request: TrainingRequest) -> Trained:
    """Train a model of this kind and write its folder. Raises the errors of `task_class`, the data, the base and
    `run`."""
    task = task_class(kind)

    from airgen.training.data import load_training_set, mixed, reserved_wordings, with_negatives, with_own_teacher
    from airgen.training.task import finished_recipe
    from airgen.training.trainer import device_of, run

    request, _ = with_usual_recipe(kind, request)
    device = device_of(request)
    recipe = request.recipe_of(task.RECIPE).on(device, finished_recipe(request.out))
    datasets = request.datasets
    several = len(datasets) > 1 or datasets[0].weight != 1
    if several and not task.weighted:
        raise UsageError(f"{kind} learns from passages alone, so it accepts one dataset without a weight")
    reserved = {text for entry in datasets for text in reserved_wordings(entry.path)} if several else set()
    sets = [
        with_own_teacher(
            with_negatives(
                load_training_set(
                    entry.path,
                    split=request.split,
                    fold=request.fold,
                    dev_share=recipe.dev_share,
                    language=request.language,
                    reserved_elsewhere=reserved,
                ),
                recipe,
            ),
            entry.teacher,
        )
        for entry in datasets
    ]
    data = mixed(sets, [entry.weight for entry in datasets]) if several else sets[0]
    with guarded(f"training {kind}", TrainingError):
        return run(kind, lambda device: task(recipe, data, request.base, device), recipe, data, request=request)
