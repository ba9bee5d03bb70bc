"""Where a system ranks the documents of each query: the first hits of its run, and the ranks of labelled documents.

    found = ranks_of(result, labels)
    found["q1"].top                     # ("p7", "p2", ...)
    found["q1"].ranks                   # {"p7": 1, "p9": 84}

A run has a thousand hits for each query and a report shows few of them, so DuckDB reads the file and gives these alone.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass

from airgen.database import in_memory, without_globs
from airgen.errors import DatasetError
from airgen.evaluation.result import Result

TOP = 10
"""How many hits of a system are shown."""

_SQL = """
SELECT query, passage, rank FROM read_csv(?, delim = ?, header = false, auto_detect = false, quote = '', escape = '',
    columns = {'query': 'VARCHAR', 'q0': 'VARCHAR', 'passage': 'VARCHAR', 'rank': 'BIGINT', 'score': 'VARCHAR',
    'tag': 'VARCHAR'}) AS hit
WHERE query IN (SELECT query FROM label)
    AND (rank <= ? OR query = passage OR (query, passage) IN (SELECT (query, passage) FROM label))
ORDER BY query, rank
"""


@dataclass(frozen=True, slots=True)
class SystemRanks:
    """One system's answer to one query: ids of the first hits, and the ranks (from 1) of labelled documents."""

    top: tuple[str, ...]
    ranks: Mapping[str, int]


def ranks_of(result: Result, labels: Mapping[str, Mapping[str, float]]) -> dict[str, SystemRanks]:
    """{query id: its ranks} of a result's run, for the queries that have labels.

    The run is one that airgen wrote, with its ranks. Hits whose id is the query's own are left out where the rules of
    the result leave them out. Raises DatasetError for a file that is missing or damaged.
    """
    import duckdb

    path, own_out = result.paths.run, result.rules.get("identical_ids") == "left out"
    queries = [query for query, passages in labels.items() for _ in passages]
    passages = [passage for of_query in labels.values() for passage in of_query]
    try:
        with in_memory(files=[path]) as base:
            base.execute(
                "CREATE TABLE label AS SELECT unnest(?::VARCHAR[]) AS query, unnest(?::VARCHAR[]) AS passage",
                [queries, passages],
            )
            with gzip.open(path, "rb") as stream:  # `write_run` separates by tabs where an id holds a space
                gap = "\t" if b"\t" in stream.readline(1 << 20) else " "
            rows = base.execute(_SQL, [without_globs(path), gap, TOP + own_out]).fetchall()
    except (duckdb.Error, OSError, EOFError) as error:
        raise DatasetError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error
    top: dict[str, list[str]] = {}
    ranks: dict[str, dict[str, int]] = {}
    moved: set[str] = set()  # queries whose own id stood above, so that all hits below it move up
    for query, passage, rank in rows:
        if own_out and query == passage:
            moved.add(query)
            continue
        place = rank - (query in moved)
        if place <= TOP:
            top.setdefault(query, []).append(passage)
        if passage in labels[query]:
            ranks.setdefault(query, {})[passage] = place
    return {query: SystemRanks(tuple(top.get(query, ())), ranks.get(query, {})) for query in {**top, **ranks}}
