"""Random models of a few thousand weights under the names of the papers' checkpoints, in the layout of the Hub.

make_models_of(find_yaml("pipelines", "systems-beir"))     # folders of the working directory: BeIR/sparta-..., ...

A list of systems names its models, and `ARCHITECTURES` says which architecture each of them has on the Hub. What a
server would run is left out.
"""

import functools
import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from job_maker import FACTS, PLACES, TOPICS
from small_models import WORDS, make_t5, make_tokenizer

from airgen.models import catalogue

Make = Callable[[Path], object]

_WORDS = sorted({*WORDS, *(word for text in (*TOPICS, *FACTS, *PLACES) for word in text.split())})
"""The words of the texts: a text is not much longer in tokens."""

_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_POSITIONS = 514  # E.2 of AIR-Bench has 512 tokens, and RoBERTa's positions begin at 2


def make_models_of(systems: Path) -> list[str]:
    """Write a folder for each model that a list of systems loads itself, and return their names."""
    names = [name for name in models_of(yaml.safe_load(systems.read_text("utf-8"))) if name not in catalogue()]
    for name in names:
        if not Path(name).exists():
            make_paper_model(name)
    return names


def models_of(value: Any) -> list[str]:
    """Return the names of the models in a list of systems, in its order, without those of a server."""
    if isinstance(value, list):
        return list(dict.fromkeys(name for part in value for name in models_of(part)))
    if not isinstance(value, Mapping) or value.get("kind") == "http":
        return []
    own = [value[key] for key in ("model", "query_model", "adapter", "writer", "base", "teacher") if key in value]
    return list(dict.fromkeys([*own, *models_of(list(value.values()))]))


def make_paper_model(name: str) -> Path:
    """Write the folder of a model: random weights that depend on its name. Raises KeyError for an unknown one."""
    import torch

    folder = Path(name)
    torch.manual_seed(zlib.crc32(name.encode()))
    _ARCHITECTURES[_BY_NAME[name]](folder)
    return folder


def _bert(kind: str = "Model", **settings: Any) -> Make:
    def make(folder: Path) -> None:
        import transformers

        size = make_tokenizer(folder, _WORDS)
        config = transformers.BertConfig(
            vocab_size=size, max_position_embeddings=_POSITIONS, pad_token_id=0, **_SIZES, **settings
        )
        getattr(transformers, f"Bert{kind}")(config).save_pretrained(folder)

    return make


def _distilbert(kind: str = "Model") -> Make:
    def make(folder: Path) -> None:
        import transformers

        config = transformers.DistilBertConfig(
            vocab_size=make_tokenizer(folder, _WORDS), dim=32, n_layers=2, n_heads=2, hidden_dim=64, pad_token_id=0,
            max_position_embeddings=_POSITIONS,
        )  # fmt: skip
        getattr(transformers, f"DistilBert{kind}")(config).save_pretrained(folder)

    return make


@functools.cache
def _pieces() -> str:
    """A BPE over the words of `small_models` and `job_maker`, with XLM-RoBERTa's first tokens."""
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    texts = [*WORDS, *TOPICS, *FACTS, *PLACES, "query: passage: Yes No"]
    made.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(vocab_size=600, special_tokens=special))
    return str(made.to_str())


def _roberta(name: str, **settings: Any) -> Make:
    """RoBERTa and XLM-RoBERTa."""

    def make(folder: Path) -> None:
        import tokenizers
        import transformers

        made = tokenizers.Tokenizer.from_str(_pieces())
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
        marks = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>", "cls": "<s>",
                 "sep": "</s>"}  # fmt: skip
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=made, model_max_length=512, **{f"{mark}_token": token for mark, token in marks.items()}
        ).save_pretrained(folder)
        config = transformers.XLMRobertaConfig if name.startswith("XLM") else transformers.RobertaConfig
        ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
        getattr(transformers, name)(
            config(vocab_size=made.get_vocab_size(), max_position_embeddings=_POSITIONS, type_vocab_size=1, **_SIZES,
                   **ids, **settings)
        ).save_pretrained(folder)  # fmt: skip

    return make


