"""Measure cross-lingual retrieval with human labels: queries from one translation of a collection, passages from
another.

    python benchmarks/cross_lingual.py WORK xquad-en:xquad-de xquad-de:xquad-en [--systems FILE]

QUERIES:CORPUS are two collections in BEIR format whose passages have the same ids, such as the translations of XQuAD.
The labels are those of the queries. For each pair, a dataset is made in WORK and evaluated; existing datasets are
reused. Prints nDCG@10 with 95% intervals over queries.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from airgen.dataset.beir import BeirDataset
from airgen.evaluation import EvaluationOptions, evaluate, load_systems
from airgen.safety.escaping import markdown_table, md

SYSTEMS = """
systems:
  - {name: bm25, kind: bm25}
  - {name: minilm-english, kind: dense, embedder: all-minilm-l6-v2-int8}
  - {name: e5-small-multilingual, kind: dense, embedder: multilingual-e5-small-q4}
"""


def joined(queries: Path, corpus: Path, target: Path) -> Path:
    """Make a dataset from the queries and labels of one collection and the passages of the other."""
    ids = {passage.id for passage in BeirDataset.open(corpus).passages()}
    labels = BeirDataset.open(queries).qrels("test").labels
    missing = {id_ for judged in labels.values() for id_ in judged} - ids
    assert not missing, f"{corpus} lacks {len(missing)} of the labelled passages of {queries}: their ids differ"
    (target / "qrels").mkdir(parents=True, exist_ok=True)
    for home, name in ((corpus, "corpus"), (queries, "queries")):
        source = next(path for path in (home / f"{name}.jsonl.gz", home / f"{name}.jsonl") if path.exists())
        shutil.copy(source, target / source.name)
    shutil.copy(queries / "qrels" / "test.tsv", target / "qrels" / "test.tsv")
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("pairs", nargs="+", metavar="QUERIES:CORPUS")
    parser.add_argument("--systems", type=Path)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    file = given.systems or given.work / "systems.yaml"
    if not given.systems:
        file.write_text(SYSTEMS)
    rows = []
    for pair in given.pairs:
        queries, corpus = (Path(part) for part in pair.split(":"))
        home = joined(queries, corpus, given.work / f"{queries.name}-{corpus.name}")
        options = EvaluationOptions(language=corpus.name.rpartition("-")[2], folder=file.parent)
        found = evaluate(home, load_systems(file), given.work / "results", options, progress=print)
        ends = [one.intervals[one.headline] for one in found]
        cells = [f"{one.score:.3f} ({low:.3f}–{high:.3f})" for one, (low, high) in zip(found, ends, strict=True)]
        rows.append([md(queries.name), md(corpus.name), str(found[0].queries), *cells])
    names = [md(system.name) for system in load_systems(file)]
    print(markdown_table(["queries of", "passages of", "queries", *names], rows))


if __name__ == "__main__":
    main()
