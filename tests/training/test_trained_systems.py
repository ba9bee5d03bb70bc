"""Systems that are trained, or that have queries written, by the command that evaluates them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import call, invoke
from packages import package
from small_models import make_t5

package("torch")
package("transformers")

from airgen.errors import SettingsError
from airgen.evaluation import load_systems
from airgen.storage.paths import cache_dir, data_dir
from airgen.training.task import read_card
from airgen.training.trained_systems import hours

SYSTEMS = """
systems:
  - {{name: bm25, kind: bm25}}
  - {{name: deepct, kind: trained, train: deepct, dataset: {data}, base: {bert}, set: {{max_steps: 2, batch_size: 8}}}}
  - {{name: ce, kind: trained, train: cross-encoder, dataset: {data}, base: {bert},
      set: {{max_steps: 1, max_length: 24}}}}
  - {{name: doct5query, kind: doct5query, writer: {t5}, queries: 2}}
  - {{name: genq, kind: genq, writer: {t5}, queries: 2, passages: 10, base: {bert}, millions: 223,
      set: {{max_steps: 1, similarity: dot, batch_size: 8, hard_negatives: 0, max_length: 16, chunk: 4}}}}
"""


@pytest.fixture
def t5(tmp_path: Path) -> Path:
    """A random T5 of a few thousand weights, with the tokenizer of the small BERT."""
    return make_t5(tmp_path / "t5")


@pytest.fixture
def systems(dataset: Path, bert: Path, t5: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "systems.yaml"
    path.write_text(SYSTEMS.format(data=dataset, bert=bert, t5=t5))
    yield path


def test_one_command_trains_writes_and_evaluates(systems: Path, dataset: Path, tmp_path: Path) -> None:
    words = ("evaluate", dataset, "--systems", systems, "--out", tmp_path / "out")
    said = invoke(*words, raises=True).stderr
    first = [line for line in said.splitlines() if " first " in line]
    assert [line.split()[1] for line in first] == ["deepct", "ce", "doct5query", "genq"]
    assert "24 queries of" in first[0] and "at most 2 steps of 8, about " in first[0]
    assert "writes 80 queries for 40 passages with" in first[2]
    assert "writes 20 queries for 10 passages with" in first[3] and "; then trains" in first[3]
    assert said.rindex(" first ") < said.index("running")
    results = (tmp_path / "out" / "results.md").read_text()
    assert all(f"| {name} " in results for name in ("bm25", "deepct", "ce", "doct5query", "genq"))
    made = sorted(path.name.partition("-")[0] for path in cache_dir("trained").iterdir() if path.suffix != ".lock")
    assert made == ["cross", "deepct", "genq", "genq", "queries", "queries"]
    assert " first " not in invoke(*words, raises=True).stderr  # all is kept
    # The model is kept when the result is not.
    assert " first " not in invoke(*words, "--fresh", "--only", "deepct", raises=True).stderr


def test_a_system_is_trained_on_several_datasets(
    dataset: Path, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    shutil.copytree(dataset, tmp_path / "nli")
    system = f"""{{name: both, kind: trained, train: encoder, base: {bert},
      dataset: [{dataset}, "nli=0.5,teacher=none"],
      set: {{max_steps: 1, batch_size: 8, max_length: 16, hard_negatives: 0}}}}"""
    (tmp_path / "systems.yaml").write_text(f"systems:\n  - {system}\n")
    said = invoke("evaluate", dataset, "--systems", tmp_path / "systems.yaml", "--out", tmp_path / "out", raises=True)
    assert f"36 queries of {dataset.name} and nli, at most 1 steps" in said.stderr  # 24 and half of 24
    (card,) = filter(None, map(read_card, cache_dir("trained").glob("encoder-*")))
    parts = [(part["weight"], part.get("teacher")) for part in card["data"]["datasets"]]
    assert parts == [(1.0, None), (0.5, "none")]


def test_a_dataset_to_train_on_that_is_not_here_is_told_first(systems: Path, dataset: Path, tmp_path: Path) -> None:
    systems.write_text(systems.read_text().replace(f"dataset: {dataset}", "dataset: msmarco"))
    with pytest.raises(SettingsError, match="deepct is trained on msmarco, which is not here: airgen fetch beir"):
        call("evaluate", dataset, "--systems", systems, "--out", tmp_path / "out")


def test_the_ten_systems_of_beir_ship_with_their_cost() -> None:
    systems = {one.name: one for one in load_systems(data_dir("pipelines") / "systems-beir.yaml")}
    assert sorted(systems) == sorted(
        ["bm25", "deepct", "sparta", "doct5query", "dpr", "ance", "tas-b", "genq", "colbert", "bm25+ce"]
    )
    (said,) = (spec.settings.makes_first(1_000_000, Path()) for _, spec in systems["genq"].parts())
    assert said.startswith("writes 500,000 queries for 100,000 passages") and "on 500,000 pairs, about" in said
    # 2 x 223 million parameters x 1 million tokens at 1e14 operations a second: 4.5 seconds.
    assert hours(223e6, 1e6, 2).startswith(", about 0.0012 hours of a GPU or ")
    assert hours(None, 1e6, 2) == ""
