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
    figures = dict(found.figures)
    assert (found.generated, found.real, found.copies) == (4, 10, 2)  # copies of "tea prices" and "wool prices"
    assert figures["words, mean"] == (3.0, 2.0)
    assert figures["distance of lengths"] == (0.5, 0.0)  # half of the generated ones are longer
    assert [figures[f"share of {form}"][0] for form in ("question", "keywords", "sentence")] == [0.5, 0.5, 0.0]
    assert figures["distance of forms"] == (0.5, 0.0)
    stems, real = figures["real stems known"]
    assert stems is not None and 0.5 <= stems <= 1.0 and real == 0.5  # "price" is known, the goods are not
    (near, near_real), (covered, by_real) = figures["cosine of the nearest"], figures["real queries covered"]
    assert near is not None and near_real is not None and near_real > near
    assert covered is not None and by_real is not None and covered <= by_real and by_real >= 0.75
    table = likeness_table([found])
    assert [column.title for column in table.columns] == ["", "mine", "real"]
    assert ["copies of real ones", "2", ""] in table.cells()


def test_meanings_need_an_embedder_and_figures_need_ten_queries() -> None:
    found = likeness("mine", ["tea prices"], REAL, "en")
    assert found.figures["real queries covered"] == (None, None) and likeness_table([found]).cells()
    with pytest.raises(UsageError, match="9 real queries are too few"):
        likeness("mine", ["tea prices"], REAL[:9], "en")


def test_the_command_compares_a_dataset_with_a_log(shared: Path, tmp_path: Path) -> None:
    """Medline's own queries are like themselves, and each is a copy."""
    medline = shared / "collections" / "medline"
    out = call("study", "diversity", medline, "--real", medline, "--out", tmp_path / "out", "--language", "en")
    assert "copies of real ones" in out and "likeness.md" in out
    (row,) = json.loads((tmp_path / "out" / "likeness.json").read_text())["datasets"]
    distances = [row["figures"][f"distance of {what}"][0] for what in ("lengths", "forms")]
    assert (row["copies"], distances) == (30, [0, 0])
