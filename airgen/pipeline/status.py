"""The state of a job, from its status file and, unless another process has it open, from its work database."""

from __future__ import annotations

import math
import time
from typing import Any

from airgen.dataset.atomic import is_alive
from airgen.errors import StoreError
from airgen.pipeline.engines import money
from airgen.pipeline.job import Job
from airgen.pipeline.progress import number, read_status
from airgen.store import Store
from airgen.text.display import terminal_lines, terminal_table

_CALLS = """
SELECT stage, count(*) AS calls, sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), sum(cost_usd),
       count(*) FILTER (error <> ''), sum(seconds) FROM answer GROUP BY stage ORDER BY stage
"""
_WORDS = 160  # characters of a reason
_COLUMNS = ("stage", "calls", "prompt_tokens", "cached_tokens", "completion_tokens", "usd", "failed", "seconds")
_COMPUTE = ("workers", "nodes", "batches", "sent_again", "workers_lost", "stuck", "halved")
_ASKS = {"queries", "hard negatives", "judgments"}  # steps that wait for calls, which are counted by what they ask
# With the most frequent words: those of the server, or what was wrong with an answer.
_FAILURES = """
SELECT stage, error, count(*), mode(text) FROM answer WHERE error <> '' GROUP BY stage, error ORDER BY 3 DESC, 1, 2
"""
_SKIPS = """
SELECT stage, reason, count(*), mode(split_part(detail, chr(10), 1)) FROM skip
WHERE fingerprint IN (SELECT unnest(?)) GROUP BY stage, reason ORDER BY 3 DESC, 1, 2 LIMIT 20
"""


def read_report(job: Job) -> dict[str, Any]:
    """Plain values for `airgen status`. Raises StoreError where the job was never run or its database is damaged."""
    path = job.directory / "work.duckdb"
    status = read_status(job.directory / "status.json") or {}
    if not path.exists():
        raise StoreError(f"{job.directory}: this pipeline has not been run yet: run `airgen run {job.path}`")
    running = status.get("pid") is not None and is_alive(status["pid"]) and time.time() - status["updated"] < 600
    report: dict[str, Any] = {
        "directory": str(job.directory),
        "finished": job.finished(),
        "running": False,
        "stages": status.get("stages", {}),
        "compute": _compute(status.get("compute")),
    }
    try:
        with Store.open(path, read_only=True) as store:
            report["calls"] = [dict(zip(_COLUMNS, row, strict=True)) for row in store.query(_CALLS)]
            report["money"] = _money(store, report["calls"])
            report["failures"] = [list(row) for row in store.query(_FAILURES)]
            report["skips"] = [list(row) for row in store.query(_SKIPS, [list(job.plan(store).values())])]
    except StoreError:
        if not running:
            raise
        report["running"] = True  # its process has the database open, so the status file must do
    return report


def render_report(report: dict[str, Any]) -> str:
    """The same as text."""
    state = "running" if report["running"] else "finished" if report["finished"] else "not finished, not running"
    lines = [f"{report['directory']}: {state}"]
    for name, stage in report["stages"].items():
        total = "" if stage.get("total") is None else f" of {stage['total']:,}"
        rate, left = stage.get("rate") or 0, ""
        if report["running"] and rate and stage.get("total") and stage["done"] < stage["total"]:
            left = f"  about {(stage['total'] - stage['done']) / rate / 60:.0f} min left"
        taken = f" in {stage['seconds']:,.0f} s" if stage.get("seconds") is not None else ""
        lines.append(f"  {name:<16} {stage.get('done', 0):,}{total}{taken}{left}  {stage.get('note', '')}".rstrip())
    lines += [_compute_line(report["compute"])] if report.get("compute") else []
    lines += [_call_line(row) for row in report.get("calls", ())]
    lines += _money_lines(report["money"]) if report.get("money") else []
    lines += [_reason_line("failed", *row) for row in report.get("failures", ())]
    lines += [_reason_line("skipped", *row) for row in report.get("skips", ())]
    return terminal_lines("\n".join(lines))


def _compute(found: Any) -> dict[str, Any]:
    """What the last run computed with, besides its own process; empty for that alone."""
    if not isinstance(found, dict) or not number(found.get("batches")):
        return {}
    words = {name: str(found[name])[:_WORDS] for name in ("kind", "address") if isinstance(found.get(name), str)}
    return words | {name: number(found.get(name)) or 0 for name in _COMPUTE}


def _compute_line(compute: dict[str, Any]) -> str:
    where = f"{compute['nodes']:,} nodes of {compute['address']}, " if compute.get("address") else ""
    odd = [f"{compute[name]:,} {name.replace('_', ' ')}" for name in _COMPUTE[3:] if compute[name]]
    words = ", ".join([f"{compute['batches']:,} batches", *odd])
    return f"  compute {compute.get('kind', '')}: {where}{compute['workers']:,} workers, {words}"


def _call_line(row: dict[str, Any]) -> str:
    failed = f"  {row['failed']} failed" if row["failed"] else ""
    return (
        f"  calls {row['stage']:<14} {row['calls']:,}  tokens {row['prompt_tokens']:,} in "
        f"({row['cached_tokens']:,} cached), {row['completion_tokens']:,} out  {row['seconds']:,.0f} s  "
        f"${row['usd']:.4f}{failed}"
    )


def render_work(report: dict[str, Any]) -> str:
    """Where the time of a job went, as a table: its calls by stage, with tokens that were read, taken from a cache and
    written; then the other steps of the last run. Seconds of calls that ran beside each other are added up."""
    rows = [["where the time went", "seconds", "calls", "read", "from cache", "written"]]
    for row in report.get("calls", ()):
        read = row["prompt_tokens"] - row["cached_tokens"]
        figures = (row["calls"], read, row["cached_tokens"], row["completion_tokens"])
        rows.append([row["stage"].replace("_", " "), f"{row['seconds']:,.0f}", *(f"{figure:,}" for figure in figures)])
    for name, stage in report["stages"].items():
        if name not in _ASKS and stage.get("seconds") is not None:
            rows.append([name, f"{stage['seconds']:,.0f}", "", "", "", ""])
    return "\n".join(line.rstrip() for line in terminal_table(rows).splitlines())


def _reason_line(what: str, stage: str, reason: str, count: int, words: str | None) -> str:
    words = " ".join((words or "").split())[:_WORDS]
    return f"  {what} {stage}: {count:,} x {reason}" + (f": {words}" if words else "")


def _money(store: Store, calls: list[dict[str, Any]]) -> dict[str, Any]:
    """What the job has spent, and the parts of it that stand behind no answer."""
    found = money(store)
    return {
        "spent_usd": round(found.spent, 6),
        "without_answer_usd": round(max(0.0, found.paid - math.fsum(row["usd"] for row in calls)), 6),
        "lost_usd": round(found.lost, 6),
        "lost_calls": len(found.open),
    }


def _money_lines(money: dict[str, Any]) -> list[str]:
    lines = [f"  spent ${money['spent_usd']:.4f}"] if money["spent_usd"] else []
    if money["without_answer_usd"]:
        lines.append(f"    of it ${money['without_answer_usd']:.4f} for attempts whose answer was not kept")
    if money["lost_calls"]:
        lines.append(
            f"    of it ${money['lost_usd']:.4f}, the most that {money['lost_calls']} calls in flight at a kill or a "
            "crash can have cost"
        )
    return lines
