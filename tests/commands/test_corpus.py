"""`airgen show corpus` and `airgen fetch` as a user types it, on a corpus of their own."""

import json
from pathlib import Path

import pytest
from command_line import call as called
from corpus_maker import prose

from airgen.corpus import show
from airgen.errors import UsageError


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    rows = [{"_id": f"d{n}", "title": "T\x1b[31m", "text": prose(n)} for n in range(30)] + [
        {"_id": "s", "text": "\x1b]0;x\x07a"}
    ]
    (tmp_path / "c.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nlanguage: en\ndomain: web\nlicence: CC0-1.0\nsource: here\ntokenizer: words\n"
        "reader: {kind: jsonl, path: c.jsonl}\nclean: {language: off, names: keep, offensive_share: off}\n"
    )
    return tmp_path / "mine.yaml"


def call(*words: str) -> str:
    found = called(*words)
    assert "\x1b" not in found
    return found


def test_a_corpus_is_shown(mine: Path) -> None:
    words = ("show", "corpus", str(mine))
    text = call(*words)
    assert "31 read, 30 passages, 1,800 tokens" in text and "dropped      1  length: too short" in text
    value = json.loads(call(*words, "--json"))
    assert (value["passages"], value["licence"]) == (30, "CC0-1.0")
    first = json.loads(call(*words, "--sample", "2", "--json"))
    assert len(first) == 2 and first == json.loads(call(*words, "--sample", "2", "--json"))
    assert call(*words, "--sample", "2").count("── d") == 2
    text = call(*words, "--dropped")
    assert "s  length: too short (1 tokens, fewer than 20)" in text and text.endswith("1 dropped\n")
    assert call(*words, "--dropped", "--reason", "duplicate") == "0 dropped\n"
    assert "already on this machine" in call("fetch", str(mine))
    with pytest.raises(UsageError, match="nothing to fetch is named 'no-such'"):
        call("fetch", str(mine), "no-such")


def test_list_survives_a_broken_manifest(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = mine.parent / "corpora"
    folder.mkdir()
    (folder / "broken.yaml").write_text("name: broken\n")
    monkeypatch.chdir(mine.parent)
    monkeypatch.setattr(show, "manifest_names", lambda: ["broken", "python-reference"])
    rows = {row["name"]: row for row in json.loads(call("show", "corpus", "--json"))}
    assert rows["broken"]["state"].startswith("broken") and rows["python-reference"]["state"] == "here"


def test_dropped_documents_come_before_what_was_masked(mine: Path) -> None:
    rows = [{"_id": f"a{n}", "text": f"{prose(n)} Write to someone{n}@example.org."} for n in range(4)]
    (mine.parent / "c.jsonl").write_text("\n".join(json.dumps(row) for row in [*rows, {"_id": "z", "text": "a"}]))
    lines = call("show", "corpus", str(mine), "--dropped", "--count", "2").splitlines()
    assert lines[0].startswith("z  length: too short") and "masked: EMAIL" in lines[2]
    assert lines[-1] == "1 dropped, 4 masked; 2 shown"
