"""Corpora: readers, cleaners, chunking, and `prepare`, which runs them in order."""

from typing import TYPE_CHECKING

from airgen.components.first_use import names_on_first_use

if TYPE_CHECKING:
    from airgen.corpus.preparation import prepare
    from airgen.corpus.settings import CorpusSettings, load_corpus_settings
else:
    __getattr__ = names_on_first_use(
        __name__, {"CorpusSettings": ".settings", "load_corpus_settings": ".settings", "prepare": ".preparation"}
    )

__all__ = ["CorpusSettings", "load_corpus_settings", "prepare"]
