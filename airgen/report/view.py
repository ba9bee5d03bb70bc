"""The live view: a report that is served on this machine, and follows the jobs that it is about.

    view = View(["pipelines/quickstart.yaml"], folder)
    with serving(view) as address:
        view.watch(threading.Event())    # until Ctrl-C; a job that has ended is reported on anew

What a running job does is known by its status file alone, which is another process's: every value is checked and
bounded. The view writes to its own folder, and people's answers to the audit's.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airgen.dataset.files import is_alive
from airgen.errors import AirgenError
from airgen.kept import plain
from airgen.pipeline.progress import STATUS, number, read_status
from airgen.quality.audit.answers import ANSWERS, add_answer, saved_answers
from airgen.report.pack import report_folder
from airgen.report.report import audit_folder, audit_sample, title_of, write_data
from airgen.report.source import ReportSource
from airgen.report.sources import find_sources

SILENT_SECONDS = 60.0  # a running job gives a sign of life every 5 s
GOING = ("running", "silent")  # states of a job whose process is there
_ITEMS = 64  # of any list or table
_TEXT = 500  # characters of any text
_TOKENS = ("calls", "from_disk", "prompt_tokens", "cached_tokens", "completion_tokens", "usd", "in_flight", "waiting")


def follow(
    directory: Path, labels: Mapping[str, str] | None = None, *, clock: Callable[[], float] = time.time
) -> dict[str, Any]:
    """The state of the job in a work directory, as plain values. `labels`: names of its steps, in their order.

    state: `running`; `silent` (its process is there, but gives no sign of life); `finished` (there is a dataset);
    `ended` (as far as it was asked to go); `stopped` (by the user or the budget); `failed`; `died` (its process is gone
    and did not say why); `unknown` (no status file). Money is the job's, calls are those of its last process.
    """
    status = read_status(directory / STATUS)
    if status is None:
        return {"state": "unknown", "why": "there is no status file: the job has not begun", "now": clock()}
    state, why = _state(status, clock())
    recent = status.get("recent")
    return {
        "state": state,
        "why": why,
        "now": clock(),
        "began": number(status.get("began")),
        "updated": status["updated"],
        "stages": [_stage(name, stage) for name, stage in list(status["stages"].items())[:_ITEMS]],
        "spent_usd": number(status.get("spent_usd")),
        "budget_usd": number(status.get("budget_usd")),
        "usage": [{"stage": name, **_usage(one)} for name, one in _tables(status.get("usage"))],
        "funnel": _funnel(status.get("counts"), labels or {}),
        "recent": [
            {"text": _text(one.get("text")), "problem": _text(one.get("problem"))}
            for one in (recent[:_ITEMS] if isinstance(recent, list) else ())
            if isinstance(one, dict)
        ],
    }


def _state(status: Mapping[str, Any], now: float) -> tuple[str, str]:
    ended, pid = status.get("ended"), status["pid"]
    finished = bool(status.get("finished"))
    if isinstance(ended, dict):
        how = ended.get("how")
        if how in ("stopped", "failed"):
            return str(how), _text(ended.get("why"))
        return ("finished", "") if finished else ("ended", "it went as far as it was asked to: run it again to go on")
    if pid is None or not is_alive(pid):
        return "died", f"process {pid} is gone and did not say why: run the same command to go on"
    silent = now - status["updated"]
    if silent > SILENT_SECONDS:
        return "silent", f"process {pid} has given no sign of life for {silent:.0f} s"
    return "running", ""


def _stage(name: str, stage: Mapping[str, Any]) -> dict[str, Any]:
    done, total, rate = stage["done"], stage["total"], stage["rate"]
    left = (total - done) / rate if total is not None and rate and rate > 0 and done < total else None
    return {"name": _text(name), "done": done, "total": total, "left_s": left, "note": _text(stage["note"])}


def _usage(one: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: number(one.get(name)) or 0 for name in _TOKENS}
    return {**found, "failures": _counts(one.get("failures")), "retries": _counts(one.get("retries"))}


def _funnel(counts: object, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """How many entered and left each step: of candidate generation in its order, then the queries, then the labels."""
    parts = dict(_tables(counts))
    candidates, judged = dict(_tables(parts.get("candidates"))), dict(_tables(parts.get("judgments")))
    names = {**labels, "queries": "accepted queries"}
    rows = [(names[name], candidates[name]) for name in names if name in candidates]
    rows += [("judgments", one) for one in judged.values()]
    found = []
    for label, one in rows:
        seen, dropped = number(one.get("seen")) or 0, number(one.get("dropped")) or 0
        found.append({"step": label, "entered": seen, "left": seen - dropped, "reasons": _counts(one.get("reasons"))})
    return found


def _tables(value: object) -> list[tuple[str, dict[str, Any]]]:
    items = list(value.items())[:_ITEMS] if isinstance(value, dict) else []
    return [(_text(name), one) for name, one in items if isinstance(one, dict)]


def _counts(value: object) -> dict[str, int | float]:
    items = list(value.items())[:_ITEMS] if isinstance(value, dict) else []
    return {_text(name): known for name, count in items if (known := number(count)) is not None}


def _text(value: object) -> str:
    return str(value)[:_TEXT] if isinstance(value, str | int | float) else ""


POLL_SECONDS = 1.0


class View:
    """What a server shows; several threads may call it. `folder` is empty, and belongs to the view.

    Raises what `find_sources` raises.
    """

    def __init__(self, what: Sequence[str | Path], folder: Path, runs: Path | None = None) -> None:
        self._what, self._folder, self._runs = what, folder, runs
        self._building, self._answering = threading.Lock(), threading.Lock()
        self._number, self._problem = 0, ""
        self._sources: list[ReportSource] = []
        self._files: dict[str, Path] = {}
        self._build()

    @property
    def title(self) -> str:
        """The title of the report."""
        return title_of(self._sources)

    def file(self, name: str) -> Path | None:
        """The file of the report behind a path such as `data/report.js`; None if there is none."""
        return self._files.get(name)

    def read(self, name: str) -> dict[str, Any] | None:
        """`live.json`: the state of every job; which report there is, by number, and whether another is being made.

        `audit/d0`: what people have answered so far.
        """
        if (source := self._audited(name)) is not None:
            return dict(plain(saved_answers(audit_folder(source) / ANSWERS, audit_sample(source))))
        if name != "live.json":
            return None
        return {
            "report": self._number,
            "building": self._building.locked(),
            "problem": self._problem,
            "jobs": {one.key: {"name": one.name, **_follow(one)} for one in self._sources if one.job is not None},
        }

    def write(self, name: str, value: dict[str, Any]) -> dict[str, Any] | None:
        """`rebuild`: make the report anew, of what there is now, in the background. `audit/d0`: take an answer."""
        if (source := self._audited(name)) is not None:
            with self._answering:
                return dict(plain(add_answer(audit_folder(source) / ANSWERS, audit_sample(source), value)))
        if name != "rebuild":
            return None
        threading.Thread(target=self.rebuild, daemon=True).start()
        return {"building": True}

    def rebuild(self) -> None:
        """Make the report anew, unless that is being done. A report that cannot be made leaves the older one."""
        if not self._building.acquire(blocking=False):
            return
        try:
            self._build()
            self._problem = ""
        except AirgenError as error:
            self._problem = str(error)
        finally:
            self._building.release()

    def watch(self, stop: threading.Event) -> None:
        """Make the report anew when a job has ended, until `stop` is set."""
        going = self._going()
        while not stop.wait(POLL_SECONDS):
            now = self._going()
            if going - now:
                self.rebuild()
            going = now

    def _audited(self, name: str) -> ReportSource | None:
        kind, _, key = name.partition("/")
        return next((one for one in self._sources if kind == "audit" and one.key == key), None)

    def _going(self) -> set[str]:
        return {one.key for one in self._sources if one.job is not None and _follow(one)["state"] in GOING}

    def _build(self) -> None:
        sources, notes = find_sources(self._what, runs=self._runs)
        out = self._folder / f"report-{self._number + 1}"
        with report_folder(out, title_of(sources), connect="'self'") as pack:
            write_data(pack, sources, notes, title_of(sources), live=True)
        # An older page goes on with the newer files: what it has not loaded yet comes from there.
        self._files = {path.relative_to(out).as_posix(): path for path in out.rglob("*") if path.is_file()}
        self._sources, self._number = sources, self._number + 1


def _follow(source: ReportSource) -> dict[str, Any]:
    assert source.job is not None
    stages = source.job.flow.candidates
    return follow(source.job.directory, {one.name: one.label or one.name for one in stages})
