"""What a job draws depends on its seed and its secret."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from job_maker import PIPELINE, Run
from rich.console import Console

from airgen.dataset.manifest import load_manifest
from airgen.dataset.secret import Secret, new_secret
from airgen.errors import DatasetError
from airgen.keys import fingerprint
from airgen.pipeline import Job, job_secret
from airgen.pipeline.progress import Display


@pytest.fixture(autouse=True)
def fresh_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each directory has a secret of its own, as it has outside the tests."""
    monkeypatch.setattr(job_secret, "new_secret", new_secret)


def begun(folder: Path, runs: str, seed: int | str = 42, more: str = "") -> Job:
    """A job whose corpus is read."""
    (folder / "job.yaml").write_text(f"{PIPELINE}seed: {seed}\n{more}", encoding="utf-8")
    job = Job(folder / "job.yaml", folder / runs)
    job.run(Display(job.directory / "status.json", Console(quiet=True)), until="corpus")
    return job


def drawn(job: Job) -> str:
    """What the order of samples depends on."""
    return job.fingerprints["sample"]


def number(seed: int) -> str:
    return fingerprint(stage="sample", version=1, seed=seed)


@pytest.mark.parametrize("seed", [42, "secret"])
def test_two_secrets_draw_differently_and_one_secret_the_same(folder: Path, seed: int | str) -> None:
    one, two = begun(folder, "one", seed), begun(folder, "two", seed)
    assert len({drawn(one), drawn(two), number(42)}) == 3
    assert drawn(begun(folder, "one", seed)) == drawn(one)
    (folder / "three" / "job").mkdir(parents=True)
    shutil.copy(folder / "one" / "job" / "secret.key", folder / "three" / "job")
    assert drawn(begun(folder, "three", seed)) == drawn(one)
    assert drawn(begun(folder, "one", 7)) not in (drawn(one), number(7))


def test_without_a_secret_the_seed_alone_decides(folder: Path) -> None:
    job = begun(folder, "runs", 42, "export: {secret: false}\n")
    assert drawn(job) == number(42)
    assert not list((folder / "runs").rglob("secret*"))


def test_a_secret_that_is_asked_for_later_draws_again(folder: Path) -> None:
    begun(folder, "runs", 42, "export: {secret: false}\n")
    job = begun(folder, "runs", 42)
    assert drawn(job) == drawn(begun(folder, "runs", 42)) != number(42)
    assert job.secret.keep().name == (job.directory / "secret.name").read_text(encoding="utf-8").strip()


def test_looking_writes_nothing(folder: Path) -> None:
    Job(folder / "job.yaml", folder / "runs")
    assert not (folder / "runs").exists()


def test_the_secret_of_a_drawing_is_lost(folder: Path, run: Run) -> None:
    result = run()
    assert load_manifest(result.directory / "dataset").info.seed is None
    key, dataset = result.directory / "secret.key", result.directory / "dataset"
    name = (result.directory / "secret.name").read_text(encoding="utf-8").strip()
    secret = key.read_text(encoding="ascii")
    assert len(name) == 16 and name not in secret
    key.unlink()
    assert run().already_done  # the dataset has a copy, and needs none
    assert run(changes={"target: 12": "target: 13"}).manifest is not None
    assert key.read_text(encoding="ascii") == secret
    key.unlink()
    shutil.move(dataset, folder / "elsewhere")
    with pytest.raises(DatasetError, match=r"secret\.key is lost, and the samples of .* put the file back"):
        run()
    key.write_text(Secret(b"x" * 32).hex, encoding="ascii")
    with pytest.raises(DatasetError, match="is lost"):
        run()
    (result.directory / "work.duckdb").unlink()  # nothing is left that was drawn with the old one
    assert run().manifest is not None


def test_two_processes_that_begin_one_job(folder: Path) -> None:
    first, second = (Job(folder / "job.yaml", folder / "runs") for _ in range(2))
    first.open_store().close()
    with pytest.raises(DatasetError, match="was begun by another process: run the command again"):
        second.open_store()
    Job(folder / "job.yaml", folder / "runs").open_store().close()


def test_a_run_that_was_killed_before_its_first_row(folder: Path) -> None:
    first = Job(folder / "job.yaml", folder / "runs")
    first.secret.keep()  # killed here
    second = Job(folder / "job.yaml", folder / "runs")
    second.secret.begin()  # and here
    third = begun(folder, "runs")
    assert drawn(second) == drawn(third) != number(42)


def test_two_processes_begin_one_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "job.yaml").write_text(PIPELINE, encoding="utf-8")
    (loser, winner), real = (Job(folder / "job.yaml", folder / "runs") for _ in range(2)), job_secret.write_secret

    def late(path: Path, secret: Secret) -> None:
        monkeypatch.setattr(job_secret, "write_secret", real)
        winner.secret.begin()  # between the look for a secret and the writing of one
        real(path, secret)

    monkeypatch.setattr(job_secret, "write_secret", late)
    with pytest.raises(DatasetError, match="was begun by another process: run the command again"):
        loser.secret.begin()
    assert Job(folder / "job.yaml", folder / "runs").secret.keep().name == winner.secret.keep().name
