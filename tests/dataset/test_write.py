"""Directories: the same bytes for the same content, whole or not there, and a clear error for what cannot be."""

import dataclasses
import hashlib
import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dataset_maker import INFO, make_content
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airgen.dataset.beir import BeirDataset
from airgen.dataset.content import CorpusRow, DatasetContent, QrelRow, QueryRow
from airgen.dataset.manifest import (
    count_words_and_characters,
    load_manifest,
    statistics_csv,
    statistics_markdown,
    table_rows,
)
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.storage.whole_files import building, git_blob_id, safe_name


def bytes_of(directory: Path) -> dict[str, bytes]:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().decode().split("\n") if line]


def test_rows_come_back_and_hashes_are_true(tmp_path: Path) -> None:
    content = make_content()
    manifest = write_dataset(tmp_path / "d", content)
    corpus = {row["_id"]: (row["title"], row["text"]) for row in lines_of(tmp_path / "d" / "corpus.jsonl")}
    assert corpus == {row.id: (row.title, row.text) for row in content.corpus}
    queries = lines_of(tmp_path / "d" / "queries.jsonl")
    assert {row["_id"]: row["text"] for row in queries} == {row.id: row.text for row in content.queries}
    assert queries[0]["metadata"] == {"split": "test", "length": "10to20", "rewritten": False, "type": "question"}
    tsv = (tmp_path / "d" / "qrels" / "dev.tsv").read_text()
    assert tsv == (
        "query-id\tcorpus-id\tscore\n"
        "q-02\tdoc002\t1\nq-02\tdoc003\t1\nq-02\tdoc004\t0\n"
        "q-05\tdoc005\t1\nq-05\tdoc006\t1\nq-05\tdoc007\t0\n"
    )
    third = lines_of(tmp_path / "d" / "qrels" / "dev.jsonl")[2]
    assert third == {"query-id": "q-02", "corpus-id": "doc004", "score": 0}
    graded = lines_of(tmp_path / "d" / "qrels-graded" / "test.jsonl")
    assert [row["score"] for row in graded[:6]] == [3, 2, 1, 3, 2, 0]  # q-00, then q-01 whose negative was not judged
    assert [row["score"] for row in lines_of(tmp_path / "d" / "qrels-soft" / "test.jsonl")[:3]] == [0.9, 0.6, 0.0]
    assert all(row["score"] == 1 for row in lines_of(tmp_path / "d" / "qrels-positives" / "test.jsonl"))
    for name, entry in manifest.files.items():
        data = (tmp_path / "d" / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry.bytes, entry.sha256)
    assert set(bytes_of(tmp_path / "d")) == set(manifest.files) | {"manifest.json"}
    assert load_manifest(tmp_path / "d") == manifest
    assert verify(tmp_path / "d") == []


def test_statistics_against_hand_counted_numbers(tmp_path: Path) -> None:
    corpus = [CorpusRow("a", "", "one two three"), CorpusRow("b", "four", "five 検索")]  # 3 and 1 + 1 + 2 tokens
    content = DatasetContent(
        info=INFO,
        corpus=corpus,
        queries=[QueryRow("q1", "two words", "dev"), QueryRow("q2", "and here are five words", "test")],
        qrels=[QrelRow("q1", "a", 1), QrelRow("q2", "a", 1), QrelRow("q2", "b", 0)],
    )
    statistics = write_dataset(tmp_path / "d", content).statistics
    assert (statistics.passages, statistics.mean_tokens) == (2, 3.5)
    dev, test = statistics.splits["dev"], statistics.splits["test"]
    assert (dev.queries, dev.mean_tokens, dev.positives, dev.hard_negatives) == (1, 2.0, 1, 0)
    assert (test.queries, test.mean_tokens, test.positives, test.hard_negatives) == (1, 5.0, 1, 1)
    assert count_words_and_characters("検索 re-rank 123") == 5
    counted = write_dataset(tmp_path / "d", dataclasses.replace(content, count_tokens=len)).statistics
    assert counted.mean_tokens == (len("one two three") + len("four five 検索")) / 2


