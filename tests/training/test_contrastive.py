"""E5's losses by hand, gradients of parts against those of the full batch, and an encoder trained end to end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packages import package
from small_training import train_quickly

torch = package("torch")

from airgen.retrievers import load_embedder
from airgen.training.data import load_training_set, with_negatives
from airgen.training.kinds.encoder import EncoderRecipe, EncoderTask, false_negatives
from airgen.training.kinds.transformer import Batch, info_nce


def task(dataset: Path, bert: Path, **changes: Any) -> EncoderTask:
    recipe = EncoderRecipe(**{"batch_size": 8, "chunk": 3, "max_length": 16, "hard_negatives": 2, **changes})
    data = with_negatives(load_training_set(dataset, split="train"), recipe)
    torch.manual_seed(3)
    return EncoderTask(recipe, data, str(bert), "cpu")


def gradients(model: Any) -> list[Any]:
    return [weights.grad.clone() for weights in model.parameters() if weights.grad is not None]


def test_info_nce_is_equation_1() -> None:
    scores = torch.tensor([[2.0, 1.0, -1.0], [0.0, 0.5, 3.0]])
    by_hand = -np.mean([np.log(np.e**2 / (np.e**2 + np.e + np.e**-1)), np.log(np.e**0.5 / (1 + np.e**0.5 + np.e**3))])
    assert float(info_nce(scores, torch.tensor([0, 1]))) == pytest.approx(by_hand, rel=1e-6)
    masked = torch.tensor([[False, True, False], [False, False, True]])
    by_hand = -np.mean([np.log(np.e**2 / (np.e**2 + np.e**-1)), np.log(np.e**0.5 / (1 + np.e**0.5))])
    assert float(info_nce(scores, torch.tensor([0, 1]), masked)) == pytest.approx(by_hand, rel=1e-6)


def test_distillation_is_the_divergence_from_the_teacher() -> None:
    from airgen.training.losses import distillation

    student, teacher = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, np.log(3.0)]])
    p, s = np.array([0.25, 0.75]), np.array([np.e, 1]) / (np.e + 1)
    assert distillation(student, teacher).item() == pytest.approx(float((p * np.log(p / s)).sum()), rel=1e-6)
    assert distillation(teacher, teacher).item() == pytest.approx(0, abs=1e-7)
    masked = torch.tensor([[False, False, True]])
    wide = [torch.cat([row, torch.tensor([[9.0]])], 1).requires_grad_() for row in (student, teacher)]
    found = distillation(*wide, masked)
    assert found.item() == pytest.approx(distillation(student, teacher).item(), rel=1e-6)
    found.backward()
    assert torch.isfinite(wide[0].grad).all() and wide[0].grad[0, 2] == 0


def test_texts_that_are_relevant_or_the_query_itself_are_no_negatives() -> None:
    # Query 0's positive is in column 0 and, as an equal text, in column 2; query 1 is itself the text of column 3.
    masked = false_negatives(
        np.array([-1, 9]), np.array([5, 6, 5, 9]), [frozenset({5}), frozenset({6, 5})], np.array([0, 1])
    )
    assert masked.tolist() == [[False, False, True, False], [True, False, True, True]]


def step(made: EncoderTask, batch: Batch) -> dict[str, float]:
    parts = made.loss(batch)
    parts["loss"].backward()
    return {name: float(value.detach()) for name, value in parts.items()}


@pytest.mark.parametrize("teacher", [None, {"kind": "bm25"}])
def test_an_encoders_gradients_do_not_depend_on_the_chunk(dataset: Path, bert: Path, teacher: Any) -> None:
    made = task(dataset, bert, temperature=0.05, teacher=teacher)
    made.model.eval().double()  # without dropout, whose masks follow the order of the texts
    batch = made.batches(0)[0]
    made.e5.mini_batch_size = 1000
    numbers = step(made, batch)
    whole = gradients(made.model)
    made.model.zero_grad()
    made.e5.mini_batch_size = 3
    assert step(made, batch) == pytest.approx(numbers)
    for expected, found in zip(whole, gradients(made.model), strict=True):
        assert torch.allclose(expected, found, rtol=0, atol=1e-6)


def test_the_loss_of_a_batch_by_hand(new_dataset: Callable[..., Path], bert: Path) -> None:
    """With passages that several queries have as negatives: each text is one candidate, as E5's equation says."""
    made = task(new_dataset(passages=7), bert, temperature=0.05, hard_negatives=3)
    made.model.eval()
    batch = made.batches(0)[0]
    drawn = made.sample(batch, 3)
    texts = made.data.corpus.full_texts
    with torch.no_grad():
        queries = torch.tensor(made.encoder.encode_query(drawn.queries))
        every = {texts[place]: made.encoder.encode_document([texts[place]])[0] for place in np.unique(drawn.places)}
    total = 0.0
    for query, example, row in zip(queries, drawn.examples, drawn.places, strict=True):
        relevant = {texts[place] for place in example.positives}
        scores = {text: float(query @ torch.tensor(vector)) / 0.05 for text, vector in every.items()}
        others = [score for text, score in scores.items() if text not in relevant]
        own = scores[texts[row[0]]]
        total -= own - float(torch.tensor([own, *others]).logsumexp(0))
    assert made.loss(batch)["loss"].item() == pytest.approx(total / len(queries), rel=1e-4)


