"""Corpora from outside: every cleaner, the chunking of long documents, BEIR folders, archives."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from corpus_maker import corpus, prose
from hostile import HOSTILE, JSON, archive, broken, few
from hypothesis import given
from hypothesis import strategies as st

from airgen.corpus import prepare
from airgen.corpus.survey import survey
from airgen.errors import AirgenError
from airgen.net.downloads import unpack
from airgen.storage.records import Dropped, Passage, storable

WORDS = [prose(number, 40) for number in range(4)]
PIECES = [
    *WORDS,
    *(one.decode("utf-8", "surrogateescape")[:4_000] for one in HOSTILE),
    "name@example.org ", "+49 30 1234567 ", "12:30:45:" + "f" * 22 + "_x ", "2001:db8::1 ",
    "DE89 3704 0044 0532 0130 00 ",
    "4111 1111 1111 1111 ", "Mr. John Smith ", "# One\n\n",
    "Contents\n\n1 One ..... 3\n2 Two ..... 7\n\n", "\n\nReferences\n\n[1] ",
    "Accept all cookies. ", "Copyright 2020 ", "[a](b) " * 50, "<!-- ", "\u0301" * 500, "\u1100\u1161" * 200,
    "字" * 300, "\U0001f469\u200d" * 99,
    " " * 2_000, "\t\r\n\v\f\x1c\x85\u2028", "A. " * 400, "fuck " * 30,
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=40), max_size=8).map("".join)
CLEANING = {
    "min_tokens": 1, "max_tokens": 8192, "language": "drop", "boilerplate": "drop", "personal_data": "mask",
    "names": "titles", "offensive_share": 0.02, "exact_duplicates": "drop", "near_duplicates": {},
}  # fmt: skip


NAMES_OF_TABLES = st.sampled_from(
    [
        "text",
        "id",
        "title",
        "columns",
        "index",
        "data",
        "schema",
        "fields",
        "ids",
        "documents",
        "0",
        "1",
        "a.b",
        "mapping",
        "message",
        "messages",
        "role",
        "content",
        "children",
        "*",
        "",
    ]
)
TABLES = st.recursive(
    st.sampled_from(["some words of a text", "user", "a", "id", "text", 0, 1.5, None, True]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES_OF_TABLES, inner, max_size=4),
    max_leaves=14,
)


@few
@given(value=JSON | TABLES, kind=st.sampled_from(["json", "jsonl"]), indent=st.sampled_from([None, 1]))
def test_init_and_reader_take_any_json(value: Any, kind: str, indent: int | None, outcome: Any) -> None:
    """What `init` writes for a JSON file, its reader can read."""

    def read(folder: Path) -> Any:
        (folder / f"f.{kind}").write_text(json.dumps(value, indent=indent))
        reader = {**survey(folder).reader, "path": "."}
        return list(prepare(corpus(folder, reader), "qa"))

    assert_rows(outcome(read))


def assert_rows(found: Any) -> None:
    """Passages and drops that a database, a terminal and JSON can take, with ids that differ."""
    if isinstance(found, AirgenError):
        return
    assert all(isinstance(row, Passage | Dropped) for row in found)
    passages = [row for row in found if isinstance(row, Passage)]
    assert len({row.key for row in passages}) == len(passages)
    for row in passages:
        assert row.text.strip() and row.id
        assert storable(row.text) == row.text, "a lone surrogate or NUL was left"


@few
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=6),
    titles=st.lists(TEXTS, min_size=6, max_size=6),
    mode=st.sampled_from(["mask", "drop"]),
)
def test_cleaners(texts: list[str], titles: list[str], mode: str, outcome: Any) -> None:
    def read(folder: Path) -> Any:
        rows = ({"id": f"d{at}", "title": titles[at][:200], "text": text} for at, text in enumerate(texts))
        (folder / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")
        settings = corpus(folder, {"kind": "jsonl", "path": "f.jsonl"}, clean={**CLEANING, "personal_data": mode})
        return list(prepare(settings, "qa"))

    assert_rows(outcome(read))


@few
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=3),
    size=st.integers(8, 60),
    merge=st.booleans(),
    tokenizer=st.sampled_from(["words", "cl100k_base"]),
)
def test_long_documents(texts: list[str], size: int, merge: bool, tokenizer: str, outcome: Any) -> None:
    def read(folder: Path) -> Any:
        rows = ({"id": f"d{at}", "title": f"T {at}", "text": text} for at, text in enumerate(texts))
        (folder / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")
        parts = {"chunk_size": size, "chunk_overlap": size // 4, "merge": merge, "document": "" if merge else "d0"}
        reader = {"kind": "jsonl", "path": "f.jsonl"}
        return list(prepare(corpus(folder, reader, long_doc=parts, tokenizer=tokenizer), "long-doc"))

    found = outcome(read)
    assert_rows(found)


NAMES = st.sampled_from([
    "a", "a/b", "a/b/c", "", ".", "..", "../x", "/x", "a\\b", "C:x", "x" * 300, "a\x00b", "./a", "a/", "é", "\udcff",
])  # fmt: skip


def tar(entries: list[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as file:
        for name, data in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


@few
@given(
    entries=st.lists(st.tuples(NAMES, st.binary(max_size=20)), min_size=1, max_size=4),
    kind=st.sampled_from(["f.zip", "f.tar.gz", "f.deb"]),
    data=st.data(),
)
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_archives(entries: list[tuple[str, bytes]], kind: str, data: st.DataObject, outcome: Any) -> None:
    if kind == "f.zip":
        good = archive(*((name.encode("utf-8", "replace").decode() or "n", content) for name, content in entries))
    else:
        good = tar(entries)
    if kind == "f.deb":
        good = b"!<arch>\ndata.tar.gz/    0           0     0     100644  %-10d`\n" % len(good) + good
    content = data.draw(st.just(good) | broken(good))

    def read(folder: Path) -> Any:
        (folder / kind).write_bytes(content)
        unpack(folder / kind, folder / "out" / "deep")
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))

    found = outcome(read)
    if not isinstance(found, AirgenError):
        assert all(name in (kind, "out", "out/deep") or name.startswith("out/deep/") for name in found)
