"""Notebook support: a single progress bar instead of many lines, and one-line errors.

    with said_as_one_bar(): ...          # in a notebook, all progress is one line of output; elsewhere as it is

A notebook is detected by IPython's kernel, which is queried only if it is already loaded.
"""

import html
import importlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

_UPDATE_SECONDS = 0.3  # seconds between two updates
_bars: list["NotebookBar"] = []  # the progress line that is shown


def in_notebook() -> bool:
    """Return whether this process is a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    # Colab's and other services' shells are subclasses with other names.
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


def console(quiet: bool = False) -> Console:
    """Return the console for progress, which prints nothing in a notebook, because the notebook shows a bar."""
    return Console(stderr=True, quiet=quiet or in_notebook())


class NotebookBar:
    """A line of output with a progress bar, which each update replaces."""

    def __init__(self) -> None:
        library: Any = importlib.import_module("IPython.display")
        self._html = library.HTML
        self._shown: Any = library.display(library.HTML(""), display_id=True)
        self._last, self._lock = 0.0, threading.Lock()
        self._stopping = ""

    def update(self, name: str, done: int, total: int | None, note: str = "", *, force: bool = False) -> None:
        """Show the progress of a stage."""
        with self._lock:
            now = time.monotonic()
            if not force and now - self._last < _UPDATE_SECONDS:
                return
            self._last = now
            self._shown.update(self._html(bar_html(f"{self._stopping}{name}", done, total, note)))

    def stopping(self) -> None:
        """Say from now on that the user has pressed the stop button."""
        self._stopping = "stopping: "
        self.update("the current batch", 0, None, force=True)

    def close(self) -> None:
        """Remove the bar from the output."""
        self._shown.update(self._html(""))


def bar_html(name: str, done: int, total: int | None, note: str = "") -> str:
    """Format a stage as HTML: its name, a bar, the number of items done, and the last note."""
    value = f' value="{min(done, total)}" max="{total}"' if total else ""
    count = f"{done:,} of {total:,}" if total else f"{done:,}" if done else ""
    return (
        f'<div style="font-family:monospace">{html.escape(name)} <progress style="width:16em"{value}></progress> '
        f'{count} <span style="opacity:.7">{html.escape(note[:100])}</span></div>'
    )


def current_bar() -> NotebookBar | None:
    """Return this notebook's progress bar while something is running."""
    return _bars[-1] if _bars else None


@contextmanager
def said_as_one_bar(quiet: bool = False) -> Iterator[None]:
    """In a notebook, show all progress of the block as one bar; nested blocks share it."""
    if quiet or _bars or not in_notebook():
        yield
        return
    bar = NotebookBar()
    _bars.append(bar)
    try:
        yield
    finally:
        _bars.remove(bar)
        bar.close()
