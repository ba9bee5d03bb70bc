"""Cross-encoder, SPLADE and late interaction: trained in seconds, loaded by the library, evaluated as systems."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_training import train_quickly

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

from airgen.errors import ModelError  # noqa: E402
from airgen.training.columns import Example  # noqa: E402
from airgen.training.data import load_training_set, read_corpus, with_negatives  # noqa: E402
from airgen.training.kinds.rankers import SpladeRecipe, SpladeTask  # noqa: E402
from airgen.training.kinds.transformer import separate  # noqa: E402


@pytest.mark.nightly
def test_a_cross_encoder_learns_its_teacher(new_dataset: Callable[..., Path], bert: Path, tmp_path: Path) -> None:
    from airgen.retrievers import load_reranker

    data = new_dataset(splits={"train": 60, "dev": 12})
    changes = ("teacher={kind: bm25}", "epochs=15", "learning_rate=5e-3", "patience=0", "rerank_depth=20")
    trained = train_quickly("cross-encoder", data, bert, tmp_path / "ce", *changes)
    losses = [entry["loss"] for entry in trained.history[1:]]
    assert losses[-1] < 0.5 * losses[0]  # the mean margin of the last step's queries, in squares of BM25
    pairs = [("amber bridge", "amber bridge candle"), ("amber bridge", "desert engine falcon")]
    found = load_reranker(str(tmp_path / "ce")).score(pairs)
    assert found.shape == (2,) and np.isfinite(found).all()
    again = train_quickly("cross-encoder", data, bert, tmp_path / "ce", *changes)
    assert not again.trained_now and again.figures == trained.figures


def test_a_cross_encoder_without_a_teacher(dataset: Path, bert: Path, tmp_path: Path) -> None:
    trained = train_quickly("cross-encoder", dataset, bert, tmp_path / "ce", "max_steps=3", "hard_negatives=2")
    assert trained.steps == 3 and set(trained.figures) == {"nDCG@10", "Recall@100"}


@pytest.mark.parametrize("teacher", ["teacher=null", "teacher={kind: bm25}"])
def test_splade(dataset: Path, bert: Path, tmp_path: Path, teacher: str) -> None:
    from airgen.retrievers.sparse import Sparse

    trained = train_quickly("splade", dataset, bert, tmp_path / "splade", teacher)
    assert trained.steps == 6
    system = Sparse(str(tmp_path / "splade"))
    system.index(read_corpus(dataset))
    hits = system.search(["amber bridge candle"], 5)
    assert (hits.scores[0, :1] > 0).all()


def test_the_weight_of_flops_grows_with_the_square_of_the_step(dataset: Path, bert: Path) -> None:
    recipe = SpladeRecipe(batch_size=8, max_length=16, flops_warmup=1.0, flops_queries=0.1, flops_passages=0.2)
    data = with_negatives(load_training_set(dataset, split="train"), recipe)
    torch.manual_seed(0)
    task = SpladeTask(recipe, data, str(bert), "cpu")
    task.model.eval()
    batches = [task.batches(epoch)[place] for epoch in range(3) for place in range(3)]
    assert [batch.step for batch in batches] == list(range(9))
    one = type(batches[0])
    shares = [task.loss(one(0, step, batches[0].examples))["flops"].item() for step in (0, 2, 8, 30)]
    assert shares[1] / shares[0] == pytest.approx(9, rel=1e-4)
    assert shares[2] / shares[0] == pytest.approx(81, rel=1e-4) and shares[3] == shares[2]


def test_a_base_without_its_head_is_refused(dataset: Path, new_bert: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a masked-language model"):
        train_quickly("splade", dataset, new_bert(masked_lm=False), tmp_path / "splade")


@pytest.mark.parametrize("teacher", ["teacher=null", "teacher={kind: bm25}"])
def test_colbert(dataset: Path, bert: Path, tmp_path: Path, teacher: str) -> None:
    from airgen.retrievers.late.maxsim import LateInteraction

    trained = train_quickly("colbert", dataset, bert, tmp_path / "late", teacher, "max_steps=3")
    assert trained.steps == 3
    system = LateInteraction(str(tmp_path / "late"))
    corpus = read_corpus(dataset)
    system.index(corpus)
    hits = system.search([corpus.texts[7]], 1)
    assert hits.positions[0, 0] == 7  # a text is most like itself


def test_positives_are_kept_separate() -> None:
    examples = [Example(str(n), str(n), (n % 5,)) for n in range(20)]
    found = separate(examples, [list(range(5)), list(range(5, 10)), list(range(10, 15)), list(range(15, 20))])
    assert sorted(number for batch in found for number in batch) == list(range(20))
    assert all(len({examples[number].positives for number in batch}) == 5 for batch in found)
    # More queries of one passage than batches: some must share a batch, and none is lost.
    same = [Example(str(n), str(n), (1,)) for n in range(6)]
    assert sorted(number for batch in separate(same, [[0, 1, 2], [3, 4, 5]]) for number in batch) == list(range(6))
