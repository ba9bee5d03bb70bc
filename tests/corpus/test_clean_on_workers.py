"""A corpus that workers read and clean has the rows of one process: passages, drops, counts, order, and errors."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from corpus_maker import corpus, prose
from refusals import refused

from airgen.compute import _CURRENT
from airgen.compute.processes import Processes
from airgen.corpus import prepare, qa_passages
from airgen.corpus.readers import json_records
from airgen.corpus.readers.reader import ReaderSettings
from airgen.corpus.settings import CorpusSettings
from airgen.errors import CorpusError
from airgen.settings.compute import ComputeSettings
from airgen.storage.records import Document, Dropped, Passage
from airgen.training.mining.pairs import MiningSettings
from airgen.training.mining.sources import mine_sources

FULL = {"exact_duplicates": "drop", "near_duplicates": {}, "personal_data": "mask", "boilerplate": "drop",
        "min_tokens": 10}  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> Iterator[Processes]:
    with Processes(ComputeSettings(workers=2)) as compute:
        yield compute


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qa_passages, "PART_BYTES", 2000)
    monkeypatch.setattr(json_records, "_PART_BYTES", 2000)
    monkeypatch.setattr(qa_passages, "_MIN_PARALLEL_PARTS", 2)


@contextmanager
def using(pool: Processes | None) -> Iterator[None]:
    """Compute there what is done inside."""
    token = _CURRENT.set(pool)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def rows_of(settings: CorpusSettings, pool: Processes | None) -> tuple[list[Passage | Dropped], list[int], int]:
    """The rows, the steps of the progress, and how many batches went to workers."""
    steps: list[int] = []
    before = 0 if pool is None else pool.describe()["batches"]
    with using(pool):
        found = list(prepare(settings, "qa", progress=steps.append))
    return found, steps, 0 if pool is None else pool.describe()["batches"] - before


def same(settings: CorpusSettings, pool: Processes, sent: int) -> list[Passage | Dropped]:
    """The rows of one process, once workers have given the same in at least so many batches."""
    here, there = rows_of(settings, None), rows_of(settings, pool)
    assert there[0] == here[0] and sum(there[1]) == sum(here[1])
    assert there[2] >= sent if sent else not there[2]
    return here[0]


def texts(count: int) -> list[dict[str, Any]]:
    """Documents with every kind of duplicate of far earlier ones, and some that are dropped before or after these."""
    rows = [{"_id": f"d{number}", "title": f"T {number}", "text": prose(number)} for number in range(count)]
    rows += [
        {"_id": "short", "text": "too short"}, {"_id": "short", "text": prose(9000)},
        {"_id": "d1", "text": prose(9001)}, {"_id": "again", "title": "T 2", "text": prose(2)},
        {"_id": "again", "text": prose(2)},
        {"_id": "nearly", "title": "T 3", "text": prose(3, 59).replace(".", " indeed.")},
        {"_id": "brief", "text": "too short"}, {"_id": "mail", "text": f"{prose(9002)} Write to x@y.org."},
        {"_id": "menu", "text": "\n".join(f"Menu entry number {number}" for number in range(10))}, {"_id": "none"},
    ]  # fmt: skip
    return rows


def lines(count: int = 60) -> bytes:
    rows = [json.dumps(row).encode() for row in texts(count)]
    rows[5:5] = [b"", b"no json", b"[1]", b'{"_id": "\xff"}', b'{"_id": "long", "text": "' + b"x" * 9000 + b'"}']
    return b"\xef\xbb\xbf" + b"\r\n".join(rows)


@pytest.mark.parametrize("packed", [False, True])
def test_files_of_lines(packed: bool, tmp_path: Path, pool: Processes) -> None:
    (tmp_path / "deep").mkdir()
    data = lines()
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(data) if packed else data)
    (tmp_path / "deep" / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts(30)))
    (tmp_path / "deep" / "c.jsonl").write_text("")
    (tmp_path / "out.jsonl").symlink_to("/etc/hostname")
    rows = same(corpus(tmp_path, {"kind": "jsonl", "path": ".", "max_bytes": 3000}, clean=FULL), pool, 12)
    assert {(row.cleaner, row.reason) for row in rows if isinstance(row, Dropped)} == {
        ("reader", "not JSON"), ("reader", "not a JSON object"), ("reader", "broken UTF-8"), ("reader", "too large"),
        ("reader", "missing text"), ("reader", "link out of the folder"), ("length", "too short"),
        ("ids", "duplicate id"), ("exact duplicates", "exact duplicate"), ("near duplicates", "near duplicate"),
        ("boilerplate", "list of links or headings"), ("masked", "EMAIL"),
    }  # fmt: skip
    assert sum(isinstance(row, Passage) for row in rows) == 61


def test_a_folder_of_files(tmp_path: Path, pool: Processes) -> None:
    for number in range(30):
        text = f"<h1>CorpusPart {number}</h1><p>{prose(number)}</p><h2>More</h2><p>{prose(number % 25 + 500)}</p>"
        (tmp_path / f"{number}.html").write_text(text)
        (tmp_path / f"{number}.txt").write_text(prose(number % 20 + 1000) if number else "")
    (tmp_path / "rows.csv").write_text("id,text\n" + "".join(f"{number},{prose(number)}\n" for number in range(40)))
    readers = [{"kind": "html", "split": "sections"}, "text", {"kind": "csv", "fields": {"id": "id", "text": "text"}}]
    rows = same(corpus(tmp_path, {"kind": "files", "path": ".", "readers": readers}, clean=FULL), pool, 10)
    assert {Path(row.source).suffix for row in rows if isinstance(row, Passage)} == {".html", ".txt", ".csv"}


@pytest.mark.parametrize("personal", ["mask", "drop"])
def test_chunks(personal: str, tmp_path: Path, pool: Processes) -> None:
    long = [
        " ".join(prose(number + more) for more in range(3)) + " Mail a@b.org." * (number % 7 == 0)
        for number in range(50)
    ]
    rows = [{"_id": f"d{number % 45}", "text": text} for number, text in enumerate([" ", *long, long[4]])]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    clean, chunk = {**FULL, "personal_data": personal}, {"size": 40, "overlap": 8}
    found = same(corpus(tmp_path, {"kind": "jsonl", "path": "c.jsonl"}, clean=clean, chunk=chunk), pool, 8)
    assert {row.cleaner for row in found if isinstance(row, Dropped)} >= {"ids", "length", "exact duplicates"}
    assert any(isinstance(row, Passage) and row.start for row in found)


class Own:
    """A reader of one's own."""

    class Settings(ReaderSettings):
        pass

    def __init__(self, settings: Any, place: Any) -> None: ...

    def read(self) -> Iterator[Document]:
        yield from (Document(row["_id"], row.get("text", "")) for row in texts(40))


