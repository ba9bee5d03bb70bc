"""Publishing to a Hub on the loopback interface: what arrives, what must not, and what happens when it fails."""

import dataclasses
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from child import AIRGEN, finish
from command_line import call
from dataset_maker import INFO, SECRET, make_content
from fake_hub import GOOD_TOKEN, LARGE, READ_TOKEN, FakeHub, Fault

from airgen import models
from airgen.dataset.beir import BeirDataset
from airgen.dataset.content import CorpusRow, QrelRow
from airgen.dataset.derive import derive
from airgen.dataset.manifest import load_manifest
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError, UsageError
from airgen.publishing.publish import Published, plan, publish
from airgen.publishing.suites import SUITE, key_of

constants = pytest.importorskip("huggingface_hub.constants")
from airgen.publishing.hub import Hub

REPO, LABELS, PAGE = "my-org/weather-notes", "my-org/qrels-weather-notes", "my-org/notes"
WHERE = {"alpha": ("qa", "law", ""), "be-ta": ("qa", "law", ""), "book": ("long-doc", "law", "dev")}
QA = ("qa_law_en/alpha", "qa_law_en/be-ta")


def hub(server: FakeHub, token: str = GOOD_TOKEN, **options: Any) -> Hub:
    return Hub(endpoint=server.url, token=token, **{"sleep": lambda _: None, **options})


def send(
    server: FakeHub, home: Path, work: Path, repo: str = REPO, token: str = GOOD_TOKEN, **options: Any
) -> list[Published]:
    shutil.rmtree(work, ignore_errors=True)
    return publish(plan(home, repo, work, **{"private_qrels": ["test"], **options}), hub(server, token))


def local_files(directory: Path) -> dict[str, bytes]:
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def remote_files(server: FakeHub, repo: str) -> dict[str, bytes]:
    return {name: data for name, data in server.repositories[repo].files.items() if name != ".gitattributes"}


def state(server: FakeHub) -> dict[str, Any]:
    return {repo: (one.private, one.files, sorted(one.tags)) for repo, one in server.repositories.items()}


_SUITES = tempfile.TemporaryDirectory()


def make_suite(home: Path, version: str = "26.11", documents: int = 12, names: tuple[str, ...] = tuple(WHERE)) -> Path:
    """A finished version of a suite; ids of documents and queries are of one dataset only."""
    return Path(shutil.copytree(suite_of(version, documents, names), home / "suites" / "notes" / version))


@cache
def suite_of(version: str, documents: int, names: tuple[str, ...]) -> Path:
    """Equal suites are made once in a process."""
    home = Path(tempfile.mkdtemp(dir=_SUITES.name))
    out, digests = home / version, {}
    for name in names:
        task, domain, split = WHERE.get(name, ("qa", "law", ""))
        content = make_content(documents, info=dataclasses.replace(INFO, name=name, task=task, domain=domain))
        mark = {"corpus": {"id"}, "queries": {"id"}, "qrels": {"query", "document"}}
        changed: dict[str, Any] = {
            field: [dataclasses.replace(row, **{key: f"{name}-{getattr(row, key)}" for key in keys}) for row in rows]
            for field, keys in mark.items()
            for rows in [list(getattr(content, field))]
        }
        key = key_of(write_dataset(home / name, dataclasses.replace(content, **changed)))
        digests[key] = derive(home / name, out / key, split=split or None, version=version).digest
    (out / SUITE).write_text(json.dumps({"name": "notes", "version": version, "datasets": digests}))
    return out


def assert_nothing_private_arrived(server: FakeHub, *datasets: Path) -> None:
    """Search every byte that arrived for a public repository."""
    arrived = server.public_bytes()
    lines = [line for line in arrived.split(b"\n") if len(line) < 400]
    for dataset in datasets:
        for path in dataset.glob("qrels*/test.*"):
            assert path.read_bytes() not in arrived
            assert not any(line in arrived for line in path.read_bytes().splitlines()[path.suffix == ".tsv" :])
        tied = {
            split: [
                any(query.encode() in line and document.encode() in line for line in lines)
                for query, documents in BeirDataset.open(dataset).qrels(split).labels.items()
                for document in documents
            ]
            for split in ("dev", "test")
        }
        assert tied == {"dev": [True] * 6, "test": [False] * 12}  # labels of dev did arrive: the search finds something
        assert load_manifest(dataset).digest.encode() not in arrived
        assert (dataset / "private/secret.key").read_bytes().strip() not in arrived
    assert SECRET.encode() not in arrived and GOOD_TOKEN.encode() not in arrived


