"""What a running job does, by its status file alone: the work database belongs to the process that writes it.

    follow(Path("runs/python-reference"))    # {"state": "running", "stages": [...], "spent_usd": 0.12, ...}

The file is another process's, so every value is checked and bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from airgen.dataset.atomic import is_alive
from airgen.pipeline.progress import number, read_status

SILENT_SECONDS = 60.0  # a running job gives a sign of life every 5 s
GOING = ("running", "silent")  # states of a job whose process is there
_ITEMS = 64  # of any list or table
_TEXT = 500  # characters of any text
_TOKENS = ("calls", "from_disk", "prompt_tokens", "cached_tokens", "completion_tokens", "usd", "in_flight", "waiting")


def follow(
    directory: Path,
    labels: Mapping[str, str] | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> dict[str, Any]:
    """The state of the job in a work directory, as plain values. `labels`: names of its steps, in their order.

    state: `running`; `silent` (its process is there, but gives no sign of life); `finished` (there is a dataset);
    `ended` (as far as it was asked to go); `stopped` (by the user or the budget); `failed`; `died` (its process is gone
    and did not say why); `unknown` (no status file). Money is the job's, calls are those of its last process.
    """
    status = read_status(directory / "status.json")
    if status is None:
        return {"state": "unknown", "why": "there is no status file: the job has not begun", "now": clock()}
    state, why = _state(status, clock())
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
            for one in _list(status.get("recent"))
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


def _list(value: object) -> list[Any]:
    return value[:_ITEMS] if isinstance(value, list) else []


def _counts(value: object) -> dict[str, int | float]:
    items = list(value.items())[:_ITEMS] if isinstance(value, dict) else []
    return {_text(name): known for name, count in items if (known := number(count)) is not None}


def _text(value: object) -> str:
    return str(value)[:_TEXT] if isinstance(value, str | int | float) else ""
