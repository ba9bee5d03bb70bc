"""A corpus of which no document can give a query is given up after some hundred samples, with the reason."""

import json
from pathlib import Path

import pytest
import yaml
from command_line import call

from airgen.errors import CorpusError
from airgen.generation.generate import UNUSABLE


def test_a_corpus_without_prose_says_so(tmp_path: Path) -> None:
    rows = [{"id": f"d{row}", "text": " ".join(f"{row * 40 + place}.5" for place in range(40))} for row in range(1500)]
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    clean = {"min_tokens": 1, "language": "off", "boilerplate": "off", "personal_data": "off", "near_duplicates": None}
    corpus = {"name": "lists", "language": "en", "domain": "tech", "licence": "CC0-1.0", "source": "made",
              "reader": {"kind": "jsonl", "path": "lists.jsonl"}, "clean": clean}  # fmt: skip
    job = {"name": "job", "task": "qa", "corpus": "lists.yaml", "target": 3, "llm": {"backend": "scripted"},
           "control": {"recall": {"pools_only": True, "top_k": 10}, "pools": ["bm25"],
                       "rerankers": ["bm25"]}}  # fmt: skip
    for name, value in (("lists", corpus), ("job", job)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(value))
    for _ in range(2):  # the same command again says the same, without trying more
        with pytest.raises(CorpusError, match=r"any of the first \d+ sampled passages \(\d+ .*no prose"):
            call("run", tmp_path / "job.yaml", "--runs", tmp_path / "runs", "--no-report")
    assert UNUSABLE < 1500
