"""SIGKILL at every file operation of an export: there is the older dataset, the newer or none, never a half one."""

import dataclasses
import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dataset_maker import make_content

from airgen.components.keys import file_sha256
from airgen.dataset.manifest import load_manifest
from airgen.dataset.secret import Secret, load_secret, write_secret
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.storage.whole_files import write_text

EVENTS = ("open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")


def write_and_die(out: Path, at: int, write: Callable[[], object]) -> bool:
    """Write something in a child that kills itself at its `at`-th file operation; True if it got that far."""
    child = os.fork()
    if child == 0:
        count = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal count
            if event in EVENTS and (isinstance(arguments[0], int) or str(out.parent) in str(arguments[0])):
                count += 1
                if count == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        write()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def identity(directory: Path) -> str:
    return file_sha256(directory / "manifest.json")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_every_file_operation(tmp_path: Path) -> None:
    little = make_content()  # few files, each of which takes a round
    queries = [dataclasses.replace(row, split="test") for row in little.queries]
    bare = [dataclasses.replace(row, level=None, gain=None) for row in little.qrels]
    few: dict[str, Any] = {"queries": queries, "qrels": bare, "secret": None, "pipeline_yaml": "", "lineage": []}
    content = make_content(n_documents=20, **few)
    write_dataset(tmp_path / "wanted" / "d", content)
    write_dataset(tmp_path / "older" / "d", make_content(**few))
    newer, older = identity(tmp_path / "wanted" / "d"), identity(tmp_path / "older" / "d")
    seen = set()
    at = 1
    while True:
        home = tmp_path / f"at-{at}"
        shutil.copytree(tmp_path / "older", home)
        killed = write_and_die(home / "d", at, partial(write_dataset, home / "d", content))
        if (home / "d").exists():
            assert verify(home / "d") == []
            state = identity(home / "d")
        else:
            state = "absent"
        seen.add({newer: "newer", older: "older"}.get(state, state))
        if not killed:
            break
        write_dataset(home / "d", content)
        assert identity(home / "d") == newer
        assert [path.name for path in home.iterdir()] == ["d"]
        at += 1
    assert at > 20
    assert seen == {"older", "newer", "absent"}
    assert load_manifest(tmp_path / "wanted" / "d").statistics.passages == 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_secret_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    secret, at, killed, seen = Secret(bytes(range(32))), 0, True, set()
    while killed:
        at += 1
        path = tmp_path / f"at-{at}" / "secret.key"
        killed = write_and_die(path, at, partial(write_secret, path, secret))
        seen.add(path.exists())
        if not path.exists():
            write_secret(path, secret)
        assert load_secret(path).hex == secret.hex and path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(FileExistsError):
            write_secret(path, Secret(bytes(32)))
        assert load_secret(path).hex == secret.hex and [one.name for one in path.parent.iterdir()] == ["secret.key"]
    assert at > 4 and seen == {True, False}


def test_a_disk_that_fills_leaves_the_old_file_and_no_half_of_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    write_text(path, "old\n")

    def parts() -> Iterator[str]:
        yield "half of a row"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for place in (path, tmp_path / "new.csv"):
        with pytest.raises(OSError, match="No space left"):
            write_text(place, parts())
    assert path.read_text() == "old\n" and [file.name for file in tmp_path.iterdir()] == ["table.csv"]


def test_a_link_stays_a_link_and_a_pipe_gets_the_text(tmp_path: Path) -> None:
    (tmp_path / "kept.csv").write_text("old\n")
    (tmp_path / "link.csv").symlink_to("kept.csv")
    write_text(tmp_path / "link.csv", "new\n")
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "kept.csv").read_text() == "new\n"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "through\n")
    assert os.read(reader, 99) == b"through\n"
    os.close(reader)
