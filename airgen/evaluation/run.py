"""A run, that is, one system's hits for each query, with integer ids.

    run = read_run("bm25.run")
    run = run_from_hits(query_ids, corpus_ids, retriever.search(queries, 1000))
    run.ranked()            # trec_eval's order: score descending as float32, then passage id descending

Passage ids are numbered in sorted order, so integers are ordered like their ids. A hit fits into one 64-bit key (the
score in the upper half, the id in the lower), so that ranking, including ties, is a single sort of integers.
"""

import gzip
import math
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import DatasetError
from airgen.retrievers.hits import Hits
from airgen.storage.sql_connections import in_memory, without_globs
from airgen.storage.whole_files import whole_file
from airgen.tables.lines import numbered_lines
from airgen.tables.pairs import SCORES, ScoredPair, read_pairs

_SIGN = np.uint32(0x80000000)
_DUCKDB_FROM_BYTES = 1 << 20  # bytes of a run below which DuckDB takes longer to start than it saves
_LONGEST_LINE_BYTES = 1 << 20  # maximum bytes per line that it reads


@dataclass(frozen=True)
class Run:
    """The hits of n queries in compressed row format: the hits of query i are at offsets[i]:offsets[i + 1].

    Attributes:
        query_ids: n strings.
        passage_ids: The sorted, distinct passage ids.
        offsets: int64 (n + 1,).
        passages: int32 (hits,), indices into passage_ids.
        scores: float32 (hits,), finite.
        notes: Counts of irregularities found by `read_run`.
    """

    query_ids: Sequence[str]
    passage_ids: Sequence[str]
    offsets: NDArray[np.int64]
    passages: NDArray[np.int32]
    scores: NDArray[np.float32]
    notes: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Return the number of hits per query, int64 (n,)."""
        return np.diff(self.offsets)

    def rows(self) -> NDArray[np.int64]:
        """Return the index of each hit's query, int64 (hits,)."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    def ranked(self) -> "Run":
        """Return the hits in trec_eval's order, or the run itself if they already are."""
        keys = self._keys()
        later = keys[1:] < keys[:-1]
        starts = self.offsets[:-1][self.lengths > 0]
        later[starts[1:] - 1] = False  # a query's first hit has no hit of the same query before it
        if not later.any():
            return self
        lengths = self.lengths
        if np.all(lengths == lengths[0]):
            keys.reshape(len(lengths), -1).sort(axis=1)
        else:
            for start, end in zip(self.offsets[:-1], self.offsets[1:], strict=True):
                keys[start:end].sort()
        np.invert(keys, out=keys)
        passages = keys.astype(np.uint32).view(np.int32)
        keys >>= np.uint64(32)
        bits = keys.astype(np.uint32)
        bits = np.where(bits & _SIGN, bits ^ _SIGN, ~bits)
        return replace(self, passages=passages, scores=bits.view(np.float32))

    def _keys(self) -> NDArray[np.uint64]:
        """Return sort keys, uint64 (hits,); smaller is better. Adding zero makes -0.0 equal to 0.0, as in float
        comparisons."""
        bits = (self.scores + np.float32(0)).view(np.uint32)
        bits = np.where(bits & _SIGN, ~bits, bits | _SIGN)
        keys = bits.astype(np.uint64)
        keys <<= np.uint64(32)
        keys |= self.passages.view(np.uint32)
        return np.invert(keys, out=keys)

    def without_identical_ids(self) -> "Run":
        """Drop hits whose passage id equals the query's id (BEIR's `ignore_identical_ids`)."""
        places = {key: place for place, key in enumerate(self.passage_ids)}
        own_places = np.array([places.get(key, -1) for key in self.query_ids], dtype=np.int64)
        return self._only(self.passages != own_places[self.rows()])

    def without_passages(self, ids: Collection[str]) -> "Run":
        """Drop these passages from the hits of all queries."""
        dropped = np.array([key in ids for key in self.passage_ids], dtype=np.bool_)
        return self._only(~dropped[self.passages])

    def _only(self, keep: NDArray[np.bool_]) -> "Run":
        counts = np.bincount(self.rows()[keep], minlength=len(self))
        return replace(self, offsets=_offsets(counts), passages=self.passages[keep], scores=self.scores[keep])

    def renamed(self, find: Callable[[str], str | None]) -> "Run":
        """Rename passages with `find`. An id for which it returns None is kept.

        Raises DatasetError if two passages of a query get the same id.
        """
        names = [find(key) or key for key in self.passage_ids]
        if names == list(self.passage_ids):
            return self
        vocabulary = sorted(set(names))
        places = {key: place for place, key in enumerate(vocabulary)}
        new = np.array([places[key] for key in names], dtype=np.int32)
        return _checked(replace(self, passage_ids=vocabulary, passages=new[self.passages]))

    def items(self) -> Iterator[tuple[str, list[tuple[str, float]]]]:
        """Yield (query id, [(passage id, score), ...]) for all queries, as stored."""
        for place, key in enumerate(self.query_ids):
            span = slice(self.offsets[place], self.offsets[place + 1])
            ids = [self.passage_ids[passage] for passage in self.passages[span]]
            yield key, list(zip(ids, self.scores[span].tolist(), strict=True))


