"""Cross-encoder, SPLADE and late interaction: trained in seconds, loaded by the library, evaluated as systems."""

from collections.abc import Callable
from pathlib import Path

import pytest
from packages import package
from small_training import train_quickly

torch = package("torch")
package("sentence_transformers")
transformers = package("transformers")

from airgen.errors import ModelError
from airgen.evaluation import EvaluationOptions, evaluate, load_systems
from airgen.training.data import load_training_set, with_negatives
from airgen.training.dataset_columns import Example
from airgen.training.kinds.flag_embedding import FlagEmbeddingRecipe, FlagEmbeddingTask
from airgen.training.kinds.rankers import SpladeRecipe, SpladeTask
from airgen.training.kinds.transformer import separate
from airgen.training.task import read_card, system_line


@pytest.mark.parametrize("teacher", ["null", "{kind: bm25}"])
@pytest.mark.parametrize("kind", ["cross-encoder", "splade", "colbert", "encoder", "flag-embedding"])
def test_a_trained_kind_is_the_system_of_its_card(
    kind: str, teacher: str, dataset: Path, bert: Path, tmp_path: Path
) -> None:
    trained = train_quickly(kind, dataset, bert, tmp_path / "m", f"teacher={teacher}", "max_steps=3")
    assert trained.steps == 3 and set(trained.figures) == {"nDCG@10", "Recall@100"}
    card = read_card(tmp_path / "m") or {}
    (tmp_path / "systems.yaml").write_text(f"systems:\n- {{name: bm25, kind: bm25}}\n{system_line(card)}\n")
    systems = load_systems(tmp_path / "systems.yaml")
    _, found = evaluate(dataset, systems, tmp_path / "results", EvaluationOptions(folder=tmp_path, report=False))
    assert found.score > 0.1


@pytest.mark.filterwarnings("ignore:`max_length` is ignored")  # by its collator
def test_the_loss_is_that_of_flag_embedding(dataset: Path, bert: Path) -> None:
    """Of its own model class, made from the base by its own means, on the features of its own collator."""
    modeling = pytest.importorskip("FlagEmbedding.finetune.embedder.encoder_only.base.modeling")
    from FlagEmbedding.abc.finetune.embedder import AbsEmbedderCollator

    recipe = FlagEmbeddingRecipe(batch_size=8, max_length=16, hard_negatives=3, teacher={"kind": "bm25"})
    task = FlagEmbeddingTask(
        recipe, with_negatives(load_training_set(dataset, split="train"), recipe), str(bert), "cpu"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    own = modeling.BiEncoderOnlyEmbedderModel(
        transformers.AutoModel.from_pretrained(bert), tokenizer, temperature=0.02, normalize_embeddings=True
    )
    for model in (task.model.train(), own.train()):
        for dropout in (module for module in model.modules() if isinstance(module, torch.nn.Dropout)):
            dropout.p = 0.0
    collate = AbsEmbedderCollator(tokenizer, query_max_len=16, passage_max_len=16)
    for batch in task.batches(0):
        sample = task.sample(batch, 3)
        scores = task.teacher_scores(sample)
        rows = [
            (recipe.query_prefix + query, task.passages(places), given)
            for query, places, given in zip(sample.queries, sample.places, scores.tolist(), strict=True)
        ]
        assert task.loss(batch)["loss"].item() == pytest.approx(own(**collate(rows)).loss.item(), rel=1e-5)


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


def test_positives_are_kept_separate() -> None:
    examples = [Example(str(n), str(n), (n % 5,)) for n in range(20)]
    found = separate(examples, [list(range(5)), list(range(5, 10)), list(range(10, 15)), list(range(15, 20))])
    assert sorted(number for batch in found for number in batch) == list(range(20))
    assert all(len({examples[number].positives for number in batch}) == 5 for batch in found)
    # More queries of one passage than batches: some must share a batch, and none is lost.
    same = [Example(str(n), str(n), (1,)) for n in range(6)]
    assert sorted(number for batch in separate(same, [[0, 1, 2], [3, 4, 5]]) for number in batch) == list(range(6))
