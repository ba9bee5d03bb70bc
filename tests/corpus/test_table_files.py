"""Tables of CSV and TSV as spreadsheets, databases and people write them: one dialect a file, and nothing lost."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.corpus.readers.json_records import JsonLinesReader, JsonReader
from airgen.corpus.readers.reader import Place
from airgen.corpus.readers.tabular import CsvReader, ParquetReader
from airgen.errors import CorpusError
from airgen.storage.records import Document, Dropped
from airgen.tables import TableDialect
from airgen.tables.documents import csv_settings, first_rows, guess_fields
from airgen.tables.json_rows import find_rows
from airgen.tables.open_table import open_table

CANAL = "The lock keeper opens the gate at dawn, and the barges wait below it until the water stands level."


def values_of(path: Path, **how: Any) -> tuple[TableDialect, list[dict[str, str]]]:
    with open_table(path, **how) as table:
        return table.dialect, [dict(row.cells) for row in table.rows]


def read(folder: Path, name: str, **settings: Any) -> tuple[list[Document], list[Dropped]]:
    wanted = CsvReader.Settings.model_validate({"path": name, "fields": {"id": "id", "text": "text"}} | settings)
    rows = list(CsvReader(wanted, Place(folder, language="en")).read())
    return [row for row in rows if isinstance(row, Document)], [row for row in rows if isinstance(row, Dropped)]


CELLS = st.text(st.sampled_from("ab ,;|\t\"\n'é1."), max_size=12)


@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6),
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n"]),
    packed_quotes=st.booleans(),
)
def test_what_a_csv_writer_wrote_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], delimiter: str, end: str, packed_quotes: bool
) -> None:
    out = io.StringIO()
    quoting = csv.QUOTE_ALL if packed_quotes else csv.QUOTE_MINIMAL
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerow(["id", "title", "text"])
    for number, row in enumerate(rows):
        writer.writerow([f"r{number}", *row])
    path = tmp_path_factory.mktemp("table") / "t.csv"
    path.write_text(out.getvalue(), encoding="utf-8", newline="")
    _, found = values_of(path, delimiter=delimiter)
    assert found == [{"id": f"r{n}", "title": row[0], "text": row[1]} for n, row in enumerate(rows)]


def test_ragged_rows_are_padded_and_counted_and_cells_beyond_are_kept(tmp_path: Path) -> None:
    lines = ["id,text,place", f'1,"{CANAL}",quay', f'2,"{CANAL}"', f'3,"{CANAL}",quay,spare,words', "4,short,x,,"]
    (tmp_path / "t.csv").write_text("\n".join([*lines, "", "Sum: 4"]), encoding="utf-8")
    documents, dropped = read(tmp_path, "t.csv")
    assert [row.id for row in documents] == ["1", "2", "3", "4"]
    assert [(row.cleaner, row.reason, row.text or row.detail) for row in dropped] == [
        ("part", "cells beyond the last column", "spare | words"),
        ("reader", "missing text", "id: Sum: 4"),
        ("part", "row with too few cells, the others are empty", "2 rows, the first in line 3"),
    ]


def test_commas_that_nobody_quoted_stay_in_the_text_of_the_last_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"id,text\n1,{CANAL}\n2,no comma here\n3,one, two, three\n", encoding="utf-8")
    documents, dropped = read(tmp_path, "t.csv")
    assert [row.text for row in documents] == [CANAL, "no comma here", "one, two, three"]
    assert [row.reason for row in dropped] == ["row with too many cells, joined in the last column"]


@pytest.mark.parametrize("size", [20_470, 20_490, 30_000])
def test_the_first_quoted_cell_may_come_late(tmp_path: Path, size: int) -> None:
    lines = [f"{number},plain words" for number in range(size)]
    (tmp_path / "t.csv").write_text("\n".join(["id,text", *lines, 'q,"two\nlines, and ""more"""', "z,end"]), "utf-8")
    dialect, rows = values_of(tmp_path / "t.csv")
    assert (dialect.delimiter, dialect.width) == (",", 2) and len(rows) == size + 2
    assert [row["text"] for row in rows[-2:]] == ['two\nlines, and "more"', "end"]


