"""How a function becomes a command, and the one way in which commands print.

    @command
    def evaluate_tune(dataset: Dataset, systems: ..., seed: Seed = 0) -> Outcome[Tuned]:
        ...
        return Outcome(found, tuned_text(found))

`airgen evaluate tune` prints the outcome's text, or with `--json` its value. `airgen.api.evaluate_tune` is the same
function: it returns the value, typed. A function `evaluate` of the module `evaluate` is the command without a word.
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
_silent = False
_logging = False


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What a command found: the value for a program, and the lines for a person.

    json: what `--json` prints where that is not the value. code: the exit code of the shell. error: raised after all
    that was found is printed, and to Python, unless the value has a field `failed` that says so. hidden: nothing is
    printed, not even as JSON.
    """

    value: T
    text: str | Sequence[str] = ""
    json: Any = None
    code: int = 0
    error: AirgenError | None = None
    hidden: bool = False


def command(function: Callable[P, Outcome[T]]) -> Callable[P, T]:
    """The function as Python calls it; `app_of` gives the command of the shell.

    A parameter that is `Annotated` with a function besides its help gets what that function makes of each value.
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
    call.__doc__ = _with_arguments(function.__doc__ or "", signature)
    _give_signature(shell, signature, shell=True)
    shell.__doc__, shell.__name__ = function.__doc__, function.__name__
    call.shell = shell  # type: ignore[attr-defined]
    return call


def _refuse_addresses(name: str, values: Sequence[object]) -> None:
    """Raises UsageError for an address: a path makes a folder `s3:` of it. It may hold a key, and is not shown."""
    for value in values:
        if not isinstance(value, str | Path):
            continue
        if found := re.match(r"[a-z][a-z0-9+.-]{1,20}:/", str(value)):
            raise UsageError(
                f"{name}: a file or folder of this machine is needed, not an address ({found[0]}/...): copy it with "
                "the store's own tools; only a corpus is read from a store (`fetch: {kind: storage}`)"
            )


def app_of(call: Callable[..., Any], more: str = "") -> typer.Typer:
    """The command of the shell. more: lines of help about the words behind it."""
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


def _with_arguments(about: str, signature: inspect.Signature) -> str:
    """The docstring with a line for each argument, which is the help of its option."""
    lines = []
    for one in signature.parameters.values():
        info = one.annotation.__metadata__[0] if get_origin(one.annotation) is Annotated else None
        words = " ".join(str(getattr(info, "help", "") or "").replace("--", "").split())
        lines.append(f"    {one.name}: {words}" if words else f"    {one.name}")
    if not lines:
        return about
    return f"{inspect.cleandoc(about)}\n\nArgs:\n" + "\n".join(lines) + "\n"


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
    """Print a text, JSON or not. Every command prints with this: no control character gets through."""
    typer.echo(visible(text), err=err)


def say(line: str) -> None:
    """A line on standard error about what is going on; none with `--json`, `--quiet` and `quiet=True`.

    In a notebook it takes the place of the line before.
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
    """Whether the command that runs prints nothing but its result."""
    return _silent


@contextmanager
def _saying(loud: bool) -> Iterator[None]:
    """Whether `say` and `progress_bar` print; a command that a silent one calls is silent, too."""
    global _silent
    before, _silent = _silent, _silent or not loud
    try:
        yield
    finally:
        _silent = before


@contextmanager
def progress_bar(description: str, counter: str = "") -> Iterator[Callable[..., None]]:
    """Show a line on the terminal; yields a function that updates it (`advance`, or `completed` and `total`).

    counter: text after the description, such as "{task.completed:,.0f} passages"; without it bytes are counted.
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
