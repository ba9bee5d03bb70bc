"""The live view: a report that is served on this machine, and follows the jobs that it is about.

    with TemporaryDirectory() as folder:
        view = View(["pipelines/quickstart.yaml"], Path(folder))
        with serving(view) as address:
            view.watch(threading.Event())    # until Ctrl-C; a job that has ended is reported on anew

For the job it is read-only: it writes to its own folder, and people's answers to the audit's.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airgen.errors import AirgenError
from airgen.quality.audit.answers import ANSWERS, add_answer, saved_answers
from airgen.report.audit import audit_folder, audit_sample
from airgen.report.follow import GOING, follow
from airgen.report.pack import report_folder
from airgen.report.report import title_of, write_data
from airgen.report.source import ReportSource
from airgen.report.sources import find_sources

POLL_SECONDS = 1.0


class View:
    """See the module. `folder` is empty, and belongs to the view. Raises what `find_sources` raises."""

    def __init__(self, what: Sequence[str | Path], folder: Path, runs: Path = Path("runs")) -> None:
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
        """The file of the report behind a path."""
        return self._files.get(name)

    def read(self, name: str) -> dict[str, Any] | None:
        """`live.json`: the state of every job; which report there is, by number, and whether another is being made.

        `audit/d0`: what people have answered so far.
        """
        if (source := self._audited(name)) is not None:
            return saved_answers(audit_folder(source) / ANSWERS, audit_sample(source))
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
                return add_answer(audit_folder(source) / ANSWERS, audit_sample(source), value)
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
