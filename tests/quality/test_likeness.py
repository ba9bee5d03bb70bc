"""Generated beside real queries: figures worked out by hand, and the command on a real collection."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import call
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.quality.diversity.likeness import likeness, likeness_table

REAL = [f"{word} prices" for word in ("tea", "salt", "rope", "wool", "tin", "oats", "flax", "hemp", "rye", "peat")]


class Letters:
    """Texts as vectors of their letters."""

    def encode(self, texts: list[str], kind: object) -> NDArray[np.float32]:
        rows = np.array([[text.count(chr(97 + place)) for place in range(26)] for text in texts], np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_figures_by_hand() -> None:
    generated = ["how is rope made?", "how is wool made?", "tea prices", "Wool PRICES!"]
    found = likeness("mine", generated, [*REAL, REAL[0]], "en", Letters())
    assert (found.generated, found.real, found.words, found.words_real) == (4, 10, 3.0, 2.0)
    assert found.copies == 2  # near duplicates of "tea prices" and "wool prices"
    assert found.length_distance == 0.5 and found.length_distance_real == 0.0  # half of the generated ones are longer
    assert found.forms == {"question": 0.5, "keywords": 0.5, "sentence": 0.0}
    assert found.form_distance == 0.5 and found.form_distance_real == 0.0
    assert 0.5 <= found.stems <= 1.0 and found.stems_real == 0.5  # "price" is known, the goods are not
    assert found.nearest is not None and found.nearest_real is not None and found.nearest_real > found.nearest
    assert found.covered is not None and found.covered_by_real is not None
    assert found.covered <= found.covered_by_real and found.covered_by_real >= 0.75
    table = likeness_table([found])
    assert [column.title for column in table.columns] == ["", "mine", "real"]
    assert ["copies of real ones", "2", ""] in table.cells()
    same = likeness("same", REAL, REAL, "en", Letters())
    assert (same.form_distance, same.length_distance, same.copies) == (0.0, 0.0, 10)


def test_meanings_need_an_embedder_and_figures_need_ten_queries() -> None:
    found = likeness("mine", ["tea prices"], REAL, "en")
    assert found.nearest is None and found.covered is None and likeness_table([found]).cells()
    with pytest.raises(UsageError, match="9 real queries are too few"):
        likeness("mine", ["tea prices"], REAL[:9], "en")


def test_the_command_compares_a_dataset_with_a_log(shared: Path, tmp_path: Path) -> None:
    """Medline's own queries are like themselves, and each is a copy."""
    medline = shared / "collections" / "medline"
    out = call("study", "diversity", medline, "--real", medline, "--out", tmp_path / "out", "--language", "en")
    assert "copies of real ones" in out and "likeness.md" in out
    (row,) = json.loads((tmp_path / "out" / "likeness.json").read_text())["datasets"]
    assert (row["copies"], row["length_distance"], row["form_distance"]) == (30, 0, 0)
