"""The progress of a training: a bar with loss and dev nDCG@10 on a terminal, else one line for each evaluation."""

from __future__ import annotations

from collections.abc import Mapping


class TrainingProgress:
    """Prints to standard error; `quiet` prints nothing. A context manager."""

    def __init__(self, kind: str, *, quiet: bool = False) -> None:
        from rich import progress as shown
        from rich.console import Console

        self._console = Console(stderr=True, quiet=quiet, markup=False, highlight=False)
        columns = (
            *(shown.TextColumn("{task.description:<12}"), shown.BarColumn(bar_width=24), shown.MofNCompleteColumn()),
            *(shown.TextColumn("{task.fields[note]}", markup=False), shown.TimeElapsedColumn()),
            *(shown.TextColumn("left"), shown.TimeRemainingColumn()),
        )
        disable = quiet or not self._console.is_terminal
        self._bar = shown.Progress(*columns, console=self._console, disable=disable)
        self._kind, self._total = kind, 0
        self._mean_loss, self._dev = 0.0, ""
        self._task = self._bar.add_task(kind, total=None, note="", visible=False)

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def start(self, total: int, done: int) -> None:
        """Begin to show `total` steps, of which `done` were done before a checkpoint."""
        self._total = total
        self._bar.update(self._task, total=total, completed=done, visible=True)
        if done:
            self._console.print(f"{self._kind}: goes on after step {done:,} of {total:,}")

    def step(self, done: int, numbers: Mapping[str, float]) -> None:
        """Show a finished step, with the running mean of the loss over about twenty steps."""
        loss = numbers["loss"]
        self._mean_loss = loss if done == 1 or not self._mean_loss else 0.95 * self._mean_loss + 0.05 * loss
        self._bar.update(self._task, completed=done, note=f"loss {self._mean_loss:.4f}{self._dev}")

    def evaluated(
        self, step: int, figures: Mapping[str, float], best: float, numbers: Mapping[str, float] | None
    ) -> None:
        """Show an evaluation on the dev queries; `numbers` are those of the step before it, None before training."""
        self._dev = f"  dev nDCG@10 {figures['nDCG@10']:.4f} (best {best:.4f})"
        if not self._console.is_terminal:
            loss = f"loss {numbers['loss']:.4f}" if numbers else "before training"
            total = f"/{self._total:,}" if self._total else ""
            self._console.print(f"{self._kind}: step {step:,}{total}  {loss}{self._dev}")
