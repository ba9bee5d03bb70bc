"""Training data: what is trained on and what never is; columns on disk; several datasets with weights."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beir_folder import write_beir
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from airgen.components.keys import content_key, key_of_pieces
from airgen.errors import DatasetError, SettingsError, UsageError
from airgen.settings.base import load_yaml
from airgen.storage.paths import data_dir
from airgen.training import train
from airgen.training.data import (
    Share,
    draw,
    epoch_batches,
    epoch_examples,
    load_training_set,
    mixed,
    reserved_wordings,
    weighted_dataset,
    with_negatives,
)
from airgen.training.dataset_columns import Joined, KeyPlaces, StoredTexts, key_of
from airgen.training.kinds.augment import AugmentRecipe
from airgen.training.kinds.encoder import EncoderRecipe, PretrainRecipe
from airgen.training.recipe import Fold, Recipe, TrainingRequest, commented_yaml

TEXTS = {"q1": "cats eat fish", "q2": "dogs bark", "q3": "birds sing", "q4": "fish swim", "q5": "Cats  eat FISH"}
LABELS = {
    "train": [("q1", "p1", 1), ("q1", "p2", 0), ("q2", "p2", 1), ("q3", "p3", 2), ("q3", "p1", 1), ("q3", "p9", 1)],
    "test": [("q4", "p4", 1), ("q5", "p1", 1)],
}


def write(folder: Path, labels: dict[str, list[tuple[str, str, int]]], queries: dict[str, str] = TEXTS) -> Path:
    passages = {
        "p1": "cats eat fish and sleep all day", "p2": "dogs eat bones and bark at cats",
        "p3": "birds sing in the morning and eat seeds", "p4": "fish swim in the sea", "p5": "the stock market fell",
    }  # fmt: skip
    rows = [{"_id": key, "title": "", "text": text} for key, text in passages.items()]
    return write_beir(folder, rows, [{"_id": key, "text": text} for key, text in queries.items()], labels)


def test_queries_that_are_test_queries_by_wording_are_left_out_and_counted(tmp_path: Path) -> None:
    data = load_training_set(write(tmp_path, LABELS), split="train", dev_share=0)
    assert [(e.id, e.positives, e.negatives) for e in data.examples] == [("q2", (1,), ()), ("q3", (2, 0), ())]
    assert data.about["left_out"] == {"also held out or a test query": 1}  # q1 says what q5 says
    assert (data.about["training_queries"], data.about["split"], data.about["fold"]) == (2, "train", None)


@pytest.mark.parametrize(
    ("split", "labels", "error", "words"),
    [
        ("test", LABELS, UsageError, r"is for testing: train on train, or .* --fold 1/5"),
        ("all", LABELS, UsageError, r"is for testing: train on train, or .* --fold 1/5"),
        ("test", {"test": LABELS["test"]}, UsageError, "this dataset has no other"),
        ("train", {"test": LABELS["test"]}, DatasetError,
         r"no split 'train' to train on \(it has test\): .*--split test --fold 1/5"),
        ("train", {"train": [("q2", "p2", 1), ("q3", "nowhere", 1)]}, DatasetError,
         r"1 training queries in train \(1 without a positive in the corpus\)"),
        ("train", {"train": [("q2", "p2", 1), ("q2", "p2", 2)]}, DatasetError,
         r"train.tsv:3: query 'q2' and passage 'p2' have two labels, 1 and 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_on(tmp_path: Path, split: str, labels: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        load_training_set(write(tmp_path, labels), split=split)


def test_the_dev_split_is_dev(tmp_path: Path) -> None:
    path = write(tmp_path, {"train": LABELS["train"], "dev": [("q4", "p4", 1)]})
    data = load_training_set(path, split="train")
    assert data.dev.queries == {"q4": "fish swim"}
    assert data.dev.labels == {"q4": {"p4": 1.0}}
    assert len(data.examples) == 3


@settings(max_examples=10, deadline=None)
@given(st.integers(5, 40), st.integers(2, 5), st.floats(0, 0.5))
def test_folds_part_the_queries(tmp_path_factory: pytest.TempPathFactory, count: int, of: int, share: float) -> None:
    queries = {f"q{n}": f"question {n // 2}" for n in range(2 * count)}  # each wording twice
    path = write(tmp_path_factory.mktemp("folds"), {"test": [(q, "p1", 1) for q in queries]}, queries)
    held = []
    for number in range(1, of + 1):
        data = load_training_set(path, split="test", fold=Fold(number, of), dev_share=share)
        parts = [set(data.held_out), {e.id for e in data.examples}, set(data.dev.queries)]
        assert sum(map(len, parts)) == 2 * count == len(set.union(*parts))
        wordings = [{queries[q] for q in part} for part in parts]
        assert not wordings[0] & wordings[1] | wordings[0] & wordings[2] | wordings[1] & wordings[2]
        assert abs(len(wordings[2]) - share * len(wordings[1] | wordings[2])) <= 0.5
        held += sorted(data.held_out)
    assert sorted(held) == sorted(queries)


BAD_FOLDS = ("1", "0/5", "6/5", "1/1", "a/b", "1/5/2", "-1/5")
BAD_WEIGHTS = ("nq=0", "nq=much", "nq=nan", "=2")


def test_folds_and_weights_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "a=2").mkdir()
    assert weighted_dataset(f"{tmp_path}/a=2") == (tmp_path / "a=2", 1.0, None)
    assert [weighted_dataset(one)[1] for one in ("data/nli=0.3", "nq")] == [0.3, 1.0]
    parsers: list[tuple[Any, Sequence[str], str]] = [
        (Fold.parse, BAD_FOLDS, "--fold"), (weighted_dataset, BAD_WEIGHTS, "a weight above 0")
    ]  # fmt: skip
    for parse, texts, words in parsers:
        for text in texts:
            with pytest.raises(UsageError, match=words):
                parse(text)


def test_negatives_of_the_dataset_and_mined_ones(tmp_path: Path) -> None:
    labels = {"train": [("q1", "p1", 1), ("q1", "p3", 0), ("q2", "p2", 1), ("q3", "p3", 1)]}
    data = load_training_set(write(tmp_path, labels), split="train", dev_share=0)

    def negatives(**changes: object) -> list[tuple[int, ...]]:
        return [e.negatives for e in with_negatives(data, Recipe.model_validate(changes)).examples]

    # "cats eat fish" is in p1, "fish" in p4, "cats eat" in p2; "dogs bark" in p2 alone, "birds sing" in p3 alone.
    assert negatives(negatives="both") == [(2, 1, 3), (), ()]
    assert negatives(negatives="bm25") == [(1, 3), (), ()]
    assert negatives(negatives="dataset") == [(2,), (), ()]
    assert negatives(hard_negatives=0) == [(), (), ()]
    data = load_training_set(write(tmp_path, {"train": labels["train"][2:]}), split="train", dev_share=0)
    with pytest.raises(DatasetError, match=r"no training query has a passage judged 0.*negatives: bm25"):
        with_negatives(data, Recipe(negatives="dataset"))


def test_draws_depend_on_nothing_but_their_names(tmp_path: Path) -> None:
    labels = {"train": [("q1", "p1", 1), ("q1", "p2", 1), ("q1", "p3", 0), ("q1", "p4", 0), ("q2", "p2", 1)]}
    example = load_training_set(write(tmp_path, labels), split="train", dev_share=0).examples[0]
    drawn = [draw(example, 1, 42, epoch) for epoch in range(40)]
    assert drawn == [draw(example, 1, 42, epoch) for epoch in range(40)]
    assert {positive for positive, _ in drawn} == {0, 1}
    assert {negatives for _, negatives in drawn} == {(2,), (3,)}
    assert sorted(draw(example, 5, 42, 0)[1]) == [2, 3]


@given(st.integers(2, 60), st.integers(1, 20), st.integers(0, 3))
def test_an_epoch_has_every_query_once(count: int, size: int, epoch: int) -> None:
    batches = epoch_batches(count, size, 7, epoch)
    flat = [place for batch in batches for place in batch]
    alone = count % size == 1 and count > size and size > 1
    assert len(flat) == len(set(flat)) == count - alone
    assert len(batches) == len(epoch_batches(count, size, 7, epoch + 1))
    assert batches == epoch_batches(count, size, 7, epoch, shares=[Share(count, 1.0)])


# Section 3.1: rates of encoder and heads, batch, epochs, hard negatives, lambda.
PAPER_002 = {
    "nq": (3e-4, 3e-4, 144, 45, 1, 0.1),
    "entityquestions": (3e-4, 3e-4, 144, 10, 1, 0.1),
    "msmarco": (3e-5, 3e-5, 144, 2, 4, 0.025),
}


def test_recipes_know_their_settings(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(commented_yaml(AugmentRecipe()))
    assert load_yaml(path, AugmentRecipe) == AugmentRecipe()
    assert all(field.description for field in AugmentRecipe.model_fields.values())
    shipped = load_yaml(data_dir("pipelines") / "train-augment.yaml", AugmentRecipe)
    e5 = PretrainRecipe()
    assert (1 / e5.scale, e5.hard_negatives, e5.max_length, e5.query_prefix) == (0.01, 0, 128, "query: ")
    assert (EncoderRecipe().hard_negatives, EncoderRecipe().alpha, EncoderRecipe().batch_size) == (7, 0.2, 256)
    assert shipped.terms == "words" and shipped.hard_negatives == AugmentRecipe().hard_negatives
    paper = {name: load_yaml(data_dir("pipelines") / f"augment-{name}.yaml", AugmentRecipe) for name in PAPER_002}
    names = ("learning_rate", "head_learning_rate", "batch_size", "epochs", "hard_negatives", "l1")
    found = {name: tuple(getattr(recipe, one) for one in names) for name, recipe in paper.items()}
    assert found == PAPER_002
    path.write_text("l1: -1\nlerning_rate: 0.1\n")
    with pytest.raises(SettingsError) as caught:
        TrainingRequest(tmp_path, "b", tmp_path, path).recipe_of(AugmentRecipe)
    assert len(caught.value.problems) == 2
    assert "did you mean 'learning_rate'" in str(caught.value)


def test_single_settings_from_the_command_line(tmp_path: Path) -> None:
    def made(*changes: str) -> AugmentRecipe:
        return TrainingRequest(tmp_path, "b", tmp_path, changes=changes).recipe_of(AugmentRecipe)

    changed = made("l1=0.5", "weights=false", "max_steps=null")
    assert (changed.l1, changed.weights, changed.max_steps) == (0.5, False, None)
    assert made("max_steps=").max_steps is None
    plain = TrainingRequest(tmp_path, "b", tmp_path, changes=("query_prefix=",)).recipe_of(PretrainRecipe)
    assert plain.query_prefix == ""  # the default is E5's
    with pytest.raises(UsageError, match="NAME=VALUE"):
        made("l1")
    with refused(SettingsError, "unknown_key"):
        made("l2=1")
    for value in ("&a [*a]", ".nan", "nan", "1e999", "2026-13-01"):
        with pytest.raises(SettingsError) as caught:
            made(f"l1={value}")
        assert len(caught.value.problems) == 1 and str(caught.value).startswith("--set")
    assert AugmentRecipe(checkpoint_every=7).parts() == AugmentRecipe().parts()


@pytest.mark.parametrize("texts", [[], [""], ["a", "", "ü\ud800", "b" * 3_000_000, "c"]])
def test_texts_are_those_of_the_list(texts: list[str]) -> None:
    stored = StoredTexts(texts)
    assert list(stored) == texts and len(stored) == len(texts) and stored[1:3] == texts[1:3] and stored[:] == texts
    for place in range(-len(texts), len(texts)):
        assert stored[place] == texts[place]
    assert [stored[place] for place in np.arange(len(texts))] == texts
    stored.append("later")
    assert stored[-1] == "later" and stored[len(texts)] == "later"
    for wrong in (len(texts) + 1, -len(texts) - 2):
        with pytest.raises(IndexError):
            stored[wrong]


def test_sequences_are_joined() -> None:
    parts: list[Sequence[str]] = [["a", "b"], [], StoredTexts(["c"])]
    joined = Joined(parts, lambda number, text: f"{number}{text}")
    assert list(joined) == [joined[at] for at in range(3)] == ["0a", "0b", "2c"] == joined[:]
    assert joined[-1] == "2c" and list(Joined(parts)) == ["a", "b", "c"]
    places = KeyPlaces([key_of(text) for text in "abcab"])
    assert places.find([key_of(text) for text in "cabz"]).tolist() == [2, 0, 1, -1]
    assert KeyPlaces([]).find([1]).tolist() == [-1]


def test_the_key_of_the_data_is_that_of_the_whole_list(tmp_path: Path) -> None:
    rows = [{"_id": f"p{n}", "title": "", "text": f"ü {n}"} for n in range(9)]
    queries = [{"_id": f"q{n}", "text": f"query {n}"} for n in range(9)]
    labels = [(f"q{n}", f"p{n}", 1) for n in range(9)] + [("q1", "p2", 0)]
    data = load_training_set(write_beir(tmp_path / "d", rows, queries, {"train": labels}), split="train", dev_share=0.3)
    lists = [[e.id, list(e.positives), list(e.negatives)] for e in data.examples]
    assert data.digest == content_key([data.about["digest"], lists, sorted(data.dev.labels)])
    assert key_of_pieces(["a", "", "b\ud800"]) == key_of_pieces(["ab\ud800"])


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
    drawn = [frozenset(epoch_examples([Share(4, 1), Share(100, 0.3)], 1, epoch).tolist()) for epoch in range(20)]
    assert len(set(drawn)) == 20 and all(set(range(4)) <= one and len(one) == 34 for one in drawn)
    assert len(frozenset().union(*drawn)) == 104  # after twenty epochs each of them was there


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


@pytest.fixture
def request_of(bert: Path, new_dataset: Callable[..., Path], tmp_path: Path) -> Callable[..., TrainingRequest]:
    """A training of the encoder on two datasets."""
    datasets = ((new_dataset("one"), 1.0), (new_dataset("two", seed=2), 0.5))
    changes = ("batch_size=8", "epochs=2", "checkpoint_every=3", "max_length=16", "hard_negatives=1", "negatives=bm25",
               "learning_rate=1e-3", "extra_negatives=pre-batch", "queue_size=16", "keep=last")  # fmt: skip

    def make(out: str, *more: str, resume: bool = False) -> TrainingRequest:
        return TrainingRequest(
            datasets, str(bert), tmp_path / out, changes=(*changes, *more), quiet=True, device="cpu", resume=resume
        )

    return make


def test_a_mixed_training_goes_on_to_the_same_bytes(
    request_of: Callable[..., TrainingRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airgen.training.kinds.encoder import EncoderTask

    with pytest.raises(UsageError, match="deepct learns from passages alone"):
        train("deepct", TrainingRequest(request_of("x").on, "none", Path("x")))
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
