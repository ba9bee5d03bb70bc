"""Teachers: margins by hand, a dataset without one beside one that has it, scores from a file, and the dot product."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packages import package
from small_training import train_quickly

torch = package("torch")
package("sentence_transformers")

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, UsageError
from airgen.retrievers import load_embedder
from airgen.training.data import (
    TrainingSet,
    load_training_set,
    mixed,
    weighted_dataset,
    with_negatives,
    with_own_teacher,
)
from airgen.training.kinds.encoder import EncoderRecipe, EncoderTask


def recipe_of(**changes: Any) -> EncoderRecipe:
    quick = {"batch_size": 8, "chunk": 3, "max_length": 16, "hard_negatives": 2, "temperature": 0.05}
    return EncoderRecipe(**{**quick, **changes})


def task(data: TrainingSet, bert: Path, recipe: EncoderRecipe) -> EncoderTask:
    torch.manual_seed(3)
    made = EncoderTask(recipe, data, str(bert), "cpu")
    made.model.eval()
    return made


def read(dataset: Path, recipe: EncoderRecipe, teacher: str | None = None) -> TrainingSet:
    return with_own_teacher(with_negatives(load_training_set(dataset, split="train"), recipe), teacher)


def test_margins_by_hand() -> None:
    from airgen.training.losses import margin_error

    student, teacher = (
        torch.tensor([[3.0, 1.0, 9.0], [2.0, 2.0, 1.0]]),
        torch.tensor([[5.0, 4.0, 0.0], [1.0, 0.0, 3.0]]),
    )
    masked = torch.tensor([[False, False, True], [False, False, False]])
    # Row 0: (2 - 1)^2; row 1: ((0 - 1)^2 + (1 + 2)^2) / 2.
    assert margin_error(student, teacher, masked).tolist() == [1.0, 5.0]


def test_the_margin_loss_of_a_batch_by_hand(dataset: Path, bert: Path) -> None:
    recipe = recipe_of(similarity="dot", temperature=None, distil="margin-mse", alpha=0.0, teacher={"kind": "bm25"})
    made = task(read(dataset, recipe), bert, recipe)
    batch = made.batches(0)[0]
    drawn = made.sample(batch, 2)
    wanted = made.teacher.scores(drawn.examples, drawn.places)
    texts = made.data.corpus.full_texts
    errors = []
    for query, row, scores in zip(drawn.queries, drawn.places.tolist(), wanted, strict=True):
        vectors = made.encoder.encode_document([texts[place] for place in row])
        products = vectors @ made.encoder.encode_query([query])[0]
        assert len({texts[place] for place in row}) == 3
        errors.append(np.mean(((products[0] - products[1:]) - (scores[0] - scores[1:])) ** 2))
    assert made.loss(batch)["loss"].item() == pytest.approx(np.mean(errors), rel=1e-4)


def test_two_encoders_differ_in_the_similarity_alone(dataset: Path, bert: Path, tmp_path: Path) -> None:
    """BEIR, appendix H: one searches by the cosine, one by the dot product, from one start over the same batches."""
    for similarity in ("cosine", "dot"):
        trained = train_quickly(
            "encoder", dataset, bert, tmp_path / similarity, f"similarity={similarity}", "max_steps=2"
        )
        assert trained.figures["nDCG@10"] >= 0
        embedder = load_embedder(str(tmp_path / similarity))
        lengths = np.linalg.norm(embedder.encode(["amber bridge", "candle"], "passage"), axis=1)
        assert np.allclose(lengths, 1, atol=1e-5) == (similarity == "cosine")
    scale = {one: EncoderRecipe(similarity=one).scale for one in ("cosine", "dot")}
    assert (
        scale == {"cosine": pytest.approx(100), "dot": 1}
        and EncoderRecipe(temperature=0.5, similarity="dot").scale == 2
    )


def test_a_dataset_without_a_teacher_is_learned_from_labels(new_dataset: Callable[..., Path], bert: Path) -> None:
    """In one batch: each query has the loss that it would have in a training of its dataset alone."""
    recipe = recipe_of(teacher={"kind": "bm25"}, alpha=0.3, hard_negatives=1)
    paths = [new_dataset("one"), new_dataset("two", seed=2)]
    sets = [read(path, recipe, teacher) for path, teacher in zip(paths, (None, "none"), strict=True)]
    data = mixed(sets, [1.0, 1.0])
    assert data.digest != mixed([sets[0], read(paths[1], recipe)], [1.0, 1.0]).digest
    made = task(data, bert, recipe)
    batch = made.batches(0)[0]
    drawn = made.sample(batch, 1)
    scores = made.teacher.scores(drawn.examples, drawn.places)
    first = np.array([example.id.startswith("one/") for example in drawn.examples])
    assert 0 < first.sum() < len(first) and (np.isnan(scores).all(axis=1) == ~first).all()

    def loss(**changes: Any) -> dict[str, float]:
        parts = task(data, bert, recipe.model_copy(update=changes)).loss(batch)
        return {name: value.item() for name, value in parts.items()}

    parts, whole, labels = loss(), loss(alpha=1.0)["loss"], loss(teacher=None)["loss"]
    assert parts["contrastive"] == pytest.approx(labels, rel=1e-5)
    assert whole == pytest.approx(labels + parts["distillation"] * first.mean(), rel=1e-5)
    assert parts["loss"] < whole  # the contrastive loss of the queries that have a teacher weighs 0.3


def test_scores_of_a_file_teach_and_are_the_negatives(dataset: Path, bert: Path, tmp_path: Path) -> None:
    recipe = recipe_of(hard_negatives=1)
    labels = BeirDataset.open(dataset).qrels("train").labels
    rows = []
    for query, of_query in labels.items():
        others = [f"p{number}" for number in range(40) if f"p{number}" not in of_query][:2]
        rows.append((query, [*of_query], others))
    tsv, simlm = tmp_path / "scores.tsv", tmp_path / "simlm.jsonl.gz"
    tsv.write_text("query-id\tcorpus-id\tscore\nunknown\tp1\t3\n" + "".join(
        f"{query}\t{passage}\t{score}\n" for query, good, bad in rows
        for passage, score in [*((one, 9.5) for one in good), (bad[0], -1.25), (bad[1], 2.0)]
    ))  # fmt: skip
    lines = [
        {"query_id": query, "positives": {"doc_id": good, "score": [9.5] * len(good)},
         "negatives": {"doc_id": bad, "score": [-1.25, 2.0]}}
        for query, good, bad in rows
    ]  # fmt: skip
    simlm.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in lines).encode()))
    sets = [read(dataset, recipe, str(path)) for path in (tsv, simlm)]
    for data in sets:
        ids = data.corpus.ids
        drawn = {example.id: [ids[place] for place in example.negatives] for example in data.examples}
        assert drawn == {query: bad[::-1] for query, _, bad in rows if query in drawn}  # highest score first
    assert sets[0].digest != sets[1].digest and sets[0].about["teacher"] == "scores.tsv"
    made = task(sets[1], bert, recipe)
    assert made.teacher and not task(read(dataset, recipe), bert, recipe).teacher
    sample = made.sample(made.batches(0)[0], 3)  # one more than the file has: a random passage, without a score
    scores = made.teacher.scores(sample.examples, sample.places)
    assert scores[:, 0].tolist() == [9.5] * 8 and sorted(set(scores[:, 1:3].ravel().tolist())) == [-1.25, 2.0]
    assert set(np.isnan(scores[:, 3]).tolist()) >= {True}
    three = task(sets[1], bert, recipe_of(hard_negatives=3))
    assert torch.isfinite(three.loss(three.batches(0)[0])["loss"])
    again = mixed([sets[1], read(dataset, recipe, "none")], [1.0, 1.0])
    both = task(again, bert, recipe)
    sample = both.sample(both.batches(0)[0], 1)
    known = ~np.isnan(both.teacher.scores(sample.examples, sample.places)).any(axis=1)
    assert known.tolist() == [not example.id.startswith("toy#2/") for example in sample.examples]


def test_what_a_teacher_cannot_do_is_said(dataset: Path, bert: Path, tmp_path: Path) -> None:
    (tmp_path / "other.tsv").write_text("x\ty\t1\n")
    with pytest.raises(DatasetError, match=r"other\.tsv: 1 scores of a teacher, but none is for a training query"):
        read(dataset, recipe_of(), str(tmp_path / "other.tsv"))
    (tmp_path / "bad.jsonl").write_text('{"query_id": "q0", "positives": {"doc_id": ["p1"], "score": []}}\n')
    with pytest.raises(DatasetError, match=r"bad\.jsonl.*:1: needs query_id, positives and negatives"):
        read(dataset, recipe_of(), str(tmp_path / "bad.jsonl"))
    only = next(iter(BeirDataset.open(dataset).qrels("train").labels.items()))
    (tmp_path / "few.tsv").write_text(f"{only[0]}\t{next(iter(only[1]))}\t1\n")
    on = (weighted_dataset(f"{dataset},teacher={tmp_path}/few.tsv"),)
    with pytest.raises(DatasetError, match="has no score for query"):
        train_quickly("colbert", on, bert, tmp_path / "colbert", "max_steps=1")  # type: ignore[arg-type]
    on = (weighted_dataset(f"{dataset},teacher=none"), weighted_dataset(f"{dataset}=2"))
    with pytest.raises(UsageError, match="only an encoder learns some queries from labels alone"):
        train_quickly("colbert", on, bert, tmp_path / "colbert", "teacher={kind: bm25}")  # type: ignore[arg-type]
    assert weighted_dataset("nli=1,teacher=none") == (Path("nli"), 1.0, "none")
    with pytest.raises(UsageError, match="name a re-ranker or a file of scores"):
        weighted_dataset("nli=1,teacher=")
