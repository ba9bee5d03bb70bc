"""Queries and labels in the forms that people have them: which column is which, by name and by content."""

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from refusals import refused

from airgen.errors import DatasetError, UsageError
from airgen.job.user_queries import read_labels
from airgen.job.user_query_files import read_queries
from airgen.settings import LabelFile, QueriesSettings

TWO = ["when does the ferry leave", "lost luggage"]
TREC = """<top>
<num> Number: 7
<title> when does the ferry leave
<desc> Description:
Departures on weekdays.
</top>
<top>
<num> Number: 8
<title> lost luggage
</top>
"""
COVID = (
    '<topics><topic number="7"><query>when does the ferry leave</query><question>When?</question></topic>'
    '<topic number="8"><query>lost luggage</query></topic></topics>'
)

FORMS: dict[str, tuple[str, Any]] = {
    "a list of objects": ("q.json", [{"id": "7", "query": TWO[0]}, {"id": "8", "query": TWO[1]}]),
    "cases of a test": ("q.json", {"tests": [{"vars": {"question": TWO[n]}, "id": "78"[n]} for n in (0, 1)]}),
    "texts by id": ("q.json", {"7": TWO[0], "8": TWO[1]}),
    "texts by id, beside a corpus": ("q.json", {"corpus": {"d": "x"}, "queries": {"7": TWO[0], "8": TWO[1]}}),
    "columns": ("q.json", {"id": ["7", "8"], "user_input": TWO}),
    "columns by row": ("q.json", {"id": {"0": "7", "1": "8"}, "input": {"0": TWO[0], "1": TWO[1]}}),
    "a table of pandas": ("q.json", {"columns": ["id", "query"], "data": [["7", TWO[0]], ["8", TWO[1]]]}),
    "lists": ("q.json", [["7", TWO[0]], ["8", TWO[1]]]),
    "objects in cells": (
        "q.csv",
        "id,input\n" + "".join(f'{"78"[n]},"{{""question"": ""{TWO[n]}"", ""k"": 3}}"\n' for n in (0, 1)),
    ),
    "an unusual delimiter": ("q.csv", f"id^query\n7^{TWO[0]}\n8^{TWO[1]}\n"),
    "a list in a file of lines": ("q.jsonl", [{"id": "7", "query": TWO[0]}, {"id": "8", "query": TWO[1]}]),
    "objects in a text": ("q.txt", "\n".join(json.dumps({"qid": "78"[n], "text": text}) for n, text in enumerate(TWO))),
    "ids and texts without a header": ("q.tsv", f"7\t{TWO[0]}\n8\t{TWO[1]}\n"),
    "the same in a text": ("topics.txt", f"7\t{TWO[0]}\n8\t{TWO[1]}\n"),
    "the same with commas": ("q.csv", f"7,{TWO[0]}\n8,{TWO[1]}\n"),
    "topics": ("topics.txt", TREC),
    "topics in XML": ("topics.xml", COVID),
    "topics in lines": ("topics.txt", f"7:{TWO[0]}\n8:{TWO[1]}\n"),
    "objects over several lines": ("q.jsonl", "".join(
        json.dumps({"id": "78"[n], "query": TWO[n]}, indent=2) + "\n" for n in (0, 1)
    )),
    "questions below paragraphs": ("q.json", {"version": "2", "data": [{"title": "Ferry", "paragraphs": [
        {"context": "c", "qas": [{"id": "78"[n], "question": TWO[n]} for n in (0, 1)]}
    ]}]}),
    "a name that is no proof": ("q.csv", f"query,text\n7,{TWO[0]}\n8,{TWO[1]}\n"),
    "no usual name": ("q.csv", f"Nr,Was gesucht wurde\n7,{TWO[0]}\n8,{TWO[1]}\n"),
    "a question beside its answer": ("q.csv", f"id,text,question\n7,Hourly.,{TWO[0]}\n8,At the desk.,{TWO[1]}\n"),
    "surplus commas": ("q.csv", f"qid,query,count\n7,{TWO[0]},3\n8,{TWO[1]},1\n9,boats, ships, and so on,1\n"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_queries(tmp_path: Path, form: str) -> None:
    name, content = FORMS[form]
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    own = read_queries(QueriesSettings(file=name), path, "en")
    assert [line.text for line in own.lines][:2] == TWO
    has_ids = form not in ("no usual name", "lists")  # a number before the text may be an id, or may not
    assert [line.id for line in own.lines][:2] == (["7", "8"] if has_ids else ["", ""])
    assert [line.text for line in own.lines][2:] in ([], ["boats, ships, and so on"])
    assert "query = " in own.about


@pytest.mark.parametrize(
    ("text", "counts", "about"),
    [
        ("query,searches,hits\nferry,7,0\nluggage,0,3\n", [7, 0], "count = 'searches' (not used: 'hits')"),
        ("query,hits\nferry,7\nluggage,0\n", [1, 1], "not used: 'hits'"),
        ("query,hits\nferry,7\nluggage,2\n", [7, 2], "count = 'hits'"),
        ("Top queries,Clicks,Impressions\nferry,1,7\nluggage,0,3\n", [7, 3], "count = 'Impressions'"),
        ("ferry\t7\nluggage\t3\n", [7, 3], "no header"),
        ("查询,次数\nferry,7\nluggage,3\n", [7, 3], "count = '次数'"),
        ("AnonID,Query,QueryTime\n142,ferry,2006\n142,luggage,2006\n", [1, 1], "not used: 'AnonID', 'QueryTime'"),
        ("frequency,query\nrare,ferry\noften,luggage\n", [1, 1], "not used: 'frequency'"),
    ],
)
def test_how_often_a_query_was_asked(tmp_path: Path, text: str, counts: list[int], about: str) -> None:
    path = tmp_path / ("q.tsv" if "\t" in text else "q.csv")
    path.write_text(text)
    own = read_queries(QueriesSettings(file=path.name), path, "en")
    assert [(line.text, line.count) for line in own.lines] == list(zip(["ferry", "luggage"], counts, strict=True))
    assert about in own.about


AREAS = """query,area,session,note,clicks
ferry,Boats,s1,from a customer who could not find it at all,3
luggage,Bags,s2,none,
liner,Boats,s3,none,3
trunk,Bags,s4,none,2
"""


@pytest.mark.parametrize(
    ("named", "metadata", "about"),
    [
        (None, {"area": "Boats", "note": "from a customer who could not find it at all", "clicks": "3"}, "'session'"),
        (["area"], {"area": "Boats"}, "(kept as metadata: 'area'; not used: 'session', 'note', 'clicks')"),
        ([], {}, "(not used: 'area', 'session', 'note', 'clicks')"),
    ],
)
def test_columns_that_say_what_kind_of_query_it_is_are_kept(
    tmp_path: Path, named: list[str] | None, metadata: dict[str, str], about: str
) -> None:
    (tmp_path / "log.csv").write_text(AREAS)
    own = read_queries(QueriesSettings(file="log.csv", metadata=named), tmp_path / "log.csv", "en")
    assert own.lines[0].metadata == metadata and about in own.about
    assert own.lines[1].metadata.get("clicks") is None  # an empty cell is no value
    with refused(UsageError, "unknown_column", where="log.csv"):
        read_queries(QueriesSettings(file="log.csv", metadata=["areas"]), tmp_path / "log.csv", "en")


def test_a_line_of_a_log_is_a_query_whatever_stands_in_it(tmp_path: Path) -> None:
    queries = ['"ferry', "[draft] plan", "{x: 1}", "a, b", "id\tquery", 'say "no"', "", "query"]
    (tmp_path / "log.txt").write_text("\n".join(queries) + "\n")
    own = read_queries(QueriesSettings(file="log.txt"), tmp_path / "log.txt", "en")
    assert [line.text for line in own.lines] == queries and own.about == "a query a line"


def test_texts_that_cannot_be_told_apart_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("alpha,beta\nthe old ferry,the new ferry\nlost bags,found bags\n")
    with pytest.raises(UsageError, match=r"which column is the query's text .*'alpha', 'beta'"):
        read_queries(QueriesSettings(file="q.csv"), tmp_path / "q.csv", "en")


PAIRS = [("q1", "d1", 2), ("q1", "d2", 0), ("q2", "d3", 1)]
LABELS: dict[str, tuple[str, Any]] = {
    "a table of pandas": (
        "l.json",
        {"columns": ["query-id", "corpus-id", "score"], "index": [0, 1, 2], "data": [list(pair) for pair in PAIRS]},
    ),
    "of a search engine": ("l.json", {"judgmentRatings": [
        {"query": "q1", "ratings": [{"docId": "d1", "rating": 2}, {"docId": "d2", "rating": 0}]},
        {"query": "q2", "ratings": {"d3": 1}},
    ]}),
    "of its evaluation": ("l.json", {"requests": [
        {"id": "q1", "ratings": [{"_index": "x", "_id": "d1", "rating": 2}, {"_index": "x", "_id": "d2", "rating": 0}]},
        {"id": "q2", "ratings": [{"_index": "x", "_id": "d3", "rating": 1}]},
    ]}),
    "by pair": ("l.json", {"q1": {"d1": 2, "d2": 0}, "q2": {"d3": 1}}),
    "a list": ("l.json", [{"qid": q, "docid": d, "rel": label} for q, d, label in PAIRS]),
    "TREC": ("l.txt", "".join(f"{q} 0 {d} {label}\n" for q, d, label in PAIRS)),
    "tabs": ("l.tsv", "".join(f"{q}\t0\t{d}\t{label}\n" for q, d, label in PAIRS)),
    "three columns": ("l.tsv", "".join(f"{q}\t{d}\t{label}\n" for q, d, label in PAIRS)),
    "an order of its own": ("l.csv", "".join(f"{d},{q},{label},0\n" for q, d, label in PAIRS)),
    "learning to rank": ("l.txt", "".join(f"{label} qid:{q} 1:0.5 2:7 # {d}\n" for q, d, label in PAIRS)),
    "the same with the query": ("l.txt", "".join(f"{label}\tqid:9\t# {d}\t{q}\n" for q, d, label in PAIRS)),
    "an unknown name": ("l.csv", "qid,docid,stars\n" + "".join(f"{q},{d},{label}\n" for q, d, label in PAIRS)),
}  # fmt: skip


@pytest.mark.parametrize("form", LABELS)
def test_labels(tmp_path: Path, form: str) -> None:
    name, content = LABELS[form]
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    settings = LabelFile(file=name, levels={0: 0, 1: 1, 2: 2})
    labels = read_labels(settings, path, "en", queries={"q1", "q2"}, documents={"d1", "d2", "d3"})
    assert [(one.query, one.document, one.level) for one in labels] == PAIRS


def test_signs_that_stand_for_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "t.xml").write_text("<topics><topic number='1'><query>R&amp;D &lt;b&gt;</query></topic></topics>")
    (tmp_path / "q.jsonl").write_text('{"query": NaN}\n{"query": "ferry"}\n')
    own = [read_queries(QueriesSettings(file=name), tmp_path / name, "en").lines for name in ("t.xml", "q.jsonl")]
    assert [[line.text for line in lines] for lines in own] == [["R&D <b>"], ["", "ferry"]]


def test_the_relevant_documents_of_each_query(tmp_path: Path) -> None:
    value = {"corpus": {"d1": "x"}, "queries": {"q1": "y"}, "relevant_docs": {"q1": ["d1", "d2"], "q2": ["d3"]}}
    (tmp_path / "l.json").write_text(json.dumps(value))
    labels = read_labels(LabelFile(file="l.json"), tmp_path / "l.json", "en")
    assert [(one.query, one.document, one.level) for one in labels] == [(q, d, 3) for q, d, _ in PAIRS]


@pytest.mark.parametrize(
    ("value", "filters"), [("NaN", [{}, {"shop": "b"}]), ("Infinity", None), ("-Infinity", None), ("[1]", None)]
)
def test_a_filter_that_no_dataset_can_hold_is_told_before_anything_is_judged(
    tmp_path: Path, value: str, filters: list[dict[str, str]] | None
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(
        f'{{"query": "{TWO[0]}", "filter": {{"shop": {value}}}}}\n{{"query": "{TWO[1]}", "filter.shop": "b"}}'
    )
    if filters is None:
        with pytest.raises(DatasetError, match=r"q\.jsonl:1: the filter shop must be a text, a number"):
            read_queries(QueriesSettings(file="q.jsonl"), path, "en")
    else:
        assert [line.filter for line in read_queries(QueriesSettings(file="q.jsonl"), path, "en").lines] == filters


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.txt", "1. {}\n2. {}\n"), ("q.txt", "1) {}\n2) {}"), ("q.txt", "- {}\n- {}\n"), ("q.txt", "• {}\n\n• {}\n"),
        ("q.txt", '"{}"\n"{}"\n'), ("q.txt", '"{}",\n"{}",\n'), ("q.txt", "“{}”\n“{}”\n"),
        ("q.yaml", "- {}\n- {}\n"), ("q.yml", "queries:\n  - query: {}\n  - query: {}\n"),
        ("q.yaml", "tests:\n  - vars: {{question: {}}}\n  - vars: {{question: {}}}\n"),
    ],
)  # fmt: skip
def test_lists_without_the_marks_of_a_list(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text.format(*TWO), encoding="utf-8")
    found = read_queries(QueriesSettings(file=name), tmp_path / name, "en")
    assert [line.text for line in found.lines if line.text] == TWO


