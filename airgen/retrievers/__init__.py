"""Retrievers, embedders and re-rankers. Each family is in its own module, which is imported on first use."""

from airgen.retrievers.component import Component
from airgen.retrievers.hits import Hits
from airgen.retrievers.load import load_embedder, load_reranker, load_retriever
from airgen.retrievers.passages import Passages
from airgen.retrievers.protocols import Embedder, Reranker, Retriever, TextKind, show_corpus

__all__ = [
    "Component",
    "Embedder",
    "Hits",
    "Passages",
    "Reranker",
    "Retriever",
    "TextKind",
    "load_embedder",
    "load_reranker",
    "load_retriever",
    "show_corpus",
]
