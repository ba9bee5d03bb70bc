"""Facts about a model: its location, what its encodings depend on, its size and its device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen import models
from airgen.settings.needs import located
from airgen.user_code import code_of


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about the models that a component runs, or None if unknown."""

    parameters: int | None = None
    device: str | None = "cpu"
    threads: int | None = None
    dtype: str | None = None

    def __add__(self, other: ModelFacts) -> ModelFacts:
        """Combine the facts of two components."""

        def joined(first: str | None, second: str | None) -> str | None:
            return " + ".join(dict.fromkeys(part for part in (first, second) if part is not None)) or None

        return ModelFacts(
            parameters=sum(filter(None, (self.parameters, other.parameters))) or None,
            device=joined(self.device, other.device),
            threads=max((count for count in (self.threads, other.threads) if count is not None), default=None),
            dtype=joined(self.dtype, other.dtype),
        )


def model_identity(model: Any) -> dict[str, object]:
    """Return what a model's encodings depend on: its description and, for a user's model, its code."""
    return {**model.describe(), **code_of(model)}


def model_place(model: str, folder: Path | None = None) -> str:
    """Return the folder of a model, or its name on the Hub.

    Args:
        model: A name in the catalogue, a folder, or a name on the Hub.
        folder: Folder to which paths are relative.

    Raises:
        ModelError: The model is in the catalogue, but has not been downloaded.
    """
    if model in models.catalogue():
        return str(models.path(model))
    place = located(model, folder)
    return str(place) if place.exists() else model
