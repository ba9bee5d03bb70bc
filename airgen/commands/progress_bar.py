"""A progress line on the terminal for commands that count passages, documents or pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(description: str, counter: str, *, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """Show a line on standard error; yields a function that updates it (`advance`, or `completed` and `total`).

    counter: text after the description, such as "{task.completed:,.0f} passages".
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn(counter), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False, markup=False)
    with Progress(*columns, transient=True, console=console, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(description, total=0)
        yield lambda **numbers: bar.update(task, **numbers)
