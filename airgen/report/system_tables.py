"""The tables of systems in a report: the columns of `airgen evaluate`, with additions for pages."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from airgen.display.study import Column, P, Table, shown, span
from airgen.evaluation.result import Costs, Result
from airgen.evaluation.result_tables import PAIRS, cost_columns
from airgen.evaluation.significance import Comparison
from airgen.report.page_table import Link, PageColumn, Picture, page_table, shades

Query = Mapping[str, str]

MINUS = "\N{MINUS SIGN}"


def split_query(split: str) -> Query:
    """Return the part of a URL for the split, which is empty for `test`."""
    return {} if split == "test" else {"split": split}


def _interval(result: Result) -> str:
    return span(*result.intervals[result.headline], ".3f")


def _milliseconds(costs: Costs) -> str:
    return shown(costs.batch_ms, ",.2f")


def dollars(amount: float | None) -> str:
    """Format an amount of US dollars in cents, or with four digits if it is less than ten cents."""
    return "–" if amount is None else f"${amount:,.4f}" if 0 < amount < 0.1 else f"${amount:,.2f}"


def system_columns(key: str, results: Sequence[Result], *, linked: bool = True) -> list[Column]:
    """Return the columns for the rank and the name of each system, which links to its page."""
    place = {result.name: at for at, result in enumerate(results, 1)}
    link = Link((key, "system"), lambda result: result.name, split_query(results[0].split)) if linked else None
    return [
        PageColumn("#", lambda result: place[result.name], role="place"),
        PageColumn(
            "System",
            lambda result: result.name + result.mark,
            left=True,
            role="name",
            link=link,
            remark=lambda result: (
                f"helped to make the labels: {', '.join(result.made_labels)}" if result.made_labels else ""
            ),
        ),
    ]


def system_views(key: str, label: str, results: Sequence[Result], comparison: Comparison | None) -> dict[str, Any]:
    """Return the tables of the systems page: ranking, measures, documents, costs and notes."""
    first = system_columns(key, results)
    head = results[0].headline
    ends = [end for result in results for end in (result.score, *result.intervals[head])]
    priced = any(result.costs.usd_per_1000 is not None for result in results)
    score = PageColumn(head, lambda result: result.score, ".4f", best=True, below=_interval)
    time = PageColumn(
        "ms/query",
        lambda result: result.costs.batch_ms,
        ",.2f",
        hint="Milliseconds per query in a batch of all queries",
        below=(lambda result: f"{dollars(result.costs.usd_per_1000)} per 1,000") if priced else None,
    )
    price = PageColumn(
        "$ per 1,000",
        lambda result: result.costs.usd_per_1000,
        ",.4f",
        wide=True,
        hint="US dollars per 1,000 queries, at the prices in the systems file",
    )
    ranking: list[Column] = [*first]
    if len({result.family or result.kind for result in results}) > 1:
        ranking.append(PageColumn("Family", lambda result: result.family or result.kind, left=True, wide=True))
    if comparison is not None:
        ranks = dict(zip(comparison.names, comparison.ranks, strict=True))
        ranking.append(
            PageColumn(
                "Rank",
                lambda result: ranks[result.name],
                hint="The 95% interval of the rank",
                sort=lambda result: ranks[result.name][0] * 1000 + ranks[result.name][1],
            )
        )
        if len(results) > 2:
            picture = Picture("ranks", lambda result: list(ranks[result.name]), len(results))
            ranking.append(PageColumn("", lambda result: "", wide=True, picture=picture))
    interval = Picture("interval", lambda result: [result.score, *result.intervals[head]], [min(ends), max(ends)])
    ranking += [
        score,
        PageColumn("95 %", lambda result: "", wide=True, picture=interval),
        PageColumn("", _interval, left=True, wide=True, role="quiet"),
        time,
        *([price] if priced else []),
    ]
    views = {
        "ranking": page_table(label, Table(results, ranking), sort="#", stack=False),
        "measures": page_table(label, Table(results, [*first, *measure_columns(results)]), sort="#"),
        "costs": page_table(label, Table(results, [*first, score, *cost_columns(results)[1:]]), sort="#"),
        "notes": page_table(label, Table(results, [*first, score, *_NOTES]), sort="#"),
    }
    if any(result.by_document for result in results):
        views["documents"] = page_table(label, Table(results, [*first, *_document_columns(results)]), sort="#")
    return views


def _trusted(measure: str) -> bool:
    """Return whether a measure has a best value, unlike Hole and Judged, which say how reliable the others are."""
    return not measure.startswith(("Hole", "Judged"))


def measures_of(results: Sequence[Result]) -> list[str]:
    """Return the measures of a board, main measure first."""
    first = results[0]
    return [first.headline, *(name for name in first.means if name != first.headline)]


def measure_columns(results: Sequence[Result]) -> list[Column]:
    """Return a column for each measure, with the best value in bold."""
    return [
        Column(name, partial(lambda name, result: result.means.get(name), name), ".4f", best=_trusted(name))
        for name in measures_of(results)
    ]


def _document_columns(results: Sequence[Result]) -> list[Column]:
    def mean(name: str, result: Result) -> float | None:
        return result.by_document[name][0] if name in result.by_document else None

    hint = "Scored by document instead of by chunk"
    return [PageColumn(name, partial(mean, name), ".4f", hint=hint) for name in measures_of(results)]


_NOTES = (
    Column("Queries without a result", lambda result: result.missing, ","),
    Column("Queries without labels", lambda result: result.unjudged, ","),
    Column("Kind", lambda result: result.kind, left=True),
    Column(
        "Counted",
        lambda result: (
            ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in result.notes.items() if count) or None
        ),
        left=True,
    ),
)


def measures_table(results: Sequence[Result], result: Result) -> dict[str, Any]:
    """Return all measures of a system, with its rank among all systems."""

    def place(name: str) -> int | None:
        mean = result.means.get(name)
        if mean is None or not _trusted(name):
            return None
        return 1 + sum((other.means.get(name) or 0.0) > mean for other in results)

    names = [name for name in measures_of(results) if name in result.means]
    shown_columns = [
        Column("Measure", str),
        Column("Mean", lambda name: result.means[name], ".4f"),
        Column("95 %", lambda name: result.intervals.get(name), ".3f"),
        Column("Place", place),
    ]
    return page_table("Measures", Table(names, shown_columns))


def facts_of(result: Result, ranks: tuple[int, int] | None, systems: int, holes: float | None) -> list[list[str]]:
    """Return the main facts on a system's page: name, value and a note."""
    facts = [[result.headline, f"{result.score:.4f}", _interval(result)]]
    if ranks is not None:
        facts.append(["rank", span(*ranks), f"of {systems}"])
    facts.append(["ms a query", _milliseconds(result.costs), ""])
    if result.costs.usd_per_1000 is not None:
        facts.append(["for 1,000 queries", dollars(result.costs.usd_per_1000), ""])
    facts.append(["queries without a result", f"{result.missing:,}", ""])
    facts += [["model", model.model, model.words] for model in result.models]
    if holes is not None:
        facts.append(["unjudged in the top ten", f"{holes:.1%}", ""])
    return facts


