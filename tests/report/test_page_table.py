"""A table of a page has the cells of the same table's Markdown and CSV, and sorts by what they were made of."""

import csv
import io
import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from report_reader import cells, column

from airgen.report.overview_tables import costs_table, splits_table, together_table
from airgen.report.page_table import Link, PageColumn, Picture, page_table, shades
from airgen.study import Column, Table

NUMBERS = st.one_of(st.none(), st.integers(0, 10**9), st.floats(-1e6, 1e6), st.just(float("nan")))


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs", "Cc"])), NUMBERS)))
def test_the_cells_are_those_of_the_csv(rows: list[tuple[str, float | None]]) -> None:
    table = Table(rows, [Column("name", lambda row: row[0]), Column("score", lambda row: row[1], ",.3f", best=False)])
    value = page_table("Scores", table)
    shown = cells(value)
    read = list(csv.reader(io.StringIO(table.csv())))[1:]
    assert [row[1] for row in shown] == [row[1].lstrip("'") for row in read]
    assert [row[0] for row in shown] == [row[0] for row in rows]
    order = column(value, "score")["sort"]
    assert len(order) == len(rows) and all(number is None or number == number for number in order)
    assert column(value, "score")["number"] and "number" not in column(value, "name")


def test_what_a_page_needs_besides_the_cells() -> None:
    rows = [("a", 0.5, (1, 2)), ("b", None, (1, 3)), ("c", 0.75, (2, 3))]
    link = Link(("d0", "system"), lambda row: None if row[0] == "b" else row[0], {"split": "dev"})
    value = page_table("Systems", Table(rows, [
        PageColumn("System", lambda row: row[0], link=link),
        PageColumn("Score", lambda row: row[1], ".2f", best=True, hint="A mean", below=lambda row: f"of {row[0]}"),
        PageColumn("Rank", lambda row: row[2], sort=lambda row: row[2][0] * 1000 + row[2][1]),
        PageColumn("", lambda row: "", picture=Picture("ranks", lambda row: list(row[2]), 3), wide=True),
    ]), sort="-Score")  # fmt: skip
    assert cells(value) == [("a", "0.50", "1–2", ""), ("b", "–", "1–3", ""), ("c", "0.75", "2–3", "")]
    system, score, rank, picture = value["columns"]
    assert (system["to"], system["ids"], system["query"]) == (["d0", "system"], ["a", None, "c"], {"split": "dev"})
    assert (score["bold"], score["sort"], score["hint"]) == ([2], [0.5, None, 0.75], "A mean")
    assert score["below"] == ["of a", "of b", "of c"] and rank["sort"] == [1002, 1003, 2003]
    assert picture["picture"] == {"kind": "ranks", "values": [[1, 2], [1, 3], [2, 3]], "axis": 3} and picture["wide"]
    assert value["sort"] == "-1"


def test_tables_of_the_first_page_by_hand() -> None:
    splits = {"dev": {"queries": 4, "positives": 6, "negatives": 2}, "test": {"queries": 9, "positives": None}}
    made = splits_table(splits, made=True)
    assert made is not None and splits_table({}, made=True) is None
    assert cells(made) == [("dev", "4", "6", "2", "1.5"), ("test", "9", "private", "private", "–")]
    stage: dict[str, Any] = {"stage": "hard_negative", "model": "m", "calls": 1200, "failed": 0, "prompt_tokens": 30}
    stage |= {"cached_tokens": 0, "completion_tokens": 10, "usd": 0.05}
    costs = costs_table([stage, {**stage, "stage": "query", "failed": 3, "usd": 2.0}])
    assert costs is not None
    assert [row[:4] for row in cells(costs)] == [
        ("hard negative", "m", "1,200", "–"), ("query", "m", "1,200", "3"), ("all", "–", "2,400", "3"),
    ]  # fmt: skip
    assert column(costs, "Cost")["texts"] == ["$0.0500", "$2.00", "$2.05"]
    assert column(costs, "")["picture"]["values"] == [1.0, 1.0, None]
    systems = [{"name": "a", "family": "x", "scores": [0.5, None], "mean": None},
               {"name": "b", "family": "y", "scores": [0.25, 0.5], "mean": 0.375}]  # fmt: skip
    boards = [{"name": "one", "split": "test", "headline": "nDCG@10", "queries": 1200},
              {"name": "two", "split": "dev", "headline": "nDCG@10", "queries": 3}]  # fmt: skip
    side = together_table(boards, systems)
    assert cells(side)[0] == ("a", "x", "–", "0.5000", "–")
    assert column(side, "one")["hint"] == "nDCG@10, 1,200 queries" and side["sort"] == "-2"
    assert column(side, "two (dev)")["picture"]["values"] == [None, 1.0]


def test_shades_run_from_the_lowest_to_the_highest() -> None:
    assert shades([0.25, None, 0.75, 0.5]) == [0.0, None, 1.0, 0.5]
    assert shades([0.3]) == [1.0] and shades([]) == []


def test_a_number_without_end_and_markup_are_plain_values() -> None:
    cells = ["</script><script>alert(1)</script>", "javascript:alert(1)"]
    table = Table(
        [(cells[0], math.inf), (cells[1], 1.0)], [Column("</td>", lambda row: row[0]), Column("n", lambda row: row[1])]
    )
    value = page_table("</script>", table)
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    assert value["columns"][0]["texts"] == cells and value["columns"][1]["sort"] == [None, 1.0]
