"""Compare third-party search engines with airgen's own systems on human-labelled collections, in one table.

    python tests/makers/real_servers.py            # fetches the servers by hash, once
    airgen fetch bge-small-en-int8
    python benchmarks/engines.py COLLECTION... [--out runs/engines]

Qdrant, Chroma, Meilisearch and Typesense run on loopback, are filled by airgen, and are searched with their default
settings and once with settings suited to questions. Lucene is represented by Anserini, whose run file is read. Qdrant
appears with exact search (its default below 10 MB of vectors), with its graph, and with a poor graph, which lowers ANN
recall.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "makers"))
from real_servers import KEYS, anserini, started

from airgen.dataset.beir import BeirDataset
from airgen.evaluation import EvaluationOptions, evaluate
from airgen.evaluation.systems import load_systems
from airgen.storage.records import flat_text

MODEL = "bge-small-en-int8"
SYSTEMS = """systems:
- {{name: bm25, kind: bm25}}
- {{name: bm25-as-lucene, kind: bm25, lossy_lengths: true}}
- {{name: lucene, kind: run, path: "{lucene}"}}
- {{name: dense, kind: dense, embedder: {model}, cache: "{cache}"}}
- {{name: qdrant, kind: qdrant, url: "{qdrant}", embedder: {model}, cache: "{cache}"}}
- name: qdrant-graph
  kind: qdrant
  url: "{qdrant}"
  embedder: {model}
  cache: "{cache}"
  index_settings: {{hnsw_config: {{full_scan_threshold: 10}}, optimizers_config: {{indexing_threshold: 100}}}}
- name: qdrant-poor-graph
  kind: qdrant
  url: "{qdrant}"
  embedder: {model}
  cache: "{cache}"
  index_settings:
    hnsw_config: {{m: 4, ef_construct: 8, full_scan_threshold: 10}}
    optimizers_config: {{indexing_threshold: 100}}
  search_settings: {{params: {{hnsw_ef: 10}}}}
- {{name: chroma, kind: chroma, url: "{chroma}", embedder: {model}, cache: "{cache}"}}
- {{name: meilisearch, kind: meilisearch, url: "{meilisearch}", api_key_env: MEILI_KEY}}
- name: meilisearch-frequency
  kind: meilisearch
  url: "{meilisearch}"
  api_key_env: MEILI_KEY
  search_settings: {{matchingStrategy: frequency}}
- {{name: typesense, kind: typesense, url: "{typesense}", headers: {{X-TYPESENSE-API-KEY: "${{TYPESENSE_KEY}}"}}}}
- name: typesense-drop
  kind: typesense
  url: "{typesense}"
  headers: {{X-TYPESENSE-API-KEY: "${{TYPESENSE_KEY}}"}}
  search_settings: {{drop_tokens_threshold: 1000}}
"""


def lucene(dataset: BeirDataset, folder: Path) -> Path:
    """Index and search with Anserini, k1 .9 and b .4, and return the run file."""
    (folder / "corpus").mkdir(parents=True)
    with (folder / "corpus" / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for one in dataset.passages():
            file.write(json.dumps({"id": one.id, "contents": flat_text(one.title, one.text)}) + "\n")
    asked = dataset.qrels("test").labels
    topics = [f"{key}\t{' '.join(one.text.split())}\n" for key, one in dataset.queries().items() if key in asked]
    (folder / "topics.tsv").write_text("".join(topics), "utf-8")
    for words in (
        ["io.anserini.index.IndexCollection", "-collection", "JsonCollection", "-input", folder / "corpus", "-index",
         folder / "index", "-generator", "DefaultLuceneDocumentGenerator", "-threads", "1"],
        ["io.anserini.search.SearchCollection", "-index", folder / "index", "-topics", folder / "topics.tsv",
         "-topicReader", "TsvString", "-output", folder / "run.txt", "-bm25", "-hits", "100"],
    ):  # fmt: skip
        anserini(*words)
    return folder / "run.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/engines"))
    options = parser.parse_args()
    os.environ |= {"MEILI_KEY": KEYS["meilisearch"], "TYPESENSE_KEY": KEYS["typesense"]}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = ("qdrant", "chroma", "meilisearch", "typesense")
        urls = {name: stack.enter_context(started(name, folder / name)) for name in names}
        for collection in options.collections:
            run = lucene(BeirDataset.open(collection), folder / "lucene" / collection.name)
            file = folder / f"{collection.name}.yaml"
            file.write_text(SYSTEMS.format(**urls, lucene=run, model=MODEL, cache=options.out.absolute() / "vectors"))
            evaluate(collection, load_systems(file), options.out, EvaluationOptions("test", folder=folder))
            print((options.out / collection.name / "test" / "report.md").read_text("utf-8").split("## Pairs")[0])


if __name__ == "__main__":
    main()
