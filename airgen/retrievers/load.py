"""Names and settings to embedders, re-rankers and retrievers.

load_embedder("all-minilm-l6-v2-int8")                     a model of the catalogue
load_embedder("BAAI/bge-m3")                               FlagEmbedding, the paper's choice
load_embedder("intfloat/e5-small-v2")                      anything else: sentence-transformers
load_reranker({"kind": "http", "url": "http://localhost:8000/v1/rerank", "model": "..."})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from airgen.errors import UsageError
from airgen.registry import resolve
from airgen.retrievers.base import Embedder, Reranker, Retriever

__all__ = ["load_embedder", "load_reranker", "load_retriever"]

_EMBEDDERS = ("onnx", "sentence-transformers", "e5-packed")  # kinds of the catalogue that are embedder kinds too


def load_embedder(spec: str | Mapping[str, Any]) -> Embedder:
    """An embedder of a model's name, or of `{kind: ..., **settings}`.

    Raises UsageError for an unknown kind or setting, MissingExtra for a missing package.
    """
    if isinstance(spec, Mapping):
        return cast(Embedder, _build("embedder", spec))
    return cast(Embedder, _build("embedder", {"kind": _embedder_kind(spec), "model": spec}))


def _embedder_kind(model: str) -> str:
    from airgen.models import catalogue

    known = catalogue().get(model)
    if known is None:
        return "flag" if "bge-m3" in model.lower() else "sentence-transformers"
    if known.kind not in _EMBEDDERS:
        able = [name for name, other in catalogue().items() if other.kind in _EMBEDDERS]
        raise UsageError(f"{model} ({known.kind}) is not an embedder; these are: {', '.join(able)}")
    return known.kind


def load_reranker(spec: str | Mapping[str, Any]) -> Reranker:
    """A re-ranker of a registered kind (maxsim, splade, dense, bm25), a model's name, or `{kind: ..., **settings}`.

    Other names are models: `bge-reranker` ones run through FlagEmbedding, the rest as cross-encoders through
    sentence-transformers. Raises UsageError, MissingExtra.
    """
    if isinstance(spec, Mapping):
        return cast(Reranker, _build("reranker", spec))
    if spec in ("maxsim", "splade", "dense", "bm25"):
        return cast(Reranker, _build("reranker", {"kind": spec}))
    from airgen.models import catalogue

    known = catalogue().get(spec)
    if known is not None and known.kind == "splade":
        return cast(Reranker, _build("reranker", {"kind": "splade", "model": spec}))
    if known is not None:
        return cast(Reranker, _build("reranker", {"kind": "dense", "embedder": spec}))
    # An LLM-based re-ranker has no classification head, so only FlagEmbedding can run it.
    kind = "flag" if "bge-reranker" in spec.lower() else "cross-encoder"
    return cast(Reranker, _build("reranker", {"kind": kind, "model": spec}))


def load_retriever(spec: str | Mapping[str, Any]) -> Retriever:
    """A retriever of a kind with its defaults, or of `{kind: ..., **settings}`. Raises UsageError, MissingExtra."""
    return cast(Retriever, _build("retriever", {"kind": spec} if isinstance(spec, str) else spec))


def _build(what: str, spec: Mapping[str, Any]) -> object:
    settings = dict(spec)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str):
        raise UsageError(f"{what} {dict(spec)!r}: `kind` is missing")
    made = resolve(what, kind)
    try:
        return made(**settings)
    except TypeError as error:
        if "argument" not in str(error):
            raise
        reason = str(error).partition("() ")[2] or str(error)
        raise UsageError(f"{what} {kind!r}: {reason}") from error
