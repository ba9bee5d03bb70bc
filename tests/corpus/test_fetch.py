"""Fetching: complete or absent, checked, and nothing leaves the folder."""

import hashlib
import io
import json
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from corpus_maker import corpus, prose
from http_double import Quiet, serving

from airgen.corpus import prepare
from airgen.corpus.fetch import fetch, folder_of, is_fetched
from airgen.corpus.requirements import source_digest
from airgen.errors import CorpusError, FetchError, ModelError
from airgen.net import downloads
from airgen.net.downloads import unpack
from airgen.storage.paths import locked


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tar(path: Path, members: dict[str, bytes | tarfile.TarInfo], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as out:  # type: ignore[call-overload]
        for name, value in members.items():
            if isinstance(value, tarfile.TarInfo):
                out.addfile(value)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(value)
                out.addfile(info, io.BytesIO(value))
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def deb(path: Path, data: Path) -> Path:
    """A Debian package around a data archive: `ar` with three members."""
    parts = [("debian-binary", b"2.0\n"), ("control.tar.gz", b"odd"), (f"data.tar{data.suffix}", data.read_bytes())]
    out = b"!<arch>\n"
    for name, body in parts:
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
    path.write_bytes(out)
    return path


def made(tmp_path: Path, archive: Path, **more: Any) -> Any:
    settings = {"kind": "url", "url": archive.as_uri(), **more}
    return corpus(tmp_path, {"kind": "jsonl", "path": "data/c.jsonl"}, fetch=settings)


DATA = json.dumps({"_id": "a", "text": prose(1)}).encode()


def test_fetched_once_checked_and_read(tmp_path: Path, cache: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", {"data/c.jsonl": DATA, "other.txt": b"x"})
    settings = made(tmp_path, archive, sha256=hashlib.sha256(archive.read_bytes()).hexdigest(), members=["data/*"])
    assert not is_fetched(settings)
    with pytest.raises(CorpusError, match="airgen fetch made"):
        list(prepare(settings, "qa"))
    said: list[str] = []
    folder = fetch(settings, say=said.append)
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [".airgen-corpus.json", "c.jsonl"]
    assert [row.id for row in prepare(settings, "qa")] == ["a"]
    archive.unlink()
    assert fetch(settings, say=said.append) == folder and "already" in said[-1]
    (folder / ".airgen-corpus.json").unlink()  # a half-written folder is no corpus
    assert not is_fetched(settings)
    tar(archive, {"data/c.jsonl": DATA.replace(b'"a"', b'"b"')})
    fetch(made(tmp_path, archive, members=["data/*"]))
    with pytest.raises(CorpusError, match=r"sha256 is [0-9a-f]{64}, but fetch\.sha256 is [0-9a-f]{64}"):
        fetch(settings)
    assert not is_fetched(settings) and not list(cache.glob("corpora/.*"))
    for wrong, error, words in (
        (made(tmp_path, archive, members=["nothing/*"]), CorpusError, "no file that matches fetch"),
        (made(tmp_path, tmp_path / "none.tar"), FetchError, r"none\.tar"),
    ):
        with pytest.raises(error, match=words):
            fetch(wrong)


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/../../x", "..", "C:/x", "a\\..\\x"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_member_that_would_leave_the_folder_refuses_the_archive(tmp_path: Path, name: str, kind: str) -> None:
    archive, target = tmp_path / f"evil.{kind}", tmp_path / "in" / "deep"
    target.mkdir(parents=True)
    if kind == "tar":
        tar(archive, {name: b"x"}, "w")
    else:
        with zipfile.ZipFile(archive, "w") as out:
            out.writestr(zipfile.ZipInfo(name.replace("\\", "/") if "\\" in name else name), b"x")
    if kind == "zip" and "\\" in name:
        return  # zipfile has no such name
    with pytest.raises(FetchError, match="would leave the folder"):
        unpack(archive, target)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]


def test_files_are_taken_links_left_out_and_devices_refused(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    archive = tar(
        tmp_path / "a.tar", {"f": b"x", "l": link("l", "/etc/passwd"), "h": link("h", "f", tarfile.LNKTYPE)}, "w"
    )
    assert unpack(archive, target) == 1
    assert [path.name for path in target.iterdir()] == ["f"]
    (tmp_path / "plain.txt").write_text("text")
    assert unpack(tmp_path / "plain.txt", target) == 1
    data = tar(tmp_path / "data.xz", {"./usr/share/doc/x/a.html": b"<p>x", "./usr/bin/x": b"no"}, "w:xz")
    assert unpack(deb(tmp_path / "x.deb", data), target, ["usr/share/doc/*"]) == 1
    assert (target / "usr/share/doc/x/a.html").read_bytes() == b"<p>x"
    with pytest.raises(FetchError, match="device"):
        unpack(tar(tmp_path / "b.tar", {"d": link("d", "", tarfile.CHRTYPE)}, "w"), target)


@pytest.mark.parametrize("kind", ["deb", "zip", "tar.gz"])
def test_damaged_archives(tmp_path: Path, kind: str) -> None:
    data = tar(tmp_path / "data.xz", {f"f{n}": bytes(range(256)) * 40 for n in range(20)}, "w:xz")
    path = tmp_path / f"a.{kind}"
    if kind == "deb":
        deb(path, data)
    elif kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
            out.writestr("a", "abc" * 1000)
    else:
        tar(path, {"a": bytes(range(256)) * 999})
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(bytes(raw[: len(raw) * 3 // 4]) if kind != "zip" else bytes(raw[:40]) + b"!!!!" + bytes(raw[44:]))
    (tmp_path / "out").mkdir()
    with pytest.raises(FetchError):
        unpack(path, tmp_path / "out")


def test_archives_that_are_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes without end; names that are no text; more members than any corpus has."""
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(downloads, "MAX_BYTES", 1 << 20)
    archive = tar(tmp_path / "a.tar.gz", {"zeros": b"\0" * (3 << 20)})
    with pytest.raises(FetchError, match=r"unpacks to more than .* bytes; refused"):
        unpack(archive, tmp_path / "out")
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as out:
        for name in ("zeros", "more"):
            out.writestr(name, b"\0" * 600_000)
    with pytest.raises(FetchError, match=r"unpacks to more than 1,048,576 bytes; refused"):  # both together
        unpack(path, tmp_path / "out")
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("n", "x")
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"PK\1\2")
    for lengths in (26, entry + 28):  # the only letter of the name becomes an extra field of one byte
        raw[lengths : lengths + 4] = b"\0\0\1\0"
    path.write_bytes(raw)
    with pytest.raises(FetchError, match="the member '' would leave the folder"):
        unpack(path, tmp_path / "out")
    with zipfile.ZipFile(path, "w") as out:
        for name in ("né", "b"):
            out.writestr(name, "x")
    good = path.read_bytes()
    path.write_bytes(good.replace("né".encode(), b"n\xff\xff"))  # the archive says that its names are UTF-8
    with pytest.raises(FetchError, match="damaged or protected archive"):
        unpack(path, tmp_path / "out")
    path.write_bytes(good)
    monkeypatch.setattr(downloads, "MAX_MEMBERS", 1)
    with pytest.raises(FetchError, match="more than 1 members"):
        unpack(path, tmp_path / "out")


def test_the_source_digest_follows_the_text(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(DATA)
    local = corpus(tmp_path, {"kind": "jsonl", "path": "c.jsonl"})
    first = source_digest(local)
    assert source_digest(local) == first
    (tmp_path / "c.jsonl").write_bytes(DATA + b"\n")
    assert source_digest(local) != first
    one, two = (tar(tmp_path / f"{n}.tar.gz", {"data/c.jsonl": DATA + b"\n" * n}) for n in range(2))
    settings = [made(tmp_path, one), made(tmp_path, two)]
    for each in settings:
        fetch(each)
    assert source_digest(settings[0]) != source_digest(settings[1])
    assert len(source_digest(corpus(tmp_path, {"kind": "python-topics"}))) == 32


class Endless(Quiet):
    """Sends zeros without end, or what is no HTTP."""

    def do_GET(self) -> None:
        if self.path == "/odd":
            self.wfile.write(b"\x1b[2J no HTTP\n\n")
            return
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(bytes(1 << 16))


@pytest.mark.parametrize(
    ("path", "words"), [("/endless", r"larger than .* bytes; refused"), ("/odd", r"/odd: .*no HTTP")]
)
def test_a_server_that_sends_without_end_or_no_http(
    path: str, words: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MAX_BYTES", 1 << 20)
    with serving(Endless) as server:
        fetching = {"kind": "url", "url": f"http://127.0.0.1:{server.server_port}{path}"}
        with pytest.raises(FetchError, match=words):
            fetch(corpus(tmp_path, {"kind": "jsonl", "path": "c.jsonl"}, fetch=fetching))
    assert list((cache / "corpora").iterdir()) == []


@pytest.mark.parametrize("name", ["a.zip", "A.TAR.GZ", "a.tgz", "a.whl", "a.tar.zst"])
@pytest.mark.parametrize("body", [b"<h1>Bad Gateway</h1>", b"PK\3\4 and no more", b"\x28\xb5\x2f\xfd" * 200])
def test_what_is_named_as_an_archive_is_no_document(tmp_path: Path, name: str, body: bytes) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / name).write_bytes(body)
    with pytest.raises(FetchError, match=r"^[aA]\..* is not a zip or tar archive, despite its name; "):
        unpack(tmp_path / name, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_an_address_that_sends_nothing(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "c.jsonl").touch()
    with pytest.raises(FetchError, match=r"c\.jsonl: the server sent an empty file"):
        fetch(
            corpus(
                tmp_path,
                {"kind": "jsonl", "path": "c.jsonl"},
                fetch={"kind": "url", "url": (tmp_path / "c.jsonl").as_uri()},
            )
        )
    assert list((cache / "corpora").iterdir()) == []


class Elsewhere(Quiet):
    """Says that it continues, and sends the whole file; or leads nowhere."""

    def do_GET(self) -> None:
        if self.path == "/nowhere":
            self.send_response(302)
            self.send_header("Location", "//[")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206)
        if self.path == "/said":
            self.send_header("Content-Range", f"bytes 0-{len(DATA) - 1}/{len(DATA)}")
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        self.wfile.write(DATA)


def test_other_bytes_than_were_asked_for_are_not_appended(tmp_path: Path) -> None:
    with serving(Elsewhere) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        for place in ("said", "unsaid"):
            target = tmp_path / place
            target.write_bytes(b"the start of a file")
            downloads.from_address(f"{address}/{place}", target)
            assert target.read_bytes() == DATA
        with pytest.raises(FetchError, match="/nowhere: Invalid IPv6 URL"):
            downloads.from_address(f"{address}/nowhere", tmp_path / "nowhere")


class Cut(Quiet):
    """Serves one body, at first its first half; from where it is asked for."""

    body = b""
    whole = False
    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        self.send_response(416 if start >= len(self.body) else 206 if start else 200)
        self.send_header("Content-Length", str(max(0, len(self.body) - start)))
        if 0 < start < len(self.body):
            self.send_header("Content-Range", f"bytes {start}-{len(self.body) - 1}/{len(self.body)}")
        self.end_headers()
        self.wfile.write(self.body[start : None if self.whole else len(self.body) // 2])


def test_a_stopped_download_goes_on(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cut, "body", DATA)
    half = len(DATA) // 2
    with serving(Cut) as server:
        fetching = {"kind": "url", "url": f"http://127.0.0.1:{server.server_port}/data.jsonl"}
        fetching["sha256"] = hashlib.sha256(DATA).hexdigest()
        settings = corpus(tmp_path, {"kind": "jsonl", "path": "data.jsonl"}, fetch=fetching)
        with pytest.raises(FetchError, match="the partial download is kept: run the same command again to continue"):
            fetch(settings)
        monkeypatch.setattr(Cut, "whole", True)
        seen: list[int] = []
        fetch(settings, tick=seen.append)
        assert (folder_of(settings) / "data.jsonl").read_bytes() == DATA and seen[-1] == len(DATA)
        # A process that was killed before it unpacked leaves a whole file.
        partial = folder_of(settings).with_name(f".{folder_of(settings).name}.partial")
        partial.write_bytes(DATA)
        fetch(settings, force=True)
    assert Cut.asked == [None, f"bytes={half}-", f"bytes={len(DATA)}-", None]
    assert list((cache / "corpora").iterdir()) == [folder_of(settings)]
    target = tmp_path / "file"
    with locked(target), pytest.raises(ModelError, match="another process is writing"):
        downloads.from_address("http://127.0.0.1:9/file", target)
    assert target.is_file()  # the other one writes to it
