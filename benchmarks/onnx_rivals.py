"""Compare our ONNX encoders with the libraries' own ONNX backends, alternating on the same int8 files and texts.

    python benchmarks/onnx_rivals.py scifact --texts 60                a BEIR folder

sentence-transformers with `backend="onnx"` (packages optimum, optimum-onnx), and fastembed from local files. One thread
for each. Printed: the ratio of their processor time to ours (least, median and largest of the turns), and how far their
vectors or scores are from ours (the least cosine, or the largest difference of a logit). SPLADE runs in fp32: torch
writes the graph of `splade-bert-tiny` for the libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airgen import models
from airgen.dataset.beir import BeirDataset
from airgen.retrievers import load_embedder, load_reranker

_CONFIG = {"all-minilm-l6-v2-int8": (384, 6, 12, 1536), "bge-small-en-int8": (384, 12, 12, 1536),
           "ms-marco-minilm-l12-int8": (384, 12, 12, 1536)}  # fmt: skip


def folder_of(name: str, place: Path) -> Path:
    """Write a catalogue model in the layout of transformers and fastembed: configuration, graph and tokenizer."""
    width, layers, heads, inner = _CONFIG[name]
    folder = place / name
    shutil.copytree(models.path(name), folder)
    kind = "BertForSequenceClassification" if "marco" in name else "BertModel"
    config = {
        "model_type": "bert", "architectures": [kind], "hidden_size": width, "num_hidden_layers": layers,
        "num_attention_heads": heads, "intermediate_size": inner, "vocab_size": 30522, "max_position_embeddings": 512,
        "pad_token_id": 0, "id2label": {"0": "relevant"}, "label2id": {"relevant": 0},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = {"tokenizer_class": "BertTokenizerFast", "model_max_length": 256, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    special = {
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
    }
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    return folder


def rivals(name: str, folder: Path) -> dict[str, Callable[[Sequence[Any]], Any]]:
    """Return the other libraries that run the model, as functions of texts or pairs, and report those that cannot."""
    found: dict[str, Callable[[Sequence[Any]], Any]] = {}
    marco = "marco" in name
    try:
        library = __import__("sentence_transformers")
        given = {"backend": "onnx", "model_kwargs": {"file_name": "model.onnx", "provider": "CPUExecutionProvider"}}
        if marco:
            encoder = library.CrossEncoder(str(folder), max_length=512, **given)
            torch = __import__("torch")
            found["sentence-transformers"] = lambda pairs: encoder.predict(
                list(pairs), activation_fn=torch.nn.Identity(), show_progress_bar=False
            )
        else:
            part = library.sentence_transformer.modules if hasattr(library, "sentence_transformer") else library.models
            word = part.Transformer(str(folder), max_seq_length=256, backend="onnx", model_args=given["model_kwargs"])
            pool = part.Pooling(384, pooling_mode="cls" if "bge" in name else "mean")
            model = library.SentenceTransformer(modules=[word, pool])
            found["sentence-transformers"] = lambda texts: model.encode(
                list(texts), normalize_embeddings=True, show_progress_bar=False
            )
    except Exception as error:  # noqa: BLE001  # a package that is missing or too new is a result as well
        print(f"{name}: sentence-transformers: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
    try:
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType
        from fastembed.rerank.cross_encoder import TextCrossEncoder

        hub = ModelSource(hf="local/model")
        if marco:
            TextCrossEncoder.add_custom_model(model=name, model_file="model.onnx", sources=hub)
            ranker = TextCrossEncoder(name, specific_model_path=str(folder), threads=1)
            found["fastembed"] = lambda pairs: np.array(list(ranker.rerank_pairs(list(pairs))))
        else:
            pooling = PoolingType.CLS if "bge" in name else PoolingType.MEAN
            TextEmbedding.add_custom_model(
                model=name, pooling=pooling, normalization=True, sources=hub, dim=384, model_file="model.onnx"
            )
            fast = TextEmbedding(name, specific_model_path=str(folder), threads=1)
            found["fastembed"] = lambda texts: np.array(list(fast.embed(list(texts))))
    except Exception as error:  # noqa: BLE001
        print(f"{name}: fastembed: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
    return found


SPLADE = "splade-bert-tiny"


def splade_folder(place: Path) -> Path:
    """Write the catalogue's SPLADE with a graph of its logits."""
    import torch
    from transformers import AutoModelForMaskedLM

    folder = place / SPLADE
    shutil.copytree(models.path(SPLADE), folder)
    model = AutoModelForMaskedLM.from_pretrained(str(folder), attn_implementation="eager").eval().requires_grad_(False)

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).logits

    names = ["input_ids", "attention_mask", "token_type_ids"]
    ids = torch.ones((2, 7), dtype=torch.int64)
    torch.onnx.export(
        Logits(), (ids, ids, torch.zeros_like(ids)), str(folder / "model.onnx"), dynamo=False, opset_version=17,
        input_names=names, output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in [*names, "logits"]},
    )  # fmt: skip
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (folder / "special_tokens_map.json").write_text(json.dumps({**special, "mask_token": "[MASK]"}))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "model_max_length": 256}))
    return folder


