import subprocess
import sys
from collections.abc import Callable

import pytest

from airgen.errors import CorpusError, UsageError
from airgen.retrievers import Passages, Reranker, Retriever, load_embedder, load_reranker, load_retriever
from airgen.retrievers.dense.embedders import SentenceTransformersEmbedder
from airgen.retrievers.dense.onnx_encoder import OnnxCrossEncoder, OnnxEncoder
from airgen.retrievers.dense.small_embedders import PackedE5, StaticEmbedder
from airgen.retrievers.endpoints import HttpEmbedder, HttpReranker
from airgen.retrievers.flag_embedding import BgeM3Embedder, FlagReranker
from airgen.retrievers.late.maxsim import MaxSim
from airgen.retrievers.lexical.bm25 import BM25Reranker
from airgen.retrievers.rerank import CrossEncoder, DenseReranker
from airgen.retrievers.sparse import SparseReranker


@pytest.mark.parametrize(
    ("load", "spec", "kind"),
    [
        (load_embedder, "all-minilm-l6-v2-int8", OnnxEncoder),
        (load_embedder, "all-minilm-l6-v2", SentenceTransformersEmbedder),
        (load_embedder, "multilingual-e5-small-q4", PackedE5),
        (load_embedder, "wordllama-256", StaticEmbedder),
        (load_embedder, "BAAI/bge-m3", BgeM3Embedder),
        (load_embedder, "intfloat/e5-small-v2", SentenceTransformersEmbedder),
        (load_embedder, "bge-small-en-int8", OnnxEncoder),
        (load_embedder, {"kind": "onnx"}, OnnxEncoder),
        (load_embedder, {"kind": "http", "model": "m", "base_url": "http://localhost:1/v1"}, HttpEmbedder),
        (load_reranker, "maxsim", MaxSim),
        (load_reranker, "splade", SparseReranker),
        (load_reranker, "splade-bert-tiny", SparseReranker),
        (load_reranker, "dense", DenseReranker),
        (load_reranker, "bm25", BM25Reranker),
        (load_reranker, "all-minilm-l6-v2-int8", DenseReranker),
        (load_reranker, "ms-marco-minilm-l12-int8", OnnxCrossEncoder),
        (load_reranker, "answerai-colbert-small-int8", MaxSim),
        (load_reranker, "BAAI/bge-reranker-large", FlagReranker),
        (load_reranker, "maidalun1020/bce-reranker-base_v1", FlagReranker),
        (load_reranker, "nreimers/mmarco-mMiniLMv2-L12-H384-v1", FlagReranker),
        (load_reranker, "cross-encoder/ms-marco-MiniLM-L6-v2", CrossEncoder),
        (load_reranker, {"kind": "http", "url": "http://localhost:1/v1/rerank"}, HttpReranker),
    ],
)
def test_a_name_or_settings_become_a_component(load: Callable[[object], object], spec: object, kind: type) -> None:
    made = load(spec)
    assert type(made) is kind
    if load is load_reranker:
        assert isinstance(made, Reranker)


@pytest.mark.parametrize(
    "spec",
    ["bm25", "rm3", "lsa", "dense", "sparse", "late", {"kind": "late", "index": "compressed"},
     {"kind": "rerank", "first": "bm25", "reranker": "bm25"}, {"kind": "fuse", "systems": ["bm25"]}],
)  # fmt: skip
def test_every_retriever_wants_a_corpus_first_and_passages_in_it(spec: object) -> None:
    made = load_retriever(spec)  # type: ignore[arg-type]
    assert isinstance(made, Retriever)
    with pytest.raises(UsageError, match="there is no index"):
        made.search(["a"], 1)
    with pytest.raises(CorpusError, match="no passages"):
        made.index(Passages([], []))
    with pytest.raises(CorpusError, match="2 ids, 1 texts"):
        made.index(Passages(["a", "b"], ["a"]))


def test_a_model_of_the_catalogue_is_run_as_it_was_trained() -> None:
    said = dict(load_embedder("bge-small-en-int8").describe())
    assert said["pooling"] == "cls" and str(said["query_prefix"]).startswith("Represent this sentence")
    said = dict(load_embedder({"kind": "onnx", "model": "bge-small-en-int8", "query_prefix": "q: "}).describe())
    assert (said["pooling"], said["query_prefix"], said["passage_prefix"]) == ("cls", "q: ", "")
    with pytest.raises(UsageError, match="answerai-colbert-small-int8"):
        load_embedder("answerai-colbert-small-int8")


def test_nested_settings() -> None:
    system = load_retriever({"kind": "rerank", "first": {"kind": "dense"}, "reranker": "maxsim", "top": 7})
    assert system.describe()["top"] == 7
    assert load_retriever({"kind": "rerank", "first": "bm25", "reranker": "bm25"}).describe()["top"] == 100
    assert system.name == "dense all-minilm-l6-v2-int8 > maxsim all-minilm-l6-v2-int8"


@pytest.mark.parametrize(
    ("load", "spec", "words"),
    [
        (load_embedder, {"kind": "onx"}, "unknown embedder 'onx' .did you mean 'onnx'"),
        (load_embedder, {"model": "x"}, "`kind` is missing"),
        (load_embedder, {"kind": "onnx", "colour": "red"}, "colour"),
        (load_embedder, {"kind": "onnx", "max_length": 2}, "max_length: .*greater than or equal to 3, not 2"),
        (load_embedder, "qwen2.5-coder-1.5b", "not an embedder; these are: all-minilm"),
        (load_reranker, {"kind": "cross-encoder"}, "model"),
        (load_retriever, {"kind": "none of these"}, "unknown retriever"),
    ],
)
def test_wrong_settings(load: object, spec: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load(spec)  # type: ignore[operator]


def test_importing_is_light() -> None:
    heavy = "torch transformers sentence_transformers faiss onnxruntime tokenizers numba"
    code = f"import sys, airgen.retrievers, airgen.models; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
