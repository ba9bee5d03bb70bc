"""Compare what airgen puts before the texts of well-known models with MTEB's registry.

    python benchmarks/published.py        (needs mteb; no network)

Prints a line for each model: the prompts in airgen's table beside those in MTEB's registry, and MTEB's maximum length
and similarity. A model that is on this machine is loaded, and its own figures are shown.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from mteb.models.model_implementations import MODEL_REGISTRY

from airgen import models
from airgen.retrievers import load_embedder
from airgen.retrievers.model_prompts import known_prompts

MODELS = (
    "sentence-transformers/all-MiniLM-L6-v2",
    "sentence-transformers/all-mpnet-base-v2",
    "intfloat/e5-base-v2",
    "intfloat/multilingual-e5-small",
    "BAAI/bge-small-en-v1.5",
    "BAAI/bge-large-zh-v1.5",
    "BAAI/bge-m3",
    "nomic-ai/nomic-embed-text-v1.5",
    "mixedbread-ai/mxbai-embed-large-v1",
    "Snowflake/snowflake-arctic-embed-m-v1.5",
    "Alibaba-NLP/gte-Qwen2-1.5B-instruct",
    "Qwen/Qwen3-Embedding-0.6B",
    "thenlper/gte-small",
    "google/embeddinggemma-300m",
)
LOCAL = {
    "sentence-transformers/all-MiniLM-L6-v2": "all-minilm-l6-v2",
    "sentence-transformers/all-mpnet-base-v2": "all-mpnet-base-v2",
    "intfloat/multilingual-e5-small": "multilingual-e5-small-q4",
    "BAAI/bge-small-en-v1.5": "bge-small-en-int8",
}


def main() -> None:
    for name in MODELS:
        meta = MODEL_REGISTRY[name]
        prompts = (meta.loader_kwargs or {}).get("model_prompts") or {}
        theirs = {kind: prompts[kind] for kind in ("query", "document") if kind in prompts}
        how = "by instruction" if meta.use_instructions and not theirs else theirs or "none"
        length = None if meta.max_tokens is None else int(meta.max_tokens)
        print(f"{name}\n  airgen: {known_prompts(name)}")
        print(f"  MTEB:   {how}; {length} tokens; {meta.similarity_fn_name.value}")
        local = LOCAL.get(name)
        if local and models.fetched(local):
            print(f"  loaded ({local}): {load_embedder(local).setup().words}")


if __name__ == "__main__":
    main()
