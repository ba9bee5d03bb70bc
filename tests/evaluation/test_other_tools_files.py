"""Runs and labels as other tools write them: read as they are meant, or refused with one line."""

import bz2
import gzip
import json
import pickle
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from airgen.dataset.beir import BeirDataset, read_qrels
from airgen.errors import AirgenError, DatasetError
from airgen.evaluation.run import read_run

LABELS = {"q 1": {"7": 2.0, "b,8": 0.0}, "q2": {"9": 1.0}}
HITS = {"q1": {"7": 11.5, "8": -0.25}, "q2": {"9": 0.5, "7": 0.125}}


def triples(table):
    return [(query, passage, number) for query, row in table.items() for passage, number in row.items()]


def csv_text(names, table, gap=",", order=(0, 1, 2), more=()):
    rows = [[f'"{cell}"' if gap in str(cell) else str(cell) for cell in row] for row in triples(table)]
    lines = [[*(row[place] for place in order), *more] for row in rows]
    return "".join(gap.join(line) + "\n" for line in ([names] if names else []) + lines).encode()


def parquet(path, names, table):
    columns = dict(zip(names, zip(*triples(table), strict=True), strict=True))
    pyarrow.parquet.write_table(pyarrow.table({name: list(values) for name, values in columns.items()}), path)
    return path.read_bytes()


def json_lines(names, table):
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in triples(table)).encode()


def as_labels(path: Path):
    return {
        "qrels.json": json.dumps(LABELS).encode(),
        "indented.json": json.dumps(LABELS, indent=1).encode(),
        "beir.csv": csv_text(["query-id", "corpus-id", "score"], LABELS),
        "semicolons.csv": csv_text(["query-id", "corpus-id", "score"], LABELS, ";"),
        "ir_datasets.csv": csv_text(["query_id", "doc_id", "relevance", "iteration"], LABELS, more=["0"]),
        "pyterrier.csv": csv_text(["docno", "label", "qid"], LABELS, order=(1, 2, 0)),
        "quoted.tsv": b'"query-id"\t"corpus-id"\t"score"\n"q 1"\t"7"\t2\n"q 1"\t"b,8"\t0\n"q2"\t"9"\t1\n',
        "indexed.tsv": b"\tqid\tdocno\tlabel\n0\tq 1\t7\t2\n1\tq 1\tb,8\t0\n2\tq2\t9\t1\n",
        "pyterrier.jsonl": json_lines(["qid", "docno", "label"], LABELS),
        "ir_datasets.jsonl": json_lines(["query_id", "doc_id", "relevance"], LABELS),
        "rows.json": json.dumps([{"query-id": q, "corpus-id": p, "score": n} for q, p, n in triples(LABELS)]).encode(),
        "mteb.parquet": parquet(path / "a", ["query-id", "corpus-id", "score"], LABELS),
        "ranx.parquet": parquet(path / "b", ["q_id", "doc_id", "score"], LABELS),
    }


def as_run(path: Path):
    trec = "".join(f"{query} Q0 {passage} 9 {score} tag\n" for query, passage, score in triples(HITS)).encode()
    nested = [{"qid": query, "hits": [{"docid": p, "score": s} for p, s in row.items()]} for query, row in HITS.items()]
    return {
        "trec.run": trec,
        "run.json": json.dumps(HITS).encode(),
        "texts.json": json.dumps({q: {p: str(s) for p, s in row.items()} for q, row in HITS.items()}).encode(),
        "mteb.json": json.dumps({"mteb_model_meta": {"name": "m"}, "default": {"test": HITS}}).encode(),
        "beir.csv": csv_text(["query_id", "doc_id", "score"], HITS),
        "beir.tsv": csv_text(["query-id", "corpus-id", "score"], HITS, "\t"),
        "trec.csv": "".join(f"{q},Q0,{p},1,{s},tag\n" for q, p, s in triples(HITS)).encode(),
        "pyterrier.tsv": b"qid\tdocid\tdocno\trank\tscore\tquery\n"
        + "".join(f"{q}\t100\t{p}\t0\t{s}\tsome words, said\n" for q, p, s in triples(HITS)).encode(),
        "rows.jsonl": json_lines(["query-id", "corpus-id", "score"], HITS),
        "hits.jsonl": "".join(json.dumps(row) + "\n" for row in nested).encode(),
        "ranx.parquet": parquet(path / "c", ["q_id", "doc_id", "score"], HITS),
    }


def zstd(raw):
    from backports import zstd as library

    return library.compress(raw)


PACKINGS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}


