"""Chunkers as a YAML file names them, and what they make of documents.

chunkers:
  - {name: sentences-200, by: sentences, size: 200, overlap: 50}   # whole sentences, up to 200 tokens
  - {name: tokens-256, by: tokens, size: 256, overlap: 0}          # windows of tokens
  - {name: three-sentences, by: windows, sentences: 3, step: 1}    # every run of three sentences
  - {name: whole, by: whole}                                       # no chunker at all
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from airgen.corpus.chunking import sentence_pieces
from airgen.corpus.qa_chunks import cut
from airgen.corpus.settings import ChunkSettings
from airgen.evaluation.chunkers.gold_spans import WholeDocument
from airgen.settings.base import Settings
from airgen.settings.yaml_file import load_yaml
from airgen.text.tokens import Tokenizer


class ChunkerSettings(Settings):
    """One chunker.

    by: `sentences` (whole sentences up to `size` tokens), `tokens` (windows of `size` tokens), `windows` (runs of
    `sentences` sentences, one every `step`), `whole` (the document). overlap: tokens that the next chunk repeats, at
    most half of `size`.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$")
    by: Literal["sentences", "tokens", "windows", "whole"] = "sentences"
    size: int = Field(default=200, ge=8)
    overlap: int = Field(default=0, ge=0)
    sentences: int = Field(default=3, ge=1)
    step: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _smaller(self) -> ChunkerSettings:
        if self.overlap * 2 > self.size:
            raise ValueError("overlap must be at most half of size")
        if self.step > self.sentences:
            raise ValueError("step must be at most sentences, or some sentences are in no chunk")
        return self


class _ChunkersFile(Settings):
    """A chunkers YAML."""

    chunkers: list[ChunkerSettings] = Field(min_length=1)

    @model_validator(mode="after")
    def _names(self) -> _ChunkersFile:
        every = [one.name for one in self.chunkers]
        if twice := next((name for name in every if every.count(name) > 1), None):
            raise ValueError(f"the chunker name {twice!r} comes twice")
        return self


@dataclass(frozen=True, slots=True)
class DocumentChunk:
    """`text[start:end]` of a document. `id` is the document's id with a number from 1."""

    id: str
    document: str
    title: str
    text: str
    start: int
    end: int


def load_chunkers(path: Path) -> list[ChunkerSettings]:
    """The chunkers of a YAML file. Raises SettingsError with every problem found."""
    return load_yaml(path, _ChunkersFile).chunkers


def chunks_of(
    documents: Sequence[WholeDocument], settings: ChunkerSettings, tokenizer: Tokenizer, language: str
) -> Iterator[DocumentChunk]:
    """The chunks of all documents, in order, each with its document's title; none is without visible text."""
    for document in documents:
        number = 0
        for start, end in _places(document.text, settings, tokenizer, language):
            body = document.text[start:end]
            if not body.strip():
                continue
            number += 1
            yield DocumentChunk(f"{document.id}#{number}", document.id, document.title, body, start, end)


def _places(text: str, settings: ChunkerSettings, tokenizer: Tokenizer, language: str) -> Iterator[tuple[int, int]]:
    if settings.by == "whole":
        yield 0, len(text)
    elif settings.by == "windows":
        ends = [0]
        for sentence in sentence_pieces(text, language):
            ends.append(ends[-1] + len(sentence))
        last = len(ends) - 1
        for first in range(0, last, settings.step):
            yield ends[first], ends[min(first + settings.sentences, last)]
            if first + settings.sentences >= last:
                return
    else:
        shape = ChunkSettings(size=settings.size, overlap=settings.overlap, by=settings.by)
        yield from ((piece.start, piece.end) for piece in cut(text, (), shape, tokenizer, language))
