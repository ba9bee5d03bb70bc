"""What a run leaves behind, and the last lines that it prints."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from airgen.dataset.content import FunnelStep
from airgen.dataset.manifest import Manifest
from airgen.dataset.people import NOTE, note_text
from airgen.paths import EVALUATION
from airgen.pipeline.refresh import REFRESHED, change_lines
from airgen.study import Shown
from airgen.text.display import dollars, terminal_lines, terminal_table


@dataclass(frozen=True)
class RunResult(Shown):
    """What a run left behind. `manifest` is None where it stopped before the export.

    scores: of each system, best first. ranking: their table for a terminal, with intervals. verdict: what can be told
    of them, and what to do next. labels: do they rank as the sources of the queries alone do. failed: a line for each
    system that could not be run. report: the page to browse.
    """

    directory: Path
    manifest: Manifest | None = field(default=None, repr=False)
    already_done: bool = False
    scores: list[dict[str, Any]] = field(default_factory=list, repr=False)
    ranking: str = field(default="", repr=False)
    verdict: str = ""
    labels: str = ""
    failed: list[str] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict, repr=False)
    note: str = ""
    seconds: float = 0.0
    memory_mb: float | None = None
    report: Path | None = None


def result_values(result: RunResult) -> dict[str, Any]:
    """A run's result as plain values: the funnel in place of the manifest."""
    value = asdict(replace(result, manifest=None))
    value["funnel"] = [asdict(step) for step in result.manifest.funnel] if result.manifest else []
    return value


def result_lines(result: RunResult, reasons: int = 4) -> list[str]:
    """The last lines of a run: the funnel with its most frequent `reasons`, the ranking, the bill and the paths."""
    lines: list[str] = []
    if result.manifest is not None:
        lines += _funnel_lines(result.manifest.funnel, reasons)
        note = result.manifest.notes.get(REFRESHED)
        lines += change_lines(note, result.manifest.info.version) if isinstance(note, dict) else []
        lines += [text] if (text := note_text(result.manifest.notes.get(NOTE))) else []
        if result.scores:
            lines += ["", result.ranking, *([result.labels] if result.labels else []), ""]
    if result.note:
        lines.append(result.note)
    if result.already_done:
        lines.append("already finished: no model was asked and nothing was paid")
    elif result.usage:
        calls, read, cached, wrote, usd = (
            sum(stage[name] for stage in result.usage.values())
            for name in ("calls", "prompt_tokens", "cached_tokens", "completion_tokens", "usd")
        )
        lines.append(
            f"{calls:,} calls, {read:,} tokens in ({cached:,} from caches), {wrote:,} out, {dollars(usd)}; "
            f"{result.seconds:.0f} s" + ("" if result.memory_mb is None else f", {result.memory_mb:,.0f} MB")
        )
    for name, what in (
        ("dataset", "the benchmark (BEIR layout, card: README.md)"),
        (EVALUATION, "run files, scores, tables"),
        ("work.duckdb", "every step of every query: airgen show"),
    ):
        if (result.directory / name).exists():
            lines.append(f"{result.directory / name}  {what}")
    if result.report is not None:
        lines.append(f"{result.report}  the report: open it in a browser")
    return [terminal_lines(line) for line in lines]


def _funnel_lines(steps: Sequence[FunnelStep], most: int = 4) -> list[str]:
    rows = [["stage", "entered", "left", "why not"]]
    for step in steps:
        reasons = [f"{count:,} {reason}" for reason, count in step.reasons.items()]
        more = [f"{len(reasons) - most} other reasons"] if len(reasons) > most else []
        rows.append([step.stage, f"{step.entered:,}", f"{step.left:,}", "; ".join([*reasons[:most], *more])])
    return ["Funnel", *(line.rstrip() for line in terminal_table(rows, (0, 3)).splitlines())]
