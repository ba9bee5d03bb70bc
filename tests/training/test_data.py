"""What a training may see: splits, folds, dev queries, negatives; and recipes."""

from __future__ import annotations

from pathlib import Path

import pytest
from beir_folder import write_beir
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.errors import DatasetError, SettingsError, UsageError
from airgen.paths import data_dir
from airgen.settings.base import load_yaml
from airgen.training.data import draw, epoch_batches, load_training_set, with_negatives
from airgen.training.kinds.augment import AugmentRecipe
from airgen.training.kinds.encoder import PretrainRecipe
from airgen.training.recipe import Fold, Recipe, TrainingRequest, commented_yaml

TEXTS = {"q1": "cats eat fish", "q2": "dogs bark", "q3": "birds sing", "q4": "fish swim", "q5": "Cats  eat FISH"}
LABELS = {
    "train": [("q1", "p1", 1), ("q1", "p2", 0), ("q2", "p2", 1), ("q3", "p3", 2), ("q3", "p1", 1), ("q3", "p9", 1)],
    "test": [("q4", "p4", 1), ("q5", "p1", 1)],
}


def write(folder: Path, labels: dict[str, list[tuple[str, str, int]]], queries: dict[str, str] = TEXTS) -> Path:
    passages = {
        "p1": "cats eat fish and sleep all day",
        "p2": "dogs eat bones and bark at cats",
        "p3": "birds sing in the morning and eat seeds",
        "p4": "fish swim in the sea",
        "p5": "the stock market fell",
    }
    rows = [{"_id": key, "title": "", "text": text} for key, text in passages.items()]
    return write_beir(folder, rows, [{"_id": key, "text": text} for key, text in queries.items()], labels)


def test_queries_that_are_test_queries_by_wording_are_left_out_and_counted(tmp_path: Path) -> None:
    data = load_training_set(write(tmp_path, LABELS), split="train", dev_share=0)
    assert [(e.id, e.positives, e.negatives) for e in data.examples] == [("q2", (1,), ()), ("q3", (2, 0), ())]
    assert data.about["left_out"] == {"also held out or a test query": 1}  # q1 says what q5 says
    assert (data.about["training_queries"], data.about["split"], data.about["fold"]) == (2, "train", None)


@pytest.mark.parametrize("split", ["test", "all"])
def test_the_test_split_is_out_of_reach(tmp_path: Path, split: str) -> None:
    with pytest.raises(UsageError, match=r"is for testing: train on train, or .* --fold 1/5"):
        load_training_set(write(tmp_path, LABELS), split=split)


def test_a_dataset_without_a_training_split(tmp_path: Path) -> None:
    path = write(tmp_path, {"test": LABELS["test"]})
    with pytest.raises(DatasetError, match=r"no split 'train' to train on \(it has test\): .*--split test --fold 1/5"):
        load_training_set(path, split="train")
    with pytest.raises(UsageError, match="this dataset has no other"):
        load_training_set(path, split="test")


def test_one_query_is_too_few(tmp_path: Path) -> None:
    path = write(tmp_path, {"train": [("q2", "p2", 1), ("q3", "nowhere", 1)]})
    with pytest.raises(DatasetError, match=r"1 training queries in train \(1 without a positive in the corpus\)"):
        load_training_set(path, split="train")


def test_the_dev_split_is_dev(tmp_path: Path) -> None:
    path = write(tmp_path, {"train": LABELS["train"], "dev": [("q4", "p4", 1)]})
    data = load_training_set(path, split="train")
    assert data.dev.queries == {"q4": "fish swim"}
    assert data.dev.labels == {"q4": {"p4": 1.0}}
    assert len(data.examples) == 3


@settings(max_examples=30, deadline=None)
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


@pytest.mark.parametrize("text", ["1", "0/5", "6/5", "1/1", "a/b", "1/5/2", "-1/5"])
def test_bad_folds(text: str) -> None:
    with pytest.raises(UsageError, match="--fold"):
        Fold.parse(text)


def test_negatives_of_the_dataset_and_mined_ones(tmp_path: Path) -> None:
    labels = {"train": [("q1", "p1", 1), ("q1", "p3", 0), ("q2", "p2", 1), ("q3", "p3", 1)]}
    data = load_training_set(write(tmp_path, labels), split="train", dev_share=0)

    def negatives(**changes: object) -> list[tuple[int, ...]]:
        return [e.negatives for e in with_negatives(data, Recipe.of(dict(changes))).examples]

    # "cats eat fish" is in p1, "fish" in p4, "cats eat" in p2; "dogs bark" in p2 alone, "birds sing" in p3 alone.
    assert negatives(negatives="both") == [(2, 1, 3), (), ()]
    assert negatives(negatives="bm25") == [(1, 3), (), ()]
    assert negatives(negatives="dataset") == [(2,), (), ()]
    assert negatives(hard_negatives=0) == [(), (), ()]


def test_no_negatives(tmp_path: Path) -> None:
    data = load_training_set(write(tmp_path, {"train": [("q1", "p1", 1), ("q2", "p2", 1)]}), split="train", dev_share=0)
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


def test_recipes_know_their_settings(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(commented_yaml(AugmentRecipe()))
    assert load_yaml(path, AugmentRecipe) == AugmentRecipe()
    assert all(field.description for field in AugmentRecipe.model_fields.values())
    shipped = load_yaml(data_dir("pipelines") / "train-augment.yaml", AugmentRecipe)
    assert shipped.terms == "words" and shipped.hard_negatives == AugmentRecipe().hard_negatives
    path.write_text("l1: -1\nlerning_rate: 0.1\n")
    with pytest.raises(SettingsError) as caught:
        TrainingRequest(tmp_path, "b", tmp_path, path).recipe_of(AugmentRecipe)
    assert len(caught.value.problems) == 2
    assert "did you mean 'learning_rate'" in str(caught.value)


def test_single_settings_from_the_command_line(tmp_path: Path) -> None:
    def made(*changes: str) -> AugmentRecipe:
        return TrainingRequest(tmp_path, "b", tmp_path, changes=changes).recipe_of(AugmentRecipe)

    assert made("l1=0.5", "weights=false", "max_steps=null").model_dump(include={"l1", "weights", "max_steps"}) == {
        "l1": 0.5,
        "weights": False,
        "max_steps": None,
    }
    assert made("max_steps=").max_steps is None
    plain = TrainingRequest(tmp_path, "b", tmp_path, changes=("query_prefix=",)).recipe_of(PretrainRecipe)
    assert plain.query_prefix == ""  # the default is E5's
    with pytest.raises(UsageError, match="NAME=VALUE"):
        made("l1")
    with pytest.raises(SettingsError, match="unknown key"):
        made("l2=1")
    for value in ("[" * 20_000, "&a [*a]", ".nan", "nan", "1e999", "2026-13-01"):
        with pytest.raises(SettingsError) as caught:
            made(f"l1={value}")
        assert len(caught.value.problems) == 1 and str(caught.value).startswith("--set")
    assert AugmentRecipe(checkpoint_every=7).parts() == AugmentRecipe().parts()
