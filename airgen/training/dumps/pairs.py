"""Read existing pairs: question-answer pairs, triplets, and search logs with hard negatives.

JSON Lines (optionally compressed) with one of these per line:

    ["how to patch a tube", "Find the hole, roughen the rubber around it, ..."]           E5's "Others" (its table 9)
    {"query": "...", "positives": ["...", ...], "negatives": ["...", ...]}
    {"anchor": "...", "positive": "...", "negative": "..."}                               sentence-transformers
    {"query": "...", "pos": [...], "neg": [...]}                                          FlagEmbedding
    {"query": "...", "positive_passages": [{"title", "text"}, ...], "negative_passages"}  Tevatron

or CSV and TSV with two columns, query and passage, with or without a header; a third column is a hard negative. Hard
negatives are passages labelled 0.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airgen.corpus.readers.files import opened
from airgen.storage.records import flat_text
from airgen.tables import DelimitedTable
from airgen.tables.vocabulary import column_named, names
from airgen.training.dumps import DumpReader, DumpRow, json_values, passage_id, plain, plain_line
from airgen.training.mining.pairs import MinedPair, RefusedRow, SourcePassage

KIND = "pair"
_KNOWN = frozenset(names("anchor", "positive", "negative"))
_TABLES = (".csv", ".tsv", ".tab")


class PairsDump(DumpReader):
    """Reads the pairs of each file."""

    def read(self) -> Iterator[DumpRow]:
        """Yield a MinedPair per query and passage. Each pair has all negatives of its query."""
        for path in self.files:
            if any(suffix in path.suffixes for suffix in _TABLES):
                yield from self._table(path)
                continue
            for row in json_values(path):
                yield from [row] if isinstance(row, RefusedRow) else _pairs_of(row)

    def _table(self, path: Path) -> Iterator[DumpRow]:
        with opened(path) as stream:
            text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
            table = DelimitedTable(text, known=_KNOWN, tabs=".tsv" in path.suffixes)
            named = table.dialect.header and _chosen(dict.fromkeys(table.names)) is not None
            if table.dialect.header and not named:  # a row that looks like names, since no name is known
                yield from _pairs_of([*table.names])
            for row in table:
                yield from _pairs_of(row.cells if named else [*row.cells.values()])


def _pairs_of(row: Any) -> Iterator[DumpRow]:
    query: Any
    positives: Any
    negatives: Any
    if isinstance(row, list):
        query, positives, negatives = (row[0], row[1:2], row[2:]) if len(row) > 1 else ("", [], [])
    elif isinstance(row, Mapping):
        chosen = _chosen(row)
        if chosen is None:
            listed = ", ".join([str(name)[:40] for name in row][:8])
            yield RefusedRow("row", f"no query and passage among its columns ({listed})")
            return
        query, positives, negatives = (row.get(name) for name in chosen)
    else:
        yield RefusedRow("row", "neither a list nor an object")
        return
    query_text = plain_line(query) if isinstance(query, str) else ""
    passages, against = _texts(positives), _texts(negatives)
    if not query_text or not passages:
        yield RefusedRow("row", "without a query" if passages else "without a passage")
        return
    others = tuple(SourcePassage(passage_id(KIND, text), text) for text in against if text not in passages)
    for text in passages:
        yield MinedPair(query_text, text, KIND, passage_id(KIND, text), negatives=others)


def _chosen(row: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the columns of query, positives and negatives ("" if there is none), or None without the first two."""
    query = column_named(tuple(map(str, row)), "anchor")
    others = tuple(str(name) for name in row if name != query)
    positive, negative = column_named(others, "positive"), column_named(others, "negative")
    return (query, positive, negative) if query and positive else None


def _texts(value: Any) -> list[str]:
    """Return the distinct texts in a text, an object with title and text, or a list of these."""
    texts = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, Mapping):
            title, text = (part if isinstance(part, str) else "" for part in (item.get("title"), item.get("text")))
            texts.append(plain(flat_text(title, text)))
        elif isinstance(item, str):
            texts.append(plain(item))
    return list(dict.fromkeys(filter(None, texts)))
