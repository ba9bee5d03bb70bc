"""The systems of a dataset for the report: the table of each split, and comparisons of any two systems query by query.

    for name, value in systems_chunks(source, boards(source)):
        pack.write(name, value)

Each split with results is a board. `d0/systems` has the figures of every board, which come from the result files.
`d0/board0/queries` and `d0/board0/system-000` have the scores of each query, with one file per system, so that a page
loads only two of them to compare two systems. The hits of a query are in its life (`airgen.report.queries`).
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airgen.dataset.beir import BeirDataset
from airgen.display.study import Column, Table
from airgen.errors import DatasetError
from airgen.evaluation.result import Result, all_scores, as_matrix
from airgen.evaluation.result_tables import fairness_lines
from airgen.evaluation.significance import Comparison, compare
from airgen.evaluation.verdict import Advice, whole_verdict
from airgen.job.audit_answers import last_checked
from airgen.job.evaluate_systems import advice_on
from airgen.report.page_table import PageColumn, page_table
from airgen.report.source import TOP, ReportSource, SystemRanks
from airgen.report.system_tables import (
    bias_note,
    compared_table,
    facts_of,
    holes_table,
    kinds_table,
    measures_table,
    pairs_square,
    pairs_table,
    query_column,
    scores_table,
    system_views,
)
from airgen.studies.agree.rankings import RankGain
from airgen.studies.label_sets import label_sets_of

if TYPE_CHECKING:
    from airgen.evaluation.charts import AnyChart

_LISTED_HOLES = 50  # unlabelled passages that are listed
_LISTED_MISSED_PASSAGES = 200  # relevant passages that no system finds, at most
_NUMBERS = frozenset({"judged", "count"})  # attributes of human queries that are numbers, not kinds
_MOST_SINGLE = 8  # an attribute with more values, most of them of one query, names queries and not kinds
_LISTED_WORST_QUERIES = 30  # queries of a system that are listed

Labels = Mapping[str, Mapping[str, float]]
Rankings = Mapping[str, Mapping[str, SystemRanks]]
Chunk = tuple[str, Any]


@dataclass(frozen=True)
class Board:
    """The systems on one split, best first. `private` says whether individual queries must not be shown."""

    key: str
    split: str
    results: Sequence[Result]
    comparison: Comparison | None
    private: bool
    notes: list[str] = field(default_factory=list)
    advice: Advice | None = None

    @property
    def headline(self) -> str:
        """Return the measure that ranks the systems."""
        return self.results[0].headline


def boards(source: ReportSource) -> list[Board]:
    """Return the splits with results, `test` first."""
    boards_: list[Board] = []
    for split in sorted(source.results, key=lambda split: (split != "test", split)):
        every = source.results[split]
        if not every:
            continue
        headline, private = every[0].headline, source.is_private(split)
        same = sorted(
            (result for result in every if result.headline == headline), key=lambda result: (-result.score, result.name)
        )
        notes, comparison, advice = fairness_lines(same), None, None
        try:
            if not private:
                comparison = compare([result.name for result in same], as_matrix(same, headline)[1])
                place = {name: at for at, name in enumerate(comparison.names)}
                same.sort(key=lambda result: place[result.name])
                advice = advice_on(source.job, same)
        except (DatasetError, ValueError) as error:  # ValueError: their scores are for different numbers of queries
            notes.append(f"the scores by query cannot be read, so nothing is compared: {error}")
        if len(same) < len(every):
            notes.append(f"{len(every) - len(same)} results have another head measure and are not shown")
        boards_.append(
            Board(
                key=f"board{len(boards_)}",
                split=split,
                results=same,
                comparison=comparison,
                private=private,
                notes=notes,
                advice=advice,
            )
        )
    return boards_


def systems_chunks(source: ReportSource, every: Sequence[Board], *, linked: bool = True) -> Iterator[Chunk]:
    """Yield the files of the systems' pages by name; none if there are no results. `linked` says whether the report has
    a page for each query.
    """
    if not every:
        return
    tables = []
    for board in every:
        if not board.private and source.dataset is not None:
            board.notes.extend(_label_sets(source.dataset, board))
        if source.public:
            board = _public(board)
        labels, hits = ({}, {}) if board.private else (source.labels(board.split), source.rankings(board.split))
        tables.append(_table(board, source, labels, hits, linked=linked))
        if tables[-1]["by_query"]:
            yield from _query_chunks(source, board, labels, hits, linked=linked)
    yield f"{source.key}/systems", {"boards": tables}


def _public(board: Board) -> Board:
    """Return a board without its author's private facts: prices, and settings, which name files and servers."""
    results = [
        replace(
            result, settings={}, description={}, models=(), versions={}, costs=replace(result.costs, usd_per_1000=None)
        )
        for result in board.results
    ]
    return replace(board, results=results)


