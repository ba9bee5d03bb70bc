"""Turn functions into commands, and print their results.

    @command
    def evaluate_tune(dataset: Dataset, systems: ..., seed: Seed = 0) -> Outcome[Tuned]:
        ...
        return Outcome(found, tuned_text(found))

`airgen evaluate tune` prints the outcome's text, or its value with `--json`. `airgen.api.evaluate_tune` is the same
function and returns the typed value. The function `evaluate` in the module `evaluate` is the command without a
subcommand.

The docstring of the function is the help of the command, up to its sections `Returns` and `Raises`, which only Python
shows. `Args` is added from the help of each option.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, Union, cast, get_args, get_origin

import typer
from typer.models import OptionInfo

from airgen.errors import AirgenError, Stopped, UsageError
from airgen.interruptible import INTERRUPTED
from airgen.kept import plain
from airgen.notebook import current_bar, said_as_one_bar
from airgen.study import Figures
from airgen.text.display import json_text, visible

T = TypeVar("T")
P = ParamSpec("P")

WORSE, UNSURE = 4, 5  # exit codes of gates: a score is worse or too low, or there are too few queries to tell

_JSON = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_SECTIONS = re.compile(r"^(?:Returns|Raises):$", re.MULTILINE)
_silent = False
_logging = False


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result of a command: a value for programs, and text for people.

    Attributes:
        value: What the Python function returns.
        text: What the command prints.
        json: What `--json` prints, if not the value.
        code: The exit code of the shell.
        error: Raised once the result is printed. In Python it is raised unless the value has a field `failed`, which
            tells the caller the same.
        hidden: Print nothing, not even JSON.
    """

    value: T
    text: str | Sequence[str] = ""
    json: Any = None
    code: int = 0
    error: AirgenError | None = None
    hidden: bool = False


def command(function: Callable[P, Outcome[T]]) -> Callable[P, T]:
    """Make a function callable from Python and, through `app_of`, from the shell.

    A function in the `Annotated` type of a parameter, besides its help, converts each value given for it.
    """
    signature = _evaluated(function)
    makers = {name: maker for name, one in signature.parameters.items() for maker in _makers(one.annotation)}
    places = {name for name, one in signature.parameters.items() if "Path" in str(_for_shell(_bare(one.annotation)))}

    @functools.wraps(function)
    def run(*args: P.args, **given: P.kwargs) -> Outcome[T]:
        bound = signature.bind(*args, **given)
        for name in places & bound.arguments.keys():
            value = bound.arguments[name]
            _refuse_addresses(name, value if isinstance(value, list | tuple) else [value])
        for name in makers.keys() & bound.arguments.keys():
            value, make = bound.arguments[name], makers[name]
            alone = isinstance(value, str | os.PathLike)
            bound.arguments[name] = make(value) if alone else [make(one) for one in value]
        return function(*bound.args, **bound.kwargs)

    @functools.wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> T:
        loud = not given.get("quiet", False)
        with _saying(loud), said_as_one_bar(not loud):
            outcome = run(*args, **given)
        if outcome.error is not None and not hasattr(outcome.value, "failed"):
            raise outcome.error
        value: Any = outcome.value
        return cast(T, Figures(value)) if type(value) is dict else outcome.value

    def shell(**given: Any) -> None:
        as_json, quiet = given.pop("as_json"), given.get("quiet", False)
        with _saying(not as_json and not quiet):
            outcome = run(**given)  # type: ignore[call-arg]
        if outcome.hidden:
            return
        if as_json:
            echo(json_text(plain(outcome.value if outcome.json is None else outcome.json), indent=1))
        elif not quiet and outcome.text:
            echo((outcome.text if isinstance(outcome.text, str) else "\n".join(outcome.text)).removesuffix("\n"))
        if outcome.error is not None:
            raise outcome.error
        if outcome.code:
            raise typer.Exit(outcome.code)

    _give_signature(call, signature, shell=False)
    help_text, sections = _split(function.__doc__ or "")
    call.__doc__ = "\n\n".join(filter(None, [help_text, _arguments(signature), sections])) + "\n"
    _give_signature(shell, signature, shell=True)
    shell.__doc__, shell.__name__ = help_text, function.__name__
    call.shell = shell  # type: ignore[attr-defined]
    return call


def _refuse_addresses(name: str, values: Sequence[object]) -> None:
    """Raise UsageError for an address, which `Path` would read as a folder `s3:`. It may hold a key: never print it."""
    for value in values:
        if not isinstance(value, str | Path):
            continue
        if found := re.match(r"[a-z][a-z0-9+.-]{1,20}:/", str(value)):
            raise UsageError(
                f"{name}: give a local file or folder, not an address ({found[0]}/...): download it with the store's "
                "own tools; only a corpus can be read from a store (`fetch: {kind: storage}`)"
            )


def app_of(call: Callable[..., Any], more: str = "") -> typer.Typer:
    """Return the command of the shell.

    Args:
        call: A function that `command` returned.
        more: Lines for the end of the help: the subcommands.

    Returns:
        A typer app with this one command.
    """
    app = typer.Typer(add_completion=False)
    app.command(epilog=more or None)(call.shell)  # type: ignore[attr-defined]
    return app


def _evaluated(function: Callable[..., Any]) -> inspect.Signature:
    """The signature with real types; the result's may name what only a type checker imports, and stays text."""
    there = inspect.signature(function)
    space = getattr(function, "__globals__", {})
    every = [one.replace(annotation=eval(one.annotation, space)) for one in there.parameters.values()]
    return there.replace(parameters=every)


