"""Train any kind of model with transformers' Trainer: steps, schedule, checkpoints and several processes.

    run("splade", lambda device: SpladeTask(recipe, data, base, device), recipe, data, request)

A kind (a `TrainingTask`) provides batches and a loss. This module evaluates on dev queries, chooses the weights to
keep, and resumes. OUT.training/ contains `best.pt` and the Trainer's last two checkpoints. `airgen.json` is written to
a checkpoint last, so a checkpoint without it is incomplete and not used: after SIGKILL at any moment, `--resume` ends
with the same weights as an uninterrupted run on the same machine. OUT is created at the end (`task.py`).

    torchrun --nproc-per-node 4 -m airgen train pretrain --on data/pairs --base BASE --out models/e5

The processes of torch's launcher train one model, each with its part of every batch. The first process evaluates and
saves.
"""

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from airgen.components.devices import check_device, deterministic, on_gpu, peak_gpu_bytes, tf32, watch_gpu
from airgen.components.keys import content_key
from airgen.components.registry import load_extra
from airgen.errors import DatasetError, TrainingError, UsageError
from airgen.evaluation.result import peak_bytes
from airgen.retrievers.dense.embedders import quiet_transformers
from airgen.safety.guard import is_out_of_memory
from airgen.storage.paths import sibling
from airgen.storage.whole_files import whole_file
from airgen.training.base_models import base_identity
from airgen.training.data import TrainingSet
from airgen.training.recipe import Recipe, TrainingRequest
from airgen.training.task import WATCHED, Trained, TrainingTask, finished_recipe, processes, rank, read_card, write_card

_STATE = "airgen.json"
_MEMORY_SETTINGS = (
    "chunk",
    "batch_size",
    "max_length",
    "max_query_tokens",
    "hard_negatives",
)  # settings that lower its use
load_extra("accelerate", "training")  # the Trainer's own error is long
_library = load_extra("transformers", "training")
_torch = load_extra("torch", "training")


def run(
    kind: str, make: Callable[[str], TrainingTask], recipe: Recipe, data: TrainingSet, *, request: TrainingRequest
) -> Trained:
    """Train a model and write OUT. Does nothing if OUT is already the result of the same training.

    `make` builds the task on a device. Raises UsageError if OUT has a checkpoint but `resume` is not set; TrainingError
    if the checkpoint or model is from other training, if the loss becomes NaN or infinite, or if memory runs out; and
    the task's own errors.
    """
    device = device_of(request)
    recipe = recipe.on(device, finished_recipe(request.out))
    parts = {"kind": kind, "recipe": recipe.parts(), "base": dict(base_identity(request.base)), "data": data.digest}
    fingerprint = content_key(parts)[:16]
    work = sibling(request.out, ".training")
    finished = read_card(request.out)
    if finished is not None:
        if finished.get("fingerprint") != fingerprint:
            raise TrainingError(
                f"{request.out} holds a model of another training: {_other(finished, parts)}; choose another --out"
            )
        shutil.rmtree(work, ignore_errors=True)  # left by a process that was killed after its last rename
        return Trained.of_card(request.out, finished)
    if request.out.exists() and any(request.out.iterdir() if request.out.is_dir() else [request.out]):
        raise UsageError(f"{request.out} exists and is not a trained model: choose another --out")
    if _newest(work) and not request.resume:
        raise UsageError(
            f"{work} holds a checkpoint: add --resume to continue, or delete the folder to start from the beginning"
        )
    watch_gpu(device)
    _torch.manual_seed(recipe.seed)  # also the GPU's, so that new weights depend only on the recipe
    with quiet_transformers(), _arithmetic(recipe, device):
        task = make(device)
        if recipe.gradient_checkpointing:
            _checkpoint_gradients(kind, task.model)
        trainer = _Trainer(task, recipe, work, parts, device=device, quiet=request.quiet or rank() > 0)
        stopped = trainer.go(time.monotonic())
    history = trainer.history
    trained = Trained(
        out=request.out,
        fingerprint=fingerprint,
        steps=history[-1]["step"],
        figures=trainer.kept_figures(),
        history=history,
        stopped=stopped,
        seconds=trainer.seconds(),
        memory_bytes=peak_bytes() or 0,
        gpu_bytes=peak_gpu_bytes([device]),
    )
    if rank() == 0:
        write_card(kind, task, trained, recipe, data=data, parts=parts, device=device)
        shutil.rmtree(work, ignore_errors=True)
    if processes() > 1:
        trainer.accelerator.wait_for_everyone()  # now all processes see the model
        trainer.accelerator.end_training()
    return trained