def run_from_hits(query_ids: Sequence[str], corpus_ids: Sequence[str], hits: Hits) -> Run:
    """Convert a retriever's hits to a run.

    Raises DatasetError if the retriever is faulty: a hit outside the corpus, the same passage twice for a query, or a
    score that is not finite.
    """
    order = np.array(sorted(range(len(corpus_ids)), key=corpus_ids.__getitem__), dtype=np.int64)
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    retrieved = hits.positions >= 0
    positions = hits.positions[retrieved]
    if positions.size and int(positions.max()) >= len(corpus_ids):
        raise DatasetError(f"a hit at position {int(positions.max())} of a corpus of {len(corpus_ids)} passages")
    scores = np.ascontiguousarray(hits.scores[retrieved], dtype=np.float32)
    vocabulary = [corpus_ids[old] for old in order]
    run = Run(
        query_ids=list(query_ids),
        passage_ids=vocabulary,
        offsets=_offsets(retrieved.sum(axis=1)),
        passages=place[positions],
        scores=scores,
    )
    return _checked(run)


def run_from_dict(results: Mapping[str, Mapping[str, float]]) -> Run:
    """Build a run from {query id: {passage id: score}}, as in pytrec_eval and BEIR.

    Raises DatasetError for NaN.
    """
    vocabulary = sorted({passage for hits in results.values() for passage in hits})
    places = {key: place for place, key in enumerate(vocabulary)}
    passages = np.array([places[passage] for hits in results.values() for passage in hits], dtype=np.int32)
    scores = np.array([score for hits in results.values() for score in hits.values()], dtype=np.float64)
    counts = np.array([len(hits) for hits in results.values()], dtype=np.int64)
    with np.errstate(over="ignore"):
        narrow = scores.astype(np.float32)
    run = Run(
        query_ids=list(results), passage_ids=vocabulary, offsets=_offsets(counts), passages=passages, scores=narrow
    )
    return _checked(run)


