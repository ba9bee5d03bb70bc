"""Facts about a model: its location, what its encodings depend on, its size and its device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen import models
from airgen.components.user_code import code_of
from airgen.settings.requirements import located


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


@dataclass(frozen=True, slots=True)
class Cut:
    """How many texts or pairs a model reads, how many of them it cuts, their tokens, and how many of these are lost."""

    texts: int
    cut: int = 0
    tokens: int = 0
    lost: int = 0

    def words(self, noun: str, unit: str = "tokens") -> str:
        """Return the counts in words: `12 of 340 passages (31 % of their tokens)`; "" if nothing is cut."""
        if not self.cut:
            return ""
        return f"{self.cut:,} of {self.texts:,} {noun} ({self.lost / max(1, self.tokens):.0%} of their {unit})"


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """How a model is run, as its library reports it.

    Attributes:
        model: Its name or folder.
        query_prompt: What is put before a query, or None if it is unknown.
        passage_prompt: What is put before a passage, or None if it is unknown.
        prompts_from: Where the prompts come from: "the model", "its model card", "the settings", or "".
        max_length: Maximum number of tokens of a passage, or of a pair.
        max_query_length: Maximum number of tokens of a query, if it is another.
        unit: What the lengths count, "tokens" or "characters".
        dim: Length of a vector.
        dtype: Type of the weights.
        similarity: "cosine", "dot", "maxsim" or another name; "" for a re-ranker of pairs.
        revision: The commit on the Hub.
        hint: A sentence about what may be missing.
        passages, queries, pairs: What is cut, or None if it is not known.
    """

    model: str
    query_prompt: str | None = None
    passage_prompt: str | None = None
    prompts_from: str = ""
    max_length: int | None = None
    max_query_length: int | None = None
    unit: str = "tokens"
    dim: int | None = None
    dtype: str = ""
    similarity: str = ""
    revision: str = ""
    hint: str = ""
    passages: Cut | None = None
    queries: Cut | None = None
    pairs: Cut | None = None

    @property
    def cuts(self) -> list[str]:
        """Return what is cut, in words."""
        nouns = (("passages", self.passages), ("queries", self.queries), ("pairs", self.pairs))
        return [words for noun, cut in nouns if cut and (words := cut.words(noun, self.unit))]

    @property
    def words(self) -> str:
        """Return the setup in one line, without the model's name."""
        parts = []
        if self.query_prompt or self.passage_prompt:
            sides = {"query": self.query_prompt, "passage": self.passage_prompt}
            prompts = ", ".join(f"{kind} prompt {text!r}" for kind, text in sides.items() if text)
            parts.append(f"{prompts} (from {self.prompts_from})" if self.prompts_from else prompts)
        elif self.query_prompt is not None:
            parts.append("no prompts")
        if self.max_length:
            more = f" (queries {self.max_query_length:,})" if self.max_query_length else ""
            parts.append(f"at most {self.max_length:,} {self.unit}{more}")
        shape = [f"{self.dim:,} dimensions" if self.dim else "", self.dtype, self.similarity]
        parts += [", ".join(filter(None, shape)), f"revision {self.revision[:12]}" if self.revision else ""]
        parts += [f"cut: {', '.join(self.cuts)}"] if self.cuts else []
        return "; ".join(filter(None, [*parts, self.hint]))


def shown_name(model: str) -> str:
    """Return a model's name, or the last part of its folder, which may be private."""
    return Path(model).name if Path(model).exists() else model


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
