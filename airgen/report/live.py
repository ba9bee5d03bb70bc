"""The live report, which is served on this machine and follows running jobs.

    view = View(["pipelines/quickstart.yaml"], folder)
    with serving(view) as address:
        view.watch(threading.Event())    # until Ctrl-C; a job that has ended is reported on anew

The state of a running job comes only from its status file, which another process writes: invalid content counts as
damaged, and everything is limited in size. The view writes only to its own folder, and people's answers to the audit's
folder.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from airgen.audit.answers import add_answer, saved_answers
from airgen.audit.sample import ANSWERS
from airgen.display.study import Column, Table
from airgen.errors import AirgenError
from airgen.report.find_sources import find_sources
from airgen.report.overview_tables import reasons_text
from airgen.report.page_table import PageColumn, page_table
from airgen.report.report import audit_folder, audit_sample, title_of, write_data
from airgen.report.report_files import report_folder
from airgen.report.source import ReportSource
from airgen.report.system_tables import dollars
from airgen.safety.escaping import one_line
from airgen.steps.progress import STATUS, number, read_status, seconds_left
from airgen.storage.json_values import DAMAGE, plain
from airgen.storage.paths import is_alive

SILENT_SECONDS = 60.0  # a running job gives a sign of life every 5 s
GOING = ("running", "silent")  # states of a job whose process exists
_MOST_ITEMS = 64  # maximum length of any list or table
_MOST_CHARACTERS = 500  # maximum characters of any text
_TOKENS = ("calls", "from_disk", "prompt_tokens", "cached_tokens", "completion_tokens", "usd", "in_flight", "waiting")
_USED = {**dict.fromkeys(_TOKENS, 0), "failures": {}, "retries": {}}


def follow(
    directory: Path, labels: Mapping[str, str] | None = None, *, clock: Callable[[], float] = time.time
) -> dict[str, Any]:
    """Return the state of the job in a work directory as plain values. `labels` are the names of its steps in order.

    The state is `running`; `silent` (its process exists but does not respond); `finished` (there is a dataset); `ended`
    (at the requested stage); `stopped` (by the user or the budget); `failed`; `died` (its process ended without giving
    a reason); or `unknown` (no status file, or a damaged one). The cost is the job's, and calls are those of its last
    process.
    """
    now = clock()
    try:
        status = _bounded(read_status(directory / STATUS))
        if status is None:
            return {"state": "unknown", "why": "there is no status file: the job has not started", "now": now}
        state, why = _state(status, now)
        used, figures = status.get("usage") or {}, ("began", "updated", "spent_usd", "budget_usd")
        usage = [{"stage": name, **_USED, **counts} for name, counts in used.items()]
        steps = _funnel(status.get("counts") or {}, labels or {})
        return {
            "state": state,
            "why": why,
            "now": now,
            **{name: number(status.get(name)) for name in figures},
            "stages": [_stage(name, stage) for name, stage in status["stages"].items()],
            "usage": usage,
            "tables": {
                "Funnel so far": live_table("Funnel so far", steps, _FUNNEL),
                "Failures": live_table("Failures", _failures(usage), _FAILURES),
                "Calls": live_table("Calls", usage, _CALLS),
            },
            "recent": [{name: row[name] for name in ("text", "problem")} for row in status.get("recent") or ()],
        }
    except DAMAGE as error:
        return {"state": "unknown", "why": f"the status file is damaged: {one_line(error, 100)}", "now": now}


def _bounded(value: Any) -> Any:
    """Return the JSON value with short texts, numbers that a page can show, and a limited number of items."""
    if isinstance(value, dict):
        return {name[:_MOST_CHARACTERS]: _bounded(item) for name, item in islice(value.items(), _MOST_ITEMS)}
    if isinstance(value, list):
        return [_bounded(item) for item in value[:_MOST_ITEMS]]
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else value if isinstance(value, bool) else number(value)


def _state(status: Mapping[str, Any], now: float) -> tuple[str, str]:
    ended, pid = status.get("ended"), status["pid"]
    finished = bool(status.get("finished"))
    if isinstance(ended, dict):
        how = ended.get("how")
        if how in ("stopped", "failed"):
            return str(how), str(ended.get("why") or "")
        return (
            ("finished", "")
            if finished
            else ("ended", "it stopped after the requested stage: run it again to continue")
        )
    if pid is None or not is_alive(pid):
        return "died", f"process {pid} ended without giving a reason: run the same command again to continue"
    silent = now - status["updated"]
    if silent > SILENT_SECONDS:
        return "silent", f"process {pid} has not reported anything for {silent:.0f} s"
    return "running", ""


def _stage(name: str, stage: Mapping[str, Any]) -> dict[str, Any]:
    done, total = stage["done"], stage["total"]
    left = seconds_left(done, total, stage["rate"])
    return {"name": name, "done": done, "total": total, "left_s": left or None, "note": stage["note"]}


_FUNNEL = (
    Column("Step", lambda row: row["step"]),
    Column("Entered", lambda row: row["entered"], ","),
    Column("Left", lambda row: row["left"], ","),
    Column("Why not", lambda row: reasons_text(row["reasons"], " × ") or None, left=True),
)
_FAILURES = (
    Column("Calls", lambda row: row["number"], ","),
    Column("", lambda row: row["what"], left=True),
    Column("Reason", lambda row: row["reason"], left=True),
    Column("Stage", lambda row: row["stage"], left=True),
)
_CALLS = (
    Column("Stage", lambda row: row["stage"]),
    Column("Calls", lambda row: row["calls"], ","),
    Column("Tokens in", lambda row: row["prompt_tokens"], ","),
    PageColumn("Tokens out", lambda row: row["completion_tokens"], ",", wide=True),
    PageColumn("Cost", lambda row: dollars(row["usd"]), sort=lambda row: row["usd"]),
)


def live_table(label: str, rows: Sequence[Mapping[str, Any]], shown: Sequence[Column]) -> dict[str, Any] | None:
    """Return a table for the live page, or None if there are no rows."""
    return page_table(label, Table(rows, shown)) if rows else None


def _failures(usage: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls that failed or were retried, by stage and reason, most frequent first."""
    rows = [
        {"stage": row["stage"], "what": outcome, "reason": reason, "number": number}
        for row in usage
        for outcome, counts in (("failed", row["failures"]), ("repeated", row["retries"]))
        for reason, number in counts.items()
    ]
    return sorted(rows, key=lambda row: -(row["number"] or 0))


