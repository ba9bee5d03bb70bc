"""Corpora in a store that fsspec knows: its own stores in memory and on the disk stand for S3."""

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from airgen import downloads
from airgen.corpus.fetch import fetch, record
from airgen.corpus.settings import CorpusSettings, FetchSettings
from airgen.errors import CorpusError, FetchError

fsspec = pytest.importorskip("fsspec")


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


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for url, words in (
        ("memory://bucket/nothing/*.jsonl", "there is no such object: check the bucket"),
        ("memory://bucket/corpus", "there is no such object"),
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


def test_a_store_whose_package_is_missing() -> None:
    if __import__("importlib.util").util.find_spec("s3fs"):
        pytest.skip("s3fs is installed")
    with pytest.raises(FetchError, match=r"(?i)s3fs.*'airgen-bench\[storage\]'"):
        fetch(corpus("s3://bucket/x.jsonl"))
