"""Corpora: readers, cleaners, chunking, and `prepare`, which runs them in order."""

from __future__ import annotations

from airgen.corpus.manifests import load_corpus_settings
from airgen.corpus.preparation import prepare
from airgen.corpus.settings import CorpusSettings

__all__ = ["CorpusSettings", "load_corpus_settings", "prepare"]
