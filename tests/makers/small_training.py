"""Training requests that take seconds."""

from pathlib import Path
from typing import Any

from airgen.training import train
from airgen.training.recipe import TrainingRequest

_TRANSFORMER = ("batch_size=8", "max_length=24", "dev_passages=20")
QUICK = {
    "augment": ("batch_size=8", "epochs=2", "max_query_tokens=16"),
    "encoder": ("batch_size=8", "chunk=3", "epochs=2", "max_length=16", "learning_rate=1e-3", "hard_negatives=2"),
    "deepct": (*_TRANSFORMER, "learning_rate=5e-3", "epochs=3"),
    "sparta": (*_TRANSFORMER, "learning_rate=5e-3", "epochs=3"),
}


def train_quickly(kind: str, dataset: Path, base: Path, out: Path, *changes: str, **settings: Any) -> Any:
    """Train a kind on a small dataset; `changes` override the quick settings of the kind."""
    quick = QUICK.get(kind, (*_TRANSFORMER, "learning_rate=2e-3", "epochs=2"))
    if kind == "augment":  # the paper's value, which needs more queries than this test has
        settings = {"recipe": Path("augment-nq"), **settings}
        quick = (*quick, "learning_rate=3e-5", "hard_negatives=1", "negatives=both", "patience=3")
    request = TrainingRequest(dataset, str(base), out, changes=(*quick, *changes), quiet=True, device="cpu", **settings)
    return train(kind, request)