def read_run(path: str | Path) -> Run:
    """Read a TREC run file (`query Q0 passage rank score tag`), or a run of another tool, compressed or not.

    The other forms are JSON ({query: {passage: score}}), JSON Lines, CSV, TSV and Parquet with named columns, and lines
    `query passage rank`.

    Columns are separated by white space, or by tabs if an id contains spaces. The rank column is ignored: ranks follow
    from the scores, and `notes["unsorted_queries"]` counts the queries whose lines are in another order. Raises
    DatasetError, with file and line, for a wrong number of columns, a score that is not a finite number, a repeated
    passage for a query, or an empty file.
    """
    path = Path(path)
    if (pairs := read_pairs(path, SCORES)) is not None:
        return _run_of_pairs(path, pairs)
    if (clean := _read_clean(path)) is not None:
        return clean
    results: dict[str, dict[str, float]] = {}
    unsorted: set[str] = set()
    last: dict[str, float] = {}
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        cells = line.split("\t") if line.count("\t") == 5 else line.split()
        if len(cells) != 6:
            raise DatasetError(
                f"{where}: {len(cells)} columns, but a line of a run has 6: query Q0 passage rank score tag"
            )
        query, passage, score = cells[0], cells[2], _score(cells[4], where)
        hits = results.setdefault(query, {})
        if passage in hits:
            raise DatasetError(f"{where}: passage {passage!r} appears twice for query {query!r}")
        hits[passage] = score
        if score > last.get(query, math.inf):
            unsorted.add(query)
        last[query] = score
    if not results:
        raise DatasetError(f"{path}: the run is empty")
    return replace(run_from_dict(results), notes={"unsorted_queries": len(unsorted)})


def read_own_run(path: Path) -> Run:
    """Read a run that airgen wrote. Unlike others, it may be empty: its system has found nothing."""
    return read_run(path) if any(numbered_lines(path)) else run_from_dict({})


def _run_of_pairs(path: Path, pairs: Iterable[ScoredPair]) -> Run:
    """Build a run from the pairs of another tool's file. Raises DatasetError."""
    results: dict[str, dict[str, float]] = {}
    for where, query, passage, number in pairs:
        hits = results.setdefault(query, {})
        if passage in hits:
            raise DatasetError(f"{where}: passage {passage!r} appears twice for query {query!r}")
        hits[passage] = _score(number, where)
    if not results:
        raise DatasetError(f"{path}: the run is empty")
    return replace(run_from_dict(results), notes={"unsorted_queries": 0})


def _score(value: Any, where: str) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        raise DatasetError(f"{where}: score {value!r} is not a number") from None
    if not math.isfinite(score):
        raise DatasetError(f"{where}: score {value!r} is not finite")
    return score