def kinds_table(key: str, results: Sequence[Result], attribute: str, values: Sequence[Mapping[str, Any]]) -> Any:
    """Return the main measure's means by an attribute of the queries, with a column for each value."""
    place = {result.name: at for at, result in enumerate(results)}
    shown_columns: list[Column] = []
    for value in values:
        means, strength = value["means"], shades(value["means"])
        shown_columns.append(
            PageColumn(
                f"{value['value']} ({value['queries']:,})",
                partial(lambda means, result: means[place[result.name]], means),
                ".4f",
                hint=f"{value['queries']:,} queries",
                picture=Picture("shade", partial(lambda strength, result: strength[place[result.name]], strength)),
            )
        )
    table = Table(results, [*system_columns(key, results), *shown_columns])
    return page_table(f"{results[0].headline} by {attribute}", table, sort="#")


def holes_table(key: str, results: Sequence[Result], shares: Sequence[float | None], depth: int) -> dict[str, Any]:
    """Return how many hits of each system are unjudged, where it ranks negatives, and its biases."""
    share = dict(zip((result.name for result in results), shares, strict=True))
    most = max((value for value in shares if value), default=1.0)

    def above(result: Result) -> float | None:
        counts = result.negatives_above
        return counts["share"] if counts.get("queries") else None

    def negatives(result: Result) -> float | str | None:
        ranks = result.negative_ranks
        return ranks["median"] if "median" in ranks else "not found" if ranks.get("pairs") else None

    def first_ten(result: Result) -> float | None:
        return result.negative_ranks.get("first_ten") if result.negative_ranks.get("pairs") else None

    shown_columns: list[Column] = [
        Column(f"Unjudged in the top {depth}", lambda result: share[result.name], ".1%"),
        PageColumn(
            "",
            lambda result: "",
            wide=True,
            role="bars",
            picture=Picture("bar", lambda result: (share[result.name] or 0.0) / most),
        ),
        PageColumn(
            "Queries with a negative above",
            above,
            ".0%",
            hint="Share of queries with a passage judged not relevant above the best relevant passage",
        ),
        PageColumn(
            "Rank of the negatives",
            negatives,
            "g",
            hint="Median rank of the passages judged not relevant. Negatives that no system ranks near the top do not "
            "separate systems",
        ),
        PageColumn(
            "Negatives in the top ten",
            first_ten,
            ".0%",
            hint="Share of the passages judged not relevant that are among the top ten",
        ),
        Column("Characters of the top ten", lambda result: result.biases.get("top_characters"), ",.0f"),
        PageColumn(
            "Word overlap",
            lambda result: result.biases.get("top_overlap"),
            ".2f",
            hint="Share of the query's words that occur in the top ten passages",
        ),
    ]
    table = Table(results, [*system_columns(key, results, linked=False), *shown_columns])
    return page_table("Holes and biases", table, sort="#")


