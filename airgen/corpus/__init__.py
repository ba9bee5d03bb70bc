"""Corpora: readers, cleaners, chunking, and `prepare`, which runs them in order."""

from airgen.corpus.preparation import prepare
from airgen.corpus.settings import CorpusSettings, load_corpus_settings

__all__ = ["CorpusSettings", "load_corpus_settings", "prepare"]
