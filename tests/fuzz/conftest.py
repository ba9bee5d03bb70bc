"""What the tests of this folder share: a folder for each example, and the one rule for what may come out."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import quick

from airgen.errors import AirgenError

Outcome = Callable[[Callable[[Path], Any]], Any]


@pytest.fixture(scope="session")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Call a function with an empty folder: its value, or the AirgenError that it raised. Any other error comes out.

    Each message is one to a few lines that can be printed.
    """

    top = tmp_path_factory.mktemp("fuzz")

    def of(action: Callable[[Path], Any]) -> Any:
        folder = top / "example"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            with quick():
                return action(folder)
        except AirgenError as error:
            assert str(error).strip(), type(error)
            assert len(str(error)) < 20_000
            return error

    return of
