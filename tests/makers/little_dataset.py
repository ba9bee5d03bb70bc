"""A small dataset whose scores can be worked out by hand."""

from __future__ import annotations

import json

import pytest

PASSAGES = {
    "p1": ("Cats", "cats eat fish and sleep all day"),
    "p2": ("Dogs", "dogs eat bones and bark at cats"),
    "p3": ("Birds", "birds sing in the morning and eat seeds"),
    "p4": ("", "fish swim in the deep blue sea"),
    "p5": ("", "the stock market fell sharply this morning"),
}
QUERIES = {
    "q1": ("what do cats eat", {"type": "question", "style": "casual"}),
    "q2": ("fish in the sea", {"type": "claim", "style": "casual"}),
    "q3": ("market crash", {"type": "claim", "style": "formal"}),
    "unjudged": ("nobody has a label for this one", {}),
}
LABELS = {("q1", "p1"): 2, ("q1", "p2"): 0, ("q2", "p4"): 1, ("q3", "p5"): 1}


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "little"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": key, "title": title, "text": text} for key, (title, text) in PASSAGES.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"_id": key, "text": text, "metadata": about} for key, (text, about) in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [f"{query}\t{passage}\t{label}\n" for (query, passage), label in LABELS.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    return folder