def test_documents_that_one_process_reads(tmp_path: Path, pool: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    (tmp_path / "corpus.jsonl").write_bytes(lines())
    same(corpus(tmp_path, {"kind": "test_clean_on_workers:Own"}, clean=FULL), pool, 8)
    same(corpus(tmp_path, {"kind": "beir", "path": "."}, clean=FULL, limit=25), pool, 4)
    same(corpus(tmp_path, {"kind": "beir", "path": "."}, clean=FULL), pool, 10)
    (tmp_path / "corpus.jsonl").write_bytes(lines(2)[:1500])
    same(corpus(tmp_path, {"kind": "beir", "path": "."}, clean=FULL), pool, 0)  # too little for workers


def test_pairs_that_are_mined_from_it(tmp_path: Path, pool: Processes) -> None:
    (tmp_path / "c.jsonl").write_bytes(lines())
    (tmp_path / "c.yaml").write_text(
        "{name: c, language: en, domain: d, licence: l, source: s, tokenizer: words, "
        "reader: {kind: jsonl, path: c.jsonl}}"
    )
    before = pool.describe()["batches"]
    for compute in (None, pool):
        with using(compute):
            mine_sources([str(tmp_path / "c.yaml")], tmp_path / str(bool(compute)), MiningSettings())
    found = [
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()}
        for name in ("True", "False")
    ]
    assert found[0] == found[1] and len(found[0]["queries.jsonl"].splitlines()) > 50
    assert pool.describe()["batches"] > before


def test_errors_are_those_of_one_process(tmp_path: Path, pool: Processes) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts(40)))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines())[:-40])
    wrong = {"kind": "jsonl", "path": "a.jsonl", "fields": {"id": "_id", "text": "txt"}}
    for reader, words in (
        (wrong, "a.jsonl: no column 'txt' .did you mean 'text'"),
        ({"kind": "jsonl", "path": "."}, "b.jsonl.gz: the gzip ends early"),
        ({"kind": "jsonl", "path": "none"}, "no such file"),
    ):
        for compute in (None, pool):
            with pytest.raises(CorpusError, match=words):
                rows_of(corpus(tmp_path, reader, clean=FULL), compute)
    for number in range(9):
        (tmp_path / f"{number}.csv").write_text(f"id,text\n1,{prose(number)}\n" if number != 4 else "x,y\n1,2\n")
    for compute in (None, pool):
        with refused(CorpusError, "unknown_column", "x", "y", where="4.csv"):
            rows_of(corpus(tmp_path, {"kind": "csv", "path": "*.csv"}, clean=FULL), compute)


def test_a_worker_with_other_packages_is_refused(
    tmp_path: Path, pool: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qa_passages, "package_versions", lambda: {"tiktoken": "0.0"})
    (tmp_path / "a.jsonl").write_bytes(lines())
    with pytest.raises(
        CorpusError, match=r"other versions of the cleaning packages \(tiktoken \d.*this machine has 0\.0\)"
    ):
        rows_of(corpus(tmp_path, {"kind": "jsonl", "path": "a.jsonl"}, clean=FULL), pool)
