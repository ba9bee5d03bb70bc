"""Compare multilingual-e5 with 7-bit layers to fp32: similarity of the vectors, nDCG@10 and processor time.

    python benchmarks/narrow.py COLLECTION... [--passages 400] [--queries 250]

The first passages of a collection are searched, and only queries all of whose relevant passages are among them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from airgen.dataset.beir import BeirDataset
from airgen.evaluation.measures import score
from airgen.evaluation.run import run_from_dict
from airgen.retrievers.dense.bert_graph import bert
from airgen.retrievers.dense.small_embedders import PackedE5
from airgen.storage.records import flat_text


def encode(model: PackedE5, texts: Sequence[str], kind: Any) -> tuple[Any, float]:
    model.encode(texts[:1], kind)
    start = time.process_time()
    return model.encode(texts, kind), time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--passages", type=int, default=400)
    parser.add_argument("--queries", type=int, default=250)
    args = parser.parse_args()
    narrow, wide = PackedE5(), PackedE5()
    file = wide._file
    wide._bert = bert(file.weights(), file.layers, file.heads, file.epsilon)
    for folder in args.collections:
        dataset = BeirDataset.open(folder)
        passages = {one.id: flat_text(one.title, one.text) for one in islice(dataset.passages(), args.passages)}
        labels = {key: row for key, row in dataset.qrels("test").labels.items() if row.keys() <= passages.keys()}
        asked = {key: one.text for key, one in dataset.queries().items() if key in labels}
        asked = dict(list(asked.items())[: args.queries])
        print(f"{folder.name}: {len(passages)} passages, {len(asked)} queries")
        vectors = []
        for name, model in (("7 bits", narrow), ("fp32", wide)):
            matrix, seconds = encode(model, list(passages.values()), "passage")
            queries, _ = encode(model, list(asked.values()), "query")
            near = queries @ matrix.T
            hits = {
                key: {list(passages)[at]: float(near[row, at]) for at in np.argsort(-near[row])[:100]}
                for row, key in enumerate(asked)
            }
            found = score(run_from_dict(hits), {key: labels[key] for key in asked}, "nDCG@10").means()["nDCG@10"]
            print(f"  {name:8} nDCG@10 {found:.4f}   {1000 * seconds / len(passages):6.1f} ms a passage (processor)")
            vectors.append(matrix)
        cosines = (vectors[0] * vectors[1]).sum(axis=1)
        print(f"  cosine   mean {cosines.mean():.4f}, least {cosines.min():.4f}")


if __name__ == "__main__":
    main()
