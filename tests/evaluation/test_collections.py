"""Lists of collections: read, fetched from a real server (stopped, resumed, spoiled), evaluated, and their own mean."""

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from beir_folder import write_beir
from command_line import call
from http_double import Quiet, serving

from airgen.commands.options import dataset_of
from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, FetchError, SettingsError, UsageError
from airgen.evaluation.collections import fetch_collection, load_collections, means_table, missing_sets
from airgen.evaluation.result import Paths, Result, load_result
from airgen.training.data import weighted_dataset

WORDS = {"p1": "cats sleep", "p2": "dogs run", "p3": "birds sing"}
ASKED = {"q1": ("cats", "p1"), "q2": ("dogs", "p2")}


class Archives(Quiet):
    """Serves archives by name, and what of them is asked for. `cut`: bytes after which the connection is dropped."""

    files: dict[str, bytes] = {}  # noqa: RUF012
    cut: int | None = None
    ranges = True
    asked: list[str | None] = []  # noqa: RUF012

    def do_GET(self) -> None:
        body, start = self.files.get(self.path, b""), 0
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        if not body:
            self.send_error(404)
            return
        if wanted and self.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        self.wfile.write(body[start:][: self.cut])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in (("files", {}), ("asked", []), ("cut", None), ("ranges", True)):
        monkeypatch.setattr(Archives, name, value)
    with serving(Archives) as http:
        yield f"http://127.0.0.1:{http.server_port}"


def packed(folder: Path, name: str, below: tuple[str, ...] = ("",), split: str = "test", **extra: bytes) -> bytes:
    """A set's archive as BEIR has it: everything in a folder of the set's name."""
    home = folder / "made" / name
    for part in below:
        corpus = [{"_id": key, "title": "", "text": text} for key, text in WORDS.items()]
        queries = [{"_id": key, "text": text} for key, (text, _) in ASKED.items()]
        write_beir(home / part, corpus, queries, {split: [(key, passage, 1) for key, (_, passage) in ASKED.items()]})
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(home.rglob("*.*")):
            archive.write(path, path.relative_to(home.parent).as_posix())
        for member, data in extra.items():
            archive.writestr(f"{name}/{member}", data)
    return target.getvalue()


