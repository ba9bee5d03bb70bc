"""Lengths of what systems find, by hand and through the command."""

import sys
from pathlib import Path

import pytest
from beir_folder import write_beir
from command_line import call

from airgen.studies.lengths import length_table, top_lengths

LONG = """
import numpy as np
from airgen.retrievers.component import Component


class Long(Component):
    '''A passage's vector grows with its number of words; a setting makes all of length 1.'''

    class Settings(Component.Settings):
        unit: bool = False

    name, dim = "long", 2

    def encode(self, texts, kind):
        found = np.array([[1.0 + ("bees" in text), 1.0] for text in texts], np.float32)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        lengths = np.array([[1.0 if self.settings.unit else len(text.split())] for text in texts], np.float32)
        return found * lengths

    def describe(self):
        return {"model": "long", "unit": self.settings.unit}
"""


def test_lengths_by_hand() -> None:
    words = {"a": 1, "b": 10, "c": 100}
    runs = {"one": {"q1": ["c"], "q2": ["gone", "a"], "q3": ["c"]}, "none": {}}
    found = top_lengths(runs, {"q1": {"a": 1, "b": 0}, "q2": {"c": 2, "lost": 1}}, words)
    assert {name: values.tolist() for name, values in found.items()} == {
        "one": [100, 1], "none": [], "relevant passages": [1, 100], "corpus": [1, 10, 100],
    }  # fmt: skip
    table = length_table(found, {"one": 0.5}, "nDCG@10")
    assert "| one | 0.5000 | 2 | 50 |" in table and "| none |  | 0 |" in table


def test_the_dot_product_finds_longer_passages_than_the_cosine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "embedders.py").write_text(LONG)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sys.modules.pop("embedders", None)
    texts = ["bees " * count for count in (1, 2, 3)] + ["ants " * count for count in (30, 40, 50, 60, 70, 80, 90, 99)]
    rows = [{"_id": str(place), "text": text.strip()} for place, text in enumerate([*texts, *["bees"] * 10])]
    dataset = write_beir(tmp_path / "set", rows, [{"_id": "q", "text": "bees"}], {"test": [("q", "0", 1)]})
    systems = tmp_path / "systems.yaml"
    systems.write_text(
        "systems:\n"
        "  - {name: dot, kind: dense, embedder: {kind: 'embedders:Long'}}\n"
        "  - {name: cosine, kind: dense, embedder: {kind: 'embedders:Long', unit: true}}\n"
    )
    call("evaluate", dataset, "--systems", systems, "--out", tmp_path / "out", "--lengths", "--json")
    page = (tmp_path / "out" / "set" / "test" / "lengths.md").read_text()
    medians = {
        line.split("|")[1].strip(): line.split("|")[7].strip() for line in page.splitlines() if line.count("|") > 8
    }
    assert float(medians["dot"]) > 30 and medians["cosine"] == "1" and medians["relevant passages"] == "1"
    assert "<svg" in (tmp_path / "out" / "set" / "test" / "lengths.svg").read_text()