def splade_rivals(folder: Path) -> dict[str, Callable[[Sequence[Any]], Any]]:
    """Return the other libraries that run SPLADE, as functions from texts to rows over the whole vocabulary."""
    found: dict[str, Callable[[Sequence[Any]], Any]] = {}
    try:
        from sentence_transformers import SparseEncoder
        from sentence_transformers.sparse_encoder import modules

        given = {"file_name": "model.onnx", "provider": "CPUExecutionProvider"}
        word = modules.MLMTransformer(str(folder), max_seq_length=256, backend="onnx", model_kwargs=given)
        encoder = SparseEncoder(modules=[word, modules.SpladePooling(pooling_strategy="max")], device="cpu")
        found["sentence-transformers"] = lambda texts: encoder.encode(
            list(texts), convert_to_sparse_tensor=False, show_progress_bar=False
        ).numpy()
    except Exception as error:  # noqa: BLE001
        print(f"{SPLADE}: sentence-transformers: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
    try:
        from fastembed import SparseTextEmbedding

        # A name from fastembed's list whose graph has the same form; the files are ours.
        fast = SparseTextEmbedding("prithivida/Splade_PP_en_v1", specific_model_path=str(folder), threads=1)
        found["fastembed"] = lambda texts: dense([(row.indices, row.values) for row in fast.embed(list(texts))])
    except Exception as error:  # noqa: BLE001
        print(f"{SPLADE}: fastembed: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
    return found


def dense(rows: Sequence[Any], terms: int = 30_522) -> Any:
    """Convert sparse rows to an array over the whole vocabulary."""
    out = np.zeros((len(rows), terms), np.float32)
    for place, (indices, values) in enumerate(rows):
        out[place, indices] = values
    return out


def compare_splade(place: Path, texts: Sequence[str], turns: int) -> None:
    """Print ratios of processor time, and the largest difference of a weight."""
    from airgen.retrievers.sparse import EmbeddedSplade

    ours = EmbeddedSplade(model=SPLADE, max_length=256)
    ways = {"airgen": lambda texts: dense(ours.encode(texts, "passage")), **splade_rivals(splade_folder(place))}
    results = {way: work(texts) for way, work in ways.items()}
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(turns):
        for way in list(ways) if turn % 2 else list(reversed(ways)):
            start = time.process_time()
            ways[way](texts)
            taken[way].append(time.process_time() - start)
    print(f"{SPLADE}: airgen {1000 * statistics.median(taken['airgen']) / len(texts):.1f} ms a text")
    for way in list(ways)[1:]:
        ratios = sorted(theirs / mine for theirs, mine in zip(taken[way], taken["airgen"], strict=True))
        difference = np.abs(results["airgen"] - results[way]).max()
        print(
            f"  {way}: {ratios[0]:.2f} {statistics.median(ratios):.2f} {ratios[-1]:.2f} of our time; "
            f"largest difference of a weight {difference:.6f}"
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collection", type=Path)
    options.add_argument("--texts", type=int, default=60)
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--only", nargs="+", default=[*_CONFIG, SPLADE], choices=[*_CONFIG, SPLADE])
    asked = options.parse_args()
    dataset = BeirDataset.open(asked.collection)
    passages = [
        f"{one.title} {one.text}".strip() for one, _ in zip(dataset.passages(), range(asked.texts), strict=False)
    ]
    queries = [query.text for query in dataset.queries("test").values()][: asked.texts]
    pairs = list(zip(queries, passages, strict=False))
    with tempfile.TemporaryDirectory() as place:
        if SPLADE in asked.only:
            compare_splade(Path(place), passages, asked.turns)
        for name in _CONFIG:
            if name not in asked.only:
                continue
            ours: Callable[[Sequence[Any]], Any]
            if "marco" in name:
                reranker, items = load_reranker(name), pairs
                ours = reranker.score
            else:
                embedder, items = load_embedder({"kind": "onnx", "model": name, "max_length": 256}), passages
                ours = lambda texts, embedder=embedder: embedder.encode(texts, "passage")  # noqa: E731
            ways = {"airgen": ours, **rivals(name, folder_of(name, Path(place)))}
            results = {way: work(items) for way, work in ways.items()}
            taken: dict[str, list[float]] = {way: [] for way in ways}
            for turn in range(asked.turns):
                for way in list(ways) if turn % 2 else list(reversed(ways)):
                    start = time.process_time()
                    ways[way](items)
                    taken[way].append(time.process_time() - start)
            print(f"{name}: airgen {1000 * statistics.median(taken['airgen']) / len(items):.1f} ms a text or pair")
            for way in list(ways)[1:]:
                ratios = [theirs / mine for theirs, mine in zip(taken[way], taken["airgen"], strict=True)]
                one, other = np.asarray(results["airgen"], np.float64), np.asarray(results[way], np.float64)
                near = f"least cosine {(one * other).sum(axis=1).min():.5f}" if one.ndim == 2 else (
                    f"largest difference {np.abs(one - other).max():.3f}")  # fmt: skip
                print(
                    f"  {way}: {min(ratios):.2f} {statistics.median(ratios):.2f} {max(ratios):.2f} of our time; {near}"
                )


if __name__ == "__main__":
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if any(os.environ.get(name) != value for name, value in threads.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **threads})
    main()
