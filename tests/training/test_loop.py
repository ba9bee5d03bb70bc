"""The trainer on a model of a few weights: schedule, stopping, resuming after SIGKILL, and what may go wrong."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packages import package

torch = package("torch")

from airgen.components.devices import check_device
from airgen.errors import ModelError, TrainingError, UsageError
from airgen.retrievers.hits import Hits
from airgen.training.base_models import load_base
from airgen.training.data import TrainingSet, epoch_batches, load_training_set
from airgen.training.recipe import Recipe, TrainingRequest
from airgen.training.task import Trained, TrainingTask


class Line(TrainingTask):
    """Fits a line with dropout; its dev figure is what `figures` says at each look."""

    def __init__(self, recipe: Recipe, data: TrainingSet, figures: Sequence[float] = ()) -> None:
        self.recipe, self.data, self.figures, self.looks = recipe, data, list(figures), 0
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))

    def batches(self, epoch: int) -> Sequence[list[int]]:
        return epoch_batches(len(self.data.examples), self.recipe.batch_size, self.recipe.seed, epoch)

    def loss(self, batch: list[int]) -> Mapping[str, Any]:
        rows = torch.tensor([[place / 24, self.data.examples[place].positives[0] / 40, 1.0] for place in batch])
        return {"loss": ((self.model(rows) - rows[:, :1]) ** 2).mean()}

    def evaluate(self) -> Mapping[str, float]:
        self.looks += 1
        return {"nDCG@10": self.figures[self.looks - 1]} if self.figures else {}

    def save(self, folder: Path) -> None:
        torch.save(self.model.state_dict(), folder / "line.pt")


def fit(
    dataset: Path,
    out: Path,
    figures: Sequence[float] = (),
    task: type[Line] = Line,
    resume: bool = False,
    **changes: Any,
) -> Trained:
    from airgen.training.trainer import run

    recipe = Recipe(**{"batch_size": 8, "epochs": 4, "learning_rate": 0.01, "patience": 2, **changes})
    data = load_training_set(dataset, split="train")
    request = TrainingRequest(dataset, str(dataset), out, resume=resume, quiet=True, device="cpu")
    return run("line", lambda device: task(recipe, data, figures), recipe, data, request=request)


def weights(out: Path) -> dict[str, Any]:
    return dict(torch.load(out / "line.pt", weights_only=True))


def test_the_best_weights_are_kept_and_no_better_ones_end_it(dataset: Path, tmp_path: Path) -> None:
    trained = fit(dataset, tmp_path / "a", [0.1, 0.5, 0.4, 0.5])
    assert trained.stopped == "no better dev nDCG@10 in 2 evaluations"
    assert [entry["step"] for entry in trained.history] == [0, 3, 6, 9]  # 24 queries in batches of 8
    assert trained.figures == {"nDCG@10": 0.5}
    one_epoch = fit(dataset, tmp_path / "b", [0.1, 0.5], max_steps=3, schedule="constant", warmup=0)
    assert one_epoch.stopped == "all steps done"
    last = fit(dataset, tmp_path / "c", [0.1, 0.5, 0.4, 0.5], keep="last")
    assert last.figures == {"nDCG@10": 0.5} and last.steps == 9
    assert any(
        not torch.equal(weights(tmp_path / "a")[name], weights(tmp_path / "c")[name]) for name in weights(last.out)
    )
    never = fit(dataset, tmp_path / "d", [0.5, 0.4, 0.3, 0.2, 0.1], patience=0)
    assert never.steps == 12
    torch.manual_seed(42)
    untouched = Line(Recipe(), load_training_set(dataset, split="train")).model.state_dict()
    assert all(torch.equal(weights(never.out)[name], untouched[name]) for name in untouched)  # the first look was best


def test_the_card_says_how(dataset: Path, tmp_path: Path) -> None:
    trained = fit(dataset, tmp_path / "a", [0.1, 0.2, 0.3, 0.4, 0.5])
    card = json.loads((tmp_path / "a" / "card.json").read_text())
    assert card["fingerprint"] == trained.fingerprint
    assert (card["data"]["split"], card["data"]["training_queries"], len(card["data"]["digest"])) == ("train", 24, 64)
    assert card["recipe"]["learning_rate"] == 0.01 and card["base"]["sha256"]
    words = (tmp_path / "a" / "README.md").read_text()
    assert "24 training and 8 dev queries over 40 passages" in words and "| 12 |" in words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]  # no checkpoint is left


def test_a_finished_training_is_not_repeated_and_not_overwritten(dataset: Path, tmp_path: Path) -> None:
    first = fit(dataset, tmp_path / "a", [0.1, 0.2, 0.3, 0.4, 0.5])
    again = fit(dataset, tmp_path / "a", [0.1, 0.2, 0.3, 0.4, 0.5])
    assert first.trained_now and not again.trained_now
    assert again.figures == first.figures and again.history == first.history
    with pytest.raises(TrainingError, match=r"another training: it differs in recipe.learning_rate;"):
        fit(dataset, tmp_path / "a", [0.1], learning_rate=0.5)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists and is not a trained model"):
        fit(dataset, tmp_path / "b")


class Fails(Line):
    """Raises at the seventh step."""

    steps = 0

    def loss(self, batch: list[int]) -> Mapping[str, Any]:
        self.steps += 1
        if self.steps == 7:
            raise KeyboardInterrupt
        return super().loss(batch)


def test_a_checkpoint_is_gone_on_from_only_when_asked(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = [0.1, 0.2, 0.3, 0.4, 0.5]
    monkeypatch.chdir(tmp_path)
    whole = fit(dataset, Path("whole"), figures, checkpoint_every=2)
    with pytest.raises(KeyboardInterrupt):
        fit(dataset, tmp_path / "a", figures, Fails, checkpoint_every=2)
    assert not (tmp_path / "a").exists()
    with pytest.raises(UsageError, match="add --resume"):
        fit(dataset, tmp_path / "a", figures)
    with pytest.raises(TrainingError, match=r"checkpoint of another training: it differs in recipe.batch_size;"):
        fit(dataset, tmp_path / "a", figures, batch_size=4, resume=True)
    resumed = fit(dataset, tmp_path / "a", figures[3:], resume=True, checkpoint_every=5)
    assert resumed.history == whole.history
    for name, tensor in weights(whole.out).items():
        assert torch.equal(tensor, weights(resumed.out)[name])


def test_a_damaged_checkpoint(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(dataset, tmp_path / "a", [0.1, 0.2, 0.3, 0.4, 0.5], Fails, checkpoint_every=2)
    for name in ("airgen.json", "weights.pt", "optimizer.pt"):
        path = tmp_path / "a.training" / "checkpoint-6" / name
        good = path.read_bytes()
        path.write_bytes(b"PK\x03\x04 not a checkpoint")
        with pytest.raises(TrainingError, match=r"is damaged .* delete"):
            fit(dataset, tmp_path / "a", [0.4, 0.5], resume=True)
        path.write_bytes(good)


KILLED = """
import gc, os, signal, sys
from pathlib import Path
gc.collect = lambda *_: 0
sys.path[:0] = [sys.argv[1], os.path.join(os.path.dirname(sys.argv[1]), "makers")]
import torch
import airgen.training.trainer
from test_loop import fit

