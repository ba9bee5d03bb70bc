"""The first page of the report: what to do next, and how the results were made.

    next_steps(source, boards)     # a table: what, why, and the command
    made_by(source)                # a table: when, by which command, with which models, on which machine

Commands, dates and the machine are for the author only: a public report shows just the models.
"""

import shlex
import time
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from airgen.evaluation.verdict import ENOUGH, labels_of
from airgen.pipeline.audit_answers import has_answers, last_checked
from airgen.pipeline.job import Job
from airgen.report.page_table import PageColumn
from airgen.report.source import ReportSource
from airgen.report.systems import Board
from airgen.steps.progress import STATUS, read_status
from airgen.study import Table, columns

_SHOWN_MODELS = 6  # models on the first page; the section on models lists all


def next_steps(source: ReportSource, boards: Sequence[Board]) -> Table | None:
    """Return at most four recommendations, most urgent first, or None."""
    if source.public:
        return None
    job, manifest = source.job, source.manifest
    path = job.path if job is not None else source.dataset.path if source.dataset is not None else ""
    name = shlex.quote(str(path)) if path else ""
    board = next((board for board in boards if board.comparison is not None and len(board.results) > 1), None)
    audit = None if manifest is None else manifest.audit
    rows: list[tuple[str, str, str]] = []
    text, bad = labels_of(audit)
    if job is not None and source.state in ("running", "stopped"):
        rows.append(("Finish the job", f"it is {source.state}", f"airgen run {name}"))
    if bad:
        correction = (
            "Correct the labels",
            text.partition(":")[0],
            f"airgen audit score {name} audit-answers.json --apply",
        )
        rows.append(correction)
    elif job is not None and not audit and (was := labels_of(last_checked(job.directory)))[1]:
        why = f"before the labels last changed, {was[0].partition(':')[0]}"
        rows.append(("Check the labels again", why, f"airgen audit sample {name} 40"))
        bad = True
    elif not audit and manifest is not None and manifest.provenance and not brought_labels(job):
        again = job is not None and has_answers(job.directory)
        why = "people have checked labels, but not these" if again else "no person has checked the labels yet"
        rows.append(("Check 40 labels (about 15 minutes)", why, f"airgen audit sample {name} 40"))
    if board is not None and board.advice is not None:
        advice, queries, runs = (
            board.advice,
            board.results[0].queries,
            {each.name: each.paths.run for each in board.results},
        )
        places = shlex.join(["--results", str(board.results[0].paths.run.parents[2])]) if job is None else ""
        more = max(2 * job.pipeline.target, ENOUGH) if job is not None and job.pipeline.queries is None else 0
        if advice.use and not bad and source.dataset is not None:
            labels = source.dataset.path / "qrels" / f"{board.split}.tsv"
            compared = [runs[advice.use], *(path for name, path in runs.items() if name != advice.use)]
            rows.append(
                (
                    f"Use {advice.use}",
                    advice.why,
                    shlex.join(["airgen", "evaluate", "compare", *map(str, compared), "--qrels", str(labels)]),
                )
            )
        if advice.unjudged and job is not None:
            names = ", ".join(advice.unjudged[:3])
            why = f"more than half of the top ten hits of {names} are unjudged"
            chosen = shlex.join([part for name in advice.unjudged for part in ("--run", str(runs[name]))])
            judge = shlex.join(["airgen", "audit", "holes", str(job.dataset), "--pipeline", str(job.path)])
            rows.append(("Judge the unjudged hits", why, f"{judge} {chosen}"))
        few = f"{queries:,} queries are few; with {ENOUGH}, the order rarely changes"
        if advice.open is None and queries < ENOUGH and more:
            rows.append((f"Generate more queries: target {more:,}", few, f"airgen run {name} --target {more}"))
        elif advice.open is not None:
            pair = advice.open
            tie = f"on {queries:,} queries, it is unclear whether {pair.first} or {pair.second} is better"
            if more:
                rows.append((f"Generate more queries: target {more:,}", tie, f"airgen run {name} --target {more}"))
            folder = job.dataset if job is not None else path
            ask = "Or ask a person which is better" if more else "Ask a person which is better"
            asked = shlex.join(["airgen", "audit", "systems", str(folder), pair.first, pair.second])
            rows.append((ask, tie, f"{asked} {places}".rstrip()))
    if not boards and source.dataset is not None:
        folder = job.dataset if job is not None else path
        why = "no system has been run on this dataset"
        rows.append(("Run systems", why, f"airgen evaluate {shlex.quote(str(folder))} --systems systems-offline"))
    if not rows:
        return None
    command = PageColumn("command", itemgetter(2), left=True, role="code")
    return Table(rows[:4], [*columns("next", "because", left=(1,)), command])


def brought_labels(job: Job | None) -> bool:
    """Return whether the user provided labels, which are already human labels."""
    return job is not None and job.pipeline.queries is not None and bool(job.pipeline.queries.labels)


def made_by(source: ReportSource, uses: Sequence[Any]) -> Table | None:
    """Return when, how, with which models and where the results were made, or None if unknown."""
    rows: list[tuple[str, str]] = []
    job, manifest = source.job, source.manifest
    if not source.public:
        if job is not None:
            status = read_status(job.directory / STATUS)
            if status is not None and status["updated"]:
                rows.append(("Labels made", _date(status["updated"])))
        if ran := [
            changed
            for results in source.results.values()
            for result in results
            if (changed := _changed(result.paths.scores))
        ]:
            rows.append(("Systems scored", _date(max(ran))))
        if job is not None:
            rows.append(("Command", f"airgen run {job.path}"))
    models: dict[str, list[str]] = {}
    for use in uses:
        models.setdefault(use.model, []).append(use.role)
    for model, roles in list(models.items())[:_SHOWN_MODELS]:
        rows.append(("Model", f"{model}: {', '.join(dict.fromkeys(roles))}"))
    if len(models) > _SHOWN_MODELS:
        rows.append(("Model", f"and {len(models) - _SHOWN_MODELS} more, see below"))
    if not source.public and manifest is not None and manifest.made_with:
        parts = dict(manifest.made_with)
        machine = [
            parts.get("machine", ""),
            f"Python {parts['python']}" if "python" in parts else "",
            parts.get("blas", ""),
        ]
        devices = {
            f"{costs.device}{f', {costs.threads} threads' if costs.threads else ''}"
            for results in source.results.values()
            for result in results
            if (costs := result.costs).device
        }
        rows.append(("Machine", "; ".join([*filter(None, machine), *sorted(devices)])))
    return Table(rows, columns("", "", left=(1,))) if rows else None


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _changed(path: Any) -> float | None:
    try:
        return float(path.stat().st_mtime)
    except OSError:
        return None
