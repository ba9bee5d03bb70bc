"""Every command with odd paths in place of each file and folder: a message and an exit code, never a traceback."""

import contextlib
import io
from pathlib import Path

import click
import pytest
import typer

from airgen import cli
from airgen.commands import COMMANDS

ODD = [
    ".",
    "..",
    "",
    "-",
    "--",
    "x" * 300,
    "a\x01b",
    "~nobody",
    "s3://bucket/key",
    "/dev/null",
    "\udcff",
    "*",
    "nope/",
    "a.yaml",
]
MOST_ODD = (".", "", "\udcff")
APART = {"init", "fetch"}  # they ask people and servers


def calls(every: bool) -> list[list[str]]:
    """For each command and some or every odd path: all arguments and required options; each other option in turn."""
    lines = []
    for name in COMMANDS:
        if name in APART:
            continue
        for word in cli.words_of(name):
            head = [name, *([word] if word else [])]
            parameters = typer.main.get_command(cli.find_app(head)[0]).params
            arguments = [one for one in parameters if one.param_type_name == "argument"]
            options = [one for one in parameters if isinstance(one, click.Option) or one.param_type_name == "option"]
            options = [one for one in options if not getattr(one, "is_flag", False) and one.name != "help"]
            for odd in ODD if every else MOST_ODD:
                whole = [odd] * len(arguments)
                for option in options:
                    whole += [option.opts[0], odd] if option.required else []
                lines.append([*head, *whole])
                if every and odd in MOST_ODD:
                    lines += [[*head, *whole, one.opts[0], odd] for one in options if not one.required]
    return lines


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_no_command_ends_in_a_traceback(every: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = calls(every)
    assert len(lines) > (1000 if every else 100)
    wrong = []
    for line in lines:
        errors = io.StringIO()
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
                cli.main(line)
        except SystemExit as end:
            if end.code not in (0, 1, 2, 3) or "Traceback" in errors.getvalue():
                wrong.append((line, end.code, errors.getvalue()[-300:]))
        except Exception as error:  # noqa: BLE001  # this is what the test looks for
            wrong.append((line, type(error).__name__, str(error)))
    assert not wrong, f"{len(wrong)} of {len(lines)}: {wrong[:5]}"
