"""Embedders, re-rankers and retrievers by name or settings.

load_embedder("all-minilm-l6-v2-int8")                     a model of the catalogue
load_embedder("BAAI/bge-m3")                               a model of the Hub; `airgen.settings.parts` says what runs it
load_reranker({"kind": "http", "url": "http://localhost:8000/v1/rerank", "model": "..."})
load_retriever("my_package.retrieval:MyRetriever")         a class of yours, a subclass of `Component`

Each raises UsageError with every problem of the settings, and MissingExtra for a missing package. Relative paths in
the settings start at `folder`.
"""

from __future__ import annotations

from pathlib import Path

from airgen.retrievers.base import Embedder, Reranker, Retriever, build
from airgen.settings.base import Spec


def load_embedder(spec: Spec, folder: Path | None = None) -> Embedder:
    """An embedder from a model's name, or from `{kind: ..., settings}`."""
    found: Embedder = build("embedder", spec, folder)
    return found


def load_reranker(spec: Spec, folder: Path | None = None) -> Reranker:
    """A re-ranker from a kind (maxsim, splade, dense, bm25), a model's name, or `{kind: ..., settings}`."""
    found: Reranker = build("reranker", spec, folder)
    return found


def load_retriever(spec: Spec, folder: Path | None = None) -> Retriever:
    """A retriever from a kind with its defaults, or from `{kind: ..., settings}`."""
    found: Retriever = build("retriever", spec, folder)
    return found