def device_of(request: TrainingRequest) -> str:
    """Return the device of this process. Each process of torch's launcher uses the GPU with its number."""
    device = request.device
    if processes() > 1 and on_gpu(device):
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return check_device(device, "training")


@contextmanager
def _arithmetic(recipe: Recipe, device: str) -> Iterator[None]:
    """On a GPU, use TF32 for fp32 products or, with `deterministic`, only deterministic algorithms."""
    with ExitStack() as stack:
        if recipe.precision == "fp32" and not recipe.deterministic:
            stack.enter_context(tf32(device))
        if recipe.deterministic:
            stack.enter_context(deterministic())
        yield


def _checkpoint_gradients(kind: str, model: Any) -> None:
    """Enable gradient checkpointing: recompute a transformer's activations in the backward pass instead of keeping
    them.

    Raises TrainingError if the model does not support it.
    """
    layers = [part for part in model.modules() if isinstance(part, _library.PreTrainedModel)]
    layers = [part for part in layers if part.supports_gradient_checkpointing]
    if not layers:
        raise TrainingError(f"gradient_checkpointing: the base of {kind} has no layers that can do it: set it to false")
    inner = {id(part) for outer in layers for part in outer.modules() if part is not outer}
    for part in layers:
        if id(part) not in inner:
            part.activation_checkpointing_enable({"use_reentrant": False})


class _Loss(_torch.nn.Module):  # type: ignore[misc, name-defined]
    """A task as a module whose forward pass is the loss, so that torch's own wrapper sums gradients over processes."""

    def __init__(self, task: TrainingTask) -> None:
        super().__init__()
        self.model, self._task = task.model, [task]  # in a list, so that the task is not part of this module

    def forward(self, batch: Any) -> Mapping[str, Any]:
        return self._task[0].loss(batch)


class _Steps:
    """The batches of all epochs in order. Those of an epoch are created when the first one is needed."""

    def __init__(self, task: TrainingTask, recipe: Recipe) -> None:
        self._task, self._epoch, self._batches = task, 0, task.batches(0)
        self._pool: ThreadPoolExecutor | None = None
        self._next: tuple[int, Future[tuple[Any, tuple[Any, Any]]]] | None = None
        self.of_epoch = len(self._batches)
        if not self.of_epoch:
            raise DatasetError("there are fewer than two training queries, which is not enough for a batch")
        self._total = min(self.of_epoch * recipe.epochs, recipe.max_steps or self.of_epoch * recipe.epochs)

    def __len__(self) -> int:
        return self._total

    def prepare_ahead(self) -> None:
        """From now on, prepare each batch during the previous step, while the GPU works and a core is free."""
        self._pool = ThreadPoolExecutor(1, "batches")

    def settle(self) -> None:
        """Wait until no batch is being prepared, because a tokenizer can be used by only one thread."""
        if self._next is not None:
            wait([self._next[1]])

    def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = self._next = None

    def __getitem__(self, step: int) -> Any:
        if self._pool is None:
            return self._batch(step)
        place, prepared = self._next or (-1, None)
        self.settle()
        batch, self._task.ahead = prepared.result() if prepared is not None and place == step else self._prepared(step)
        self._next = (step + 1, self._pool.submit(self._prepared, step + 1)) if step + 1 < self._total else None
        return batch

    def _prepared(self, step: int) -> tuple[Any, tuple[Any, Any]]:
        batch = self._batch(step)
        part = self._task.part_of(batch)
        return batch, (part, self._task.prepare(part))

    def _batch(self, step: int) -> Any:
        epoch, place = divmod(step, self.of_epoch)
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._task.batches(epoch)
        return self._batches[place]