def bias_note(result: Result) -> str:
    """Return the lengths and overlaps for comparison with those of the systems, or "" if unknown."""
    biases = result.biases
    if "relevant_characters" not in biases:
        return ""
    return (
        f"For comparison: relevant passages have {biases['relevant_characters']:,.0f} characters and "
        f"{biases['relevant_overlap']:.2f} of the query's words; passages of the corpus have "
        f"{biases['corpus_characters']:,.0f} characters."
    )


def pairs_table(comparison: Comparison) -> dict[str, Any]:
    """Return every pair of systems as reported by `airgen evaluate`."""
    return page_table("Pairs of systems", Table(comparison.pairs, PAIRS), stack=False)


def pairs_square(key: str, results: Sequence[Result], comparison: Comparison) -> dict[str, Any]:
    """Return how each system stands to each other: a sign where the pair differs significantly, a link to the pair."""
    difference: dict[tuple[str, str], float] = {}
    p_values: dict[tuple[str, str], float] = {}
    apart: set[tuple[str, str]] = set()
    for pair in comparison.pairs:
        for names, direction in (((pair.first, pair.second), 1), ((pair.second, pair.first), -1)):
            difference[names], p_values[names] = direction * pair.difference, pair.fisher_holm
            apart |= {names} if pair.verdict != "cannot tell" else set()
    most = max((abs(pair.difference) for pair in comparison.pairs), default=0.0) or 1.0

    def is_apart(names: tuple[str, str]) -> bool:
        return names in apart

    def sign(other: str, result: Result) -> str:
        names = (result.name, other)
        return "" if not is_apart(names) else MINUS if difference[names] < 0 else "+"

    def strength(other: str, result: Result) -> float | None:
        names = (result.name, other)
        if names not in difference:
            return None
        return round(difference[names] / most, 4) if is_apart(names) else 0.0

    def remark(other: str, result: Result) -> str:
        names = (result.name, other)
        if names not in difference:
            return ""
        better = "is worse than" if difference[names] < 0 else "is better than"
        p = shown(p_values[names], P)
        return f"{result.name} {better} {other} by {abs(difference[names]):.4f}, p {p}"

    def address(other: str, result: Result) -> tuple[str, str] | None:
        return (result.name, other) if (result.name, other) in difference else None

    place = {result.name: at for at, result in enumerate(results, 1)}
    columns: list[Column] = [
        PageColumn("#", lambda result: place[result.name], role="place"),
        PageColumn("System", lambda result: result.name, left=True, role="name"),
    ]
    columns += [
        PageColumn(
            str(place[result.name]),
            partial(sign, result.name),
            left=True,
            hint=result.name,
            link=Link((key, "compare"), partial(address, result.name), split_query(result.split)),
            picture=Picture("pair", partial(strength, result.name)),
            remark=partial(remark, result.name),
        )
        for result in results
    ]
    return page_table("Every two systems", Table(results, columns), square=True, stack=False)


MILLIONTHS = 1e6
"""The factor that makes scores by query integers in a report: they are compact, and six digits suffice."""
_NOWHERE = 10**9  # the sort key of a query without a relevant hit


def scores_table(ids: Sequence[str], scores: Mapping[str, float], first: Mapping[str, int]) -> dict[str, Any]:
    """Return what one system did with each query, of which `compared_table` takes its columns.

    Args:
        ids: The queries, in the order of the table.
        scores: Scores by query.
        first: Rank of the first relevant passage by query, 0 without one.
    """
    columns = [
        PageColumn(
            "Score",
            lambda id_: scores.get(id_, 0.0),
            ".3f",
            role="score",
            sort=lambda id_: round(scores.get(id_, 0.0) * MILLIONTHS),
        ),
        PageColumn(
            "First relevant",
            lambda id_: first[id_] or None,
            ",",
            role="score",
            wide=True,
            sort=lambda id_: first[id_] or _NOWHERE,
        ),
    ]
    return page_table("Scores by query", Table(ids, columns))


def compared_table(ids: Sequence[str], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the table of any two systems, A and B, query by query.

    There are too many pairs for a table each, so a page joins the queries, which are here, with the columns of the two
    systems' own tables (`scores_table`): `joined` says which, in their order. The difference is the only cell that is
    made there.
    """
    query = PageColumn(
        "Query", lambda id_: texts.get(id_) or id_, left=True, role="main", link=Link((), lambda id_: id_)
    )
    rank = "The rank of the first relevant passage in"
    joined: list[dict[str, Any]] = [
        {"title": "A", "of": "a", "column": 0},
        {"title": "B", "of": "b", "column": 0},
        {"title": f"A {MINUS} B", "less": 0, "unit": MILLIONTHS, "digits": 3, "role": "difference"},
        {"title": "Rank in A", "of": "a", "column": 1, "hint": f"{rank} A"},
        {"title": "Rank in B", "of": "b", "column": 1, "hint": f"{rank} B"},
    ]
    return {**page_table("Queries by difference", Table(ids, [query]), opens=True), "joined": joined}


def query_column(
    key: str, title: str, query_id: Callable[[Any], str], text: Callable[[Any], str], *, linked: bool
) -> Column:
    """Return the column with a query's text, which links to the query's page if the report has one."""
    return PageColumn(title, text, left=True, role="main", link=Link((key, "query"), query_id) if linked else None)
