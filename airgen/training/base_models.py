"""Load, check and identify the pretrained model from which training starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen import models
from airgen.components.registry import load_extra
from airgen.errors import ModelError
from airgen.models.catalogue import weights_hash
from airgen.retrievers.dense.embedders import loaded, quiet_transformers
from airgen.retrievers.model_facts import model_place


@dataclass(frozen=True)
class Base:
    """A pretrained transformers model and its fast tokenizer."""

    model: Any
    tokenizer: Any


def base_identity(base: str) -> Mapping[str, object]:
    """Return the name and hashes of a base model, for fingerprints and cards. Raises ModelError if it has not been
    fetched."""
    return {"model": base, **(models.identity(base) or {"sha256": weights_hash(model_place(base))})}


def load_base(base: str, *, masked_lm: bool = False) -> Base:
    """Load a model by catalogue name, folder or Hub name.

    Raises ModelError if the model cannot be loaded, has no fast tokenizer, or (with `masked_lm`) has no trained head.
    Raises MissingExtra if transformers is missing.

    Args:
        masked_lm: Whether to load the language-model head.
    """
    transformers = load_extra("transformers", f"training from {base!r}")
    place = model_place(base)
    if base[:1] in (".", "/", "~") and not Path(place).is_dir():  # a path, so that the Hub is not queried
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
            f"{base} is not a masked-language model: {missing[0]} and {len(missing) - 1} other weights would be "
            f"random; "
            "choose a base with its masked-language-model head"
        )
    if missing:
        raise ModelError(f"{base}: the file of weights is damaged: it lacks {missing[0]} and {len(missing) - 1} more")
    return Base(model, tokenizer)