class _Trainer(_library.Trainer):  # type: ignore[misc, name-defined]
    """Trains one task. Its single epoch covers the whole training, because a task orders the epochs itself."""

    def __init__(
        self, task: TrainingTask, recipe: Recipe, work: Path, parts: dict[str, Any], *, device: str, quiet: bool
    ) -> None:
        self.task, self.recipe, self.work, self.parts, self.quiet = task, recipe, work, parts, quiet
        self.device = device
        self.history: list[dict[str, Any]] = []
        self.numbers: dict[str, float] = {}
        self._before = 0.0
        self._steps = _Steps(task, recipe)
        if device.startswith("cuda") and task.makes_ahead:
            self._steps.prepare_ahead()
        arguments = _library.TrainingArguments(
            output_dir=str(work),
            per_device_train_batch_size=1,
            num_train_epochs=1,
            max_grad_norm=recipe.clip_norm,
            seed=recipe.seed,
            use_cpu=device == "cpu",
            save_total_limit=2,
            report_to="none",
            logging_strategy="no",
            save_strategy="no",
            ddp_find_unused_parameters=True,
            disable_tqdm=quiet or not sys.stderr.isatty(),
        )
        if device.startswith("cuda"):  # each process uses the one GPU that was requested
            _torch.cuda.set_device(device)
            arguments._n_gpu = 1
            arguments.__dict__["_setup_devices"] = _torch.device(device)
        optimizer = _torch.optim.AdamW(_groups(task, recipe), lr=recipe.learning_rate)
        total = len(self._steps)  # the library's own schedules waste the first step on a rate of 0
        rates = _torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_share(step, total, recipe))
        self._wrapped = processes() > 1 and not task.own_passes
        model = _Loss(task) if self._wrapped else task.model
        super().__init__(model, arguments, train_dataset=self._steps, optimizers=(optimizer, rates))
        self.add_callback(_Watch(self))
        _torch.manual_seed(recipe.seed + rank())  # each process has its own dropout

    def go(self, began: float) -> str:
        """Train from the newest checkpoint or from the first step. At the end, the model has the weights to keep.

        Returns the reason why training ended.
        """
        self._began = began
        self.work.mkdir(parents=True, exist_ok=True)
        for other in self.work.glob("checkpoint-*") if rank() == 0 else ():
            if not (other / _STATE).exists():  # a process was killed while writing it
                shutil.rmtree(other)
        checkpoint = _newest(self.work)
        if checkpoint is not None:
            self._resume(checkpoint)
        else:
            self.evaluate()
        if self._stops() or (checkpoint and self.history[-1]["step"] == len(self._steps)):
            self._load_from_checkpoint(str(checkpoint))
        else:
            try:
                self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            finally:
                self._steps.close()
        if processes() > 1:
            self.accelerator.wait_for_everyone()  # best.pt is written
        if self.recipe.keep == "best" and (self.work / "best.pt").exists():
            self.task.model.load_state_dict(_read(self.work / "best.pt"))
        return self._stops() or "all steps done"

    def seconds(self) -> float:
        """Return how long training took, including the time before a checkpoint."""
        return self._before + time.monotonic() - self._began

    def kept_figures(self) -> dict[str, float]:
        """Return the dev figures of the weights to keep."""
        entry = self._best() if self.recipe.keep == "best" else None
        return {name: value for name, value in (entry or self.history[-1]).items() if "@" in name}

    def _best(self) -> dict[str, Any] | None:
        seen = [entry for entry in self.history if WATCHED in entry]
        return max(seen, key=lambda entry: float(entry[WATCHED]), default=None)

    def _stops(self) -> str:
        """Return why training ends now, after `patience` worse evaluations, or ""."""
        best = self._best()
        worse = len(self.history) - 1 - self.history.index(best) if best else 0
        return f"no better dev {WATCHED} in {worse} evaluations" if 0 < self.recipe.patience <= worse else ""

    # Attributes that the Trainer reads.

    def get_train_dataloader(self) -> Any:
        """Return all steps in order, for every process, without changing the random state of dropout."""
        return _torch.utils.data.DataLoader(
            self._steps, collate_fn=lambda batches: {"batch": batches[0]}, generator=_torch.Generator().manual_seed(0)
        )

    def floating_point_ops(self, inputs: Any) -> int:
        """Return 0, since operations are not counted."""
        return 0

    def log(self, *_: Any, **__: Any) -> None:
        """Do nothing, since this class keeps its own history."""

    def training_step(self, *arguments: Any, **named: Any) -> Any:
        """Run the forward and backward pass of a step."""
        with _enough_memory(self.task, f"step {self.state.global_step + 1}"):
            return super().training_step(*arguments, **named)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *_: Any, **__: Any) -> Any:
        """Compute the loss of the task, and record its figures."""
        self.task.trained = model
        self.batch = inputs["batch"]
        part = self.task.part_of(self.batch)
        low = self.recipe.precision == "bf16" and not self.task.own_passes
        with _torch.autocast(_torch.device(self.device).type, _torch.bfloat16, enabled=low):
            parts = model(part) if self._wrapped else self.task.loss(part)
        self.numbers = {name: float(value.detach()) for name, value in parts.items()}
        self.check("loss", self.numbers["loss"])
        return parts["loss"]

    def check(self, name: str, value: float) -> None:
        """Raise TrainingError for NaN and infinity."""
        if math.isfinite(value):
            return
        step = self.state.global_step
        epoch, place = divmod(step, self._steps.of_epoch)
        where = ", ".join(filter(None, (f"epoch {epoch + 1}, batch {place + 1}", self.task.describe_batch(self.batch))))
        raise TrainingError(
            f"{name} {value} at step {step + 1} ({where}): lower learning_rate (now {self.recipe.learning_rate:g}) "
            "or clip_norm; the checkpoint before this step is complete"
        )

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Evaluate on dev and keep the weights if they are the best so far."""
        self.control.should_evaluate = False
        self._steps.settle()
        self.task.model.eval()
        gpu = [self.device] if self.device.startswith("cuda") else []
        # Random draws in this block, also on the GPU, must not change the training.
        with _torch.random.fork_rng(gpu), _torch.no_grad(), _enough_memory(self.task, "the evaluation on dev"):
            held = [dict(self.task.evaluate()) if rank() == 0 else {}]
        if processes() > 1:
            _torch.distributed.broadcast_object_list(held, 0)
        figures = held[0]
        self.task.model.train()
        step = self.state.global_step
        last_batch = {name: round(value, 6) for name, value in self.numbers.items()}
        self.history.append({"step": step, **last_batch, **figures})  # if two have the same name, dev's figure counts
        best = self._best()
        if best is not None:
            if best is self.history[-1]:
                self._save()
            if not self.quiet:
                loss = (
                    f"step {step:,}/{len(self._steps):,}  loss {last_batch['loss']:.4f}" if step else "before training"
                )
                load_extra("tqdm", "training").tqdm.write(
                    f"{self.parts['kind']}: {loss}  dev {WATCHED} {figures[WATCHED]:.4f} (best {best[WATCHED]:.4f})",
                    file=sys.stderr,
                )
        self.control.should_training_stop |= bool(self._stops())
        return {}

    def _save_checkpoint(self, *arguments: Any) -> None:
        with _writing(self.work):
            super()._save_checkpoint(*arguments)
            if processes() > 1:
                self.accelerator.wait_for_everyone()
            if rank() == 0:
                state = {"parts": self.parts, "seconds": self.seconds(), "history": self.history}
                with whole_file(self.work / f"checkpoint-{self.state.global_step}" / _STATE) as fresh:
                    fresh.write_text(json.dumps(state), encoding="utf-8")

    def _save(self, output_dir: str | None = None, state_dict: object = None) -> None:
        """Write the weights of any module to `best.pt` or a checkpoint."""
        if rank() == 0:
            path = Path(output_dir) / "weights.pt" if output_dir else self.work / "best.pt"
            path.parent.mkdir(parents=True, exist_ok=True)
            with _writing(path), whole_file(path) as fresh:
                _torch.save(self.task.model.state_dict(), fresh)

    def _resume(self, checkpoint: Path) -> None:
        with _reading(checkpoint):
            state = json.loads((checkpoint / _STATE).read_text("utf-8"))
            self.history, self._before, parts = state["history"], state["seconds"], state["parts"]
        if parts != json.loads(json.dumps(self.parts)):
            raise TrainingError(
                f"{self.work} holds a checkpoint of another training: {_other(state, self.parts)}; "
                "choose another --out, or delete the folder to start from the beginning"
            )

    def _load_from_checkpoint(self, folder: str, model: object = None) -> None:
        self.task.model.load_state_dict(_read(Path(folder) / "weights.pt"))

    def _load_optimizer_and_scheduler(self, folder: str | None) -> None:
        with _reading(Path(str(folder))):
            super()._load_optimizer_and_scheduler(folder)


class _Watch(_library.TrainerCallback):  # type: ignore[misc, name-defined]
    """Decides after which steps the Trainer evaluates and saves, and checks gradients."""

    def __init__(self, trainer: _Trainer) -> None:
        self._trainer = trainer

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Check the gradients after clipping, which turns them into NaN if their norm was NaN or infinite."""
        trainer = self._trainer
        gradients = [parameter.grad for parameter in trainer.task.model.parameters() if parameter.grad is not None]
        trainer.check("gradient norm", float(_torch.nn.utils.get_total_norm(gradients)))

    def on_step_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate at the end of each epoch or after `evaluate_every` steps, then save."""
        trainer, step = self._trainer, state.global_step
        interval = trainer.recipe.evaluate_every or trainer._steps.of_epoch
        control.should_evaluate = step % interval == 0 or step == len(trainer._steps)
        control.should_save = control.should_evaluate or step % trainer.recipe.checkpoint_every == 0


def learning_rate_share(step: int, total: int, recipe: Recipe) -> float:
    """Return the learning rate of a step (from 0) as a share of the maximum: a linear warm-up followed by the schedule.

    >>> [round(learning_rate_share(step, 10, Recipe(warmup=0.2)), 3) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.125]
    """
    warm = round(total * recipe.warmup)
    if step < warm:
        return (step + 1) / warm
    progress = (step - warm) / max(1, total - warm)
    falling = {"linear": 1 - progress, "cosine": 0.5 * (1 + math.cos(math.pi * progress))}
    return falling.get(recipe.schedule, 1.0)


def _groups(task: TrainingTask, recipe: Recipe) -> list[dict[str, Any]]:
    """Return AdamW's parameter groups, without weight decay for biases and norms."""
    groups = []
    for module, rate in task.learning_rates(recipe):
        weights = [tensor for tensor in module.parameters() if tensor.requires_grad]
        for decay, matrices in ((recipe.weight_decay, True), (0.0, False)):
            chosen = [tensor for tensor in weights if (tensor.ndim >= 2) is matrices]
            groups.append({"params": chosen, "lr": rate, "weight_decay": decay})
    return [group for group in groups if group["params"]]


