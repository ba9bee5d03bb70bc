"""Counting tokens without a download: tiktoken where its vocabulary is at hand, else four bytes a token.

tiktoken fetches its vocabulary at first use, which a machine without a network cannot; llama-index-core ships
the files, so they are used where it is installed. What counted is told by `counter_name`, so that an estimate
can say how sure it is.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from airgen.llms.base import Message

__all__ = ["count_messages", "count_tokens", "counter_name", "upper_bound"]

_PER_MESSAGE = 4  # role and delimiters, as OpenAI's chat format counts them
_CACHE = "TIKTOKEN_CACHE_DIR"
_FILES = {  # the cache's file name of each vocabulary: the SHA-1 of its address
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}


def count_tokens(text: str) -> int:
    """Tokens of a text, in o200k_base (GPT-4o and later) or by bytes / 4; other models differ by a tenth or two."""
    return _counter()[1](text)


def count_messages(messages: Iterable[Message]) -> int:
    """Prompt tokens of a chat: contents, and four a message for its frame."""
    return sum(count_tokens(message.content) + _PER_MESSAGE for message in messages)


def upper_bound(messages: Iterable[Message]) -> int:
    """A number of prompt tokens that no byte-level tokenizer passes: one a byte. What a budget reserves."""
    return sum(len(message.content.encode("utf-8", "replace")) + 8 for message in messages)


def counter_name() -> str:
    """What counts: "o200k_base", "cl100k_base" or "bytes / 4"."""
    return _counter()[0]


@functools.lru_cache(maxsize=1)
def _counter() -> tuple[str, Callable[[str], int]]:
    folder = _vocabulary_folder()
    for name, file in _FILES.items():
        if folder is not None and (folder / file).is_file():
            import tiktoken

            before = os.environ.get(_CACHE)
            os.environ[_CACHE] = str(folder)
            try:
                encoding = tiktoken.get_encoding(name)
            finally:
                if before is None:
                    del os.environ[_CACHE]
                else:
                    os.environ[_CACHE] = before
            return name, functools.partial(_encoded, encoding.encode_ordinary)
    return "bytes / 4", lambda text: -(-len(text.encode("utf-8", "replace")) // 4)


def _encoded(encode: Callable[[str], list[int]], text: str) -> int:
    return len(encode(text))


def _vocabulary_folder() -> Path | None:
    """Where tiktoken's files already are: the user's cache, or those that llama-index-core ships."""
    if os.environ.get(_CACHE):
        return Path(os.environ[_CACHE])
    found = importlib.util.find_spec("llama_index")
    for place in (found.submodule_search_locations or []) if found else []:
        folder = Path(place) / "core" / "_static" / "tiktoken_cache"
        if folder.is_dir():
            return folder
    return None
