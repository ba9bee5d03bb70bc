"""Training on a GPU, without one: every kind runs on each device, in each precision, and says what it took."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packages import package
from small_training import QUICK

torch = package("torch")
transformers = package("transformers")
package("sentence_transformers")
stand_in_gpu = package("stand_in_gpu")


from airgen.components.devices import tf32
from airgen.errors import ModelError, TrainingError
from airgen.training import KINDS, task_class, train
from airgen.training.recipe import Recipe, TrainingRequest
from airgen.training.task import Trained, read_card

_SMALL = ("batch_size=8", "max_length=24", "dev_passages=20", "max_steps=2")
_KINDS = [kind for kind in KINDS if kind != "pretrain"]  # which is `encoder` with another recipe


@pytest.fixture
def base_of(bert: Path, tmp_path: Path) -> Callable[[str], Path]:
    """The base of a kind: the small BERT, or a T5 as small."""

    def find(kind: str) -> Path:
        if kind != "doct5query":
            return bert
        place = tmp_path / "t5"
        vocabulary = transformers.AutoTokenizer.from_pretrained(bert)
        config = transformers.T5Config(
            vocab_size=len(vocabulary), d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, pad_token_id=0,
            eos_token_id=3, decoder_start_token_id=0,
        )  # fmt: skip
        transformers.T5ForConditionalGeneration(config).save_pretrained(place)
        vocabulary.save_pretrained(place)
        return place

    return find


def run(kind: str, dataset: Path, base: Path, out: Path, device: str | None, *changes: str) -> Trained:
    quick = QUICK[kind] if kind in ("augment", "encoder") else _SMALL
    quick += ("max_query_tokens=6", "dev_queries=1", "dev_passages=4") if kind == "doct5query" else ()
    request = TrainingRequest(
        dataset, str(base), out, changes=(*quick, "epochs=1", *changes), quiet=True, device=device
    )
    return train(kind, request)


@pytest.mark.parametrize("device", [None, "cuda", "cuda:1"])
@pytest.mark.parametrize("kind", _KINDS)
def test_every_kind_runs_on_every_device(
    kind: str, device: str | None, dataset: Path, base_of: Callable[[str], Path], tmp_path: Path
) -> None:
    base = base_of(kind)
    with stand_in_gpu.stand_in_gpus() as gpus:
        trained = run(kind, dataset, base, tmp_path / "out", device, "max_steps=2")
        number = "cuda:1" if device == "cuda:1" else "cuda:0"
        assert trained.steps == 2 and number in gpus.asked
        assert gpus.current == int(number[-1])
    card = read_card(tmp_path / "out")
    assert card is not None and card["recipe"]["precision"] == "bf16"  # the default there
    assert card["costs"]["device"] == f"{number} (Stand-in)" and card["costs"]["gpu_bytes"] == 123_456_789
    words = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert f"on {number} (Stand-in)" in words and "123 MB of the GPU's" in words and "precision bf16" in words


@pytest.mark.parametrize("kind", _KINDS)
def test_every_kind_has_a_precision_and_checkpointing(
    kind: str, dataset: Path, base_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = base_of(kind)
    seen: list[Any] = []
    linear = torch.nn.functional.linear

    def watched(*given: Any, **named: Any) -> Any:
        result = linear(*given, **named)
        if torch.is_grad_enabled():
            seen.append(result.dtype)
        return result

    monkeypatch.setattr(torch.nn.functional, "linear", watched)
    losses, counts = {}, {}
    for name, changes in {
        "fp32": (),
        "bf16": ("precision=bf16",),
        "less memory": ("gradient_checkpointing=true",),
    }.items():
        seen.clear()
        whole = ("train_encoder=true",) if kind == "augment" else ()  # otherwise, no layer is recomputed
        trained = run(kind, dataset, base, tmp_path / name, "cpu", "max_steps=1", *whole, *changes)
        losses[name], counts[name] = trained.history[-1]["loss"], len(seen)
        assert set(seen) >= {torch.bfloat16} if name == "bf16" else set(seen) == {torch.float32}
    assert losses["less memory"] == pytest.approx(losses["fp32"], rel=1e-5)  # also its dropout is the same
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.2, abs=0.2) and losses["bf16"] != losses["fp32"]
    assert counts["less memory"] > counts["fp32"]  # layers are computed again


def test_the_precision_belongs_to_the_training(dataset: Path, bert: Path, tmp_path: Path) -> None:
    first = run("deepct", dataset, bert, tmp_path / "out", "cpu")
    again = run("deepct", dataset, bert, tmp_path / "out", "cpu")
    assert not again.trained_now and again.fingerprint == first.fingerprint
    with pytest.raises(TrainingError, match=r"it differs in recipe\.precision"):
        run("deepct", dataset, bert, tmp_path / "out", "cpu", "precision=bf16")
    with stand_in_gpu.stand_in_gpus():  # a finished model of `auto` is done, wherever it was trained
        assert not run("deepct", dataset, bert, tmp_path / "out", None).trained_now
    assert Recipe().on("cpu").precision == "fp32"
    with stand_in_gpu.stand_in_gpus(bf16=False):
        assert Recipe().on("cuda:0").precision == "fp32"
    with stand_in_gpu.stand_in_gpus():
        assert Recipe().on("cuda:0").precision == "bf16" and Recipe(precision="fp32").on("cuda:0").precision == "fp32"


def test_tf32_is_on_for_training_in_fp32_and_off_after_it() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    with tf32("cpu"):
        assert torch.backends.cuda.matmul.allow_tf32 is before
    with stand_in_gpu.stand_in_gpus(), tf32("cuda:0"):
        assert torch.backends.cuda.matmul.allow_tf32 is True
    assert torch.backends.cuda.matmul.allow_tf32 is before


def test_deterministic_algorithms_are_set_during_the_training_alone(
    dataset: Path, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airgen.training.kinds.sparse_family import DeepCTTask

    seen: list[tuple[bool, bool]] = []
    loss = DeepCTTask.loss

    def watched(self: Any, batch: Any) -> Any:
        algorithms = torch.are_deterministic_algorithms_enabled()
        seen.append((algorithms, torch.backends.cudnn.deterministic))
        return loss(self, batch)

    monkeypatch.setattr(DeepCTTask, "loss", watched)
    run("deepct", dataset, bert, tmp_path / "a", "cpu", "deterministic=true")
    assert set(seen) == {(True, True)} and not torch.are_deterministic_algorithms_enabled()
    card = json.loads((tmp_path / "a" / "card.json").read_text("utf-8"))
    assert card["recipe"]["deterministic"] is True


def test_what_an_evaluation_draws_does_not_change_the_training(
    dataset: Path, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    from airgen.training.kinds.sparse_family import DeepCTTask

    forked: list[list[str]] = []
    fork = torch.random.fork_rng
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: forked.append(list(devices)) or fork([]))
    run("deepct", dataset, bert, tmp_path / "still", "cpu")
    evaluate = DeepCTTask.evaluate
    monkeypatch.setattr(DeepCTTask, "evaluate", lambda self: (torch.rand(1000), evaluate(self))[1])
    run("deepct", dataset, bert, tmp_path / "drawing", "cpu")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("still", "drawing"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    with stand_in_gpu.stand_in_gpus():
        run("deepct", dataset, bert, tmp_path / "gpu", "cuda:1")
    assert forked[-1] == ["cuda:1"] and forked[0] == []  # the state of that GPU is kept, too


def test_a_model_that_cannot_checkpoint_and_a_gpu_that_is_not_there(
    dataset: Path, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        stand_in_gpu.stand_in_gpus(),
        pytest.raises(ModelError, match=r"training: device cuda:4: CUDA error: invalid device"),
    ):
        run("deepct", dataset, bert, tmp_path / "a", "cuda:4")
    monkeypatch.setattr(transformers.BertPreTrainedModel, "supports_gradient_checkpointing", False)
    with pytest.raises(TrainingError, match=r"gradient_checkpointing: the base of deepct"):
        run("deepct", dataset, bert, tmp_path / "b", "cpu", "gradient_checkpointing=true")


def test_what_a_training_raises_is_one_line(
    dataset: Path, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airgen.training.kinds.sparse_family import DeepCTTask

    def fail(self: Any, batch: Any) -> Any:
        raise KeyError("of mine")

    monkeypatch.setattr(DeepCTTask, "loss", fail)
    with pytest.raises(TrainingError, match=r"^training deepct: .*test_gpu\.py:\d+: KeyError: 'of mine'$"):
        run("deepct", dataset, bert, tmp_path / "a", "cpu")

    def too_large(self: Any, batch: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(DeepCTTask, "loss", too_large)
    with pytest.raises(TrainingError, match=r"out of memory at step 1: lower batch_size or max_length"):
        run("deepct", dataset, bert, tmp_path / "b", "cpu")


@pytest.mark.parametrize("kind", ["encoder", "splade", "cross-encoder", "doct5query"])
def test_a_batch_is_made_while_the_step_before_runs(
    kind: str, dataset: Path, base_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another thread on a GPU, and the weights are those of a training that makes each batch in its step."""
    task, threads = task_class(kind), list[str]()
    prepare = task.prepare

    def noted(self: Any, batch: Any) -> Any:
        threads.append(threading.current_thread().name)
        return prepare(self, batch)

    monkeypatch.setattr(task, "prepare", noted)
    base, losses = base_of(kind), []
    for name in ("ahead", "inside"):
        with stand_in_gpu.stand_in_gpus():
            trained = run(kind, dataset, base, tmp_path / name, "cuda", "max_steps=3", "evaluate_every=2")
        losses.append([entry.get("loss") for entry in trained.history])
        monkeypatch.setattr("airgen.training.trainer._Steps.prepare_ahead", lambda self: None)
    assert [name.startswith("batches") for name in threads] == [False, True, True, False, False, False]
    assert losses[0] == losses[1] and len(losses[0]) == 3
