"""The passages that retrievers index, in memory or read on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airgen.dataset.beir import BeirPassage
from airgen.errors import CorpusError
from airgen.storage.records import flat_text
from airgen.storage.sequences import Indexed


@dataclass(frozen=True, slots=True)
class Passages:
    """The passages to search, as parallel sequences.

    Args:
        ids: Ids of the passages.
        texts: Texts of the passages.
        titles: Titles of the passages. Empty if there are none.
        language: Two-letter code of the language.
        metadata: Metadata of the passages. Empty if there is none.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    titles: Sequence[str] = ()
    language: str = "en"
    metadata: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(cls, passages: Iterable[BeirPassage], language: str) -> Passages:
        """Read passages of a BEIR dataset into memory. `titles` is empty if no passage has a title."""
        all_passages = list(passages)
        titles = [passage.title for passage in all_passages]
        texts = [passage.text for passage in all_passages]
        metadata = [passage.metadata for passage in all_passages]
        ids = [passage.id for passage in all_passages]
        return cls(
            ids,
            texts,
            titles=titles if any(titles) else (),
            language=language,
            metadata=metadata if any(metadata) else (),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def full_text(self, position: int) -> str:
        """Return the title and text joined by a space, as BEIR passes them to models."""
        return flat_text(self.titles[position] if self.titles else "", self.texts[position])

    def full_texts_at(self, positions: Iterable[int]) -> dict[int, str]:
        """Return the `full_text` of some passages by position. Each is read once, and neighbours one after another."""
        return {place: self.full_text(place) for place in sorted(set(positions))}

    @property
    def full_texts(self) -> Sequence[str]:
        """Return the `full_text` of every passage, built on demand, so that the texts need not be in memory."""
        return _FullTexts(self)


class _FullTexts(Indexed[str]):
    def __init__(self, corpus: Passages) -> None:
        self._corpus = corpus

    def __len__(self) -> int:
        return len(self._corpus)

    def __iter__(self) -> Iterator[str]:
        corpus = self._corpus
        return map(flat_text, corpus.titles, corpus.texts) if corpus.titles else iter(corpus.texts)

    def _item(self, place: int) -> str:
        return self._corpus.full_text(place)


def non_empty(corpus: Passages) -> Passages:
    """Return the corpus unchanged. Raises CorpusError if it is empty or its sequences differ in length."""
    if not len(corpus):
        raise CorpusError("the corpus has no passages")
    if len(corpus.texts) != len(corpus.ids) or len(corpus.titles) not in (0, len(corpus.ids)):
        raise CorpusError(
            f"the corpus has {len(corpus.ids)} ids, {len(corpus.texts)} texts and {len(corpus.titles)} titles"
        )
    return corpus
