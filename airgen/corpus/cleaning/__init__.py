"""Cleaners, one step a file; `steps(settings)` lines them up in the order of the funnel."""

from __future__ import annotations

from airgen.corpus.cleaning.base import KEEP, Cleaner, Item, Step, Verdict
from airgen.corpus.cleaning.length import CountTokens, Length
from airgen.corpus.cleaning.normalise import Normalise
from airgen.corpus.settings import CorpusSettings
from airgen.corpus.tokens import load_tokenizer

__all__ = ["KEEP", "Cleaner", "Item", "Step", "Verdict", "steps"]


def steps(settings: CorpusSettings) -> list[Step]:
    """The steps of a QA corpus: what rewrites first, then the cheap judges, then those that see the whole corpus."""
    clean = settings.clean
    line: list[Step] = [Normalise()]
    line += [CountTokens(load_tokenizer(settings.tokenizer, settings.language)), Length(clean.min_tokens, clean.max_tokens)]
    return line