def test_lines_that_only_look_like_a_list_stay(tmp_path: Path) -> None:
    for text in ("1. ferry\n3. boat\n", "- ferry\nboat\n", '"ferry" times\n"boat"\n', "7. ferry\n"):
        (tmp_path / "q.txt").write_text(text)
        found = read_queries(QueriesSettings(file="q.txt"), tmp_path / "q.txt", "en")
        assert [line.text for line in found.lines] == text.splitlines()


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("q.md", "# Queries\n\nferry times\n", "is a document"), ("q.yaml", "a: [", "not YAML"),
        ("q.yaml", "ferry", "neither a list"),
        ("q.yaml", "a: &x [1]\nb: *x\n", "aliases"),
    ],
)  # fmt: skip
def test_files_that_are_no_list_of_queries(name: str, text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DatasetError, match=reason):
        read_queries(QueriesSettings(file=name), tmp_path / name, "en")


def test_lists_of_answers_are_no_queries(tmp_path: Path) -> None:
    """DPR's questions stand before the lists of their answers, without a header."""
    (tmp_path / "q.csv").write_text("".join(f"{text}\t['{n} o clock', 'at {n}']\n" for n, text in enumerate(TWO)))
    found = read_queries(QueriesSettings(file="q.csv"), tmp_path / "q.csv", "en")
    assert [line.text for line in found.lines] == TWO


