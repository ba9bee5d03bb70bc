"""Publishing to a Hub on the loopback interface: what arrives, what must not, and what happens when it fails."""

import dataclasses
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from child import AIRGEN, finish
from dataset_maker import INFO, SECRET, make_content
from fake_hub import GOOD_TOKEN, LARGE, READ_TOKEN, FakeHub, Fault

from airgen.dataset.content import CorpusRow, QrelRow
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.publishing.publish import Published, plan, publish

constants = pytest.importorskip("huggingface_hub.constants")
from airgen.publishing.hub import Hub  # noqa: E402

REPO = "my-org/weather-notes"
LABELS = "my-org/qrels-weather-notes"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("time.sleep", lambda _: None)  # the library's own pauses between attempts
    with FakeHub() as running:
        yield running


def hub(server: FakeHub, token: str = GOOD_TOKEN) -> Hub:
    return Hub(endpoint=server.url, token=token, sleep=lambda _: None)


def send(server: FakeHub, dataset: Path, work: Path, token: str = GOOD_TOKEN, **options: Any) -> list[Published]:
    options = {"private_qrels": ["test"], **options}
    return publish(plan(dataset, REPO, work, **options), hub(server, token))


def local_files(directory: Path) -> dict[str, bytes]:
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def remote_files(server: FakeHub, repo: str) -> dict[str, bytes]:
    return {name: data for name, data in server.repositories[repo].files.items() if name != ".gitattributes"}


def assert_nothing_private_arrived(server: FakeHub, dataset: Path) -> None:
    """Search every byte that arrived for a public repository."""
    arrived = server.public_bytes()
    assert b"doc000" in arrived  # the corpus did arrive: the search can find something
    assert b"q-02\tdoc002\t1" in arrived  # and labels of dev
    for line in (dataset / "qrels" / "test.tsv").read_bytes().splitlines()[1:]:
        assert line not in arrived
    for line in (dataset / "qrels" / "test.jsonl").read_bytes().splitlines():
        assert line not in arrived
    for path in dataset.glob("qrels*/test.*"):
        assert path.read_bytes() not in arrived
    assert SECRET.encode() not in arrived
    assert GOOD_TOKEN.encode() not in arrived
    lines = [line for line in arrived.split(b"\n") if len(line) < 400]
    for row in make_content().qrels:  # no line ties a test query to any of its documents
        if int(row.query[2:]) % 3 != 2:
            assert not any(row.query.encode() in line and row.document.encode() in line for line in lines)


