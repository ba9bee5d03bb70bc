"""What a notebook needs: one bar that updates in place of lines, and errors in one line.

    with said_as_one_bar(): ...          # in a notebook, all progress is one line of output; elsewhere as it is

Whether this is a notebook is seen by IPython's kernel, which is asked only if it runs already.
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
_bars: list["NotebookBar"] = []  # the one that is shown


def in_notebook() -> bool:
    """Return whether a kernel of Jupyter runs this process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def console(quiet: bool = False) -> Console:
    """Return where progress is printed: nowhere in a notebook, which has a bar."""
    return Console(stderr=True, quiet=quiet or in_notebook())


class NotebookBar:
    """One line of output with a bar, which is replaced by the next one."""

    def __init__(self) -> None:
        library: Any = importlib.import_module("IPython.display")
        self._html = library.HTML
        self._shown: Any = library.display(library.HTML(""), display_id=True)
        self._last, self._lock = 0.0, threading.Lock()

    def update(self, name: str, done: int, total: int | None, note: str = "", *, force: bool = False) -> None:
        """Show how far a stage is."""
        with self._lock:
            now = time.monotonic()
            if not force and now - self._last < _UPDATE_SECONDS:
                return
            self._last = now
            self._shown.update(self._html(bar_html(name, done, total, note)))

    def close(self) -> None:
        """Leave nothing behind."""
        self._shown.update(self._html(""))


def bar_html(name: str, done: int, total: int | None, note: str = "") -> str:
    """Format a stage as HTML: its name, a bar, how many are done, and the last note."""
    value = f' value="{min(done, total)}" max="{total}"' if total else ""
    count = f"{done:,} of {total:,}" if total else f"{done:,}" if done else ""
    return (
        f'<div style="font-family:monospace">{html.escape(name)} <progress style="width:16em"{value}></progress> '
        f'{count} <span style="opacity:.7">{html.escape(note[:100])}</span></div>'
    )


def current_bar() -> NotebookBar | None:
    """Return the bar of this notebook, while something runs."""
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
