"""The shipped recipes of papers: what they fix, and that both sides of a comparison read the same input."""

from pathlib import Path

import pytest

from airgen.retrievers.model_prompts import known_prompts
from airgen.training import task_class
from airgen.training.recipe import TrainingRequest


@pytest.mark.parametrize("kind", ["encoder", "flag-embedding"])
def test_table_7_compares_one_input_format(kind: str) -> None:
    request = TrainingRequest(Path("d"), "facebook/mcontriever-msmarco", Path("o"), recipe=Path("finetune-airbench"))
    recipe = request.recipe_of(task_class(kind).RECIPE)
    untrained = known_prompts("facebook/mcontriever-msmarco")
    assert (recipe.query_prefix, recipe.passage_prefix) == ("", "")  # type: ignore[attr-defined]
    assert untrained is None or not any(untrained)
    paper = {"learning_rate": 2e-4, "warmup": 0.1, "weight_decay": 0.01, "batch_size": 64, "max_steps": 50}
    assert {name: getattr(recipe, name) for name in paper} == paper
