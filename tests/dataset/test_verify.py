"""`verify` names each kind of damage; an untouched directory has no problem."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dataset_maker import INFO, make_content
from typer.testing import CliRunner

from airgen.dataset.content import CorpusRow, QrelRow
from airgen.dataset.manifest import FileEntry, data_digest, load_manifest, manifest_text
from airgen.dataset.verify import secrets_in, verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.keys import file_sha256


def edit(path: Path, change: Callable[[str], str]) -> None:
    path.write_bytes(change(path.read_bytes().decode()).encode())


def rehash(directory: Path) -> None:
    """A careful forger: the manifest's hashes are those of the edited files."""
    manifest = load_manifest(directory)
    files = {
        name: FileEntry((directory / name).stat().st_size, file_sha256(directory / name))
        for name in manifest.files
        if (directory / name).exists()
    }
    manifest = dataclasses.replace(manifest, files=files, digest=data_digest(files))
    (directory / "manifest.json").write_text(manifest_text(manifest))


def kinds(directory: Path) -> set[tuple[str, str]]:
    return {(problem.kind, problem.file) for problem in verify(directory)}


def add_line(row: dict[str, Any]) -> Callable[[str], str]:
    return lambda text: text + json.dumps(row) + "\n"


@pytest.mark.parametrize(
    ("file", "change", "expected"),
    [
        ("corpus.jsonl", add_line({"_id": "doc000", "text": "again"}), {("duplicate", "corpus.jsonl")}),
        ("corpus.jsonl", add_line({"_id": "new", "text": " "}), {("empty", "corpus.jsonl"), ("count", "corpus.jsonl")}),
        ("corpus.jsonl", add_line({"_id": "a b", "text": "x"}), {("id", "corpus.jsonl")}),
        ("corpus.jsonl", lambda text: text + "[" * 100_000 + "\n", {("line", "corpus.jsonl")}),
        (
            "corpus.jsonl",
            lambda text: text.partition("\n")[2],
            {("dangling", "qrels/test.jsonl"), ("count", "corpus.jsonl")},
        ),
        (
            "queries.jsonl",
            lambda text: text.replace('"split": "dev"', '"split": "test"'),
            {("split", "qrels/dev.jsonl")},
        ),
        (
            "queries.jsonl",
            add_line({"_id": "q-99", "text": "unanswered"}),
            {("positive", "queries.jsonl"), ("count", "queries.jsonl")},
        ),
        (
            "qrels/test.jsonl",
            add_line({"query-id": "q-77", "corpus-id": "doc000", "score": 1}),
            {("dangling", "qrels/test.jsonl"), ("count", "qrels/test.jsonl")}
            | {
                ("variant", f"qrels{kind}/test.{end}")
                for kind, end in (("", "tsv"), ("-positives", "jsonl"), ("-graded", "jsonl"), ("-soft", "jsonl"))
            },
        ),
        ("qrels/dev.tsv", lambda text: text.replace("\t0\n", "\t1\n"), {("variant", "qrels/dev.tsv")}),
        (
            "qrels-positives/dev.jsonl",
            lambda text: text.partition("\n")[2],
            {("variant", "qrels-positives/dev.tsv"), ("variant", "qrels-positives/dev.jsonl")},
        ),
        ("pipeline.yaml", lambda text: text + "api_key: sk-abcdefghijklmnop1234\n", {("secret", "pipeline.yaml")}),
    ],
)
def test_damage_is_named_even_if_the_hashes_were_forged(
    dataset: Path, file: str, change: Callable[[str], str], expected: set[tuple[str, str]]
) -> None:
    edit(dataset / file, change)
    assert ("hash", file) in kinds(dataset)
    rehash(dataset)
    assert kinds(dataset) == expected


def test_queries_without_positives_and_overlapping_splits(dataset: Path) -> None:
    edit(dataset / "qrels/dev.jsonl", lambda text: text.replace('"score": 1', '"score": 0'))
    dev = (dataset / "qrels/dev.jsonl").read_text()
    edit(dataset / "qrels/test.jsonl", lambda text: text + dev)
    rehash(dataset)
    found = kinds(dataset)
    assert {("positive", "qrels/dev.jsonl"), ("split", "qrels/test.jsonl")} <= found


