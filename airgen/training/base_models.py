"""The pretrained model that a training starts from: found by name, checked, identified; and teachers to distil from.

BEIR's cross-encoder learned from an ensemble of three re-rankers (its section 4, after Hofstätter and others, 2021), E5
from one (section 4.2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen import models
from airgen.errors import ModelError
from airgen.models.catalogue import weights_hash
from airgen.registry import load_extra
from airgen.retrievers.base import Corpus, Reranker, load_reranker, model_place, show_corpus
from airgen.retrievers.dense.embedders import loaded, quiet_transformers


@dataclass(frozen=True)
class Base:
    """A pretrained model of transformers and its fast tokenizer."""

    model: Any
    tokenizer: Any


def base_identity(base: str) -> Mapping[str, object]:
    """Name and hashes of a base, for fingerprints and cards. Raises ModelError if the base is not fetched."""
    return {"model": base, **(models.identity(base) or {"sha256": weights_hash(model_place(base))})}


def load_base(base: str, *, masked_lm: bool = False) -> Base:
    """Load a model by a name of the catalogue, a folder, or a Hub name. `masked_lm`: with its language-model head.

    Raises ModelError for a model that cannot be loaded, that has no fast tokenizer, or (with `masked_lm`) that has no
    trained head. Raises MissingExtra without transformers.
    """
    transformers = load_extra("transformers", f"training from {base!r}")
    place = model_place(base)
    if base[:1] in (".", "/", "~") and not Path(place).is_dir():  # a path, so the Hub is not asked
        raise ModelError(f"the base model {base}: no such folder")
    tokenizer = loaded(
        "the tokenizer of", base, transformers.AutoTokenizer.from_pretrained, pretrained_model_name_or_path=place
    )
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(f"{base} has no fast tokenizer (tokenizer.json): choose another base")
    kind = transformers.AutoModelForMaskedLM if masked_lm else transformers.AutoModel
    with quiet_transformers():
        model, notes = loaded(
            "the base model", base, kind.from_pretrained, pretrained_model_name_or_path=place, output_loading_info=True
        )
    missing = sorted(name for name in notes["missing_keys"] if "pooler" not in name)
    if masked_lm and missing:
        raise ModelError(
            f"{base} is not a masked-language model: {missing[0]} and {len(missing) - 1} more weights would be random; "
            "choose a base with its masked-language-model head"
        )
    if missing:
        raise ModelError(f"{base}: the file of weights is damaged: it lacks {missing[0]} and {len(missing) - 1} more")
    return Base(model, tokenizer)


TeacherSpec = str | dict[str, Any] | list[str | dict[str, Any]] | None


class Teacher:
    """Scores passages of one corpus; `spec` is an argument of `load_reranker`, or a list of them.

    Each (query, passage) pair is scored once: scores are kept in memory. Raises the re-rankers' UsageError, ModelError.
    """

    def __init__(self, spec: TeacherSpec, corpus: Corpus) -> None:
        self._corpus = corpus
        specs = spec if isinstance(spec, list) else [spec] if spec is not None else []
        self._teachers: list[Reranker] = [load_reranker(one) for one in specs]
        for teacher in self._teachers:
            show_corpus(teacher, corpus)
        self._known: dict[tuple[str, int], float] = {}

    def __bool__(self) -> bool:
        return bool(self._teachers)

    def scores(self, queries: Sequence[str], places: NDArray[np.int64]) -> NDArray[np.float32]:
        """The mean score over all teachers, in the shape of `places`, (queries, passages)."""
        pairs = [(query, place) for query, row in zip(queries, places.tolist(), strict=True) for place in row]
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if missing:
            texts = [(query, self._corpus.full_text(place)) for query, place in missing]
            total = np.mean([teacher.score(texts) for teacher in self._teachers], axis=0)
            self._known.update(zip(missing, total.tolist(), strict=True))
        return np.array([self._known[pair] for pair in pairs], np.float32).reshape(places.shape)

    def describe(self) -> list[Mapping[str, object]]:
        """The settings of each teacher."""
        return [teacher.describe() for teacher in self._teachers]