def _funnel(counts: Mapping[str, Any], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return how many items entered and left each step: candidate generation in order, then the queries, then the
    labels.
    """
    names, candidates = {**labels, "queries": "accepted queries"}, counts.get("candidates") or {}
    rows = [(names[name], candidates[name]) for name in names if name in candidates]
    rows += [("judgments", step) for step in (counts.get("judgments") or {}).values()]
    steps = []
    for label, step in rows:
        seen, dropped = step.get("seen") or 0, step.get("dropped") or 0
        steps.append({"step": label, "entered": seen, "left": seen - dropped, "reasons": step.get("reasons") or {}})
    return steps


POLL_SECONDS = 1.0


class View:
    """The content of the live server, which several threads may use. `folder` must be empty, and belongs to the view.

    Raises the errors of `find_sources`.
    """

    def __init__(self, words: Sequence[str | Path], folder: Path, runs: Path | None = None) -> None:
        self._what, self._folder, self._runs = words, folder, runs
        self._building, self._answering = threading.Lock(), threading.Lock()
        self._number, self._problem = 0, ""
        self._sources: list[ReportSource] = []
        self._files: dict[str, Path] = {}
        self._build()

    @property
    def title(self) -> str:
        """Return the title of the report."""
        return title_of(self._sources)

    def file(self, name: str) -> Path | None:
        """Return the report's file for a path such as `data/report.js`, or None if there is none."""
        return self._files.get(name)

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a value for polling. `live.json` has the state of every job, the number of the current report, and
        whether another is being made.

        `audit/d0` has people's answers so far.
        """
        if (source := self._audited(name)) is not None:
            return dict(plain(saved_answers(audit_folder(source) / ANSWERS, audit_sample(source))))
        if name != "live.json":
            return None
        return {
            "report": self._number,
            "building": self._building.locked(),
            "problem": self._problem,
            "jobs": {
                source.key: {"name": source.name, **_follow(source)}
                for source in self._sources
                if source.job is not None
            },
        }

    def write(self, name: str, value: dict[str, Any]) -> dict[str, Any] | None:
        """Handle a request: `rebuild` rebuilds the report in the background, and `audit/d0` saves an answer."""
        if (source := self._audited(name)) is not None:
            with self._answering:
                return dict(plain(add_answer(audit_folder(source) / ANSWERS, audit_sample(source), value)))
        if name != "rebuild":
            return None
        threading.Thread(target=self.rebuild, daemon=True).start()
        return {"building": True}

    def rebuild(self) -> None:
        """Rebuild the report, unless this is already in progress. If it fails, the older report is kept."""
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
        """Rebuild the report whenever a job has ended, until `stop` is set."""
        going = self._going()
        while not stop.wait(POLL_SECONDS):
            now = self._going()
            if going - now:
                self.rebuild()
            going = now

    def _audited(self, name: str) -> ReportSource | None:
        kind, _, key = name.partition("/")
        return next((source for source in self._sources if kind == "audit" and source.key == key), None)

    def _going(self) -> set[str]:
        return {source.key for source in self._sources if source.job is not None and _follow(source)["state"] in GOING}

    def _build(self) -> None:
        sources, notes = find_sources(self._what, runs=self._runs)
        out = self._folder / f"report-{self._number + 1}"
        with report_folder(out, title_of(sources), connect="'self'") as pack:
            write_data(pack, sources, notes, title_of(sources), live=True)
        # An older page continues with the newer files, which provide what it has not loaded yet.
        self._files = {path.relative_to(out).as_posix(): path for path in out.rglob("*") if path.is_file()}
        self._sources, self._number = sources, self._number + 1


def _follow(source: ReportSource) -> dict[str, Any]:
    assert source.job is not None
    stages = source.job.flow.candidates
    return follow(source.job.directory, {step.name: step.label or step.name for step in stages})