def test_files_missing_extra_outside(dataset: Path) -> None:
    (dataset / "qrels/dev.tsv").unlink()
    (dataset / "notes.txt").write_text("x")
    assert kinds(dataset) == {("missing", "qrels/dev.tsv"), ("extra", "notes.txt")}
    (dataset / "pipeline.yaml").unlink()
    (dataset / "pipeline.yaml").symlink_to("/etc/hostname")
    assert ("path", "pipeline.yaml") in kinds(dataset)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"pipeline.yaml"', '"../../secrets"', "'../../secrets' lies outside the dataset"),
        ('"pipeline.yaml"', '"/etc/hostname"', "'/etc/hostname' lies outside the dataset"),
        ('"pipeline.yaml"', '"a\\u0000b"', "lies outside the dataset"),
        ('"dev": {', '"../dev": {', "split '../dev' cannot be a part"),
        ('"name": "weather-notes"', '"name": "../weather"', "dataset name '../weather' cannot be used"),
        ('"graded"', '"../graded"', "variant '../graded' cannot be a part"),
        ('"task": "qa"', '"task": "chat"', "task 'chat' is unknown"),
    ],
)
def test_manifests_of_strangers_do_not_leave_the_directory(dataset: Path, old: str, new: str, words: str) -> None:
    edit(dataset / "manifest.json", lambda text: text.replace(old, new))
    with pytest.raises(DatasetError, match=words):
        load_manifest(dataset)


def test_withheld_labels_must_not_be_there(dataset: Path) -> None:
    manifest = dataclasses.replace(load_manifest(dataset), withheld=("test",), part="public")
    (dataset / "manifest.json").write_text(manifest_text(manifest))
    found = kinds(dataset)
    assert ("leak", "qrels/test.jsonl") in found
    assert ("leak", "qrels-graded/test.tsv") in found
    assert ("leak", "private/") in found
    assert ("leak", "qrels/dev.jsonl") not in found


@pytest.mark.parametrize("negative", [CorpusRow("negative-%d", "", "made up"), CorpusRow("d%d", "Title", "made up")])
def test_ids_and_titles_that_tell_the_negatives_are_a_warning(tmp_path: Path, negative: CorpusRow) -> None:
    content = make_content()
    extra = [dataclasses.replace(negative, id=negative.id % i) for i in range(5)]
    labels = [QrelRow("q-00", row.id, 0) for row in extra]
    write_dataset(tmp_path / "d", make_content(corpus=[*content.corpus, *extra], qrels=[*content.qrels, *labels]))
    (problem,) = verify(tmp_path / "d")
    assert (problem.kind, problem.severity) == ("mark", "warning")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"format": 2}', "a newer airgen wrote it: update airgen"),
        ('{"format": "x"}', "export the dataset again"),
        ('{"format": 1}', "edited by hand"),
    ],
)
def test_manifests_that_cannot_be_read(dataset: Path, text: str, words: str) -> None:
    (dataset / "manifest.json").write_text(text)
    with pytest.raises(DatasetError, match=words):
        load_manifest(dataset)
    assert [problem.kind for problem in verify(dataset)] == ["manifest"]


def test_a_half_written_directory_is_no_dataset(dataset: Path) -> None:
    (dataset / "manifest.json").unlink()
    with pytest.raises(DatasetError, match="not a finished dataset"):
        load_manifest(dataset)


def test_secrets_are_found_and_never_quoted_whole() -> None:
    key = "sk-proj-0123456789abcdefghij"
    hints = secrets_in(f"llm: {{api_key: {key}}}\nurl: https://me:hunter2@host/v1")
    assert len(hints) == 3
    assert all(key not in hint and "hunter2" not in hint for hint in hints)
    assert secrets_in("llm: {api_key_env: OPENAI_API_KEY}\nbase_url: http://localhost:8000/v1\ntokens: 12") == []


def test_command(dataset: Path) -> None:
    from airgen.commands.verify import app

    result = CliRunner().invoke(app, [str(dataset)])
    assert (result.exit_code, result.stdout.strip()) == (0, f"{dataset}: whole")
    (dataset / "corpus.jsonl").write_text("")
    result = CliRunner().invoke(app, [str(dataset), "--json"])
    assert result.exit_code == 1
    assert {"hash", "count", "dangling"} <= {problem["kind"] for problem in json.loads(result.stdout)[str(dataset)]}
    assert INFO.name in str(dataset)
