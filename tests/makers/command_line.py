"""Call commands as a user does."""

from typing import Any

from typer.testing import CliRunner

from airgen.cli import find_app


def invoke(*words: object, raises: bool = False) -> Any:
    """Run `airgen WORDS`, and return the result: exit_code, stdout, output and exception."""
    app, _, rest = find_app([str(word) for word in words])
    return CliRunner().invoke(app, rest, catch_exceptions=not raises)


def call(*words: object, code: int = 0) -> str:
    """Run `airgen WORDS`, and return its standard output. Its exit code must be `code`; errors are raised."""
    result = invoke(*words, raises=True)
    assert result.exit_code == code, result.output
    return str(result.stdout)