@pytest.mark.parametrize("packing", PACKINGS)
def test_labels_and_runs_are_read_in_every_form_and_packing(tmp_path: Path, packing: str) -> None:
    (tmp_path / "f").mkdir()
    for name, raw in as_labels(tmp_path).items():
        path = tmp_path / "f" / f"{name}{packing}"
        path.write_bytes(PACKINGS[packing](raw))
        if not (packing and "parquet" in name):
            assert read_qrels(path).labels == LABELS, name
    for name, raw in as_run(tmp_path).items():
        path = tmp_path / "f" / f"run-{name}{packing}"
        path.write_bytes(PACKINGS[packing](raw))
        if not (packing and "parquet" in name):
            assert {query: dict(row) for query, row in read_run(path).items()} == HITS, name


def test_ranks_without_scores_rank_and_scores_are_not_taken_for_ranks(tmp_path: Path) -> None:
    path = tmp_path / "run.tsv"
    path.write_text("1\t77\t1\n1\t88\t2\n1\t99\t3\n2\t88\t1\n")
    assert [passage for passage, _ in dict(read_run(path).ranked().items())["1"]] == ["77", "88", "99"]
    path.write_text("1\t77\t1\n1\t88\t2\n1\t99\t2\n2\t88\t1\n")
    assert [passage for passage, _ in dict(read_run(path).ranked().items())["1"]] == ["99", "88", "77"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x04\x22\x4d\x18d@\xa7", "LZ4"),
        (b"\x89HDF\r\n\x1a\n" + bytes(64), "HDF5"),
        (pickle.dumps(HITS), "pickle"),
        (b"PK\x03\x04" + bytes(64), "ZIP"),
        (b"\x93NUMPY" + bytes(64), "NumPy"),
        (b"PAR1" + bytes(64), "not a readable Parquet file"),
        (json.dumps(HITS).encode("utf-16"), "UTF-16"),
        (b'{"q1": {"d1": 1}, "q1": {"d2": 1}}', "'q1' appears twice"),
        (b'{"q1": {"d1": NaN}}', "nan is not finite"),
        (b'{"q1": {"d1": true}}', "contains neither"),
        (b'{"a": {"q1": {"d1": 1}}, "b": {"q1": {"d1": 1}}}', r"2 tables \(a, b\)"),
        (b'{"q1": ["d1", "d2"]}', "contains neither"),
        (b"[]", "a list of objects"),
        (b'{"q1"', "not JSON"),
        (b"query_id,doc_id\nq1,d1\n", "needs query-id, corpus-id and score"),
        (b"query_id,doc_id,score\nq1,d1\n", ":2: does not have the 3 columns"),
        (b"query_id,doc_id,score\nq1,,2\n", "no id"),
        (b"query_id,doc_id,score\nq1,d1,2\nq1,d1,3\n", "appears twice"),
        (b"query_id,doc_id,score\nq1,d1,high\n", "'high' is not a number"),
    ],
)  # fmt: skip
def test_what_is_no_run_is_refused_with_a_line(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "run"
    path.write_bytes(raw)
    with pytest.raises(AirgenError, match=message) as error:
        read_run(path)
    assert "\n" not in str(error.value)


def folder(path: Path, **texts: str) -> Path:
    (path / "corpus.jsonl").write_text('{"docno": "7", "contents": "oil the bearing"}\n{"id": "9", "text": "a belt"}\n')
    (path / "queries.jsonl").write_text('{"qid": "q2", "query": "which belt"}\n')
    for name, text in texts.items():
        file = path / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("qrels__test_dot_csv", "test"),
        ("qrels__dev_dot_csv", "dev"),
        ("qrels_dot_csv", "test"),
        ("qrels_dot_dev_dot_csv", "dev"),
        ("qrels-train_dot_csv", "train"),
        ("qrels__test-00000-of-00001_dot_csv", "test"),
    ],
)
def test_labels_of_a_folder_are_found_by_their_names(tmp_path: Path, name: str, split: str) -> None:
    text = "query-id,corpus-id,score\nq2,9,1\n"
    dataset = BeirDataset.open(folder(tmp_path, **{name: text, "qrels_README_dot_txt": "about the labels"}))
    assert dataset.splits == [split]
    assert dataset.qrels(split).labels == {"q2": {"9": 1.0}}
    assert [passage.id for passage in dataset.passages()] == ["7", "9"]
    assert dataset.queries()["q2"].text == "which belt"


def test_a_folder_with_another_layout_names_what_must_be_converted(tmp_path: Path) -> None:
    (tmp_path / "collection.tsv").write_text("7\toil the bearing\n")
    with pytest.raises(DatasetError, match=r"corpus\.jsonl .*missing; convert collection\.tsv to it"):
        BeirDataset.open(tmp_path)