def _decoder(name: str, *, pad: bool = True, eos: bool = True) -> Make:
    """A decoder with Llama's tokenizer. Llama 2's own has no token for padding, and adds no </s>."""

    def make(folder: Path) -> None:
        import transformers

        trained = json.loads(_pieces())["model"]
        order = ["<unk>", "<s>", "</s>", "<pad>", *(token for token in trained["vocab"] if token[0] != "<")]
        tokenizer = transformers.LlamaTokenizer(
            vocab={token: place for place, token in enumerate(order)},
            merges=[tuple(merge) for merge in trained["merges"]],
            add_bos_token=True,
            add_eos_token=eos,
            model_max_length=4096,
            **({"pad_token": "<pad>"} if pad else {}),
        )
        tokenizer.save_pretrained(folder)
        model = getattr(transformers, name)
        config = model.config_class(
            vocab_size=len(tokenizer), max_position_embeddings=4096, num_key_value_heads=1, head_dim=16, bos_token_id=1,
            eos_token_id=2, pad_token_id=3 if pad else None, **_SIZES,
        )  # fmt: skip
        model(config).save_pretrained(folder)

    return make


def _pooled(make: Make, pooling: str, *, normalise: bool = True) -> Make:
    """The model with the modules of sentence-transformers."""

    def made(folder: Path) -> None:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

        make(folder)
        first = Transformer(str(folder))
        first.max_seq_length = 512
        modules = [
            first,
            Pooling(first.get_embedding_dimension(), pooling_mode=pooling),
            *([Normalize()] if normalise else []),
        ]
        SentenceTransformer(modules=modules).save(str(folder))

    return made


def _m3(folder: Path) -> None:
    import torch

    _roberta("XLMRobertaModel")(folder)
    for name, width in (("colbert", 32), ("sparse", 1)):
        torch.save(torch.nn.Linear(32, width).state_dict(), folder / f"{name}_linear.pt")


def _colbert(folder: Path) -> None:
    """A BERT whose projection is `linear.weight` of the same file, and the metadata of ColBERT's own library."""
    import safetensors.torch
    import torch

    _bert()(folder)
    path = folder / "model.safetensors"
    weights = {f"bert.{name}": value for name, value in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file({**weights, "linear.weight": torch.randn(16, 32)}, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}), "utf-8")
    about = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_token": "[Q]", "doc_token": "[D]",
             "dim": 16, "query_maxlen": 32, "doc_maxlen": 180, "mask_punctuation": True, "similarity": "cosine",
             "attend_to_mask_tokens": False}  # fmt: skip
    (folder / "artifact.metadata").write_text(json.dumps(about), "utf-8")


def _adapter(folder: Path) -> None:
    """A LoRA adapter of `Llama-2-7b-hf`, as RepLLaMA is published."""
    import peft
    import torch
    import transformers

    base = transformers.AutoModel.from_pretrained("meta-llama/Llama-2-7b-hf")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="FEATURE_EXTRACTION")
    adapted = peft.get_peft_model(base, config)
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.3)
    adapted.save_pretrained(folder)


def _t5_encoder(folder: Path) -> None:
    import transformers

    make_t5(folder)
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder)
    transformers.T5EncoderModel(model.config).save_pretrained(folder)


