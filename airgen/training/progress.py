"""What a training shows: a bar with loss and dev nDCG@10 on a terminal, else one line a look at the dev queries."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

__all__ = ["Progress"]


class Progress:
    """To standard error; `quiet` shows nothing."""

    def __init__(self, kind: str, *, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self.console = Console(stderr=True, quiet=quiet)
        columns = (
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bars = Bars(*columns, console=self.console, disable=quiet or not self.console.is_terminal)
        self._kind, self._best, self._mean, self._total = kind, "", 0.0, 0
        self._task = self._bars.add_task(kind, total=None, note="", visible=False)

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def start(self, total: int, done: int) -> None:
        """So many steps in all, so many done before."""
        self._total = total
        self._bars.update(self._task, total=total, completed=done, visible=True)
        if done:
            self.console.print(f"{self._kind}: goes on after step {done:,} of {total:,}", markup=False, highlight=False)

    def step(self, done: int, numbers: Mapping[str, float]) -> None:
        """A step is done; the loss that is shown is a running mean over about twenty steps."""
        loss = numbers["loss"]
        self._mean = loss if done == 1 or not self._mean else 0.95 * self._mean + 0.05 * loss
        self._bars.update(self._task, completed=done, note=f"loss {self._mean:.4f}{self._best}")

    def looked(self, step: int, figures: Mapping[str, float], best: float, numbers: Mapping[str, float] | None) -> None:
        """The dev queries were looked at."""
        score = figures["nDCG@10"]
        self._best = f"  dev nDCG@10 {score:.4f} (best {best:.4f})"
        if not self.console.is_terminal:
            loss = f"loss {numbers['loss']:.4f}" if numbers else "before training"
            of = f"/{self._total:,}" if self._total else ""
            self.console.print(f"{self._kind}: step {step:,}{of}  {loss}{self._best}", markup=False, highlight=False)
