"""Text from outside cannot break a terminal, a table or a page."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.safety.escaping import (
    csv_text,
    distinct_names,
    html_text,
    markdown_table,
    md,
    one_line,
    terminal_lines,
    terminal_table,
    terminal_text,
)

EVIL = "<script>alert(1)</script>|`x`\n\x1b[31m\u202e*b*"


def test_terminal_text_has_no_control_characters() -> None:
    assert terminal_text("a\x1b[31mb\nc\u202ed") == "a [31mb c d"
    assert terminal_lines("a\x1b\tb\nc\r") == "a \tb\nc "
    assert one_line("a\x1b[31mb\n\n c") == "a [31mb c"
    assert one_line("x" * 50, 10) == "x" * 9 + "…"
    assert one_line("می\u200cخواهم") == "می\u200cخواهم"  # Persian needs the zero-width non-joiner
    assert terminal_table([["name", "n"], ["a\x1b", "10"]]) == "name   n\na     10"


def test_a_table_folds_its_longest_texts_where_the_terminal_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["finding", "n", "what it says"], ["leaks", "3", "three queries of dev stand in test, too"]]
    wide = terminal_table(rows, left=(0, 2))
    assert len(wide.splitlines()) == 2
    monkeypatch.setenv("COLUMNS", "40")
    assert terminal_table(rows, left=(0, 2)).splitlines() == [
        "finding  n  what it says               ".rstrip().ljust(40),
        "leaks    3  three queries of dev stand ".rstrip().ljust(40),
        "            in test, too               ".rstrip().ljust(40),
    ]
    monkeypatch.setenv("COLUMNS", "25")
    assert "leaks    3  three queries  " in terminal_table(rows, left=(0, 2))  # no text is narrower than this


def test_text_in_a_markdown_table_stays_text() -> None:
    cell = md(EVIL)
    assert "<" not in cell and "\n" not in cell and "\x1b" not in cell and "\u202e" not in cell
    assert cell.count("|") == cell.count("\\|")
    assert markdown_table(["a", "b"], [[cell, "1"]]).count("\n") == 3
    assert markdown_table(["", "b"], [["x", "1"]], [True, False]) == "| | b |\n| ---: | --- |\n| x | 1 |\n"


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("@a", "'@a"),
        ("\tx", "'\tx"),
        ("-5", "-5"),
        ("-5-3", "'-5-3"),
        (-0.5, "-0.5"),
        ("a=b", "a=b"),
        (" =1", "' =1"),
        ("\u200b\ufeff+1+1", "'\u200b\ufeff+1+1"),
        ("\uff1d1", "'\uff1d1"),
        ("a\r=1", "a\r=1"),
        (" a", " a"),
    ],
)
def test_a_formula_in_a_csv_becomes_text_and_a_number_stays_one(cell: object, written: str) -> None:
    assert list(csv.reader(io.StringIO(csv_text(["x"], [[cell]]), newline=""))) == [["x"], [written]]
    assert next(csv.reader(io.StringIO(csv_text([str(cell)], []), newline=""))) == [written]


@given(st.lists(st.sampled_from(["a", "b", "a (2)", "a (3)"])))
def test_distinct_names_are_as_many_as_the_names(names: list[str]) -> None:
    found = distinct_names(names)
    assert len(set(found)) == len(names)


def test_html_text_is_safe_inside_and_outside_of_attributes() -> None:
    assert html_text('<a href="\'">\n&', 12) == "&lt;a href=&quot;&#x27;&quot;…"
