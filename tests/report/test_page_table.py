"""A table of a page has the cells of the same table's Markdown and CSV, and sorts by what they were made of."""

import csv
import io
import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from report_reader import cells, column

from airgen.display.study import Column, Table
from airgen.report.overview_tables import costs_table, splits_table, together_table
from airgen.report.page_table import Filter, Link, PageColumn, Picture, natural, page_table, shades
from airgen.report.query_tables import asked_of, queries_table, systems_on_query, tags_of

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
    systems = [{"name": "a", "family": "x", "scores": [0.5, None], "means": {"nDCG@10": None}},
               {"name": "b", "family": "y", "scores": [0.25, 0.5], "means": {"nDCG@10": 0.375}}]  # fmt: skip
    boards = [{"name": "one", "split": "test", "headline": "nDCG@10", "queries": 1200},
              {"name": "two", "split": "dev", "headline": "nDCG@10", "queries": 3}]  # fmt: skip
    side = together_table(boards, systems)
    assert cells(side)[0] == ("a", "x", "–", "0.5000", "–")
    assert column(side, "one")["hint"] == "nDCG@10, 1,200 queries" and side["sort"] == "-2"
    assert column(side, "two (dev)")["picture"]["values"] == [None, 1.0]
    # Recall@10 of a Long-Doc dataset is not averaged with nDCG@10.
    boards.append({"name": "book", "split": "test", "headline": "Recall@10", "queries": 2})
    both = [{**systems[1], "scores": [0.25, 0.5, 0.75], "means": {"nDCG@10": 0.375, "Recall@10": 0.75}}]
    assert cells(together_table(boards, both)) == [("b", "y", "0.3750", "0.2500", "0.5000", "0.7500")]


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


def test_choices_are_in_a_persons_order_and_say_what_each_row_has() -> None:
    rows = ["10 km", "2 km", "", "beta", "Alpha", "2 km"]
    filters = [
        Filter("where", "Where", lambda row: row or None, str.upper, ["beta"]),
        Filter("one", "One value", lambda row: "x"),
        Filter("why", "Why", lambda row: "late" if row == "beta" else "", fewest=1),
        Filter("many", "Many", lambda row: None),
    ]
    table = Table([f"{n}" for n in range(70)], [Column("n", str)])
    assert page_table("Rows", table, filters=[Filter("n", "n", str)])["filters"] == []  # seventy are no choice
    value = page_table("Rows", Table(rows, [Column("row", str)]), filters=filters)
    where, why = value["filters"]
    assert where["choices"] == [["beta", "BETA"], ["2 km", "2 KM"], ["10 km", "10 KM"], ["Alpha", "ALPHA"]]
    assert where["at"] == [2, 1, -1, 0, 3, 1] and why["at"] == [-1, -1, -1, 0, -1, -1]


@given(st.lists(st.text(max_size=6), max_size=6))
def test_any_texts_can_be_put_into_order(texts: list[str]) -> None:
    backwards = list(reversed(texts))
    assert sorted(texts, key=natural) == sorted(backwards, key=natural)


def test_the_list_of_queries_by_hand() -> None:
    base = {"split": "", "outcome": "kept", "why": "", "positives": 2, "negatives": 0, "score": None}
    rows: list[dict[str, Any]] = [
        {**base, "id": "q1", "text": "a", "split": "test", "score": 0.4, "attributes": {"length": "lt5", "year": 2024}},
        {**base, "id": "q2", "text": "", "outcome": "dropped", "why": "control: too vague", "positives": None,
         "attributes": {"length": "ge20"}},
        {**base, "id": "q3", "text": "c", "positives": 9, "score": 1.0, "attributes": {"length": "lt5", "year": 900}},
    ]  # fmt: skip
    table = queries_table("d0", rows)
    assert [one["title"] for one in table["columns"]] == ["Query", "Words", "Split", "Pos.", "Neg.", "Score", "Outcome"]
    assert cells(table) == [
        ("a", "under 5", "test", "2", "0", "0.400", "kept"),
        ("no query: q2", "20 or more", "–", "–", "0", "–", "dropped: too vague"),
        ("c", "under 5", "–", "9", "0", "1.000", "kept"),
    ]
    assert column(table, "Outcome")["picture"]["values"] == [None, ["dropped", "bad", "too vague"], None]
    assert column(table, "Query")["ids"] == ["q1", "q2", "q3"] and table["opens"]
    filters = {one["name"]: ([value for value, _ in one["choices"]], one["at"]) for one in table["filters"]}
    assert filters == {
        "outcome": (["kept", "dropped"], [0, 1, 0]),
        "why": (["control: too vague"], [-1, 0, -1]),
        "length": (["lt5", "ge20"], [0, 1, 0]),
        "year": (["900", "2024"], [1, -1, 0]),
        "difficulty": (["medium", "easy"], [0, -1, 1]),
        "positives": (["2", "6 or more"], [0, -1, 1]),
    }
    assert tags_of({**rows[0], "attributes": {"length": "lt5", "user_group": "new", "year": 2024}}) == [
        ("kept", "good", "Outcome"), ("test", "", "Split"), ("under 5 words", "", "Words"), ("new", "", "user group"),
    ]  # fmt: skip
    assert asked_of({"type": "claim", "length": "10to20", "style": "formal"}) == "claim, 10 to 20 words"


def test_the_systems_on_one_query_by_hand() -> None:
    labels = [
        {"id": "p1", "label": 1},
        {"id": "p2", "label": 0},
        {"id": "p3", "label": None, "decision": "add_positive"},
    ]
    ranked = [
        {"name": "a", "score": 0.75, "top": ["p2", "p1", "x"], "ranks": {"p1": 2, "p2": 1, "p3": 1200}},
        {"name": "b", "score": None, "top": [], "ranks": {"p2": 7}},
    ]
    table = systems_on_query(ranked, labels, "nDCG@10")
    assert table is not None and systems_on_query([], labels, "Score") is None
    assert cells(table) == [("a", "0.750", "2", "×●·"), ("b", "–", "–", "")]
    assert column(table, "First ten")["picture"]["values"] == [None, None]  # the page has the titles
