"""Queries that a model wrote for passages, as training pairs in BEIR format: what GenQ trains on (BEIR's section 4).

expansion_pairs("scifact", Path("scifact-queries.jsonl"), Path("data/genq"))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.keys import file_sha256
from airgen.records import flat_text
from airgen.retrievers.lexical.expanded import read_expansions
from airgen.training.mining.pair_files import write_pairs
from airgen.training.mining.pairs import MinedPair
from airgen.training.mining.sources import open_source

_KIND = "written"


def expansion_pairs(
    source: str, queries: Path, out: Path, *, per_passage: int | None = None, limit: int | None = None
) -> dict[str, Any]:
    """Write a pair for each query of the file and its passage; returns the summary of `write_pairs`.

    source: a corpus or a dataset, whose own queries no pair may have, because they are for testing. queries: a file of
    `airgen train expand`. per_passage: how many queries of each are used. limit: passages that are read.

    Raises DatasetError where no passage of the source has a query.
    """
    opened, written = open_source(source, limit), read_expansions(queries)
    dataset = BeirDataset.open(source) if Path(source).is_dir() else None
    tested = {_wording(query.text) for query in dataset.queries().values()} if dataset else set()
    counts: Counter[tuple[str, str]] = Counter()
    if not written:
        raise DatasetError(f"{queries}: has no queries")

    def pairs() -> Iterator[MinedPair]:
        for passage in opened.passages:
            found = [" ".join(query.split()) for query in written.get(passage.id, ())[:per_passage]]
            counts[_KIND, "passages"] += 1
            if not found:
                counts[_KIND, "passages without a query"] += 1
            for query in dict.fromkeys(filter(None, found)):
                if _wording(query) in tested:
                    counts[_KIND, "is a query of the dataset"] += 1
                    continue
                counts[_KIND, "pairs"] += 1
                yield MinedPair(query, flat_text(passage.title, passage.text), _KIND, passage.id)

    info = {"name": opened.name, "language": opened.language}
    about = {"info": info, "queries_sha256": file_sha256(queries), "per_passage": per_passage}
    return write_pairs(pairs(), out, about, counts)


def _wording(text: str) -> str:
    return " ".join(text.lower().split())
