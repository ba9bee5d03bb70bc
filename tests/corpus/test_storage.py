"""Corpora in a store that fsspec knows: its own stores in memory and on the disk stand for S3."""

import hashlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packages import package
from pydantic import ValidationError

from airgen.corpus.fetch import fetch, is_fetched, record
from airgen.corpus.settings import CorpusSettings, FetchSettings
from airgen.errors import CorpusError, FetchError
from airgen.net import downloads

fsspec = package("fsspec")


@pytest.fixture(autouse=True)
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """Objects of a store in memory."""
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    objects = {f"part-{number}.jsonl": b'{"id": "%d"}\n' % number for number in range(3)}
    objects |= {"deep/er/part-9.jsonl": b"{}\n", "notes.txt": b"no"}
    store = fsspec.filesystem("memory")
    for name, data in objects.items():
        store.pipe(f"/bucket/corpus/{name}", data)
    yield objects
    store.rm("/bucket", recursive=True)


def corpus(url: str, **more: object) -> CorpusSettings:
    values = {
        "name": "stored", "language": "en", "domain": "test", "licence": "CC0-1.0", "source": "a test",
        "reader": {"kind": "jsonl", "path": "*.jsonl"}, "fetch": {"kind": "storage", "url": url, **more},
    }  # fmt: skip
    return CorpusSettings.model_validate(values)


def test_many_objects(bucket: dict[str, bytes]) -> None:
    settings = corpus("memory://bucket/corpus/*.jsonl")
    folder = fetch(settings)
    names = [f"part-{number}.jsonl" for number in range(3)]
    assert {path.name: path.read_bytes() for path in folder.glob("*.jsonl")} == {name: bucket[name] for name in names}
    lines = "".join(f"{name} {hashlib.sha256(bucket[name]).hexdigest()}\n" for name in names)
    assert record(settings)["sha256"] == hashlib.sha256(lines.encode()).hexdigest()
    deep = fetch(corpus("memory://bucket/corpus/**/*.jsonl"))
    assert (deep / "deep" / "er" / "part-9.jsonl").read_bytes() == b"{}\n"


def test_one_object_or_archive(tmp_path: Path, bucket: dict[str, bytes]) -> None:
    digest = hashlib.sha256(bucket["part-1.jsonl"]).hexdigest()
    folder = fetch(corpus("memory://bucket/corpus/part-1.jsonl", sha256=digest))
    assert [path.name for path in folder.glob("*.jsonl")] == ["part-1.jsonl"]
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as out:
        out.writestr("inner/a.jsonl", "{}\n")
    assert (fetch(corpus(f"file://{tmp_path}/all.zip")) / "inner" / "a.jsonl").is_file()


def test_what_changed_in_the_store_is_seen(bucket: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process: a client keeps listings and keys of an earlier call."""
    settings, asked = corpus("memory://bucket/corpus/*.jsonl"), list[object]()
    kind = type(fsspec.filesystem("memory"))
    glob = kind.glob
    monkeypatch.setattr(kind, "glob", lambda store, *words, **more: asked.append(store) or glob(store, *words, **more))
    fetch(settings)
    fsspec.filesystem("memory").pipe("/bucket/corpus/part-7.jsonl", b"{}\n")
    assert (fetch(settings, force=True) / "part-7.jsonl").is_file()
    assert len({id(store) for store in [*asked, fsspec.filesystem("memory")]}) == 3


def test_a_stopped_download_goes_on_with_what_is_the_same_in_the_store(
    bucket: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, store = corpus("memory://bucket/corpus/*.jsonl"), fsspec.filesystem("memory")
    opened: list[str] = []
    real = type(store).open

    def breaking(self: object, name: str, mode: str = "rb", **more: object) -> object:
        opened.append(name.rpartition("/")[2])
        if len(opened) == 3:
            raise OSError("the connection broke")
        return real(self, name, mode, **more)

    monkeypatch.setattr(type(store), "open", breaking)
    with pytest.raises(FetchError, match=r"the connection broke; the partial download is kept: run the same command"):
        fetch(settings)
    assert not is_fetched(settings)
    store.pipe("/bucket/corpus/part-1.jsonl", b'{"id": "new"}\n')
    opened.clear()
    folder = fetch(settings)
    assert opened == ["part-1.jsonl", "part-2.jsonl"]  # part-0 is here, and the same
    assert [(folder / f"part-{number}.jsonl").read_bytes() for number in range(3)] == [
        bucket["part-0.jsonl"], b'{"id": "new"}\n', bucket["part-2.jsonl"]
    ]  # fmt: skip
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_an_object_that_is_replaced_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that goes on in the middle of the new one: its beginning would be of the old one."""
    store, real = fsspec.filesystem("memory"), downloads._copy_bounded
    store.pipe("/bucket/corpus/large.bin", b"a" * (3 << 20))

    def replacing(*words: Any) -> int:
        store.pipe("/bucket/corpus/large.bin", b"b" * (2 << 20))
        return real(*words)

    with monkeypatch.context() as patch:
        patch.setattr(downloads, "_copy_bounded", replacing)
        with pytest.raises(
            FetchError, match=r"large\.bin was replaced while it was being read: run the same command again"
        ):
            fetch(corpus("memory://bucket/corpus/large.bin"))
    assert (fetch(corpus("memory://bucket/corpus/large.bin")) / "large.bin").stat().st_size == 2 << 20


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError("bucket"), "no such object"),
        (PermissionError("Forbidden"), "Forbidden: check the keys in the environment"),
        (TimeoutError(), "the store does not respond"),
        (OSError("Could not connect"), "Could not connect"),
    ],
)
def test_what_a_store_says_of_one_object_is_passed_on(error: Exception, words: str) -> None:
    def failing(*_: object) -> None:
        try:
            raise error
        finally:
            if isinstance(error, TimeoutError):
                error.args[0]  # so does s3fs, and raises an IndexError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsspec.implementations.memory.MemoryFileSystem, "info", failing)
        with pytest.raises(FetchError, match=rf"^memory://bucket/corpus/part-1\.jsonl: {words}"):
            fetch(corpus("memory://bucket/corpus/part-1.jsonl"))


