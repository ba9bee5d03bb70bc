"""An inspection as a table for the terminal, and as files: a page and JSON."""

from __future__ import annotations

from pathlib import Path

from airgen.dataset.files import write_text
from airgen.evaluation.result import without_nan
from airgen.quality.inspection.finding import STATES
from airgen.quality.inspection.inspect_dataset import Inspection
from airgen.report.inspection_page import inspection_page
from airgen.text.display import json_text, one_line, terminal_table


def write_inspection(found: Inspection, out: Path) -> list[Path]:
    """Write `inspect.html` and `inspect.json` to the folder `out`, which is made. Older ones are replaced."""
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "inspect.html", inspection_page(found))
    write_text(out / "inspect.json", json_text(without_nan(found.as_dict(), 6), indent=1) + "\n")
    return [out / "inspect.html", out / "inspect.json"]


def inspection_text(found: Inspection) -> str:
    """The table of findings, what to do about those that are not good, and the verdict."""
    rows = [["", "check", "value", "what was found"]]
    rows += [
        [STATES[one.state], one.check.title, one.check.shown(one.value), one_line(one.detail, 90)]
        for one in found.findings
    ]
    parts = [terminal_table(rows, left=(0, 1, 3))]
    for one in found.findings:
        if one.state in ("bad", "look"):
            limits = one.check.limits
            lines = [f"{one.check.title} ({one.check.shown(one.value)}; {limits}): {one.check.advice}"]
            if one.examples:
                lines.append(f"  for example: {one_line('; '.join(one.examples), 160)}")
            parts.append("\n".join(lines))
    parts += [one_line(line, 200) for line in found.left_out]
    return "\n\n".join([*parts, f"{one_line(found.dataset, 100)}, {found.split}: {found.verdict}"])