def test_public_and_private_parts_arrive_and_nothing_leaks(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    private, public = send(server, dataset, tmp_path / "work")
    assert (private.repo, private.private, public.repo, public.private) == (LABELS, True, REPO, False)
    assert server.repositories[LABELS].private
    assert not server.repositories[REPO].private
    assert remote_files(server, REPO) == local_files(tmp_path / "work" / "public")
    assert remote_files(server, LABELS) == local_files(tmp_path / "work" / "labels")
    assert set(remote_files(server, LABELS)) == {
        "README.md",
        "manifest.json",
        "private/lineage.jsonl",
        "private/secret.key",
        *(f"qrels{kind}/test.{end}" for kind in ("", "-positives", "-graded", "-soft") for end in ("tsv", "jsonl")),
    }
    assert len(server.repositories[REPO].commits) == 2  # the Hub's own and ours
    assert public.revision == server.repositories[REPO].commits[-1].oid == server.repositories[REPO].tags["26.11"]
    assert_nothing_private_arrived(server, dataset)
    assert verify(tmp_path / "work" / "public") == []
    assert verify(tmp_path / "work" / "labels") == []
    card = remote_files(server, REPO)["README.md"].decode()
    assert "qrels/test.jsonl" not in card
    assert "The labels of `test` are private" in card


def test_large_files_go_the_large_way(server: FakeHub, tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", make_content(n_documents=200))
    send(server, tmp_path / "d", tmp_path / "work")
    corpus = (tmp_path / "d" / "corpus.jsonl").read_bytes()
    assert len(corpus) > LARGE
    assert corpus in server.repositories[REPO].large.values()
    assert remote_files(server, REPO)["corpus.jsonl"] == corpus


def test_everything_public_without_private_qrels(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    (public,) = send(server, dataset, tmp_path / "work", private_qrels=[])
    assert "qrels/test.tsv" in public.files
    assert SECRET.encode() not in server.public_bytes()
    assert not any(name.startswith("private/") for name in remote_files(server, REPO))


def test_publishing_again_sends_nothing(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    first = send(server, dataset, tmp_path / "work")
    commits = server.requests["commit"]
    second = send(server, dataset, tmp_path / "work2")
    assert server.requests["commit"] == commits
    assert [(p.revision, p.sent) for p in second] == [(p.revision, ()) for p in first]


@pytest.mark.parametrize("where", ["create", "info", "refs", "tree", "preupload", "commit", "tag"])
@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429}, {"drop": "before"}, {"drop": "after"}])
def test_passing_faults_end_in_one_commit(
    server: FakeHub, dataset: Path, tmp_path: Path, where: str, fault: dict[str, Any]
) -> None:
    server.faults.append(Fault(where, times=1, **fault))
    send(server, dataset, tmp_path / "work")
    for repo, part in ((REPO, "public"), (LABELS, "labels")):
        assert remote_files(server, repo) == local_files(tmp_path / "work" / part)
        assert len(server.repositories[repo].commits) == 2
        assert set(server.repositories[repo].tags) == {"26.11"}
    assert_nothing_private_arrived(server, dataset)


def test_a_hub_that_stays_broken_is_resumed_later(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    server.faults.append(Fault("commit", status=500, times=99, skip=1))  # the labels arrive, the public part does not
    with pytest.raises(DatasetError, match="publish again later to go on"):
        send(server, dataset, tmp_path / "work")
    assert len(server.repositories[LABELS].commits) == 2
    assert len(server.repositories[REPO].commits) == 1
    server.faults.clear()
    private, public = send(server, dataset, tmp_path / "work2")
    assert private.sent == ()
    assert len(public.sent) == len(public.files)
    assert [len(server.repositories[repo].commits) for repo in (LABELS, REPO)] == [2, 2]


def test_somebody_else_committed_meanwhile(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    server.faults.append(Fault("commit", status=412, times=1))
    server.faults.append(Fault("commit", status=409, times=1))
    send(server, dataset, tmp_path / "work")
    assert len(server.repositories[REPO].commits) == 2


@pytest.mark.parametrize(
    ("token", "words"), [("hf_" + "x" * 34, "HTTP 401 .*set HF_TOKEN"), (READ_TOKEN, "HTTP 403 .*may not write")]
)
def test_refusals_say_what_to_do_and_never_the_token(
    server: FakeHub, dataset: Path, tmp_path: Path, token: str, words: str
) -> None:
    with pytest.raises(DatasetError, match=words) as caught:
        send(server, dataset, tmp_path / "work", token=token)
    assert token not in str(caught.value)
    refused = "create" if token == READ_TOKEN else "info"
    assert server.requests[refused] == 1  # what cannot pass is not tried again
    assert server.repositories == {}


def test_the_hubs_own_pause_is_kept(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    pauses: list[float] = []
    server.create(REPO)
    server.faults.append(Fault("refs", status=429, times=2, retry_after=120))
    uploads = plan(dataset, REPO, tmp_path / "work")
    publish(uploads, Hub(endpoint=server.url, token=GOOD_TOKEN, sleep=pauses.append))
    assert [pause for pause in pauses if pause >= 120] == [120.0, 120.0]


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


def test_every_pause_is_said(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    said = list[str]()
    server.create(REPO)
    server.faults.append(Fault("refs", status=503, times=2))
    hub = Hub(endpoint=server.url, token=GOOD_TOKEN, sleep=lambda _: None, say=said.append)
    publish(plan(dataset, REPO, tmp_path / "work"), hub)
    assert len([line for line in said if "HTTP 503 from" in line and "trying again in" in line]) == 2


def test_offline_says_so_at_once(
    server: FakeHub, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub_library = pytest.importorskip("huggingface_hub")
    hub_library.close_session()  # sessions made before do not look at it
    pauses: list[float] = []
    try:
        with pytest.raises(DatasetError, match="HF_HUB_OFFLINE is set"):
            publish(
                plan(dataset, REPO, tmp_path / "work"), Hub(endpoint=server.url, token=GOOD_TOKEN, sleep=pauses.append)
            )
    finally:
        hub_library.close_session()
    assert pauses == []


def test_labels_never_go_into_a_public_repository(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    server.create(LABELS, private=False)
    with pytest.raises(DatasetError, match="exists and is public"):
        send(server, dataset, tmp_path / "work")
    assert server.requests["commit"] == server.requests["preupload"] == 0


def test_a_public_repository_that_holds_labels_is_refused(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    server.create(REPO, files={"qrels/test.tsv": b"published by mistake"})
    with pytest.raises(DatasetError, match=r"already holds qrels/test\.tsv"):
        send(server, dataset, tmp_path / "work")


def test_a_new_version_replaces_files_and_keeps_the_old_tag(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    send(server, dataset, tmp_path / "work")
    old = server.repositories[REPO].tags["26.11"]
    bare = [QrelRow(row.query, row.document, row.score) for row in make_content().qrels]
    newer = make_content(n_documents=13, info=dataclasses.replace(INFO, version="26.12"), qrels=bare)
    write_dataset(tmp_path / "new", newer)
    send(server, tmp_path / "new", tmp_path / "work2")
    assert remote_files(server, REPO) == local_files(tmp_path / "work2" / "public")
    assert "qrels-graded/dev.tsv" not in remote_files(server, REPO)
    assert server.repositories[REPO].tags["26.11"] == old
    assert set(server.repositories[REPO].tags) == {"26.11", "26.12"}


def test_a_published_version_does_not_change(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    send(server, dataset, tmp_path / "work")
    write_dataset(tmp_path / "other", make_content(n_documents=13))
    with pytest.raises(DatasetError, match="published versions do not change, raise the version"):
        send(server, tmp_path / "other", tmp_path / "work2")


@pytest.mark.parametrize("repo", ["weather", "a/b/c", "../x", "org/..", "org/na me", "org/a..b", "-x/y"])
def test_repository_names(dataset: Path, tmp_path: Path, repo: str) -> None:
    with pytest.raises(DatasetError, match=r"is not of the form ORG/NAME"):
        plan(dataset, repo, tmp_path / "work")


def test_a_damaged_dataset_is_not_published(dataset: Path, tmp_path: Path) -> None:
    with (dataset / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "new", "title": "", "text": "added by hand"}\n')
    with pytest.raises(DatasetError, match=r"is not published: .*SHA-256 differs"):
        plan(dataset, REPO, tmp_path / "work")
    (dataset / "manifest.json").unlink()
    with pytest.raises(DatasetError, match="not a finished dataset"):
        plan(dataset, REPO, tmp_path / "work")


def test_a_licence_that_forbids_it(tmp_path: Path) -> None:
    info = dataclasses.replace(INFO, source_licence="All rights reserved, Example Press")
    write_dataset(tmp_path / "d", make_content(info=info))
    with pytest.raises(DatasetError, match="'All rights reserved, Example Press': it keeps all rights"):
        plan(tmp_path / "d", REPO, tmp_path / "work")
    uploads = plan(tmp_path / "d", REPO, tmp_path / "work", permission="Jane Doe, Example Press: yes")
    assert "Jane Doe, Example Press: yes" in (uploads[0].directory / "README.md").read_text()


def test_what_ties_a_withheld_query_to_a_document_stops_it(tmp_path: Path) -> None:
    queries = [
        dataclasses.replace(row, metadata={"seed": f"doc{int(row.id[2:]):03d}"}) for row in make_content().queries
    ]
    write_dataset(tmp_path / "a", make_content(queries=queries))
    with pytest.raises(DatasetError, match="metadata of query 'q-00' names the document 'doc000'"):
        plan(tmp_path / "a", REPO, tmp_path / "work", private_qrels=["test"])
    plan(tmp_path / "a", REPO, tmp_path / "work", private_qrels=[])
    write_dataset(tmp_path / "b", make_content(audit={"disagreed": "q-01: doc004"}))
    with pytest.raises(DatasetError, match="mentions the query 'q-01'"):
        plan(tmp_path / "b", REPO, tmp_path / "work2", private_qrels=["test"])


def test_negatives_that_can_be_told_stop_private_labels(tmp_path: Path) -> None:
    extra = [CorpusRow(f"negative-{i}", "", "made up") for i in range(5)]
    content = make_content()
    labels = [QrelRow("q-00", row.id, 0) for row in extra]
    write_dataset(tmp_path / "d", make_content(corpus=[*content.corpus, *extra], qrels=[*content.qrels, *labels]))
    with pytest.raises(DatasetError, match=r"this reveals their label \[mark\]: write export.ids: opaque"):
        plan(tmp_path / "d", REPO, tmp_path / "work", private_qrels=["test"])


def test_command_uses_the_environment_and_starts_dry(server: FakeHub, dataset: Path, tmp_path: Path) -> None:
    environment = {"HF_ENDPOINT": server.url, "HF_TOKEN": GOOD_TOKEN, "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    words = ("publish", dataset, "--repo", REPO, "--private-qrels", "test")
    dry = finish(AIRGEN, *words, **environment)
    assert "Nothing was sent" in dry.stdout
    assert server.arrived == []
    wet = finish(AIRGEN, *words, "--yes", "--json", **environment)
    assert [row["repo"] for row in json.loads(wet.stdout)] == [LABELS, REPO]
    assert "it/s]" not in wet.stderr and "%|" not in wet.stderr  # no bars on a pipe: their threads hang if it closes
    assert GOOD_TOKEN not in wet.stdout + wet.stderr + dry.stdout
    assert_nothing_private_arrived(server, dataset)


def test_a_card_that_is_too_large_is_not_read(
    server: FakeHub, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airgen.publishing.hub._MOST_TEXT", 1000)
    server.create("org/name", files={"README.md": b"x" * 1001})
    with pytest.raises(DatasetError, match=r"README\.md has 1,001 bytes, more than any card"):
        hub(server).read("org/name", "README.md", "main")