def _read_clean(path: Path) -> Run | None:
    """Read a large run with DuckDB. Returns None for a small file, or if a line is unusual or wrong.

    The line-by-line parser then reports that line. In a clean line, single spaces or tabs separate six non-empty cells,
    and no id begins or ends with a space.
    """
    import duckdb

    try:
        if path.stat().st_size < _DUCKDB_FROM_BYTES:
            return None
        with gzip.GzipFile(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            start = stream.readline(_LONGEST_LINE_BYTES)
            readable = path.suffix != ".gz" or all(
                iter(lambda: stream.read(_LONGEST_LINE_BYTES), b"")
            )  # DuckDB reads only half of a truncated gzip file
        if start.startswith(b"\xef\xbb\xbf") or not readable:
            return None
        gap = "\t" if b"\t" in start else " "
        cells = [f"c{place}" for place in range(6)]
        with in_memory(files=[path]) as base:
            base.execute(
                "CREATE TEMP TABLE line AS SELECT c0 AS query, c2 AS passage, TRY_CAST(c4 AS DOUBLE) AS score, "
                f"list_contains([{', '.join(cells)}], '') AS hollow FROM read_csv(?, auto_detect = false, delim = ?, "
                f"columns = {dict.fromkeys(cells, 'VARCHAR')}, quote = '', escape = '', comment = '', header = false, "
                f"new_line = '\\n', nullstr = '\\0', max_line_size = {_LONGEST_LINE_BYTES})",
                [without_globs(path), gap],
            )
            bad = "SELECT count(*) FROM line WHERE score IS NULL OR NOT isfinite(score) OR hollow"
            if base.execute(bad).fetchall() != [(0,)]:
                return None
            ids = []
            for key, order in (("query", "min(rowid)"), ("passage", "passage")):
                base.execute(
                    f"CREATE TEMP TABLE {key}_id AS SELECT {key} AS id, "
                    f"row_number() OVER (ORDER BY {order}) - 1 AS place FROM line GROUP BY {key}"
                )
                rows = base.execute(f"SELECT id FROM {key}_id ORDER BY place").fetchall()
                ids.append([row[0] for row in rows])
            columns = base.execute(
                "SELECT q.place::INTEGER AS query, p.place::INTEGER AS passage, score FROM line "
                "JOIN query_id q ON q.id = line.query JOIN passage_id p ON p.id = line.passage "
                "ORDER BY q.place, line.rowid"
            ).fetchnumpy()
        queries, passages = ids
        if not queries or any([key] != (key.split() if gap == " " else [key.strip()]) for key in queries + passages):
            return None
        query, scores = np.asarray(columns["query"]), np.asarray(columns["score"])
        later = (query[1:] == query[:-1]) & (scores[1:] > scores[:-1])
        notes = {"unsorted_queries": len(np.unique(query[1:][later]))}
        with np.errstate(over="ignore"):
            narrow = scores.astype(np.float32)
        run = Run(
            query_ids=queries,
            passage_ids=passages,
            offsets=_offsets(np.bincount(query, minlength=len(queries))),
            passages=np.asarray(columns["passage"], np.int32),
            scores=narrow,
            notes=notes,
        )
        return _checked(run)
    except (OSError, EOFError, zlib.error, duckdb.Error, DatasetError):
        return None


def write_run(path: str | Path, run: Run, tag: str) -> None:
    """Write a TREC run file, best first, gzipped if the name ends in .gz; byte-identical for equal runs.

    Scores are written so that they read back as the same float32. Columns are separated by tabs if an id contains a
    space. Raises DatasetError for an id with a tab or line break, which a run file cannot represent.
    """
    ranked = run.ranked()
    ids = [*run.query_ids, *run.passage_ids]
    if bad := next((key for key in ids if any(character in key for character in "\t\r\n") or not key), None):
        raise DatasetError(
            f"the id {bad!r} cannot be written to a run file: it is empty or contains a tab or a line break"
        )
    gap = "\t" if any(len(key.split()) != 1 for key in ids) else " "
    tag = "".join(tag.split()) or "airgen"
    path = Path(path)
    with (
        whole_file(path) as fresh,  # so that an existing run is always complete
        fresh.open("wb") as raw,
        # Without name and time, so that equal runs give equal bytes.
        gzip.GzipFile("", "wb", compresslevel=3, fileobj=raw, mtime=0) if path.suffix == ".gz" else raw as stream,
    ):
        for query, hits in ranked.items():
            lines = (
                gap.join((query, "Q0", passage, str(rank), f"{score:.9g}", tag)) + "\n"
                for rank, (passage, score) in enumerate(hits, 1)
            )
            stream.write("".join(lines).encode("utf-8"))


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _checked(run: Run) -> Run:
    if len(set(run.query_ids)) != len(run.query_ids):
        raise DatasetError("a query id appears twice in a run")
    bad = np.flatnonzero(~np.isfinite(run.scores))
    rows = run.rows()
    if bad.size:
        place = int(bad[0])
        raise DatasetError(
            f"query {run.query_ids[rows[place]]!r}: passage {run.passage_ids[run.passages[place]]!r} has the score "
            f"{run.scores[place]}, but scores must be finite float32 numbers"
        )
    pairs = rows * np.int64(max(1, len(run.passage_ids))) + run.passages
    pairs.sort()
    twice = np.flatnonzero(pairs[1:] == pairs[:-1])
    if twice.size:
        row, passage = divmod(int(pairs[twice[0]]), max(1, len(run.passage_ids)))
        raise DatasetError(f"query {run.query_ids[row]!r}: passage {run.passage_ids[passage]!r} comes twice")
    return run
