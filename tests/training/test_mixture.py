"""Several datasets with weights in one training: what an epoch has, what is never trained on, resuming, the card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from beir_folder import write_beir

from airgen.errors import UsageError
from airgen.training import train
from airgen.training.data import Share, epoch_batches, epoch_examples, load_training_set, reserved_wordings
from airgen.training.mixture import mixed, weighted_dataset
from airgen.training.recipe import TrainingRequest


@pytest.mark.parametrize("epoch", [0, 5])
@pytest.mark.parametrize("datasets", [[(7, 1.0)], [(30, 0.3), (5, 2.0)], [(0, 1.5), (9, 3.25), (1, 0.1), (11, 0.5)]])
def test_an_epoch_has_each_dataset_as_it_weighs(datasets: list[tuple[int, float]], epoch: int) -> None:
    shares = [Share(count, weight) for count, weight in datasets]
    numbers = epoch_examples(shares, 7, epoch)
    first = 0
    for count, weight in datasets:
        met = Counter(int(number) for number in numbers if first <= number < first + count)
        assert met.total() == int(weight) * count + round((weight % 1) * count)
        assert all(int(weight) <= met[number] <= int(weight) + 1 for number in range(first, first + count))
        first += count
    assert max(numbers, default=-1) < first
    assert np.array_equal(numbers, epoch_examples(shares, 7, epoch))


def test_a_share_is_another_one_in_each_epoch() -> None:
    shares = [Share(4, 1), Share(100, 0.3)]
    drawn = [frozenset(epoch_examples(shares, 1, epoch).tolist()) for epoch in range(20)]
    assert len(set(drawn)) == 20 and all(set(range(4)) <= one and len(one) == 34 for one in drawn)
    assert len(frozenset().union(*drawn)) == 104  # after twenty epochs each of them was there


def test_batches_of_one_dataset_are_those_of_before() -> None:
    assert epoch_batches(10, 4, 42, 3) == epoch_batches(10, 4, 42, 3, [Share(10, 1.0)])
    assert sorted(n for batch in epoch_batches(10, 4, 42, 3) for n in batch) == list(range(10))


def folder(
    path: Path, texts: dict[str, str], queries: dict[str, str], labels: dict[str, list[tuple[str, str, int]]]
) -> Path:
    rows = [{"_id": key, "title": "", "text": text} for key, text in texts.items()]
    return write_beir(path, rows, [{"_id": key, "text": text} for key, text in queries.items()], labels)


def test_two_datasets_become_one(tmp_path: Path) -> None:
    texts = {f"p{n}": f"passage {n}" for n in range(4)}
    one = folder(tmp_path / "one", texts, {"q0": "a", "q1": "b", "q2": "Asked elsewhere", "q3": "d"}, {
        "train": [("q0", "p0", 1), ("q1", "p1", 1), ("q1", "p2", 0), ("q2", "p3", 1)], "dev": [("q3", "p3", 1)],
    })  # fmt: skip
    two = folder(tmp_path / "two", texts, {"q0": "D", "q1": "f", "q2": "g", "q3": "asked  ELSEWHERE"}, {
        "train": [("q0", "p0", 1), ("q1", "p1", 1), ("q2", "p2", 1)], "test": [("q3", "p3", 1)],
    })  # fmt: skip
    reserved = reserved_wordings(one) | reserved_wordings(two)
    assert reserved == {"asked elsewhere"}
    sets = [load_training_set(path, split="train", dev_share=0, reserved_elsewhere=reserved) for path in (one, two)]
    data = mixed(sets, [1.0, 0.5])
    assert [(e.id, [data.corpus.ids[p] for p in e.positives], [data.corpus.ids[p] for p in e.negatives])
            for e in data.examples] == [
        ("one/q0", ["one/p0"], []), ("one/q1", ["one/p1"], ["one/p2"]), ("two/q1", ["two/p1"], []),
        ("two/q2", ["two/p2"], []),
    ]  # fmt: skip
    assert data.corpus.full_text(4) == "passage 0" and len(data.corpus) == 8
    assert data.dev.labels == {"one/q3": {"one/p3": 1}}
    assert data.shares == (Share(2, 1.0), Share(2, 0.5))
    assert [(row["name"], row["weight"], row["left_out"]) for row in data.about["datasets"]] == [
        ("one", 1.0, {"also held out or a test query": 1}),
        ("two", 0.5, {"a dev query of another dataset": 1}),
    ]
    assert data.digest != mixed(sets, [1.0, 0.6]).digest
    twice = mixed([sets[0], sets[0]], [1.0, 1.0])
    assert [e.id for e in twice.examples] == ["one/q0", "one/q1", "one#2/q0", "one#2/q1"]


def test_weights_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "a=2").mkdir()
    assert weighted_dataset(f"{tmp_path}/a=2") == (tmp_path / "a=2", 1.0)
    assert weighted_dataset("data/nli=0.3") == (Path("data/nli"), 0.3)
    assert weighted_dataset("nq") == (Path("nq"), 1.0)
    for wrong in ("nq=0", "nq=much", "nq=nan", "=2"):
        with pytest.raises(UsageError, match="a weight above 0"):
            weighted_dataset(wrong)


@pytest.fixture
def request_of(bert: Path, new_dataset: Callable[..., Path], tmp_path: Path) -> Callable[..., TrainingRequest]:
    """A training of the encoder on two datasets."""
    datasets = ((new_dataset("one"), 1.0), (new_dataset("two", seed=2), 0.5))
    changes = ("batch_size=8", "epochs=2", "checkpoint_every=1", "max_length=16", "hard_negatives=1", "negatives=bm25",
               "learning_rate=1e-3")  # fmt: skip

    def make(out: str, *more: str, resume: bool = False) -> TrainingRequest:
        return TrainingRequest(
            datasets, str(bert), tmp_path / out, changes=(*changes, *more), quiet=True, device="cpu", resume=resume
        )

    return make


def test_a_mixed_training_goes_on_to_the_same_bytes(
    request_of: Callable[..., TrainingRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airgen.training.kinds.encoder import EncoderTask

    whole = train("encoder", request_of("whole"))
    assert whole.steps == 10  # 24 queries and half of 24 in batches of 8, twice
    step = EncoderTask.loss

    def killed(self: EncoderTask, batch: object) -> object:
        if getattr(batch, "step", 0) == 6:
            raise KeyboardInterrupt
        return step(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(EncoderTask, "loss", killed)
    with pytest.raises(KeyboardInterrupt):
        train("encoder", request_of("broken"))
    monkeypatch.setattr(EncoderTask, "loss", step)
    train("encoder", request_of("broken", resume=True))
    assert (whole.out / "model.safetensors").read_bytes() == (
        request_of("broken").out / "model.safetensors"
    ).read_bytes()
    card = json.loads((whole.out / "card.json").read_text("utf-8"))
    assert [(row["name"], row["weight"], len(row["digest"])) for row in card["data"]["datasets"]] == [
        ("one", 1.0, 64), ("two", 0.5, 64),
    ]  # fmt: skip
    words = (whole.out / "README.md").read_text("utf-8")
    assert f"- two, weight 0.5: {card['data']['datasets'][1]['training_queries']} training and 8 dev queries" in words


def test_passages_by_themselves_have_no_weights(request_of: Callable[..., TrainingRequest]) -> None:
    with pytest.raises(UsageError, match="deepct learns passages by themselves"):
        train("deepct", TrainingRequest(request_of("x").on, "none", Path("x")))
