"""FlagEmbedding on tiny random models of the real architectures; what it gives directly is the oracle."""

import importlib.util
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packages import package
from paper_models import make_paper_model

from airgen.components.registry import load_extra
from airgen.errors import AirgenError, ModelError, UsageError
from airgen.retrievers import Passages, load_embedder, load_reranker, load_retriever
from airgen.retrievers.flag_embedding import BgeM3Embedder, BgeM3Sparse, BgeM3Tokens, FlagEmbedder, FlagReranker
from airgen.settings.spec import as_mapping

from .conftest import QUERIES, TEXTS

torch = package("torch")
transformers = package("transformers")
flag = package("FlagEmbedding")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "initializer_range": 0.3}
WORDS = [text for text in [*TEXTS, *QUERIES] if text]
PAIRS = [(query, TEXTS[place]) for query in QUERIES for place in range(4)]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A BPE tokenizer with the special tokens of XLM-RoBERTa."""
    library = pytest.importorskip("tokenizers")
    made = library.Tokenizer(library.models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = library.pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made.train_from_iterator([*WORDS, "Yes No"], library.trainers.BpeTrainer(vocab_size=400, special_tokens=special))
    made.post_processor = library.processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = dict(zip(("bos", "pad", "eos", "unk", "mask"), special, strict=True)) | {"cls": "<s>", "sep": "</s>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, **{f"{name}_token": token for name, token in names.items()}
    )


def _saved(model: Any, tokenizer: Any, folder: Path) -> Path:
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _xlm(tokenizer: Any, **settings: Any) -> Any:
    return transformers.XLMRobertaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=130, type_vocab_size=1, **SIZES, **IDS, **settings
    )


@pytest.fixture(scope="module")
def m3(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random bge-m3: XLM-RoBERTa and the weights of its two further outputs."""
    torch.manual_seed(1)
    folder = _saved(transformers.XLMRobertaModel(_xlm(tokenizer)), tokenizer, tmp_path_factory.mktemp("flag") / "m3")
    for name, width in (("colbert", 32), ("sparse", 1)):
        torch.save(torch.nn.Linear(32, width).state_dict(), folder / f"{name}_linear.pt")
    return folder


