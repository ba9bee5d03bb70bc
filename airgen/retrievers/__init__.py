"""Retrievers, embedders and re-rankers. Each family is a module of its own, which is imported at its first use."""

from airgen.retrievers.base import (
    Component,
    Corpus,
    Embedder,
    Hits,
    Reranker,
    Retriever,
    TextKind,
    load_embedder,
    load_reranker,
    load_retriever,
    show_corpus,
)

__all__ = [
    "Component",
    "Corpus",
    "Embedder",
    "Hits",
    "Reranker",
    "Retriever",
    "TextKind",
    "load_embedder",
    "load_reranker",
    "load_retriever",
    "show_corpus",
]