# -- one dataset ------------------------------------------------------------------------------------------------------


def test_the_life_of_a_dataset_on_the_hub(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    private, public = send(server, dataset, tmp_path / "work")
    assert (private.repo, private.private, public.repo, public.private) == (LABELS, True, REPO, False)
    assert server.repositories[LABELS].private and not server.repositories[REPO].private
    (work,) = (tmp_path / "work").glob("*/*")
    assert remote_files(server, REPO) == local_files(work / "public")
    assert remote_files(server, LABELS) == local_files(work / "labels")
    assert set(remote_files(server, LABELS)) == {
        "README.md", "manifest.json", "private/lineage.jsonl", "private/secret.key", "private/documents.jsonl",
        "queries.jsonl",
        *(f"qrels{kind}/test.{end}" for kind in ("", "-positives", "-graded", "-soft") for end in ("tsv", "jsonl")),
    }  # fmt: skip
    assert len(server.repositories[REPO].commits) == 2  # the Hub's own and ours
    assert public.revision == server.repositories[REPO].commits[-1].oid == server.repositories[REPO].tags["26.11"]
    assert_nothing_private_arrived(server, dataset)
    assert verify(work / "public") == verify(work / "labels") == []
    card = remote_files(server, REPO)["README.md"].decode()
    assert "qrels/test.jsonl" not in card and "The labels of `test` are private" in card
    # A newer version replaces the files; the tag of the older one stays.
    old = server.repositories[REPO].tags["26.11"]
    bare = [QrelRow(row.query, row.document, row.score) for row in make_content().qrels]
    newer = make_content(n_documents=13, info=dataclasses.replace(INFO, version="26.12"), qrels=bare)
    write_dataset(tmp_path / "new", newer)
    send(server, tmp_path / "new", tmp_path / "work2")
    (work,) = (tmp_path / "work2").glob("*/*")
    assert remote_files(server, REPO) == local_files(work / "public")
    assert "qrels-graded/dev.tsv" not in remote_files(server, REPO)
    tags = server.repositories[REPO].tags
    assert tags["26.11"] == old and set(tags) == {"26.11", "26.12"}


def test_everything_is_public_without_private_labels_and_large_files_go_the_large_way(
    server: FakeHub, tmp_path: Path
) -> None:
    write_dataset(tmp_path / "d", make_content(n_documents=200))
    (public,) = send(server, tmp_path / "d", tmp_path / "work", private_qrels=[])
    assert "qrels/test.tsv" in public.files and SECRET.encode() not in server.public_bytes()
    assert not any(name.startswith("private/") for name in remote_files(server, REPO))
    corpus = (tmp_path / "d" / "corpus.jsonl").read_bytes()
    assert len(corpus) > LARGE and corpus in server.repositories[REPO].large.values()
    assert remote_files(server, REPO)["corpus.jsonl"] == corpus


PLACES = ("create", "info", "refs", "tree", "preupload", "commit", "tag")


@pytest.mark.parametrize(
    "faults",
    [
        *([Fault(place, **fault) for place in PLACES] for fault in (
            {"status": 503}, {"status": 429}, {"drop": "before"}, {"drop": "after"})),
        [Fault("commit", status=412), Fault("commit", status=409)],  # another client committed meanwhile
    ],
)  # fmt: skip
def test_passing_faults_end_in_one_commit(server: FakeHub, dataset: Path, tmp_path: Path, faults: list[Fault]) -> None:
    server.create(REPO)  # what is there is asked for its tags; the other is made
    server.faults += [dataclasses.replace(fault) for fault in faults]
    send(server, dataset, tmp_path / "work")
    (work,) = (tmp_path / "work").glob("*/*")
    for repo, part in ((REPO, "public"), (LABELS, "labels")):
        assert remote_files(server, repo) == local_files(work / part)
        assert len(server.repositories[repo].commits) == 2 and set(server.repositories[repo].tags) == {"26.11"}
    assert not any(fault.times for fault in server.faults)
    assert_nothing_private_arrived(server, dataset)


@pytest.mark.parametrize(
    ("token", "words", "refused"),
    [("hf_" + "x" * 34, "HTTP 401 .*set HF_TOKEN", "info"), (READ_TOKEN, "HTTP 403 .*may not write", "create")],
)
def test_refusals_say_what_to_do_and_never_the_token(
    server: FakeHub, dataset: Path, tmp_path: Path, token: str, words: str, refused: str
) -> None:
    with pytest.raises(DatasetError, match=words) as caught:
        send(server, dataset, tmp_path / "work", token=token)
    assert token not in str(caught.value)
    assert server.requests[refused] == 1 and server.repositories == {}  # what cannot pass is not tried again


def test_the_hubs_own_pause_is_kept_and_said(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    pauses, said = list[float](), list[str]()
    server.create(REPO)
    server.faults.append(Fault("refs", status=429, times=2, retry_after=120))
    publish(plan(dataset, REPO, tmp_path / "work"), hub(server, sleep=pauses.append, say=said.append))
    assert pauses == [120.0, 120.0]
    assert said == [f"{REPO}: HTTP 429 from {server.url}, trying again in 120 s"] * 2


def test_a_hub_that_is_nowhere_ends_after_one_pause_that_is_said(dataset: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{free.getsockname()[1]}"
    pauses, said = list[float](), list[str]()
    hub = Hub(endpoint=nowhere, token=GOOD_TOKEN, sleep=pauses.append, say=said.append)
    with pytest.raises(DatasetError, match=f"no connection to {nowhere} .*check the network.*nothing was sent"):
        publish(plan(dataset, REPO, tmp_path / "work"), hub)
    assert len(pauses) == 1 and pauses[0] <= 3
    assert len(said) == 1 and f"no connection from {nowhere}, trying again in " in said[0]


def test_offline_says_so_at_once(
    server: FakeHub, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.retry_silent_hub()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    library = pytest.importorskip("huggingface_hub")
    library.close_session()  # sessions made before do not look at it
    pauses = list[float]()
    try:
        with pytest.raises(DatasetError, match="HF_HUB_OFFLINE is set"):
            publish(plan(dataset, REPO, tmp_path / "work"), hub(server, sleep=pauses.append))
    finally:
        library.close_session()
    assert pauses == []


def test_the_command_uses_the_environment_and_starts_dry(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    environment = {"HF_ENDPOINT": server.url, "HF_TOKEN": GOOD_TOKEN, "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    words = ("publish", dataset, "--repo", REPO, "--private-qrels", "test")
    dry = finish(AIRGEN, *words, **environment)
    assert dry.stdout.endswith("Nothing was uploaded. Add --yes to publish.\n") and server.arrived == []
    assert f"{LABELS} (private), version 26.11" in dry.stdout
    wet = finish(AIRGEN, *words, "--yes", "--json", **environment)
    assert [row["repo"] for row in json.loads(wet.stdout)] == [LABELS, REPO]
    assert "it/s]" not in wet.stderr and "%|" not in wet.stderr  # no bars on a pipe: their threads hang if it closes
    assert GOOD_TOKEN not in wet.stdout + wet.stderr + dry.stdout
    assert_nothing_private_arrived(server, dataset)


def test_a_folder_gets_what_the_hub_would(dataset: Path, tmp_path: Path) -> None:
    words = ("publish", dataset, "--private-qrels", "test", "--to", tmp_path / "out")
    said = call(*words)
    public, private = tmp_path / "out" / "weather-notes", tmp_path / "out" / "qrels-weather-notes"
    assert f"written to {public}" in said and f"written to {private}" in said
    uploads = plan(dataset, REPO, tmp_path / "work", private_qrels=["test"])
    assert [local_files(private), local_files(public)] == [local_files(upload.directory) for upload in uploads]
    assert private.stat().st_mode & 0o777 == 0o700
    assert [verify(public), verify(private)] == [[], []]
    assert not any("test" in path.name for path in (public / "qrels").rglob("*"))
    call(*words)  # the same again changes nothing
    write_dataset(dataset, make_content(n_documents=13))
    with pytest.raises(DatasetError, match="published versions never change"):
        call(*words)
    with pytest.raises(UsageError, match="--to FOLDER"):
        call("publish", dataset)


# -- a suite ----------------------------------------------------------------------------------------------------------


def test_a_suite_in_its_own_layout(server: FakeHub, tmp_path: Path) -> None:
    home = make_suite(tmp_path)
    sent = send(server, home, tmp_path / "work", PAGE)
    assert [(one.repo, one.private) for one in sent] == [
        ("my-org/qrels-notes-qa_law_en-alpha", True),
        ("my-org/qrels-notes-qa_law_en-be-ta", True),
        ("my-org/notes-long-doc_law_en-book", False),
        ("my-org/notes-qa_law_en-alpha", False),
        ("my-org/notes-qa_law_en-be-ta", False),
        (PAGE, False),
    ]
    assert all(repo.tags.keys() == {"26.11"} for repo in server.repositories.values())
    assert_nothing_private_arrived(server, *(home / key for key in QA))
    found = server.download("my-org/notes-qa_law_en-alpha", tmp_path / "data")
    assert verify(found) == [] and BeirDataset.open(found).withheld == ["test"]
    assert BeirDataset.open(server.download("my-org/notes-long-doc_law_en-book", tmp_path / "book")).splits == ["dev"]
    page = json.loads(server.repositories[PAGE].files["suite.json"])
    assert page["datasets"]["qa_law_en/alpha"] == {
        "repository": "my-org/notes-qa_law_en-alpha", "digest": load_manifest(found).digest,
    }  # fmt: skip
    assert b"/datasets/my-org/notes-qa_law_en-be-ta" in server.repositories[PAGE].files["README.md"]
    before = state(server)
    again = send(server, home, tmp_path / "work", PAGE)
    assert [one.sent for one in again] == [()] * 6 and state(server) == before


def test_air_benchs_layout_is_read_by_its_loader_in_both_versions(
    server: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    utils = pytest.importorskip("air_benchmark.evaluation_utils")
    old, new = make_suite(tmp_path), make_suite(tmp_path, "26.12", documents=14)
    for home in (old, new, old):  # the first one again: it is still whole, and stays
        sent = send(server, home, tmp_path / "work", PAGE, layout="air-bench")
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
    assert_nothing_private_arrived(server, *(home / key for home in (old, new) for key in QA))
    for repo in server.repositories.keys() - {PAGE}:
        server.download(repo, tmp_path / "AIR-Bench" / repo.partition("/")[2], GOOD_TOKEN)
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
    send(server, home / QA[0], tmp_path / "work", PAGE, layout="air-bench")
    send(server, home / QA[1], tmp_path / "work", "my-org/other", layout="air-bench", private_qrels=[])
    files = server.repositories["my-org/qa_law_en"].files
    assert all(f"corpus_{name}" in files["README.md"].decode() for name in ("alpha", "be_ta"))
    assert "26.11/alpha/corpus.jsonl" in files


@pytest.mark.parametrize("layout", ["airgen", pytest.param("air-bench", marks=pytest.mark.nightly)])
def test_stopped_anywhere_it_goes_on(server: FakeHub, tmp_path: Path, layout: str) -> None:
    home = make_suite(tmp_path)
    with FakeHub() as whole:
        send(whole, home, tmp_path / "work", PAGE, layout=layout)
        wanted = state(whole)

    class Killed(BaseException):
        pass

    stops, real = 0, Hub._call
    for left in range(3, 200, 14):
        calls = iter([None] * left)

        def call(*arguments: Any, calls: Any = calls, **options: Any) -> Any:
            if next(calls, calls) is calls:
                raise Killed
            return real(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Hub, "_call", call)
            try:
                send(server, home, tmp_path / "work", PAGE, layout=layout)
            except Killed:
                stops += 1
                tagged = [repo for repo, one in server.repositories.items() if one.tags]
                written = [repo for repo, one in server.repositories.items() if len(one.commits) > 1]
                assert not tagged or len(written) == 6  # no tag before every file is there
                continue
            break
    assert stops > 3
    assert state(server) == wanted
    assert_nothing_private_arrived(server, *(home / key for key in QA))


@pytest.mark.parametrize("fault", [{"status": 503, "times": 99}, {"drop": "after", "times": 1}])
def test_a_hub_that_breaks_in_the_middle(server: FakeHub, tmp_path: Path, fault: dict[str, Any]) -> None:
    home = make_suite(tmp_path)
    server.faults.append(Fault("commit", skip=3, **fault))
    if "status" in fault:
        with pytest.raises(DatasetError, match="publish again later to continue"):
            send(server, home, tmp_path / "work", PAGE)
        assert not any(one.tags for one in server.repositories.values())
        server.faults.clear()
        assert [one.sent == () for one in send(server, home, tmp_path / "work", PAGE)] == [True] * 3 + [False] * 3
    send(server, home, tmp_path / "work", PAGE)
    assert all(one.tags.keys() == {"26.11"} for one in server.repositories.values())
    assert all(len(one.commits) == 2 for one in server.repositories.values())


# -- what is refused, before anything is sent -------------------------------------------------------------------------


def test_words_that_cannot_be(dataset: Path, tmp_path: Path) -> None:
    for repo in ("weather", "a/b/c", "../x", "org/..", "org/na me", "org/a..b", "-x/y"):
        with pytest.raises(DatasetError, match=r"is not of the form ORG/NAME"):
            plan(dataset, repo, tmp_path / "work")
    with pytest.raises(DatasetError, match=r"has no split 'tset' whose labels could be private \(it has: dev, test\)"):
        plan(dataset, REPO, tmp_path / "work", private_qrels=["tset"])


def rewritten(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(home: Path) -> None:
        path = home / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return change


def a_pipe(home: Path) -> None:
    (home / "corpus.jsonl").unlink()
    os.mkfifo(home / "corpus.jsonl")


@pytest.mark.parametrize(
    "damage",
    [
        rewritten("queries.jsonl", '"metadata"', '"metadata": 3, "was"'),
        rewritten("queries.jsonl", '"_id"', '"name"'),
        rewritten("qrels/test.jsonl", '"score"', '"score": "high", "was"'),
        rewritten("corpus.jsonl", '"_id"', '"_id": [1], "was"'),
        pytest.param(a_pipe, marks=pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")),
    ],
    ids=["metadata", "query id", "score", "document id", "pipe"],
)
def test_rows_of_any_form_are_refused_before_they_are_used(
    dataset: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    home = Path(shutil.copytree(dataset, tmp_path / "damaged"))
    damage(home)
    with pytest.raises(DatasetError, match="is not published: "):
        call("publish", home, "--repo", REPO, "--private-qrels", "test")
    call("publish", "verify", home, code=1)


def edited(server: FakeHub, home: Path) -> Path:
    """Two datasets of a suite that were edited by hand."""
    for key, file in zip(QA, ("corpus.jsonl", "queries.jsonl"), strict=True):
        with (home / key / file).open("a") as out:
            out.write("{}\n")
    return home


def unfinished(server: FakeHub, home: Path) -> Path:
    (home / SUITE).unlink()
    return home


def told_by_their_ids(server: FakeHub, home: Path) -> Path:
    """A dataset whose negatives have ids of another kind."""
    extra = [CorpusRow(f"negative-{i}", "", "made up") for i in range(5)]
    content = make_content()
    labels = [QrelRow("q-00", row.id, 0) for row in extra]
    write_dataset(home / "told", make_content(corpus=[*content.corpus, *extra], qrels=[*content.qrels, *labels]))
    return home / "told"


def of_one_name(server: FakeHub, home: Path) -> Path:
    """A suite that names a dataset in the place of another."""
    shutil.copytree(home / QA[1], home / "qa_law_en/copy")
    value = json.loads((home / SUITE).read_text())
    value["datasets"]["qa_law_en/copy"] = value["datasets"][QA[1]]
    (home / SUITE).write_text(json.dumps(value))
    return home


def similar_names(server: FakeHub, home: Path) -> Path:
    return make_suite(home, names=("be-ta", "be_ta"))


def holding(repo: str, files: dict[str, bytes]) -> Callable[[FakeHub, Path], Path]:
    def create(server: FakeHub, home: Path) -> Path:
        server.create(repo, files=files)
        return home

    return create


def published_before(server: FakeHub, home: Path, layout: str) -> Path:
    """The same version of a suite with other data."""
    send(server, make_suite(home / "other", documents=13), home / "work", PAGE, layout=layout)
    return home


@pytest.mark.parametrize(
    ("arrange", "layout", "words"),
    [
        (edited, "airgen", r"^nothing is published:\n.*alpha is not published: .*SHA-256 differs.*\n.*be-ta is not "),
        (unfinished, "airgen", "not a finished version of a suite"),
        (told_by_their_ids, "airgen", r"this reveals their label \[mark\]: write export.ids: opaque"),
        (of_one_name, "airgen", r"holds the dataset qa_law_en/be-ta, but suite\.json names another there"),
        (similar_names, "air-bench", "are both the split corpus_be_ta of its card"),
        (holding("my-org/qrels-qa_law_en", {}), "air-bench", "is public, but private labels must not go there"),
        (holding("my-org/notes-qa_law_en-alpha", {"qrels/test.tsv": b"by mistake"}), "airgen",
         r"already holds qrels/test\.tsv"),
        (holding("my-org/qa_law_en", {"README.md": b"---\nconfigs: [1, {a: b}]\n---\n"}), "air-bench",
         "qa_law_en: the configs of its README.md cannot be read: repair or delete"),
        (partial(published_before, layout="airgen"), "airgen", "published versions never change, so raise the version"),
        (partial(published_before, layout="air-bench"), "air-bench", r"version 26\.11 was published with a different"),
    ],
)  # fmt: skip
def test_what_is_refused(
    server: FakeHub, tmp_path: Path, arrange: Callable[[FakeHub, Path], Path], layout: str, words: str
) -> None:
    home = arrange(server, make_suite(tmp_path))
    before, commits = state(server), server.requests["commit"]
    with pytest.raises(DatasetError, match=words):
        send(server, home, tmp_path / "work", PAGE, layout=layout)
    if "README" not in words:  # the card of a repository is merged when its turn comes
        assert (state(server), server.requests["commit"]) == (before, commits)


def test_a_licence_that_forbids_it(tmp_path: Path) -> None:
    info = dataclasses.replace(INFO, source_licence="All rights reserved, Example Press")
    write_dataset(tmp_path / "d", make_content(info=info))
    with pytest.raises(DatasetError, match="'All rights reserved, Example Press': it keeps all rights"):
        plan(tmp_path / "d", REPO, tmp_path / "work")
    (upload,) = plan(tmp_path / "d", REPO, tmp_path / "work", permission="Jane Doe, Example Press: yes")
    assert "Jane Doe, Example Press: yes" in (upload.directory / "README.md").read_text()


def test_names_that_stay_are_published_only_if_the_user_says_so(server: FakeHub, tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", make_content(info=dataclasses.replace(INFO, unmasked=True)))
    with pytest.raises(DatasetError, match=r"names of persons, street addresses and dates of birth stay .* --unmasked"):
        send(server, tmp_path / "d", tmp_path / "work")
    assert not server.repositories
    assert send(server, tmp_path / "d", tmp_path / "work", unmasked=True)


def test_a_card_that_is_too_large_is_not_read(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airgen.publishing.hub._MOST_CARD_BYTES", 1000)
    server.create("org/name", files={"README.md": b"x" * 1001})
    with pytest.raises(DatasetError, match=r"README\.md has 1,001 bytes, too large for a dataset card"):
        hub(server).read("org/name", "README.md", "main")
