"""Public ids and the secret that they are made with."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_maker import CORPUS, LEXICAL, Run, make_corpus, run_quietly
from rich.console import Console

from airgen.components.keys import fingerprint
from airgen.corpus.readers.json_records import JsonLinesReader
from airgen.corpus.readers.reader import Place
from airgen.dataset.beir import BeirDataset
from airgen.dataset.content import check_id, fitting_id
from airgen.dataset.manifest import load_manifest
from airgen.dataset.secret import Secret, new_secret
from airgen.dataset.verify import verify
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.dataset_split import IdLookup
from airgen.generation.sample import NEAR
from airgen.job import Job
from airgen.job import job as job_module
from airgen.job.run_job import run_pipeline
from airgen.storage.records import Document

JOB = LEXICAL


@pytest.mark.parametrize(
    ("own", "fitting"),
    [
        ("docs/guide/index", "docs/guide/index"),
        ("docs/100%/a%20b", "docs/100%/a%20b"),  # a URL stays as it is
        ("docs/my file", "docs/my%20file"),
        ("docs/my file%20", "docs/my%20file%2520"),
        ("caf\udce9", "caf%ED%B3%A9"),
        ("Café", "Café"),
    ],
)
def test_what_an_id_becomes(own: str, fitting: str) -> None:
    assert fitting_id(own) == fitting


@given(st.text(st.characters(), min_size=1, max_size=30))
def test_any_id_becomes_one_that_a_file_can_carry(own: str) -> None:
    fitting = fitting_id(own)
    check_id(fitting, "document")
    assert fitting_id(fitting) == fitting


def test_a_job_with_such_names_is_exported_and_found_by_its_own_ids(tmp_path: Path) -> None:
    make_corpus(tmp_path / "small.jsonl", 20)
    rows = JsonLinesReader(
        JsonLinesReader.Settings.model_validate({"path": "small.jsonl", "fields": {"id": "id"}}), Place(tmp_path)
    ).read()
    (tmp_path / "docs").mkdir()
    for number, row in enumerate(row for row in rows if isinstance(row, Document)):
        name = os.fsencode(f"page {number}%.txt") if number % 2 else b"caf\xe9 %d.txt" % number
        (tmp_path / "docs" / os.fsdecode(name)).write_text(row.text)
    (tmp_path / "small.yaml").write_text(CORPUS.replace("kind: jsonl, path: small.jsonl", "kind: files, path: docs"))
    job = LEXICAL.replace("target: 4", "target: 3")
    (tmp_path / "job.yaml").write_text(f"{job}export: {{ids: original}}\n")
    result = run_pipeline(Job(tmp_path / "job.yaml", tmp_path / "runs"), evaluate=False, console=Console(quiet=True))
    assert result.manifest is not None
    home = tmp_path / "runs" / "job" / "dataset"
    assert [problem for problem in verify(home) if problem.severity == "error"] == []
    dataset = BeirDataset.open(home)
    published = [passage.id for passage in dataset.passages()]
    ids = IdLookup(published, dataset)
    assert {"docs/page%201%25", "docs/caf\\xe9%202"} <= set(published)  # a corpus holds Unicode text alone
    assert ids.find("docs/page 1%") == "docs/page%201%25" and ids.find("docs/caf\\xe9 2") == "docs/caf\\xe9%202"


# -- job secret -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def fresh_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each directory has a secret of its own, as it has outside the tests."""
    monkeypatch.setattr(job_module, "new_secret", new_secret)


def begun(folder: Path, runs: str, seed: int | str = 42, more: str = "") -> Job:
    """A job whose corpus is read."""
    (folder / "job.yaml").write_text(f"{LEXICAL}seed: {seed}\n{more}", encoding="utf-8")
    job = Job(folder / "job.yaml", folder / runs)
    run_quietly(job, until="corpus")
    return job


def drawn(job: Job) -> str:
    """What the order of samples depends on."""
    return job.fingerprints["sample"]


def number(seed: int) -> str:
    return fingerprint(stage="sample", version=1, seed=seed, multi_hop=[0.0, NEAR])


