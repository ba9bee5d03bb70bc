"""The entry point `airgen`: print the help, or import one module of `airgen.commands` and run it.

`airgen --help` prints the table of `airgen.commands` and imports nothing else, so it answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from airgen import __version__
from airgen.commands import COMMANDS, GROUPS

if TYPE_CHECKING:
    from airgen.errors import AirgenError


_LONGEST = 4_000  # characters of a line of an error, which can repeat a value of a file
_PIPE = 1  # what typer makes of a BrokenPipeError
_CTRL_C = 130  # what typer makes of a KeyboardInterrupt

ABOUT = """Usage: airgen COMMAND [OPTIONS]

  Turn your own corpus into a retrieval benchmark, and find the retriever that is best for it.

  Start with:   airgen init FOLDER     look at your documents, and write the YAML files for them
                airgen demo            a small benchmark with a model on this machine, in minutes
  Help:         airgen COMMAND --help        Version: airgen --version
  Exit codes:   0 done, 1 failed, 2 wrong usage, 3 stopped and resumable
"""


def help_text() -> str:
    """The text that `airgen --help` prints."""
    sections = [
        "\n".join([f"{title}:", *(f"  {name:<13}{line}" for name, line in group.items())])
        for title, group in GROUPS.items()
    ]
    return "\n\n".join([ABOUT, *sections])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. An error of airgen is printed without a traceback.

    Always raises SystemExit, with the exit codes that the help names.
    """
    try:
        try:
            _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # nobody reads the output any more (`airgen ... | head`): no reason for a word
        # Python flushes once more at the end, and would print that it cannot.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(_PIPE) from None


def _run(arguments: list[str] | None) -> NoReturn:
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help"):
        print(help_text())
        raise SystemExit(0 if words else 2)
    if words[0] == "--version":
        print(f"airgen {__version__}")
        raise SystemExit(0)
    name = words[0]
    if name not in COMMANDS:
        from airgen.registry import closest

        print(f"airgen: unknown command {name!r}{closest(name, list(COMMANDS))}; see airgen --help", file=sys.stderr)
        raise SystemExit(2)
    from airgen.errors import AirgenError, Stopped, disk_error
    from airgen.interruptible import INTERRUPTED, hear_interrupts

    if arguments is None:
        hear_interrupts()
    try:
        import typer

        module = importlib.import_module(f"airgen.commands.{name}")
        command = typer.main.get_command(module.app)
        for part in ("make_context", "invoke"):
            setattr(command, part, _shown_safely(getattr(command, part)))
        command.main(args=words[1:], prog_name=f"airgen {name}")
    except AirgenError as error:
        _fail(error)
    except BrokenPipeError:
        raise
    except OSError as error:  # a disk that is full or read-only can fail any write
        _fail(disk_error(error))
    except MemoryError:
        _fail(AirgenError("there is not enough memory for this: use a machine with more, or smaller inputs"))
    except KeyboardInterrupt:
        _fail(Stopped(INTERRUPTED))
    except SystemExit as end:
        if end.code == _CTRL_C:
            _fail(Stopped(INTERRUPTED))
        raise
    raise SystemExit(0)


def _shown_safely(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but an error of wrong usage, which repeats words of the command line, has no control characters."""
    from airgen.text.display import visible

    def run(*args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except Exception as error:
            if callable(said := getattr(error, "format_message", None)):  # click's; typer has its own copy of click
                text = visible(str(said()))
                error.format_message = lambda: text  # type: ignore[attr-defined]
            raise

    return run


def _fail(error: AirgenError) -> NoReturn:
    from airgen.interruptible import leave
    from airgen.text.display import visible

    lines = (line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…" for line in str(error).splitlines())
    leave("\n".join(f"airgen: {visible(line)}" for line in lines), error.exit_code)
    raise SystemExit(error.exit_code) from None
