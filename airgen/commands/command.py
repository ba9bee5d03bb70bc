"""Turn functions into commands, and print their results.

    @command
    def evaluate_tune(dataset: Dataset, systems: ..., seed: Seed = 0) -> Outcome[Tuned]:
        ...
        return Outcome(found, tuned_text(found))

`airgen evaluate tune` prints the outcome's text, or its value with `--json`. `airgen.api.evaluate_tune` is the same
function and returns the typed value. The function `evaluate` in the module `evaluate` is the command without a
subcommand.

The docstring of the function is the help of the command, up to its sections `Examples`, `Returns` and `Raises`, which
only Python shows. `Args` is added from the help of each option.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import typer

from airgen.commands.options import IN_PYTHON
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo, saying
from airgen.commands.signature import (
    arguments_section,
    bare_type,
    evaluated,
    give_signature,
    in_python,
    makers_of,
    shell_type,
    split_docstring,
)
from airgen.display.notebook import said_as_one_bar
from airgen.display.study import Figures
from airgen.errors import UsageError
from airgen.python.entrance import entrance, shell_words
from airgen.safety.escaping import json_text
from airgen.storage.json_values import plain

T = TypeVar("T")
P = ParamSpec("P")


def command(function: Callable[P, Outcome[T]]) -> Callable[P, T]:
    """Make a function callable from Python and, through `app_of`, from the shell.

    If a parameter's `Annotated` type contains a function besides the help text, the function converts each given value.
    """
    signature = evaluated(function)
    hints = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    makers = {name: maker for name, hint in hints.items() for maker in makers_of(hint)}
    paths = {name for name, hint in hints.items() if "Path" in str(shell_type(bare_type(hint)))}

    @functools.wraps(function)
    def run(*args: P.args, **given: P.kwargs) -> Outcome[T]:
        bound = signature.bind(*args, **given)
        for name in paths & bound.arguments.keys():
            value = bound.arguments[name]
            _refuse_addresses(name, value if isinstance(value, list | tuple) else [value])
        for name in makers.keys() & bound.arguments.keys():
            value, make = bound.arguments[name], makers[name]
            alone = isinstance(value, str | os.PathLike)
            bound.arguments[name] = make(value) if alone else [make(item) for item in value]
        return function(*bound.args, **bound.kwargs)

    @entrance
    @functools.wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> T:
        loud = not given.get("quiet", False)
        with saying(loud), said_as_one_bar(not loud):
            outcome = run(*args, **given)
        if outcome.error is not None and not hasattr(outcome.value, "failed"):
            raise outcome.error
        value: Any = outcome.value
        return cast(T, Figures(value)) if type(value) is dict else outcome.value

    def shell(**given: Any) -> None:
        as_json, quiet = given.pop("as_json"), given.get("quiet", False)
        with saying(not as_json and not quiet), shell_words():
            outcome = run(**given)  # type: ignore[call-arg]
        if outcome.hidden:
            return
        if as_json:
            echo(json_text(plain(outcome.value if outcome.json is None else outcome.json), indent=1))
        elif not quiet and outcome.text:
            echo(outcome.printed.removesuffix("\n"))
        if outcome.error is not None:
            raise outcome.error
        if outcome.code:
            raise typer.Exit(outcome.code)

    give_signature(call, signature, shell=False)
    help_text, sections = split_docstring(function.__doc__ or "")
    arguments = arguments_section(signature, IN_PYTHON)
    call.__doc__ = "\n\n".join(filter(None, [in_python(help_text), arguments, in_python(sections)])) + "\n"
    give_signature(shell, signature, shell=True)
    shell.__doc__, shell.__name__ = help_text, function.__name__
    call.shell = shell  # type: ignore[attr-defined]
    return call


def _refuse_addresses(name: str, values: Sequence[object]) -> None:
    """Raise UsageError for a URL, which `Path` would read as a folder `s3:`. It may contain a key, so it is never
    printed."""
    for value in values:
        if not isinstance(value, str | Path):
            continue
        if scheme := re.match(r"[a-z][a-z0-9+.-]{1,20}:/", str(value)):
            raise UsageError(
                f"{name}: give a local file or folder, not an address ({scheme[0]}/...): download it with the store's "
                "own tools; only a corpus can be read from a store (`fetch: {kind: storage}`)"
            )


def app_of(call: Callable[..., Any], more: str = "") -> typer.Typer:
    """Return the shell command.

    Args:
        call: A function that `command` returned.
        more: Lines for the end of the help: the subcommands.

    Returns:
        A typer app with this one command.
    """
    app = typer.Typer(add_completion=False)
    app.command(epilog=more or None)(call.shell)  # type: ignore[attr-defined]
    return app
