"""JSON files in the forms in which other tools write tables and documents: `init` and the reader take the same rows."""

import json
from pathlib import Path
from typing import Any

import pytest
from corpus_maker import corpus, prose

from airgen.corpus import prepare
from airgen.corpus.survey import survey
from airgen.storage.records import Dropped, Passage
from airgen.tables.json_rows import as_rows, at, elsewhere, find_rows, parsed, rows_at

TEXTS = [prose(number, 30) for number in range(3)]
ROWS = [{"id": f"d{number}", "title": f"Lamp {number}", "text": text} for number, text in enumerate(TEXTS)]
CELLS = [list(row.values()) for row in ROWS]
COLUMNS: dict[str, list[str]] = {name: [row[name] for row in ROWS] for name in ROWS[0]}
SCHEMA = {"fields": [{"name": "id", "type": "string"}, {"name": "text", "type": "string"}], "pandas_version": "1.4.0"}
FORMS: dict[str, Any] = {
    "list": ROWS,
    "split": {"columns": list(COLUMNS), "index": [0, 1, 2], "data": CELLS},
    "split with names": {"columns": ["title", "text"], "index": ["d0", "d1", "d2"], "data": [row[1:] for row in CELLS]},
    "columns by number": {name: dict(zip("012", cells, strict=True)) for name, cells in COLUMNS.items()},
    "columns by name": {name: dict(zip(COLUMNS["id"], COLUMNS[name], strict=True)) for name in ("title", "text")},
    "rows by name": {row["id"]: {"title": row["title"], "text": row["text"]} for row in ROWS},
    "table": {"schema": SCHEMA, "data": ROWS},
    "lists": CELLS,
    "lists with a header": [list(COLUMNS), *CELLS],
    "columns": COLUMNS,
    "vector store": {
        "ids": COLUMNS["id"],
        "embeddings": None,
        "documents": TEXTS,
        "metadatas": [{}] * 3,
        "included": ["metadatas", "documents"],
    },
    "texts": TEXTS,
    "texts by id": dict(zip(COLUMNS["id"], TEXTS, strict=True)),
    "texts by id, below": {"queries": {"q1": "where is it"}, "corpus": dict(zip("abc", TEXTS, strict=True))},
    "below a name": {"took": 3, "hits": {"max": 1.5, "hits": [{"_id": row["id"], "_source": row} for row in ROWS]}},
    "several lists": {"pages": {"north": ROWS[:2], "south": ROWS[2:]}},
    "more numbers than texts": {"pages": {str(n): {"size": n, "number": n} for n in range(9)}, "texts": ROWS},
    "notes beside": {
        "docs": {f"d{n}": {"text": text} for n, text in enumerate(TEXTS)},
        "hashes": {f"h{n}": {"hash": "x"} for n in range(9)},
    },
}  # fmt: skip


def read(folder: Path) -> tuple[list[str], list[Dropped]]:
    """The texts of the passages that the YAML of `init` gives, and what is dropped or left out."""
    rows = list(prepare(corpus(folder, {**survey(folder).reader, "path": "."}), "qa"))
    return [row.text for row in rows if isinstance(row, Passage)], [row for row in rows if isinstance(row, Dropped)]


BELOW = ["texts by id, below", "below a name", "several lists", "more numbers than texts", "notes beside"]
"""Forms whose rows have a path, which is a setting of `kind: json` alone."""
NAMED = [(form, name) for form in FORMS for name in ("f.json", "f.jsonl") if name == "f.json" or form not in BELOW]


@pytest.mark.parametrize(("form", "name"), NAMED)
def test_forms_of_tables(form: str, name: str, tmp_path: Path) -> None:
    indent = 1 if name == "f.jsonl" else None  # a file of one line is JSON Lines of one row
    (tmp_path / name).write_text(json.dumps(FORMS[form], indent=indent))
    texts, _ = read(tmp_path)
    assert sorted(texts) == sorted(TEXTS)


