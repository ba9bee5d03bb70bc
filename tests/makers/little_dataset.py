"""A small dataset whose scores can be worked out by hand."""

import pytest
from beir_folder import write_beir

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
    corpus = [{"_id": key, "title": title, "text": text} for key, (title, text) in PASSAGES.items()]
    queries = [{"_id": key, "text": text, "metadata": about} for key, (text, about) in QUERIES.items()]
    labels = [(*pair, label) for pair, label in LABELS.items()]
    return write_beir(tmp_path / "little", corpus, queries, {"test": labels})
