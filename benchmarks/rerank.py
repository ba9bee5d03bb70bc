"""Compare cross-encoder re-ranking by token budget with sentence-transformers' predict, alternating in one process.

    python benchmarks/rerank.py                                 made-up pairs with the lengths of a web collection
    python benchmarks/rerank.py --collection DIR                real pairs of a BEIR directory (corpus, queries)
    python benchmarks/rerank.py --model cross-encoder/ms-marco-MiniLM-L6-v2
    python benchmarks/rerank.py --threads 2                     both with this number of threads; default: 1

Without --model, a random BERT of MiniLM's size scores the pairs, as fast as a trained model. Prints the median of the
paired ratios (predict's time / ours) by wall-clock and processor time, the largest score difference, and the number of
tokens through each model, including padding. With equal scores, only this number and the last layer
(`airgen.retrievers.rerank`) can differ, because matrix products take most of the time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from airgen.retrievers.rerank import CrossEncoder


def made_up(count: int) -> list[tuple[str, str]]:
    """Make pairs with the length distribution of web passages: log-normal, median 55 words, some at the model's
    limit."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 9))) for _ in range(5000)]

    def text(length: float) -> str:
        return " ".join(rng.choices(words, k=max(3, int(length))))

    return [(text(rng.gauss(8, 3)), text(rng.lognormvariate(4, 0.8))) for _ in range(count)]


def real(folder: Path, count: int) -> list[tuple[str, str]]:
    """Draw pairs of a collection's queries and passages with a fixed seed."""

    def rows(name: str) -> list[dict[str, Any]]:
        plain, packed = folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"
        with plain.open() if plain.exists() else gzip.open(packed, "rt") as file:
            return [json.loads(line) for line in file]

    rng = random.Random(0)
    queries = [row["text"] for row in rows("queries")]
    passages = [f"{row.get('title', '')} {row['text']}".strip() for row in rows("corpus")]
    return [(rng.choice(queries), rng.choice(passages)) for _ in range(count)]


def random_model(folder: Path) -> str:
    """Make a BERT of MiniLM-L6's size with random weights and a vocabulary of letters and syllables."""
    import torch
    import transformers

    torch.manual_seed(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [
        *letters,
        *(a + b for a in letters for b in letters),
        *(a + b + c for a in letters for b in "aeiou" for c in letters),
    ]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, *("##" + piece for piece in pieces)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
        intermediate_size=1536, num_labels=1, initializer_range=0.1,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


def counted(model: Any, work: Callable[[], Any]) -> int:
    """Count the tokens that a model receives during the work, including padding."""
    import torch

    tokens: list[int] = []
    words = next(module for module in model.modules() if isinstance(module, torch.nn.Embedding))
    hook = words.register_forward_pre_hook(lambda _, inputs: tokens.append(inputs[0].numel()))
    work()
    hook.remove()
    return sum(tokens)


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return wall seconds, processor seconds and the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--collection", type=Path)
    options.add_argument("--model")
    options.add_argument("--pairs", type=int, default=100)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--budget", type=int, default=None)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--device", default="cpu", help="of both, in fp32; `make gpu` compares more")
    asked = options.parse_args()

    import sentence_transformers
    import torch

    torch.set_num_threads(asked.threads)
    pairs = real(asked.collection, asked.pairs) if asked.collection else made_up(asked.pairs)
    with tempfile.TemporaryDirectory() as folder:
        model = asked.model or random_model(Path(folder))
        library = sentence_transformers.CrossEncoder(model, max_length=512, device=asked.device)
        airgen = CrossEncoder(model, max_length=512, device=asked.device, dtype="fp32")
        airgen.token_budget = asked.budget or airgen.token_budget

        def theirs() -> Any:
            return library.predict(pairs, show_progress_bar=False)

        def ours() -> Any:
            return airgen.score(pairs)

        library.predict(pairs[:2])
        airgen.score(pairs[:2])
        walls, cpus, difference = [], [], 0.0
        tokens = counted(library, theirs), counted(airgen.model, ours)
        for run in range(asked.runs):
            first, second = (theirs, ours) if run % 2 == 0 else (ours, theirs)
            one, two = timed(first), timed(second)
            (their_wall, their_cpu, wanted), (wall, cpu, found) = (one, two) if run % 2 == 0 else (two, one)
            walls.append(their_wall / wall)
            cpus.append(their_cpu / cpu)
            difference = max(difference, float(np.abs(wanted - found).max()))
            print(
                f"run {run + 1}: predict {asked.pairs / their_wall:.1f} pairs/s, airgen {asked.pairs / wall:.1f}; "
                f"ratio {walls[-1]:.2f} (wall) {cpus[-1]:.2f} (cpu)",
                flush=True,
            )
    print(f"median ratio: {statistics.median(walls):.2f} (wall), {statistics.median(cpus):.2f} (cpu)")
    print(f"largest difference of a score: {difference:.1e}")
    print(f"tokens with padding: predict {tokens[0]}, airgen {tokens[1]} ({tokens[0] / tokens[1]:.2f} times)")


if __name__ == "__main__":
    wanted = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
    if os.environ.get("OMP_NUM_THREADS") != wanted:  # read once, when torch is loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": wanted})
    main()
