"""Cleaners, one step a file; `steps(settings, folder, stack)` gives those that a corpus asks for, in order."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from airgen.corpus.cleaning.filters import KEEP, Cleaner, CleanResult, CorpusWide, Item, Step
from airgen.corpus.settings import CorpusSettings

__all__ = ["KEEP", "CleanResult", "Cleaner", "CorpusWide", "Item", "Step", "steps"]


def steps(settings: CorpusSettings, folder: Path | None, stack: ExitStack) -> tuple[list[Step], list[Step]]:
    """The steps for whole documents, and those for passages, of a QA corpus: first those that rewrite, then cheap
    checks, then those that see the whole corpus. Without `chunk` a document is a passage, and all are in the second.

    The duplicate search keeps its files in `folder`, until `stack` closes them; without a folder, it can only look.
    Raises MissingExtra, CorpusError.
    """
    # Imported here, because a step that is off need not be imported, and numpy is large.
    from airgen.corpus.cleaning.duplicates import DuplicateIds, ExactDuplicates, NearDuplicates
    from airgen.corpus.cleaning.filters import Boilerplate, CountTokens, Length, Normalise
    from airgen.text.tokens import load_tokenizer

    clean, language = settings.clean, settings.language
    line: list[Step] = [Normalise()]
    if clean.personal_data != "off":
        from airgen.corpus.cleaning.personal import DropPersonal, MaskPersonal

        line.append((MaskPersonal if clean.personal_data == "mask" else DropPersonal)(clean.names, language))
    line.append(stack.enter_context(closing(DuplicateIds(folder))))
    whole: list[Step] = []
    if settings.chunk is not None:
        below = None if folder is None else folder / "documents"
        if below is not None:
            below.mkdir()
        whole = [*line[:-1], stack.enter_context(closing(DuplicateIds(below)))]
        line = line[-1:]
    if clean.exact_duplicates == "drop":
        line.append(stack.enter_context(closing(ExactDuplicates(folder))))
    line += [CountTokens(load_tokenizer(settings.tokenizer, language)), Length(clean.min_tokens, clean.max_tokens)]
    if clean.boilerplate == "drop":
        line.append(Boilerplate())
    if clean.language == "drop":
        from airgen.corpus.cleaning.filters import Language

        line.append(Language(language, clean.language_confidence))
    if clean.offensive_share is not None:
        from airgen.corpus.cleaning.filters import Offensive, has_list

        if has_list(language):
            line.append(Offensive(language, clean.offensive_share))
    if clean.near_duplicates is not None:
        line.append(stack.enter_context(closing(NearDuplicates(clean.near_duplicates, folder))))
    return whole, line