def test_a_certain_label_is_two_and_one_positive(tmp_path: Path) -> None:
    """What its level, its gain and the counts say does not depend on it."""
    rows = make_content().qrels
    certain = [dataclasses.replace(row, score=2) if row.level == 3 else row for row in rows]
    more = [dataclasses.replace(rows[0], level=None, gain=None), *rows[1:]]
    one = write_dataset(tmp_path / "one", make_content(qrels=more))
    two = write_dataset(
        tmp_path / "two",
        make_content(qrels=[dataclasses.replace(certain[0], level=None, gain=None), *certain[1:]]),
    )
    scores = [[row["score"] for row in lines_of(tmp_path / "two" / name / "test.jsonl")[:3]]
              for name in ("qrels", "qrels-graded", "qrels-soft")]  # fmt: skip
    assert scores == [[2, 1, 0], [2, 2, 1], [1.0, 0.6, 0.0]]
    assert {row["score"] for row in lines_of(tmp_path / "two" / "qrels-positives" / "test.jsonl")} == {1, 2}
    assert one.statistics == two.statistics and verify(tmp_path / "two") == []


def test_tables_keep_hostile_text_in_its_cell(tmp_path: Path) -> None:
    info = dataclasses.replace(INFO, source='=HYPERLINK("x")|<b>\n# head', source_licence="CC|BY")
    rows = table_rows([write_dataset(tmp_path / "d", make_content(info=info))])
    table = statistics_markdown(rows)
    assert len(table.splitlines()) == 4  # head, rule, dev, test
    assert "<b>" not in table
    assert statistics_csv(rows).splitlines()[1].split(",")[4].startswith("\"'=HYPERLINK")


def test_order_of_rows_changes_no_byte(tmp_path: Path) -> None:
    content = make_content(n_documents=40, n_queries=20)
    write_dataset(tmp_path / "a", content)
    shuffle = random.Random(1)
    mixed = {
        name: shuffle.sample(list(getattr(content, name)), len(list(getattr(content, name))))
        for name in ("corpus", "queries", "qrels", "lineage")
    }
    write_dataset(tmp_path / "b", dataclasses.replace(content, **mixed))
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip)


@given(texts=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5), query=TEXT)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_comes_back(tmp_path: Path, texts: list[tuple[str, str]], query: str) -> None:
    corpus = [CorpusRow(f"d{i}", title, text) for i, (title, text) in enumerate(texts)]
    content = make_content(
        corpus=corpus, queries=[QueryRow("q", query, "test")], qrels=[QrelRow("q", "d0", 1)], lineage=[]
    )
    write_dataset(tmp_path / "d", content)
    reader = BeirDataset.open(tmp_path / "d")
    assert [(row.id, row.title, row.text) for row in reader.passages()] == [(r.id, r.title, r.text) for r in corpus]
    assert {key: row.text for key, row in reader.queries().items()} == {"q": query}
    assert [problem for problem in verify(tmp_path / "d") if problem.severity == "error"] == []


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_blob_ids_are_gits(tmp_path: Path) -> None:
    for data in (b"", b"hello\n", bytes(range(256)) * 9000):
        (tmp_path / "x").write_bytes(data)
        told = subprocess.run(["git", "hash-object", str(tmp_path / "x")], capture_output=True, text=True, check=True)
        assert git_blob_id(tmp_path / "x") == told.stdout.strip()


