"""Sub-word terms: a model's WordPiece tokens as index terms, which the model can weight and extend.

    analyse = analyser("en", wordpiece="all-minilm-l6-v2")
    analyse("Transonic flow")     # ["trans", "##onic", "flow"]

There are no stemmer and no stop words. The tokenizer decides about case and accents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from airgen import models
from airgen.errors import ModelError
from airgen.keys import file_sha256
from airgen.registry import load_extra
from airgen.text.analysis.analyser import Analyser
from airgen.text.words import encodable


@dataclass(frozen=True)
class WordPieces(Analyser):
    """Terms are the tokens of `wordpiece`: a name of the catalogue, or a folder with tokenizer.json.

    Special tokens ([CLS], [UNK], ...) are not terms, not even where a text has their names.
    """

    wordpiece: str = ""

    @property
    def scannable(self) -> bool:
        """False: the compiled scan has no sub-words."""
        return False

    @cached_property
    def path(self) -> Path:
        """The tokenizer's file. Raises ModelError where it is missing."""
        folder = models.path(self.wordpiece) if self.wordpiece in models.catalogue() else Path(self.wordpiece)
        if not (folder / "tokenizer.json").is_file():
            raise ModelError(f"{self.wordpiece} has no tokenizer.json: name a model of the catalogue, or a folder")
        return folder / "tokenizer.json"

    @cached_property
    def tokenizer(self) -> Any:
        """A `tokenizers.Tokenizer` that neither cuts nor pads. Raises ModelError, MissingExtra."""
        library = load_extra("tokenizers", "terms of WordPiece")
        try:
            found = library.Tokenizer.from_file(str(self.path))
        except Exception as error:  # the library raises bare Exception
            raise ModelError(f"{self.path} is not a tokenizer: {error}") from error
        found.no_padding()
        found.no_truncation()
        return found

    @cached_property
    def _special(self) -> frozenset[str]:
        return frozenset(token.content for token in self.tokenizer.get_added_tokens_decoder().values() if token.special)

    def prepare(self, text: str) -> str:
        """The text without lone surrogates, which the tokenizer cannot take."""
        return encodable(text)

    def split(self, text: str) -> list[str]:
        """The tokens of a text."""
        tokens: list[str] = self.tokenizer.encode(text, add_special_tokens=False).tokens
        return tokens

    def term(self, token: str) -> str | None:
        """The token itself; None for a special one."""
        return None if token in self._special else token

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the terms."""
        return {
            "language": self.language,
            "split": "wordpiece",
            "tokenizer": file_sha256(self.path),
            "stemmer": "none",
            "stopwords": 0,
        }
