"""Make small corpora, so that every reader is tested on real files."""

import random
from pathlib import Path
from typing import Any

from airgen.corpus.settings import CorpusSettings

BARE = {
    "language": "off", "boilerplate": "off", "personal_data": "off", "offensive_share": None, "near_duplicates": None,
    "exact_duplicates": "off", "min_tokens": 0, "max_tokens": None,
}  # fmt: skip


def corpus(folder: Path, reader: dict[str, Any], **more: Any) -> CorpusSettings:
    """Return the settings of a corpus in `folder`, without cleaning unless `clean` is given."""
    clean = {**BARE, **more.pop("clean", {})}
    values = {"name": "made", "language": "en", "domain": "test", "licence": "CC0-1.0", "source": "made here"}
    values |= {"tokenizer": "words", "reader": reader, "clean": clean, **more}
    return CorpusSettings.model_validate(values, context={"folder": folder})


def prose(number: int, words: int = 60) -> str:
    """Return a paragraph of random words; no two paragraphs share a run of five words."""
    syllables = ("ka", "lo", "mi", "ru", "te", "sha", "vor", "en", "pi", "dal")
    draw = random.Random(number)
    return " ".join("".join(draw.choices(syllables, k=4)) for _ in range(words)) + "."