@pytest.mark.parametrize("seed", [42, "secret"])
def test_two_secrets_draw_differently_and_one_secret_the_same(folder: Path, seed: int | str) -> None:
    one, two = begun(folder, "one", seed), begun(folder, "two", seed)
    assert len({drawn(one), drawn(two), number(42)}) == 3
    assert drawn(begun(folder, "one", seed)) == drawn(one)
    (folder / "three" / "job").mkdir(parents=True)
    shutil.copy(folder / "one" / "job" / "secret.key", folder / "three" / "job")
    assert drawn(begun(folder, "three", seed)) == drawn(one)
    assert drawn(begun(folder, "one", 7)) not in (drawn(one), number(7))


def test_without_a_secret_the_seed_alone_decides_until_one_is_asked_for(folder: Path) -> None:
    Job(folder / "job.yaml", folder / "runs")
    assert not (folder / "runs").exists()  # looking writes nothing
    assert drawn(begun(folder, "runs", 42, "export: {secret: false}\n")) == number(42)
    assert not list((folder / "runs").rglob("secret*"))
    job = begun(folder, "runs", 42)
    assert drawn(job) == drawn(begun(folder, "runs", 42)) != number(42)
    assert job.secret.keep().name == (job.directory / "secret.name").read_text(encoding="utf-8").strip()


@pytest.mark.parametrize(("before", "after"), [("false", "true"), ("true", "false")])
def test_a_job_with_queries_draws_no_others_for_another_secrecy(run: Run, before: str, after: str) -> None:
    def changes(secret: str) -> dict[str, str]:
        return {"target: 4": f"target: 3\nexport: {{secret: {secret}}}"}

    run(changes=changes(before), until="hard_negative")
    with pytest.raises(UsageError, match=rf"drawn with export.secret: {before}; .* set it back, or choose another"):
        run(changes=changes(after))


def test_the_secret_of_a_drawing_is_lost(folder: Path, run: Run) -> None:
    three = {"target: 4": "target: 3"}
    result = run(changes=three)
    assert load_manifest(result.directory / "dataset").info.seed is None
    key, dataset = result.directory / "secret.key", result.directory / "dataset"
    name = (result.directory / "secret.name").read_text(encoding="utf-8").strip()
    secret = key.read_text(encoding="ascii")
    assert len(name) == 16 and name not in secret
    key.unlink()
    assert run(changes=three).already_done  # the dataset has a copy, and needs none
    assert run().manifest is not None
    assert key.read_text(encoding="ascii") == secret
    key.unlink()
    shutil.move(dataset, folder / "elsewhere")
    with pytest.raises(DatasetError, match=r"secret\.key is lost, and the samples of .* restore the file"):
        run(changes=three)
    key.write_text(Secret(b"x" * 32).hex, encoding="ascii")
    with pytest.raises(DatasetError, match="is lost"):
        run(changes=three)
    (result.directory / "work.duckdb").unlink()  # nothing is left that was drawn with the old one
    assert run(changes=three).manifest is not None


def test_a_run_that_was_killed_before_its_first_row(folder: Path) -> None:
    first = Job(folder / "job.yaml", folder / "runs")
    first.secret.keep()  # killed here
    second = Job(folder / "job.yaml", folder / "runs")
    second.secret.begin()  # and here
    third = begun(folder, "runs")
    assert drawn(second) == drawn(third) != number(42)


def test_two_processes_begin_one_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loser, winner, late_one = (Job(folder / "job.yaml", folder / "runs") for _ in range(3))
    real = job_module.write_secret

    def late(path: Path, secret: Secret) -> None:
        monkeypatch.setattr(job_module, "write_secret", real)
        winner.secret.begin()  # between the look for a secret and the writing of one
        real(path, secret)

    monkeypatch.setattr(job_module, "write_secret", late)
    with pytest.raises(DatasetError, match="was started by another process: run the command again"):
        loser.secret.begin()
    with pytest.raises(DatasetError, match="was started by another process"):
        late_one.open_store()
    Job(folder / "job.yaml", folder / "runs").open_store().close()
    assert Job(folder / "job.yaml", folder / "runs").secret.keep().name == winner.secret.keep().name
