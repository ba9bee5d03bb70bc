"""Retrievers, embedders and re-rankers by name; each family is a module of its own, imported when it is asked for."""

from __future__ import annotations

from airgen.retrievers.base import Corpus, Embedder, Hits, Reranker, Retriever, TextKind
from airgen.retrievers.load import load_embedder, load_reranker, load_retriever

__all__ = [
    "Corpus",
    "Embedder",
    "Hits",
    "Reranker",
    "Retriever",
    "TextKind",
    "load_embedder",
    "load_reranker",
    "load_retriever",
]