dataset, folder = Path(sys.argv[2]), Path(sys.argv[3])
save, replace, seen = torch.save, Path.replace, []

def train_until(write):
    def met():
        seen.append(1)
        if len(seen) == write:
            os.kill(os.getpid(), signal.SIGKILL)

    def killed_save(value, place, *more):
        Path(place).write_bytes(b"half of it")
        met()
        save(value, place, *more)

    def killed_replace(self, other):
        met()
        return replace(self, other)

    torch.save, Path.replace = killed_save, killed_replace
    fit(dataset, folder / str(write), [0.1, 0.2, 0.3, 0.4, 0.5], checkpoint_every=2)

for write in map(int, sys.argv[4:]):
    child = os.fork()  # this process has computed nothing, so that torch has no threads yet
    if not child:
        train_until(write)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, write
"""
"""Processes die at one of their writes: of weights, optimizer, random state, the best weights, or the last file."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize(
    "writes", [[8, 13], pytest.param([1, 2, 5, 7, 9, 10, 11, 12, 22], marks=pytest.mark.nightly)], ids=str
)
def test_sigkill_at_any_write_changes_nothing(writes: list[int], dataset: Path, tmp_path: Path) -> None:
    figures = [0.1, 0.2, 0.3, 0.4, 0.5]
    words = [str(Path(__file__).parent), str(dataset), str(tmp_path), *map(str, writes)]
    done = subprocess.run([sys.executable, "-c", KILLED, *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole = fit(dataset, tmp_path / "whole", figures)
    for write in writes:
        complete = list((tmp_path / f"{write}.training").glob("checkpoint-*/airgen.json"))
        assert bool(complete) is (write > 8)  # best.pt has two writes, a checkpoint six
        history = max((json.loads(path.read_text())["history"] for path in complete), key=len, default=[])
        resumed = fit(dataset, tmp_path / str(write), figures[len(history) :], resume=True)
        assert resumed.history == whole.history
        assert all(torch.equal(tensor, weights(resumed.out)[name]) for name, tensor in weights(whole.out).items())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["whole", *map(str, writes)])


def broken(number: Callable[[Any], Any]) -> type[Line]:
    class Broken(Line):
        steps = 0

        def loss(self, batch: list[int]) -> Mapping[str, Any]:
            self.steps += 1
            found = super().loss(batch)["loss"]
            return {"loss": number(found) if self.steps == 5 else found}

        def describe_batch(self, batch: list[int]) -> str:
            return f"first query {batch[0]}"

    return Broken


def test_a_loss_that_is_no_number_or_memory_that_ends_stops_it_and_says_where(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError, match=r"loss nan at step 5 \(epoch 2, batch 2, first query \d+\): lower learning"
    ):
        fit(dataset, tmp_path / "a", task=broken(lambda loss: loss * float("nan")))
    with pytest.raises(TrainingError, match=r"gradient norm (nan|inf) at step 5"):  # the loss is 0, its slope is not
        fit(dataset, tmp_path / "b", task=broken(lambda loss: (loss - loss.detach()).clamp(min=0).sqrt()))
    (checkpoint,) = (tmp_path / "a.training").glob("checkpoint-*")
    assert checkpoint.name == "checkpoint-3"
    assert all(tensor.isfinite().all() for tensor in torch.load(checkpoint / "weights.pt").values())
    with pytest.raises(TrainingError, match="out of memory at step 5: lower batch_size"):  # torch's own error of a CPU
        fit(dataset, tmp_path / "c", task=broken(lambda loss: loss * torch.zeros(1 << 58).sum()))


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("linear", [0.5, 1, 1, 0.75, 0.5, 0.25]),
        ("constant", [0.5, 1, 1, 1, 1, 1]),
        ("cosine", [0.5, 1, 1, 0.853553, 0.5, 0.146447]),
    ],
)
def test_learning_rates(schedule: Any, rates: list[float]) -> None:
    from airgen.training.trainer import learning_rate_share

    recipe = Recipe(schedule=schedule, warmup=1 / 3)
    assert [learning_rate_share(step, 6, recipe) for step in range(6)] == pytest.approx(rates, abs=1e-6)


def test_dev_figures_are_those_of_the_measures(dataset: Path) -> None:
    data = load_training_set(dataset, split="train")
    places = {key: place for place, key in enumerate(data.corpus.ids)}
    right = np.array([[places[next(iter(of))]] for of in data.dev.labels.values()], np.int32)
    right[0] = (right[0] + 1) % len(places)
    found = data.dev.figures(Hits(right, np.ones(right.shape, np.float32)), data.corpus)
    assert found == {"nDCG@10": 7 / 8, "Recall@100": 7 / 8}


def test_bases(bert: Path, new_bert: Callable[..., Path], tmp_path: Path) -> None:
    assert load_base(str(bert)).model.config.hidden_size == 32
    assert type(load_base(str(bert), masked_lm=True).model).__name__ == "BertForMaskedLM"
    with pytest.raises(ModelError, match=r"no such folder"):
        load_base(str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match=r"is not a masked-language model: cls.predictions"):
        load_base(str(new_bert(masked_lm=False)), masked_lm=True)
    with pytest.raises(ModelError, match="training: device cuda:9"):
        check_device("cuda:9", "training")
