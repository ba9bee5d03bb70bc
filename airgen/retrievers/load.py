"""Load embedders, re-rankers and retrievers.

load_embedder("BAAI/bge-m3")            a name in the catalogue or on the Hub, or {kind: ..., settings}
load_retriever("my_package.retrieval:MyRetriever")         your own subclass of `Component`
"""

from pathlib import Path

from airgen.retrievers.protocols import Embedder, Reranker, Retriever
from airgen.settings.base import Written
from airgen.settings.spec import Spec, build


def load_embedder(spec: Spec | Written, folder: Path | None = None) -> Embedder:
    """Load an embedder.

    Args:
        spec: A model's name, or `{kind: ..., settings}`.
        folder: Folder to which paths are relative.

    Returns:
        The embedder.

    Raises:
        SettingsError: A setting is wrong.
        ModelError: The model has not been downloaded.
    """
    embedder: Embedder = build("embedder", spec, folder)
    return embedder


def load_reranker(spec: Spec | Written, folder: Path | None = None) -> Reranker:
    """Load a re-ranker.

    Args:
        spec: A kind (maxsim, splade, dense, bm25), a model's name, or `{kind: ..., settings}`.
        folder: Folder to which paths are relative.

    Returns:
        The re-ranker.

    Raises:
        SettingsError: A setting is wrong.
        ModelError: The model has not been downloaded.
    """
    reranker: Reranker = build("reranker", spec, folder)
    return reranker


def load_retriever(spec: Spec | Written, folder: Path | None = None) -> Retriever:
    """Load a retriever.

    Args:
        spec: A kind, which uses its default settings, or `{kind: ..., settings}`.
        folder: Folder to which paths are relative.

    Returns:
        The retriever.

    Raises:
        SettingsError: A setting is wrong.
        ModelError: A model has not been downloaded.
    """
    retriever: Retriever = build("retriever", spec, folder)
    return retriever
