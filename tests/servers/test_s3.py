"""Corpora in object stores that nobody here wrote: moto, SeaweedFS, and rclone's server, which overwrites silently.

airgen reads corpora from stores and writes nothing there (tests/test_api.py: an address is refused where it writes).
"""

import contextlib
import gzip
import math
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import call
from dataset_maker import make_content
from job_maker import CORPUS, PIPELINE, make_corpus
from packages import package
from real_servers import S3_KEY, started
from refusals import refused

from airgen import models
from airgen.corpus.fetch import fetch, is_fetched
from airgen.corpus.settings import CorpusSettings
from airgen.dataset.beir import BeirDataset
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError, FetchError
from airgen.net import downloads
from airgen.storage.paths import cache_dir

fsspec = package("fsspec")
s3fs = package("s3fs")
pytestmark = [pytest.mark.servers, pytest.mark.filterwarnings("ignore")]
BLOCK = 1 << 20  # bytes that are read at once; s3fs reads 50 MB
LARGE = random.Random(0).randbytes(5 * BLOCK + 1)


class Store:
    """A running server, and a client of it that knows nothing of what airgen's client keeps."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url, self.port = name, url, int(url.rpartition(":")[2])
        self.client = s3fs.S3FileSystem(endpoint_url=url, key=S3_KEY[0], secret=S3_KEY[1], skip_instance_cache=True)


@pytest.fixture(scope="module", params=["moto", "seaweedfs", "rclone"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with started(request.param, tmp_path_factory.mktemp(request.param)) as url:
        yield Store(request.param, url)


@pytest.fixture
def store(server: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The server with an empty bucket `corpora`, its keys and address in the environment, small blocks."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "models").symlink_to(cache_dir("models"))
    for name, value in (("ACCESS_KEY_ID", S3_KEY[0]), ("SECRET_ACCESS_KEY", S3_KEY[1]), ("ENDPOINT_URL", server.url)):
        monkeypatch.setenv(f"AWS_{name}", value)
    # rclone answers a range with the checksum of the whole object, so the client stops unless it is configured.
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))  # no settings of the user
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(s3fs.S3FileSystem, "default_block_size", BLOCK)
    server.client.mkdir("corpora")
    yield server
    server.client.rm("corpora", recursive=True)


def corpus(url: str, **reader: str) -> CorpusSettings:
    values = yaml.safe_load(CORPUS) | {"fetch": {"kind": "storage", "url": url}}
    return CorpusSettings.model_validate(values | {"reader": {"kind": "jsonl", "path": "**/*", **reader}})


class Cutting:
    """A proxy that ends a connection after so many bytes of answers, `most` times in all."""

    def __init__(self, port: int, limit: int, most: float = math.inf) -> None:
        self.port, self.limit, self.most, self.cut = port, limit, most, 0

    def __enter__(self) -> "Cutting":
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                server = socket.create_connection(("127.0.0.1", self.port))
                for words in ((client, server, None), (server, client, self.limit)):
                    threading.Thread(target=self._pass_on, args=words, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                if left is not None and (left := left - len(piece)) < 0 and self.cut < self.most:
                    self.cut += 1
                    break
                target.sendall(piece)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def one_line(settings: CorpusSettings, code: str) -> None:
    """Fetching fails for this reason, in one line without the secret, and no reader sees anything of it."""
    with pytest.raises(FetchError) as caught:
        fetch(settings)
    assert caught.value.code == code, caught.value
    assert "\n" not in str(caught.value) and S3_KEY[1] not in str(caught.value)
    assert not is_fetched(settings)


# -- what holds -------------------------------------------------------------------------------------------------------


def test_a_job_on_a_corpus_of_the_store(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of several kinds, fetched, checked and run by the commands: the bytes of the same corpus on the disk."""
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen fetch tests")
    for name in ("local", "stored"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.yaml").write_text(PIPELINE, encoding="utf-8")
        (tmp_path / name / "small.yaml").write_text(CORPUS, encoding="utf-8")
    make_corpus(tmp_path / "local" / "small.jsonl", 60)
    lines = (tmp_path / "local" / "small.jsonl").read_bytes().splitlines(keepends=True)
    store.client.pipe("corpora/a/1.jsonl", b"".join(lines[:20]))
    store.client.pipe("corpora/a/2.jsonl.gz", gzip.compress(b"".join(lines[20:40])), ContentEncoding="gzip")
    store.client.pipe("corpora/b/3 \u00e9+#%20.jsonl", b"".join(lines[40:]))
    store.client.pipe("corpora/b/notes.txt", b"not wanted")
    settings = corpus("s3://corpora/*/*.jsonl*").model_dump(mode="json", include={"fetch", "reader"})
    (tmp_path / "stored" / "small.yaml").write_text(yaml.safe_dump(yaml.safe_load(CORPUS) | settings), "utf-8")
    for name in ("local", "stored"):
        monkeypatch.chdir(tmp_path / name)
        assert ("3 files, sha256" in call("fetch", "small.yaml")) == (name == "stored")
        assert "nothing is missing" in call("check", "job.yaml")
        call("run", "job.yaml", "--quiet")
    made = [
        {
            path.name: path.read_bytes()
            for part in ("*.jsonl", "qrels/*")
            for path in (tmp_path / name).glob(f"runs/job/dataset/{part}")
        }
        for name in ("local", "stored")
    ]
    assert made[0] == made[1] and {"corpus.jsonl", "queries.jsonl", "test.tsv"} <= made[0].keys()


def test_an_object_of_many_parts_is_read_by_ranges(store: Store) -> None:
    store.client.pipe("corpora/large.bin", LARGE, chunksize=5 << 20)
    asked: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        real = s3fs.S3FileSystem._call_s3

        async def call_s3(self: Any, method: str, *words: Any, **more: Any) -> Any:
            asked.append(more.get("Range", ""))
            return await real(self, method, *words, **more)

        patch.setattr(s3fs.S3FileSystem, "_call_s3", call_s3)
        folder = fetch(corpus("s3://corpora/large.bin"))
    assert (folder / "large.bin").read_bytes() == LARGE
    assert len([one for one in asked if one]) >= 3


def test_many_objects_and_what_changed_between_two_fetches(store: Store) -> None:
    store.client.pipe({f"corpora/many/{n // 100}/{n:03}.jsonl": b'{"id": "%d"}\n' % n for n in range(300)})
    settings = corpus("s3://corpora/many/*/*.jsonl")
    assert len([*fetch(settings).rglob("*.jsonl")]) == 300
    store.client.pipe("corpora/many/0/000.jsonl", b'{"id": "longer than before"}\n')
    store.client.pipe("corpora/many/9/new.jsonl", b"{}\n")
    folder = fetch(settings, force=True)
    assert (folder / "0" / "000.jsonl").read_bytes() == b'{"id": "longer than before"}\n'
    assert (folder / "9" / "new.jsonl").is_file() and len([*folder.rglob("*.jsonl")]) == 301


# -- what breaks ------------------------------------------------------------------------------------------------------


def test_a_lost_connection(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes back is not noticed; one that does not leaves nothing that a reader sees, and the rest goes on."""
    store.client.pipe({"corpora/a.bin": b"small", "corpora/b.bin": LARGE})
    settings = corpus("s3://corpora/*.bin")
    with Cutting(store.port, 700_000) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        one_line(settings, "store")
        assert proxy.cut >= 2
    opened: list[str] = []
    with monkeypatch.context() as patch, Cutting(store.port, 700_000, most=2) as proxy:
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        real = s3fs.S3FileSystem.open
        patch.setattr(
            s3fs.S3FileSystem, "open", lambda self, name, *more: opened.append(name) or real(self, name, *more)
        )
        assert (fetch(settings) / "b.bin").read_bytes() == LARGE
        assert proxy.cut >= 1
    assert opened == ["corpora/b.bin"]


def test_an_object_that_is_replaced_while_it_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never the beginning of one and the end of the other."""
    first, second = b"A" * len(LARGE), b"B" * len(LARGE)
    store.client.pipe("corpora/large.bin", first)
    settings, pieces = corpus("s3://corpora/large.bin"), list[int]()
    real = downloads._copy_bounded

    class Replaced:
        def __init__(self, source: Any) -> None:
            self.source = source

        def read(self, size: int) -> bytes:
            pieces.append(size)
            if len(pieces) == 4:
                store.client.pipe("corpora/large.bin", second)
            return bytes(self.source.read(size))

    monkeypatch.setattr(downloads, "_copy_bounded", lambda source, *more: real(Replaced(source), *more))
    one_line(settings, "replaced")
    assert (fetch(settings) / "large.bin").read_bytes() == second


def test_a_store_that_does_not_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"config_kwargs": {"read_timeout": 0.05, "retries": {"max_attempts": 0}}}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        one_line(corpus("s3://corpora/a.jsonl"), "timeout")


@pytest.mark.parametrize("url", ["s3://corpora/a.jsonl", "s3://corpora/*.jsonl"])
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({}, "no_object"),
        ({"bucket": "nobody-has-it"}, "no_object"),
        ({"AWS_SECRET_ACCESS_KEY": "another"}, "no_permission"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "no_permission"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "store"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "store"),
    ],
)
def test_one_line(store: Store, url: str, wrong: dict[str, str], code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if store.name == "moto" and len(wrong) == 1 and "KEY" in next(iter(wrong)):
        pytest.skip("moto takes every key")
    if code != "no_object":
        store.client.pipe("corpora/a.jsonl", b"{}\n")
    for name, value in wrong.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    one_line(corpus(url.replace("corpora", wrong.get("bucket", "corpora"))), code)


def test_a_dataset_that_was_half_copied(store: Store, tmp_path: Path) -> None:
    """airgen writes a dataset to a folder, whole or not at all. A copy through a store that stopped is not read."""
    write_dataset(tmp_path / "d", make_content())
    store.client.put(f"{tmp_path}/d/", "corpora/d/", recursive=True)
    for name, most in (("whole", None), ("half", 500)):
        store.client.get("corpora/d/", f"{tmp_path}/{name}/", recursive=True)
        data = (tmp_path / name / "corpus.jsonl").read_bytes()[:most]
        (tmp_path / name / "corpus.jsonl").write_bytes(data[: data.rfind(b"\n") + 1])
    assert verify(tmp_path / "whole") == [] and BeirDataset.open(tmp_path / "whole")
    with refused(DatasetError, "incomplete_file", where="corpus.jsonl"):
        BeirDataset.open(tmp_path / "half")
