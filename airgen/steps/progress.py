"""The progress display: a bar for each stage on the terminal, and a status file for other processes."""

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from airgen.display.notebook import current_bar
from airgen.errors import Stopped, disk_error
from airgen.safety.escaping import one_line, terminal_text

STATUS = "status.json"
"""The name of the status file in a work directory."""

STATUS_SECONDS = 1.0
BEAT_SECONDS = 30.0  # seconds between two lines of a stage without a terminal
HEART_SECONDS = 5.0  # seconds between two status files of a stage without progress
_WIDE_COLUMNS = 110  # columns of a terminal from which there is room for a long bar
_RECENT_QUERIES = 20  # queries in the status file
_QUERY_CHARACTERS = 200  # maximum characters of each query
_MAX_STATUS_BYTES = 4 << 20  # maximum bytes of a status file, whose lists and texts are limited when it is written
_MAX_FIGURE = 1e15  # maximum of any figure in a status file


class Display:
    """Shows progress on the terminal and in `status.json`. Without a terminal, it prints a line every `every` seconds,
    even if there is no progress. The status file keeps what earlier processes of the job wrote about stages that this
    process has not begun, and adds up the seconds of a stage over all processes.

    At each update, from any thread, it calls `bill` for the cost of the job so far, `figures` and `counts` for other
    contents of the status file, and `compute` for the state of the workers.

    Args:
        log: Called with an event (plain values by name) for each finished stage and each line, instead of printing.
    """

    def __init__(
        self,
        status_file: Path,
        console: Console | None = None,
        *,
        every: float = BEAT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        log: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.status_file, self.every, self.clock = status_file, every, clock
        self.bill: Callable[[], str] = lambda: ""
        self.figures: Callable[[], dict[str, Any]] = dict
        self.compute: Callable[[], dict[str, Any]] = dict
        self.counts: dict[str, Callable[[], dict[str, Any]]] = {}
        self._recent: deque[dict[str, str]] = deque(maxlen=_RECENT_QUERIES)
        self._writing = threading.Lock()
        self.console = Console(quiet=True) if log is not None else console or Console(stderr=True)
        self.log = log
        self.state: dict[str, Any] = {"stages": (read_status(status_file) or {}).get("stages", {})}
        self._earlier = {name: stage.get("seconds") or 0.0 for name, stage in self.state["stages"].items()}
        self._written = 0.0
        self._silent = False  # the status file cannot be written, which the user already knows
        self._progress: Progress | None = None

    @contextmanager
    def stage(self, name: str, total: int | None, done: int = 0, note: str = "") -> "Iterator[Bar]":
        """Show a bar for one stage, whose `total` may be unknown."""
        note = terminal_text(note)
        columns = (
            TextColumn("{task.description:<16}"),
            BarColumn(bar_width=24 if self.console.width >= _WIDE_COLUMNS else 6),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            # The figures keep their width, and the note gets the rest.
            TextColumn("{task.fields[note]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
        )
        interactive = self.console.is_terminal
        with Progress(*columns, console=self.console, disable=not interactive, expand=True) as progress:
            task = progress.add_task(name, total=total, completed=done, rate="", note=note)
            bar = Bar(self, progress, task, name=name, total=total, done=done)
            self.update(name, total=total, done=done)
            ended = threading.Event()
            lines = not interactive and not self.console.quiet
            beat = threading.Thread(target=self._beat, args=(bar, ended, lines), daemon=True)
            beat.start()
            try:
                yield bar
            finally:
                ended.set()
                beat.join()
                seconds = self.clock() - bar.began
                in_all = self._earlier.get(name, 0.0) + seconds
                self._earlier[name] = in_all
                self.update(name, force=True, done=bar.done, seconds=round(in_all, 1))
                if self.log is not None:
                    self.log(self._event(bar, seconds))
                if not interactive:
                    of = "" if total is None else f" of {total:,}"
                    self._line(f"{name:<16} {bar.done:,}{of} in {seconds:.1f} s {bar.note}".rstrip())

    def _event(self, bar: "Bar", seconds: float) -> dict[str, Any]:
        """Return the log event of a finished stage, with the cost and calls of the job so far."""
        figures = self.figures()
        calls = sum(int(stage.get("calls", 0)) for stage in figures.get("usage", {}).values())
        return {
            "event": "stage",
            "stage": bar.name,
            "done": bar.done,
            "total": bar.total,
            "seconds": round(seconds, 3),
            "calls": calls,
            "spent_usd": figures.get("spent_usd", 0.0),
            "note": bar.note,
        }

    def _beat(self, bar: "Bar", ended: threading.Event, lines: bool) -> None:
        last_line = time.monotonic()
        while not ended.wait(min(self.every, HEART_SECONDS) if lines else HEART_SECONDS):
            now = time.monotonic()
            if now - self._written >= HEART_SECONDS:
                self.write()
            if lines and now - last_line >= self.every:
                last_line = now
                self._line(bar.line(self.bill()))

    @contextmanager
    def lasting(self, **values: Any) -> Iterator[None]:
        """Track one run of a job: the status file records when it began and, unless it was killed, how it ended and
        why. A nested run is part of the outer run."""
        if "began" in self.state:
            self.state.update(values)
            yield
            return
        self.write(**values, began=time.time(), ended=None)
        try:
            yield
        except BaseException as error:
            how = "stopped" if isinstance(error, Stopped | KeyboardInterrupt) else "failed"
            self.write(ended={"how": how, "why": one_line(error, 500)})
            raise
        self.write(ended={"how": "done", "why": ""})

    def saw_query(self, text: str, problem: str = "") -> None:
        """Record a query, with the `problem` if it was not accepted. The status file contains the latest queries."""
        self._recent.append({"text": text[:_QUERY_CHARACTERS], "problem": problem[:_QUERY_CHARACTERS]})

    def _line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line above the bars, or log it as an event."""
        if self.log is not None:
            self.log({"event": "note", "text": terminal_text(text)})
        self.console.print(terminal_text(text), markup=False, highlight=False, soft_wrap=True)

    def update(self, name: str, *, force: bool = False, **values: Any) -> None:
        """Update a stage's values in the status file, at most once per second, and in a notebook's progress bar."""
        stage = self.state["stages"].setdefault(name, {})
        stage.update(values)
        if bar := current_bar():
            note = ", ".join(filter(None, [self.bill(), str(stage.get("note", ""))]))
            bar.update(name, stage.get("done") or 0, stage.get("total"), note, force=force)
        now = time.monotonic()
        if force or now - self._written >= STATUS_SECONDS:
            self.write()

    def write(self, **values: Any) -> None:
        """Write the status file at once, with additional values. A full disk is reported once, but does not stop the
        job."""
        with self._writing:
            self._write(values)

    def _write(self, values: dict[str, Any]) -> None:
        self.state.update(values)
        self._written = time.monotonic()
        temporary = self.status_file.with_suffix(".tmp")
        counts = {name: count() for name, count in self.counts.items()}
        now = {
            "compute": self.compute(),
            "counts": counts,
            "recent": list(self._recent),
            "pid": os.getpid(),
            "updated": time.time(),
        }
        text = json.dumps({**self.state, **self.figures(), **now})
        try:
            temporary.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(self.status_file)
        except OSError as error:
            if not self._silent:
                self._silent = True
                self.say(f"{disk_error(error)}; the run continues, but `airgen show` cannot follow it")
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


class Bar:
    """One stage's progress."""

    def __init__(
        self, display: Display, progress: Progress, task: Any, name: str, total: int | None, done: int
    ) -> None:
        self._display, self._progress, self._task = display, progress, task
        self.name, self.total, self.done, self.note = name, total, done, ""
        self.began = display.clock()
        self._start, self._part = done, 0

    def line(self, bill: str = "") -> str:
        """Return the stage's progress: count, rate, cost, time left, and the last note."""
        seconds = self._display.clock() - self.began
        rate = (self.done - self._start) / max(seconds, 1e-6)
        of = "" if self.total is None else f" of {self.total:,}"
        parts = [f"{self.done:,}{of} in {_duration(seconds)}", _rate(rate), bill]
        if (left := seconds_left(self.done, self.total, rate)) is not None:
            parts.append(f"about {_duration(left)} left")
        return f"{self.name:<16} {', '.join(filter(None, [*parts, self.note]))}"

    def advance(self, count: int = 1, note: str | None = None, **values: Any) -> None:
        """Count `count` more finished items. `note` is shown at the end of the bar, and `values` are written to the
        status file."""
        self.done += count
        if note is not None:
            self.note = terminal_text(note)
        rate = (self.done - self._start) / max(self._display.clock() - self.began, 1e-6)
        self._progress.update(self._task, advance=count, rate=_rate(rate), note=self.note)
        self._display.update(self.name, done=self.done, total=self.total, rate=round(rate, 4), note=self.note, **values)

    def partly(self, note: str, done: int) -> None:
        """Show that `done` items of the next batch are finished, before they count as done for good."""
        if done != self._part:
            count, self._part = done - self._part, done
            self.advance(count, note)

    def encoding(self, note: str, done: int, total: int) -> None:
        """Show how many passages a model has encoded for the next item, followed by `note`."""
        progress = f"encoding {done:,} of {total:,} passages" if done < total else ""
        self.advance(0, ": ".join(filter(None, (note, progress))))


def seconds_left(done: float, total: float | None, rate: float | None) -> float | None:
    """Return how long the rest of a stage takes at its rate per second; None if the total or the rate is unknown."""
    return max(0.0, total - done) / rate if total is not None and rate and rate > 0 else None


def _rate(rate: float) -> str:
    return f"{rate:,.1f}/s" if rate >= 1 else f"{rate * 60:,.1f}/min"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def read_status(path: Path) -> dict[str, Any] | None:
    """Return the content of the status file, or None if it is missing or incomplete.

    Its `pid` is an integer, `updated` a number, and `stages` an object of objects whose figures are numbers or None.
    Values of other types are omitted.
    """
    try:
        if path.stat().st_size > _MAX_STATUS_BYTES:
            return None
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    stages = value.get("stages")
    stages = stages if isinstance(stages, dict) else {}
    value["stages"] = {name: _figures(stage) for name, stage in stages.items() if isinstance(stage, dict)}
    value["pid"] = value["pid"] if type(value.get("pid")) is int and 0 < value["pid"] < 1 << 31 else None
    value["updated"] = number(value.get("updated")) or 0.0
    return value


def _figures(stage: dict[str, Any]) -> dict[str, Any]:
    figures = {name: number(stage.get(name)) for name in ("done", "total", "rate", "seconds")}
    return {**stage, **figures, "done": figures["done"] or 0, "note": str(stage.get("note", ""))}


def number(value: object) -> int | float | None:
    """Return a finite number of limited size, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_MAX_FIGURE < value < _MAX_FIGURE:
        return None
    return value