@pytest.mark.parametrize("sign", [";", "|", ",", "\t"])
@pytest.mark.parametrize("head", ["text", "Frage"])
def test_one_column_is_one_column_whatever_its_texts_are_full_of(tmp_path: Path, sign: str, head: str) -> None:
    texts = [f"Barge {number} lies at the quay{sign} and nobody has paid for it yet" for number in range(30)]
    (tmp_path / "t.csv").write_text("\n".join([head, *texts]), encoding="utf-8")
    dialect, rows = values_of(tmp_path / "t.csv")
    assert dialect.delimiter == "" and [row[head] for row in rows] == [text.strip() for text in texts]


def test_lines_above_the_header_are_skipped_and_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f'Harbour register\nof spring\n\nid,text\n1,"{CANAL}"\n2,"{CANAL}"\n', "utf-8")
    documents, dropped = read(tmp_path, "t.csv")
    assert [row.id for row in documents] == ["1", "2"]
    assert [row.text for row in dropped if row.reason == "line above the header"] == ["Harbour register", "of spring"]
    assert dict(first_rows(tmp_path / "t.csv", "csv")[0]) == {"id": "1", "text": CANAL}


def test_a_tsv_without_quoting_and_one_with(tmp_path: Path) -> None:
    plain = 'id\ttext\n1\t"Ahoy" he called\n2\t"Anchor\n3\tand nothing else\n'
    (tmp_path / "plain.tsv").write_text(plain, encoding="utf-8")
    _, rows = values_of(tmp_path / "plain.tsv")
    assert [row["text"] for row in rows] == ['"Ahoy" he called', '"Anchor', "and nothing else"]
    (tmp_path / "quoted.tsv").write_text('id\ttext\n1\t"two\nlines"\n2\t"a ""b"" c"\n', encoding="utf-8")
    _, rows = values_of(tmp_path / "quoted.tsv")
    assert [row["text"] for row in rows] == ["two\nlines", 'a "b" c']


def test_a_quote_without_an_end_costs_no_other_row(tmp_path: Path) -> None:
    lines = ["id,text"] + [f'{number},"words, number {number}"' for number in range(200)]
    lines[51] = '50,"never closed'
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    documents, dropped = read(tmp_path, "t.csv")
    assert [row.id for row in documents] == [str(number) for number in range(200)]
    assert documents[50].text == '"never closed' and documents[51].text == "words, number 51"
    assert not dropped


def test_tables_without_a_header_and_with_odd_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f'7,"{CANAL}"\n8,"{CANAL} Again."\n', encoding="utf-8")
    assert csv_settings([tmp_path / "t.csv"])["header"] is False
    documents, _ = read(tmp_path, "t.csv", header=False, fields={"id": "column 1", "text": "column 2"})
    assert [row.id for row in documents] == ["7", "8"]
    (tmp_path / "u.csv").write_text(f"id,text,,text\n1,{'word ' * 9},x,second\n", encoding="utf-8")
    with open_table(tmp_path / "u.csv") as table:
        assert table.names == ["id", "text", "column 3", "text (2)"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "cp1252"])
