"""What systems are evaluated on: one split of one dataset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from airgen.dataset.beir import BeirDataset, BeirQuery, Qrels
from airgen.errors import DatasetError
from airgen.retrievers.base import Corpus

__all__ = ["DatasetSplit"]


@dataclass
class DatasetSplit:
    """One split of one dataset; each part is read at its first use."""

    dataset: BeirDataset
    split: str
    language: str

    @cached_property
    def digest(self) -> str:
        """The content hash of corpus, queries and this split's qrels."""
        return self.dataset.digest(self.split)

    @cached_property
    def qrels(self) -> Qrels:
        """The labels."""
        return self.dataset.qrels(self.split)

    @cached_property
    def queries(self) -> dict[str, BeirQuery]:
        """The queries that have labels, in the qrels' order. Raises DatasetError where none has a text."""
        every = self.dataset.queries()
        found = {key: every[key] for key in self.qrels.labels if key in every}
        if not found:
            raise DatasetError(f"{self.dataset.path}: no query of the {self.split} qrels is in queries.jsonl")
        return found

    @cached_property
    def corpus(self) -> Corpus:
        """The whole corpus in memory."""
        return Corpus.from_passages(self.dataset.passages(), self.language)

    @cached_property
    def words(self) -> dict[int, frozenset[str]]:
        """The words of passages, filled by those who split a passage into words."""
        return {}

    @property
    def headline(self) -> str:
        """The measure that ranks systems, as in AIR-Bench: Recall@10 for Long-Doc, nDCG@10 for all else."""
        return "Recall@10" if self.dataset.info.get("task") == "long-doc" else "nDCG@10"