def _label_sets(dataset: BeirDataset, board: Board) -> list[str]:
    """Return a warning if the labels and the queries' sources alone rank the systems differently."""
    try:
        sets = label_sets_of(dataset, board.split, board.results)
    except (DatasetError, ValueError) as error:
        return [f"the labels cannot be compared with the sources alone: {error}"]
    return [] if sets is None or not sets.differ else [sets.sentence]


def _table(board: Board, source: ReportSource, labels: Labels, hits: Rankings, *, linked: bool) -> dict[str, Any]:
    """Return the figures of a split as in the result files."""
    results, comparison, key = board.results, board.comparison, source.key
    place = {result.name: at for at, result in enumerate(results)}
    by_query = not board.private and comparison is not None
    holes = _holes(board, source, labels, hits, linked=linked) if by_query and hits else None
    systems = []
    for at, result in enumerate(results):
        ranks = comparison.ranks[at] if comparison else None
        share = holes["shares"][at] if holes else None
        systems.append(
            {
                "name": result.name,
                "kind": result.kind,
                "family": result.family or result.kind,
                "made_labels": list(result.made_labels),
                "score": result.score,
                "ranks": ranks,
                "facts": facts_of(result, ranks, len(results), share),
                "measures": measures_table(results, result),
                "settings": dict(result.settings),
                "description": dict(result.description),
                "versions": dict(result.versions),
            }
        )
    attributes = [] if board.private else _attributes(results)
    table = {
        "key": board.key,
        "split": board.split,
        "headline": board.headline,
        "queries": results[0].queries,
        "passages": results[0].about.get("passages"),
        "digest": results[0].about.get("digest"),
        "alpha": comparison.alpha if comparison else None,
        "verdict": _verdict(board, source),
        "systems": systems,
        "views": system_views(key, f"Systems on {source.name}, {board.split}", results, comparison),
        "attributes": [
            {**row, "table": kinds_table(key, results, row["attribute"], row["values"])} for row in attributes
        ],
        "pairs": [
            [
                place[pair.first],
                place[pair.second],
                pair.difference,
                pair.fisher_holm,
                pair.queries_needed,
                pair.low,
                pair.high,
                pair.fisher,
                pair.alone,
            ]
            for pair in (comparison.pairs if comparison else ())
        ],
        "pairs_table": pairs_table(comparison) if comparison and comparison.pairs else None,
        "square": pairs_square(key, results, comparison) if comparison and comparison.pairs else None,
        "by_query": by_query,
        "private": board.private,
        "notes": list(board.notes),
        "time": score_against_time(results),
    }
    if holes is not None:
        table |= {"holes": holes, "never": _never_found(source, board, labels, hits, linked=linked)}
    return table


def _verdict(board: Board, source: ReportSource) -> str:
    """Return the verdict on these systems and the labels, as in `airgen run`."""
    if board.advice is None:
        return ""
    audit = None if source.manifest is None else source.manifest.audit
    earlier = None if source.job is None or source.public else last_checked(source.job.directory)
    return whole_verdict(board.advice.sentence, audit, earlier=earlier)


