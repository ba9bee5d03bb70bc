from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from airgen.errors import ModelError
from airgen.retrievers import Passages, load_reranker
from airgen.retrievers.late.maxsim import LateInteraction, MaxSim, MultiVectorEncoder, maxsims


class OneHot:
    """A token vector a letter."""

    name = "one-hot"

    def token_vectors(self, texts: Sequence[str], kind: str) -> list[np.ndarray]:
        return [np.eye(26, dtype=np.float32)[[ord(letter) - 97 for letter in text]] for text in texts]

    def describe(self) -> Mapping[str, object]:
        return {"model": self.name}


def test_maxsim_by_hand() -> None:
    query = np.array([[1, 0], [0.6, 0.8]], np.float32)
    tokens = np.array([[1, 0], [0, 1], [0.8, 0.6]], np.float32)
    # passage 0: max(1, 0) + max(0.6, 0.8); passage 1: 0.8 + (0.48 + 0.48)
    assert maxsims([query], tokens, np.array([0, 2]))[0] == pytest.approx([1.8, 1.76])


def test_retriever_and_reranker_agree_with_each_other_and_with_counting() -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(map(chr, rng.integers(97, 123, rng.integers(1, 12)))) for _ in range(200)]
    late = LateInteraction(OneHot())
    late.index(Passages([str(place) for place in range(200)], texts))
    queries = ["abc", "zzz", "q"]
    hits = late.search(queries, 10)
    reranker = MaxSim(OneHot())
    for row, query in enumerate(queries):
        counts = [sum(letter in text for letter in query) for text in texts]
        assert hits.positions[row].tolist() == sorted(range(200), key=lambda place: (-counts[place], place))[:10]
        scores = reranker.score([(query, text) for text in texts])
        assert scores * len(query) == pytest.approx(counts)


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["abcdefgh", "x", "abc", "yy", "abcx"]
    found = []
    for tokens in (1, 5, 10_000):
        monkeypatch.setattr("airgen.retrievers.late.maxsim._TOKENS_AT_ONCE", tokens)
        late = LateInteraction(OneHot())
        late.index(Passages(list("12345"), texts))
        found.append(late.search(["abx"], 5).positions.tolist())
    assert found == [[[4, 0, 2, 1, 3]]] * 3


def test_bad_input() -> None:
    late = LateInteraction(OneHot())
    late.memory_bytes = 100
    with pytest.raises(ModelError, match="re-rank the hits of another retriever"):
        late.index(Passages(["a"], ["abcdef"]))
    reranker = MaxSim(OneHot())
    assert reranker.score([]).shape == (0,)
    reranker.model.token_vectors = lambda texts, kind: [np.full((1, 26), np.nan) for _ in texts]
    with pytest.raises(ModelError, match=r"returned nan as the score of pair 0"):
        MaxSim(reranker.model).score([("a", "b")])


def test_multi_vector_models_of_sentence_transformers(tiny_bert: Path, corpus: Passages, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    if not hasattr(library, "MultiVectorEncoder"):
        pytest.skip("this sentence-transformers has no MultiVectorEncoder")
    place = str(tmp_path / "late")
    library.MultiVectorEncoder(str(tiny_bert)).save_pretrained(place)
    encoder = MultiVectorEncoder(place)
    reranker = MaxSim(encoder)
    assert isinstance(load_reranker({"kind": "maxsim", "model": place}).model, MultiVectorEncoder)
    (query,) = encoder.token_vectors(["how do cells get energy"], "query")
    (passage,) = encoder.token_vectors([corpus.texts[0]], "passage")
    (score,) = reranker.score([("how do cells get energy", corpus.texts[0])])
    assert score == pytest.approx((query @ passage.T).max(axis=1).mean(), abs=2e-3)  # fp16 token vectors
    assert len(encoder.token_vectors([""], "passage")[0]) >= 1


def test_an_encoder_without_a_projection_of_its_tokens_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    library.SentenceTransformer(str(tiny_bert)).save_pretrained(str(tmp_path / "dense"))
    for place in (tiny_bert, tmp_path / "dense"):
        with pytest.raises(ModelError, match=f"^{place} is not a late-interaction model: .*airgen train colbert$"):
            MaxSim(MultiVectorEncoder(str(place))).score([("a", "b")])
