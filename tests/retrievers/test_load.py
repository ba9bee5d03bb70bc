import subprocess
import sys

import pytest

from airgen.errors import UsageError
from airgen.retrievers import load_embedder, load_reranker, load_retriever
from airgen.retrievers.dense.embedders import SentenceTransformersEmbedder
from airgen.retrievers.dense.onnx_encoder import OnnxCrossEncoder, OnnxEncoder
from airgen.retrievers.dense.shipped import PackedE5, StaticEmbedder
from airgen.retrievers.http import HttpEmbedder, HttpReranker
from airgen.retrievers.late.maxsim import MaxSim
from airgen.retrievers.rerank import CrossEncoder, DenseReranker
from airgen.retrievers.sparse import SparseReranker


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("all-minilm-l6-v2-int8", OnnxEncoder),
        ("all-minilm-l6-v2", SentenceTransformersEmbedder),
        ("multilingual-e5-small-q4", PackedE5),
        ("wordllama-256", StaticEmbedder),
        ("BAAI/bge-m3", SentenceTransformersEmbedder),
        ("intfloat/e5-small-v2", SentenceTransformersEmbedder),
        ("bge-small-en-int8", OnnxEncoder),
        ({"kind": "onnx"}, OnnxEncoder),
        ({"kind": "http", "model": "m", "base_url": "http://localhost:1/v1"}, HttpEmbedder),
    ],
)
def test_embedders(spec: object, kind: type) -> None:
    assert type(load_embedder(spec)) is kind  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("maxsim", MaxSim),
        ("splade", SparseReranker),
        ("splade-bert-tiny", SparseReranker),
        ("dense", DenseReranker),
        ("all-minilm-l6-v2-int8", DenseReranker),
        ("ms-marco-minilm-l12-int8", OnnxCrossEncoder),
        ("answerai-colbert-small-int8", MaxSim),
        ("BAAI/bge-reranker-large", CrossEncoder),
        ("maidalun1020/bce-reranker-base_v1", CrossEncoder),
        ("nreimers/mmarco-mMiniLMv2-L12-H384-v1", CrossEncoder),
        ({"kind": "http", "url": "http://localhost:1/v1/rerank"}, HttpReranker),
    ],
)
def test_rerankers(spec: object, kind: type) -> None:
    assert type(load_reranker(spec)) is kind  # type: ignore[arg-type]


def test_a_retriever_by_its_kind_alone() -> None:
    assert load_retriever("sparse").name == "sparse splade-bert-tiny"
    assert load_retriever({"kind": "rerank", "first": "bm25", "reranker": "bm25"}).describe()["top"] == 100


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
    assert system.name == "dense all-minilm-l6-v2-int8 > maxsim all-minilm-l6-v2-int8"


@pytest.mark.parametrize(
    ("load", "spec", "words"),
    [
        (load_embedder, {"kind": "onx"}, "unknown embedder 'onx' .did you mean 'onnx'"),
        (load_embedder, {"model": "x"}, "`kind` is missing"),
        (load_embedder, {"kind": "onnx", "colour": "red"}, "colour"),
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
