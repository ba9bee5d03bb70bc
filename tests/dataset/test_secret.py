"""A job's secret that belongs to somebody else."""

from pathlib import Path

import pytest

from airgen.dataset.secret import Secret, load_secret, write_secret
from airgen.errors import DatasetError


def test_a_secret_of_somebody_else_says_whom_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_secret(tmp_path / "secret.key", Secret(b"x" * 32))

    def refused(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    monkeypatch.setattr(Path, "owner", lambda _: "ann")
    with pytest.raises(DatasetError, match="Permission denied: it is only for ann, who can share the report"):
        load_secret(tmp_path / "secret.key")
