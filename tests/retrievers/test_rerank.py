from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen import models
from airgen.errors import ModelError
from airgen.retrievers import Hits, Passages, load_reranker
from airgen.retrievers.combine import RerankedRetriever
from airgen.retrievers.component import watch
from airgen.retrievers.dense.onnx_encoder import OnnxCrossEncoder
from airgen.retrievers.model_progress import counted_rows
from airgen.retrievers.rerank import CrossEncoder, token_batches

QUERIES = ["how do cells get energy", "the rings of a planet", "in python"]


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 120))
def test_batches_hold_every_text_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = token_batches(lengths, budget)
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[place] for place in batch)
        assert len(batch) == 1 or len(batch) * max(longest, 1) <= budget
    in_order = [lengths[place] for batch in batches for place in batch]
    assert in_order == sorted(lengths, reverse=True)


def pairs_of_many_lengths(texts: Sequence[str]) -> list[tuple[str, str]]:
    rng = np.random.default_rng(0)
    made = []
    for number in range(60):
        words = " ".join(texts).split()
        start, length = rng.integers(0, 40), rng.integers(1, 150)
        made.append((QUERIES[number % 3], " ".join((words * 3)[start : start + length])))
    return made


@pytest.mark.parametrize("budget", [1, 300, 100_000])
def test_scores_are_those_of_the_library(tiny_cross_encoder: Path, corpus: Passages, budget: int) -> None:
    library = pytest.importorskip("sentence_transformers")
    pairs = pairs_of_many_lengths(corpus.texts)
    ours = CrossEncoder(str(tiny_cross_encoder), max_length=100, device="cpu")
    ours.token_budget = budget
    theirs = library.CrossEncoder(str(tiny_cross_encoder), max_length=100, device="cpu").predict(pairs)
    assert ours.score(pairs) == pytest.approx(theirs, abs=2e-6)
    assert np.std(theirs) > 0.01  # otherwise, anything would be equal
    assert ours.score([]).shape == (0,)


def test_a_chain_of_modules_as_ettins_rerankers_have(tokenizer_folder: Path, corpus: Passages, tmp_path: Path) -> None:
    """The five modules of cross-encoder/ettin-reranker-*-v1 (its published training script), small and random."""
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    config = transformers.ModernBertConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=7999, global_attn_every_n_layers=3, local_attention=8, initializer_range=0.3,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=None, eos_token_id=None,
        cls_token_id=tokenizer.cls_token_id, sep_token_id=tokenizer.sep_token_id,
    )  # fmt: skip
    transformers.ModernBertModel(config).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    between = {"module_input_name": "sentence_embedding"}
    gelu, same = torch.nn.GELU(), torch.nn.Identity()
    chain = [
        Transformer(str(tmp_path / "encoder")),
        Pooling(32, pooling_mode="cls"),
        Dense(32, 32, bias=False, activation_function=gelu, module_output_name="sentence_embedding", **between),
        LayerNorm(32),
        Dense(32, 1, activation_function=same, module_output_name="scores", **between),
    ]
    library.CrossEncoder(modules=chain, num_labels=1, activation_fn=same).save_pretrained(str(tmp_path / "ettin"))

    pairs = pairs_of_many_lengths(corpus.texts)
    ours = load_reranker({"kind": "cross-encoder", "model": str(tmp_path / "ettin"), "device": "cpu"})
    assert isinstance(ours, CrossEncoder)
    scores = ours.score(pairs)
    with torch.inference_mode():
        for place in (0, 7, 31):  # by the definition: the state of [CLS] through the head
            tokens = tokenizer(*pairs[place], return_tensors="pt", truncation=True, max_length=512)
            tokens.pop("token_type_ids", None)
            state = chain[0].model(**tokens).last_hidden_state[:, 0]
            wanted = chain[4].linear(chain[3].norm(gelu(chain[2].linear(state))))
            assert scores[place] == pytest.approx(wanted.item(), abs=1e-5)
    assert np.std(scores) > 0.01
    short = CrossEncoder(str(tmp_path / "ettin"), max_length=16, device="cpu")
    query, long = "cells", "saturn's rings are mostly particles of ice. " * 9
    cut = short.score([(query, long), (query, long + "in python")])
    assert cut[0] == pytest.approx(cut[1], abs=1e-5) and abs(cut[0] - ours.score([(query, long)])[0]) > 1e-4


class First:
    """Always the same hits, with scores 10, 9, 8, ..."""

    name = "first"

    def __init__(self, order: list[int]) -> None:
        self.order = order

    def index(self, corpus: Passages) -> None:
        pass

    def search(self, queries: Sequence[str], k: int) -> Hits:
        some = (self.order + [-1] * k)[:k]
        scores = [10.0 - place if found >= 0 else -np.inf for place, found in enumerate(some)]
        return Hits(
            np.tile(np.array(some, np.int32), (len(queries), 1)),
            np.tile(np.array(scores, np.float32), (len(queries), 1)),
        )

    def describe(self) -> Mapping[str, object]:
        return {"order": self.order}


