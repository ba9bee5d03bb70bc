"""What systems are evaluated on: one split of one dataset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from airgen.dataset.beir import BeirDataset, BeirQuery, Qrels
from airgen.dataset.content import ANSWERED
from airgen.dataset.layouts import read_rows
from airgen.errors import DatasetError
from airgen.evaluation.answer_strings import answers_of
from airgen.evaluation.by_parent import PARENTS, read_parents
from airgen.evaluation.own_ids import IdLookup
from airgen.retrievers.base import Corpus


@dataclass
class DatasetSplit:
    """One split of one dataset; each part is read at its first use."""

    dataset: BeirDataset
    split: str
    language: str

    @cached_property
    def digest(self) -> str:
        """The content hash of corpus, queries and this split's qrels, if they are there."""
        return self.dataset.digest(self.split)

    @cached_property
    def qrels(self) -> Qrels:
        """The labels."""
        return self.dataset.qrels(self.split)

    @cached_property
    def queries(self) -> dict[str, BeirQuery]:
        """The queries that have labels, in the qrels' order; those of a withheld split in file order.

        Raises DatasetError where none has a text.
        """
        every = self.dataset.queries(self.split)
        if self.split in self.dataset.withheld:
            found = {key: query for key, query in every.items() if query.metadata.get("split") == self.split}
            if not found:
                raise DatasetError(f"{self.dataset.path}: queries.jsonl has no query of the split {self.split!r}")
            return found
        found = {key: every[key] for key in self.qrels.labels if key in every}
        if not found:
            raise DatasetError(
                f"{self.dataset.path}: no query of the {self.split} qrels is among its queries: "
                "the labels are of another dataset or version"
            )
        return found

    @cached_property
    def unanswered(self) -> dict[str, BeirQuery]:
        """The queries of this split that nothing in the corpus answers: marked as `answered: false`, without labels."""
        if self.split in self.dataset.withheld:
            return {}
        return {
            key: query
            for key, query in self.dataset.queries(self.split).items()
            if query.metadata.get(ANSWERED) is False
            and self.split in ("all", query.metadata.get("split"))
            and key not in self.qrels.labels
        }

    @cached_property
    def corpus(self) -> Corpus:
        """The whole corpus in memory."""
        return Corpus.from_passages(self.dataset.passages(), self.language)

    @cached_property
    def parents(self) -> dict[str, str]:
        """The document of each chunk; empty where passages are documents, or where the dataset came without private/.

        Raises DatasetError for a damaged file.
        """
        path = self.dataset.path / PARENTS
        return read_parents(path) if path.is_file() else {}

    @cached_property
    def ids(self) -> IdLookup:
        """Finds passages by their ids, or by those that they had in the corpus."""
        return IdLookup(self.corpus.ids, self.dataset)

    @cached_property
    def words(self) -> dict[int, frozenset[str]]:
        """The words of passages, filled by those who split a passage into words."""
        return {}

    @cached_property
    def answers(self) -> dict[str, list[str]]:
        """Texts that answer a labelled query, by query: those of `answers/`, with their quotes, and of its metadata.

        Empty for a withheld split, whose answers are as private as its labels. Raises DatasetError for a damaged file.
        """
        if self.split in self.dataset.withheld:
            return {}
        found = {key: answers_of(query.metadata) for key, query in self.queries.items()}
        for split in self.dataset.splits if self.split == "all" else [self.split]:
            path = self.dataset.path / "answers" / f"{split}.jsonl"
            for row in read_rows(path) if path.is_file() else ():
                texts = [text for name in ("query-id", "answer", "quote") if isinstance(text := row.get(name), str)]
                if len(texts) < 3:
                    raise DatasetError(f"{path}: a line needs the texts `query-id`, `answer` and `quote`")
                found.setdefault(texts[0], []).extend(texts[1:])
        return {key: found[key] for key in self.qrels.labels if found.get(key)}

    @cached_property
    def token_lines(self) -> dict[int, str]:
        """The tokens of passages, filled where answers are looked for."""
        return {}

    @property
    def headline(self) -> str:
        """The measure that ranks systems, as in AIR-Bench: Recall@10 for Long-Doc, nDCG@10 for all else."""
        return "Recall@10" if self.dataset.info.get("task") == "long-doc" else "nDCG@10"