@pytest.fixture
def listed(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of four sets, three of which the server has."""
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    Archives.files = {
        "/one.zip": packed(tmp_path, "one", more=b"not needed"),
        "/many.zip": packed(tmp_path, "many", ("a", "b")),
        "/trained.zip": packed(tmp_path, "trained", split="dev"),
    }
    common = {"queries": 2, "passages": 3}
    sets: list[dict[str, object]] = []
    for name in ("one", "many", "trained"):
        body = Archives.files[f"/{name}.zip"]
        sets.append({"name": name, **common, "bytes": len(body), "md5": hashlib.md5(body).hexdigest()})
    sets[1]["parts"] = ["a", "b"]
    sets[2] |= {"split": "dev", "in_domain": True}
    sets.append({"name": "closed", **common, "licence": "an agreement", "get": "sign it"})
    path = tmp_path / "little.yaml"
    path.write_text(json.dumps({"name": "little", "address": f"{server}/{{name}}.zip", "collections": sets}))
    return path


def test_from_fetching_to_the_mean(listed: Path, tmp_path: Path) -> None:
    assert {row["name"] for row in json.loads(call("fetch", listed, "--json"))} == {"one", "many", "trained"}
    found = load_collections(listed)
    assert [found.is_there(one) for one in found.collections] == [True, True, True, False]
    place = found.place(found.named("one"))
    assert sorted(path.name for path in place.iterdir()) == ["corpus.jsonl", "qrels", "queries.jsonl"]
    assert not list(place.parent.glob(".*"))  # neither archives nor temporary folders are left
    systems = tmp_path / "systems.yaml"
    systems.write_text("systems: [{name: bm25, kind: bm25}, {name: flat, kind: query-likelihood}]")
    printed = call("evaluate", listed, "--systems", systems, "--out", tmp_path / "out")
    assert "mean of 2" in printed and "trained (in-domain)" in printed
    for name, split in (("one", "test"), ("many-a", "test"), ("many-b", "test"), ("trained", "dev")):
        assert load_result(Paths.of(tmp_path / "out" / name / split, "bm25")) is not None
    assert "| one | 1.0000 | 1.0000 |" in (tmp_path / "out" / "little.md").read_text()


def test_a_stopped_download_goes_on(listed: Path) -> None:
    found = load_collections(listed)
    one, seen = found.named("one"), list[int]()
    Archives.cut = 300
    with pytest.raises(FetchError, match="run the same command again to continue"):
        fetch_collection(found, one)
    Archives.cut = None
    place = fetch_collection(found, one, seen.append)
    assert Archives.asked == [None, "bytes=300-"]
    assert seen[-1] == one.bytes and found.is_there(one) and (place / "qrels" / "test.tsv").is_file()
    assert fetch_collection(found, one) == place and len(Archives.asked) == 2  # what is there is not fetched again
    Archives.cut, Archives.ranges = 300, False  # a server without ranges sends all again
    with pytest.raises(FetchError):
        fetch_collection(found, found.named("many"))
    Archives.cut = None
    assert fetch_collection(found, found.named("many")).is_dir()


def test_what_arrives_is_checked(listed: Path, tmp_path: Path) -> None:
    found = load_collections(listed)
    one = found.named("one")
    good = Archives.files["/one.zip"]
    Archives.files["/one.zip"] = good[:-1] + bytes([good[-1] ^ 1])
    with pytest.raises(DatasetError, match="but the list has"):
        fetch_collection(found, one)
    Archives.files["/one.zip"] = good + b"more"
    with pytest.raises(FetchError, match="larger than"):
        fetch_collection(found, one)
    del Archives.files["/one.zip"]
    with pytest.raises(FetchError, match="404"):
        fetch_collection(found, one)
    assert not found.is_there(one)
    for name, error in (("../../evil.tsv", FetchError), ("corpus.jsonl", DatasetError)):
        body = packed(tmp_path / name.strip("./"), "one", **{name: b"{"}) if "evil" in name else spoiled(tmp_path)
        Archives.files["/one.zip"] = body
        changed = one.model_copy(update={"bytes": len(body), "md5": hashlib.md5(body).hexdigest()})
        with pytest.raises(error):
            fetch_collection(found, changed)
        assert not found.place(one).exists()


def spoiled(folder: Path) -> bytes:
    """An archive whose labels are no labels."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in ("corpus.jsonl", "queries.jsonl"):
            archive.write(folder / "made" / "one" / name, f"one/{name}")
        archive.writestr("one/qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\tp1\tperhaps\n")
    return target.getvalue()


def test_too_little_disk_is_said_before_the_download(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    found = load_collections(listed)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    with pytest.raises(DatasetError, match="set AIRGEN_CACHE to another disk"):
        fetch_collection(found, found.named("one"))
    assert Archives.asked == []


def test_sets_that_are_not_there_are_named(listed: Path, tmp_path: Path) -> None:
    found = load_collections(listed)
    with pytest.raises(UsageError, match=r"closed is not public \(an agreement\): sign it"):
        call("fetch", listed, "--only", "closed")
    with pytest.raises(UsageError, match=r"no dataset 'onee' \(did you mean 'one'"):
        call("fetch", listed, "--only", "onee")
    systems = tmp_path / "systems.yaml"
    systems.write_text("systems: [{name: bm25, kind: bm25}]")
    with pytest.raises(UsageError, match="one, many, trained not fetched: airgen fetch little"):
        call("evaluate", listed, "--systems", systems)
    # A set that is not public is used where somebody has put it.
    write_beir(found.place(found.named("closed")), [{"_id": "p", "text": "a cat"}], [{"_id": "q", "text": "cat"}],
               {"test": [("q", "p", 1)]})  # fmt: skip
    assert "closed" in call("evaluate", listed, "--systems", systems, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"md5": None}, "md5 and bytes belong together"),
        ({"md5": None, "bytes": None}, "`get` must say how"),
        ({"name": "../up"}, "should match pattern"),
        ({"parts": ["a/b"]}, "should match pattern"),
        ({"name": "many", "parts": ["a"]}, "many-a is listed twice"),
    ],
)
def test_lists_that_are_wrong(listed: Path, change: dict[str, object], words: str) -> None:
    value = json.loads(listed.read_text())
    value["collections"][0] |= change
    listed.write_text(json.dumps(value))
    with pytest.raises(SettingsError, match=words):
        load_collections(listed)


