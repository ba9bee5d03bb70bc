"""Call a command as a user does."""

from typing import Any

from typer.testing import CliRunner

from airgen.cli import find_app


def invoke(*words: object, raises: bool = False) -> Any:
    """What came of `airgen WORDS`: exit_code, stdout, output, exception."""
    app, _, rest = find_app([str(word) for word in words])
    return CliRunner().invoke(app, rest, catch_exceptions=not raises)


def call(*words: object, code: int = 0) -> str:
    """What `airgen WORDS` prints to standard output; its exit code must be `code`. Errors are raised."""
    result = invoke(*words, raises=True)
    assert result.exit_code == code, result.output
    return str(result.stdout)
