"""Queries of a trained augmentation for engines that take weighted terms: Lucene, Pyserini, Elasticsearch, tantivy.

    out/corpus/corpus.jsonl      {"id", "contents"}: each passage as the model's terms, separated by spaces
    out/queries.tsv              id, and the query in Lucene's syntax: "statin"^1.83 "stroke"^0.94

The engine must take the terms as they are (a whitespace analyser; Pyserini's `--pretokenized`), because other stemmers
would give other terms. The paper (arXiv 2305.14087) stores nothing but BM25's index: the weights are in the query.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airgen.dataset.beir import BeirDataset
from airgen.errors import UsageError
from airgen.retrievers.lexical.augment import Augmented
from airgen.training.data import read_corpus

_DIGITS = 4


@dataclass(frozen=True)
class LuceneExport:
    """What was written. `terms`: mean number of terms of a query. k1, b: what the engine's BM25 must be set to."""

    corpus: Path
    queries: Path
    passages: int
    asked: int
    terms: float
    k1: float
    b: float


def lucene_query(weights: Mapping[str, float]) -> str:
    """A query in the syntax of Lucene's classic parser: each term quoted, with its boost; the heaviest first.

    Within quotes only the quote and the backslash have a meaning, so no term can be read as an operator. Weights are
    divided by the greatest, which leaves the ranking as it is; a term whose boost is rounded to 0 is left out.
    """
    most = max(weights.values(), default=1.0)
    parts = []
    for term, weight in sorted(weights.items(), key=lambda one: (-one[1], one[0])):
        boost = f"{weight / most:.{_DIGITS}f}".rstrip("0").rstrip(".")
        if boost != "0":
            quoted = term.replace("\\", "\\\\").replace('"', '\\"')
            parts.append(f'"{quoted}"^{boost}')
    return " ".join(parts)


def export_lucene(model: Path, dataset: Path, out: Path, split: str = "test") -> LuceneExport:
    """Write corpus and queries of a split. Raises UsageError for a folder that is not empty, ModelError, DatasetError.

    Only terms that stand in the corpus are in a query: others find nothing.
    """
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out}: is not empty; name another folder")
    system = Augmented(model)
    weighting = system.model.settings
    if weighting["scoring"] != "bm25":
        raise UsageError(f"{model}: it was trained with scoring {weighting['scoring']!r}, not for an engine's BM25")
    opened = BeirDataset.open(dataset)
    labels, texts = opened.qrels(split).labels, opened.queries()
    corpus = read_corpus(dataset)
    system.index(corpus)
    (out / "corpus").mkdir(parents=True, exist_ok=True)
    with (out / "corpus" / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for place, id_ in enumerate(corpus.ids):
            terms = system.model.analyser(corpus.full_text(place))
            file.write(json.dumps({"id": id_, "contents": " ".join(terms)}, ensure_ascii=False) + "\n")
    count = 0
    with (out / "queries.tsv").open("w", encoding="utf-8", newline="\n") as file:
        for id_ in labels:
            weights = {term: one for term, one in system.weights(texts[id_].text).items() if term in system.vocabulary}
            count += len(weights)
            file.write(f"{id_}\t{lucene_query(weights)}\n")
    asked = len(labels)
    return LuceneExport(out / "corpus", out / "queries.tsv", len(corpus.ids), asked, count / max(1, asked),
                        weighting["k1"], weighting["b"])  # fmt: skip