def _attributes(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the main measure's means by query attribute. `means` has a value for each system, in order."""
    groups_of = [{(group.attribute, group.value): group for group in result.groups} for result in results]
    known = list(dict.fromkeys(key for groups in groups_of for key in groups if key[0] not in _NUMBERS))
    rows_of: dict[str, list[dict[str, Any]]] = {}
    for attribute, value in known:
        groups = [by_value.get((attribute, value)) for by_value in groups_of]
        count = next(group.queries for group in groups if group)
        row = {"value": value, "queries": count, "means": [group.mean if group else None for group in groups]}
        rows_of.setdefault(attribute, []).append(row)
    return [{"attribute": name, "values": rows} for name, rows in rows_of.items() if not _names_queries(rows)]


def _names_queries(values: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an attribute, such as the address of a passage, has a value of its own for almost every query."""
    return len(values) > _MOST_SINGLE and 2 * sum(value["queries"] == 1 for value in values) > len(values)


def _holes(board: Board, source: ReportSource, labels: Labels, rankings: Rankings, *, linked: bool) -> dict[str, Any]:
    """Return the hits in the top ten without a label for their query: each system's share, and those that most systems
    have."""
    shares: list[float | None] = []
    systems_of: Counter[tuple[str, str]] = Counter()
    best: dict[tuple[str, str], int] = {}
    for result in board.results:
        count = 0
        for query, ranking in rankings.get(result.name, {}).items():
            for place, passage in enumerate(ranking.top, 1):
                if passage not in labels.get(query, ()):
                    count += 1
                    systems_of[query, passage] += 1
                    best[query, passage] = min(place, best.get((query, passage), place))
        shares.append(count / (TOP * len(labels)) if result.name in rankings and labels else None)
    first = heapq.nsmallest(_LISTED_HOLES, systems_of, key=lambda pair: (-systems_of[pair], best[pair], pair))
    columns = [
        query_column(source.key, "Query", lambda pair: pair[0], lambda pair: _text_of(source, pair[0]), linked=linked),
        Column("Passage", lambda pair: pair[1], left=True),
        Column("Systems", lambda pair: systems_of[pair], ","),
        Column("Best rank", lambda pair: best[pair], ","),
    ]
    return {
        "depth": TOP,
        "shares": shares,
        "pairs": len(systems_of),
        "table": holes_table(source.key, board.results, shares, TOP),
        "note": bias_note(board.results[0]),
        "first": page_table("Holes of most systems", Table(first, columns)) if first else None,
    }


def _text_of(source: ReportSource, query: str) -> str:
    """Return the text of a query, or its id if the text is not known."""
    return source.queries[query].text if query in source.queries else query


def _never_found(
    source: ReportSource, board: Board, labels: Labels, rankings: Rankings, *, linked: bool
) -> dict[str, Any]:
    """Return the relevant passages that no system ranks near the top, and the number of passages that are never
    retrieved.

    The table shows the best rank of a passage and the system that gives it.
    """
    rows: list[tuple[str, str, int, str]] = []
    relevant = 0
    for query, of_query in labels.items():
        for passage in (id_ for id_, label in of_query.items() if label > 0):
            relevant += 1
            ranks = {
                name: rank
                for name, by_query in rankings.items()
                if query in by_query and (rank := by_query[query].ranks.get(passage)) is not None
            }
            best = min(ranks, key=lambda name: (ranks[name], name), default="")
            if not best or ranks[best] > TOP:
                rows.append((query, passage, ranks.get(best, 0), best))
    rows.sort(key=lambda row: (row[2] == 0, row[2], row[0], row[1]), reverse=True)
    seen = {passage for by_query in rankings.values() for ranking in by_query.values() for passage in ranking.top}
    passages = board.results[0].about.get("passages")
    columns = [
        query_column(source.key, "Query", lambda row: row[0], lambda row: _text_of(source, row[0]), linked=linked),
        Column("Passage", lambda row: row[1], left=True),
        Column("Best rank", lambda row: row[2] or None, ",", missing="none"),
        Column("of", lambda row: row[3] or None, left=True),
    ]
    table = Table(rows[:_LISTED_MISSED_PASSAGES], columns)
    return {
        "depth": TOP,
        "relevant": relevant,
        "missed": len(rows),
        "unseen": passages - len(seen) if isinstance(passages, int) else None,
        "table": page_table("Relevant passages that are never retrieved", table, stack="always") if rows else None,
    }


def _query_chunks(
    source: ReportSource, board: Board, labels: Labels, rankings: Rankings, *, linked: bool
) -> Iterator[Chunk]:
    """Yield the queries of a board, and each system's scores and the ranks of the first relevant passage."""
    every = all_scores([result.paths.scores for result in board.results], board.headline)
    folder, ids = f"{source.key}/{board.key}", sorted(every[0])
    texts = {key: text for result in board.results for key, text in result.worst.items()}
    texts |= {key: query.text for key, query in source.queries.items()}
    relevant = {key: sum(label > 0 for label in labels.get(key, {}).values()) for key in ids}
    yield f"{folder}/queries", {"table": compared_table(ids, texts), "relevant": [relevant[key] for key in ids]}
    for at, (result, scores) in enumerate(zip(board.results, every, strict=True)):
        hits = rankings.get(result.name, {})
        first = {key: _first(labels.get(key, {}), hits[key]) if key in hits else 0 for key in ids}
        worst = heapq.nsmallest(
            _LISTED_WORST_QUERIES, ids, key=lambda key: (scores.get(key, 0.0), -(first[key] or math.inf), key)
        )
        yield (
            f"{folder}/system-{at:03}",
            {
                "name": result.name,
                "table": scores_table(ids, scores, first),
                "worst": page_table(
                    "Worst queries",
                    Table(
                        worst,
                        [
                            query_column(source.key, "Query", str, lambda key: texts.get(key) or key, linked=linked),
                            Column(board.headline, partial(lambda scores, key: scores.get(key, 0.0), scores), ".4f"),
                            Column(
                                "First relevant",
                                partial(lambda first, key: first[key] or None, first),
                                ",",
                                missing="not found",
                            ),
                            PageColumn("Relevant", relevant.__getitem__, ",", wide=True),
                        ],
                    ),
                ),
            },
        )


def _first(labels: Mapping[str, float], ranking: SystemRanks) -> int:
    """Return the rank of the first relevant passage, or 0 if none was retrieved."""
    return min((rank for passage, rank in ranking.ranks.items() if labels.get(passage, 0) > 0), default=0)


Drawings = dict[str, str]

# Okabe and Ito's colours, which colour-blind people can distinguish; dark pages use lighter versions of the same hues.
_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#a17400", "#2b9bd7", "#666666", "#1a1a1a")
_DARK = ("#56b4e9", "#ff8a4c", "#2fc79c", "#e6a3c9", "#e6b422", "#9fd8ff", "#b0b0b0", "#f2f2f2")
_PAGES = {
    "light": {"ink": "#1d1d20", "muted": "#5d6068", "grid": "#e7e7ea", "palette": _LIGHT},
    "dark": {"ink": "#ececf0", "muted": "#a3a6ad", "grid": "#33353b", "palette": _DARK},
}
_WIDTHS = {"wide": 640, "narrow": 270}  # pixels of the drawing without its axis
_SLOPE_WIDTHS = {"wide": 300, "narrow": 70}


def score_against_time(results: Sequence[Result]) -> Drawings:
    """Draw the main measure against milliseconds per query, best result first, omitting systems without a time.

    Systems on the Pareto front are in bold; the others are labelled with their names, or their positions in `results`,
    if there is room. Empty if fewer than two systems have a time.
    """
    timed = [(at, result) for at, result in enumerate(results, 1) if result.costs.batch_ms is not None]
    if len(timed) < 2:
        return {}
    from airgen.evaluation.charts import label

    rows, fastest = [], math.inf
    for place, result in timed:  # the best first, so a system is highlighted if it is faster than all systems before it
        time = max(result.costs.batch_ms or 0.0, 1e-6)
        low, high = result.intervals[result.headline]
        rows.append(
            {
                "name": label(result.name) + result.mark,
                "place": str(place),
                "time": time,
                "score": result.score,
                "low": low,
                "high": high,
                "front": time < fastest,
            }
        )
        fastest = min(fastest, time)
    return _drawings(_WIDTHS, lambda page, width: _scatter(rows, results[0].headline, page, width))


def rank_slopes(gains: Sequence[RankGain], title: str) -> Drawings:
    """Draw the ranks of systems by human labels on the left and by generated labels on the right. Empty for fewer than
    two systems.
    """
    if len(gains) < 2:
        return {}
    from airgen.studies.agree.report import ranks_chart

    return _drawings(
        _SLOPE_WIDTHS, lambda page, width: ranks_chart(gains, title=title, palette=page["palette"], width=width)
    )


def _drawings(widths: dict[str, int], draw: "Callable[[dict[str, Any], int], AnyChart]") -> Drawings:
    """Return the drawings Return the drawings `light-wide`, `light-narrow`, `dark-wide` and `dark-narrow`."""
    from airgen.evaluation.charts import svg_text

    drawings = {}
    for name, page in _PAGES.items():
        for size, width in widths.items():
            specification = draw(page, width).to_dict()
            config = specification.setdefault("config", {})
            config["background"] = "transparent"
            config["text"] = {"color": page["ink"]}
            axis = {
                "labelColor": page["muted"],
                "titleColor": page["muted"],
                "gridColor": page["grid"],
                "domainColor": page["grid"],
                "tickColor": page["grid"],
            }
            config["axis"] = {**config.get("axis", {}), **axis}
            config["legend"] = {**config.get("legend", {}), "labelColor": page["ink"]}
            config["title"] = {"color": page["ink"]}
            if size == "narrow":
                config["legend"]["columns"] = 2
            drawings[f"{name}-{size}"] = svg_text(specification)
    return drawings


def _scatter(rows: list[dict[str, Any]], headline: str, page: dict[str, Any], width: int) -> "AnyChart":
    import altair as alt

    from airgen.evaluation.charts import titled

    times, ends = [row["time"] for row in rows], [row[end] for row in rows for end in ("low", "high")]
    # Names are to the left of their points, above the line of the best systems, where there is always room.
    limits = min(times) / 2.5, max(times) * 1.6
    height = round(width * 0.25 + 200)
    rows = _named(rows, limits, scores=(min(ends), max(ends)), width=width, height=height)
    x = alt.X(
        "time:Q",
        scale=alt.Scale(type="log", domain=limits, nice=False),
        axis=alt.Axis(title="milliseconds a query", format="~g", tickCount=5, grid=False),
    )
    ticks = alt.Axis(title=headline, tickCount=6, labelExpr="datum.value > 1 ? '' : datum.label")  # no score is above 1
    y = alt.Y("score:Q", scale=alt.Scale(zero=False, nice=True, padding=10), axis=ticks)
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=x)
    front, others = base.transform_filter("datum.front"), base.transform_filter("!datum.front")
    accent, muted = page["palette"][0], page["muted"]
    layers = [
        base.mark_rule(color=muted, opacity=0.3).encode(y=alt.Y("low:Q", title=headline), y2="high:Q"),
        front.mark_line(color=accent, opacity=0.45, strokeDash=[4, 3], interpolate="step-after").encode(y=y),
        others.mark_circle(size=36, color=muted, opacity=0.9).encode(y=y),
        front.mark_circle(size=64, color=accent, opacity=1).encode(y=y),
        others.mark_text(align="left", dx=6, fontSize=10, color=muted).encode(y=y, text="text:N"),
        front.mark_text(align="right", dx=-8, dy=-7, fontSize=11, fontWeight=600).encode(y=y, text="text:N"),
    ]
    return titled(alt.layer(*layers).properties(width=width, height=height), "")


def _named(
    rows: list[dict[str, Any]], times: tuple[float, float], scores: tuple[float, float], width: int, height: int
) -> list[dict[str, Any]]:
    """Return the rows with a label for each point: its name, its position in the table if the name does not fit, or
    nothing if even that would cover another label or point.
    """
    span = (scores[1] - scores[0]) or 1.0
    places = [
        (
            width * math.log(row["time"] / times[0]) / math.log(times[1] / times[0]),
            height * (scores[1] - row["score"]) / span,
        )
        for row in rows
    ]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    named = []
    for row, (x, y) in sorted(zip(rows, places, strict=True), key=lambda point: not point[0]["front"]):
        for text in [row["name"]] if row["front"] else [row["name"], row["place"], ""]:
            wide = 6.6 * len(text)
            box = (x - 8 - wide, y - 14, x - 8, y - 1) if row["front"] else (x + 6, y - 6, x + 6 + wide, y + 6)
            free = not any(box[0] < x2 and x1 < box[2] and box[1] < y2 and y1 < box[3] for x1, y1, x2, y2 in taken)
            if free and (row["front"] or box[2] <= width):
                break
        else:
            text = ""
        if text:
            taken.append(box)
        named.append({**row, "text": text})
    return named