@pytest.mark.parametrize("name", ["f.json", "f.jsonl"])
@pytest.mark.parametrize(
    "joined",
    [
        "\n".join(json.dumps(row, indent=2) for row in ROWS),
        "".join(map(json.dumps, ROWS)),
        "\r".join(map(json.dumps, ROWS)),
        "\n".join(map(json.dumps, ROWS)),
        json.dumps(ROWS[:1]) + "\n" + json.dumps(ROWS[1:]),
        "\ufeff" + json.dumps(ROWS, indent=2),
    ],
    ids=["over lines", "glued", "old Mac", "lines", "two lists", "mark"],
)
def test_several_values_in_a_file(name: str, joined: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(joined, newline="")
    assert read(tmp_path)[0] == TEXTS


def test_a_file_for_each_document(tmp_path: Path) -> None:
    """As crawlers write them; a page without a title does not stop the others."""
    for number, row in enumerate(ROWS):
        page = {"url": f"https://a.org/{number}", "markdown": row["text"], "links": [{"text": "a"}] * 9}
        page |= {"title": row["title"]} if number else {}
        (tmp_path / f"{number}.json").write_text(json.dumps(page, indent=number or None))
    texts, dropped = read(tmp_path)
    assert sorted(texts) == sorted(TEXTS) and not dropped


def test_texts_outside_of_the_rows_are_counted(tmp_path: Path) -> None:
    value = {
        "articles": ROWS,
        "faqs": [{"question": "which lamp is it", "answer": "the one by the door"}],
        "state": "done",
    }
    (tmp_path / "f.json").write_text(json.dumps(value))
    texts, (piece,) = read(tmp_path)
    assert texts == TEXTS
    assert (piece.cleaner, piece.reason) == ("part", "text outside of the rows")
    assert piece.detail == "2 texts outside of reader.rows, at faqs.question, faqs.answer"
    assert piece.text == "which lamp is it\nthe one by the door"


def test_a_damaged_line_is_dropped_and_the_others_are_read(tmp_path: Path) -> None:
    lines = ['{"id": "d0", "text": "never', *map(json.dumps, ROWS[1:])]
    (tmp_path / "f.jsonl").write_text("\n".join(lines))
    texts, (damaged,) = read(tmp_path)
    assert texts == TEXTS[1:] and (damaged.reason, damaged.position) == ("not JSON", "line 1")


def test_what_is_no_json_says_where(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(json.dumps(ROWS)[:-1] + ",]")
    result = survey(tmp_path)
    assert result.unreadable and "f.json: not JSON: Expecting value: line 1 column" in result.problem


def test_paths_and_values() -> None:
    value = {"a.b": {"c": [1]}, "a": {"b": {"d": 2}}}
    assert at(value, "a.b.c") == [1] and at(value, "a.b.d") == 2 and at(value, "a.x") is None and at(3, "a") is None
    assert find_rows({}) == ("", [{}]) and find_rows("text") == ("", []) and find_rows([1, 2]) == ("", [])
    assert rows_at({"a": 3}, "a", bool) is None and rows_at({"a": {"b": ["x"]}}, "a.*", bool) == [{"value": "x"}]
    assert as_rows([{"text": "a"}, 3]) == [{"text": "a"}, 3]  # the reader drops what is no row
    assert elsewhere({"n": ["one two three", "a"]}, "rows") == [("n", "one two three")]
    assert parsed('{"a": 1} [{"a": 2}],{"a": 3}') == [{"a": 1}, {"a": 2}, {"a": 3}]
    with pytest.raises(ValueError, match="column 10"):
        parsed('{"a": 1} x')


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_a_name_that_comes_twice_loses_no_text(tmp_path: Path, kind: str) -> None:
    line = '{"id": 1, "text": "the first words", "text": "the last words", "n": 1, "n": 2}'
    (tmp_path / f"f.{kind}").write_text(f"[{line}]" if kind == "json" else f"{line}\n")
    rows = list(prepare(corpus(tmp_path, {"kind": kind, "path": f"f.{kind}"}), "qa"))
    assert [row.text for row in rows if isinstance(row, Passage)] == ["the last words"]
    assert [row.text for row in rows if isinstance(row, Dropped)] == ["the first words"]


def test_appended_files_and_breaks_inside_a_text_are_read(tmp_path: Path) -> None:
    text = '\ufeff{"id": 1, "text": "some words"}\n\ufeff{"id": 2, "text": "more\twords"}\n'
    (tmp_path / "f.jsonl").write_text(text, encoding="utf-8")
    rows = list(prepare(corpus(tmp_path, {"kind": "jsonl", "path": "f.jsonl"}), "qa"))
    assert [row.text for row in rows if isinstance(row, Passage)] == ["some words", "more words"]
    (tmp_path / "f.json").write_text('[{"id": 1, "text": "some\nwords"}]', encoding="utf-8")
    rows = list(prepare(corpus(tmp_path, {"kind": "json", "path": "f.json"}), "qa"))
    assert [row.text for row in rows if isinstance(row, Passage)] == ["some\nwords"]
