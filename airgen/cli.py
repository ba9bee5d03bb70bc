"""The `airgen` entry point: print the help, or import one module of `airgen.commands` and run it.

`airgen --help` prints the table of `airgen.commands` and imports nothing else, so it starts quickly.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from airgen import __version__
from airgen.commands import COMMANDS, GROUPS, MOVED

if TYPE_CHECKING:
    import typer

    from airgen.errors import AirgenError


_LONGEST_ERROR_LINE = 4_000  # maximum characters per line of an error, which can repeat a value from a file
_BROKEN_PIPE_EXIT = 1  # what typer makes of a BrokenPipeError
_INTERRUPTED_EXIT = 130  # what typer makes of a KeyboardInterrupt

ABOUT = """Usage: airgen COMMAND [OPTIONS]

  Turn your own corpus into a retrieval benchmark, and find the retriever that is best for it.

  Start with:   airgen init FOLDER     look at your documents, and write the YAML files for them
                airgen init --demo     a small benchmark with a model on this machine, in minutes
  Help:         airgen COMMAND --help        The guide: airgen help, airgen help WORD
  Exit codes:   0 done, 1 failed, 2 wrong usage, 3 stopped and resumable,
                4 a system is worse (--fail-if-worse, --fail-below), 5 it may be (--fail-if-unsure)
"""


def help_text() -> str:
    """Return the text that `airgen --help` prints."""
    sections = [
        "\n".join([f"{title}:", *(f"  {name:<10}{line}" for name, line in group.items())])
        for title, group in GROUPS.items()
    ]
    return "\n\n".join([ABOUT, *sections])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. Print airgen's errors without a traceback.

    Always raises SystemExit with one of the exit codes listed in the help.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a console that lacks a character shows a replacement
            stream.reconfigure(errors="replace")
    try:
        try:
            _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has ended (`airgen ... | head`), which is not an error
        # Python flushes once more at the end, and would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(_BROKEN_PIPE_EXIT) from None


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the caller closed (`>&-`, some schedulers).

    Otherwise, the next file that is opened would take its number, and output could end up in a database.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


def words_of(name: str) -> dict[str, Callable[..., Any]]:
    """Return a command's functions by subcommand; the command itself has an empty name."""
    if name not in COMMANDS:
        return {}
    module = importlib.import_module(f"airgen.commands.{name}")
    return {
        key.removeprefix(name).removeprefix("_").replace("_", "-"): value
        for key, value in vars(module).items()
        if hasattr(value, "shell") and value.__module__ == module.__name__
    }


def _words_of(name: str, wanted: str = "") -> dict[str, Callable[..., Any]]:
    """Return `words_of` with what installed packages declare for a command: `study-mine` is `airgen study mine`.

    Only a command without a function of its own takes such words. Packages are not asked if airgen has the `wanted`
    word. Raises UsageError for a function that is not decorated with `command`.
    """
    from airgen.components.registry import installed, resolve
    from airgen.errors import UsageError

    own, functions = words_of(name), dict[str, Callable[..., Any]]()
    if "" in own or wanted in own:
        return own
    for declared in installed("command"):
        first, _, word = declared.partition("-")
        if first == name:
            functions[word] = resolve("command", declared)
            if not hasattr(functions[word], "shell"):
                raise UsageError(f"command {declared!r}: decorate its function with airgen.commands.command.command")
    return functions | own  # airgen's own cannot be replaced


def find_app(words: list[str]) -> tuple[typer.Typer, str, list[str]]:
    """Find the command that the arguments name.

    Returns:
        The command, the name that its help shows, and the remaining arguments.

    Raises:
        UsageError: There is no such command or subcommand, or another command has the option.
    """
    from airgen.commands.command import app_of
    from airgen.components.registry import closest
    from airgen.errors import UsageError

    name, *rest = ["show", "guide", *words[1:]] if words[0] == "help" else words
    moved = MOVED.get(name, {})
    for option in (word.partition("=")[0] for word in rest):
        if option in moved:
            raise UsageError(f"airgen {name} has no option {option}: {moved[option]}")
    functions = _words_of(name, *rest[:1])
    if not functions:
        raise UsageError(f"unknown command {name!r}{closest(name, list(COMMANDS))}; see airgen --help")
    if rest and rest[0] in functions:
        return app_of(functions[rest[0]]), f"airgen {name} {rest[0]}", rest[1:]
    if "" not in functions:
        raise UsageError(
            f"unknown word {rest[0]!r} after `airgen {name}`{closest(rest[0], list(functions))}; "
            f"see airgen {name} --help"
        )
    return app_of(functions[""], _listed(name, functions)), f"airgen {name}", rest


