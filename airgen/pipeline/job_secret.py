"""The secret of a job's work directory, and what the samples in it are drawn with.

runs/NAME/
    secret.key      the secret; the dataset's private part has a copy
    secret.name     the public name of the secret that samples are drawn with: that one, and no other, can go on
"""

from __future__ import annotations

from pathlib import Path

from airgen.dataset.files import write_text
from airgen.dataset.manifest import MANIFEST, load_manifest
from airgen.dataset.secret import SECRET_FILE, Secret, load_secret, new_secret, secret_of, write_secret
from airgen.errors import DatasetError
from airgen.settings import Pipeline

NAME_FILE = "secret.name"


class JobSecret:
    """The secret of one work directory. Nothing is written before `keep` or `begin`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._new = new_secret()  # for a directory without one
        self._drawn_with: Secret | None = None

    def keep(self) -> Secret:
        """The directory's secret. A new one is written, or one that is put back from the job's dataset.

        Raises DatasetError if the job's dataset was made with a secret that is lost, or with another one.
        """
        secret, path = self._find() or self._new, self.directory / SECRET_FILE
        if not path.is_file():
            try:
                write_secret(path, secret)
            except FileExistsError:  # another process was faster; `begin` says so where it matters
                return load_secret(path)
        return secret

    def seed(self, pipeline: Pipeline) -> int | str:
        """What the order of samples depends on: the seed, and with secret labels the secret.

        Raises DatasetError if samples were drawn with a secret that is lost.
        """
        self._drawn_with = None
        if not pipeline.export.secret:
            return pipeline.seed
        drawn, named, secret = self.directory / "work.duckdb", self.directory / NAME_FILE, self._find()
        if drawn.is_file() and named.is_file():
            name = named.read_text(encoding="utf-8", errors="replace").strip()
            if secret is None or name != secret.name:
                raise DatasetError(
                    f"{self.directory / SECRET_FILE} is lost, and the samples of {drawn} were drawn with it: put the "
                    f"file back (the private repository has it as private/{SECRET_FILE}), or move {self.directory} "
                    "away to begin again"
                )
        self._drawn_with = secret or self._new
        return self._drawn_with.text("seed", *([] if pipeline.seed == "secret" else [str(pipeline.seed)]))

    def begin(self) -> None:
        """Write the secret, and that samples are drawn with it. Raises DatasetError if there is another one by now."""
        if self._drawn_with is None:
            return
        if self.keep().name != self._drawn_with.name:
            raise DatasetError(f"{self.directory} was begun by another process: run the command again")
        if not (self.directory / NAME_FILE).is_file() or not (self.directory / "work.duckdb").is_file():
            write_text(self.directory / NAME_FILE, self._drawn_with.name + "\n")

    def _find(self) -> Secret | None:
        path, dataset = self.directory / SECRET_FILE, self.directory / "dataset"
        expected = load_manifest(dataset).secret if (dataset / MANIFEST).is_file() else ""
        secret = load_secret(path) if path.is_file() else secret_of(dataset)
        if expected and (secret is None or secret.name != expected):
            raise DatasetError(
                f"{path}: the secret of {dataset} is lost, so its public ids cannot be made again: put back "
                f"private/{SECRET_FILE} of the private repository, or move {self.directory} away to begin again"
            )
        return secret
