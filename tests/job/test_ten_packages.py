"""One job, from documents to scores, on which each of the ten packages that the user chose does its part."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job_maker import make_corpus

from airgen.dataset.verify import verify

CORPUS = """
name: records
language: en
domain: test
licence: CC0-1.0
source: made by the tests
reader: {kind: datasets, path: saved}
chunk: {parser: "llama_index.core.node_parser:SentenceSplitter", arguments: {chunk_size: 64, chunk_overlap: 0}}
clean: {min_tokens: 5, language: "off", boilerplate: "off", personal_data: "off", near_duplicates: null}
"""
PIPELINE = """
name: job
task: long-doc
corpus: records.yaml
target: 3
llm: {backend: openai, base_url: URL, model: gpt-4o-mini, api_key_env: TEN_KEY}
generation: {rewrites: 0}
control:
  recall: {model: {kind: sentence-transformers, model: bert}, top_k: 10}
  rerankers: [{kind: flag-reranker, model: cross-encoder}, bm25]
evaluate: {systems: systems.yaml, split: all}
"""
SYSTEMS = """
systems:
- {name: bm25, kind: bm25}
- {name: hnsw, kind: dense, index: HNSW8, embedder: {kind: sentence-transformers, model: bert}}
"""


RUN = """
import sys
from airgen.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, end="")
"""


@pytest.fixture
def models(tmp_path: Path) -> None:
    """Two models of random weights in the folders `bert` and `cross-encoder`."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("FlagEmbedding")
    letters = [*map(chr, range(97, 123)), *map(chr, range(48, 58))]
    words = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", *letters, *(f"##{letter}" for letter in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    marks = dict(zip(("cls_token", "sep_token", "unk_token", "pad_token", "mask_token"), words, strict=False))
    tokenizer = transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"), **marks)
    sizes = {
        "vocab_size": len(words), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 520, "pad_token_id": 3,
    }  # fmt: skip
    torch.manual_seed(0)
    made = {
        "bert": transformers.BertModel(transformers.BertConfig(**sizes)),
        "cross-encoder": transformers.XLMRobertaForSequenceClassification(
            transformers.XLMRobertaConfig(**sizes, num_labels=1)
        ),
    }
    for name, model in made.items():
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)


def test_one_job_uses_all_ten(
    tmp_path: Path, models: None, loopback: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own, which imports a package only where the job needs it."""
    datasets = pytest.importorskip("datasets")
    for module in ("faiss", "llama_index.core", "sentence_transformers"):
        pytest.importorskip(module)
    server = loopback(scripted=True, faults={"http_500": 0.2}, fault_attempts=1)
    make_corpus(tmp_path / "rows.jsonl", 4)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    book = {"id": "book", "title": "Specimens", "text": "\n\n".join(row["text"] for row in rows)}
    datasets.Dataset.from_list([book]).save_to_disk(str(tmp_path / "saved"))
    (tmp_path / "records.yaml").write_text(CORPUS, encoding="utf-8")
    (tmp_path / "systems.yaml").write_text(SYSTEMS, encoding="utf-8")
    (tmp_path / "job.yaml").write_text(PIPELINE.replace("URL", server.base_url), encoding="utf-8")
    monkeypatch.setenv("TEN_KEY", "sk-of-the-test")

    words = ["run", str(tmp_path / "job.yaml"), "--runs", str(tmp_path / "runs"), "--json", "--no-report"]
    done = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, text=True, cwd=tmp_path)

    printed, _, modules = done.stdout.rpartition("\n")
    assert done.returncode == 0, done.stderr
    assert {score["system"] for score in json.loads(printed)["scores"]} == {"bm25", "hnsw"}
    assert verify(tmp_path / "runs" / "job" / "dataset") == []
    assert {"openai", "tiktoken", "llama_index", "FlagEmbedding", "sentence_transformers", "faiss", "datasets",
            "tenacity", "jinja2", "duckdb"} <= set(modules.split())  # fmt: skip
