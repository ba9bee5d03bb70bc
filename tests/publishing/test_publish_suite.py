"""A whole suite goes to the Hub with one command: all of it or, after a failure, the rest of it. Nothing leaks."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command_line
import pytest
from dataset_maker import INFO, SECRET, make_content
from fake_hub import GOOD_TOKEN, READ_TOKEN, FakeHub, Fault

from airgen.dataset.beir import BeirDataset
from airgen.dataset.derive import derive
from airgen.dataset.manifest import load_manifest
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.publishing.publish import Published, plan_suite, publish
from airgen.publishing.suites import SUITE, key_of

constants = pytest.importorskip("huggingface_hub.constants")
from airgen.publishing.hub import Hub  # noqa: E402

PAGE = "my-org/notes"
WHERE = {"alpha": ("qa", "law", ""), "be-ta": ("qa", "law", ""), "book": ("long-doc", "law", "dev")}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with FakeHub() as running:
        yield running


def make_suite(home: Path, version: str = "26.11", documents: int = 12, names: tuple[str, ...] = tuple(WHERE)) -> Path:
    """A finished version of a suite; ids of documents and queries are of one dataset only."""
    out = home / "suites" / "notes" / version
    digests = {}
    for name in names:
        task, domain, split = WHERE.get(name, ("qa", "law", ""))
        content = make_content(documents, info=dataclasses.replace(INFO, name=name, task=task, domain=domain))
        mark = {"corpus": {"id"}, "queries": {"id"}, "qrels": {"query", "document"}}
        changed: dict[str, Any] = {
            field: [dataclasses.replace(row, **{key: f"{name}-{getattr(row, key)}" for key in keys}) for row in rows]
            for field, keys in mark.items()
            for rows in [list(getattr(content, field))]
        }
        write_dataset(home / "jobs" / version / name, dataclasses.replace(content, **changed))
        key = key_of(load_manifest(home / "jobs" / version / name))
        manifest = derive(home / "jobs" / version / name, out / key, split=split or None, version=version)
        digests[key] = manifest.digest
    (out / SUITE).write_text(json.dumps({"name": "notes", "version": version, "datasets": digests}))
    return out


def send(server: FakeHub, home: Path, work: Path, layout: Any = "airgen", **options: Any) -> list[Published]:
    shutil.rmtree(work, ignore_errors=True)
    hub = Hub(endpoint=server.url, token=GOOD_TOKEN, sleep=lambda _: None)
    return publish(plan_suite(home, PAGE, work, layout=layout, **{"private_qrels": ["test"], **options}), hub)


def state(server: FakeHub) -> dict[str, Any]:
    return {repo: (one.private, one.files, sorted(one.tags)) for repo, one in server.repositories.items()}


def download(server: FakeHub, repo: str, out: Path, token: str = READ_TOKEN) -> Path:
    from huggingface_hub import snapshot_download

    snapshot_download(
        repo, repo_type="dataset", endpoint=server.url, token=token, local_dir=out, cache_dir=out.parent / "cache",
        ignore_patterns=[".gitattributes"],
    )  # fmt: skip
    shutil.rmtree(out / ".cache", ignore_errors=True)
    return out


def assert_nothing_private_arrived(server: FakeHub, home: Path) -> None:
    arrived = server.public_bytes()
    lines = [line for line in arrived.split(b"\n") if len(line) < 400]
    pairs = 0
    for key in ("qa_law_en/alpha", "qa_law_en/be-ta"):
        dataset = BeirDataset.open(home / key)
        for query, documents in dataset.qrels("test").labels.items():
            for document in documents:
                pairs += 1
                assert not any(query.encode() in line and document.encode() in line for line in lines)
        assert any(b"doc002" in line and b"q-02" in line for line in lines)  # labels of dev did arrive
        assert load_manifest(home / key).digest.encode() not in arrived
        assert (home / key / "private/secret.key").read_bytes().strip() not in arrived
    assert pairs == 24
    assert SECRET.encode() not in arrived
    assert GOOD_TOKEN.encode() not in arrived


def test_a_suite_in_its_own_layout(server: FakeHub, tmp_path: Path) -> None:
    home = make_suite(tmp_path)
    sent = send(server, home, tmp_path / "work")
    assert [(one.repo, one.private) for one in sent] == [
        ("my-org/qrels-notes-qa_law_en-alpha", True),
        ("my-org/qrels-notes-qa_law_en-be-ta", True),
        ("my-org/notes-long-doc_law_en-book", False),
        ("my-org/notes-qa_law_en-alpha", False),
        ("my-org/notes-qa_law_en-be-ta", False),
        (PAGE, False),
    ]
    assert all(repo.tags.keys() == {"26.11"} for repo in server.repositories.values())
    assert_nothing_private_arrived(server, home)
    found = download(server, "my-org/notes-qa_law_en-alpha", tmp_path / "data")
    assert verify(found) == []
    assert BeirDataset.open(found).withheld == ["test"]
    assert BeirDataset.open(download(server, "my-org/notes-long-doc_law_en-book", tmp_path / "book")).splits == ["dev"]
    page = json.loads(server.repositories[PAGE].files["suite.json"])
    assert page["datasets"]["qa_law_en/alpha"] == {
        "repository": "my-org/notes-qa_law_en-alpha",
        "digest": load_manifest(found).digest,
    }
    assert b"/datasets/my-org/notes-qa_law_en-be-ta" in server.repositories[PAGE].files["README.md"]
    before = state(server)
    again = send(server, home, tmp_path / "work")
    assert [one.sent for one in again] == [()] * 6 and state(server) == before


def test_air_benchs_layout_is_read_by_its_loader_in_both_versions(
    server: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    utils = pytest.importorskip("air_benchmark.evaluation_utils")
    old, new = make_suite(tmp_path), make_suite(tmp_path, "26.12", documents=14)
    for home in (old, new, old):  # the first one again: it is still whole, and stays
        sent = send(server, home, tmp_path / "work", "air-bench")
    assert [one.sent for one in sent[:-1]] == [()] * 5
    assert all(len(one.commits) == 3 for repo, one in server.repositories.items() if repo != PAGE)
    assert {repo: one.private for repo, one in server.repositories.items()} == {
        "my-org/long-doc_law_en": False,
        "my-org/qrels-long-doc_law_en-dev": False,
        "my-org/qa_law_en": False,
        "my-org/qrels-qa_law_en-dev": False,
        "my-org/qrels-qa_law_en": True,
        PAGE: False,
    }
    for home in (old, new):
        assert_nothing_private_arrived(server, home)
    for repo in server.repositories:
        if repo != PAGE:
            download(server, repo, tmp_path / "AIR-Bench" / repo.partition("/")[2], GOOD_TOKEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for home, version in ((old, "26.11"), (new, "26.12")):
        loader = utils.DataLoader(version, cache_dir=str(tmp_path / f"cache-{version}"))
        group = {"task_type": "qa", "domain": "law", "language": "en", "dataset_name": "be-ta"}
        ours = BeirDataset.open(home / "qa_law_en/be-ta")
        assert set(loader.load_corpus(**group)) == {row.id for row in ours.passages()}
        for split in ("dev", "test"):
            assert loader.load_qrels(**group, split=split) == ours.qrels(split).labels
            assert set(loader.load_queries(**group, split=split)) == set(ours.qrels(split).labels)
        mine = BeirDataset.open(tmp_path / "AIR-Bench/qa_law_en" / version / "be-ta")
        assert mine.qrels("test").labels == ours.qrels("test").labels


def test_two_datasets_of_one_repository_one_after_the_other(server: FakeHub, tmp_path: Path) -> None:
    home = make_suite(tmp_path)
    send(server, home / "qa_law_en/alpha", tmp_path / "work", "air-bench")
    hub = Hub(endpoint=server.url, token=GOOD_TOKEN, sleep=lambda _: None)
    publish(plan_suite(home / "qa_law_en/be-ta", "my-org/other", tmp_path / "w2", layout="air-bench"), hub)
    card = server.repositories["my-org/qa_law_en"].files["README.md"].decode()
    for name in ("alpha", "be_ta"):
        assert f"corpus_{name}" in card
    assert "26.11/alpha/corpus.jsonl" in server.repositories["my-org/qa_law_en"].files


@pytest.mark.parametrize("layout", ["airgen", "air-bench"])
def test_stopped_anywhere_it_goes_on(server: FakeHub, tmp_path: Path, layout: str) -> None:
    home = make_suite(tmp_path)
    with FakeHub() as whole:
        send(whole, home, tmp_path / "work", layout)
        wanted = state(whole)

    class Killed(BaseException):
        pass

    stops = 0
    for left in range(3, 200, 9):
        real, calls = Hub._call, iter([None] * left)

        def call(*arguments: Any, real: Any = real, calls: Any = calls, **options: Any) -> Any:
            if next(calls, calls) is calls:
                raise Killed
            return real(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Hub, "_call", call)
            try:
                send(server, home, tmp_path / "work", layout)
            except Killed:
                stops += 1
                tagged = [repo for repo, one in server.repositories.items() if one.tags]
                written = [repo for repo, one in server.repositories.items() if len(one.commits) > 1]
                assert not tagged or len(written) == 6  # no tag before every file is there
                continue
            break
    assert stops > 3
    assert state(server) == wanted
    assert_nothing_private_arrived(server, home)


@pytest.mark.parametrize("fault", [{"status": 503, "times": 99}, {"drop": "after", "times": 1}])
def test_a_hub_that_breaks_in_the_middle(server: FakeHub, tmp_path: Path, fault: dict[str, Any]) -> None:
    home = make_suite(tmp_path)
    server.faults.append(Fault("commit", skip=3, **fault))
    if "status" in fault:
        with pytest.raises(DatasetError, match="publish again later to go on"):
            send(server, home, tmp_path / "work")
        assert not any(one.tags for one in server.repositories.values())
        server.faults.clear()
    send(server, home, tmp_path / "work")
    assert all(one.tags.keys() == {"26.11"} for one in server.repositories.values())
    assert all(len(one.commits) == 2 for one in server.repositories.values())


# -- bad input --------------------------------------------------------------------------------------------------------


def test_every_dataset_is_checked_before_anything_is_sent(server: FakeHub, tmp_path: Path) -> None:
    home = make_suite(tmp_path)
    for name, file in (("alpha", "corpus.jsonl"), ("be-ta", "queries.jsonl")):
        with (home / "qa_law_en" / name / file).open("a") as out:
            out.write("{}\n")
    with pytest.raises(DatasetError) as caught:
        send(server, home, tmp_path / "work")
    assert str(caught.value).startswith("nothing is published:\n")
    assert all(f"qa_law_en/{name} is not published" in str(caught.value) for name in ("alpha", "be-ta"))
    with pytest.raises(DatasetError, match=r"has no split 'tset' whose labels could be private \(it has: dev, test\)"):
        send(server, home, tmp_path / "work", private_qrels=["tset"])
    assert not server.requests


@pytest.mark.parametrize("layout", ["airgen", "air-bench"])
def test_a_version_that_is_published_with_other_data_stops_all(server: FakeHub, tmp_path: Path, layout: str) -> None:
    send(server, make_suite(tmp_path / "one"), tmp_path / "work", layout)
    other = make_suite(tmp_path / "two", documents=13)
    before, commits = state(server), server.requests["commit"]
    with pytest.raises(DatasetError, match=r"version 26\.11 is published with another"):
        send(server, other, tmp_path / "work", layout)
    assert (state(server), server.requests["commit"]) == (before, commits)


def test_a_public_repository_for_labels_stops_all(server: FakeHub, tmp_path: Path) -> None:
    server.create("my-org/qrels-qa_law_en")
    with pytest.raises(DatasetError, match="exists and is public, but private labels must not go there"):
        send(server, make_suite(tmp_path), tmp_path / "work", "air-bench")
    assert list(server.repositories) == ["my-org/qrels-qa_law_en"]


def test_two_datasets_of_one_name(server: FakeHub, tmp_path: Path) -> None:
    home = make_suite(tmp_path, names=("be-ta", "be_ta"))
    with pytest.raises(DatasetError, match="are both the split corpus_be_ta of its card"):
        send(server, home, tmp_path / "work", "air-bench")
    send(server, home, tmp_path / "work")  # our own layout keeps them apart
    shutil.copytree(home / "qa_law_en/be-ta", home / "qa_law_en/copy")
    value = json.loads((home / SUITE).read_text())
    value["datasets"]["qa_law_en/copy"] = value["datasets"]["qa_law_en/be-ta"]
    (home / SUITE).write_text(json.dumps(value))
    with pytest.raises(DatasetError, match=r"holds the dataset qa_law_en/be-ta, but suite\.json names another there"):
        send(server, home, tmp_path / "work")


def test_a_card_that_cannot_be_read(server: FakeHub, tmp_path: Path) -> None:
    server.create("my-org/qa_law_en", files={"README.md": b"---\nconfigs: [1, {a: b}]\n---\n"})
    with pytest.raises(DatasetError, match=r"qa_law_en: the configs of its README.md cannot be read: mend or delete"):
        send(server, make_suite(tmp_path), tmp_path / "work", "air-bench")


def test_the_command(server: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_suite(tmp_path)
    said = command_line.call("publish", home, "--repo", PAGE, "--private-qrels", "test", "--layout", "air-bench")
    assert "my-org/qrels-qa_law_en (private), version 26.11" in said
    assert said.rstrip().endswith("Nothing was sent. Add --yes to publish.")
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", GOOD_TOKEN)
    arguments = ("publish", home, "--repo", PAGE, "--private-qrels", "test", "--yes", "--json")
    assert {row["repo"] for row in json.loads(command_line.call(*arguments))} == set(server.repositories)
