"""Print a command's output: its result, progress messages, events for machines, and a progress bar."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import typer

from airgen.display.notebook import current_bar
from airgen.errors import AirgenError, Stopped
from airgen.safety.escaping import visible
from airgen.safety.interruptible import INTERRUPTED
from airgen.storage.json_values import plain

_silent = False
_logging = False


def echo(text: str, *, err: bool = False) -> None:
    """Print text or JSON with control characters made visible. Every command prints through this function."""
    typer.echo(visible(text), err=err)


def say(line: str) -> None:
    """Print a progress message on standard error, unless `--json`, `--quiet` or `quiet=True` is set.

    In a notebook, each message replaces the previous one.
    """
    if _logging:
        print_event({"event": "note", "text": visible(line)})
    elif not _silent:
        if bar := current_bar():
            bar.update(visible(line), 0, None, force=True)
        else:
            echo(line, err=True)


def count(name: str, done: int, total: int) -> None:
    """Show in a notebook how far a part of the work is."""
    if not (_silent or _logging) and (bar := current_bar()):
        bar.update(visible(name), done, total)


@contextmanager
def logging_events(on: bool) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Yield a function that prints an event as a line of JSON on standard error or, unless `on`, None.

    Messages of `say`, and an error that ends the command, also become such lines.
    """
    global _logging
    before, _logging = _logging, on
    try:
        yield print_event if on else None
    except (AirgenError, KeyboardInterrupt) as error:
        if not on:
            raise
        ending = error if isinstance(error, AirgenError) else Stopped(INTERRUPTED)
        print_event(end_event(ending))
        ending.was_printed = True
        raise ending from error
    finally:
        _logging = before


def end_event(error: AirgenError | None = None, **values: Any) -> dict[str, Any]:
    """Return the last event: how the command ended, its exit code, and why."""
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
def saying(loud: bool) -> Iterator[None]:
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
