"""The result of a run, and the last lines that it prints."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from airgen.dataset.human_labels import AGREEMENT, NOTE, agreement_text, note_text
from airgen.dataset.manifest import Manifest
from airgen.display.study import Plain, Shown, Study, Table, columns
from airgen.job.funnel import fewer_than_asked, funnel_table
from airgen.job.refresh import REFRESHED, change_lines
from airgen.safety.escaping import dollars
from airgen.storage.paths import EVALUATION

MADE = {
    "dataset": "the benchmark (BEIR layout, card: README.md)",
    EVALUATION: "run files, scores, tables",
    "work.duckdb": "every step of every query: airgen show",
}
"""The contents of a work directory after a run, and their purpose."""


@dataclass(frozen=True)
class RunResult(Shown):
    """The result of a run. `manifest` is None if the run stopped before the export.

    `scores` has the scores of each system, best first, and `ranking` their table with intervals. `verdict` interprets
    them and names the next step. `labels` says whether the ranking agrees with the one by the sources of the queries
    alone. `failed` has a line for each system that could not be run, and `report` is the page to browse. `target` is
    the number of queries that this run was asked for.
    """

    directory: Path
    manifest: Manifest | None = field(default=None, repr=False)
    already_done: bool = False
    scores: list[dict[str, Any]] = field(default_factory=list, repr=False)
    ranking: Study | None = field(default=None, repr=False)
    verdict: str = ""
    labels: str = ""
    failed: list[str] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict, repr=False)
    note: str = ""
    seconds: float = 0.0
    memory_mb: float | None = None
    report: Path | None = None
    target: int | None = None

    def study(self, reasons: int = 4) -> Study:
        """Return the funnel with its most frequent `reasons`, the ranking, the cost and the paths."""
        parts = [*self._funnel(reasons), *self._systems()]
        return Study(self.directory.name, [*parts, *(["## Run"] if parts else []), *self._bill()])

    @property
    def fewer(self) -> list[str]:
        """Return lines about queries and labels of which there are fewer than asked for or given."""
        return [] if self.manifest is None else fewer_than_asked(self.manifest, self.target)

    @property
    def agreement(self) -> str:
        """Return how often the judge agrees with the user's own labels; "" if nothing tells."""
        return "" if self.manifest is None else agreement_text(self.manifest.notes.get(AGREEMENT))

    def _funnel(self, reasons: int) -> list[str | Table]:
        if self.manifest is None:
            return []
        note = self.manifest.notes.get(REFRESHED)
        changes = change_lines(note, self.manifest.info.version) if isinstance(note, dict) else []
        people = note_text(self.manifest.notes.get(NOTE))
        lines = [*changes, people, self.agreement, *self.fewer]
        return ["## Funnel", funnel_table(self.manifest.funnel, reasons), *map(Plain, lines)]

    def _systems(self) -> list[str | Table]:
        if self.manifest is None or self.ranking is None:
            return []
        return ["## Systems", *self.ranking.parts, Plain(self.verdict), Plain(self.labels)]

    def _bill(self) -> Iterator[str | Table]:
        yield Plain(self.note)
        if self.already_done:
            yield Plain("already finished: no calls were made and nothing was spent")
        elif self.usage:
            calls, read, cached, wrote, usd = (
                sum(stage[name] for stage in self.usage.values())
                for name in ("calls", "prompt_tokens", "cached_tokens", "completion_tokens", "usd")
            )
            memory = "" if self.memory_mb is None else f", {self.memory_mb:,.0f} MB"
            yield Plain(
                f"{calls:,} calls, {read:,} tokens in ({cached:,} from caches), {wrote:,} out, {dollars(usd)}; "
                f"{self.seconds:.0f} s{memory}"
            )
        files = [(str(path), words) for name, words in MADE.items() if (path := self.directory / name).exists()]
        page = [] if self.report is None else [(str(self.report), "the report: open it in a browser")]
        yield Table([*files, *page], columns("", "", left=(1,)))


def result_values(result: RunResult) -> dict[str, Any]:
    """Return a run's result as plain values: the funnel in place of the manifest, the ranking as text."""
    value = asdict(replace(result, manifest=None, ranking=None))
    value["ranking"] = "" if result.ranking is None else result.ranking.text()
    value["funnel"] = [asdict(step) for step in result.manifest.funnel] if result.manifest else []
    return value