class Given:
    """Scores by passage; fitted like BM25."""

    name = "given"

    def __init__(self, scores: Mapping[str, float]) -> None:
        self.scores, self.fitted = scores, 0

    def fit(self, corpus: Passages) -> None:
        self.fitted = len(corpus)

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        return np.array([self.scores[passage] for _, passage in pairs], np.float32)

    def describe(self) -> Mapping[str, object]:
        return {}


CORPUS = Passages(list("abcdef"), list("ABCDEF"))


def test_the_best_are_reordered_and_the_rest_follows() -> None:
    reranker = Given({"A": 1, "B": 5, "C": 5, "D": 9})
    system = reranked(First([3, 2, 1, 0, 5]), reranker)
    assert reranker.fitted == 6
    hits = system.search(["x", "y"], 6)
    # D has 9, then B and C tie and keep the order of position; A and F keep their places below.
    assert hits.positions.tolist() == [[3, 1, 2, 0, 5, -1]] * 2
    assert hits.scores[0, :3].tolist() == [9, 5, 5]
    assert (np.diff(hits.scores[0, 2:5]) < 0).all()
    assert hits.scores[0, 5] == -np.inf
    # A small k still lets the re-ranker see `top` hits.
    assert reranked(First([1, 2, 3]), reranker).search(["x"], 1).positions.tolist() == [[3]]


def reranked(first: First, reranker: Given) -> RerankedRetriever:
    system = RerankedRetriever(first, reranker, top=3)
    system.index(CORPUS)
    return system


def test_many_queries_are_scored_in_blocks_without_a_trace() -> None:
    sizes = []

    class Watched(Given):
        def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
            sizes.append(len(pairs))
            return super().score(pairs)

    system = RerankedRetriever(First([3, 2, 1]), Watched({"B": 2, "C": 1, "D": 3}), top=2)
    system.index(CORPUS)
    hits = system.search([str(number) for number in range(40)], 3)
    assert hits.positions.tolist() == [[3, 2, 1]] * 40
    assert len(sizes) > 1 and sum(sizes) == 80
    assert system.search([], 3).positions.shape[0] == 0


def test_scores_below_a_large_negative_score_still_descend() -> None:
    system = reranked(First([0, 1, 2, 3, 4, 5]), Given(dict.fromkeys("ABC", -1e6)))
    scores = system.search(["x"], 6).scores[0]
    assert (np.diff(scores[2:]) < 0).all()


@pytest.mark.parametrize(
    ("scores", "words"), [([np.nan, 1.0], "nan"), ([1.0], "1 scores for 2 pairs"), ([np.inf, 0.0], "inf")]
)
def test_wrong_scores_are_errors(scores: list[float], words: str) -> None:
    class Wrong(Given):
        def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
            return np.array(scores, np.float32)

    with pytest.raises(ModelError, match=words):
        reranked(First([0, 1]), Wrong({})).search(["x"], 2)


def test_the_shipped_cross_encoder(minilm: str, corpus: Passages) -> None:
    """The logits of the model by itself, one pair at a time, whatever stands beside the pair."""
    name = "ms-marco-minilm-l12-int8"
    if not models.fetched(name):
        pytest.skip(f"airgen fetch {name}")
    runtime, tokenizers = pytest.importorskip("onnxruntime"), pytest.importorskip("tokenizers")
    ours = load_reranker(name)
    texts = [text or "-" for text in corpus.texts]
    pairs = [(query, text) for query in QUERIES for text in texts]
    pairs.append(("why " * 400, "because " * 2000))
    scores = ours.score(pairs)
    folder = models.path(name)
    session = runtime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))  # it pads to 512
    for pair, score in zip(pairs[::7], scores[::7], strict=True):
        one = tokenizer.encode(*pair)
        size = sum(one.attention_mask)
        fed = {"input_ids": one.ids, "attention_mask": one.attention_mask, "token_type_ids": one.type_ids}
        fed = {key: np.array([value[:size]], np.int64) for key, value in fed.items()}
        assert session.run(["logits"], fed)[0][0, 0] == pytest.approx(score, abs=1e-4)
    assert [int(scores[8 * at : 8 * at + 8].argmax()) for at in range(2)] == [0, 7]
    with pytest.raises(ModelError, match="has no output `logits`: name a model"):
        OnnxCrossEncoder(minilm).score(pairs[:2])
    assert ours.score(pairs[5:2:-1]).tolist() == scores[5:2:-1].tolist()
    assert ours.score([]).shape == (0,)
    told: list[tuple[int, int]] = []
    watch(ours, lambda done, total: told.append((done, total)))
    assert ours.score(pairs[:9]).tolist() == scores[:9].tolist() and told == [(8, 9), (9, 9)]


def test_what_a_torch_model_has_read_is_told_after_each_batch() -> None:
    torch = pytest.importorskip("torch")
    module, told = torch.nn.Linear(3, 1), list[tuple[int, int]]()
    with counted_rows(module, 5, lambda done, total: told.append((done, total))):
        for rows in (2, 2, 3):  # a library may try a batch first, so there are more than in all
            module(torch.zeros(rows, 3))
    module(torch.zeros(1, 3))
    assert told == [(2, 5), (4, 5), (5, 5)]
    with counted_rows(None, 5, lambda done, total: told.append((done, total))), counted_rows(module, 5, None):
        module(torch.zeros(1, 3))
    assert len(told) == 3
