"""The BEIR reader on good directories, odd ones and broken ones."""

import gzip
import json
from pathlib import Path

import pytest
from refusals import refused

from airgen.dataset.beir import BeirDataset, read_qrels
from airgen.errors import DatasetError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "title": "T", "text": "one"}\n{"_id": 2, "text": "two"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "first", "metadata": {"type": "claim"}}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\t2\t0\n")
    return tmp_path


def test_a_plain_directory(folder):
    dataset = BeirDataset.open(folder)
    assert [(passage.id, passage.title, passage.text) for passage in dataset.passages()] == [
        ("d1", "T", "one"),
        ("2", "", "two"),
    ]
    assert dataset.queries()["q1"].metadata == {"type": "claim"}
    assert dataset.qrels("test").labels == {"q1": {"d1": 1.0, "2": 0.0}}
    assert dataset.splits == ["test"]
    assert dataset.name == folder.name
    (folder / "manifest.json").write_text('{"info": {"name": "mine", "task": "long-doc"}}')
    dataset = BeirDataset.open(folder)
    assert (dataset.name, dataset.info["task"]) == ("mine", "long-doc")


def test_gzip_changes_neither_content_nor_digest(folder):
    plain = BeirDataset.open(folder).digest()
    corpus = folder / "corpus.jsonl"
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(corpus.read_bytes()))
    corpus.unlink()
    assert BeirDataset.open(folder).digest() == plain
    assert len(list(BeirDataset.open(folder).passages())) == 2
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(b'{"_id": "d1", "text": "x"}\n' * 50)[:-12])
    with pytest.raises(DatasetError):
        list(BeirDataset.open(folder).passages())


def test_the_digest_follows_every_file(folder):
    seen = {BeirDataset.open(folder).digest()}
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        path = folder / name
        path.write_text(path.read_text() + "\n")
        seen.add(BeirDataset.open(folder).digest())
    assert len(seen) == 4


@pytest.mark.parametrize(
    "text",
    [
        "query-id\tcorpus-id\tscore\r\nq1\td1\t2\r\n",
        "\ufeffquery-id\tcorpus-id\tscore\nq1\td1\t2\n",
        "q1\td1\t2\n",  # no header
        "q1 0 d1 2\n",  # TREC
        "\nq1\td1\t2\n\n",
        "q1\td1\t2\nq1\td1\t2\n",  # said twice
    ],
)
def test_qrels_as_people_have_them(tmp_path, text):
    path = tmp_path / "test.tsv"
    path.write_text(text, encoding="utf-8", newline="")
    assert read_qrels(path).labels == {"q1": {"d1": 2.0}}


@pytest.mark.parametrize("keys", [("query-id", "corpus-id", "score"), ("qid", "docid", "relevance")])
def test_qrels_as_json_lines(tmp_path, keys):
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(dict(zip(keys, ("q 1", "d1", 0.5), strict=True))))
    assert read_qrels(path).labels == {"q 1": {"d1": 0.5}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query-id\tcorpus-id\tscore\nq1\td1\trelevant\n", r"test\.tsv:2: label 'relevant' is not a number"),
        ("q1\td1\tyes\n", r"test\.tsv:1: label 'yes'"),
        ("q1\td1\tnan\n", "not a finite number"),
        ("q1\td1\n", "2 columns"),
        ("q1\td1\t1\nq1\td1\t0\n", "two labels, 1 and 0"),
        ("query-id\tcorpus-id\tscore\n", "no labels"),
        ("", "no labels"),
    ],
)
def test_broken_qrels_name_the_line(tmp_path, text, message):
    path = tmp_path / "test.tsv"
    path.write_text(text)
    with pytest.raises(DatasetError, match=message):
        read_qrels(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "corpus.jsonl:3: not JSON"),
        (b"[1]", "corpus.jsonl:3: contains list"),
        (b'{"text": "x"}', "corpus.jsonl:3: no _id"),
        (b'{"_id": "d1", "text": "x"}', "corpus.jsonl:3: _id 'd1' appears twice"),
        (b'{"_id": "d3"}', "corpus.jsonl:3: no text"),
        (b'{"_id": "d3", "text": ["x"]}', "corpus.jsonl:3: text is list"),
        (b'{"_id": "d3", "text": "\xff"}', "not UTF-8"),
    ],
)
def test_a_broken_corpus_line(folder, line, message):
    with (folder / "corpus.jsonl").open("ab") as stream:
        stream.write(line + b"\n")
    with pytest.raises(DatasetError, match=message):
        list(BeirDataset.open(folder).passages())


def test_line_separators_inside_a_text_do_not_cut_it(folder):
    text = "one\u2028two\x85three"
    (folder / "corpus.jsonl").write_text(json.dumps({"_id": "d1", "text": text}, ensure_ascii=False) + "\n")
    assert [passage.text for passage in BeirDataset.open(folder).passages()] == [text]


def test_what_is_missing_is_named(folder):
    dataset = BeirDataset.open(folder)
    with refused(DatasetError, "unknown_name", "test", where=folder):
        dataset.qrels("tset")
    (folder / "manifest.json").write_text("{")
    with pytest.raises(DatasetError, match="not JSON"):
        BeirDataset.open(folder)
    (folder / "manifest.json").unlink()
    (folder / "qrels" / "test.tsv").unlink()
    with pytest.raises(DatasetError, match="no qrels"):
        BeirDataset.open(folder)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"queries\.jsonl .* is missing"):
        BeirDataset.open(folder)
    with pytest.raises(DatasetError, match="not a directory"):
        BeirDataset.open(folder / "nowhere")


def test_all_stands_for_every_split(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "text": "x"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "x"}\n{"_id": "q2", "text": "y"}\n')
    for split, query in (("dev", "q1"), ("test", "q2")):
        (tmp_path / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{query}\td\t1\n")
    dataset = BeirDataset.open(tmp_path)
    assert dataset.qrels("all").labels == {"q1": {"d": 1}, "q2": {"d": 1}}
    assert len({dataset.digest(split) for split in ("all", "dev", "test")}) == 3


@pytest.mark.parametrize(
    "text",
    [
        "q1 0 d1 2\nq1 0 d2 0\nq2 0 d1 1\n",  # TREC
        "q1\td1\t2\t0\nq1\td2\t0\t0\nq2\td1\t1\t0\n",  # as data frames are written
        "q1 3 d1 2\nq1 4 d2 0\nq2 3 d1 1\n",  # iterations that differ
        "iteration\tcorpus-id\tscore\tquery-id\n0\td1\t2\tq1\n0\td2\t0\tq1\n0\td1\t1\tq2\n",
        "qid\tdocid\trel\nq1\td1\t2\nq1\td2\t0\nq2\td1\t1\n",
    ],
)
def test_four_columns_in_any_order(tmp_path, text):
    (tmp_path / "q.tsv").write_text(text)
    assert read_qrels(tmp_path / "q.tsv").labels == {"q1": {"d1": 2.0, "d2": 0.0}, "q2": {"d1": 1.0}}


def test_four_columns_that_cannot_be_told_apart(tmp_path):
    (tmp_path / "q.tsv").write_text("q1\td1\tx\t1\nq1\td2\ty\t1\n")
    with pytest.raises(DatasetError, match=r"four columns in an unknown order .* give them a header"):
        read_qrels(tmp_path / "q.tsv")