def test_init_sees_what_the_reader_reads(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_bytes(f"id;text\n1;Schöne {CANAL}\n2;Größe\n".encode(encoding))
    assert guess_fields(first_rows(tmp_path / "t.csv", "csv")) == {"id": "id", "title": None, "text": "text"}
    how = csv_settings([tmp_path / "t.csv"])
    documents, dropped = read(tmp_path, "t.csv", **how)
    assert how["delimiter"] == ";" and documents[1].text == "Größe" and not dropped


def test_a_few_damaged_bytes_are_no_other_encoding(tmp_path: Path) -> None:
    good = "".join(f"{number},größer als überall\n" for number in range(50))
    (tmp_path / "t.csv").write_bytes(b"id,text\n" + good.encode() + b"x,cut \xc3 here\n")
    documents, dropped = read(tmp_path, "t.csv")
    assert documents[0].text == "größer als überall" and documents[-1].text == "cut � here"
    assert [(row.reason, row.detail) for row in dropped] == [
        ("bytes that are not utf-8", "1 rows, the first in line 52")
    ]


def test_a_condition_sees_text_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,text,year\n1,a,1990\n2,b,\n3,c,2001\n", encoding="utf-8")
    assert [row.id for row in read(tmp_path, "t.csv", where="year::INT > 1995 OR year IS NULL")[0]] == ["2", "3"]
    for bad in ("years = 3", f"id IN (SELECT text FROM read_csv('{tmp_path}/t.csv'))"):
        with pytest.raises(CorpusError, match=r"t\.csv: reader\.where: "):
            read(tmp_path, "t.csv", where=bad)


def test_parquet_text_without_its_mark_and_whole_ids_of_pandas(tmp_path: Path) -> None:
    rows = f"SELECT i::DOUBLE AS id, encode('é {CANAL} ' || i) AS body, {{'note': 'n' || i}} AS meta FROM range(3) t(i)"
    duckdb.execute(f"COPY ({rows}) TO '{tmp_path}/t.parquet' (FORMAT parquet)")
    seen = first_rows(tmp_path / "t.parquet", "parquet")
    fields = guess_fields(seen)
    assert fields == {"id": "id", "title": None, "text": "body"} and seen[0]["meta"] == {"note": "n0"}
    settings = ParquetReader.Settings.model_validate({"path": "t.parquet", "fields": fields})
    found = [row for row in ParquetReader(settings, Place(tmp_path)).read() if isinstance(row, Document)]
    assert [(row.id, row.text) for row in found] == [(str(n), f"é {CANAL} {n}") for n in range(3)]


@pytest.mark.parametrize(
    ("texts", "markup"),
    [
        (["<p>One <b>lamp</b>.</p>", "Two<br>lines", "plain"], "html"),
        (["# Head\n\nwords", "**bold** words", "plain"], "markdown"),
        (["a < b and c > d", "5 * 3 ** 2", "plain"], None),
    ],
)
def test_the_markup_of_a_column_is_seen(texts: list[str], markup: str | None) -> None:
    fields = guess_fields([{"id": n, "body": f"{text} {CANAL}"} for n, text in enumerate(texts)])
    assert fields.get("markup") == markup


def test_rows_deep_in_a_json_file_and_lists_of_texts(tmp_path: Path) -> None:
    nodes = {f"n{n}": {"data": {"text": f"{CANAL} {n}"}} for n in range(12)}
    where, rows = find_rows({"version": 1, "store": {"docs": nodes, "other": [1, 2]}})
    assert where == "store.docs" and len(rows) == 12
    (tmp_path / "t.json").write_text(json.dumps({"store": {"docs": nodes}}), encoding="utf-16")
    settings = JsonReader.Settings.model_validate(
        {"path": "t.json", "rows": where, "fields": {"id": "key", "text": guess_fields(rows)["text"]}}
    )
    found = [row for row in JsonReader(settings, Place(tmp_path)).read() if isinstance(row, Document)]
    assert [row.id for row in found] == [f"n{n}" for n in range(12)]
    articles = [{"title": "T", "paragraphs": [{"context": CANAL * 3}, {"context": CANAL * 4}]}]
    assert guess_fields(articles) == {"id": None, "title": "title", "text": "paragraphs.context", "each": True}


@pytest.mark.parametrize("encoding", ["utf-16", "cp1251"])
def test_json_lines_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    texts = ["Каждую лампу проверяют два человека", "Список ламп висит рядом с дверью"]
    lines = "".join(
        json.dumps({"_id": str(n), "text": text}, ensure_ascii=False) + "\n" for n, text in enumerate(texts)
    )
    (tmp_path / "t.jsonl").write_bytes(lines.encode(encoding))
    settings = JsonLinesReader.Settings(path="t.jsonl")
    found = list(JsonLinesReader(settings, Place(tmp_path, language="ru")).read())
    assert [row.text for row in found] == texts


def test_a_delimiter_that_is_not_recognised_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("nr!!body\n1!!the lamp\n")
    settings = CsvReader.Settings.model_validate({"path": "t.csv", "fields": {"text": "body"}})
    with pytest.raises(CorpusError, match=r"no column 'body'.*nr!!body.*, or set reader\.delimiter to the separator"):
        list(CsvReader(settings, Place(tmp_path)).read())