@pytest.fixture(scope="module")
def direct(m3: Path) -> dict[str, Any]:
    """What FlagEmbedding itself gives for the texts."""
    model = flag.BGEM3FlagModel(str(m3), use_fp16=False, devices="cpu")
    found: dict[str, Any] = model.encode(TEXTS, return_dense=True, return_sparse=True, return_colbert_vecs=True)
    return found


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of texts of each pass of bge-m3."""
    counted: list[int] = []
    usual = flag.BGEM3FlagModel.encode

    def counting(model: Any, texts: list[str], **settings: Any) -> Any:
        counted.append(len(texts))
        return usual(model, texts, **settings)

    monkeypatch.setattr(flag.BGEM3FlagModel, "encode", counting)
    yield counted


def test_the_three_outputs_are_those_of_the_library(m3: Path, direct: dict[str, Any]) -> None:
    place = str(m3)
    np.testing.assert_array_equal(BgeM3Embedder(place).encode(TEXTS, "passage"), direct["dense_vecs"])
    for (terms, weights), wanted in zip(
        BgeM3Sparse(place).encode(TEXTS, "passage"), direct["lexical_weights"], strict=True
    ):
        assert dict(zip(map(str, terms.tolist()), weights, strict=True)) == wanted
        assert (np.diff(terms) > 0).all() and (weights > 0).all()
    for vectors, wanted in zip(BgeM3Tokens(place).token_vectors(TEXTS, "passage"), direct["colbert_vecs"], strict=True):
        np.testing.assert_array_equal(vectors, wanted)
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


def test_systems_score_as_the_library_does(m3: Path, direct: dict[str, Any], corpus: Passages) -> None:
    model = flag.BGEM3FlagModel(str(m3), use_fp16=False, devices="cpu")
    query = next(iter(QUERIES))
    asked = model.encode([query], return_dense=True, return_sparse=True, return_colbert_vecs=True)
    wanted = {
        "dense": direct["dense_vecs"] @ asked["dense_vecs"][0],
        "sparse": [
            model.compute_lexical_matching_score(asked["lexical_weights"][0], one) for one in direct["lexical_weights"]
        ],
        "late": [
            float(model.colbert_score(asked["colbert_vecs"][0], one)) * len(asked["colbert_vecs"][0])
            for one in direct["colbert_vecs"]
        ],
    }
    for kind, field in (("dense", "embedder"), ("sparse", "model"), ("late", "model")):
        system = load_retriever({"kind": kind, field: {"kind": "bge-m3", "model": str(m3)}})
        system.index(corpus)
        hits = system.search([query], len(TEXTS))
        scores = np.zeros(len(TEXTS))
        scores[hits.positions[0][hits.positions[0] >= 0]] = hits.scores[0][hits.positions[0] >= 0]
        assert scores == pytest.approx(np.array(wanted[kind]), abs=2e-2 if kind == "late" else 1e-5), (
            kind
        )  # token vectors are kept in fp16


def test_a_hybrid_of_all_outputs_encodes_each_text_once(m3: Path, corpus: Passages, passes: list[int]) -> None:
    model = {"kind": "bge-m3", "model": str(m3)}
    systems = [
        {"kind": "dense", "embedder": model},
        {"kind": "sparse", "model": model},
        {"kind": "late", "model": model},
    ]
    hybrid = load_retriever({"kind": "fuse", "systems": systems})
    hybrid.index(corpus)
    hybrid.search(list(QUERIES), 3)
    assert passes[-1] == len(QUERIES) and passes.count(len(QUERIES)) == 1
    assert len({id(part.model) for part in map(_model_of, hybrid.components())}) == 1  # its weights are there once


def _model_of(system: Any) -> Any:
    return getattr(system, "embedder", None) or system.model


def test_one_encoding_on_disk_serves_all_kinds(m3: Path, corpus: Passages, passes: list[int], tmp_path: Path) -> None:
    own = {"kind": "bge-m3", "model": str(m3), "keep": ["vectors", "rows", "tokens"]}
    found = {}
    for cache in (None, tmp_path):
        for kind, field in (("dense", "embedder"), ("sparse", "model"), ("late", "model")):
            system = load_retriever({"kind": kind, field: own, "cache": cache})
            system.index(corpus)
            found[kind, cache] = system.search(list(QUERIES), 3)
            del system  # as in an evaluation, where one system follows another
        if cache is None:
            del passes[:]
    assert [count for count in passes if count != len(QUERIES)] == [len(TEXTS)]
    for kind in ("dense", "sparse", "late"):
        np.testing.assert_array_equal(found[kind, None].positions, found[kind, tmp_path].positions)
        np.testing.assert_array_equal(found[kind, None].scores, found[kind, tmp_path].scores)


def test_an_embedder_of_the_library_with_its_instruction(m3: Path) -> None:
    own = {"kind": "flag-embedding", "model": str(m3), "instruction": "Ask: ", "model_class": "encoder-only-base"}
    embedder = load_embedder({**own, "pooling": "mean"})
    assert isinstance(embedder, FlagEmbedder)
    library = flag.FlagModel(
        str(m3), use_fp16=False, devices="cpu", pooling_method="mean", query_instruction_for_retrieval="Ask: "
    )
    for kind, wanted in (("query", library.encode_queries(TEXTS)), ("passage", library.encode_corpus(TEXTS))):
        np.testing.assert_allclose(embedder.encode(TEXTS, kind), wanted, atol=1e-6)
    with pytest.raises(ModelError, match="not a name that FlagEmbedding knows: set `model_class`"):
        FlagEmbedder(str(m3)).encode(["a"], "query")


def test_bge_m3_by_the_kind_of_the_other_embedders(m3: Path, direct: dict[str, Any], tmp_path: Path) -> None:
    folder = shutil.copytree(m3, tmp_path / "bge-m3")  # the name by which the library knows it
    vectors = load_embedder({"kind": "flag-embedding", "model": str(folder)}).encode(TEXTS, "passage")
    np.testing.assert_allclose(vectors, direct["dense_vecs"], atol=1e-6)


def test_an_instruction_has_the_format_of_the_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = make_paper_model("BAAI/bge-en-icl-e5data")  # which the library does not know by name
    own = {"kind": "flag-embedding", "model_class": "decoder-only-icl", "pooling": "last_token"}
    embedder = load_embedder({**own, "model": str(folder), "instruction": "Retrieve answers"})
    library = flag.FlagICLModel(
        str(folder), use_fp16=False, devices="cpu", query_instruction_for_retrieval="Retrieve answers"
    )
    assert isinstance(embedder, FlagEmbedder) and embedder.prompt("query") == "<instruct>Retrieve answers\n<query>"
    np.testing.assert_allclose(embedder.encode(QUERIES, "query"), library.encode_queries(QUERIES), atol=1e-6)


@pytest.fixture(scope="module")
def cross_encoder(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(2)
    model = transformers.XLMRobertaForSequenceClassification(_xlm(tokenizer, num_labels=1))
    return _saved(model, tokenizer, tmp_path_factory.mktemp("flag") / "bge-reranker-tiny")


@pytest.fixture(scope="module")
def gemma(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    config = transformers.GemmaConfig(vocab_size=len(tokenizer), num_key_value_heads=1, head_dim=16, **SIZES, **IDS)
    return _saved(transformers.GemmaForCausalLM(config), tokenizer, tmp_path_factory.mktemp("flag") / "gemma")


def test_rerankers_score_as_the_library_does(cross_encoder: Path, gemma: Path) -> None:
    pairs = [list(pair) for pair in PAIRS]
    for folder, kind in ((cross_encoder, flag.FlagReranker), (gemma, flag.FlagLLMReranker)):
        reranker = load_reranker({"kind": "flag-reranker", "model": str(folder)})
        assert isinstance(reranker, FlagReranker)
        wanted = kind(str(folder), devices="cpu", batch_size=8).compute_score(pairs)
        scores = reranker.score(PAIRS)
        np.testing.assert_array_equal(scores, np.array(wanted, np.float32))
        assert len({*scores.tolist()}) > 8 and reranker.score([]).shape == (0,)
        assert reranker.score(PAIRS[:1])[0] == pytest.approx(scores[0], abs=1e-5)


def test_layerwise_reranker_is_a_llama_with_a_head_for_each_layer(tokenizer: Any, tmp_path: Path) -> None:
    """MiniCPM with factors of 1 is Llama, which transformers itself knows: its hidden states are the oracle."""
    code = load_extra("FlagEmbedding.inference.reranker.decoder_only.models.modeling_minicpm_reranker", "a test")
    torch.manual_seed(4)
    sizes = {**SIZES, "num_hidden_layers": 4, "num_key_value_heads": 2, "vocab_size": len(tokenizer), **IDS}
    config = code.LayerWiseMiniCPMConfig(
        **sizes, start_layer=2, head_type="simple", scale_emb=1, dim_model_base=32, scale_depth=math.sqrt(4)
    )
    llama = transformers.LlamaModel(transformers.LlamaConfig(**sizes, rms_norm_eps=config.rms_norm_eps)).eval()
    heads = [torch.nn.Linear(32, 1, bias=False) for _ in range(3)]  # of layers 2, 3 and 4
    weights = {f"model.{name}": tensor for name, tensor in llama.state_dict().items()}
    weights |= {f"lm_head.{place}.linear_head.weight": head.weight for place, head in enumerate(heads)}
    folder = tmp_path / "bge-reranker-v2-minicpm-layerwise"
    config.architectures = ["LayerWiseMiniCPMForCausalLM"]
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    load_extra("safetensors.torch", "a test").save_file(
        {name: tensor.detach().clone().contiguous() for name, tensor in weights.items()}, folder / "model.safetensors"
    )

    prompt = "Yes or No"
    reranker = FlagReranker(str(folder), cutoff_layer=3, prompt=prompt)
    scores = reranker.score(PAIRS)
    for (query, passage), score in zip(PAIRS, scores, strict=True):
        texts = [f"A: {query}", "\n", f"B: {passage}", "\n", prompt]
        ids = [0, *(token for text in texts for token in tokenizer(text, add_special_tokens=False)["input_ids"])]
        with torch.no_grad():
            states = llama(torch.tensor([ids]), output_hidden_states=True).hidden_states[3][0, -1]
            logit = heads[1](llama.norm(states))
        assert score == pytest.approx(float(logit), abs=1e-3)
    assert len({*scores.tolist()}) > 8
    other = FlagReranker(str(folder), prompt=prompt).score(PAIRS)  # the last layer
    assert not np.allclose(other, scores)


@pytest.mark.parametrize(
    ("part", "name", "kind"),
    [
        ("embedder", "BAAI/bge-m3", "bge-m3"),
        ("token-embedder", "BAAI/bge-m3", "bge-m3"),
        ("sparse-embedder", "BAAI/bge-m3", "bge-m3"),
        ("embedder", "BAAI/bge-small-en-v1.5", "flag-embedding"),
        ("embedder", "BAAI/bge-m3-unsupervised", "sentence-transformers"),
        ("embedder", "intfloat/e5-small-v2", "sentence-transformers"),
        ("reranker", "BAAI/bge-reranker-v2-minicpm-layerwise", "flag-reranker"),
        ("reranker", "nreimers/mmarco-mMiniLMv2-L12-H384-v1", "flag-reranker"),
        ("reranker", "cross-encoder/ms-marco-MiniLM-L6-v2", "cross-encoder"),
    ],
)
def test_names_run_through_the_library_where_it_is_installed(
    part: str, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert as_mapping(part, name) == {"kind": kind, "model": name}
    usual = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "FlagEmbedding" else usual(name, *rest)
    )
    assert "flag" not in as_mapping(part, name)["kind"] and as_mapping(part, name)["kind"] != "bge-m3"


def test_models_that_are_not_what_they_are_named_as(m3: Path, gemma: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    shutil.copytree(m3, plain, ignore=shutil.ignore_patterns("*.pt"))
    assert BgeM3Embedder(str(plain)).encode(["a"], "query").shape == (1, 32)
    assert BgeM3Embedder(str(plain)).beside == frozenset()
    with pytest.raises(
        ModelError, match=r"has no colbert_linear.pt and no sparse_linear.pt, so it only returns one vector"
    ):
        BgeM3Sparse(str(plain)).encode(["a"], "query")
    with pytest.raises(ModelError, match=r"is not a re-ranker \(its config.json names XLMRobertaModel\)"):
        FlagReranker(str(m3)).score([("a", "b")])
    config = json.loads((gemma / "config.json").read_text())
    (tmp_path / "light").mkdir()
    (tmp_path / "light" / "config.json").write_text(
        json.dumps({**config, "architectures": ["CostWiseGemmaForCausalLM"]})
    )
    with pytest.raises(ModelError, match=r"only with transformers 4\.46"):
        FlagReranker(str(tmp_path / "light")).score([("a", "b")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"empty is not a model of transformers: .*config.json cannot be read"):
        FlagReranker(str(tmp_path / "empty")).score([("a", "b")])
    with pytest.raises(UsageError, match="max_length"):
        BgeM3Embedder(str(m3), max_length=9000)


def test_a_model_of_the_hub_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = load_extra("huggingface_hub.constants", "a test")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        ModelError, match=r"^the model BAAI/bge-m3 cannot be loaded .*: give a Hub name that can be"
    ) as at:
        load_embedder("BAAI/bge-m3").encode(["a"], "query")
    assert "\n" not in str(at.value)


def test_code_that_comes_with_a_model_does_not_run(cross_encoder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bge-reranker-large"  # a name of the library's list
    shutil.copytree(cross_encoder, folder)
    config = json.loads((folder / "config.json").read_text())
    code = {"AutoConfig": "code.C", "AutoModelForSequenceClassification": "code.M"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "its-own", "auto_map": code}))
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ModelError, match="cannot be loaded"):
        FlagReranker(str(folder)).score([("a", "b")])
    assert not (tmp_path / "ran").exists()


def test_a_transformers_that_the_library_cannot_run_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name="transformers.modeling_attn_mask_utils")

    monkeypatch.setattr("importlib.import_module", broken)
    with pytest.raises(AirgenError, match=r"FlagEmbedding, which is installed but cannot be imported .*\[models\]"):
        load_extra("FlagEmbedding", "the model 'BAAI/bge-m3'")
