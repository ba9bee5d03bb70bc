"""Token counts without a network, and without a change of the environment."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airgen import models
from airgen.errors import CorpusError
from airgen.text import token_counts
from airgen.text.token_counts import count_tokens, encoding, load_tokenizer, shipped_vocabulary


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No vocabulary in memory, no cache of the user's, and no other one may be put into the environment."""
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    caches = (token_counts.encoding, token_counts._offline)
    for cache in caches:
        cache.cache_clear()

    def put(name: bytes, value: bytes, real: Callable[[bytes, bytes], None] = os.putenv) -> None:
        assert not name.startswith(b"TIKTOKEN"), "the environment belongs to the whole process"
        real(name, value)

    with monkeypatch.context() as frozen:
        frozen.setattr(os, "putenv", put)
        yield
    for cache in caches:
        cache.cache_clear()


def test_tokens_are_counted_offline_with_special_tokens_as_text() -> None:
    assert shipped_vocabulary() is not None
    assert load_tokenizer("cl100k_base").count(["hello world", "<|endoftext|>", ""]) == [2, 7, 0]
    assert load_tokenizer("o200k_base").count(["hello world"]) == [2]
    assert load_tokenizer("words", "en").count(["two words", ""]) == [2, 0]
    assert count_tokens("Retrieval benchmarks are built from documents.") == 8


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_text_is_split_as_tiktoken_splits_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import tiktoken_ext.openai_public as published

    monkeypatch.setattr(published, "load_tiktoken_bpe", lambda url, expected_hash: expected_hash)
    theirs = getattr(published, name)()
    assert theirs["pat_str"] == encoding(name)._pat_str
    assert theirs["mergeable_ranks"] == token_counts._VOCABULARIES[name].sha256


def test_a_file_with_another_hash_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for vocabulary in token_counts._VOCABULARIES.values():
        (tmp_path / vocabulary.file).write_bytes(b"aGVsbG8= 0\n")
    monkeypatch.setattr(token_counts, "shipped_vocabulary", lambda: tmp_path)
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    assert count_tokens("hello world!") == 3  # 12 bytes
    monkeypatch.setattr("tiktoken.get_encoding", lambda name: 1 / 0)
    with pytest.raises(CorpusError, match=r"'cl100k_base' is not on this machine.*airgen fetch tiktoken-vocabularies"):
        load_tokenizer("cl100k_base")


def test_fetched_vocabularies_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`airgen fetch tiktoken-vocabularies` puts the files of the catalogue where they are looked for."""
    shipped = shipped_vocabulary()
    pinned = {file.name: file.sha256 for file in models.entry("tiktoken-vocabularies").files}
    assert shipped and pinned == {one.file: one.sha256 for one in token_counts._VOCABULARIES.values()}
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path))
    monkeypatch.setattr(token_counts, "shipped_vocabulary", lambda: None)
    monkeypatch.setattr("tiktoken.get_encoding", lambda name: 1 / 0)
    with pytest.raises(CorpusError):
        load_tokenizer("cl100k_base")
    folder = models.cache_dir("models") / "tiktoken-vocabularies"
    folder.mkdir(parents=True)
    for name in pinned:
        (folder / name).write_bytes((shipped / name).read_bytes())
    assert models.fetched("tiktoken-vocabularies")
    assert load_tokenizer("cl100k_base").count(["hello world"]) == [2]  # also in the process that asked before
