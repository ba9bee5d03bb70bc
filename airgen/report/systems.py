"""The systems of a dataset for the report: the table of each split, and what any two of them did with each query.

    for name, value in systems_chunks(source, boards(source)):
        pack.write(name, value)

Each split with results is a board. `d0/systems` has the figures of every board, which come from the files of the
results. `d0/board0/queries` and `d0/board0/system-000` have the scores of each query, a file a system, so that a page
loads two of them to compare two systems. The hits of a query are in its life (`airgen.report.queries`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import DatasetError
from airgen.evaluation.result import Result, as_matrix, read_scores
from airgen.evaluation.significance import Comparison, compare
from airgen.evaluation.tables import fairness_lines
from airgen.report.charts import MISSING, score_against_time
from airgen.report.source import TOP, ReportSource, SystemRanks

_HOLES = 50  # passages without a label that are listed

Labels = Mapping[str, Mapping[str, float]]
Rankings = Mapping[str, Mapping[str, SystemRanks]]
Chunk = tuple[str, Any]


@dataclass(frozen=True)
class Board:
    """The systems of one split, best first. `private`: nothing may be told of single queries."""

    key: str
    split: str
    results: Sequence[Result]
    comparison: Comparison | None
    private: bool
    notes: list[str] = field(default_factory=list)

    @property
    def headline(self) -> str:
        """The measure that ranks the systems."""
        return self.results[0].headline

    @property
    def queries(self) -> list[str]:
        """The ids of the queries that the scores are of, sorted. Raises DatasetError for a file that is missing."""
        return sorted(read_scores(self.results[0].paths.scores, self.headline))


def boards(source: ReportSource) -> list[Board]:
    """The splits with results, `test` first."""
    found: list[Board] = []
    for split in sorted(source.results, key=lambda split: (split != "test", split)):
        every = source.results[split]
        if not every:
            continue
        headline = every[0].headline
        same = [one for one in every if one.headline == headline]
        board = _board(f"board{len(found)}", split, same, private=source.is_private(split))
        if len(same) < len(every):
            board.notes.append(f"{len(every) - len(same)} results have another head measure and are not shown")
        found.append(board)
    return found


def _board(key: str, split: str, results: list[Result], *, private: bool) -> Board:
    results = sorted(results, key=lambda one: (-one.score, one.name))
    notes = fairness_lines(results)
    if private:
        return Board(key, split, results, None, private, notes)
    try:
        comparison = compare([one.name for one in results], as_matrix(results, results[0].headline))
    except (DatasetError, ValueError) as error:  # ValueError: their scores are of different numbers of queries
        notes.append(f"the scores by query cannot be read, so nothing is compared: {error}")
        return Board(key, split, results, None, private, notes)
    place = {name: at for at, name in enumerate(comparison.names)}
    return Board(key, split, sorted(results, key=lambda one: place[one.name]), comparison, private, notes)


def systems_chunks(source: ReportSource, every: Sequence[Board]) -> Iterator[Chunk]:
    """The files of the systems' pages, by name; none without results."""
    if not every:
        return
    tables = []
    for board in every:
        table = _table(board)
        if source.public:  # settings name files and servers of whoever ran the system
            for system in table["systems"]:
                system.update(settings={}, description={}, versions={})
        if not board.private and board.comparison is not None:
            labels, hits = source.labels(board.split), source.rankings(board.split)
            if hits:
                table["holes"] = _holes(board, labels, hits)
            yield from _query_chunks(source, board, labels, hits)
            table["by_query"] = True
        tables.append(table)
    yield f"{source.key}/systems", {"boards": tables}


