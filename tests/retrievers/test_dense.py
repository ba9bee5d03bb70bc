from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encode_once import Kept

from airgen import models
from airgen.errors import ModelError, UsageError
from airgen.retrievers import Passages, load_embedder, load_reranker, load_retriever
from airgen.retrievers.dense.embedders import loaded
from airgen.retrievers.dense.onnx_encoder import OnnxEncoder
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.rerank import CrossEncoder

from .conftest import QUERIES


class Letters:
    """Counts of letters as vectors: small enough to work out by hand."""

    name, dim = "letters", 26

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str], kind: str) -> np.ndarray:
        self.asked += texts
        found = np.array([[text.count(chr(97 + letter)) for letter in range(26)] for text in texts], np.float32)
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)

    def describe(self) -> Mapping[str, object]:
        return {"model": "letters"}


def test_worked_example() -> None:
    dense = Dense(Letters())
    dense.index(Passages(["x", "y", "z"], ["ab", "a", "c"], ["", "b", ""]))
    hits = dense.search(["a", "c"], 4)
    # "ab" and "b a" (title and text) are the same vector, so the tie keeps the order of the corpus.
    assert hits.positions.tolist() == [[0, 1, 2, -1], [2, 0, 1, -1]]
    assert hits.scores[0] == pytest.approx([0.5**0.5, 0.5**0.5, 0, -np.inf], abs=1e-3)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda found: found * np.nan, "NaN"),
        (lambda found: found[:, :9], "instead of"),
        (lambda found: found[:0], "for 1 texts instead of"),
    ],
)
def test_wrong_vectors_are_errors(wrong: Callable[[np.ndarray], np.ndarray], words: str) -> None:
    embedder = Letters()
    dense = Dense(embedder)
    dense.index(Passages(["a"], ["a"]))
    assert dense.search([], 3).positions.shape == (0, 3)
    right = embedder.encode
    embedder.encode = lambda texts, kind: wrong(right(texts, kind))  # type: ignore[method-assign]
    with pytest.raises(ModelError, match=words):
        dense.search(["b"], 1)


@pytest.mark.parametrize(
    ("spec", "reranker"), [("dense", "dense"), ("late", "maxsim"), ("sparse", "splade"),
                           ({"kind": "late", "index": "compressed", "bits": 4}, None)]
)  # fmt: skip
def test_shipped_models_find_what_they_should(
    minilm: str, splade: str, corpus: Passages, spec: Any, reranker: str | None
) -> None:
    system = load_retriever(spec)
    system.index(corpus)  # one passage is empty
    hits = system.search(list(QUERIES), len(corpus))
    right = hits.positions[:, 0] == list(QUERIES.values())
    assert right.all() or (spec == "sparse" and right.mean() >= 0.75)
    assert system.search([], 3).positions.shape == (0, 3)
    if reranker:
        for row, query in enumerate(QUERIES):
            found = hits.positions[row][hits.positions[row] >= 0]
            scores = load_reranker(reranker).score([(query, corpus.texts[place]) for place in found])
            assert (np.diff(scores) <= 1e-3).all()
            ours = hits.scores[row, : len(found)] / (scores[0] and hits.scores[row, 0] / scores[0])
            assert scores == pytest.approx(ours, abs=2e-3)  # MaxSim is divided by the number of query tokens


def test_vectors_of_minilm_depend_on_nothing_else(minilm: str, corpus: Passages) -> None:
    encoder = OnnxEncoder(minilm)
    together = encoder.encode(corpus.texts, "passage")
    assert together.shape == (len(corpus), 384)
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(len(corpus)), abs=1e-6)
    alone = np.concatenate([encoder.encode([text], "passage") for text in corpus.texts])
    assert np.array_equal(together, alone)
    three = OnnxEncoder(minilm)
    three.threads = 3
    assert np.array_equal(together, three.encode(corpus.texts, "passage"))
    prefixed = OnnxEncoder(minilm, query_prefix="The ").encode([corpus.texts[0][4:]], "query")
    assert np.array_equal(prefixed[0], together[0])
    own_graph = OnnxEncoder(str(models.path(minilm))).encode(corpus.texts, "passage")  # a name has a quicker one
    assert together == pytest.approx(own_graph, abs=1e-5)


def test_what_the_jobs_of_the_tests_reuse_is_what_the_encoder_gives(
    minilm: str, corpus: Passages, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = OnnxEncoder(minilm).encode(corpus.texts, "passage")
    monkeypatch.setattr(Kept, "on", True)
    monkeypatch.setattr(Kept, "states", {})
    for _ in range(2):
        assert np.array_equal(OnnxEncoder(minilm).encode(corpus.texts, "passage"), plain)
    assert len(Kept.states) == len(corpus)


def test_minilm_agrees_with_sentence_transformers(minilm: str, corpus: Passages) -> None:
    pytest.importorskip("sentence_transformers")
    if not models.fetched("all-minilm-l6-v2"):
        pytest.skip("airgen fetch all-minilm-l6-v2")
    theirs = load_embedder("all-minilm-l6-v2").encode(corpus.texts, "passage")
    ours = OnnxEncoder(minilm).encode(corpus.texts, "passage")
    assert (theirs * ours).sum(axis=1).min() > 0.97  # int8 weights against fp32


def test_long_texts_are_cut(minilm: str) -> None:
    encoder = OnnxEncoder(minilm, max_length=16)
    long = "word " * 200_000  # as long as a book: only its beginning is tokenised
    vectors = encoder.encode([long, "word " * 14], "passage")
    assert np.array_equal(vectors[0], vectors[1])


def test_sentence_transformers_pooling_prefix_and_length(tiny_bert: Path) -> None:
    pytest.importorskip("sentence_transformers")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_bert)
    model = transformers.AutoModel.from_pretrained(tiny_bert).eval()

    def states(text: str) -> np.ndarray:
        with torch.inference_mode():
            tokens = tokenizer(text, return_tensors="pt", truncation=True, max_length=8)
            return np.asarray(model(**tokens).last_hidden_state[0])

    for pooling, pool in (("cls", lambda s: s[0]), ("mean", lambda s: s.mean(0)), ("max", lambda s: s.max(0))):
        embedder = load_embedder(
            {"kind": "sentence-transformers", "model": str(tiny_bert), "pooling": pooling, "query_prefix": "how ",
             "max_length": 8}
        )  # fmt: skip
        assert embedder.dim == 32
        for text in ("cells", "the energy of cells and the energy of cells"):
            wanted = pool(states("how " + text))
            found = embedder.encode([text, "x"], "query")[0]
            assert found == pytest.approx(wanted / np.linalg.norm(wanted), abs=1e-5)
    assert embedder.describe()["sha256"]
    with pytest.raises(UsageError, match=r"pooling: input should be 'mean', .* not 'middle'"):
        load_embedder({"kind": "sentence-transformers", "model": "x", "pooling": "middle"})


