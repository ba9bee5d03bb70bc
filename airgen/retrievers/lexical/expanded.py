"""Document expansion: BM25 over passages with queries appended that they might answer (docT5query; BEIR's section 4).

    {kind: expanded, expansions: scifact-queries.jsonl}

`airgen train expand` writes the file: one row a passage, {"_id": ..., "queries": [...]}, by a sequence-to-sequence
model, an LLM, or from queries that a dataset has. What is not in the file is indexed as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airgen.errors import UsageError
from airgen.keys import content_key
from airgen.retrievers.base import Corpus, Hits
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.lexical.expansions import read_expansions
from airgen.retrievers.output_checks import non_empty
from airgen.text.analysis import Analyser

__all__ = ["Expanded"]


class Expanded:
    """BM25 (`k1`, `b`, `analyser`) over each passage and its first `queries` queries (None: all; docT5query: 40).

    `expansions` is a file or {passage id: queries}. Raises DatasetError for a file that cannot be read, UsageError
    where none of its passages is in the corpus.
    """

    def __init__(
        self,
        expansions: str | Path | Mapping[str, Sequence[str]],
        *,
        queries: int | None = 40,
        k1: float = 0.9,
        b: float = 0.4,
        analyser: Analyser | Mapping[str, Any] | None = None,
        name: str = "expanded bm25",
    ) -> None:
        if queries is not None and queries < 0:
            raise UsageError(f"queries is {queries}: 0 or more are possible")
        found = expansions if isinstance(expansions, Mapping) else read_expansions(Path(expansions))
        self.expansions = {key: tuple(of[:queries]) for key, of in found.items()}
        self.name = name
        self._queries = queries
        self._bm25 = BM25(k1, b, analyser=analyser)
        self.expanded = 0

    def index(self, corpus: Corpus) -> None:
        """Index the expanded passages; `expanded` is then how many were found in the file."""
        non_empty(corpus)
        self.expanded = sum(key in self.expansions for key in corpus.ids)
        if self.expansions and not self.expanded:
            raise UsageError(f"{self.name}: none of the {len(self.expansions)} expanded passages is in this corpus")
        texts = [
            " ".join([corpus.full_text(place), *self.expansions.get(key, ())]) for place, key in enumerate(corpus.ids)
        ]
        self._bm25.index(Corpus(corpus.ids, texts, (), corpus.language))

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k best passages of each query. Raises UsageError before `index`."""
        return self._bm25.search(queries, k)

    def describe(self) -> Mapping[str, object]:
        """A key of the expansions, how many are used, and BM25's settings."""
        key = content_key({key: list(of) for key, of in self.expansions.items()})
        return {"family": "expanded", "expansions": key, "queries": self._queries, "bm25": dict(self._bm25.describe())}
