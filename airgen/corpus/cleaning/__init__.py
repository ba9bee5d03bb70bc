"""Cleaners, one step a file; `steps(settings, folder)` lines them up in the order of the funnel."""

from __future__ import annotations

from pathlib import Path

from airgen.corpus.cleaning.cleaner import KEEP, Cleaner, Item, Step, Verdict
from airgen.corpus.settings import CorpusSettings

__all__ = ["KEEP", "Cleaner", "Item", "Step", "Verdict", "steps"]


def steps(settings: CorpusSettings, folder: Path) -> list[Step]:
    """The steps of a QA corpus: what rewrites first, then the cheap judges, then those that see the whole corpus.

    `folder` is for what the duplicate search keeps on disk. Raises MissingExtra, CorpusError.
    """
    # Imported here: a step that is off costs no import, and numpy is a large one.
    from airgen.corpus.cleaning.boilerplate import Boilerplate
    from airgen.corpus.cleaning.length import CountTokens, Length
    from airgen.corpus.cleaning.normalise import Normalise
    from airgen.text.tokens import load_tokenizer

    clean, language = settings.clean, settings.language
    line: list[Step] = [Normalise()]
    if clean.personal_data != "off":
        from airgen.corpus.cleaning.personal import DropPersonal, MaskPersonal

        line.append((MaskPersonal if clean.personal_data == "mask" else DropPersonal)(clean.names, language))
    from airgen.corpus.cleaning.duplicates import DuplicateIds, ExactDuplicates, NearDuplicates

    line.append(DuplicateIds(folder))
    if clean.exact_duplicates == "drop":
        line.append(ExactDuplicates(folder))
    line += [CountTokens(load_tokenizer(settings.tokenizer, language)), Length(clean.min_tokens, clean.max_tokens)]
    if clean.boilerplate == "drop":
        line.append(Boilerplate())
    if clean.language == "drop":
        from airgen.corpus.cleaning.language import Language

        line.append(Language(language, clean.language_confidence))
    if clean.offensive_share is not None:
        from airgen.corpus.cleaning.offensive import Offensive, has_list

        if has_list(language):
            line.append(Offensive(language, clean.offensive_share))
    if clean.near_duplicates is not None:
        line.append(NearDuplicates(clean.near_duplicates, folder))
    return line