def _give_signature(call: Callable[..., Any], signature: inspect.Signature, *, shell: bool) -> None:
    """What typer reads (shell), or what `help()` shows: types without options, and the value's type."""
    every = list(signature.parameters.values())
    if shell:
        every.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_JSON))
        every = [one.replace(annotation=_option(one.name, one.annotation)) for one in every]
        result: Any = None
    else:
        every = [one.replace(annotation=_bare(one.annotation)) for one in every]
        result = str(signature.return_annotation).removeprefix("Outcome[").removesuffix("]")
    call.__signature__ = signature.replace(parameters=every, return_annotation=result)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in every}


def _split(docstring: str) -> tuple[str, str]:
    """Split a docstring into the help of the command, and the sections that only Python shows."""
    text = inspect.cleandoc(docstring)
    section = _SECTIONS.search(text)
    start = section.start() if section else len(text)
    return text[:start].rstrip(), text[start:]


def _arguments(signature: inspect.Signature) -> str:
    """Return the section `Args`: a line for each argument, with the help of its option."""
    lines = []
    for one in signature.parameters.values():
        info = one.annotation.__metadata__[0] if get_origin(one.annotation) is Annotated else None
        words = " ".join(str(getattr(info, "help", "") or "").replace("--", "").split())
        lines.append(f"    {one.name}: {words}" if words else f"    {one.name}")
    return "\n".join(["Args:", *lines]) if lines else ""


def _makers(hint: Any) -> list[Callable[[Any], Any]]:
    return [one for one in hint.__metadata__[1:] if callable(one)] if get_origin(hint) is Annotated else []


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _option(name: str, hint: Any) -> Any:
    """A parameter as typer reads it. A switch has no `--no-...` unless it names one; what can be repeated says so."""
    kind, info = _for_shell(_bare(hint)), copy(hint.__metadata__[0])
    if isinstance(info, OptionInfo):
        if kind is bool and info.default is ...:
            info.param_decls = (f"--{name.replace('_', '-')}",)
        if get_origin(kind) is list:
            info.help = f"{str(info.help).removesuffix('.')} (repeatable)."
    return Annotated[kind, info]


def _for_shell(hint: Any) -> Any:
    """The type that typer parses: `str | Path` is a path, one or a sequence of them a list."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    lists = [get_args(one)[0] for one in parts if get_origin(one) is Sequence and get_args(one)[0] is not Any]
    found = list[_for_shell(lists[0])] if lists else Path if Path in parts else None  # type: ignore[misc]
    if found is None:
        return hint
    return found | None if type(None) in parts else found


def echo(text: str, *, err: bool = False) -> None:
    """Print text or JSON with control characters made visible. Every command prints through this function."""
    typer.echo(visible(text), err=err)


def say(line: str) -> None:
    """Print a progress message on standard error, unless `--json`, `--quiet` or `quiet=True` is set.

    In a notebook, each message replaces the one before.
    """
    if _logging:
        print_event({"event": "note", "text": visible(line)})
    elif not _silent:
        if bar := current_bar():
            bar.update(visible(line), 0, None, force=True)
        else:
            echo(line, err=True)


@contextmanager
def logging_events(on: bool) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Yields what prints an event as a line of JSON on standard error, where `on`; `say` and an error that ends the
    command become such lines, too. Else None."""
    global _logging
    before, _logging = _logging, on
    try:
        yield print_event if on else None
    except (AirgenError, KeyboardInterrupt) as error:
        if not on:
            raise
        ending = error if isinstance(error, AirgenError) else Stopped(INTERRUPTED)
        print_event(end_event(ending))
        ending.told = True
        raise ending from error
    finally:
        _logging = before


def end_event(error: AirgenError | None = None, **values: Any) -> dict[str, Any]:
    """The last event: how the command ended, its exit code, and why."""
    how = "done" if error is None else "stopped" if isinstance(error, Stopped) else "failed"
    why = "" if error is None else str(error)
    return {"event": "end", "how": how, "code": error.exit_code if error else 0, "why": why, **values}


def print_event(event: dict[str, Any]) -> None:
    """Print an event as one line of JSON on standard error: `event` and `time` first."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"event": event["event"], "time": now, **event}
    typer.echo(json.dumps(plain(line), ensure_ascii=False), err=True)


def is_silent() -> bool:
    """Return whether the running command prints only its result."""
    return _silent


@contextmanager
def _saying(loud: bool) -> Iterator[None]:
    """Set whether `say` and `progress_bar` print. A command called by a silent command is silent as well."""
    global _silent
    before, _silent = _silent, _silent or not loud
    try:
        yield
    finally:
        _silent = before


@contextmanager
def progress_bar(description: str, counter: str = "") -> Iterator[Callable[..., None]]:
    """Show a progress bar on the terminal.

    Args:
        description: Text at the start of the line.
        counter: Text after the description, such as "{task.completed:,.0f} passages". Default: a bar that counts bytes.

    Yields:
        A function that updates the bar. It takes `advance`, or `completed` and `total`.
    """
    from rich import progress
    from rich.console import Console

    columns: list[progress.ProgressColumn] = [progress.SpinnerColumn(), progress.TextColumn("{task.description}")]
    if counter:
        columns += [progress.TextColumn(counter), progress.TimeElapsedColumn()]
    else:
        columns += [progress.BarColumn(), progress.DownloadColumn(), progress.TransferSpeedColumn()]
        columns += [progress.TimeRemainingColumn()]
    console = Console(stderr=True, highlight=False, markup=False)
    with progress.Progress(
        *columns, transient=True, console=console, disable=_silent or not console.is_terminal
    ) as bar:
        task = bar.add_task(description, total=0 if counter else None)
        yield lambda **numbers: bar.update(task, **numbers)