def _listed(name: str, functions: dict[str, Callable[..., Any]]) -> str:
    """Format the list of a command's subcommands."""
    lines = {word: (function.__doc__ or "").partition("\n")[0] for word, function in functions.items() if word}
    width = max(map(len, lines), default=0)
    return "\n".join(f"  airgen {name} {word:<{width}}  {line}" for word, line in lines.items())


def _run(arguments: list[str] | None) -> NoReturn:
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help"):
        print(help_text())
        raise SystemExit(0 if words else 2)
    if words[0] == "--version":
        print(f"airgen {__version__}")
        raise SystemExit(0)
    from airgen.errors import AirgenError, Stopped, disk_error
    from airgen.safety.interruptible import INTERRUPTED, hear_interrupts

    if arguments is None:
        hear_interrupts()
    try:
        import typer

        if words[0] in COMMANDS and words[1:] in ([], ["--help"]) and "" not in (functions := _words_of(words[0])):
            print(
                f"Usage: airgen {words[0]} WORD [OPTIONS]\n\n  {COMMANDS[words[0]]}\n\n{_listed(words[0], functions)}"
            )
            raise SystemExit(0 if words[1:] else 2)
        app, name, rest = find_app(words)
        command = typer.main.get_command(app)
        for part in ("make_context", "invoke"):
            setattr(command, part, _shown_safely(getattr(command, part)))
        command.main(args=rest, prog_name=name)
    except AirgenError as error:
        _fail(error)
    except BrokenPipeError:
        raise
    except OSError as error:  # a disk that is full or read-only can fail any write
        _fail(disk_error(error))
    except MemoryError:
        _fail(AirgenError("there is not enough memory for this: use a machine with more, or smaller inputs"))
    except RuntimeError as error:
        if not _lacks_thread(error):
            raise
        _fail(AirgenError("the system starts no more threads: raise its limit (ulimit -u, or --pids-limit in Docker)"))
    except KeyboardInterrupt:
        _fail(Stopped(INTERRUPTED))
    except SystemExit as end:
        if end.code == _INTERRUPTED_EXIT:
            _fail(Stopped(INTERRUPTED))
        raise
    except Exception:
        raise  # a fault of airgen, which its traceback explains
    except BaseException as error:  # noqa: BLE001  # GeneratorExit or CancelledError of a part, raised in a loop
        from airgen.safety.guard import failure

        _fail(failure(error, "a part ended the work"))
    raise SystemExit(0)


def _shown_safely(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a call to remove control characters from usage errors, which repeat the arguments."""
    from airgen.safety.escaping import visible

    def run(*args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except Exception as error:
            if callable(
                format_message := getattr(error, "format_message", None)
            ):  # click's; typer has its own copy of click
                text = visible(str(format_message()))
                error.format_message = lambda: text  # type: ignore[attr-defined]
            raise

    return run


def _lacks_thread(error: BaseException | None) -> bool:
    """Return whether Python could not start a thread, which may have led to another error while cleaning up."""
    while error is not None:
        if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
            return True
        error = error.__context__
    return False


def _fail(error: AirgenError) -> NoReturn:
    from airgen.safety.escaping import visible
    from airgen.safety.interruptible import leave

    if error.was_printed:
        leave("", error.exit_code)
        raise SystemExit(error.exit_code) from None
    lines = (
        line if len(line) <= _LONGEST_ERROR_LINE else f"{line[:_LONGEST_ERROR_LINE]}…"
        for line in str(error).splitlines()
    )
    leave("\n".join(f"airgen: {visible(line)}" for line in lines), error.exit_code)
    raise SystemExit(error.exit_code) from None
