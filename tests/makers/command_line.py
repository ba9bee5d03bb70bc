"""Call a command as a user does."""

from __future__ import annotations

import importlib

from typer.testing import CliRunner


def call(name: str, *words: object, code: int = 0) -> str:
    """What `airgen NAME WORDS` prints to standard output; its exit code must be `code`. Errors are raised."""
    app = importlib.import_module(f"airgen.commands.{name}").app
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout
