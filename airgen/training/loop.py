"""The one training loop, which every kind of training (a `TrainingTask`) goes through.

    run("splade", lambda device: SpladeTask(recipe, data, base, device), recipe, data, request)

`run` sets the random seed before it makes the task, so that new weights depend on the recipe alone. During training,
OUT.training/ holds `checkpoint.pt` (weights, optimizer, random state, position) and `best.pt`. Each is replaced by one
rename, so after SIGKILL at any moment `--resume` ends in the same weights as an uninterrupted run on the same machine.
OUT appears at the end, with card.json and README.md beside the weights (`card.py`).
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from airgen.errors import DatasetError, TrainingError, UsageError
from airgen.evaluation.result import peak_bytes
from airgen.keys import content_key
from airgen.registry import load_extra
from airgen.training import checkpoint
from airgen.training.base_models import base_identity, pick_device
from airgen.training.card import read_card, write_card
from airgen.training.data import TrainingSet
from airgen.training.learning_rate import learning_rate_share
from airgen.training.processes import joined_processes, rank, shared, wait_for_all
from airgen.training.progress import TrainingProgress
from airgen.training.recipe import Recipe, TrainingRequest
from airgen.training.task import Trained, TrainingTask

_WATCHED = "nDCG@10"  # the dev figure by which the weights to keep are chosen
_CHECKPOINT = "checkpoint.pt"


@dataclass
class _State:
    step: int = 0
    best: float = -math.inf
    best_step: int = 0
    worse: int = 0
    stopped: str = ""
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)


def run(
    kind: str, make: Callable[[str], TrainingTask], recipe: Recipe, data: TrainingSet, request: TrainingRequest
) -> Trained:
    """Train to the end and write OUT. If OUT is already the result of the same training, do nothing.

    `make` builds the task on a device. Raises UsageError if OUT has a checkpoint but `resume` is not set; TrainingError
    for a checkpoint or model of another training, for a loss that becomes NaN or infinite, and if memory is exhausted;
    and the task's own errors.
    """
    parts = {
        "kind": kind,
        "recipe": recipe.parts(),
        "base": dict(base_identity(request.base)),
        "data": data.digest,
    }
    fingerprint = content_key(parts)[:16]
    work = request.out.with_name(f"{request.out.name}.training")
    finished = read_card(request.out)
    if finished is not None:
        if finished.get("fingerprint") != fingerprint:
            raise TrainingError(
                f"{request.out} holds a model of another training: {_other(finished, parts)}; choose another --out"
            )
        shutil.rmtree(work, ignore_errors=True)  # left by a process that was killed after its last rename
        return _trained_before(finished, request.out)
    if request.out.exists() and any(request.out.iterdir() if request.out.is_dir() else [request.out]):
        raise UsageError(f"{request.out} exists and is not a trained model: choose another --out")
    if (work / _CHECKPOINT).exists() and not request.resume:
        raise UsageError(
            f"{work} holds a checkpoint: add --resume to go on, or delete the folder to start from the beginning"
        )
    with joined_processes(pick_device(request.device)) as device:
        wait_for_all()  # all have seen that there is no model yet
        load_extra("torch", "training").manual_seed(recipe.seed)  # the GPU's too
        task = make(device)
        with TrainingProgress(kind, quiet=request.quiet or rank() > 0) as progress:
            state = _Loop(task, recipe, work, parts, progress).run(resume=request.resume)
        trained = _finished(kind, task, state, recipe, data, request, parts, device)
        wait_for_all()  # the model is there for all
    return trained


def _finished(
    kind: str,
    task: TrainingTask,
    state: _State,
    recipe: Recipe,
    data: TrainingSet,
    request: TrainingRequest,
    parts: Mapping[str, Any],
    device: str,
) -> Trained:
    """Write the model; of several processes the first one does."""
    trained = Trained(
        out=request.out,
        fingerprint=content_key(parts)[:16],
        steps=state.step,
        figures=_kept_figures(state, recipe),
        history=state.history,
        stopped=state.stopped,
        seconds=state.seconds,
        memory_bytes=peak_bytes() or 0,
    )
    if rank() == 0:
        write_card(kind, task, trained, recipe, data, parts, device)
        shutil.rmtree(request.out.with_name(f"{request.out.name}.training"), ignore_errors=True)
    return trained


class _Loop:
    """Trains one task from its first step, or from a checkpoint, to its last step."""

    def __init__(
        self, task: TrainingTask, recipe: Recipe, work: Path, parts: Mapping[str, Any], progress: TrainingProgress
    ) -> None:
        self.torch = load_extra("torch", "training")
        self.task, self.recipe, self.work, self.parts, self.progress = task, recipe, work, parts, progress
        self.state = _State()
        self.epoch_steps = len(task.batches(0))
        if not self.epoch_steps:
            raise DatasetError("there are fewer than two training queries, which is not enough for a batch")
        self.total = min(self.epoch_steps * recipe.epochs, recipe.max_steps or self.epoch_steps * recipe.epochs)
        self.optimizer = self.torch.optim.AdamW(_groups(task, recipe), lr=recipe.learning_rate)
        for group in self.optimizer.param_groups:
            group["highest"] = group["lr"]
        self.weights = [weights for group in self.optimizer.param_groups for weights in group["params"]]

    def run(self, *, resume: bool) -> _State:
        """Train. At the end the model has the weights that are kept."""
        self.work.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        if not (resume and self._load()):
            self._evaluate()
            self._save()
        before = self.state.seconds - (time.monotonic() - began)
        self.progress.start(self.total, self.state.step)
        epoch, batches = -1, self.task.batches(0)
        every = self.recipe.evaluate_every or self.epoch_steps
        while self.state.step < self.total and not self.state.stopped:
            step = self.state.step
            if step // self.epoch_steps != epoch:
                epoch = step // self.epoch_steps
                batches = self.task.batches(epoch)
            numbers = self._step(batches[step % self.epoch_steps], epoch)
            self.state.step = step + 1
            self.state.seconds = before + time.monotonic() - began
            self.progress.step(self.state.step, numbers)
            evaluates = self.state.step % every == 0 or self.state.step == self.total
            if evaluates:
                self._evaluate(numbers)
            if evaluates or self.state.step % self.recipe.checkpoint_every == 0:
                self._save()
        self.state.seconds = before + time.monotonic() - began
        wait_for_all()  # best.pt is written
        if self.recipe.keep == "best" and self.state.history and (self.work / "best.pt").exists():
            self.task.model.load_state_dict(checkpoint.read(self.work / "best.pt"))
        self.state.stopped = self.state.stopped or "all steps done"
        return self.state

    def _step(self, batch: Any, epoch: int) -> dict[str, float]:
        share = learning_rate_share(self.state.step, self.total, self.recipe)
        for group in self.optimizer.param_groups:
            group["lr"] = group["highest"] * share
        self.optimizer.zero_grad(set_to_none=True)
        with _enough_memory(self.task, f"step {self.state.step + 1}"):
            numbers = self.task.backward(batch)
            norm = float(self.torch.nn.utils.clip_grad_norm_(self.weights, self.recipe.clip_norm))
        if not (math.isfinite(numbers["loss"]) and math.isfinite(norm)):
            what = f"loss {numbers['loss']}" if not math.isfinite(numbers["loss"]) else f"gradient norm {norm}"
            where = f"epoch {epoch + 1}, batch {self.state.step % self.epoch_steps + 1}"
            where = ", ".join(filter(None, (where, self.task.describe_batch(batch))))
            raise TrainingError(
                f"{what} at step {self.state.step + 1} ({where}): lower learning_rate "
                f"(now {self.recipe.learning_rate:g}) or clip_norm; the checkpoint before this step is complete"
            )
        self.optimizer.step()
        return numbers

    def _evaluate(self, numbers: Mapping[str, float] | None = None) -> None:
        """Evaluate on dev and keep the weights if they are the best so far; stop after `patience` worse evaluations."""
        self.task.model.eval()
        with self.torch.no_grad(), _enough_memory(self.task, "the evaluation on dev"):
            figures = shared(dict(self.task.evaluate()) if rank() == 0 else {})
        self.task.model.train()
        state = self.state
        last_batch = {name: round(value, 6) for name, value in (numbers or {}).items()}
        state.history.append({"step": state.step, **last_batch, **figures})  # of one name, dev's figure counts
        if _WATCHED not in figures:
            return
        if figures[_WATCHED] > state.best:
            state.best, state.best_step, state.worse = figures[_WATCHED], state.step, 0
            if rank() == 0:
                checkpoint.write(self.work / "best.pt", self.task.model.state_dict())
        else:
            state.worse += 1
            if self.recipe.patience and state.worse >= self.recipe.patience:
                state.stopped = f"no better dev {_WATCHED} in {state.worse} evaluations"
        self.progress.evaluated(state.step, figures, state.best, numbers)

    def _save(self) -> None:
        if rank() > 0:
            return
        value = {
            "parts": dict(self.parts),
            "state": asdict(self.state),
            "model": self.task.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": checkpoint.random_state(),
        }
        checkpoint.write(self.work / _CHECKPOINT, value)

    def _load(self) -> bool:
        if not (self.work / _CHECKPOINT).exists():
            return False
        value = checkpoint.read(self.work / _CHECKPOINT)
        if value["parts"] != dict(self.parts):
            raise TrainingError(
                f"{self.work} holds a checkpoint of another training: {_other({'parts': value['parts']}, self.parts)}; "
                "choose another --out, or delete the folder to start from the beginning"
            )
        self.task.model.load_state_dict(value["model"])
        self.optimizer.load_state_dict(value["optimizer"])
        checkpoint.set_random_state(value["random"])
        self.state = _State(**value["state"])
        self.task.model.train()
        return True


def _groups(task: TrainingTask, recipe: Recipe) -> list[dict[str, Any]]:
    """AdamW's parameter groups. Biases and norms are not decayed."""
    groups = []
    for module, rate in task.learning_rates(recipe):
        weights = [tensor for tensor in module.parameters() if tensor.requires_grad]
        for decay, chosen in (
            (recipe.weight_decay, [tensor for tensor in weights if tensor.ndim >= 2]),
            (0.0, [tensor for tensor in weights if tensor.ndim < 2]),
        ):
            if chosen:
                groups.append({"params": chosen, "lr": rate, "weight_decay": decay})
    return groups


