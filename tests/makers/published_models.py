"""Random models of many kinds of configuration, as authors publish them, and a small dataset for them.

folder = make_published("prompts", tmp_path)          # a folder as SentenceTransformer.save writes it
put_in_hub_cache(folder, cache, "acme/prompts")       # the same model by a Hub name, offline
"""

import shutil
from pathlib import Path
from random import Random
from typing import Any

from small_models import WORDS, make_tokenizer

PROMPTS = {"query": "amber bridge query: ", "document": "kettle passage: "}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prompts": {"prompts": PROMPTS},
    "query prompt only": {"prompts": {"query": PROMPTS["query"]}},
    "prompt named passage": {"prompts": {"query": PROMPTS["query"], "passage": PROMPTS["document"]}},
    "default prompt": {"prompts": {"task": "lantern mirror: "}, "default_prompt_name": "task"},
    "prompts left out of the pooling": {"prompts": PROMPTS, "pooling": {"include_prompt": False}},
    "cls": {"pooling": {"pooling_mode": "cls"}},
    "last token": {"decoder": True, "pooling": {"pooling_mode": "lasttoken"}, "prompts": PROMPTS},
    "dot": {"similarity_fn_name": "dot"},
    "normalised dot": {"similarity_fn_name": "dot", "normalise": True},
    "matryoshka": {"truncate_dim": 12},
    "length 8": {"length": 8},
    "length 128": {"length": 128, "positions": 128},
    "length 8192": {"length": 8192, "positions": 8192},
    "bf16": {"dtype": "bfloat16"},
    "fp16": {"dtype": "float16", "prompts": PROMPTS},
}
"""What differs from a BERT with mean pooling, cosine similarity and 64 positions."""


def make_published(kind: str, folder: Path, spread: float = 0.3) -> Path:
    """Write a random model of one of the KINDS to a folder.

    Args:
        kind: One of the KINDS.
        folder: The folder to write.
        spread: Standard deviation of the initial weights.
    """
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    about = dict(KINDS[kind])
    inner, positions = folder / "inner", about.get("positions", 64)
    size = make_tokenizer(inner)
    torch.manual_seed(len(kind))
    sizes = {"vocab_size": size, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 64, "max_position_embeddings": positions, "pad_token_id": 0,
             "initializer_range": spread}  # fmt: skip
    config = transformers.LlamaConfig(**sizes) if about.get("decoder") else transformers.BertConfig(**sizes)
    model = transformers.AutoModel.from_config(config, dtype=getattr(torch, about.get("dtype", "float32")))
    model.save_pretrained(inner)
    first = Transformer(str(inner))
    first.max_seq_length = about.get("length", positions)
    modules = [first, Pooling(32, **{"pooling_mode": "mean", **about.get("pooling", {})})]
    if about.get("normalise"):
        modules.append(Normalize())
    own = {name: about[name] for name in about if name in ("prompts", "similarity_fn_name", "truncate_dim")}
    own |= {"default_prompt_name": about.get("default_prompt_name")}
    SentenceTransformer(modules=modules, **own).save(str(folder / "model"))
    return folder / "model"


def put_in_hub_cache(folder: Path, cache: Path, name: str) -> str:
    """Copy a model's folder into a cache of the Hub, and return the name."""
    place, revision = cache / f"models--{name.replace('/', '--')}", "b" * 40
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(revision)
    shutil.copytree(folder, place / "snapshots" / revision)
    return name


def texts_and_labels(passages: int = 60, queries: int = 24) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    """Return {id: passage} of 3 to 90 words, {id: query}, and {query id: {passage id: 1}}."""
    random = Random(7)
    corpus = {
        f"d{place:02}": " ".join(random.choices(WORDS, k=random.choice((3, 9, 30, 90)))) for place in range(passages)
    }
    asked, labels = {}, {}
    for place in range(queries):
        relevant = random.sample(sorted(corpus), random.choice((1, 2, 4)))
        words = corpus[relevant[0]].split()
        asked[f"q{place:02}"] = " ".join([*random.choices(words, k=4), random.choice(WORDS)])
        labels[f"q{place:02}"] = dict.fromkeys(relevant, 1)
    return corpus, asked, labels