def test_the_mean_counts_a_set_of_parts_once_and_no_training_set(listed: Path) -> None:
    def result(system: str, dataset: str, score: float) -> Result:
        about = {"name": system, "dataset": dataset, "means": {"nDCG@10": score}, "headline": "nDCG@10"}
        made = object.__new__(Result)
        for name, value in about.items():
            object.__setattr__(made, name, value)
        return made

    scores = {"one": 0.4, "many-a": 0.5, "many-b": 0.7, "trained": 0.9}
    results = [result("x", name, score) for name, score in scores.items()]
    results += [result("y", name, 0.2) for name in ("one", "many-a", "trained")]  # it did not run on one part
    lines = means_table(load_collections(listed), results).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]] == [
        ["one", "0.4000", "0.2000"],
        ["many", "0.6000", ""],
        ["trained (in-domain)", "0.9000", "0.2000"],
        ["mean of 2", "0.5000", ""],
    ]


def test_sets_on_which_a_system_is_better_or_worse_than_bm25(listed: Path) -> None:
    """BEIR's Figure 3, over zero-shot sets; an equal score is neither, and a missing one does not count."""

    def result(system: str, dataset: str, score: float) -> Result:
        made = object.__new__(Result)
        about = {"name": system, "dataset": dataset, "means": {"nDCG@10": score}, "headline": "nDCG@10"}
        for name, value in about.items():
            object.__setattr__(made, name, value)
        return made

    table = {
        "BM25": {"one": 0.4, "many-a": 0.5, "many-b": 0.7, "trained": 0.9},
        "x": {"one": 0.5, "many-a": 0.1, "many-b": 0.1, "trained": 0.1},
        "y": {"one": 0.4, "trained": 1.0},
    }
    results = [result(system, name, score) for system, of in table.items() for name, score in of.items()]
    listed_sets = load_collections(listed)
    lines = means_table(listed_sets, results).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[-2:]] == [
        ["better than BM25", "0", "1", "0"], ["worse than BM25", "0", "1", "0"]
    ]  # fmt: skip
    lost = missing_sets(listed_sets, [one for one in results if one.dataset == "one"])
    public = "not fetched: many, trained (airgen fetch little)"
    assert lost == f"Without 3 of 4 sets; {public}; not public: closed (airgen show collections little)."
    assert "Without 1 of 4 sets; not public: closed" in missing_sets(listed_sets, results)


def test_the_list_that_ships_is_that_of_the_paper() -> None:
    beir = load_collections("beir")
    assert len(beir.collections) == 19 and [one.name for one in beir.collections if one.in_domain] == ["msmarco"]
    assert [one.name for one in beir.collections if one.md5 is None] == ["bioasq", "signal1m", "trec-news", "robust04"]
    assert len(beir.named("cqadupstack").members) == 12 and beir.named("msmarco").split == "dev"
    printed = call("show", "collections", "beir")
    assert "Apache-2.0" in printed and "sign NIST's agreement" in printed


def test_a_fetched_set_has_one_name_for_all_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: Path
) -> None:
    """A folder of that name comes first; a part of a set has the set's name before its own."""
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "cache" / "collections" / "beir"
    shutil.copytree(dataset, home / "scifact")
    shutil.copytree(dataset, home / "cqadupstack" / "android")
    assert BeirDataset.open("scifact").path == home / "scifact" == weighted_dataset("scifact=0.5")[0]
    assert BeirDataset.open("cqadupstack-android").path == home / "cqadupstack" / "android"
    (tmp_path / "s.yaml").write_text("systems: [{name: bm25, kind: bm25}]")
    assert "bm25" in call("evaluate", "scifact", "--systems", "s.yaml", "--out", "results")
    assert dataset_of("scifact") == home / "scifact"
    (tmp_path / "scifact").mkdir()
    assert dataset_of("scifact") == Path("scifact") == weighted_dataset("scifact")[0]
    for word in ("nfcorpus", "*", "../beir/scifact", "beir", ""):
        with pytest.raises(DatasetError):
            BeirDataset.open(word or "nothing")