@pytest.fixture
def dot_model(tiny_bert: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Folders of sentence-transformers' form, as a training for a similarity leaves them."""
    library = pytest.importorskip("sentence_transformers")

    def make(similarity: str, scale: float = 1.0) -> Path:
        model = library.SentenceTransformer(str(tiny_bert), similarity_fn_name=similarity)
        for weights in model.parameters():
            weights.data *= scale
        model.save(str(tmp_path / f"{similarity}{scale}"))
        return tmp_path / f"{similarity}{scale}"

    return make


def test_a_model_that_was_trained_for_the_dot_product(dot_model: Callable[[str], Path]) -> None:
    """As DPR, ANCE and TAS-B (BEIR, Table 2): lengths of vectors count, and the ranking is another."""
    folder = dot_model("dot")
    texts = ["cells", "the energy of cells and the energy of cells", "of the", "energy", "and the cells of energy"]
    theirs = load_embedder({"kind": "sentence-transformers", "model": str(folder)}).model.encode(texts)
    assert np.linalg.norm(theirs, axis=1).std() > 0.01  # otherwise, the two similarities could not differ
    dots = theirs @ theirs.T
    unit = theirs / np.linalg.norm(theirs, axis=1, keepdims=True)
    for chosen, scores in ({}, dots), ({"similarity": "dot"}, dots), ({"similarity": "cosine"}, unit @ unit.T):
        spec = {"kind": "sentence-transformers", "model": str(folder), **chosen}
        system = load_retriever({"kind": "dense", "embedder": spec})
        system.index(Passages([str(place) for place in range(len(texts))], texts))
        hits = system.search(texts, len(texts))
        np.testing.assert_allclose(hits.scores, -np.sort(-scores, axis=1), rtol=1e-5)
        assert load_embedder(spec).describe()["similarity"] == chosen.get("similarity")
    assert (np.argsort(-dots, axis=1) != np.argsort(-(unit @ unit.T), axis=1)).any()


def test_a_similarity_that_is_neither(dot_model: Callable[[str], Path]) -> None:
    spec = {"kind": "sentence-transformers", "model": str(dot_model("euclidean"))}
    with pytest.raises(ModelError, match="trained for the similarity 'euclidean': set `similarity: dot`"):
        load_embedder(spec).encode(["cells"], "query")
    assert load_embedder({**spec, "similarity": "cosine"}).encode(["cells"], "query").shape == (1, 32)


def test_queries_may_have_an_encoder_of_their_own(dot_model: Callable[..., Path]) -> None:
    """DPR has two."""
    passages, queries = dot_model("dot"), dot_model("dot", 0.5)
    both = load_embedder({"kind": "sentence-transformers", "model": str(passages), "query_model": str(queries)})
    alone = {name: load_embedder({"kind": "sentence-transformers", "model": str(one)})
             for name, one in (("passage", passages), ("query", queries))}  # fmt: skip
    for kind, other in (("query", "passage"), ("passage", "query")):
        found = both.encode(["the energy of cells"], kind)
        assert np.array_equal(found, alone[kind].encode(["the energy of cells"], kind))
        assert not np.allclose(found, alone[other].encode(["the energy of cells"], kind))
    assert both.describe()["query_sha256"] == alone["query"].describe()["sha256"]
    assert "query_model" not in alone["query"].describe()


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    for use in (lambda name: load_embedder(name).encode(["a"], "query"), lambda name: CrossEncoder(name).model):
        with pytest.raises(ModelError, match=r"cannot be loaded .*airgen show models"):
            use(str(tmp_path / "nothing"))


@pytest.mark.parametrize("kind", ["on the Hub", "a folder"])
def test_a_hub_that_never_answers_is_given_up_before_its_library_asks(kind, tmp_path, monkeypatch):
    """The library would retry each of a model's files for half a minute."""
    asked = []
    monkeypatch.setattr(models, "give_up_silent_hub", lambda: asked.append("the Hub") or True)

    def library(**settings):
        asked.append("its library")
        raise OSError("no such file")

    place = "someone/never-fetched" if kind == "on the Hub" else str(tmp_path)
    with pytest.raises(ModelError, match=r"the base model .* cannot be loaded"):
        loaded("the base model", place, library, pretrained_model_name_or_path=place)
    assert asked == (["the Hub", "its library"] if kind == "on the Hub" else ["its library"])
