"""Count tokens with tiktoken's encodings, without a download if their files are on this machine, or as words.

    load_tokenizer("cl100k_base").count(["hello world"])     # [2]: what the paper's node parser counts (A.1)
    count_tokens("hello world")                              # 2: for estimates and bills; never downloads

tiktoken downloads a vocabulary on first use. llama-index-core ships the same files, so an offline machine needs only
`airgen fetch tiktoken-vocabularies`, which takes them from that wheel, or the `long-doc` extra.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from binascii import a2b_base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from airgen.components.registry import load_extra
from airgen.errors import CorpusError, ModelError
from airgen.safety.interruptible import interruptible
from airgen.storage.paths import cache_dir
from airgen.text.words import count_words, words

if TYPE_CHECKING:
    import tiktoken


@dataclass(frozen=True)
class _Vocabulary:
    """A tiktoken vocabulary file: its name in the cache (the SHA-1 of its URL), its SHA-256, and how text is split."""

    file: str
    sha256: str
    pattern: str


_FETCHED = "tiktoken-vocabularies"  # in the catalogue of models
_THREAD_CHARACTERS = 100_000  # a longer text is encoded in a thread, so that Ctrl-C works
_WORD_END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_VOCABULARIES = {  # the first is that of OpenAI's current models
    "o200k_base": _Vocabulary(
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{_WORD_END}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{_WORD_END}"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "cl100k_base": _Vocabulary(
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    ),
}


class Tokenizer(Protocol):
    """Counts tokens. `name` is part of fingerprints."""

    name: str

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        ...

    def starts(self, text: str) -> list[int]:
        """Return the character offset at which each token begins, in order."""
        ...


class _Words:
    def __init__(self, language: str) -> None:
        self.name, self._language = f"words-{language}", language

    def count(self, texts: Sequence[str]) -> list[int]:
        return [count_words(text, self._language) for text in texts]

    def starts(self, text: str) -> list[int]:
        offsets, at = [], 0
        for word in words(text, self._language):
            at = text.index(word, at)
            offsets.append(at)
            at += len(word)
        return offsets


class _Tiktoken:
    def __init__(self, name: str) -> None:
        self.name = name
        if _content(name) is None:
            _ = self._encoding  # fails now, not at the first text

    @cached_property
    def _encoding(self) -> tiktoken.Encoding:
        """Return the encoding, which takes a quarter of a second to load."""
        return encoding(self.name)

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(token_ids(self._encoding, text)) for text in texts]

    def starts(self, text: str) -> list[int]:
        return self._encoding.decode_with_offsets(token_ids(self._encoding, text))[1]


def token_ids(vocabulary: tiktoken.Encoding, text: str) -> list[int]:
    """Return the tokens of a text of any length. `<|endoftext|>` is encoded as seven ordinary tokens."""
    encode = vocabulary.encode_ordinary
    return encode(text) if len(text) < _THREAD_CHARACTERS else interruptible(lambda: encode(text))


def load_tokenizer(name: str, language: str = "en") -> Tokenizer:
    """Load `words`, or a tiktoken encoding. Raises CorpusError if its vocabulary cannot be loaded."""
    return _Words(language) if name == "words" else _Tiktoken(name)


def plain_tokenizer(path: Path) -> Any:
    """Load a `tokenizers.Tokenizer` without truncation or padding. Raises ModelError or MissingExtra."""
    library = load_extra("tokenizers", "the embedded models")
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for a missing or damaged file
        raise ModelError(f"{path} is not a tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def count_tokens(text: str) -> int:
    """Count the tokens of a text in o200k_base or cl100k_base, or a quarter of its bytes if neither file is available.

    Counts for models with another vocabulary differ by 10 to 20 percent.
    """
    vocabulary = _offline()
    return len(token_ids(vocabulary, text)) if vocabulary else -(-len(text.encode("utf-8", "replace")) // 4)


def shipped_vocabulary() -> Path | None:
    """Return the folder in which llama-index-core ships tiktoken's files, without importing it."""
    spec = importlib.util.find_spec("llama_index")
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "core" / "_static" / "tiktoken_cache"
        if folder.is_dir():
            return folder
    return None


@cache
def encoding(name: str) -> tiktoken.Encoding:
    """Return a tiktoken encoding, downloading it only if its file is not on this machine. Raises CorpusError if that
    fails."""
    if vocabulary := _from_file(name):
        return vocabulary
    import tiktoken

    try:
        return tiktoken.get_encoding(name)
    except Exception as error:  # requests and ssl raise many classes
        raise CorpusError(
            f"the vocabulary of the tokenizer {name!r} is not on this machine and cannot be downloaded "
            f"({type(error).__name__}): airgen fetch {_FETCHED}, or set tokenizer: words"
        ) from error


@cache
def _offline() -> tiktoken.Encoding | None:
    """Return the first encoding whose file is on this machine."""
    return next((vocabulary for vocabulary in map(_from_file, _VOCABULARIES) if vocabulary), None)


def _from_file(name: str) -> tiktoken.Encoding | None:
    """Load an encoding from its file on this machine; None if there is none."""
    content = _content(name)
    if content is None:
        return None
    import tiktoken

    tokens_and_ranks = content.split()
    tokens, numbers = map(a2b_base64, tokens_and_ranks[::2]), map(int, tokens_and_ranks[1::2])
    ranks = dict(zip(tokens, numbers, strict=True))
    return tiktoken.Encoding(name, pat_str=_VOCABULARIES[name].pattern, mergeable_ranks=ranks, special_tokens={})


def _content(name: str) -> bytes | None:
    """Read the vocabulary file from the user's caches or the shipped files; None if none has the right hash."""
    known = _VOCABULARIES.get(name)
    named = os.environ.get("TIKTOKEN_CACHE_DIR")
    for folder in (Path(named) if named else None, cache_dir("models") / _FETCHED, shipped_vocabulary()):
        if known is None or folder is None or not (folder / known.file).is_file():
            continue
        content = (folder / known.file).read_bytes()
        if hashlib.sha256(content).hexdigest() == known.sha256:
            return content
    return None