def _newest(work: Path) -> Path | None:
    """Return the latest complete checkpoint."""
    complete = [path.parent for path in work.glob(f"checkpoint-*/{_STATE}")]
    return max(complete, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch's own writer raises RuntimeError on a full disk
        raise TrainingError(
            f"{path} cannot be written: {error}: free disk space, then continue with --resume"
        ) from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # pickle, zip and torch raise their own errors
        folder = path if path.is_dir() else path.parent
        raise TrainingError(
            f"{path} is damaged ({type(error).__name__}): delete {folder}, then add --resume to continue from the "
            "checkpoint before it, or from the beginning"
        ) from error


def _read(path: Path) -> Any:
    """Load tensors to the CPU without executing anything in the file."""
    with _reading(path):
        return _torch.load(path, map_location="cpu", weights_only=True)


@contextmanager
def _enough_memory(task: TrainingTask, where: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        lower = [name for name in _MEMORY_SETTINGS if name in type(task.recipe).model_fields]
        raise TrainingError(
            f"out of memory at {where}: lower {' or '.join(lower)} "
            "(this changes the recipe, so training starts from the beginning)"
        ) from error


def _other(finished: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """Describe in which parts other training differs, with the names of recipe settings."""
    before = finished.get("parts") or {}
    names = [name for name in ("kind", "base", "data") if before.get(name) != parts[name]]
    then, now = before.get("recipe") or {}, parts["recipe"]
    names += [f"recipe.{name}" for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    return f"it differs in {', '.join(names)}" if names else "it differs"