def test_a_replaced_export_is_the_new_one_whole(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", make_content(n_documents=30))
    bare = [QrelRow(row.query, row.document, row.score) for row in make_content().qrels]
    assert write_dataset(tmp_path / "d", make_content(qrels=bare)).variants == ("positives",)  # none without levels
    assert not (tmp_path / "d" / "qrels-graded").exists()
    assert verify(tmp_path / "d") == []
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_a_failure_or_a_full_disk_leaves_the_older_export(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: writing fails in the middle of the corpus."""
    resource = pytest.importorskip("resource")
    write_dataset(tmp_path / "d", make_content())
    before = bytes_of(tmp_path / "d")

    def breaking() -> Any:
        yield from make_content().corpus
        raise RuntimeError("the disk caught fire")

    for name in ("d", "new"):
        with pytest.raises(RuntimeError):
            write_dataset(tmp_path / name, make_content(corpus=breaking()))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(DatasetError, match="cannot be written: File too large"):
            write_dataset(tmp_path / "d", make_content(n_documents=5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert bytes_of(tmp_path / "d") == before
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_killed_between_the_two_renames_the_older_export_comes_back(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", make_content())
    dead = 2**22 + 12345  # above the largest process id
    (tmp_path / "d").rename(tmp_path / f".d.old-{dead}")
    (tmp_path / f".d.partial-{dead}").mkdir()
    (tmp_path / f".d.partial-{os.getppid()}").mkdir()  # of a process that lives
    with pytest.raises(DatasetError, match="corpus is empty"):
        write_dataset(tmp_path / "d", make_content(corpus=[], qrels=make_content().qrels))
    assert verify(tmp_path / "d") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".d.partial-{os.getppid()}", "d"]


def test_a_directory_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("three years of work")
    with pytest.raises(DatasetError, match="not replaced"):
        write_dataset(tmp_path / "home", make_content())
    assert (tmp_path / "home" / "thesis.txt").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(DatasetError, match="is not a directory"):
        write_dataset(tmp_path / "file", make_content())


BASE = make_content()
CORPUS, QUERIES, QRELS = list(BASE.corpus), list(BASE.queries), list(BASE.qrels)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"info": dataclasses.replace(INFO, name="a/b")}, "dataset name 'a/b' cannot be used"),
        ({"info": dataclasses.replace(INFO, name="..")}, r"dataset name '\.\.' cannot be used"),
        ({"info": dataclasses.replace(INFO, name="a..b")}, "cannot be used"),
        ({"info": dataclasses.replace(INFO, domain="")}, "dataset domain '' cannot be used"),
        ({"info": dataclasses.replace(INFO, task="chat")}, "task 'chat' is unknown: use one of qa, long-doc"),
        ({"corpus": [*CORPUS, CORPUS[3]]}, "document id 'doc003' appears twice"),
        ({"corpus": [*CORPUS, CorpusRow("z", "", " \n")]}, "document 'z' has no text"),
        ({"corpus": [*CORPUS, CorpusRow("z z", "", "x")]}, "document id 'z z' is empty or contains whitespace"),
        ({"corpus": [*CORPUS, CorpusRow("z", "", "\ud800")]}, "document 'z' cannot be written"),
        ({"corpus": CORPUS[:5]}, "3 labelled document.* not in the corpus, for example 'doc005'"),
        ({"queries": []}, "no query was accepted"),
        ({"queries": [*QUERIES, QUERIES[0]]}, "query id 'q-00' appears twice"),
        ({"queries": [*QUERIES, QueryRow("q-9", "?", "dev")]}, "query 'q-9' has no relevant document"),
        ({"queries": [*QUERIES, QueryRow("q-9", "", "dev")]}, "query 'q-9' has no text"),
        ({"queries": [*QUERIES, QueryRow("q-9", "?", "../x")]}, "has the split '../x'"),
        ({"queries": [*QUERIES, QueryRow("q-9", "?", "dev", {"type": 3})]}, "'type' is a int, elsewhere a str"),
        ({"queries": [*QUERIES, QueryRow("q-9", "?", "dev", {"type": ["x"]})]}, "is a list, not a scalar"),
        ({"qrels": [*QRELS, QRELS[0]]}, "'q-00' and document 'doc000' appears twice"),
        ({"qrels": [*QRELS, QrelRow("q-77", "doc000", 1)]}, "there is no such query"),
        ({"qrels": [*QRELS, QrelRow("q-00", "doc009", 3)]}, "score 3 is neither"),
        ({"qrels": [*QRELS, QrelRow("q-00", "doc009", 1, level=4)]}, "level 4"),
        ({"qrels": [*QRELS, QrelRow("q-00", "doc009", 1, gain=float("nan"))]}, "gain nan"),
    ],
)
def test_rows_that_cannot_be_are_refused_with_their_name(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DatasetError, match=words):
        write_dataset(tmp_path / "d", make_content(**changes))
    assert list(tmp_path.iterdir()) == []


def test_every_file_is_flushed_before_the_directory_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []

    def fsync(handle: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        assert (tmp_path / "d").exists() == (flushed[-1] == tmp_path)  # the parent after the rename, all else before it

    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not tell the names of open files")
    monkeypatch.setattr("os.fsync", fsync)
    write_dataset(tmp_path / "d", make_content())
    names = {path.name for path in flushed}
    assert {"corpus.jsonl", "queries.jsonl", "manifest.json", "qrels", "test.tsv"} <= names
    assert flushed[-1] == tmp_path


def test_a_directory_without_its_last_file_does_not_get_its_name(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"is incomplete: manifest\.json was not written"), building(tmp_path / "d"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "a\\b", "a\0", "c:"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(DatasetError, match="cannot be a part of a path"):
        safe_name(name)