def test_names_of_objects(tmp_path: Path) -> None:
    """A name can hold nearly everything; two that a file system takes for one are an error, and none is lost."""
    store = fsspec.filesystem("memory")
    for name in ("2026-11-25T10:00:00.jsonl", "a b+c%20[1]#é.jsonl"):
        store.pipe(f"/bucket/odd/{name}", b"{}\n")
        assert (fetch(corpus(f"memory://bucket/odd/{name}")) / name).is_file()
    with pytest.MonkeyPatch.context() as patch:
        two = {f"/bucket/{name}": {"type": "file", "size": 3} for name in ("a//b.jsonl", "a/b.jsonl")}
        patch.setattr(type(store), "glob", lambda *_, **__: two)
        patch.setattr(type(store), "open", lambda *_: (tmp_path / "x").open("w+b"))
        with pytest.raises(
            FetchError, match=r"'/bucket/a/b\.jsonl' and another object would have the same local file name"
        ):
            fetch(corpus("memory://bucket/*.jsonl"))


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for url, words in (
        ("memory://bucket/nothing/*.jsonl", "no such object: check the bucket"),
        ("memory://bucket/corpus", "no such object"),
        ("nostore://bucket/x", "nostore://bucket/x: .*nostore"),
    ):
        with pytest.raises(FetchError, match=words) as caught:
            fetch(corpus(url))
        assert "\n" not in str(caught.value)
    with pytest.raises(CorpusError, match="its sha256 is"):
        fetch(corpus("memory://bucket/corpus/*.jsonl", sha256="0" * 64))
    monkeypatch.setattr(downloads, "MOST_OBJECTS", 2)
    with pytest.raises(FetchError, match="3 objects match, more than 2"):
        fetch(corpus("memory://bucket/corpus/*.jsonl"))
    monkeypatch.setattr(downloads, "MOST_OBJECTS", 9)
    monkeypatch.setattr(downloads, "MAX_BYTES", 4)
    with pytest.raises(FetchError, match=r"has more than .* bytes; refused"):
        fetch(corpus("memory://bucket/corpus/*.jsonl"))


@pytest.mark.parametrize("url", ["s3://KEY:topsecret@bucket/x", "bucket/x"])
def test_an_address_without_a_store_or_with_a_key(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        FetchSettings.model_validate({"kind": "storage", "url": url})
    (problem,) = caught.value.errors(include_input=False)
    assert "topsecret" not in str(problem) and ("key" in problem["msg"] or "store" in problem["msg"])


def test_a_store_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    with pytest.raises(FetchError, match=r"(?i)s3fs.*'airgen-bench\[storage\]'"):
        fetch(corpus("s3://bucket/x.jsonl"))