_ARCHITECTURES: dict[str, Make] = {
    "bert": _bert(),
    "bert mlm": _bert("ForMaskedLM"),
    "bert ranks": _bert("ForSequenceClassification", num_labels=1),
    "bert cls": _pooled(_bert(), "cls"),
    "bert mean": _pooled(_bert(), "mean"),
    "bert dpr": _pooled(_bert(), "cls", normalise=False),
    "distilbert mlm": _distilbert("ForMaskedLM"),
    "distilbert": _distilbert(),
    "distilbert mean": _pooled(_distilbert(), "mean", normalise=False),
    "tas-b": _pooled(_distilbert(), "cls", normalise=False),
    "ance": _pooled(_roberta("RobertaModel"), "cls", normalise=False),
    "xlm-r": _roberta("XLMRobertaModel"),
    "xlm-r mean": _pooled(_roberta("XLMRobertaModel"), "mean"),
    "xlm-r cls": _pooled(_roberta("XLMRobertaModel"), "cls"),
    "xlm-r ranks": _roberta("XLMRobertaForSequenceClassification", num_labels=1),
    "m3": _m3,
    "colbert": _colbert,
    "llama": _decoder("LlamaForCausalLM", pad=False, eos=False),
    "adapter": _adapter,
    "mistral": _decoder("MistralModel"),
    "mistral last": _pooled(_decoder("MistralModel"), "lasttoken"),
    "gemma2": _decoder("Gemma2Model", eos=False),
    "gemma ranks": _decoder("GemmaForCausalLM", eos=False),
    "t5": make_t5,
    "gtr": _pooled(_t5_encoder, "mean"),
}
"""How a model of each architecture is made."""

_NAMES = {
    "bert": "facebook/contriever facebook/contriever-msmarco facebook/mcontriever-msmarco "
    "intfloat/simlm-base-msmarco-finetuned",
    "bert mlm": "bert-base-uncased",
    "bert ranks": "cross-encoder/ms-marco-MiniLM-L6-v2",
    "bert cls": "BAAI/bge-small-en-v1.5 BAAI/bge-base-en-v1.5 BAAI/bge-large-en-v1.5 "
    "princeton-nlp/unsup-simcse-bert-base-uncased",
    "bert mean": "intfloat/e5-small-v2 intfloat/e5-base-v2 intfloat/e5-large-v2 thenlper/gte-small thenlper/gte-base "
    "thenlper/gte-large intfloat/multilingual-e5-small intfloat/e5-small-unsupervised intfloat/e5-base-unsupervised "
    "intfloat/e5-large-unsupervised intfloat/e5-small intfloat/e5-base intfloat/e5-large",
    "bert dpr": "sentence-transformers/facebook-dpr-ctx_encoder-multiset-base "
    "sentence-transformers/facebook-dpr-question_encoder-multiset-base",
    "distilbert mlm": "distilbert-base-uncased",
    "distilbert mean": "canwenxu/laprador",
    "distilbert": "BeIR/sparta-msmarco-distilbert-base-v1",
    "tas-b": "sentence-transformers/msmarco-distilbert-base-tas-b",
    "ance": "sentence-transformers/msmarco-roberta-base-ance-firstp",
    "xlm-r mean": "intfloat/multilingual-e5-base intfloat/multilingual-e5-large "
    "intfloat/multilingual-e5-large-instruct",
    "xlm-r cls": "maidalun1020/bce-embedding-base_v1",
    "xlm-r ranks": "BAAI/bge-reranker-base BAAI/bge-reranker-large BAAI/bge-reranker-v2-m3 "
    "maidalun1020/bce-reranker-base_v1 nreimers/mmarco-mMiniLMv2-L12-H384-v1",
    "m3": "BAAI/bge-m3",
    "colbert": "colbert-ir/colbertv2.0",
    "llama": "meta-llama/Llama-2-7b-hf",
    "adapter": "castorini/repllama-v1-7b-lora-passage",
    "mistral": "BAAI/bge-en-icl BAAI/bge-en-icl-e5data",
    "mistral last": "Salesforce/SFR-Embedding-Mistral Salesforce/SFR-Embedding-2_R Linq-AI-Research/Linq-Embed-Mistral "
    "intfloat/e5-mistral-7b-instruct",
    "gemma2": "BAAI/bge-multilingual-gemma2",
    "gemma ranks": "BAAI/bge-reranker-v2-gemma",
    "gtr": "sentence-transformers/gtr-t5-base sentence-transformers/gtr-t5-large",
    "t5": "castorini/doc2query-t5-base-msmarco BeIR/query-gen-msmarco-t5-base-v1 t5-base",
}
_BY_NAME = {name: architecture for architecture, names in _NAMES.items() for name in names.split()}
