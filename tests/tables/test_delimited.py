"""The one parser of delimited text, against Python's own writer of CSV, and in the forms that people have."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airgen.tables import DelimitedTable

KNOWN = {"id", "query", "title", "text", "count", "searches", "hits", "system"}
CELL = st.text(st.characters(exclude_characters="\r\x00", codec="utf-8"), max_size=12)


def table(text: str, **more: object) -> DelimitedTable:
    return DelimitedTable(io.StringIO(text, newline=None), known=KNOWN, **more)  # type: ignore[arg-type]


def rows(text: str, **more: object) -> list[dict[str, str]]:
    return [dict(row.cells) for row in table(text, **more)]


@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=8), st.sampled_from(",;\t|"), st.booleans())
def test_what_a_writer_of_csv_wrote_is_read_back(cells: list[tuple[str, ...]], mark: str, every: bool) -> None:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=mark, quoting=csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL)
    writer.writerow(["id", "query", "text"])
    writer.writerows(cells)
    if any("\\" in cell for row in cells for cell in row):
        return  # a backslash before a mark escapes it, as some programs write
    # Of text with tabs, cells keep marks that they do not need, unless all have them.
    wanted = [dict(zip(["id", "query", "text"], row, strict=True)) for row in cells if any(one.strip() for one in row)]
    found = rows(out.getvalue(), delimiter=mark)
    if mark != "\t" or not any('"' in cell for row in cells for cell in row):
        assert found == wanted


@given(st.lists(st.text(st.characters(exclude_characters="\t\r\n", codec="utf-8"), min_size=1), min_size=1))
@example(['"', '"'])
@example(['"how to', 'quote"', "a"])
def test_one_line_of_a_log_with_tabs_is_one_row(queries: list[str]) -> None:
    """Whatever quotation marks stand in it: one that is never closed cannot swallow the next line."""
    lines = [f"{1000 + place}\t{query}" for place, query in enumerate(queries)]
    found = table("\n".join(lines), tabs=True, delimiter="\t", header=False)
    if found.dialect.quoted:  # each query is in marks: they are no part of it
        return
    kept = {row.line: row.cells["column 2"] for row in found}
    for number, query in enumerate(queries, 1):
        inner = query.startswith('"') and '""' in query  # a doubled mark needs the marks around it
        assert inner or kept[number] == query


FORMS = {
    "the delimiter is named": ("sep=;\nid;query\n7;red, blue\n", ["id", "query"], [["7", "red, blue"]]),
    "decimal commas": ("id;query\n7;5,50 or less\n8;1,20\n", ["id", "query"], [["7", "5,50 or less"], ["8", "1,20"]]),
    "a byte order mark": ("\ufeffid|query\n7|a;b\n", ["id", "query"], [["7", "a;b"]]),
    "lines before the header": ("Searches of June\n\nid,query\n7,login\n", ["id", "query"], [["7", "login"]]),
    "a mark that is never closed": ('id,query\n7,"open\n8,b\n', ["id", "query"], [["7", '"open'], ["8", "b"]]),
    "marks that are not doubled": ('id,query\n7,"say "no", go"\n', ["id", "query"], [["7", 'say "no", go']]),
    "marks after a backslash": ('id,query\n7,"a \\"b\\" c"\n', ["id", "query"], [["7", 'a "b" c']]),
    "a folder of Windows": ('id,query\n8,"D:\\tmp\\"\n', ["id", "query"], [["8", "D:\\tmp\\"]]),
    "two lines in a cell": ('id,query\n7,"two\nlines"\n', ["id", "query"], [["7", "two\nlines"]]),
    "marks are text": (
        '7\t"a phrase"\n8\t5" disk\n',
        ["column 1", "column 2"],
        [["7", '"a phrase"'], ["8", '5" disk']],
    ),
    "all cells in marks": ('"id"\t"query"\n"7"\t"a"\n"8"\t"b\tc"\n', ["id", "query"], [["7", "a"], ["8", "b\tc"]]),
    "one column": ("text\nred; blue\ngreen; white\n", ["text"], [["red; blue"], ["green; white"]]),
    "sentences": ("sort it, fast\nwhy\na, b, or c\n", ["column 1"], [["sort it, fast"], ["why"], ["a, b, or c"]]),
    "no header": ("red shoes,12\nblue,15\n", ["column 1", "column 2"], [["red shoes", "12"], ["blue", "15"]]),
    "an unknown header": ("Frage;Antwort\nWie?;So.\n", ["Frage", "Antwort"], [["Wie?", "So."]]),
    "names that are missing": ("id,,query,\n7,x,a,\n", ["id", "column 2", "query", "column 4"], [["7", "x", "a", ""]]),
    "a name twice": ("id,id\n1,2\n", ["id", "id (2)"], [["1", "2"]]),
    "nothing": ("", ["column 1"], []),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_that_people_have(form: str) -> None:
    text, names, cells = FORMS[form]
    found = table(text, tabs="\t" in text)
    assert (found.names, [list(row.cells.values()) for row in found]) == (names, cells)


def test_ragged_rows_are_filled_or_joined_and_counted() -> None:
    found = table("id,query,count\n7,login\n8,how to sort, fast,3\n9,x,1,,\nTotal rows: 3\n")
    found.absorbing = "query"
    cells = [row.cells for row in found]
    assert cells[0] == {"id": "7", "query": "login", "count": ""}
    assert cells[1] == {"id": "8", "query": "how to sort, fast", "count": "3"}
    assert cells[2] == {"id": "9", "query": "x", "count": "1"}  # cells that a spreadsheet emptied
    assert found.ragged == 3


def test_the_first_quotation_mark_may_come_late() -> None:
    """What the first rows look like decides the delimiter, not whether cells may be quoted."""
    plain = "".join(f"{place},a lamp\n" for place in range(30_000))
    *_, last = rows(f'id,text\n{plain}30000,"a lamp, or two\nof them"\n')
    assert last == {"id": "30000", "text": "a lamp, or two\nof them"}


def test_a_row_tells_the_line_on_which_it_begins(tmp_path: Path) -> None:
    found = table('id,query\n1,"a\nb"\n\n2,c\n')
    assert [row.line for row in found] == [2, 5]


@pytest.mark.parametrize("mark", ["^", "~", "¦", "§", ":", "/", "#", "$", "\x1f", "\x01"])
def test_unusual_delimiters_are_known_by_the_names_between_them(mark: str) -> None:
    lines = [
        ("id", "title", "text"),
        ("1", "Lamp", "Lit at dusk, put out at dawn"),
        ("2", "Rope", "Changed, when worn"),
    ]
    text = "".join(mark.join(cells) + "\n" for cells in lines)
    assert table(text).dialect.delimiter == mark
    assert [list(row.values()) for row in rows(text)] == [[*cells] for cells in lines[1:]]


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("text\nsee a:b and c:d\nor e:f and g:h\n", ""),
        ("id,title:text\n1,a:b\n", ","),
        ("a~b,c\n1,2\n", ","),
        ("7\x1flogin\n8\x1flogout\n9\x1fhelp\n", "\x1f"),
        ("10:30 the ferry\n11:45 the bus\n", ""),
    ],
)
def test_signs_in_texts_are_no_delimiters(text: str, delimiter: str) -> None:
    assert table(text).dialect.delimiter == delimiter