@pytest.mark.parametrize("name", ["a.parquet", "a.csv.zst", "a.csv.bz2", "a.csv.gz", "a.json", "topics.xml", "a"])
def test_queries_in_the_files_of_other_tools(tmp_path: Path, name: str) -> None:
    table = "qid,query\nq1,how is a lathe oiled\nq2,which belt fits\n"
    packed = {".zst": _zstd, ".bz2": bz2.compress, ".gz": gzip.compress}
    path = tmp_path / name
    if name.endswith(".parquet"):
        rows = {"qid": ["q1", "q2"], "query": ["how is a lathe oiled", "which belt fits"], "__index_level_0__": [0, 1]}
        pyarrow.parquet.write_table(pyarrow.table(rows), path)
    elif name.endswith(".json"):
        path.write_text(json.dumps({"test": {"q1": "how is a lathe oiled", "q2": "which belt fits"}}))
    elif name.endswith(".xml"):
        path.write_text(
            '<topics><topic number="q1">how is a\nlathe oiled</topic><topic id="q2">which belt fits</topic></topics>'
        )
    else:
        path.write_bytes(packed.get(path.suffix, bytes)(table.encode()))
    lines = read_queries(QueriesSettings(file=name), path, "en").lines
    assert [(line.id, line.text) for line in lines] == [("q1", "how is a lathe oiled"), ("q2", "which belt fits")]


def test_labels_are_no_queries(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"q1": {"d7": 1}, "q2": {"d9": 1}}')
    with pytest.raises(DatasetError, match="labels or scores of pairs, and no queries"):
        read_queries(QueriesSettings(file="a.json"), tmp_path / "a.json", "en")


def _zstd(raw: bytes) -> bytes:
    from backports import zstd

    return bytes(zstd.compress(raw))
