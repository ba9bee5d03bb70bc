"""Token counts: tiktoken's encodings, offline where llama-index-core ships their vocabulary, or plain words.

The paper's node parser counts with tiktoken (A.1). tiktoken downloads its vocabulary at first use; without a
network the copy inside llama-index-core serves, so `pip install 'airgen-bench[long-doc]'` is enough.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from airgen.errors import CorpusError
from airgen.text.words import count_words

__all__ = ["Tokenizer", "load_tokenizer", "shipped_vocabulary"]


class Tokenizer(Protocol):
    """Counts tokens. `name` goes into fingerprints."""

    name: str

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text."""
        ...


class _Words:
    def __init__(self, language: str) -> None:
        self.name, self._language = f"words-{language}", language

    def count(self, texts: Sequence[str]) -> list[int]:
        return [count_words(text, self._language) for text in texts]


class _Tiktoken:
    def __init__(self, name: str) -> None:
        self.name = name
        self._encoding = _encoding(name)

    def count(self, texts: Sequence[str]) -> list[int]:
        encode = self._encoding.encode_ordinary  # texts are data: <|endoftext|> in one is seven ordinary tokens
        return [len(encode(text)) for text in texts]


def load_tokenizer(name: str, language: str = "en") -> Tokenizer:
    """`words`, or a tiktoken encoding. Raises CorpusError where its vocabulary cannot be had."""
    return _Words(language) if name == "words" else _Tiktoken(name)


def shipped_vocabulary() -> Path | None:
    """The folder in which llama-index-core ships tiktoken's files, found without importing it."""
    spec = importlib.util.find_spec("llama_index")
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "core" / "_static" / "tiktoken_cache"
        if folder.is_dir():
            return folder
    return None


@cache
def _encoding(name: str):  # type: ignore[no-untyped-def]  # tiktoken is imported late: 0.1 s
    import tiktoken

    # tiktoken reads the variable only while it loads an encoding: set it for that moment, and leave no trace.
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    folder = shipped_vocabulary() if before is None else None
    try:
        if folder is not None:
            os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
        return tiktoken.get_encoding(name)
    except Exception as error:  # requests' and ssl's many classes
        raise CorpusError(
            f"the vocabulary of the tokenizer {name!r} is not on this machine and cannot be downloaded "
            f"({type(error).__name__}): pip install 'airgen-bench[long-doc]', or set tokenizer: words"
        ) from error
    finally:
        if folder is not None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
