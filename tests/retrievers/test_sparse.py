from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen import models
from airgen.errors import ModelError
from airgen.retrievers import Passages
from airgen.retrievers.sparse import EmbeddedSplade, Sparse, SparseEncoder, SparseReranker, impact_index, search_rows

from .conftest import TEXTS

Row = tuple[np.ndarray, np.ndarray]
ROWS = st.dictionaries(st.integers(0, 9), st.sampled_from([0.25, 0.5, 1.0, 2.0]), max_size=6)


def row(weights: Mapping[int, float]) -> Row:
    terms = sorted(weights)
    return np.array(terms, np.int32), np.array([weights[term] for term in terms], np.float32)


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12), st.lists(ROWS, max_size=4), st.integers(1, 15))
def test_the_index_is_the_inner_product(
    passages: list[dict[int, float]], queries: list[dict[int, float]], k: int
) -> None:
    hits = search_rows(impact_index([row(passage) for passage in passages]), [row(query) for query in queries], k)
    for place, query in enumerate(queries):
        scores = [sum(weight * passage.get(term, 0) for term, weight in query.items()) for passage in passages]
        best = sorted((p for p in range(len(passages)) if scores[p] > 0), key=lambda p: (-scores[p], p))[:k]
        assert hits.positions[place].tolist() == best + [-1] * (k - len(best))
        assert hits.scores[place, : len(best)].tolist() == [scores[p] for p in best]


class Words:
    """A term a word, weighted by its count."""

    name = "words"

    def encode(self, texts: Sequence[str], kind: str) -> list[Row]:
        return [row({len(word): float(text.split().count(word)) for word in text.split()}) for text in texts]

    def describe(self) -> Mapping[str, object]:
        return {"model": self.name}


def test_retriever_and_reranker_agree() -> None:
    sparse, reranker = Sparse(Words()), SparseReranker(Words())
    texts = ["a bb", "a a", "ccc", ""]
    sparse.index(Passages(list("1234"), texts))
    hits = sparse.search(["a ccc"], 4)
    assert hits.positions.tolist() == [[1, 0, 2, -1]]
    assert hits.scores[0, :3].tolist() == [2, 1, 1]
    assert reranker.score([("a ccc", text) for text in texts]).tolist() == [1, 2, 1, 0]


@pytest.mark.parametrize("shipped", [False, True])
def test_the_forward_pass_is_that_of_transformers(tiny_mlm: Path, splade: str, shipped: bool) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = models.path(splade) if shipped else tiny_mlm
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [*TEXTS, " ".join(TEXTS * 20)]
    for text, (terms, weights) in zip(
        texts, EmbeddedSplade(str(folder), max_length=100).encode(texts, "passage"), strict=True
    ):
        tokens = tokenizer(text, truncation=True, max_length=100, return_tensors="pt")
        with torch.inference_mode():
            wanted = torch.log1p(torch.relu(model(**tokens).logits)).amax(dim=1)[0].numpy()
        found = np.zeros_like(wanted)
        found[terms] = weights
        assert found == pytest.approx(wanted, abs=2e-5)


def test_a_sparse_encoder_of_sentence_transformers_equals_ours(tiny_mlm: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    if not hasattr(library, "SparseEncoder"):
        pytest.skip("sentence-transformers 5 has the first SparseEncoder")
    theirs = SparseEncoder(str(tiny_mlm)).encode(TEXTS, "passage")
    for (their_terms, their_weights), (terms, weights) in zip(
        theirs, EmbeddedSplade(str(tiny_mlm)).encode(TEXTS, "passage"), strict=True
    ):
        kept = weights > 1e-4  # weights near 0 may fall on either side of it
        assert set(terms[kept]) <= set(their_terms)
        assert dict(zip(their_terms, their_weights, strict=True)) == pytest.approx(
            {**dict.fromkeys(their_terms, 0), **dict(zip(terms, weights, strict=True))}, abs=1e-4
        )


def test_a_folder_that_is_no_bert(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a"):
        EmbeddedSplade(str(tmp_path)).encode(["a"], "query")