def _table(board: Board) -> dict[str, Any]:
    """The figures of a split, as they are in the files of the results."""
    first, comparison = board.results[0], board.comparison
    measures = [board.headline, *(name for name in first.means if name != board.headline)]
    names = [one.name for one in board.results]
    place = {name: at for at, name in enumerate(names)}
    systems = []
    for at, one in enumerate(board.results):
        systems.append(
            {
                "name": one.name, "kind": one.kind, "family": one.family or one.kind,
                "made_labels": list(one.made_labels),
                "score": one.score, "interval": one.intervals[board.headline],
                "ranks": comparison.ranks[at] if comparison else None,
                "together": [place[name] for name in comparison.together[at]] if comparison else None,
                "means": [one.means.get(name) for name in measures],
                "intervals": [one.intervals.get(name) for name in measures],
                "by_document": [one.by_document.get(name) for name in measures] if one.by_document else None,
                "costs": asdict(one.costs), "missing": one.missing, "unjudged": one.unjudged,
                "without_relevant": one.without_relevant, "notes": dict(one.notes),
                "negatives_above": dict(one.negatives_above), "biases": dict(one.biases),
                "settings": dict(one.settings), "description": dict(one.description), "versions": dict(one.versions),
            }
        )  # fmt: skip
    pairs = comparison.pairs if comparison else []
    return {
        "key": board.key, "split": board.split, "headline": board.headline, "measures": measures,
        "queries": first.queries, "passages": first.about.get("passages"), "digest": first.about.get("digest"),
        "rules": dict(first.rules), "alpha": comparison.alpha if comparison else None,
        "systems": systems, "attributes": [] if board.private else _attributes(board.results),
        "pairs": [
            [place[one.first], place[one.second], one.difference, one.fisher_holm, one.queries_needed] for one in pairs
        ],
        "by_query": False, "private": board.private, "notes": list(board.notes),
        "time": score_against_time(board.results), "missing": MISSING,
    }  # fmt: skip


def _attributes(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The headline's means by attribute of the query: `means` has a value for each system, in their order."""
    means = [{(group.attribute, group.value): group for group in one.groups} for one in results]
    known = list(dict.fromkeys(key for groups in means for key in groups))
    found: dict[str, list[dict[str, Any]]] = {}
    for attribute, value in known:
        groups = [one.get((attribute, value)) for one in means]
        count = next(group.queries for group in groups if group)
        row = {"value": value, "queries": count, "means": [group.mean if group else None for group in groups]}
        found.setdefault(attribute, []).append(row)
    return [{"attribute": attribute, "values": rows} for attribute, rows in found.items()]


def _holes(board: Board, labels: Labels, found: Rankings) -> dict[str, Any]:
    """Hits in the first ten without a label for their query: each system's share, and those that most systems have."""
    shares: list[float | None] = []
    systems_of: Counter[tuple[str, str]] = Counter()
    best: dict[tuple[str, str], int] = {}
    for one in board.results:
        count = 0
        for query, ranking in found.get(one.name, {}).items():
            for place, passage in enumerate(ranking.top, 1):
                if passage not in labels.get(query, ()):
                    count += 1
                    systems_of[query, passage] += 1
                    best[query, passage] = min(place, best.get((query, passage), place))
        shares.append(count / (TOP * len(labels)) if one.name in found and labels else None)
    first = heapq.nsmallest(_HOLES, systems_of, key=lambda pair: (-systems_of[pair], best[pair], pair))
    return {
        "depth": TOP,
        "shares": shares,
        "pairs": len(systems_of),
        "first": [[query, passage, systems_of[query, passage], best[query, passage]] for query, passage in first],
    }


def _query_chunks(source: ReportSource, board: Board, labels: Labels, found: Rankings) -> Iterator[Chunk]:
    """The queries of a board, and each system's scores and ranks of the first relevant passage."""
    folder, ids = f"{source.key}/{board.key}", board.queries
    texts = {row["query"]: str(row["text"]) for one in board.results for row in one.worst if row.get("text")}
    texts |= {key: query.text for key, query in source.queries.items()}
    yield (
        f"{folder}/queries",
        {
            "ids": ids,
            "texts": [texts.get(key, "") for key in ids],
            "relevant": [sum(label > 0 for label in labels.get(key, {}).values()) for key in ids],
        },
    )
    for at, one in enumerate(board.results):
        scores, hits = read_scores(one.paths.scores, board.headline), found.get(one.name, {})
        yield (
            f"{folder}/system-{at:03}",
            {
                "name": one.name,
                "scores": _millionths([scores.get(key, 0.0) for key in ids]),
                "first": [_first(labels.get(key, {}), hits[key]) if key in hits else 0 for key in ids],
            },
        )


def _millionths(scores: Sequence[float]) -> list[int]:
    """Scores as whole numbers, which take little room; six digits tell any two scores apart."""
    values: NDArray[np.int64] = np.rint(np.array(scores) * 1e6).astype(np.int64)
    return values.tolist()  # type: ignore[no-any-return]


def _first(labels: Mapping[str, float], ranking: SystemRanks) -> int:
    """The rank of the first relevant passage; 0 where none was found."""
    return min((rank for passage, rank in ranking.ranks.items() if labels.get(passage, 0) > 0), default=0)
