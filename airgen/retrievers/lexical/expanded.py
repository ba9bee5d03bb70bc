"""Document expansion: BM25 over passages with queries appended that they might answer (docT5query; BEIR's section 4).

    {kind: expanded, expansions: scifact-queries.jsonl}

`airgen train expand` writes the file: one row a passage, {"_id": ..., "queries": [...]}, by a sequence-to-sequence
model, an LLM, or from queries that a dataset has. What is not in the file is indexed as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, WrapValidator

from airgen.errors import UsageError
from airgen.keys import content_key
from airgen.retrievers.base import Component, Corpus, Hits
from airgen.retrievers.lexical.bm25 import BM25, BM25Settings
from airgen.retrievers.lexical.expansions import read_expansions
from airgen.retrievers.output_checks import non_empty
from airgen.settings.base import FILE, LABEL
from airgen.settings.parts import located


def _mapping_or_path(value: Any, check: Any) -> Any:
    return value if isinstance(value, Mapping) else check(value)


class Expanded(Component):
    """BM25 over each passage and the queries that it might answer.

    Raises DatasetError for a file that cannot be read, UsageError where none of its passages is in the corpus.
    """

    class Settings(BM25Settings):
        """`expansions`: a file; in Python also {passage id: queries}. `queries`: how many of each are used (None: all).

        docT5query uses 40.
        """

        expansions: Annotated[Path, FILE, WrapValidator(_mapping_or_path)]
        queries: int | None = Field(default=40, ge=0)
        name: Annotated[str, LABEL] = "expanded bm25"

    settings: Settings

    def set_up(self) -> None:
        given: Path | Mapping[str, Sequence[str]] = self.settings.expansions
        found = given if isinstance(given, Mapping) else read_expansions(located(str(given), self.folder))
        self.expansions = {key: tuple(queries[: self.settings.queries]) for key, queries in found.items()}
        self.name = self.settings.name
        self._bm25 = BM25(self.settings.k1, self.settings.b, analyser=self.settings.analyser, folder=self.folder)
        self.expanded = 0

    @property
    def index_bytes(self) -> int | None:
        return self._bm25.index_bytes

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
        key = content_key({passage: list(queries) for passage, queries in self.expansions.items()})
        bm25 = dict(self._bm25.describe())
        return {"family": "expanded", "expansions": key, "queries": self.settings.queries, "bm25": bm25}