@contextmanager
def _enough_memory(task: TrainingTask, where: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # torch raises a RuntimeError, on a CPU a plain one
        text = str(error).lower()
        if not (isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text):
            raise
        raise TrainingError(
            f"out of memory at {where}: lower {' or '.join(task.memory)} "
            "(this changes the recipe, so training starts from the beginning)"
        ) from error


def _kept_figures(state: _State, recipe: Recipe) -> dict[str, float]:
    """The dev figures of the weights that are kept."""
    step = state.best_step if recipe.keep == "best" and state.best > -math.inf else state.step
    entry: dict[str, Any] = next((entry for entry in reversed(state.history) if entry["step"] == step), {})
    return {name: value for name, value in entry.items() if "@" in name}


def _other(finished: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """Says in which parts another training differs, with the names of recipe settings."""
    before = finished.get("parts") or {}
    names = [name for name in ("kind", "base", "data") if before.get(name) != parts[name]]
    then, now = before.get("recipe") or {}, parts["recipe"]
    names += [f"recipe.{name}" for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    return f"it differs in {', '.join(names)}" if names else "it differs"


def _trained_before(card: Mapping[str, Any], out: Path) -> Trained:
    return Trained(
        out,
        str(card["fingerprint"]),
        int(card["steps"]),
        card["figures"],
        card["history"],
        str(card["stopped"]),
        float(card["costs"]["seconds"]),
        int(card["costs"]["memory_bytes"]),
        trained_now=False,
    )
