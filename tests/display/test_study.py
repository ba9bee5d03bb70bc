"""Tables for every output, and kept values: what comes from outside stays text, what is damaged is one line."""

import csv
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from airgen.display.study import Column, Html, P, Plain, Study, Table, body, columns, shown, span
from airgen.errors import DatasetError
from airgen.evaluation.intervals import Interval
from airgen.storage.json_values import plain, read_kept, write_json

EVIL = "<b>|x|</b>\x1b[31m=1"
ROWS = [(EVIL, 0.5, (0.4, 0.6)), ("=2", 0.25, (0.1, 0.3)), ("c", None, (math.nan, math.nan))]
COLUMNS = [
    Column("system", lambda row: row[0]),
    Column("nDCG@10", lambda row: row[1], ".2f", best=True),
    Column("95 %", lambda row: row[2], ".1f"),
]


def test_a_cell_of_outside_is_text_in_every_output() -> None:
    table = Table(ROWS, COLUMNS)
    assert "\x1b" not in table.text() + table.markdown() + table.html()
    assert "<b>|" not in table.markdown() and r"\|x\|" in table.markdown()
    assert "&lt;b&gt;" in table.html() and "<script" not in Table([["<script>"]], columns("<script>")).html()
    assert [row[0] for row in csv.reader(io.StringIO(table.csv()))][2] == "'=2"  # no formula
    assert "<i>x</i>" in Table([[Html("<i>x</i>")]], columns("a")).html()


def test_the_best_and_the_second_are_marked_and_the_missing_is_said() -> None:
    lines = Table(ROWS, COLUMNS).markdown().splitlines()
    assert lines[2].endswith("| **0.50** | 0.4–0.6 |") and lines[3].endswith("| <u>0.25</u> | 0.1–0.3 |")
    assert lines[4] == "| c | – | – |"
    assert Table(ROWS[:1], COLUMNS).markdown().splitlines()[2].endswith("| 0.50 | 0.4–0.6 |")  # alone it is no best


def test_intervals_and_p_values() -> None:
    assert shown(Interval(0.7, 0.6, 0.8), ".1f") == "0.7 [0.6, 0.8]"
    assert shown(Interval(math.nan, math.nan, math.nan), ".1f") == "undefined"
    assert (shown(0.00001, P), shown(math.nan, P), shown(0.5, P)) == ("<.0001", "undefined", "0.5000")
    assert (span(3, 3), span(3, 9), span(-0.1, 0.2, ".1f"), span(0.1, 0.2, "+.1f")) == (
        "3", "3–9", "-0.1 to 0.2", "+0.1 to +0.2",
    )  # fmt: skip


def test_a_heading_without_anything_below_it_is_left_out(tmp_path: Path) -> None:
    parts = ["## Empty", Table([], COLUMNS), "## Costs", "Text.", "", "## Last"]
    assert body(parts) == ["## Costs", "Text."]
    Study("<i>", parts).write(tmp_path / "deep" / "study.md")
    assert (tmp_path / "deep" / "study.md").read_text() == "# &lt;i&gt;\n\n## Costs\n\nText.\n"


@dataclass(frozen=True, slots=True)
class Example:
    names: tuple[str, ...]
    values: dict[str, float]


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "example.json"
    write_json(path, Example(("a", "\ud800"), {"x": 1.5}))
    assert read_kept(Example, path, "thing of airgen", "make one") == Example(("a", "\ud800"), {"x": 1.5})
    assert plain({"a": [math.nan, math.inf, 0.123456]}, 3) == {"a": [None, None, 0.123]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a thing of airgen"), ("[]", "not a JSON object"), ('{"names": []}', "values: Field required"),
        ('{"names": [], "values": {"x": "many"}}', "values.x: Input should be a valid number"),
        ('{"format": 9}', "another version of airgen wrote it"), ("[" * 100_000, "not a thing of airgen"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "example.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=words) as found:
        read_kept(Example, path, "thing of airgen", "make one")
    assert "\n" not in str(found.value) and str(found.value).endswith(": make one")
    path.write_text(json.dumps({"names": [], "values": {}, "key": 1}))
    assert read_kept(Example, path, "thing of airgen", "make one") == Example((), {})
    with pytest.raises(DatasetError, match=r"none\.json: no thing: make one"):
        read_kept(Example, tmp_path / "none.json", "thing of airgen", "make one")


def test_plain_text_is_escaped_by_each_output_and_keeps_its_columns() -> None:
    table = Plain("a   b\n1 *2* <i>")
    study = Study("x", ["## Kept *apart*", Plain("one <b>|*line*"), table, "*stress* \\*none\\* &lt;b&gt;"])
    text = "x\n\nKept *apart*\none <b>|*line*\na   b\n1 *2* <i>\n*stress* *none* <b>"
    assert study.text() == text and study.text(title=False) == text.removeprefix("x\n\n")
    assert r"one &lt;b&gt;\|\*line\*" in study.markdown() and "    a   b\n    1 *2* <i>" in study.markdown()
    page = study.html()
    assert "one &lt;b&gt;|*line*</p>" in page and "<pre" in page and "a   b\n1 *2* &lt;i&gt;</pre>" in page
    assert "<i>" not in page and "<em>stress</em>" in page


def test_a_table_without_titles_has_no_head_on_a_terminal() -> None:
    rows = [("q1", "bees fly", ""), ("query2", "tides", "(dropped)")]
    assert Table(rows, columns("", "", "", left=(1, 2))).text() == "q1      bees fly\nquery2  tides     (dropped)"