def test_random_passages_fill_up_missing_negatives(new_dataset: Callable[..., Path], bert: Path) -> None:
    made = task(new_dataset(passages=12), bert, negatives="dataset", hard_negatives=0)
    batch = made.batches(0)[0]
    drawn = made.sample(batch, 4)
    again = made.sample(batch, 4)
    assert drawn.places.shape == (8, 5) and np.array_equal(drawn.places, again.places)
    for example, row in zip(drawn.examples, drawn.places, strict=True):
        assert row[0] in example.positives and not set(row[1:].tolist()) & set(example.positives)


@pytest.mark.parametrize("kind", ["pre-batch", "moco"])
def test_a_queue_keeps_the_latest_which_enter_the_loss(dataset: Path, bert: Path, kind: str) -> None:
    made = task(dataset, bert, extra_negatives=kind, queue_size=20, hard_negatives=0, momentum=0.9)
    made.model.eval()
    batches = made.batches(0)
    empty = step(made, batches[2])["loss"]
    met: list[int] = []
    for batch in batches:
        loss = step(made, batch)["loss"]
        met += made._text_ids[made.sample(batch, 0).places[:, 0]].tolist()
    assert loss > empty  # more candidates, a greater loss
    assert sorted(made.model.queue_texts.tolist()) == sorted(met[:4] + met[8:])  # the first of the first batch
    assert "queue" in made.model.state_dict()  # so a checkpoint holds it
    assert all(weights.grad is None for name, weights in made.model.named_parameters() if name.startswith("twin"))
    if kind == "moco":
        one, other = (next(iter(encoder.parameters())) for encoder in (made.encoder, made.model.twin))
        before = other.clone()
        with torch.no_grad():
            one += 1
        made.e5.follow()
        assert torch.allclose(other, before + 0.1) and not other.requires_grad


def test_a_teacher_is_asked_once_a_pair(dataset: Path, bert: Path) -> None:
    made = task(dataset, bert, teacher={"kind": "bm25"})
    batch = made.batches(0)[0]
    numbers = step(made, batch)
    assert numbers["loss"] == pytest.approx(numbers["distillation"] + 0.2 * numbers["contrastive"], rel=1e-5)
    drawn = made.sample(batch, 2)
    asked: list[int] = []
    ((teacher,),) = made.teacher._rerankers
    inner = teacher.score
    teacher.score = lambda pairs: asked.append(len(pairs)) or inner(pairs)  # type: ignore[method-assign, func-returns-value]
    scores = made.teacher.scores(drawn.examples, drawn.places)
    assert not asked and scores.shape == drawn.places.shape
    pairs = [(drawn.queries[0], made.data.corpus.full_text(place)) for place in drawn.places[0].tolist()]
    assert scores[0].tolist() == pytest.approx(inner(pairs).tolist())


@pytest.mark.nightly
def test_an_encoder_learns_and_loads_in_the_library(
    new_dataset: Callable[..., Path], bert: Path, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    paraphrases = new_dataset(paraphrased=True, splits={"train": 80, "dev": 20})
    out = tmp_path / "encoder"
    changes = ("epochs=10", "temperature=0.05", "dev_passages=30", "batch_size=16", "learning_rate=1e-2")
    trained = train_quickly("encoder", paraphrases, bert, out, *changes)
    assert trained.figures["nDCG@10"] > trained.history[0]["nDCG@10"] + 0.2
    assert trained.history[-1]["loss"] < trained.history[1]["loss"]
    model = SentenceTransformer(str(out), device="cpu")
    assert model.prompts == {"query": "query: ", "document": "passage: "} and model.max_seq_length == 16
    vectors = model.encode_query(["amber bridge"])
    assert np.linalg.norm(vectors) == pytest.approx(1, abs=1e-5)
    # As a system it takes the prefixes that it was trained with, and finds what the library finds.
    system = load_embedder(str(out))
    assert np.allclose(system.encode(["amber bridge"], "query"), vectors, atol=1e-5)
    assert np.allclose(system.encode(["amber"], "passage"), model.encode_document(["amber"]), atol=1e-5)


def test_what_is_saved_does_not_depend_on_the_last_batch(dataset: Path, bert: Path, tmp_path: Path) -> None:
    # A training that is resumed after its last step saves without any batch before.
    for name, batches in (("resumed", 0), ("whole", 1)):
        made = task(dataset, bert)
        for _ in range(batches):
            made.loss(made.batches(0)[0])
        made.save(tmp_path / name)
    saved = [(tmp_path / name / "tokenizer.json").read_bytes() for name in ("resumed", "whole")]
    assert saved[0] == saved[1]
